"""Figures that take longer than a page may: made beside the requests, kept, and shown once they are there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Final, Generic, TypeVar

from lamella.snapshot.errors import Overloaded

_T = TypeVar("_T")

#: Answers to what somebody typed that are kept, and what a page waits for one that is not there yet.
MOST_READY: Final = 64
WAIT_S: Final = 0.15


class Prepared(Generic[_T]):
    """Keeps the last ``most`` values by key; one thread makes them, one after another.

    A key stands for all that a value rests on, so that a value never goes stale.
    """

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Future[_T]] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None

    def peek(self, key: Hashable, make: Callable[[], _T], *, wait_s: float = 0.0) -> _T | None:
        """The value, or None while it is being made and ``wait_s`` are over.

        Raises what ``make`` raised, each time that it is asked for; and Overloaded when too many are being made.
        """
        try:
            return self._future(key, make).result(wait_s)
        except NotYet:
            return None

    def _future(self, key: Hashable, make: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                return found
            if len(self._values) >= self._most:
                self._drop_oldest()
            if self._pool is None:  # made when it is needed, so that a fork before that does no harm
                self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            made = self._values[key] = self._pool.submit(make)
            return made

    def _drop_oldest(self) -> None:
        """Forget the value that was asked for the longest ago, but none that is being made."""
        for key, value in self._values.items():
            if value.done():
                del self._values[key]
                return
        raise Overloaded("too much is being worked out already; load the page again in a while", retry_after_s=5)
