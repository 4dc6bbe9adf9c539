"""Reads the deleted rows of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from lamella.snapshot.deletes.vector import Positions, decode_vector, encode_vector, union
from lamella.snapshot.errors import CorruptDeletes
from lamella.snapshot.manifest.codec import check_hash, content_hash
from lamella.snapshot.manifest.structs import DeleteFile

#: The longest vector that is read: enough for two billion rows, one of two deleted.
MAX_VECTOR_BYTES: Final = 256 << 20


#: Vectors of one file are read together if so few other bytes lie between them, and at most this many bytes at a time.
_GAP_BYTES: Final = 64 << 10
_READ_BYTES: Final = 32 << 20


class RangeReader(Protocol):
    """Reads parts of objects."""

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Returns up to ``length`` bytes from ``start`` on."""
        ...


class Vectors:
    """Reads the vectors of some entries ahead, those of one file together. Anything else is read when asked for."""

    def __init__(self, store: RangeReader, entries: Iterable[DeleteFile]) -> None:
        self._store = store
        self._data: dict[tuple[str, int, int], bytes] = {}
        by_file: dict[str, set[tuple[int, int]]] = {}
        for entry in entries:
            if entry.data is None:
                by_file.setdefault(entry.location, set()).add((entry.offset, entry.length))
        for location, spans in by_file.items():
            for some in _runs(sorted(spans)):
                start, end = some[0][0], max(offset + length for offset, length in some)
                data = store.read_range(location, start, end - start)
                for offset, length in some:
                    self._data[location, offset, length] = data[offset - start : offset - start + length]

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """See :class:`RangeReader`."""
        data = self._data.get((location, start, length))
        return self._store.read_range(location, start, length) if data is None else data


def _runs(spans: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield ascending spans (offset, length) in groups that are read together."""
    some: list[tuple[int, int]] = []
    end = 0
    for offset, length in spans:
        if some and (offset > end + _GAP_BYTES or offset + length - some[0][0] > _READ_BYTES):
            yield some
            some, end = [], 0
        some.append((offset, length))
        end = max(end, offset + length)
    if some:
        yield some


def deleted_rows(store: RangeReader, deletes: Sequence[DeleteFile], row_count: int) -> Positions:
    """Returns the positions of a block's deleted rows, of ``row_count`` in its file; raises as :func:`read_vector`."""
    if not deletes:
        return np.zeros(0, dtype=np.int64)
    return union([read_vector(store, each, row_count) for each in deletes])


def inline_entry(location: str, positions: Positions) -> DeleteFile:
    """Returns an entry that has its vector with it, for a reader in this program. ``location``: named in errors."""
    data = encode_vector(positions)
    return DeleteFile(
        kind="deletion_vector", location=location, offset=0, length=len(data), cardinality=len(positions), data=data
    )


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
