"""Statistics sidecars: one layer's zone maps and addresses as an Arrow IPC file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.columnar.column_parts import (
    Arrays,
    ColumnParts,
    Fetch,
    InMemory,
    column_of,
    file_bytes,
    joined,
    read_tail,
    stream,
)
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys, joined_keys, split_wide
from lamella.snapshot.columnar.zones import (
    HIGH_EXACT,
    HIGH_KNOWN,
    LOW_EXACT,
    LOW_KNOWN,
    Buckets,
    Spans,
    Zones,
    exact_bits,
    flags_of,
    gather,
    is_wide,
    keys_of,
    nothing_known,
    number_dtype,
    packed_bucket,
    zones_of,
)
from lamella.snapshot.errors import ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import (
    CONSTANTS,
    DELETES,
    FORMAT_VERSION,
    LAST_WITH_OLD_NAMES,
    Block,
    DeleteFile,
    ObjectRef,
    SegmentRef,
)
from lamella.snapshot.manifest.block_arrays import BlockSequence
from lamella.snapshot.manifest.block_arrays import Part as BlockPart
from lamella.snapshot.manifest.block_key import BlockKeys, block_keys, block_keys_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.evolution import can_widen
from lamella.snapshot.schema.types import factor
from lamella.snapshot.stats import Bound, ColumnStats, from_bound
from lamella.snapshot.stats.bucket import keeps_bucket
from lamella.snapshot.stats.column import absent, has_sum, is_younger, sum_of, sum_values, with_deleted_rows
from lamella.snapshot.stats.column_arrays import Bounds, ColumnArrays


class SidecarRefs:
    """References to the sidecars of the segments of a snapshot's layer, by row; ``of`` "manifest": to their manifests.

    Each is made when it is asked for: a query asks for few of a large table's. Some of them are cached.
    """

    _MAX_CACHED: Final = 4_096
    #: Approximate memory of one.
    _REF_BYTES: Final = 400

    def __init__(self, segments: Sidecar, of: Literal["sidecar", "manifest"] = "sidecar") -> None:
        self._segments = segments
        self._of = of
        self._location = f"{of}.location"
        self._sha256 = f"{of}.sha256"
        self._size_bytes = f"{of}.size_bytes"
        self._cached: dict[int, ObjectRef] = {}

    @property
    def max_bytes(self) -> int:
        """Returns the memory that cached references may take."""
        return self._REF_BYTES * min(len(self._segments), self._MAX_CACHED)

    def __call__(self, row: int) -> ObjectRef:
        """Returns the reference of one segment."""
        found = self._cached.get(row)
        if found is None:
            found = self._made(row)
            if len(self._cached) >= self._MAX_CACHED:
                self._cached = {}
            self._cached[row] = found
        return found

    def _made(self, row: int) -> ObjectRef:
        segments = self._segments
        tail_bytes = 0 if self._tail_bytes is None else int(self._tail_bytes[row])
        return ObjectRef(
            location=segments.text_at(self._location, row),
            sha256=segments.text_at(self._sha256, row),
            size_bytes=int(segments.numbers(self._size_bytes)[row]),
            tail_bytes=tail_bytes,
            tail_sha256=segments.text_at(f"sidecar.{_TAIL_SHA256}", row) if tail_bytes else "",
        )

    @cached_property
    def _tail_bytes(self) -> npt.NDArray[np.int64] | None:
        """The sizes of the sidecars' tails; None if no sidecar is in parts."""
        if self._of != "sidecar":
            return None
        found: npt.NDArray[np.int64] = self._segments.numbers(f"sidecar.{_TAIL_BYTES}")
        return found if found.any() else None


# Sidecars: one layer's zone maps and addresses as an Arrow IPC file of one record batch, uncompressed.
#
# A sidecar is derived from the JSON manifest of the same id and can be rebuilt from it; its bytes are checked against
# the hash that the parent manifest records. A segment's sidecar has one row per block, a group's one row per segment,
# and a snapshot's one row for each segment that the snapshot lists itself.
#
# Columns per column id c: ``c.flags`` (uint8, see ``zones``), ``c.nulls`` (int64, -1 unknown), ``c.min``/``c.max``
# (int64, uint64 or float64; large_binary for bytes with ``c.min.key``/``c.max.key``, the uint64 prefixes; ``c.min.hi``
# and ``c.min.lo`` for wide decimals), ``c.size`` (compressed bytes of the column in the block), and where necessary
# ``c.spans`` (lists of the lows and highs of ranges, ascending; empty: unknown), ``c.sum`` (the manifest's text; empty:
# unknown), ``c.bucket`` (int64: the number of buckets in the high half, the bucket in the low one; 0: unknown) and
# ``c.elsewhere`` (uint8: 1 where the statistics do not come from the file's own footer). ``constants`` and
# ``deletes`` have these members of the blocks as JSON (empty: none), if there are any. If rows are deleted,
# ``live_row_count`` has the numbers of the others (int64, -1 unknown).

_VERSION: Final = b"lamella.format_version"
_HEADER: Final = b"lamella.header"
#: The arrays of block keys.
BLOCK_KEY: Final = ("block_key.high", "block_key.low")
#: The arrays of cluster key ids and levels, with the values of a block that lacks them.
CLUSTERED: Final = ("cluster.key_id", "cluster.level")
#: The ends of the names of the arrays of the tails of sidecars; only if one of these is in parts.
_TAIL_BYTES: Final = "tail_bytes"
_TAIL_SHA256: Final = "tail_sha256"
_WITHOUT: Final = {**dict(zip(CLUSTERED, (-1, 0), strict=True)), f"sidecar.{_TAIL_BYTES}": 0}
#: The array of the numbers of rows that are not deleted.
LIVE: Final = "live_row_count"
#: Counts, sizes and ids are added up; a sum over another type would fail or be inexact.
_COUNT: Final = pa.int64()
_COUNTS: Final = frozenset({"row_count", LIVE, "block_count", "file_size", "block_size", "schema_id", *CLUSTERED})
_SCHEMA_ID: Final = b"lamella.schema_id"
_MAX_VIEWS: Final = 4
#: Arrow's names of float types and NumPy's.
_FLOATS: Final = {"halffloat": "f2", "float": "f4", "double": "f8"}
#: The value of each hexadecimal digit.
_DIGITS: Final = np.zeros(256, dtype=np.uint16)
_DIGITS[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)
#: About what the zone maps of one entry and column take.
_ENTRY_BYTES: Final = 40
#: Up to this many texts are read faster one by one than by Arrow.
_FEW_TEXTS: Final = 64


