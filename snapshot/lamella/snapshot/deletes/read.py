"""Reads the deleted rows of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from lamella.snapshot.deletes.vector import Positions, decode_vector, union
from lamella.snapshot.errors import CorruptDeletes
from lamella.snapshot.manifest.codec import check_hash, content_hash
from lamella.snapshot.manifest.structs import DeleteFile

#: The longest vector that is read: enough for two billion rows, one of two deleted.
MAX_VECTOR_BYTES: Final = 256 << 20


class RangeReader(Protocol):
    """Reads parts of objects."""

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns up to ``length`` bytes from ``start`` on."""
        ...


def deleted_rows(store: RangeReader, deletes: Sequence[DeleteFile], row_count: int) -> Positions:
    """Returns the positions of a block's deleted rows, of ``row_count`` in its file; raises as :func:`read_vector`."""
    if not deletes:
        return np.zeros(0, dtype=np.int64)
    return union([read_vector(store, each, row_count) for each in deletes])


def with_vectors(
    entries: tuple[DeleteFile, ...] | None, vectors: Mapping[tuple[str, int], bytes]
) -> tuple[DeleteFile, ...] | None:
    """Returns entries with those of the vectors (by location and offset) that are theirs."""
    if not entries or not vectors:
        return entries
    return tuple(msgspec.structs.replace(each, data=vectors.get((each.location, each.offset))) for each in entries)


def checked_entry(store: RangeReader, entry: DeleteFile, row_count: int) -> DeleteFile:
    """Returns an entry with its count and hash after reading its vector; raises as :func:`read_vector`."""
    entry = msgspec.structs.replace(entry, data=None)
    data = store.read_range(entry.location, entry.offset, entry.length)
    positions = positions_of(data, entry, row_count)
    return msgspec.structs.replace(entry, cardinality=len(positions), sha256=content_hash(data))


def read_vector(store: RangeReader, entry: DeleteFile, row_count: int) -> Positions:
    """Returns the positions of one entry.

    Raises:
        CorruptDeletes: the vector is damaged, or does not match the entry or the block.
        HashMismatch: it has changed since the entry was written.
        ObjectNotFound, StoreError: as the store.
    """
    data = store.read_range(entry.location, entry.offset, entry.length) if entry.data is None else entry.data
    return positions_of(data, entry, row_count)


def positions_of(data: bytes, entry: DeleteFile, row_count: int) -> Positions:
    """Returns the positions of an entry with these bytes.

    Raises:
        CorruptDeletes, HashMismatch: as :func:`read_vector`.
    """
    if entry.sha256 is not None:
        check_hash(data, entry.sha256, entry.location)
    positions = decode_vector(data, row_count, location=entry.location)
    if entry.cardinality is not None and len(positions) != entry.cardinality:
        raise CorruptDeletes(
            f"the deletion vector in {entry.location} has {len(positions)} positions, not {entry.cardinality}",
            location=entry.location,
        )
    return positions
