"""Work in threads that nobody waits for any more: it keeps no request waiting, does not pile up, changes nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from lamella.service.process.deadline import begin_change, end
from lamella.service.process.threads import Threads
from lamella.snapshot.concurrency import check_deadline, time_left_s, wait_until
from lamella.snapshot.errors import Overloaded, Unavailable

LONG_S = 60.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    """On an event loop of its own."""

    async def body() -> None:
        await test()

    asyncio.run(body())


async def given_up(threads: Threads, work: Callable[[], object]) -> None:
    """Have work begun and given up soon after."""
    began = threading.Event()

    def noted() -> None:
        began.set()
        work()

    async def within() -> None:
        wait_until(time.monotonic() + 0.05)
        with pytest.raises(Unavailable) as caught:
            await threads.run(noted)
        assert caught.value.details["reason"] == "deadline"

    await asyncio.create_task(within())


def test_work_is_not_waited_for_any_longer_than_its_request_may_take() -> None:
    """The answer comes although the work goes on, and what comes next has a thread."""

    async def test() -> None:
        threads, go = Threads(1), threading.Event()
        await given_up(threads, lambda: go.wait(LONG_S))
        assert threads.use.abandoned == 1
        wait_until(time.monotonic() + LONG_S)
        assert await threads.run(lambda: "done") == "done"
        go.set()
        while threads.use.abandoned:
            await asyncio.sleep(0.001)
        assert threads.use.busy == 0

    run(test)


def test_abandoned_work_does_not_pile_up() -> None:
    """As many pieces as there are turns go on beside the others; one more keeps its turn until it ends."""

    async def test() -> None:
        threads, go = Threads(2), threading.Event()
        running: list[int] = []

        def work() -> None:
            running.append(1)
            go.wait(LONG_S)

        for _ in range(4):
            await given_up(threads, work)
        assert len(running) == 4
        assert (threads.use.abandoned, threads.use.busy) == (2, 2)
        for _ in range(3):  # these get no turn, and are not begun
            await given_up(threads, work)
        assert len(running) == 4
        go.set()
        wait_until(time.monotonic() + LONG_S)
        assert await threads.run(lambda: "done") == "done"
        while threads.use.abandoned or threads.use.busy:
            await asyncio.sleep(0.001)

    run(test)


def test_work_knows_how_long_somebody_waits() -> None:
    """It sees the time in its thread, and ends itself at its next look."""

    async def test() -> None:
        threads = Threads(1)
        ended = threading.Event()

        def work() -> None:
            assert time_left_s() is not None
            try:
                while True:
                    check_deadline()
                    time.sleep(0.001)
            finally:
                ended.set()

        await given_up(threads, work)
        while not ended.is_set() or threads.use.abandoned:
            await asyncio.sleep(0.001)

    run(test)


def test_errors_of_the_work_are_its_own() -> None:
    """Also a TimeoutError, which is no sign that the request's time is over."""

    async def test() -> None:
        threads = Threads(1)
        wait_until(time.monotonic() + LONG_S)

        def fails() -> None:
            raise TimeoutError("of a socket")

        with pytest.raises(TimeoutError, match="of a socket"):
            await threads.run(fails)
        assert threads.use.busy == 0

    run(test)


def test_a_request_that_is_cancelled_leaves_its_turn() -> None:
    """While it waits for a turn, and while its work is under way."""

    async def test() -> None:
        threads, go = Threads(1), threading.Event()
        wait_until(time.monotonic() + LONG_S)
        first = asyncio.create_task(threads.run(lambda: go.wait(LONG_S)))
        while threads.use.busy == 0:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(threads.run(lambda: None))
        while threads.use.waiting == 0:
            await asyncio.sleep(0.001)
        second.cancel()
        first.cancel()
        done = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(each) for each in done] == [asyncio.CancelledError] * 2
        assert await threads.run(lambda: "done") == "done"
        go.set()
        while threads.use.abandoned:
            await asyncio.sleep(0.001)

    run(test)


def test_a_change_that_waits_too_long_is_never_begun() -> None:
    """Its turn came after its client had gone; the rest of one that has begun is done all the same."""

    async def test() -> None:
        threads, go = Threads(1), threading.Event()
        first = asyncio.create_task(threads.run(lambda: go.wait(LONG_S)))
        while threads.use.busy == 0:
            await asyncio.sleep(0.001)
        done: list[str] = []

        async def overdue() -> None:
            begin_change(0.05)
            with pytest.raises(Unavailable) as refused:
                await threads.run(lambda: done.append("late"))
            assert refused.value.details["reason"] == "deadline"
            with pytest.raises(Unavailable):
                await threads.run(lambda: done.append("later"))
            rest = asyncio.create_task(threads.run(lambda: done.append("rest"), is_begun=True))
            await asyncio.sleep(0.05)
            go.set()
            await rest
            end()
            await threads.run(lambda: done.append("next request"))

        await asyncio.create_task(overdue())
        await first
        assert done == ["rest", "next request"]
        assert threads.use.busy == threads.use.waiting == 0

    run(test)


def test_a_change_that_has_begun_is_waited_for() -> None:
    """However long it takes, its outcome is the answer; also where it fails."""

    async def test() -> None:
        threads = Threads(1)

        def slow() -> str:
            time.sleep(0.2)
            return "made"

        def failing() -> str:
            time.sleep(0.2)
            raise OSError("of the work")

        begin_change(0.1)
        assert await threads.run(slow) == "made"
        begin_change(0.1)
        with pytest.raises(OSError, match="of the work"):
            await threads.run(failing)
        assert threads.use.busy == 0

    run(test)


@pytest.mark.parametrize("within_s", [None, 60.0])
def test_no_more_wait_than_may_when_all_come_at_once(within_s: float | None) -> None:
    """Tasks that come in one round of the event loop are counted, although none of them waits yet."""
    threads, go = Threads(1, max_waiting=3, what="tests"), threading.Event()

    async def ask() -> bool:
        if within_s is not None:
            wait_until(time.monotonic() + within_s)
        return await threads.run(lambda: go.wait(60))

    async def answers() -> list[bool | BaseException]:
        tasks = [asyncio.create_task(ask()) for _ in range(10)]
        async with asyncio.timeout(30):
            while sum(task.done() for task in tasks) < 6:
                await asyncio.sleep(0.01)
        go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(answers())
    assert found.count(True) == 4
    assert sum(isinstance(each, Overloaded) for each in found) == 6
