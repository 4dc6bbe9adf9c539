"""Companions: one layer's zone maps and addresses as an Arrow IPC file of one record batch, uncompressed.

Derived from the JSON manifest of the same id and rebuilt from it at will; its own bytes are checked against the hash
that the parent manifest records. A segment's companion has one row a block, a snapshot's one row a segment.

Per column id c: ``c.flags`` (uint8, see ``zones``), ``c.nulls`` (int64, -1 unknown), ``c.min``/``c.max`` (int64,
uint64 or float64; large_binary for bytes with ``c.min.key``/``c.max.key``, the uint64 prefixes; ``c.min.hi`` and
``c.min.lo`` for wide decimals), ``c.size`` (compressed bytes of the column in the block).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys, prefix_key, split_wide
from lamella.snapshot.columnar.zones import Zones, arrays_of, is_wide, nothing_known, number_dtype
from lamella.snapshot.errors import ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import FORMAT_VERSION, Block, SegmentRef
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats import ColumnStats

_VERSION: Final = b"lamella.format_version"
_HEADER: Final = b"lamella.header"


class Companion:
    """A companion in memory: arrays are views of ``data``, made when first asked for."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Open a companion file; raises ManifestError or UnsupportedFormat."""
        try:
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data)))
            metadata = reader.schema.metadata or {}
            version = int(metadata.get(_VERSION, b"0"))
            if version > FORMAT_VERSION:
                raise UnsupportedFormat(f"a companion has format version {version}", format_version=version)
            if version < 1 or reader.num_record_batches != 1:
                raise ManifestError("not a companion")
            self._batch = reader.get_batch(0)
        except (pa.ArrowException, ValueError) as error:
            raise ManifestError(f"a companion cannot be read: {error}") from error
        self.header: bytes = metadata.get(_HEADER, b"")
        self.size_bytes = len(data)
        self._index = {name: i for i, name in enumerate(self._batch.schema.names)}
        self._zones: dict[int, Zones] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A numeric column as an array, without copying."""
        return np.asarray(self._batch.column(self._index[name]).to_numpy(zero_copy_only=True))

    def texts(self, name: str, rows: npt.NDArray[Any] | None = None) -> list[str]:
        """A text column's values, all or those of some rows."""
        column = self._batch.column(self._index[name])
        return list((column if rows is None else column.take(pa.array(rows))).to_pylist())

    def zones(self, column_id: int, dtype: DataType) -> Zones:
        """The zone maps of a column; a column that the companion does not have has none."""
        found = self._zones.get(column_id)
        if found is None:
            found = self._zones[column_id] = self._load(column_id, dtype)
        return found

    def column_size_bytes(self, column_ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Compressed bytes of the columns, added up per entry."""
        total = np.zeros(len(self), dtype=np.int64)
        for column_id in column_ids:
            name = f"{column_id}.size"
            if name in self._index:
                total += self.numbers(name)
        return total

    def _load(self, column_id: int, dtype: DataType) -> Zones:
        if f"{column_id}.flags" not in self._index or self._type_text(column_id) != str(dtype):
            return nothing_known(len(self))
        flags = self.numbers(f"{column_id}.flags")
        return Zones(self._keys(f"{column_id}.min", dtype), self._keys(f"{column_id}.max", dtype), flags)

    def _type_text(self, column_id: int) -> str:
        field = self._batch.schema.field(self._index[f"{column_id}.flags"])
        return str((field.metadata or {}).get(b"type", b"").decode())

    def _keys(self, name: str, dtype: DataType) -> Keys | None:
        if dtype.order is None:
            return None
        if dtype.order == "bytes":
            column = self._batch.column(self._index[name])
            _, offsets, data = column.buffers()
            return BytesKeys(
                self.numbers(f"{name}.key"),
                np.frombuffer(offsets, dtype=np.int64)[: len(self) + 1],
                memoryview(data if data is not None else b""),
            )
        if is_wide(dtype):
            return WideKeys(self.numbers(f"{name}.hi"), self.numbers(f"{name}.lo"))
        return NumberKeys(self.numbers(name))


def build_blocks(schema: Schema, blocks: Sequence[Block], header: bytes = b"") -> bytes:
    """The companion of a segment: one row a block."""
    columns = _Columns()
    columns.add("location", pa.array([b.location for b in blocks], pa.large_string()))
    for name in ("row_count", "file_size", "block_size"):
        columns.add(name, pa.array([getattr(b, name) for b in blocks], pa.int64()))
    rows = [b.row_count for b in blocks]
    _add_zones(columns, schema, rows, [b.col_stats for b in blocks])
    for leaf in schema.leaves():
        sizes = [sum(chunk.len for chunk in b.col_metas.get(leaf.id, ())) for b in blocks]
        columns.add(f"{leaf.id}.size", pa.array(sizes, pa.int64()))
    return columns.file(header)


def build_segments(schema: Schema, segments: Sequence[SegmentRef], header: bytes = b"") -> bytes:
    """The companion of a snapshot: one row a segment."""
    columns = _Columns()
    columns.add("segment_id", pa.array([s.segment_id for s in segments], pa.large_string()))
    for part in ("manifest", "companion"):
        refs = [getattr(s, part) for s in segments]
        columns.add(f"{part}.location", pa.array([r.location for r in refs], pa.large_string()))
        columns.add(f"{part}.sha256", pa.array([r.sha256 for r in refs], pa.large_string()))
        columns.add(f"{part}.size_bytes", pa.array([r.size_bytes for r in refs], pa.int64()))
    columns.add("row_count", pa.array([s.summary.row_count for s in segments], pa.int64()))
    columns.add("block_count", pa.array([s.summary.block_count for s in segments], pa.int64()))
    columns.add("file_size", pa.array([s.summary.compressed_byte_size for s in segments], pa.int64()))
    columns.add("block_size", pa.array([s.summary.uncompressed_byte_size for s in segments], pa.int64()))
    rows = [s.summary.row_count for s in segments]
    _add_zones(columns, schema, rows, [s.summary.col_stats for s in segments])
    return columns.file(header)


class _Columns:
    def __init__(self) -> None:
        self._fields: list[pa.Field] = []
        self._arrays: list[pa.Array] = []

    def add(self, name: str, array: pa.Array, **metadata: str) -> None:
        self._fields.append(pa.field(name, array.type, nullable=False, metadata=metadata or None))
        self._arrays.append(array)

    def file(self, header: bytes) -> bytes:
        schema = pa.schema(self._fields, metadata={_VERSION: str(FORMAT_VERSION).encode(), _HEADER: header})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(self._arrays, schema=schema))
        return bytes(sink.getvalue())


def _add_zones(
    columns: _Columns, schema: Schema, rows: Sequence[int], stats: Sequence[Mapping[int, ColumnStats]]
) -> None:
    for leaf in schema.leaves():
        entries = [(count, given.get(leaf.id)) for count, given in zip(rows, stats, strict=True)]
        lows, highs, flags, nulls = arrays_of(leaf.dtype, entries)
        columns.add(f"{leaf.id}.flags", pa.array(flags), type=str(leaf.dtype))
        columns.add(f"{leaf.id}.nulls", pa.array(nulls))
        if leaf.dtype.order is not None:
            _add_keys(columns, f"{leaf.id}.min", leaf.dtype, lows)
            _add_keys(columns, f"{leaf.id}.max", leaf.dtype, highs)


def _add_keys(columns: _Columns, name: str, dtype: DataType, values: Sequence[Any]) -> None:
    if dtype.order == "bytes":
        columns.add(name, pa.array(values, pa.large_binary()))
        columns.add(f"{name}.key", pa.array(np.array([prefix_key(v) for v in values], dtype=np.uint64)))
    elif is_wide(dtype):
        limbs = [split_wide(v) for v in values]
        columns.add(f"{name}.hi", pa.array(np.array([h for h, _ in limbs], dtype=np.int64)))
        columns.add(f"{name}.lo", pa.array(np.array([lo for _, lo in limbs], dtype=np.uint64)))
    else:
        columns.add(name, pa.array(np.array(values, dtype=number_dtype(dtype))))
