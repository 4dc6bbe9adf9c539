"""The end of a file, read once: the footer stands there, and mostly the page index before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamella.snapshot.layout import ListedObject, ObjectStat, Store
from lamella.snapshot.parquet.footer import TAIL_BYTES


class Tail:
    """A :class:`~lamella.snapshot.layout.Store` that has the last bytes of one file in memory.

    What lies before them is asked of the store behind it; the last such answer is kept too (a long footer).
    """

    def __init__(self, store: Store, stat: ObjectStat) -> None:
        self._store = store
        self._location = stat.location
        self._size = stat.size_bytes
        self.start = max(0, stat.size_bytes - TAIL_BYTES)
        self._data = store.read_range(stat.location, self.start, stat.size_bytes - self.start)
        self._last: tuple[int, bytes] = (0, b"")

    def footer(self, size: int) -> bytes:
        """The footer, of a known size in bytes."""
        return self.read_range(self._location, self._size - 8 - size, size)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes, from memory where they are there."""
        if location != self._location:
            return self._store.read_range(location, start, length)
        for at, data in ((self.start, self._data), self._last):
            if at <= start and start + length <= at + len(data):
                return data[start - at : start - at + length]
        found = self._store.read_range(location, start, length)
        self._last = (start, found)
        return found

    def read(self, location: str) -> bytes:
        """As the store does."""
        return self._store.read(location)

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does."""
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """As the store does."""
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """As the store does."""
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """As the store does."""
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """As the store does."""
        return self._store.delete_many(locations)
