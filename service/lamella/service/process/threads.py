"""Thread pools for blocking work, their memory, debounced background work, and the removal of old records."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
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
    """Busy threads, their maximum, and tasks that wait for a thread. ``abandoned``: see :class:`Threads`."""

    busy: int
    max_threads: int
    waiting: int
    abandoned: int = 0


class Threads:
    """Runs up to ``at_once`` tasks at a time; others wait without using a thread. Belongs to one event loop.

    ``max_waiting``: the number of tasks that may wait; one more is refused (None: no limit). ``what`` names the tasks
    in the error.

    A task of a request with a deadline (:mod:`lamella.snapshot.concurrency`) is awaited only until the deadline. A
    thread cannot be stopped, so the task is abandoned: it ends when it next checks the deadline. Up to ``at_once``
    abandoned tasks run in addition to the others; more of them keep their slots.

    A task of a change (:mod:`lamella.service.process.deadline`) is not started after its deadline. Once started, it is
    awaited until it ends.
    """

    def __init__(self, at_once: int, *, max_waiting: int | None = None, what: str = "requests") -> None:
        self._at_once = at_once
        self._max_waiting = max_waiting
        self._what = what
        self._limiter: CapacityLimiter | None = None
        self._pool = ContextThreadPool(2 * at_once, thread_name_prefix="lamella-work")
        self._abandoned = 0
        self._awaited = 0

    @property
    def use(self) -> ThreadUse:
        """The current use. Call this on the event loop that the pool belongs to."""
        if self._limiter is None:
            return ThreadUse(0, self._at_once, 0)
        now = self._limiter.statistics()
        return ThreadUse(now.borrowed_tokens, self._at_once, now.tasks_waiting, self._abandoned)

    async def run(self, work: Callable[[], _T], *, is_begun: bool = False) -> _T:
        """Run ``work`` and return its result. ``is_begun``: it belongs to a change that has started and must be done.

        Raises:
            Overloaded: too many tasks are waiting; nothing was done.
            Unavailable: the deadline was exceeded; of a change nothing was done.
        """
        if self._limiter is None:  # made here because it belongs to the event loop
            self._limiter = CapacityLimiter(self._at_once)
        if self._max_waiting is not None and self._is_full(self._limiter, self._max_waiting):
            raise Overloaded(f"too many {self._what} are under way", retry_after_s=1, limit="threads")
        self._awaited += 1
        try:
            within_s = time_left_s()
            if within_s is None:
                return await _run_begun(None if is_begun else begin_left_s(), work, self._limiter)
            return await self._run_within(within_s, work, self._limiter)
        finally:
            self._awaited -= 1

    def _is_full(self, limiter: CapacityLimiter, max_waiting: int) -> bool:
        # A task asks the limiter for its turn only when the event loop comes round again, so tasks that arrive together
        # are counted here, too.
        return limiter.statistics().tasks_waiting >= max_waiting or self._awaited >= self._at_once + max_waiting

    async def _run_within(self, within_s: float, work: Callable[[], _T], limiter: CapacityLimiter) -> _T:
        begun: Future[_T] | None = None
        turn = object()
        deadline = asyncio.timeout(within_s)
        try:
            async with deadline:
                await limiter.acquire_on_behalf_of(turn)
                begun = self._pool.submit(work)
                return await asyncio.wrap_future(begun)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise deadline_exceeded() from error
        finally:
            if begun is not None and not (begun.done() or begun.cancel()):
                self._abandon(begun, turn, limiter)
            elif begun is not None or turn in limiter.statistics().borrowers:
                limiter.release_on_behalf_of(turn)

    def _abandon(self, begun: Future[_T], turn: object, limiter: CapacityLimiter) -> None:
        """Stop waiting for a task, and let another one start unless too many tasks are abandoned."""
        loop = asyncio.get_running_loop()
        keeps_slot = self._abandoned >= self._at_once
        if not keeps_slot:
            self._abandoned += 1
            limiter.release_on_behalf_of(turn)

        def ended() -> None:
            if keeps_slot:
                limiter.release_on_behalf_of(turn)
            else:
                self._abandoned -= 1

        def notify(_: object) -> None:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                loop.call_soon_threadsafe(ended)

        begun.add_done_callback(notify)


async def _run_begun(within_s: float | None, work: Callable[[], _T], limiter: CapacityLimiter) -> _T:
    """Run work if it gets a slot before the deadline; from then on it is awaited, however long it takes."""
    with anyio.move_on_after(within_s):  # work that runs in a thread is shielded from this timeout
        return await anyio.to_thread.run_sync(work, limiter=limiter)
    raise deadline_exceeded()


_VARIABLE: Final = "MALLOC_ARENA_MAX"
#: glibc's number of the parameter that the variable sets.
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2


def limit_arenas() -> None:
    """Let the threads of the process share two arenas of glibc, unless its variable ``MALLOC_ARENA_MAX`` is set.

    By default threads have up to eight arenas for each core, and none uses what was freed in another: with a cache of
    1 GiB that sidecars pass through, a service took 1.9 GB, and 1.35 GB with two arenas. Threads that share the
    interpreter seldom wait for each other here. Other C libraries are not changed.
    """
    if _VARIABLE not in os.environ:
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


_LOG: Final = logging.getLogger("lamella.debouncer")


class Debouncer:
    """Runs ``work`` about ``delay_s`` after it was requested, once for all requests in the meantime.

    The thread starts when it is first needed, so a fork before that is safe. If the work fails, or the thread cannot
    start, this is logged, and the next request tries again.
    """

    def __init__(self, work: Callable[[], object], delay_s: float, name: str) -> None:
        self._work = work
        self._delay_s = delay_s
        self._name = name
        #: Fast callers read this without a lock: while it is set, the work is already requested.
        self.is_due = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """Request the work; does nothing after :meth:`close`."""
        if self.is_due:
            return
        with self._lock:
            if self._closed.is_set():
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system cannot start a thread now; the next request tries again
                    _LOG.warning("%s cannot begin", self._name, exc_info=error)
                    return
                self._thread = thread
            self.is_due = True
            self._wake.set()

    def close(self) -> None:
        """Stop the thread after its current work; requested work is left to the caller."""
        with self._lock:
            self._closed.set()
            self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if self._closed.wait(self._delay_s):
                return
            self._wake.clear()
            if self._closed.is_set():  # it was closed in the meantime, and the wake-up for that is cleared
                return
            self.is_due = False  # before the work: it may not see data of requests from now on
            try:
                self._work()
            except BaseException as error:  # the thread continues, because callers rely on it to do the requested work
                _LOG.warning("%s failed", self._name, exc_info=error)


_EVERY_MS: Final = 600_000
_AT_ONCE: Final = 1_000


class BatchDeletion:
    """Calls ``forget`` with a time and a limit every ten minutes, and sooner while the limit was reached.

    ``clock`` returns Unix milliseconds; ``age_ms``: older records may be deleted.
    """

    def __init__(self, clock: Callable[[], int], age_ms: int, forget: Callable[[int, int], int]) -> None:
        self._clock = clock
        self._age_ms = age_ms
        self._forget = forget
        self._next_ms = 0

    @property
    def is_due(self) -> bool:
        """Whether a run is due; for callers where an unnecessary call is expensive."""
        return self._clock() >= self._next_ms

    def run(self) -> None:
        """Delete old records if a run is due. Raises the errors of ``forget``; the next call then tries again."""
        now_ms = self._clock()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS  # first, so that concurrent callers do not delete the same records
        forgotten = None
        try:
            forgotten = self._forget(now_ms - self._age_ms, _AT_ONCE)
        finally:
            if forgotten is None or forgotten >= _AT_ONCE:
                self._next_ms = 0
