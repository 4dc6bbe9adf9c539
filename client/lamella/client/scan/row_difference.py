"""The rows that only one of two sets has, counting duplicates: what is left of a rewrite when unchanged rows are taken
out.

Rows are equal if every value has the same bits, so that nothing is taken for unchanged that was changed: 0.0 and -0.0
differ, NaN equals itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.variant.arrow import comparable_variants, is_variant

Numbers = npt.NDArray[np.int64]
#: Which of the two sets.
Side = Literal["before", "after"]

SIDES: Final[tuple[Side, Side]] = ("before", "after")
#: Into how many files each set is divided when they are larger than memory.
_BUCKETS: Final = 64
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SEED: Final = 0x51_7C_C1_B7


class RowDifference:
    """Collects two sets of rows, and returns what only one of them has. A context manager.

    ``schema``: of both. ``compared``: numbers of the columns that make rows equal. Up to ``memory_bytes`` of rows stay
    in memory; beyond that they are divided by their hashes into temporary files, so that equal rows meet again.
    """

    def __init__(self, schema: pa.Schema, compared: Sequence[int], memory_bytes: int) -> None:
        self._schema = schema
        self._compared = list(compared)
        self._memory_bytes = memory_bytes
        self._rows: dict[Side, list[pa.Table]] = {side: [] for side in SIDES}
        self._size_bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writers: dict[tuple[Side, int], Any] = {}

    def __enter__(self) -> RowDifference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, side: Side, rows: pa.Table) -> None:
        """Add rows to a set."""
        if not rows.num_rows:
            return
        self._rows[side].append(rows)
        self._size_bytes += rows.nbytes
        if self._folder is not None or self._size_bytes > self._memory_bytes:
            self._spill()

    def result(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the rows that only the first set has, and those that only the second one has, in parts. Rows that are
        equal in the compared columns are in one part."""
        if self._folder is None:
            yield self._part({side: pa.concat_tables(self._rows[side] or [self._empty()]) for side in SIDES})
            return
        self._close()
        for bucket in range(_BUCKETS):
            yield self._part({side: self._read(side, bucket) for side in SIDES})

    def _empty(self) -> pa.Table:
        return self._schema.empty_table()

    def _part(self, rows: dict[Side, pa.Table]) -> tuple[pa.Table, pa.Table]:
        before, after = rows["before"], rows["after"]
        if not before.num_rows or not after.num_rows:
            return before, after
        codes = row_codes(pa.concat_tables([before, after]).select(self._compared))
        old, new = codes[: before.num_rows], codes[before.num_rows :]
        count = int(codes.max()) + 1
        more = np.bincount(new, minlength=count) - np.bincount(old, minlength=count)
        return before.filter(pa.array(_last(old, -more))), after.filter(pa.array(_last(new, more)))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="lamella-", ignore_cleanup_errors=True)
        for side in SIDES:
            for rows in self._rows[side]:
                buckets = (row_hashes(rows.select(self._compared)) % np.uint64(_BUCKETS)).astype(np.int64)
                for bucket in np.unique(buckets).tolist():
                    self._writer(side, bucket).write_table(rows.filter(pa.array(buckets == bucket)))
            self._rows[side] = []
        self._size_bytes = 0

    def _path(self, side: Side, bucket: int) -> Path:
        assert self._folder is not None  # noqa: S101  # only called after it was made
        return Path(self._folder.name) / f"{side}-{bucket}.arrow"

    def _writer(self, side: Side, bucket: int) -> Any:
        found = self._writers.get((side, bucket))
        if found is None:
            found = pa.ipc.new_stream(self._path(side, bucket), self._schema, options=_OPTIONS)
            self._writers[side, bucket] = found
        return found

    def _read(self, side: Side, bucket: int) -> pa.Table:
        path = self._path(side, bucket)
        if not path.exists():
            return self._empty()
        with pa.ipc.open_stream(path) as stream:
            return stream.read_all()

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}


