"""A block's statistics against its values, every one of which is read, column after column and batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import CorruptParquet, ManifestError, SchemaMismatch
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.decoded import DecodedFile, Unreadable
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.plan import PlannedColumn, plan
from lamella.snapshot.rows.conform import conform_leaf
from lamella.snapshot.rows.vectors import vector_of
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.measure import Extent, extent
from lamella.snapshot.stats.ranges import problem as range_problem
from lamella.snapshot.verify.layers import Problem, value_of

#: Distinct values are counted in columns of up to so many rows.
_DISTINCT_ROWS: Final = 1 << 20
#: Counts of distinct values may be estimates: one part in so many, and a few, is no finding.
_DISTINCT_SHARE: Final = 5
_DISTINCT_FEW: Final = 5


class ValuesRead(msgspec.Struct, frozen=True):
    """What was wrong, and how many values were read."""

    problems: tuple[Problem, ...]
    values: int


def check_values(store: Store, footer: Footer, block: Block, schema: Schema) -> ValuesRead:
    """Compare a block's statistics with its values; ``schema`` is the one that it was written with.

    A column that pyarrow cannot decode as what it is, or that has no order, is left out.

    Raises:
        ObjectNotFound, StoreError: as the store says.
    """
    try:
        columns = plan(footer.metadata.schema, schema).present
        file = DecodedFile(store, footer)
    except Unreadable:
        return ValuesRead((), 0)
    except SchemaMismatch:
        return ValuesRead((), 0)  # reported of the footer
    except CorruptParquet as error:
        return ValuesRead((Problem("values_unreadable", error.message, None, block.location),), 0)
    problems: list[Problem] = []
    values = 0
    try:
        for column in columns:
            stats = block.col_stats.get(column.column_id)
            if stats is None or not is_readable(footer, column):
                continue
            try:
                measured = _measured(file, column, stats)
            except Unreadable:
                continue
            except CorruptParquet as error:
                problems.append(Problem("values_unreadable", error.message, column.column_id, block.location))
                continue
            values += measured.span.count
            problems += _problems(column, stats, measured, block.location)
    finally:
        file.close()
    return ValuesRead(tuple(problems), values)


def is_readable(footer: Footer, column: PlannedColumn) -> bool:
    """Whether a column's values can be decoded and have an order."""
    if column.repeated or column.opaque or column.dtype.order is None:
        return False
    return not any(group.chunks[column.index].encrypted for group in footer.metadata.row_groups)


def as_type(array: pa.Array, dtype: DataType, name: str) -> pa.Array:
    """Decoded values as values of the table's type; raises Unreadable when they are not such values."""
    if dtype.order == "bytes" or dtype.is_float:
        return array
    try:
        return conform_leaf(array, dtype, name)
    except SchemaMismatch as error:
        raise Unreadable(error.message) from error


class _Measured(msgspec.Struct):
    span: Extent
    outside: Any = None  # a value in a gap
    distinct: int | None = None


def _measured(file: DecodedFile, column: PlannedColumn, stats: ColumnStats) -> _Measured:
    found = _Measured(Extent())
    edges = _edges(column.dtype, stats)
    seen: list[Any] = []
    for decoded in file.values(column.index):
        array = as_type(decoded, column.dtype, column.name)
        found.span = found.span.joined(extent(column.dtype, array))
        if edges is not None and found.outside is None:
            found.outside = _in_a_gap(vector_of(array, column.dtype), edges)
        if stats.distinct_of_values is not None and found.span.count <= _DISTINCT_ROWS:
            seen.append(pc.unique(array.drop_null()))
    if stats.distinct_of_values is not None and found.span.count <= _DISTINCT_ROWS:
        found.distinct = len(pc.unique(pa.chunked_array(seen))) if seen else 0
    return found


def _edges(dtype: DataType, stats: ColumnStats) -> Any:
    """The edges of the ranges, None when there are none that make sense; that is reported of the manifest."""
    try:
        low, high = value_of(dtype, stats.min), value_of(dtype, stats.max)
        if not stats.ranges or range_problem(dtype, stats.ranges, low, high) is not None:
            return None
        return [value_of(dtype, bound) for bound in stats.ranges]
    except (ManifestError, ValueError):
        return None


def _in_a_gap(vector: Any, edges: Sequence[Any]) -> Any:
    """A value that no range holds, None when there is none."""
    values = vector.values[vector.valid]
    if values.dtype == np.float64:
        values = values[~np.isnan(values)]
    ordered = np.array(edges, dtype=values.dtype)
    lows, highs = ordered[0::2], ordered[1::2]
    at = np.searchsorted(lows, values, side="right") - 1
    outside = (at < 0) | (values > highs[np.maximum(at, 0)])
    return values[outside][0].item() if outside.any() else None


def _problems(column: PlannedColumn, stats: ColumnStats, measured: _Measured, location: str) -> Iterator[Problem]:
    def wrong(code: str, message: str) -> Problem:
        return Problem(code, message, column.column_id, location)

    span = measured.span
    if stats.null_count is not None and stats.null_count != span.null_count:
        yield wrong("values_nulls", f"the null count is {stats.null_count}, and there are {span.null_count} nulls")
    present = span.count - span.null_count
    if stats.nan == "none" and span.nan_count:
        yield wrong("values_nan", f"NaN is excluded, and there are {span.nan_count}")
    if stats.nan == "all" and span.nan_count != present:
        yield wrong("values_nan", f"every value is said to be NaN, and {present - span.nan_count} are not")
    try:
        low, high = value_of(column.dtype, stats.min), value_of(column.dtype, stats.max)
    except (ManifestError, ValueError):
        return  # reported of the manifest
    sides = (("min", low, span.low, stats.min_exact), ("max", high, span.high, stats.max_exact))
    for side, bound, value, exact in sides:
        if bound is None:
            continue
        if value is not None and (value < bound if side == "min" else value > bound):
            yield wrong("values_bounds", f"{side} is {bound!r}, and a value is {value!r}")
        elif exact and bound != value:
            yield wrong("values_exact", f"{side} is said to be a value; it is {bound!r}, and the nearest {value!r}")
    if measured.outside is not None:
        yield wrong("values_ranges", f"{measured.outside!r} lies in a gap between the ranges")
    stated, counted = stats.distinct_of_values, measured.distinct
    if stated is None or counted is None:
        return
    if abs(stated - counted) > _DISTINCT_FEW + counted // _DISTINCT_SHARE:
        yield wrong("values_distinct", f"{stated} distinct values are counted, and there are {counted}")
