"""Stored objects as memory: mapped where they are files of this machine or of its cache, and else read."""

from __future__ import annotations

from lamella.snapshot.cache import DiskCache, FileMaps
from lamella.snapshot.layout import MappableStore, Store
from lamella.snapshot.manifest import ObjectRef
from lamella.snapshot.manifest.codec import check_hash


class StoredObjects:
    """The objects of a store, each checked against its hash before anybody sees it. Thread-safe.

    ``disk`` holds copies of what a store elsewhere has; what can be mapped where it is, is not copied.
    """

    def __init__(self, store: Store, disk: DiskCache | None = None) -> None:
        self._store = store
        self._mappable = store if isinstance(store, MappableStore) else None
        self._disk = disk
        self._maps = FileMaps()

    def read(self, ref: ObjectRef) -> bytes:
        """The bytes of an object, from the store itself; raises HashMismatch, ObjectNotFound, StoreError."""
        data = self._store.read(ref.location)
        check_hash(data, ref.sha256, ref.location)
        return data

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
