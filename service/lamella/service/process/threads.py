"""Thread pools for blocking work, work that is written later by a thread of its own, and the removal of old records."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio import CapacityLimiter

from lamella.service.process.deadline import begin_left_s
from lamella.snapshot.concurrency import ContextThreadPool, deadline_exceeded, time_left_s
from lamella.snapshot.errors import Overloaded

_T = TypeVar("_T")


class ThreadUse(msgspec.Struct, frozen=True):
    """Threads at work, as many as may be, and pieces of work that wait for one. ``abandoned``: see :class:`Threads`."""

    busy: int
    most: int
    waiting: int
    abandoned: int = 0


class Threads:
    """``at_once`` pieces of work at a time; others wait for their turn and take no thread. Belongs to one event loop.

    ``max_waiting``: of those so many, and one more is refused (None: any number); ``what`` names the work then.

    Work for a request that somebody waits for until some time (:mod:`lamella.snapshot.concurrency`) is not waited for
    any longer. It goes on, since a thread cannot be ended, but is abandoned: it ends at its next look at the time. Up
    to ``at_once`` abandoned pieces are at work beside the others; more of them keep the turns that they have.

    Work of a change (:mod:`lamella.service.process.deadline`) is not begun once it is too late for that. What was
    begun is waited for.
    """

    def __init__(self, at_once: int, *, max_waiting: int | None = None, what: str = "requests") -> None:
        self._at_once = at_once
        self._max_waiting = max_waiting
        self._what = what
        self._limiter: CapacityLimiter | None = None
        self._pool = ContextThreadPool(2 * at_once, thread_name_prefix="lamella-work")
        self._abandoned = 0

    @property
    def use(self) -> ThreadUse:
        """How busy they are; to be asked on the event loop that they belong to."""
        if self._limiter is None:
            return ThreadUse(0, self._at_once, 0)
        now = self._limiter.statistics()
        return ThreadUse(now.borrowed_tokens, self._at_once, now.tasks_waiting, self._abandoned)

    async def run(self, work: Callable[[], _T], *, is_begun: bool = False) -> _T:
        """What ``work`` returns, or raises. ``is_begun``: it belongs to a change that has begun, and is to be done.

        Raises:
            Overloaded: too many are waiting; nothing was done.
            Unavailable: nobody waits any more; of a change nothing was done.
        """
        if self._limiter is None:  # made here because it belongs to the event loop
            self._limiter = CapacityLimiter(self._at_once)
        if self._max_waiting is not None and self._limiter.statistics().tasks_waiting >= self._max_waiting:
            raise Overloaded(f"too many {self._what} are under way", retry_after_s=1, limit="threads")
        within_s = time_left_s()
        if within_s is None:
            return await _run_begun(None if is_begun else begin_left_s(), work, self._limiter)
        return await self._run_within(within_s, work, self._limiter)

    async def _run_within(self, within_s: float, work: Callable[[], _T], limiter: CapacityLimiter) -> _T:
        begun: Future[_T] | None = None
        turn = object()
        patience = asyncio.timeout(within_s)
        try:
            async with patience:
                await limiter.acquire_on_behalf_of(turn)
                begun = self._pool.submit(work)
                return await asyncio.wrap_future(begun)
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise deadline_exceeded() from error
        finally:
            if begun is not None and not (begun.done() or begun.cancel()):
                self._abandon(begun, turn, limiter)
            elif begun is not None or turn in limiter.statistics().borrowers:
                limiter.release_on_behalf_of(turn)

    def _abandon(self, begun: Future[_T], turn: object, limiter: CapacityLimiter) -> None:
        """Let it end by itself, and another one have its turn if there are not too many such yet."""
        loop = asyncio.get_running_loop()
        is_kept = self._abandoned >= self._at_once
        if not is_kept:
            self._abandoned += 1
            limiter.release_on_behalf_of(turn)

        def ended() -> None:
            if is_kept:
                limiter.release_on_behalf_of(turn)
            else:
                self._abandoned -= 1

        def told(_: object) -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(ended)

        begun.add_done_callback(told)


async def _run_begun(within_s: float | None, work: Callable[[], _T], limiter: CapacityLimiter) -> _T:
    """Work that has its turn within that time; from then on it is waited for, however long it takes."""
    with anyio.move_on_after(within_s):  # what is at work in a thread is shielded from it
        return await anyio.to_thread.run_sync(work, limiter=limiter)
    raise deadline_exceeded()


_LOG: Final = logging.getLogger("lamella.later")


class Debouncer:
    """Runs ``work`` within about ``delay_s`` after it was asked for, once for all who asked meanwhile.

    The thread begins when it is first needed, so that a fork before that does no harm. Work that fails is logged, and
    done again when somebody asks the next time; so is a thread that cannot begin.
    """

    def __init__(self, work: Callable[[], object], delay_s: float, name: str) -> None:
        self._work = work
        self._delay_s = delay_s
        self._name = name
        #: Read without a lock by callers who are in a hurry: there is nothing to ask for while it is set.
        self.is_due = False
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """Have it done; nothing happens once this is closed."""
        if self.is_due:
            return
        with self._lock:
            if self._closed.is_set():
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system starts no thread now; it is tried again the next time
                    _LOG.warning("%s cannot begin", self._name, exc_info=error)
                    return
                self._thread = thread
            self.is_due = True
            self._asked.set()

    def close(self) -> None:
        """End the thread; what it is at is finished, and what was asked for is left to the caller."""
        with self._lock:
            self._closed.set()
            self._asked.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            if self._closed.wait(self._delay_s):
                return
            self._asked.clear()
            if self._closed.is_set():  # it was closed since, and the wake-up for that is cleared
                return
            self.is_due = False  # before the work: what is asked for from now on may come too late for it
            try:
                self._work()
            except BaseException as error:  # the thread stays: callers are told that it will do what they ask for
                _LOG.warning("%s failed", self._name, exc_info=error)


_EVERY_MS: Final = 600_000
_AT_ONCE: Final = 1_000


class BatchDeletion:
    """Calls ``forget`` with a time and a number every ten minutes, and sooner while there was as much as that.

    ``clock`` gives Unix milliseconds; ``age_ms``: what is older may go.
    """

    def __init__(self, clock: Callable[[], int], age_ms: int, forget: Callable[[int, int], int]) -> None:
        self._clock = clock
        self._age_ms = age_ms
        self._forget = forget
        self._next_ms = 0

    @property
    def is_due(self) -> bool:
        """Whether it is time; for callers to whom a call in vain is dear."""
        return self._clock() >= self._next_ms

    def run(self) -> None:
        """Forget some, if it is time. Raises what ``forget`` raises, and the next call tries again."""
        now_ms = self._clock()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS  # first, so that those who come meanwhile do not forget the same
        forgotten = None
        try:
            forgotten = self._forget(now_ms - self._age_ms, _AT_ONCE)
        finally:
            if forgotten is None or forgotten >= _AT_ONCE:
                self._next_ms = 0
