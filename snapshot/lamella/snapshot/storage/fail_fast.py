"""A store that stops to try after some failures: for work on many files that one failure makes useless."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from lamella.snapshot.errors import StoreError
from lamella.snapshot.storage.store import EndReadingStore, ListedObject, ObjectStat, Store

_T = TypeVar("_T")

#: Failures after which nothing is tried. Each may have taken several tries and some seconds.
MAX_FAILURES: Final = 8


class FailFastStore:
    """``store``, of which every call raises StoreError at once after :data:`MAX_FAILURES` such errors.

    An object that is not there is no failure of the store. Threads may share it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._failures = 0
        self._last = ""
        if isinstance(store, EndReadingStore):
            self._end_reading = store
            self.reads_ends = store.reads_ends
            self.read_end = self._read_end

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        return self._tried(lambda: self._store.read(location), location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        return self._tried(lambda: self._store.read_range(location, start, length), location)

    def _read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """Returns the last bytes of an object, and its stat."""
        return self._tried(lambda: self._end_reading.read_end(location, length), location)

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        return self._tried(lambda: self._store.stat(location), location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Writes an object."""
        return self._tried(lambda: self._store.put(location, data), location)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the locations that a URL stands for."""
        return self._tried(lambda: self._store.expand(url, plain=plain), url)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields the objects below a prefix."""
        return self._tried(lambda: self._store.list(prefix, start_after=start_after), prefix)

    def delete(self, location: str) -> None:
        """Deletes an object."""
        self._tried(lambda: self._store.delete(location), location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Deletes objects."""
        return self._tried(lambda: self._store.delete_many(locations), "")

    def _tried(self, call: Callable[[], _T], location: str) -> _T:
        if self._failures >= MAX_FAILURES:
            raise StoreError(f"not tried: the store failed {MAX_FAILURES} times, last: {self._last}", location=location)
        try:
            return call()
        except StoreError as error:
            with self._lock:
                self._failures += 1
                self._last = error.message
            raise
