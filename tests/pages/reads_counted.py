"""A store that says what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamella.snapshot.storage import ListedObject, ObjectStat, Store


class ReadsCounted:
    """A store that counts the bytes read of each object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read_bytes: dict[str, int] = {}
        self.requests = 0

    def read(self, location: str) -> bytes:
        """As the store does."""
        data = self._store.read(location)
        self._count(location, len(data))
        return data

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        data = self._store.read_range(location, start, length)
        self._count(location, len(data))
        return data

    def _count(self, location: str, size_bytes: int) -> None:
        self.requests += 1
        self.read_bytes[location] = self.read_bytes.get(location, 0) + size_bytes

    def files_read(self) -> list[str]:
        """The Parquet files of which something was read."""
        return sorted(location for location in self.read_bytes if location.endswith(".parquet"))

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
