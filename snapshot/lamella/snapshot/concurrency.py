"""Request deadlines that threads inherit, a thread pool that passes them on, and single-flight execution."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from typing import Any, Final, ParamSpec, TypeVar

from lamella.snapshot.errors import LamellaError, Unavailable

# Request deadline, carried to worker threads in a context variable.
#
# A thread cannot be stopped from outside. So work checks the deadline from time to time, and stops itself.

#: By the clock of :func:`time.monotonic`, in seconds.
_UNTIL: Final[ContextVar[float | None]] = ContextVar("lamella_waited_for_until", default=None)
#: ``details.reason`` of a request whose deadline is exceeded.
_REASON: Final = "deadline"


def wait_until(until_s: float | None) -> None:
    """Set the deadline of this context (:func:`time.monotonic`; None: no deadline)."""
    _UNTIL.set(until_s)


def time_left_s() -> float | None:
    """Returns the time until the deadline, in seconds, not below 0; None without a deadline."""
    until_s = _UNTIL.get()
    return None if until_s is None else max(0.0, until_s - time.monotonic())


def check_deadline() -> None:
    """Raise Unavailable if the deadline is exceeded; to be called where work can stop without harm."""
    until_s = _UNTIL.get()
    if until_s is not None and time.monotonic() >= until_s:
        raise deadline_exceeded()


def deadline_exceeded(text: str = "the request exceeded its time limit") -> Unavailable:
    """Returns the error of a request whose deadline is exceeded."""
    return Unavailable(text, retry_after_s=1, reason=_REASON)


def is_deadline_exceeded(error: BaseException | None) -> bool:
    """Returns whether an error means that the deadline was exceeded, and not that the work failed."""
    return isinstance(error, Unavailable) and error.details.get("reason") == _REASON


P = ParamSpec("P")
T = TypeVar("T")


class ContextThreadPool(ThreadPoolExecutor):
    """A thread pool whose tasks run in a copy of the submitter's context (:mod:`contextvars`)."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a task, as the base class; ``map`` uses this too."""
        run: Any = copy_context().run  # a new copy each time: one context cannot be entered twice at once
        future: Future[T] = super().submit(run, fn, *args, **kwargs)
        return future


_T = TypeVar("_T")


class SingleFlight:
    """Calls in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[], _T]) -> _T:
        """Returns what ``work`` returns or raises; threads that arrive with the same key while it runs share its
        outcome.

        Each waits only until its own deadline (:func:`wait_until`). If the running thread stopped because of its
        deadline or was interrupted (``KeyboardInterrupt`` and the like), one of the others runs the work again.
        ``work`` must not call this with its own key.
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
                # An interrupt may occur at any line above. If another thread runs the work, no other thread has this
                # future.
                self._end(key, mine)
                if not mine.done():
                    mine.set_exception(error)
                raise
            wait([running], time_left_s())
            if not running.done():
                raise deadline_exceeded()
            failure = running.exception()
            if failure is None or (isinstance(failure, Exception) and not is_deadline_exceeded(failure)):
                return _outcome(running)
            check_deadline()

    def _end(self, key: Hashable, mine: Future[_T]) -> None:
        """Remove the entry before the outcome is set, so that no other thread finds a finished call."""
        with self._lock:
            if self._running.get(key) is mine:
                del self._running[key]


def _outcome(running: Future[_T]) -> _T:
    try:
        return running.result()
    except LamellaError as error:
        # Each thread raises its own error, because callers add details to it.
        raise type(error)(error.message, **error.details) from error