class Clustered(NamedTuple):
    """For each block the id of the cluster key that it was written for (-1: none), and its level then."""

    key_id: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]


def _is_count(name: str) -> bool:
    return name in _COUNTS or name.endswith((".size", ".size_bytes", ".nulls", f".{_TAIL_BYTES}"))


class Sidecar:
    """A sidecar in memory; arrays are views of ``data``, created on first access.

    The arrays of a column of a sidecar in parts are read when they are first asked for; that raises HashMismatch,
    ManifestError, and the errors of a store.
    """

    def __init__(self, data: bytes | memoryview, *, fetch: Fetch | None = None, location: str = "the sidecar") -> None:
        """Open a sidecar file; raises ManifestError or UnsupportedFormat.

        ``fetch``: reads its parts; then ``data`` is its tail. ``location``: for messages.
        """
        tail = read_tail(data)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data if tail is None else tail.common)))
            metadata = reader.schema.metadata or {}
            version = int(metadata.get(_VERSION, b"0"))
            if version > FORMAT_VERSION:
                raise UnsupportedFormat(f"a sidecar has format version {version}", format_version=version)
            if version < 1 or reader.num_record_batches != 1:
                raise ManifestError("not a sidecar")
            names = reader.schema.names
            if version <= LAST_WITH_OLD_NAMES:
                names = [re.sub(r"^companion\.", "sidecar.", name) for name in names]
            #: The arrays that no column has; of a sidecar that is not in parts, all arrays.
            self._arrays_of_all = Arrays.of(reader.get_batch(0), names)
            #: The schema whose columns and types the zone maps use.
            self.schema_id = int(metadata.get(_SCHEMA_ID, b"0"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ManifestError(f"a sidecar cannot be read: {error}") from error
        self.header: bytes = metadata.get(_HEADER, b"")
        self.size_bytes = len(data)
        self._index = self._arrays_of_all.positions
        #: The parts of columns; None: it is not in parts.
        self.column_parts: ColumnParts | None = None
        #: Whether arrays of columns are read when they are first requested.
        self.is_in_parts = tail is not None
        if tail is not None:
            self.column_parts = ColumnParts(tail.directory, InMemory(data, location) if fetch is None else fetch)
        self._zones: dict[tuple[int, DataType], Zones] = {}
        self._views: dict[int, EvolvedSidecar] = {}
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._text_views: dict[str, tuple[npt.NDArray[np.int64], memoryview]] = {}

    def __len__(self) -> int:
        return int(self._arrays_of_all.batch.num_rows)

    @property
    def array_count(self) -> int:
        """Returns the number of arrays in memory."""
        return len(self._arrays_of_all.positions) + (0 if self.column_parts is None else self.column_parts.array_count)

    def lacks(self, column_ids: Iterable[int]) -> bool:
        """Returns whether the arrays of one of the columns have to be fetched from a store before they can be used."""
        return self.column_parts is not None and self.column_parts.lacks(column_ids)

    def read(self, column_ids: Iterable[int]) -> None:
        """Read the arrays of columns together, which are otherwise read one by one when they are asked for."""
        if self.column_parts is not None:
            self.column_parts.read(column_ids)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns a numeric column as an array, without copying; raises ManifestError for an unknown name."""
        found = self._arrays.get(name)
        if found is None:
            if name in _WITHOUT and name not in self._index:
                return np.full(len(self), _WITHOUT[name], dtype=np.int64)
            column = self._column(name)
            is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            if column.null_count or not (column.type == _COUNT if _is_count(name) else is_number):
                raise ManifestError(f"the column {name!r} of a sidecar does not contain numbers")
            found = self._arrays[name] = _array(column)
        return found

    @cached_property
    def have_rows(self) -> bool:
        """Returns whether each entry has rows."""
        return bool((self.numbers("row_count") > 0).all())

    def live_row_counts(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of rows that are not deleted, -1 where unknown."""
        return self.numbers(LIVE if LIVE in self._index else "row_count")

    def texts(self, name: str, rows: npt.NDArray[Any] | None = None) -> list[str]:
        """Returns the values of a text column, all or those of some rows; raises ManifestError for an unknown name."""
        if rows is None or len(rows) > _FEW_TEXTS:
            return list(self.text_array(name, rows).to_pylist())
        offsets, data = self._text_view(name)
        begins, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
        return [str(data[begin:end], "utf-8") for begin, end in zip(begins, ends, strict=True)]

    def text_at(self, name: str, row: int) -> str:
        """Returns one value of a text column."""
        offsets, data = self._text_view(name)
        return str(data[offsets[row] : offsets[row + 1]], "utf-8")

    @cached_property
    def hash_ends(self) -> npt.NDArray[np.uint16]:
        """For a snapshot's or group's sidecar: returns the last 16 bits of the hash of each segment's sidecar."""
        offsets, data = self._text_view("sidecar.sha256")
        ends = offsets[1:]
        if len(ends) and int((ends - offsets[:-1]).min()) < 4:
            raise ManifestError("a sidecar has a hash that is too short")
        digits = _DIGITS[np.frombuffer(data, dtype=np.uint8)[ends[:, None] - np.arange(4, 0, -1)]]
        found: npt.NDArray[np.uint16] = digits @ np.array([1 << 12, 1 << 8, 1 << 4, 1], dtype=np.uint16)
        return found

    def text_array(self, name: str, rows: npt.NDArray[Any] | None = None) -> pa.Array:
        """Returns a text column as an Arrow array of large strings, all or some rows."""
        column = self._column(name)
        if column.null_count or not pa.types.is_large_string(column.type):
            raise ManifestError(f"the column {name!r} of a sidecar does not contain text")
        return column if rows is None else column.take(_indexes(rows))

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """Returns the zone maps of a column; they are all unknown if the sidecar lacks the column."""
        key = (column_id, dtype)
        found = self._zones.get(key)
        if found is None:
            found = self._zones[key] = self._load(column_id, dtype)
        return found

    def seen_from(self, written: Schema, wanted: Schema) -> Sidecar:
        """Returns the sidecar in terms of a later schema of the table than its own, ``written``; the last few views are
        kept."""
        view = self._views.get(wanted.schema_id)
        if view is None or (view.wanted is not wanted and view.wanted != wanted):
            view = EvolvedSidecar(self, written, wanted)
            # The dict is replaced as a whole, so threads need no lock.
            recent = dict(list(self._views.items())[-(_MAX_VIEWS - 1) :])
            self._views = {**recent, wanted.schema_id: view}
        return view

    def has_member(self, name: str) -> bool:
        """For a segment's sidecar: returns whether a block has the member "constants" or "deletes"."""
        return name in self._index

    def member_array(self, name: str, rows: npt.NDArray[Any] | None) -> pa.Array | None:
        """For a segment's sidecar: returns "constants" or "deletes" of all or some blocks as JSON, empty for a block
        without any; None if no block has any."""
        return self.text_array(name, rows) if name in self._index else None

    def constants(self, rows: npt.NDArray[Any]) -> list[dict[int, Bound | None] | None]:
        """For a segment's sidecar: returns the constants of blocks, None for a block without any."""
        if CONSTANTS not in self._index:
            return [None] * len(rows)
        codes, known = self._known_constants
        return [known[code] for code in codes[rows].tolist()]

    @cached_property
    def _known_constants(self) -> tuple[npt.NDArray[Any], list[dict[int, Bound | None] | None]]:
        return _coded_constants(self.text_array(CONSTANTS))

    def deletes(self, rows: npt.NDArray[Any]) -> list[tuple[DeleteFile, ...] | None]:
        """For a segment's sidecar: returns the deletes of blocks, None for a block without any."""
        return [None] * len(rows) if DELETES not in self._index else deletes_of(self.text_array(DELETES, rows))

    def older_schema_ids(self, rows: npt.NDArray[Any], current: int) -> list[int | None]:
        """For a segment's sidecar: returns the schema that blocks were written with, None where it is the current
        one."""
        ids = self.written_with()
        if isinstance(ids, int):
            return [None if ids == current else ids] * len(rows)
        return [None if each == current else each for each in ids[rows].tolist()]

    def written_with(self) -> int | npt.NDArray[np.int64]:
        """For a segment's sidecar: returns the schemas that its blocks were written with, one number if all have the
        same."""
        return self.numbers("schema_id") if "schema_id" in self._index else self.schema_id

    def block_keys(self) -> BlockKeys | None:
        """For a segment's sidecar: returns the keys of its blocks; None if an older release wrote it."""
        if BLOCK_KEY[0] not in self._index:
            return None
        return np.stack([self.numbers(half) for half in BLOCK_KEY], axis=1)

    def clustered(self) -> Clustered:
        """For a segment's sidecar: returns the :class:`~lamella.snapshot.manifest.ClusterStats` of its blocks."""
        return Clustered(*(self.numbers(name) for name in CLUSTERED))

    def null_counts(self, column_id: int, dtype: DataType) -> npt.NDArray[np.int64]:
        """Returns the null counts of a column, -1 where unknown."""
        if not self._has(f"{column_id}.nulls") or self._type_text(column_id) != str(dtype):
            return np.full(len(self), -1, dtype=np.int64)
        return self.numbers(f"{column_id}.nulls")

    def sums(self, column_id: int, dtype: DataType) -> list[int | None]:
        """Returns the sums of a column in units of the type's last digit, None where unknown; raises ManifestError."""
        if not self._has(f"{column_id}.sum") or self._type_text(column_id) != str(dtype):
            return [None] * len(self)
        texts = self.texts(f"{column_id}.sum")
        known = iter(sum_values(dtype, [text for text in texts if text]))
        return [next(known) if text else None for text in texts]

    def from_elsewhere(self, column_id: int) -> npt.NDArray[np.bool_]:
        """Returns where the statistics of a column do not come from the file's own footer (scanned values, a
        default)."""
        name = f"{column_id}.elsewhere"
        return self.numbers(name) != 0 if self._has(name) else np.zeros(len(self), dtype=bool)

    def column_size_bytes(self, column_ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Returns the compressed bytes of the columns, summed per entry."""
        total = np.zeros(len(self), dtype=np.int64)
        for column_id in column_ids:
            name = f"{column_id}.size"
            if self._has(name):
                total += self.numbers(name)
        return total

    def _text_view(self, name: str) -> tuple[npt.NDArray[np.int64], memoryview]:
        view = self._text_views.get(name)
        if view is None:
            view = self._text_views[name] = _text_view(self.text_array(name))
        return view

    def _of(self, name: str) -> Arrays | None:
        """Returns the arrays among which one is, if it exists."""
        column_id = None if self.column_parts is None else column_of(name)
        if self.column_parts is None or column_id is None:
            return self._arrays_of_all
        found = self.column_parts.of(column_id)
        if found is not None and found.batch.num_rows != len(self):
            raise ManifestError(f"a part of a sidecar has {found.batch.num_rows} rows, not {len(self)}")
        return found

    def _has(self, name: str) -> bool:
        if self.column_parts is None:
            return name in self._index
        arrays = self._of(name)
        return arrays is not None and name in arrays.positions

    def _column(self, name: str) -> Any:
        arrays = self._arrays_of_all if name in self._index else self._of(name)
        if arrays is None or name not in arrays.positions:
            raise ManifestError(f"a sidecar is missing its column {name!r}")
        return arrays.batch.column(arrays.positions[name])

    def _load(self, column_id: int, dtype: DataType) -> Zones:
        if not self._has(f"{column_id}.flags") or self._type_text(column_id) != str(dtype):
            return nothing_known(len(self))
        flags = self.numbers(f"{column_id}.flags")
        zones = Zones(self._keys(f"{column_id}.min", dtype), self._keys(f"{column_id}.max", dtype), flags)
        if self._has(f"{column_id}.spans"):
            edges = self._column(f"{column_id}.spans")
            zones.spans = Spans(_array(edges.offsets), _array(edges.values))
        if self._has(f"{column_id}.bucket"):
            zones.buckets = Buckets(dtype, self.numbers(f"{column_id}.bucket"))
        return zones

    def _type_text(self, column_id: int) -> str:
        name = f"{column_id}.flags"
        arrays = self._arrays_of_all if name in self._index else self._of(name)
        if arrays is None or name not in arrays.positions:
            return ""
        field = arrays.batch.schema.field(arrays.positions[name])
        return str((field.metadata or {}).get(b"type", b"").decode("utf-8", "replace"))

    def _keys(self, name: str, dtype: DataType) -> Keys | None:
        if dtype.order is None:
            return None
        if dtype.order == "bytes":
            column = self._column(name)
            if column.null_count or not pa.types.is_large_binary(column.type):
                raise ManifestError(f"the column {name!r} of a sidecar does not contain bytes")
            _, offsets, data = column.buffers()
            return BytesKeys(
                self.numbers(f"{name}.key"),
                np.frombuffer(offsets, dtype=np.int64, count=min(len(self) + 1, len(offsets) // 8)),
                memoryview(data if data is not None else b""),
            )
        if is_wide(dtype):
            return WideKeys(self.numbers(f"{name}.hi"), self.numbers(f"{name}.lo"))
        return NumberKeys(self.numbers(name))


def _text_view(texts: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Returns the offset of each text in the data, and the data; the last offset is the end of the last text."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.zeros(len(texts) + 1, dtype=np.int64), memoryview(b"")
    return np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1], memoryview(data)


def _indexes(rows: npt.NDArray[Any]) -> pa.Array:
    """Converts row numbers for Arrow, without copying. ``pa.array`` would first import pandas if it is installed."""
    numbers = np.ascontiguousarray(rows, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


#: Texts of a block without constants or deletes.
_NOTHING: Final = ("", "null")
_CONSTANTS_DECODER: Final = msgspec.json.Decoder(dict[int, Bound | None])


def constants_of(texts: pa.Array) -> list[dict[int, Bound | None] | None]:
    """Returns the constants of several blocks from their JSON (empty or ``null``: none), an array of texts.

    Blocks with the same constants share one object; there are usually few different ones.
    """
    codes, known = _coded_constants(texts)
    return [known[code] for code in codes.tolist()]


_DELETES_DECODER: Final = msgspec.json.Decoder(tuple[DeleteFile, ...])


def deletes_of(texts: pa.Array) -> list[tuple[DeleteFile, ...] | None]:
    """Returns the deletes of several blocks from their JSON (empty or ``null``: none), an array of texts."""
    try:
        return [None if text in _NOTHING else _DELETES_DECODER.decode(text) for text in texts.to_pylist()]
    except msgspec.MsgspecError as error:
        raise ManifestError(f"the deletes of a sidecar cannot be decoded: {error}") from error


def _coded_constants(texts: pa.Array) -> tuple[npt.NDArray[Any], list[dict[int, Bound | None] | None]]:
    """Returns the different constants, and for each block the index of its own."""
    encoded = texts.dictionary_encode()
    try:
        known = [
            None if text in _NOTHING else _CONSTANTS_DECODER.decode(text) for text in encoded.dictionary.to_pylist()
        ]
    except msgspec.MsgspecError as error:
        raise ManifestError(f"the constants of a sidecar cannot be decoded: {error}") from error
    return encoded.indices.to_numpy(), known


def _array(column: pa.Array) -> npt.NDArray[Any]:
    """Returns a column of numbers without nulls, without copying. Arrow's own method would first import pandas if it is
    installed."""
    dtype = np.dtype(_FLOATS.get(str(column.type)) or str(column.type))
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=len(column), offset=column.offset * dtype.itemsize)


def build_blocks(
    schema: Schema, blocks: Sequence[Block], header: bytes = b"", *, split_from_bytes: int | None = None
) -> bytes:
    """Builds the sidecar of a segment: one row per block, with statistics in terms of ``schema``.

    It is in parts if it would have ``split_from_bytes`` or more as one Arrow file; None: never.
    """
    columns = _Columns(schema.schema_id, FORMAT_VERSION)
    columns.add("location", pa.array([b.location for b in blocks], pa.large_string()))
    for name in ("row_count", "file_size", "block_size"):
        columns.add(name, pa.array([getattr(b, name) for b in blocks], pa.int64()))
    for half, array in zip(BLOCK_KEY, block_keys(blocks).T, strict=True):
        columns.add(half, pa.array(np.ascontiguousarray(array)))
    if any(b.written_with != schema.schema_id for b in blocks):
        columns.add("schema_id", pa.array([b.written_with for b in blocks], pa.int64()))
    stats = [b.cluster_stats for b in blocks]
    if any(each is not None for each in stats):
        values = ([-1 if s is None else s.key_id for s in stats], [0 if s is None else s.level for s in stats])
        for name, of_blocks in zip(CLUSTERED, values, strict=True):
            columns.add(name, pa.array(of_blocks, pa.int64()))
    if any(b.constants for b in blocks):
        texts = [msgspec.json.encode(b.constants).decode() if b.constants else "" for b in blocks]
        columns.add(CONSTANTS, pa.array(texts, pa.large_string()))
    if any(b.deletes for b in blocks):
        texts = [msgspec.json.encode(b.deletes).decode() if b.deletes else "" for b in blocks]
        columns.add(DELETES, pa.array(texts, pa.large_string()))
        _add_live_rows(columns, [b.live_row_count for b in blocks])
    rows = [b.row_count for b in blocks]
    by_leaf = _add_zones(columns, schema, rows, [b.live_stats for b in blocks])
    for leaf, of_leaf in zip(schema.leaves_with_statistics(), by_leaf, strict=True):
        chunks = [b.col_metas.get(leaf.id, ()) for b in blocks]
        sizes = [each[0].len if len(each) == 1 else sum([chunk.len for chunk in each]) for each in chunks]
        columns.add(f"{leaf.id}.size", pa.array(sizes, pa.int64()))
        _add_elsewhere(columns, leaf, of_leaf)
    return columns.file(header, split_from_bytes=split_from_bytes)


def build_block_arrays(schema: Schema, blocks: BlockSequence, *, split_from_bytes: int | None = None) -> bytes:
    """Builds the sidecar of a segment as :func:`build_blocks`, the same bytes, from a compact sequence of blocks.

    All were written with ``schema``, and their parts are plain.
    """
    columns = _Columns(schema.schema_id, FORMAT_VERSION)
    rows = blocks.row_counts
    columns.add("location", pa.array(blocks.locations, pa.large_string()))
    columns.add("row_count", pa.array(blocks.numbers(lambda part: part.row_counts)))
    columns.add("file_size", pa.array(blocks.numbers(lambda part: part.file_sizes)))
    columns.add("block_size", pa.array(blocks.numbers(lambda part: part.block_sizes)))
    for half, array in zip(BLOCK_KEY, block_keys_of(blocks).T, strict=True):
        columns.add(half, pa.array(np.ascontiguousarray(array)))
    by_leaf = []
    leaves = schema.leaves_with_statistics()
    for leaf in leaves:
        of_leaf = blocks.column(leaf.id)
        by_leaf.append(of_leaf)
        if isinstance(of_leaf, ColumnArrays):
            flags, nulls = flags_of(of_leaf)
            _add_zone(columns, leaf, of_leaf.lows, of_leaf.highs, flags, nulls)
        else:
            _add_zone_of(columns, leaf, rows, of_leaf)
    for leaf, of_leaf in zip(leaves, by_leaf, strict=True):
        sizes = blocks.numbers(partial(_column_bytes, column_id=leaf.id))
        columns.add(f"{leaf.id}.size", pa.array(sizes))
        if not isinstance(of_leaf, ColumnArrays):
            _add_elsewhere(columns, leaf, of_leaf)
    return columns.file(b"", split_from_bytes=split_from_bytes)


def _column_bytes(part: BlockPart, *, column_id: int) -> npt.NDArray[np.int64]:
    return part.column_bytes(column_id)


def build_segments(
    schema: Schema, segments: Sequence[SegmentRef], header: bytes = b"", *, split_from_bytes: int | None = None
) -> bytes:
    """Builds the sidecar of a snapshot or group: one row per segment, with statistics in terms of ``schema``.

    ``split_from_bytes``: as there; a snapshot's is never in parts, since a catalog refers to it as a whole.
    """
    columns = _Columns(schema.schema_id, FORMAT_VERSION)
    columns.add("segment_id", pa.array([s.segment_id for s in segments], pa.large_string()))
    for part, refs in (("manifest", [s.manifest for s in segments]), ("sidecar", [s.sidecar for s in segments])):
        columns.add(f"{part}.location", pa.array([r.location for r in refs], pa.large_string()))
        columns.add(f"{part}.sha256", pa.array([r.sha256 for r in refs], pa.large_string()))
        columns.add(f"{part}.size_bytes", pa.array([r.size_bytes for r in refs], pa.int64()))
        if any(r.tail_bytes for r in refs):
            columns.add(f"{part}.{_TAIL_BYTES}", pa.array([r.tail_bytes for r in refs], pa.int64()))
            columns.add(f"{part}.{_TAIL_SHA256}", pa.array([r.tail_sha256 for r in refs], pa.large_string()))
    columns.add("row_count", pa.array([s.summary.row_count for s in segments], pa.int64()))
    columns.add("block_count", pa.array([s.summary.block_count for s in segments], pa.int64()))
    columns.add("file_size", pa.array([s.summary.compressed_byte_size for s in segments], pa.int64()))
    columns.add("block_size", pa.array([s.summary.uncompressed_byte_size for s in segments], pa.int64()))
    if any(s.summary.deletes_count for s in segments):
        _add_live_rows(columns, [s.summary.live_row_count for s in segments])
    rows = [s.summary.row_count for s in segments]
    _add_zones(columns, schema, rows, [s.summary.col_stats for s in segments])
    return columns.file(header, split_from_bytes=split_from_bytes)


def _add_live_rows(columns: _Columns, counts: Sequence[int | None]) -> None:
    columns.add(LIVE, pa.array([-1 if count is None else count for count in counts], pa.int64()))


class _Columns:
    def __init__(self, schema_id: int, format_version: int) -> None:
        self._schema_id = schema_id
        self._format_version = format_version
        self._fields: list[pa.Field] = []
        self._arrays: list[pa.Array] = []

    def add(self, name: str, array: pa.Array, **metadata: str) -> None:
        self._fields.append(pa.field(name, array.type, nullable=False, metadata=metadata or None))
        self._arrays.append(array)

    def file(self, header: bytes, *, split_from_bytes: int | None) -> bytes:
        """Returns the sidecar, in parts if it would have ``split_from_bytes`` or more (None: never)."""
        metadata = {_VERSION: str(self._format_version).encode(), _HEADER: header}
        if self._schema_id:
            metadata[_SCHEMA_ID] = str(self._schema_id).encode()
        if split_from_bytes is None or file_bytes(self._arrays) < split_from_bytes:
            return _arrow_file(self._fields, self._arrays, metadata)
        of_column: dict[int | None, list[int]] = {None: []}
        for number, field in enumerate(self._fields):
            of_column.setdefault(column_of(field.name), []).append(number)
        common = of_column.pop(None)
        return joined(
            _arrow_file([self._fields[each] for each in common], [self._arrays[each] for each in common], metadata),
            [
                (column_id, stream([self._fields[each] for each in numbers], [self._arrays[each] for each in numbers]))
                for column_id, numbers in of_column.items()
                if column_id is not None
            ],
        )


def _arrow_file(fields: Sequence[pa.Field], arrays: Sequence[pa.Array], metadata: dict[bytes, bytes]) -> bytes:
    schema = pa.schema(fields, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


_RANGES: Final = attrgetter("ranges")
_BUCKET: Final = attrgetter("bucket")
_SUM: Final = attrgetter("sum")
_SOURCE: Final = attrgetter("source")


def _add_zones(
    columns: _Columns, schema: Schema, rows: Sequence[int], stats: Sequence[Mapping[int, ColumnStats]]
) -> list[list[ColumnStats | None]]:
    """Add the zone maps of every leaf; returns the statistics by leaf."""
    by_leaf = []
    for leaf in schema.leaves_with_statistics():
        of_leaf = [given.get(leaf.id) for given in stats]
        by_leaf.append(of_leaf)
        _add_zone_of(columns, leaf, rows, of_leaf)
    return by_leaf


def _add_zone_of(columns: _Columns, leaf: Leaf, rows: Sequence[int], of_leaf: Sequence[ColumnStats | None]) -> None:
    """Add the zone maps of one leaf from its statistics in each entry."""
    _add_zone(columns, leaf, *gather(leaf.dtype, rows, of_leaf))
    known = [each for each in of_leaf if each is not None]
    if any(map(_RANGES, known)):
        edges = [[from_bound(leaf.dtype, edge) for edge in each.ranges] if each else [] for each in of_leaf]
        values = pa.from_numpy_dtype(number_dtype(leaf.dtype))
        columns.add(f"{leaf.id}.spans", pa.array(edges, pa.large_list(values)))
    if any(map(_BUCKET, known)):
        buckets = [0 if each is None or each.bucket is None else packed_bucket(each.bucket) for each in of_leaf]
        columns.add(f"{leaf.id}.bucket", pa.array(buckets, pa.int64()))
    if any(map(_SUM, known)):
        sums = ["" if each is None or each.sum is None else each.sum for each in of_leaf]
        columns.add(f"{leaf.id}.sum", pa.array(sums, pa.large_string()))


def _add_zone(
    columns: _Columns,
    leaf: Leaf,
    lows: Bounds | Sequence[Any],
    highs: Bounds | Sequence[Any],
    flags: npt.NDArray[np.uint8],
    nulls: npt.NDArray[np.int64],
) -> None:
    columns.add(f"{leaf.id}.flags", pa.array(flags), type=str(leaf.dtype))
    columns.add(f"{leaf.id}.nulls", pa.array(nulls))
    if leaf.dtype.order is not None:
        _add_keys(columns, f"{leaf.id}.min", leaf.dtype, lows)
        _add_keys(columns, f"{leaf.id}.max", leaf.dtype, highs)


def _add_elsewhere(columns: _Columns, leaf: Leaf, of_leaf: Sequence[ColumnStats | None]) -> None:
    if {"footer"}.issuperset(map(_SOURCE, filter(None, of_leaf))):
        return
    elsewhere = [_is_from_elsewhere(each) for each in of_leaf]
    if any(elsewhere):
        columns.add(f"{leaf.id}.elsewhere", pa.array(np.array(elsewhere, dtype=np.uint8)))


def _is_from_elsewhere(stats: ColumnStats | None) -> bool:
    """Returns whether the statistics do not come from the file's own footer, which may then differ."""
    if stats is None or stats.source == "footer":
        return False
    return stats.source != "schema" or stats.min is not None or stats.max is not None or stats.nan != "none"


def _prefix_keys(values: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Returns :func:`~lamella.snapshot.columnar.keys.prefix_key` of many values."""
    prefixes = b"".join([value[:8].ljust(8, b"\0") for value in values])
    return np.frombuffer(prefixes, dtype=">u8").astype(np.uint64)


def _add_keys(columns: _Columns, name: str, dtype: DataType, values: Any) -> None:
    if dtype.order == "bytes":
        columns.add(name, pa.array(values, pa.large_binary()))
        columns.add(f"{name}.key", pa.array(_prefix_keys(values)))
    elif is_wide(dtype) and isinstance(values, np.ndarray):  # they fit one limb
        columns.add(f"{name}.hi", pa.array(values >> np.int64(63)))
        columns.add(f"{name}.lo", pa.array(values.astype(np.uint64)))
    elif is_wide(dtype):
        limbs = [split_wide(v) for v in values]
        columns.add(f"{name}.hi", pa.array(np.array([h for h, _ in limbs], dtype=np.int64)))
        columns.add(f"{name}.lo", pa.array(np.array([lo for _, lo in limbs], dtype=np.uint64)))
    else:
        columns.add(name, pa.array(np.array(values, dtype=number_dtype(dtype))))


# A sidecar seen from a later schema of the table than the one it was written with.
#
# Zone maps are converted column by column, on first access, as ``snapshot.stats.column`` does for statistics.

_LIMB = 1 << 64


class EvolvedSidecar(Sidecar):
    """A view of a sidecar; arrays and addresses are the same objects."""

    def __init__(self, inner: Sidecar, written: Schema, wanted: Schema) -> None:
        # Opening the bytes again would only create the same views.
        self.__dict__.update(inner.__dict__)
        self._inner = inner
        self._written = written
        self.wanted = wanted
        self._evolved: dict[tuple[int, DataType], Zones] = {}

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """Returns the zone maps of a column of the later schema."""
        key = (column_id, dtype)
        found = self._evolved.get(key)
        if found is None:
            found = self._evolved[key] = self._converted(column_id, dtype)
        return found

    def null_counts(self, column_id: int, dtype: DataType) -> npt.NDArray[np.int64]:
        """Returns the null counts of a column, -1 where unknown."""
        old = self._written.by_id().get(column_id)
        if old is not None:
            known = old.dtype == dtype or can_widen(old.dtype, dtype)
            return self._inner.null_counts(column_id, old.dtype) if known else np.full(len(self), -1, dtype=np.int64)
        stats = self._absent(column_id, dtype)
        counts = [-1 if each is None or each.null_count is None else each.null_count for _, each in stats]
        return np.array(counts, dtype=np.int64)

    def sums(self, column_id: int, dtype: DataType) -> list[int | None]:
        """Returns the sums of a column in units of the type's last digit, None where unknown; raises ManifestError."""
        old = self._written.by_id().get(column_id)
        if old is None:
            return [sum_of(dtype, each) for _, each in self._absent(column_id, dtype)]
        if not (has_sum(dtype) and has_sum(old.dtype) and (old.dtype == dtype or can_widen(old.dtype, dtype))):
            return [None] * len(self)
        times = factor(old.dtype, dtype)
        return [None if each is None else each * times for each in self._inner.sums(column_id, old.dtype)]

    def _converted(self, column_id: int, dtype: DataType) -> Zones:
        old = self._written.by_id().get(column_id)
        if old is not None:
            return widened_zones(self._inner.zones(column_id, old.dtype), old.dtype, dtype)
        entries = self._absent(column_id, dtype)
        zones = zones_of(dtype, entries)
        return Zones(zones.low, zones.high, zones.flags | exact_bits(entries))

    def _absent(self, column_id: int, dtype: DataType) -> list[tuple[int, ColumnStats | None]]:
        """Returns ``(row count, statistics)`` of a column that the written schema lacks."""
        leaf: Leaf | None = self.wanted.by_id().get(column_id)
        rows: list[int] = self.numbers("row_count").tolist()
        younger = is_younger(column_id, self._written)
        if leaf is None or leaf.dtype != dtype or leaf.shredded or not younger:
            return [(count, None) for count in rows]
        live: list[int] = self.live_row_counts().tolist()
        return [
            (count, absent(leaf, count) if alive == count else with_deleted_rows(absent(leaf, count), max(0, alive)))
            for count, alive in zip(rows, live, strict=True)
        ]


def widened_zones(zones: Zones, source: DataType, target: DataType) -> Zones:
    """Returns zone maps of a column of type ``source`` converted to type ``target``; bounds are converted exactly."""
    if source == target:
        return zones
    if not can_widen(source, target):
        return nothing_known(len(zones))
    found = _widened_bounds(zones, source, target)
    if zones.buckets is not None:
        found = found if found is not zones else zones.take(np.arange(len(zones)))
        found.buckets = zones.buckets.seen_as(target) if keeps_bucket(source, target) else None
    return found


def _widened_bounds(zones: Zones, source: DataType, target: DataType) -> Zones:
    if zones.low is None or zones.high is None or target.order is None:
        return Zones(None, None, zones.flags & ~np.uint8(LOW_KNOWN | HIGH_KNOWN | LOW_EXACT | HIGH_EXACT))
    if target.order == "float" and source.order != "float":
        low, high = (keys_of(target, list(map(float, _integers(keys)))) for keys in (zones.low, zones.high))
        return Zones(low, high, zones.flags)
    if target.order in ("bytes", "float"):
        return zones
    times = factor(source, target)
    flags = zones.flags.copy()
    low, low_lost = _scaled(zones.low, times, target)
    high, high_lost = _scaled(zones.high, times, target)
    flags[low_lost] &= ~np.uint8(LOW_KNOWN | LOW_EXACT)
    flags[high_lost] &= ~np.uint8(HIGH_KNOWN | HIGH_EXACT)
    return Zones(low, high, flags)


def _scaled(keys: Keys, times: int, target: DataType) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Returns the bounds times a factor, and where the result is not a value of the target type."""
    if times == 1 and isinstance(keys, NumberKeys) and target.order != "decimal":
        return NumberKeys(keys.array.astype(number_dtype(target))), np.zeros(len(keys.array), dtype=bool)
    lowest, highest = target.int_range
    values = [value * times for value in _integers(keys)]
    lost = np.array([not lowest <= value <= highest for value in values], dtype=bool)
    fitting = [0 if gone else value for value, gone in zip(values, lost, strict=True)]
    made: Any = keys_of(target, fitting)
    return made, lost


def _integers(keys: Keys) -> list[int]:
    if isinstance(keys, WideKeys):
        return [int(high) * _LIMB + int(low) for high, low in zip(keys.high, keys.low, strict=True)]
    if isinstance(keys, NumberKeys):
        return [int(value) for value in keys.array]
    raise AssertionError("bytes are not scaled")


#: A sidecar, and its rows that belong here (None: all).
Part = tuple[Sidecar, npt.NDArray[np.int64] | None]


class JoinedSidecar(Sidecar):
    """The rows of ``parts`` one after another; arrays are assembled column by column, on first access.

    ``own``: the sidecar of the snapshot itself, which gives the header and the schema. All parts are in terms of that
    schema.
    """

    def __init__(self, own: Sidecar, parts: Sequence[Part]) -> None:
        self.header = own.header
        self.schema_id = own.schema_id
        self.size_bytes = sum(part.size_bytes for part, _ in parts)
        self._parts = tuple(parts)
        self.is_in_parts = any(part.is_in_parts for part, _ in parts)
        counts = [len(part) if rows is None else len(rows) for part, rows in parts]
        self._starts = np.cumsum([0, *counts])
        self._bounds: list[int] = self._starts.tolist()
        self._numbers: dict[str, npt.NDArray[Any]] = {}
        self._joined: dict[tuple[int, DataType], Zones] = {}
        self._nulls: dict[tuple[int, DataType], npt.NDArray[np.int64]] = {}
        #: Called when columns of parts were joined, with the approximate bytes of all that were.
        self.on_growth: Callable[[int], None] | None = None

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def sidecars(self) -> list[Sidecar]:
        """Returns the sidecars that are joined."""
        return [part for part, _ in self._parts]

    def lacks(self, column_ids: Iterable[int]) -> bool:
        """Returns whether a sidecar has to fetch one of the columns."""
        ids = list(column_ids)
        return any(part.lacks(ids) for part in self.sidecars)

    def read(self, column_ids: Iterable[int]) -> None:
        """Read the arrays of columns, one sidecar after another."""
        ids = list(column_ids)
        for part in self.sidecars:
            part.read(ids)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Returns a numeric column as an array; raises ManifestError if a part lacks it."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = _rows_of(self._parts, lambda part: part.numbers(name))
        return found

    def live_row_counts(self) -> npt.NDArray[np.int64]:
        """Returns the numbers of rows that are not deleted, -1 where unknown."""
        return _rows_of(self._parts, lambda part: part.live_row_counts())

    def texts(self, name: str, rows: npt.NDArray[Any] | None = None) -> list[str]:
        """Returns the values of a text column, all or those of some rows; raises ManifestError if a part lacks it."""
        if rows is None:
            return [text for part, picked in self._parts for text in part.texts(name, picked)]
        if len(rows) == 1:  # the case of callers that open segments one by one
            return [self.text_at(name, int(rows[0]))]
        found: list[str] = [""] * len(rows)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owners).tolist():
            part, picked = self._parts[number]
            at = np.flatnonzero(owners == number)
            local = np.asarray(rows)[at] - self._starts[number]
            values = part.texts(name, local if picked is None else picked[local])
            for index, value in zip(at.tolist(), values, strict=True):
                found[index] = value
        return found

    def text_at(self, name: str, row: int) -> str:
        """Returns one value of a text column."""
        number = bisect_right(self._bounds, row) - 1
        part, picked = self._parts[number]
        local = row - self._bounds[number]
        return part.text_at(name, local if picked is None else int(picked[local]))

    @cached_property
    def hash_ends(self) -> npt.NDArray[np.uint16]:
        """Returns the last 16 bits of the hash of each segment's sidecar."""
        return _rows_of(self._parts, lambda part: part.hash_ends)

    def seen_from(self, written: Schema, wanted: Schema) -> Sidecar:
        """Returns the parts in terms of a later schema of the table than theirs, ``written``."""
        view = JoinedSidecar(self, [(part.seen_from(written, wanted), rows) for part, rows in self._parts])
        view.schema_id = wanted.schema_id
        return view

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """Returns the zone maps of a column; they are unknown for entries of a part that lacks it."""
        key = (column_id, dtype)
        found = self._joined.get(key)
        if found is None:
            found = self._joined[key] = joined_zones(
                dtype, [_taken(part.zones(column_id, dtype), rows) for part, rows in self._parts]
            )
            if self.on_growth is not None:
                self.on_growth(_ENTRY_BYTES * len(self) * len(self._joined))
        return found

    def null_counts(self, column_id: int, dtype: DataType) -> npt.NDArray[np.int64]:
        """Returns the null counts of a column, -1 where unknown."""
        key = (column_id, dtype)
        found = self._nulls.get(key)
        if found is None:
            found = self._nulls[key] = _rows_of(self._parts, lambda part: part.null_counts(column_id, dtype))
        return found

    def sums(self, column_id: int, dtype: DataType) -> list[int | None]:
        """Returns the sums of a column in units of the type's last digit, None where unknown; raises ManifestError."""
        found: list[int | None] = []
        for part, rows in self._parts:
            of_part = part.sums(column_id, dtype)
            found += of_part if rows is None else [of_part[row] for row in rows.tolist()]
        return found

    def from_elsewhere(self, column_id: int) -> npt.NDArray[np.bool_]:
        """Returns where the statistics of a column do not come from the file's own footer."""
        return _rows_of(self._parts, lambda part: part.from_elsewhere(column_id))

    def column_size_bytes(self, column_ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Returns the compressed bytes of the columns, summed per entry."""
        return _rows_of(self._parts, lambda part: part.column_size_bytes(column_ids))

    def older_schema_ids(self, rows: npt.NDArray[Any], current: int) -> list[int | None]:
        """Returns the schema of each row, None where it is the current one; all rows have the same."""
        return [None if self.schema_id == current else self.schema_id] * len(rows)


def _rows_of(parts: Sequence[Part], column: Callable[[Sidecar], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    arrays = [(column(part), rows) for part, rows in parts]
    return np.concatenate([values if rows is None else values[rows] for values, rows in arrays])


def _taken(zones: Zones, rows: npt.NDArray[np.int64] | None) -> Zones:
    if rows is None:
        return zones
    taken = zones.take(rows)
    taken.spans = None if zones.spans is None else zones.spans.take(rows)
    taken.buckets = None if zones.buckets is None else zones.buckets.take(rows)
    return taken


def joined_zones(dtype: DataType, parts: Sequence[Zones]) -> Zones:
    """Concatenates the zone maps of several layers; at least one part."""
    zones = Zones(
        _joined_side(dtype, [(part.low, len(part)) for part in parts]),
        _joined_side(dtype, [(part.high, len(part)) for part in parts]),
        np.concatenate([part.flags for part in parts]),
    )
    zones.spans = Spans.joined([(part.spans, len(part)) for part in parts])
    zones.buckets = Buckets.joined([(part.buckets, len(part)) for part in parts])
    return zones


def _joined_side(dtype: DataType, parts: Sequence[tuple[Keys | None, int]]) -> Keys | None:
    """Concatenates the bounds of one side; a part without bounds has zero values, which its flags mark as unknown."""
    if all(keys is None for keys, _ in parts):
        return None
    zero: Any = b"" if dtype.order == "bytes" else 0.0 if dtype.order == "float" else 0
    filled = [keys if keys is not None else keys_of(dtype, [zero] * count) for keys, count in parts]
    return joined_keys([keys for keys in filled if keys is not None])
