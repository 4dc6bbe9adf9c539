"""Places: so many at once, so many in line, and nobody behind another one's line."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.http.concurrency import ConcurrencyLimit
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.concurrency import wait_until
from lamella.snapshot.errors import Overloaded, Unavailable


def concurrency_limit(at_once: int, waiting: int, *, shared: bool = True, wait_s: float = 60.0) -> ConcurrencyLimit:
    """Some."""
    return ConcurrencyLimit("read", at_once=at_once, waiting=waiting, wait_s=wait_s, shared=shared, metrics=Metrics())


async def let_tasks_run() -> None:
    """Let everything run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def hold(of: ConcurrencyLimit, owner: str, order: list[str] | None = None) -> None:
    """Take a place, or wait for it."""
    if not of.take(owner):
        await of.wait(owner)
    if order is not None:
        order.append(owner)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """On an event loop of its own."""

    async def body() -> None:
        await test()

    asyncio.run(body())


def test_one_principal_has_half_of_the_slots_and_of_the_line() -> None:
    """The rest is there for the others at once, however many of the first one wait."""

    async def test() -> None:
        own = concurrency_limit(4, 4)
        assert [own.take("a") for _ in range(3)] == [True, True, False]
        waiting = [asyncio.ensure_future(own.wait("a")) for _ in range(2)]
        await let_tasks_run()
        with pytest.raises(Overloaded) as refused:
            await own.wait("a")
        assert refused.value.details == {"retry_after_s": 1, "limit": "share"}
        assert [own.take("b") for _ in range(2)] == [True, True]
        own.give_back("a")
        await let_tasks_run()
        assert [each.done() for each in waiting] == [True, False]
        waiting[1].cancel()

    run(test)


def test_without_shares_one_may_have_all() -> None:
    """Where nobody says who asks, all are one."""

    async def test() -> None:
        own = concurrency_limit(2, 1, shared=False)
        assert own.take("a")
        assert own.take("a")
        waiting = asyncio.ensure_future(own.wait("a"))
        await let_tasks_run()
        with pytest.raises(Overloaded) as refused:
            own.check("a")
        assert refused.value.details["limit"] == "requests"
        own.give_back("a")
        await waiting

    run(test)


def test_those_who_wait_are_served_in_turn() -> None:
    """One with a long line does not keep another waiting for more than a place."""

    async def test() -> None:
        own = concurrency_limit(2, 20)
        order: list[str] = []
        assert own.take("x")
        assert own.take("y")
        tasks = [asyncio.ensure_future(hold(own, owner, order)) for owner in "aaaabbc"]
        await let_tasks_run()
        holders = ["x", "y"]
        while len(order) < len(tasks):
            own.give_back(holders.pop(0))
            await let_tasks_run()
            holders.append(order[-1])
        assert order == list("abcabaa")

    run(test)


def test_who_waits_longer_than_its_request_may_take_is_refused() -> None:
    """It leaves the line, and takes no place when its turn comes."""

    async def test() -> None:
        own = concurrency_limit(1, 5)
        assert own.take("a")
        wait_until(0.0)
        with pytest.raises(Unavailable) as caught:
            await own.wait("b")
        assert caught.value.details["reason"] == "deadline"
        wait_until(None)
        own.give_back("a")
        assert own.take("c")

    run(test)


def test_who_waits_too_long_is_refused() -> None:
    """So that those who are served are served soon, however slow everything is."""

    async def test() -> None:
        own = concurrency_limit(1, 5, wait_s=0.01)
        assert own.take("a")
        with pytest.raises(Overloaded) as refused:
            await own.wait("b")
        assert refused.value.details["limit"] == "requests"
        own.give_back("a")
        assert own.take("c")

    run(test)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 6), st.booleans())
def test_slots_are_never_lost_nor_given_twice(seed: int, at_once: int, waiting: int, shared: bool) -> None:
    """Whoever comes, waits, gives up and leaves in whatever order: bounds hold, and at the end all is free."""
    rng = Random(seed)

    async def test() -> None:
        own = concurrency_limit(at_once, waiting, shared=shared)
        max_own = max(1, at_once // 2) if shared else at_once
        taken: list[str] = []
        tasks: dict[asyncio.Task[None], str] = {}
        for _ in range(60):
            step = rng.random()
            if step < 0.5:
                owner = rng.choice("abc")
                if own.take(owner):
                    taken.append(owner)
                else:
                    tasks[asyncio.ensure_future(own.wait(owner))] = owner
            elif step < 0.8 and taken:
                own.give_back(taken.pop(rng.randrange(len(taken))))
            elif tasks:
                rng.choice(list(tasks)).cancel()
            if rng.random() < 0.7:
                await let_tasks_run()
                taken += _collected(tasks)
                assert len(taken) <= at_once
                assert max(Counter(taken).values(), default=0) <= max_own
                assert len(tasks) <= waiting
                if len(taken) < at_once:
                    assert all(Counter(taken)[owner] >= max_own for owner in tasks.values())
        while taken or tasks:
            await let_tasks_run()
            taken += _collected(tasks)
            while taken:
                own.give_back(taken.pop())
        assert [own.take(f"new{number}") for number in range(at_once + 1)] == [True] * at_once + [False]

    run(test)


def _collected(tasks: dict[asyncio.Task[None], str]) -> list[str]:
    """Those that have a place by now; those that were refused or gave up are gone."""
    found = []
    for task in [task for task in tasks if task.done()]:
        owner = tasks.pop(task)
        if not task.cancelled() and task.exception() is None:
            found.append(owner)
    return found
