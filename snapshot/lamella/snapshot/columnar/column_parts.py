"""Large sidecars as parts, one for each column, so that a reader reads and checks only those of its filter.

    magic, zeros up to 64 bytes | parts | common part | directory | trailer

The parts of columns are Arrow IPC streams of one batch, the common part (locations, row counts, ...) is an Arrow IPC
file; each begins at a multiple of 64 bytes. The directory has a row for each column, ascending: column id (uint32),
start and length (uint64) of its part, and the first 16 bytes of the part's SHA-256. The trailer has the lengths of the
common part and of the directory (uint64) and the magic. All numbers are little-endian.

The *tail* is all that follows the parts. A reference to the sidecar records its size and its SHA-256; the directory has
the hashes of the parts. So whatever is used has been checked, and the rest is not read.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.errors import HashMismatch, ManifestError

#: A smaller sidecar is one Arrow file: one request reads it in about the time of a round trip.
SPLIT_FROM_BYTES: Final = 1 << 20

_MAGIC: Final = b"LAMSIDE1"
_ALIGNMENT: Final = 64
_TRAILER: Final = struct.Struct("<QQ8s")
_HASH_BYTES: Final = 16
#: About what Arrow's description of an array takes in a file, which has it twice.
_DESCRIPTION_BYTES: Final = 180
_DIRECTORY: Final = np.dtype([("column", "<u4"), ("start", "<u8"), ("length", "<u8"), ("sha256", f"V{_HASH_BYTES}")])


class ByteRange(NamedTuple):
    """Bytes of an object from ``start``, and the first bytes of their SHA-256."""

    start: int
    length: int
    sha256: bytes


class Fetch(Protocol):
    """Reads ranges of one object, several concurrently; what it returns has been checked."""

    @property
    def is_near(self) -> bool:
        """Returns whether a read is no request to a store, so that nothing needs to be read ahead."""
        ...

    def __call__(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Returns the bytes of each range; raises HashMismatch, and the errors of a store."""
        ...


class Tail(NamedTuple):
    """The end of a sidecar in parts: its common part and its directory."""

    size_bytes: int
    common: memoryview
    directory: npt.NDArray[Any]


class Arrays(NamedTuple):
    """Some arrays of a sidecar as one batch; ``positions``: of each by its name."""

    batch: pa.RecordBatch
    positions: dict[str, int]

    @classmethod
    def of(cls, batch: pa.RecordBatch, names: Iterable[str] | None = None) -> Arrays:
        """Returns a batch after a full check: a wrong offset could read memory outside of it."""
        batch.validate(full=True)
        given = batch.schema.names if names is None else names
        return cls(batch, {name: number for number, name in enumerate(given)})


def check_range(data: bytes | memoryview, byte_range: ByteRange, location: str) -> memoryview:
    """Returns the bytes of a range; raises HashMismatch if they are not those that were written."""
    found = hashlib.sha256(data)
    if len(data) != byte_range.length or found.digest()[: len(byte_range.sha256)] != byte_range.sha256:
        raise HashMismatch(f"{location} has changed since it was written", location=location, sha256=found.hexdigest())
    return memoryview(data)


