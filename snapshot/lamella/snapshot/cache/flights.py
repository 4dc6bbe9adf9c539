"""Work that several threads want at once is done by one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.patience import check_patience, is_too_late, left_s, too_late

_T = TypeVar("_T")


class Flights:
    """Calls in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[], _T]) -> _T:
        """What ``work`` returns or raises; threads that come with a key while it is at work share its outcome.

        Each waits only as long as somebody waits for it (:mod:`lamella.snapshot.patience`). Where the one that was at
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
