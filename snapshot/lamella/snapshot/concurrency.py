"""Deadlines that threads inherit, a pool of threads that do, and work that many want and one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from typing import Any, Final, ParamSpec, TypeVar

from lamella.snapshot.errors import LamellaError, Unavailable

# Until when somebody waits for what is being done: known to all that is done for it, in whatever thread.
#
# Work in a thread cannot be ended from outside. So it asks from time to time whether anybody still waits, and ends
# itself.

#: By the clock of :func:`time.monotonic`, in seconds.
_UNTIL: Final[ContextVar[float | None]] = ContextVar("lamella_waited_for_until", default=None)
#: What ``details.reason`` says of a request whose time is over.
_REASON: Final = "deadline"


def wait_until(until_s: float | None) -> None:
    """From now on, in this context, somebody waits until then (:func:`time.monotonic`; None: as long as it takes)."""
    _UNTIL.set(until_s)


def left_s() -> float | None:
    """How much longer somebody waits, in seconds, not below 0; None: as long as it takes."""
    until_s = _UNTIL.get()
    return None if until_s is None else max(0.0, until_s - time.monotonic())


def check_patience() -> None:
    """Raise Unavailable once nobody waits any more; to be called where work can end without harm."""
    until_s = _UNTIL.get()
    if until_s is not None and time.monotonic() >= until_s:
        raise too_late()


def too_late() -> Unavailable:
    """What is said of a request whose time is over."""
    return Unavailable("the request took longer than it may", retry_after_s=1, reason=_REASON)


def is_too_late(error: BaseException | None) -> bool:
    """Whether it says that nobody waited for the work any more: nothing was wrong with the work itself."""
    return isinstance(error, Unavailable) and error.details.get("reason") == _REASON


P = ParamSpec("P")
T = TypeVar("T")


class ContextThreadPool(ThreadPoolExecutor):
    """Work sees the context (:mod:`contextvars`) of whoever asked for it; what it changes there stays its own."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As the base does; ``map`` goes through this, too."""
        run: Any = copy_context().run  # each time anew: one context cannot be entered twice at once
        future: Future[T] = super().submit(run, fn, *args, **kwargs)
        return future


_T = TypeVar("_T")


class SingleFlight:
    """Calls in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[], _T]) -> _T:
        """What ``work`` returns or raises; threads that come with a key while it is at work share its outcome.

        Each waits only as long as somebody waits for it (:func:`wait_until`). Where the one that was at
        work gave up because nobody waited for it any more, or its thread was told to end (``KeyboardInterrupt`` and
        the like), one of the others does the work anew. ``work`` must not come back with its own key.
        """
        while True:
            mine: Future[_T] = Future()
            try:
                with self._lock:
                    running: Future[_T] = self._running.setdefault(key, mine)
                if running is mine:
                    result = work()
                    self._end(key, mine)
                    mine.set_result(result)
                    return result
            except BaseException as error:
                # An interrupt may come at any line above. Nobody has this future where another one is at work.
                self._end(key, mine)
                if not mine.done():
                    mine.set_exception(error)
                raise
            wait([running], left_s())
            if not running.done():
                raise too_late()
            failure = running.exception()
            if failure is None or (isinstance(failure, Exception) and not is_too_late(failure)):
                return _outcome(running)
            check_patience()

    def _end(self, key: Hashable, mine: Future[_T]) -> None:
        """Before the others know the outcome, so that none of them finds what is over."""
        with self._lock:
            if self._running.get(key) is mine:
                del self._running[key]


def _outcome(running: Future[_T]) -> _T:
    try:
        return running.result()
    except LamellaError as error:
        # Each thread raises an error of its own: callers add details to theirs.
        raise type(error)(error.message, **error.details) from error
