"""Figures that take longer than a page may: made beside the requests, kept, and shown once they are there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from lamella.snapshot.errors import LamellaError

_T = TypeVar("_T")


class Prepared(Generic[_T]):
    """Keeps the last ``most`` values by key; one thread makes them, one after another.

    A key stands for all that a value rests on, so that a value never goes stale.
    """

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _T | LamellaError] = OrderedDict()
        self._asked: set[Hashable] = set()
        self._pool: ThreadPoolExecutor | None = None

    def peek(self, key: Hashable, make: Callable[[], _T]) -> _T | None:
        """The value, or None while it is being made. Waits for nothing. Raises what ``make`` raised, once it did."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            elif key not in self._asked and len(self._asked) < self._most:
                self._asked.add(key)
                if self._pool is None:  # made when it is needed, so that a fork before that does no harm
                    self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
                self._pool.submit(self._make, key, make)
        if isinstance(found, LamellaError):
            raise found
        return found

    def _make(self, key: Hashable, make: Callable[[], _T]) -> None:
        found: _T | LamellaError | None = None
        try:
            found = make()
        except LamellaError as error:
            found = error
        finally:
            with self._lock:
                self._asked.discard(key)
                if found is not None:
                    self._kept[key] = found
                    while len(self._kept) > self._most:
                        self._kept.popitem(last=False)