def _last(codes: Numbers, wanted: Numbers) -> npt.NDArray[np.bool_]:
    """Return a mask of the last ``wanted[code]`` rows of each code; at most 0: none."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ends = np.searchsorted(ordered, ordered, side="right")
    left = ends - np.arange(len(ordered))  # this one and those after it
    mask = np.zeros(len(codes), dtype=bool)
    mask[order] = left <= wanted[ordered]
    return mask


def row_codes(rows: pa.Table) -> Numbers:
    """Return a number for each row, equal for equal rows only. Nulls are equal."""
    if not rows.num_columns:
        return np.zeros(rows.num_rows, dtype=np.int64)
    return _combined([_codes(column.combine_chunks()) for column in rows.columns])


def _codes(values: Any) -> Numbers:
    """Return a number for each value of an array, equal for equal values only."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if is_variant(values.type):
        return _encoded(comparable_variants(values))
    if pa.types.is_struct(values.type):
        # Fields of a null struct may have any values, flatten() makes them null.
        return _combined(
            [values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), *map(_codes, values.flatten())]
        )
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_map(values.type):
        return _encoded(_list_bytes(values))
    if pa.types.is_fixed_size_list(values.type):
        return _codes(values.cast(pa.large_list(values.type.value_type)))
    return _encoded(_bits(values))


def _bits(values: Any) -> Any:
    """Return floating-point numbers as the integers with the same bits, and others as they are."""
    if pa.types.is_floating(values.type):
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    return values


def _list_bytes(values: Any) -> Any:
    """Return for each list the codes of its elements, as bytes."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    if pa.types.is_map(values.type):
        codes = _combined([_codes(values.keys), _codes(values.items)])
    else:
        codes = _codes(values.values)
    buffers = [None, pa.py_buffer(offsets * 8), pa.py_buffer(np.ascontiguousarray(codes))]
    found = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.large_binary())) if values.null_count else found


def _encoded(values: Any) -> Numbers:
    found = values.dictionary_encode(null_encoding="encode")
    return np.asarray(found.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _combined(codes: Sequence[Numbers]) -> Numbers:
    """Return a number for each row of several columns of codes, equal for equal rows only."""
    if len(codes) == 1:
        return codes[0]
    rows = np.ascontiguousarray(np.stack(codes, axis=1))
    width = 8 * len(codes)
    return _encoded(pa.Array.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)]))


def row_hashes(rows: pa.Table) -> npt.NDArray[np.uint64]:
    """Return a hash of each row (uint64), equal for equal rows, the same for all tables of this process."""
    found = np.full(rows.num_rows, _SEED, dtype=np.uint64)
    for column in rows.columns:
        found = _mixed(found, _hashes(column.combine_chunks()))
    return found


def _hashes(values: Any) -> npt.NDArray[np.uint64]:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if is_variant(values.type):
        values = comparable_variants(values)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        found = np.zeros(len(values), dtype=np.uint64)
        for field in values.flatten():
            found = _mixed(found, _hashes(field))
    elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_map(values.type):
        parts = [values.keys, values.items] if pa.types.is_map(values.type) else [values.values]
        elements = np.zeros(len(parts[0]), dtype=np.uint64)
        for part in parts:
            elements = _mixed(elements, _hashes(part))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(elements, dtype=np.uint64)])
        offsets = values.offsets.to_numpy().astype(np.int64)
        found = sums[offsets[1:]] - sums[offsets[:-1]]  # whatever their order: only equal rows must agree
    elif pa.types.is_fixed_size_list(values.type):
        return _hashes(values.cast(pa.large_list(values.type.value_type)))
    else:
        encoded = _bits(values).dictionary_encode(null_encoding="encode")
        distinct = np.array([hash(value) & _MASK for value in encoded.dictionary.to_pylist()], dtype=np.uint64)
        found = distinct[encoded.indices.to_numpy(zero_copy_only=False)] if len(values) else distinct
    return np.where(valid, found, np.uint64(1))


_MASK: Final = (1 << 64) - 1


def _mixed(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (one * _ODD) ^ other
    return mixed ^ (mixed >> np.uint64(29))
