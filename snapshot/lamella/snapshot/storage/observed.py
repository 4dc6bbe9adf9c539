"""A store that reports its calls: the operation, its outcome, its duration and its bytes, but never the location.

Locations are left out on purpose: those of data files can contain values (``day=2026-01-31/customer=...``), and there
are as many of them as files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, Literal, Protocol

from lamella.snapshot.errors import AlreadyExists, InvalidRequest, ObjectNotFound
from lamella.snapshot.storage.store import (
    BatchStatStore,
    CachedEndStore,
    EndReadingStore,
    ListedObject,
    MappableStore,
    ObjectStat,
    SigningStore,
    Store,
)

StoreOperation = Literal[
    "read",
    "read_range",
    "read_cached_ends",
    "stat",
    "stat_many",
    "put",
    "expand",
    "list",
    "delete",
    "delete_many",
]

#: ``absent``: nothing is there. ``exists``: a put found an object. ``refused``: an invalid location. ``failed``: any
#: other error, and multiple deletions of which some failed. ``left``: a listing that was not read to its end.
StoreOutcome = Literal["ok", "absent", "exists", "refused", "failed", "left"]


class StoreListener(Protocol):
    """Receives finished calls; called from any thread, and must not raise."""

    def store_called(
        self,
        operation: StoreOperation,
        outcome: StoreOutcome,
        took_s: float,
        /,
        *,
        read_bytes: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Called after a call. The duration of a listing counts only the time in the store, not that of its
        consumer."""


class ObservedStore:
    """``store`` whose calls are reported to ``listener``. Mapped files are not read through a store."""

    def __init__(self, store: Store, listener: StoreListener) -> None:
        self._store = store
        self._report = listener.store_called
        # Optional operations exist if the wrapped store has them. Those that do not call object storage are its own.
        if isinstance(store, MappableStore):
            self.local_path = store.local_path
        if isinstance(store, SigningStore):
            self.sign = store.sign
        if isinstance(store, EndReadingStore):
            self._end_reading = store
            self.reads_ends = store.reads_ends
            self.read_end = self._read_end
        if isinstance(store, CachedEndStore):
            self._cached_ends = store
            self.read_cached_ends = self._read_cached_ends
        if isinstance(store, BatchStatStore):
            self._batch_stat = store
            self.stat_many = self._stat_many

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the store without the listener."""
        return _itself, (self._store,)

    def read(self, location: str) -> bytes:
        """Returns all bytes of an object."""
        started_s = perf_counter()
        try:
            data = self._store.read(location)
        except BaseException as error:
            self._report("read", _outcome(error), perf_counter() - started_s)
            raise
        self._report("read", "ok", perf_counter() - started_s, read_bytes=len(data))
        return data

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns some bytes of an object."""
        started_s = perf_counter()
        try:
            data = self._store.read_range(location, start, length)
        except BaseException as error:
            self._report("read_range", _outcome(error), perf_counter() - started_s)
            raise
        self._report("read_range", "ok", perf_counter() - started_s, read_bytes=len(data))
        return data

    def _read_end(self, location: str, length: int) -> tuple[ObjectStat, bytes]:
        """Returns the last bytes of an object, which counts as reading a range, and its stat."""
        started_s = perf_counter()
        try:
            stat, data = self._end_reading.read_end(location, length)
        except BaseException as error:
            self._report("read_range", _outcome(error), perf_counter() - started_s)
            raise
        self._report("read_range", "ok", perf_counter() - started_s, read_bytes=len(data))
        return stat, data

    def _read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
        """Returns the ends of files that are in memory; the call is one, however many files it reads."""
        started_s = perf_counter()
        try:
            found = self._cached_ends.read_cached_ends(locations, length)
        except BaseException as error:
            self._report("read_cached_ends", _outcome(error), perf_counter() - started_s)
            raise
        read_bytes = sum(len(data) for _, data in found.values())
        self._report("read_cached_ends", "ok", perf_counter() - started_s, read_bytes=read_bytes)
        return found

    def stat(self, location: str) -> ObjectStat:
        """Returns size and content id of an object."""
        started_s = perf_counter()
        try:
            found = self._store.stat(location)
        except BaseException as error:
            self._report("stat", _outcome(error), perf_counter() - started_s)
            raise
        self._report("stat", "ok", perf_counter() - started_s)
        return found

    def _stat_many(self, locations: Sequence[str]) -> dict[str, ObjectStat]:
        """Returns the stats of some objects."""
        started_s = perf_counter()
        try:
            found = self._batch_stat.stat_many(locations)
        except BaseException as error:
            self._report("stat_many", _outcome(error), perf_counter() - started_s)
            raise
        self._report("stat_many", "ok", perf_counter() - started_s)
        return found

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        started_s = perf_counter()
        try:
            made = self._store.put(location, data)
        except BaseException as error:
            self._report("put", _outcome(error), perf_counter() - started_s)
            raise
        self._report("put", "ok", perf_counter() - started_s, written_bytes=len(data))
        return made

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """Returns the data files that a URL names."""
        started_s = perf_counter()
        try:
            found = self._store.expand(url, plain=plain)
        except BaseException as error:
            self._report("expand", _outcome(error), perf_counter() - started_s)
            raise
        self._report("expand", "ok", perf_counter() - started_s)
        return found

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """Yields every object below a folder."""
        started_s = perf_counter()
        try:
            found = self._store.list(prefix, start_after=start_after)
        except BaseException as error:
            self._report("list", _outcome(error), perf_counter() - started_s)
            raise
        return self._listed(iter(found), perf_counter() - started_s)

    def _listed(self, found: Iterator[ListedObject], took_s: float) -> Iterator[ListedObject]:
        outcome: StoreOutcome = "left"
        try:
            while True:
                started_s = perf_counter()
                try:
                    each = next(found, None)
                except BaseException as error:
                    outcome = _outcome(error)
                    raise
                finally:
                    took_s += perf_counter() - started_s
                if each is None:
                    outcome = "ok"
                    return
                yield each
        finally:
            self._report("list", outcome, took_s)

    def delete(self, location: str) -> None:
        """Remove an object."""
        started_s = perf_counter()
        try:
            self._store.delete(location)
        except BaseException as error:
            self._report("delete", _outcome(error), perf_counter() - started_s)
            raise
        self._report("delete", "ok", perf_counter() - started_s)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Remove objects."""
        started_s = perf_counter()
        try:
            failed = self._store.delete_many(locations)
        except BaseException as error:
            self._report("delete_many", _outcome(error), perf_counter() - started_s)
            raise
        self._report("delete_many", "failed" if failed else "ok", perf_counter() - started_s)
        return failed


def _itself(store: Store) -> Store:
    return store


def _outcome(error: BaseException) -> StoreOutcome:
    if isinstance(error, ObjectNotFound):
        return "absent"
    if isinstance(error, AlreadyExists):
        return "exists"
    return "refused" if isinstance(error, InvalidRequest) else "failed"
