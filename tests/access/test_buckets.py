"""Token buckets under a clock of the test's own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.access.credentials import TokenBuckets, limited
from lamella.snapshot.errors import RateLimited

RATES = st.floats(0.01, 1_000)
BURSTS = st.floats(0.01, 100)
PAUSES = st.lists(st.floats(0, 50), min_size=1, max_size=60)
#: Levels are floating-point numbers.
CLOSE = 1e-6


class Clock:
    """Seconds that go up when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(RATES, BURSTS, PAUSES)
def test_never_more_is_taken_than_the_rate_and_one_burst(rate: float, burst_s: float, pauses: list[float]) -> None:
    """In any stretch of time, from whichever taking to whichever other one."""
    clock = Clock()
    buckets = TokenBuckets(burst_s, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        while buckets.take("a", rate) is None and len(taken) < 2_000:
            taken.append(clock.now)
    limit = max(1.0, rate * burst_s)
    for first in range(0, len(taken), 7):
        for last in range(first, len(taken), 5):
            assert last - first + 1 <= rate * (taken[last] - taken[first]) + limit + CLOSE


@given(RATES, BURSTS, PAUSES)
def test_whoever_waits_as_long_as_was_said_is_let_in(rate: float, burst_s: float, pauses: list[float]) -> None:
    """And one that comes a moment earlier is not, however often it asked in vain meanwhile."""
    clock = Clock()
    buckets = TokenBuckets(burst_s, clock)
    for pause in pauses:
        clock.now += pause
        while (wait_s := buckets.take("a", rate)) is None:
            if rate * burst_s > 500:
                return
        clock.now += wait_s * 0.9
        assert buckets.take("a", rate) is not None
        clock.now += wait_s * 0.1 + CLOSE / rate + 1e-9
        assert buckets.take("a", rate) is None


def test_names_have_buckets_of_their_own() -> None:
    """One that asks too often takes nothing from another."""
    buckets = TokenBuckets(2.0, Clock())
    assert [buckets.take("a", 2) for _ in range(5)] == [None] * 4 + [0.5]
    assert [buckets.take("b", 2) for _ in range(4)] == [None] * 4


def test_looking_takes_nothing() -> None:
    """However often."""
    buckets = TokenBuckets(1.0, Clock())
    assert [buckets.wait_s("a", 1) for _ in range(10)] == [None] * 10
    assert buckets.take("a", 1) is None
    assert buckets.wait_s("a", 1) == 1.0


def test_a_rate_below_one_in_a_burst_lets_one_in_at_a_time() -> None:
    """A bucket holds one token at least, else nobody ever came in."""
    clock = Clock()
    buckets = TokenBuckets(5.0, clock)
    assert buckets.take("a", 0.1) is None
    assert buckets.take("a", 0.1) == pytest.approx(10)
    clock.now = 10.001
    assert buckets.take("a", 0.1) is None


def test_a_clock_that_goes_back_gives_nothing() -> None:
    """Nor does it take anything away."""
    clock = Clock()
    clock.now = 100.0
    buckets = TokenBuckets(1.0, clock)
    assert buckets.take("a", 2) is None
    clock.now = 0.0
    assert buckets.take("a", 2) is None
    assert buckets.take("a", 2) == 0.5


@given(st.lists(st.integers(0, 30), max_size=200))
def test_only_so_many_names_are_remembered_those_used_last(names: list[int]) -> None:
    """Memory is bounded, and who asks all the time is not the one that is forgotten."""
    buckets = TokenBuckets(1.0, Clock(), max_names=8)
    for name in names:
        buckets.take(str(name), 1)
        assert buckets.wait_s(str(name), 1) is not None
    last = list(dict.fromkeys(reversed(names)))
    for index, name in enumerate(last):
        assert (buckets.wait_s(str(name), 1) is not None) == (index < 8)


@pytest.mark.parametrize(("wait_s", "said_s"), [(0.001, 1), (1.2, 2), (math.inf, 86_400), (1e300, 86_400)])
def test_the_answer_says_when_to_come_back(wait_s: float, said_s: int) -> None:
    """In whole seconds, never at once, and never later than a day."""
    error = limited("too often", wait_s)
    assert isinstance(error, RateLimited)
    assert error.details["retry_after_s"] == said_s
