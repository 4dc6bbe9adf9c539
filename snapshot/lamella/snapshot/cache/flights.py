"""Work that several threads want at once is done by one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from lamella.snapshot.errors import LamellaError

_T = TypeVar("_T")


class Flights:
    """Calls in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[], _T]) -> _T:
        """What ``work`` returns or raises; threads that come with a key while it is at work share its outcome.

        ``work`` must not come back with its own key.
        """
        with self._lock:
            running: Future[_T] | None = self._running.get(key)
            mine: Future[_T] = Future()
            if running is None:
                self._running[key] = mine
        if running is not None:
            return _outcome(running)
        try:
            result = work()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(result)
            return result
        finally:
            with self._lock:
                del self._running[key]


def _outcome(running: Future[_T]) -> _T:
    try:
        return running.result()
    except LamellaError as error:
        # Each thread raises an error of its own: callers add details to theirs.
        raise type(error)(error.message, **error.details) from error
