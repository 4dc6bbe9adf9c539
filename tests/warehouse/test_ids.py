"""Ids: they sort by the time they were made, and none is made twice."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.ids import Ids, is_uuid7, uuid7


@given(st.lists(st.integers(0, 2**48 - 2), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_each_id_is_greater_than_those_before_it(times: list[int], random: Random) -> None:
    """Within a millisecond, and when the clock goes back."""
    ticks: Iterator[int] = iter(times)
    ids = Ids(lambda: next(ticks), random.randbytes)
    made = [ids.new() for _ in times]
    assert made == sorted(set(made))
    assert all(is_uuid7(str(each)) for each in made)


def test_a_millisecond_that_is_full_flows_over_into_the_next() -> None:
    """So that order holds even then."""
    ids = Ids(lambda: 5, lambda size: b"\xff" * size)
    first, second = ids.new(), ids.new()
    assert first < second
    assert (first.int >> 80, second.int >> 80) == (5, 6)


def test_threads_get_different_ids() -> None:
    """Each in the order in which it was made."""
    ids = Ids(lambda: 5)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: [ids.new() for _ in range(200)], range(4)))
    assert len({each for part in made for each in part}) == 800
    assert all(part == sorted(part) for part in made)


def test_an_id_of_given_bytes_has_their_bits() -> None:
    """The version and the variant take the place of six of them."""
    made = uuid7(0x0123456789AB, bytes(range(10)))
    assert made == uuid.UUID("01234567-89ab-7001-8203-040506070809")


def test_the_text_of_an_id_is_its_canonical_spelling() -> None:
    """The same sequence, spelled at once."""
    one, two = (Ids(lambda: 1_700_000_000_000, Random(7).randbytes) for _ in range(2))
    assert [one.new_text() for _ in range(100)] == [str(two.new()) for _ in range(100)]
