"""A store to which the new objects of one piece of work are sent together, and not one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.storage.store import EndReadingStore, ListedObject, MappableStore, ObjectStat, Store

_UnderWay = dict[str, Future[ObjectStat]]

#: The puts of the block that this context is in; None outside of a block.
_PUTS: Final[ContextVar[_UnderWay | None]] = ContextVar("lamella_puts_under_way", default=None)
_THREADS: Final = 8


class TogetherStore:
    """``store``, with :meth:`put_new`: inside of a block :meth:`together` it does not wait for the object to be there.

    At the end of the block all of them are. What is read inside of the block is waited for first. Objects of a local
    disk are put at once, since nothing is gained by waiting for several. May be shared between threads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Its threads start with the first puts, after a fork.
        self._pool = ContextThreadPool(_THREADS, thread_name_prefix="lamella-put")
        # Optional operations exist if the wrapped store has them.
        if isinstance(store, MappableStore):
            self.local_path = store.local_path
        if isinstance(store, EndReadingStore):
            self.reads_ends = store.reads_ends
            self.read_end = store.read_end

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put new objects several at a time, until the end of the block, where all of them are there.

        Raises, at the end: as :meth:`put`, for the first object that could not be put; then any of the others may be
        there. If the block itself fails, it only waits for those under way.
        """
        under_way: _UnderWay = {}
        token = _PUTS.set(under_way)
        try:
            yield
        finally:
            _PUTS.reset(token)
            wait(under_way.values())
        for done in under_way.values():
            done.result()

    def put_new(self, location: str, data: bytes) -> None:
        """Create an object whose name nobody else knows; raises as :meth:`put`, or the end of the block does."""
        under_way = _PUTS.get()
        if under_way is None or not location.startswith("s3:"):
            self._store.put(location, data)
        else:
            under_way[location] = self._pool.submit(self._store.put, location, data)

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        _wait_for(location)
        return self._store.read(location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        _wait_for(location)
        return self._store.read_range(location, start, length)

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        _wait_for(location)
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object, and wait until it is there."""
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the data files that a URL names."""
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder."""
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """Remove an object."""
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        return self._store.delete_many(locations)


def _wait_for(location: str) -> None:
    """Wait for an object of this block; raises what its put raised."""
    under_way = _PUTS.get()
    if under_way is not None and location in under_way:
        under_way[location].result()
