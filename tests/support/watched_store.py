"""A store with something that happens just before an object is written, for tests of what comes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lamella.snapshot.storage import ListedObject, ObjectStat, Store


class WatchedStore:
    """``store``, but ``before_put(location)`` is called ahead of each :meth:`put`."""

    def __init__(self, store: Store, before_put: Callable[[str], None]) -> None:
        self._store = store
        self._before_put = before_put

    def read(self, location: str) -> bytes:
        """As the store does."""
        return self._store.read(location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        return self._store.read_range(location, start, length)

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does, after what happens first."""
        self._before_put(location)
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