class InMemory:
    """Reads ranges of an object in memory, or mapped."""

    is_near = True

    def __init__(self, data: bytes | memoryview, location: str) -> None:
        self._data = memoryview(data)
        self._location = location

    def __call__(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Returns the bytes of each range; raises HashMismatch."""
        return [
            check_range(self._data[byte_range.start : byte_range.start + byte_range.length], byte_range, self._location)
            for byte_range in ranges
        ]


def file_bytes(arrays: Sequence[pa.Array]) -> int:
    """Returns about how many bytes one Arrow file of these arrays has."""
    return sum(array.nbytes + _DESCRIPTION_BYTES for array in arrays)


def column_of(name: str) -> int | None:
    """Returns the id of the column that an array belongs to, None for an array of all columns."""
    first, dot, _ = name.partition(".")
    return int(first) if dot and first.isdecimal() else None


def joined(common: bytes, parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Returns the file of a common part and of the parts of columns, given by column id."""
    pieces = [_MAGIC.ljust(_ALIGNMENT, b"\0")]
    end = _ALIGNMENT
    directory = np.zeros(len(parts), dtype=_DIRECTORY)
    for row, (column_id, data) in enumerate(sorted(parts)):
        digest = hashlib.sha256(data).digest()[:_HASH_BYTES]
        directory[row] = (column_id, end, len(data), np.void(digest))
        pieces += (data, bytes(-len(data) % _ALIGNMENT))
        end += len(data) + len(pieces[-1])
    trailer = _TRAILER.pack(len(common), directory.nbytes, _MAGIC)
    return b"".join([*pieces, common, directory.tobytes(), trailer])


def read_tail(data: bytes | memoryview) -> Tail | None:
    """Returns the tail of a sidecar in parts, given all of it or its tail; None if it is not in parts.

    Raises:
        ManifestError: it is damaged.
    """
    view = memoryview(data)
    if len(view) < _TRAILER.size:
        return None
    common_bytes, directory_bytes, magic = _TRAILER.unpack(view[-_TRAILER.size :])
    if magic != _MAGIC:
        return None
    size_bytes = common_bytes + directory_bytes + _TRAILER.size
    if size_bytes > len(view) or directory_bytes % _DIRECTORY.itemsize:
        raise ManifestError("the tail of a sidecar is damaged")
    start = len(view) - size_bytes
    middle = start + common_bytes
    directory = np.frombuffer(view[middle : middle + directory_bytes], dtype=_DIRECTORY)
    return Tail(size_bytes, view[start:middle], directory)


def tail_of(data: bytes) -> tuple[int, str]:
    """Returns the size and the SHA-256 (hexadecimal) of a sidecar's tail; 0 and nothing if it is not in parts."""
    tail = read_tail(data)
    if tail is None:
        return 0, ""
    return tail.size_bytes, hashlib.sha256(memoryview(data)[-tail.size_bytes :]).hexdigest()


class ColumnParts:
    """The parts of a sidecar's columns, each read when it is first asked for. Thread-safe.

    ``on_growth`` is called when one was read.
    """

    def __init__(self, directory: npt.NDArray[Any], fetch: Fetch) -> None:
        self._directory = directory
        self._ids = np.ascontiguousarray(directory["column"])
        self._fetch = fetch
        self._opened: dict[int, Arrays] = {}
        self._lock = threading.Lock()
        self.on_growth: Callable[[], None] | None = None

    @property
    def array_count(self) -> int:
        """Returns the number of arrays that were read."""
        return sum(len(arrays.positions) for arrays in list(self._opened.values()))

    @property
    def column_ids(self) -> list[int]:
        """Returns the ids of all columns."""
        ids: list[int] = self._ids.tolist()
        return ids

    def of(self, column_id: int) -> Arrays | None:
        """Returns the arrays of a column, None if the sidecar lacks it; raises HashMismatch, ManifestError and the
        errors of a store."""
        found = self._opened.get(column_id)
        if found is None and self._row(column_id) is not None:
            self.read([column_id])
            found = self._opened[column_id]
        return found

    def lacks(self, column_ids: Iterable[int]) -> bool:
        """Returns whether one of the columns has to be fetched from a store before it can be used."""
        return not self._fetch.is_near and any(each not in self._opened for each in self._known(column_ids))

    def read(self, column_ids: Iterable[int]) -> None:
        """Read the parts of columns together, without those that the sidecar lacks; raises as :meth:`of`."""
        known = self._known(column_ids)
        if all(each in self._opened for each in known):
            return
        with self._lock:  # threads that ask for the same wait for the one that reads it
            missing = [each for each in known if each not in self._opened]
            ranges = [self._range(each) for each in missing]
            for column_id, data in zip(missing, self._fetch(ranges), strict=True):
                self._opened[column_id] = _opened(data)
            if missing and self.on_growth is not None:
                self.on_growth()

    def _known(self, column_ids: Iterable[int]) -> list[int]:
        return [each for each in dict.fromkeys(column_ids) if self._row(each) is not None]

    def _row(self, column_id: int) -> int | None:
        row = int(self._ids.searchsorted(column_id))
        return row if row < len(self._ids) and int(self._ids[row]) == column_id else None

    def _range(self, column_id: int) -> ByteRange:
        _, start, length, sha256 = self._directory[self._row(column_id)]
        return ByteRange(int(start), int(length), bytes(sha256))


def _opened(data: memoryview) -> Arrays:
    try:
        with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(data))) as reader:
            return Arrays.of(reader.read_next_batch())
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise ManifestError(f"a part of a sidecar cannot be read: {error}") from error


def stream(fields: Sequence[pa.Field], arrays: Sequence[pa.Array]) -> bytes:
    """Returns the part of one column."""
    schema = pa.schema(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def whole_batch(data: bytes) -> pa.RecordBatch:
    """Returns all arrays of a sidecar, in parts or not, as one batch after a full check.

    Raises:
        ArrowException, OSError, ValueError: it is no sidecar; ManifestError, HashMismatch: a part is damaged.
    """
    tail = read_tail(data)
    reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data if tail is None else tail.common)))
    if reader.num_record_batches != 1:
        raise ValueError(f"{reader.num_record_batches} record batches")
    batch = reader.get_batch(0)
    batch.validate(full=True)
    if tail is None:
        return batch
    parts = ColumnParts(tail.directory, InMemory(data, "the sidecar"))
    parts.read(parts.column_ids)
    batches = [batch, *(found.batch for each in parts.column_ids if (found := parts.of(each)) is not None)]
    schema = pa.schema([field for each in batches for field in each.schema], metadata=batch.schema.metadata)
    return pa.record_batch([column for each in batches for column in each.columns], schema=schema)
