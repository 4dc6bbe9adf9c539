"""Threads that want the same at once share one piece of work, and none is failed by the deadline of another."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from lamella.snapshot.cache import BoundedCache
from lamella.snapshot.concurrency import SingleFlight, check_deadline, wait_until
from lamella.snapshot.errors import StoreError, Unavailable


def within(seconds: float, call: Callable[[], str]) -> str:
    """A call of somebody who waits so long."""
    wait_until(time.monotonic() + seconds)
    try:
        return call()
    finally:
        wait_until(None)


class Slow:
    """Work that looks at the time once it may go on; ``begun`` counts."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.max_at_once = 0
        self.may_go_on = threading.Event()
        self.is_at_work = threading.Event()

    def __call__(self) -> str:
        self.begun += 1
        self.at_once += 1
        self.max_at_once = max(self.max_at_once, self.at_once)
        self.is_at_work.set()
        try:
            self.may_go_on.wait(10)
            check_deadline()
            return f"made by {self.begun}"
        finally:
            self.at_once -= 1


def started(pool: ThreadPoolExecutor, work: Slow, *seconds: float) -> list[Future[str]]:
    """The first one at work, then the others waiting for it."""
    cache = BoundedCache(1 << 20)

    def load() -> str:
        return cache.load(("text", "key"), lambda: (work(), 1))

    calls = [pool.submit(within, seconds[0], load)]
    assert work.is_at_work.wait(10)
    calls += [pool.submit(within, each, load) for each in seconds[1:]]
    time.sleep(0.1)
    return calls


def test_others_are_not_failed_by_the_deadline_of_the_one_at_work() -> None:
    """They have time: one of them does the work anew, and the rest share that."""
    work = Slow()
    with ThreadPoolExecutor(6) as pool:
        first, *others = started(pool, work, 0.2, 30, 30, 30, 30)
        time.sleep(0.2)
        work.may_go_on.set()
        with pytest.raises(Unavailable):
            first.result(10)
        assert [each.result(10) for each in others] == ["made by 2"] * 4
    assert (work.begun, work.max_at_once) == (2, 1)


def test_nobody_waits_for_another_longer_than_for_itself() -> None:
    """The one at work may have minutes."""
    work = Slow()
    with ThreadPoolExecutor(6) as pool:
        first, second = started(pool, work, 30, 0.2)
        with pytest.raises(Unavailable) as caught:
            second.result(5)
        assert caught.value.details["reason"] == "deadline"
        work.may_go_on.set()
        assert first.result(10) == "made by 1"


def test_errors_of_the_work_are_shared() -> None:
    """A store that fails is not asked again by each of them, also where it says that it has no time."""
    for error in (StoreError("out of order"), Unavailable("too busy", retry_after_s=1)):
        single_flight, work = SingleFlight(), Slow()

        def failing(work: Slow = work, error: Exception = error) -> str:
            work()
            raise error

        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(single_flight.run, "key", failing)]
            assert work.is_at_work.wait(10)
            calls += [pool.submit(single_flight.run, "key", failing) for _ in range(3)]
            time.sleep(0.1)
            work.may_go_on.set()
            assert {type(call.exception(10)) for call in calls} == {type(error)}
        assert work.begun == 1


@pytest.mark.parametrize("death", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_others_do_the_work_when_the_thread_at_it_is_interrupted(death: type[BaseException]) -> None:
    """An interrupt is about the thread that it comes to; the others wait neither for ever nor for its end."""
    single_flight, work = SingleFlight(), Slow()

    def interrupted() -> str:
        made = work()
        if work.begun == 1:
            raise death
        return made

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(single_flight.run, "key", interrupted)
        assert work.is_at_work.wait(10)
        others = [pool.submit(single_flight.run, "key", interrupted) for _ in range(2)]
        time.sleep(0.1)
        work.may_go_on.set()
        assert type(first.exception(10)) is death
        assert all(each.result(10).startswith("made by") for each in others)
    assert single_flight.run("key", lambda: "later") == "later"


def test_an_interrupt_on_the_way_to_the_work_leaves_no_flight_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come at any line, also between taking the key and beginning."""
    single_flight = SingleFlight()

    class Interrupted(dict[Hashable, Future[Any]]):
        def setdefault(self, key: Hashable, default: Any = None) -> Any:
            super().setdefault(key, default)
            raise KeyboardInterrupt

    monkeypatch.setattr(single_flight, "_running", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        single_flight.run("key", lambda: "never")
    assert not single_flight._running
