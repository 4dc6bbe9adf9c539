"""Stored objects as memory: mapped where they are files of this machine or of its cache, and else read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lamella.snapshot.cache import DiskCache, FileMaps
from lamella.snapshot.carrying import CarryingPool
from lamella.snapshot.index.part import Fetch
from lamella.snapshot.layout import MappableStore, Store
from lamella.snapshot.manifest import ObjectRef
from lamella.snapshot.manifest.codec import check_hash

#: An object of more bytes is read in parts of so many, several at a time: one connection to an object store gives some
#: 50 to 100 MB/s, and companions of wide tables have tens of MB.
PART_BYTES: Final = 4 << 20


class StoredObjects:
    """The objects of a store, each checked against its hash before anybody sees it. Thread-safe.

    ``disk`` holds copies of what a store elsewhere has; what can be mapped where it is, is not copied.
    ``fetch_threads``: parts of large objects that are read at once.
    """

    def __init__(self, store: Store, disk: DiskCache | None = None, *, fetch_threads: int = 16) -> None:
        self._store = store
        self._fetch_threads = fetch_threads
        self._lock = threading.Lock()
        self._pool: CarryingPool | None = None
        self._mappable = store if isinstance(store, MappableStore) else None
        self._disk = disk
        self._maps = FileMaps()

    def read(self, ref: ObjectRef) -> bytes:
        """The bytes of an object, from the store itself; raises HashMismatch, ObjectNotFound, StoreError."""
        data = self._store.read(ref.location) if ref.size_bytes <= PART_BYTES else self._in_parts(ref)
        check_hash(data, ref.sha256, ref.location)
        return data

    def _in_parts(self, ref: ObjectRef) -> bytes:
        read, place = self._store.read_range, ref.location
        starts = range(0, ref.size_bytes, PART_BYTES)
        parts = [
            self._executor().submit(read, place, start, min(PART_BYTES, ref.size_bytes - start)) for start in starts
        ]
        try:
            return b"".join([part.result() for part in parts])
        finally:
            for part in parts:
                part.cancel()

    def _executor(self) -> CarryingPool:
        # Not the pool that whole objects are read in: those would wait for threads that wait for them.
        with self._lock:
            if self._pool is None:  # made when it is needed, so that a fork before that does no harm
                self._pool = CarryingPool(self._fetch_threads, thread_name_prefix="lamella-part")
            return self._pool

    def view(self, ref: ObjectRef, *, keep: bool = True) -> tuple[memoryview, int]:
        """The bytes of an object, and how many of them are on the heap: none where it is mapped.

        ``keep`` False: a file of the store is mapped for this caller alone. Raises as :meth:`read`.
        """
        path = self._local_path(ref)
        mapped = None if path is None else self._mapped(path, ref, keep=keep)
        if mapped is not None:
            return mapped, 0
        if self._disk is not None and path is None:
            data, is_mapped = self._disk.content(ref.sha256, lambda: self.read(ref))
            return data, 0 if is_mapped else data.nbytes
        data = memoryview(self.read(ref))
        return data, data.nbytes

    def ranges_of(self, location: str) -> Fetch:
        """Reads ranges of an object, several at a time, or maps it where it is; who asks has the means to check them.

        Nothing of it is kept here.
        """
        path = None if self._mappable is None else self._mappable.local_path(location)
        mapped: memoryview | None = None
        if path is not None:
            with suppress(OSError):  # reading it will say what is wrong
                mapped = self._maps.open(path)

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
            if mapped is not None:
                return [mapped[start : start + length] for start, length in ranges]
            if len(ranges) == 1:
                return [self._store.read_range(location, *ranges[0])]
            reads = [self._executor().submit(self._store.read_range, location, *each) for each in ranges]
            try:
                return [read.result() for read in reads]
            finally:
                for read in reads:
                    read.cancel()

        return fetch

    def is_near(self, ref: ObjectRef) -> bool:
        """True when :meth:`view` will most likely find the object without asking a store elsewhere."""
        if self._local_path(ref) is not None:
            return True
        return self._disk is not None and self._disk.has_content(ref.sha256)

    def _local_path(self, ref: ObjectRef) -> str | None:
        return None if self._mappable is None else self._mappable.local_path(ref.location)

    def _mapped(self, path: str, ref: ObjectRef, *, keep: bool) -> memoryview | None:
        name = f"{ref.sha256} {path}"
        found = self._maps.held(name)
        if found is not None:
            return found
        try:
            found = self._maps.open(path)
        except OSError:
            return None  # reading it will say what is wrong
        if found is not None:
            check_hash(found, ref.sha256, ref.location)
            if keep:
                self._maps.keep(name, found)
        return found
