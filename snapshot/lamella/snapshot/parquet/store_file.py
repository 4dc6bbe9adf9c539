"""An object of a store as a file that Arrow can read: every read is one ranged request, nothing is kept."""

from __future__ import annotations

import io

from lamella.snapshot.layout.store import ObjectStat, Store


class StoreFile(io.RawIOBase):
    """A read-only file over ranges of an object whose size is known."""

    def __init__(self, store: Store, stat: ObjectStat) -> None:
        super().__init__()
        self._store = store
        self._stat = stat
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place, which is given back."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stat.size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place that is read next."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """So many bytes from here, fewer at the end; raises what the store raises."""
        left = max(0, self._stat.size_bytes - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._store.read_range(self._stat.location, self._at, length) if length else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """The rest."""
        return self.read()
