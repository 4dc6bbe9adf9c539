"""A block's file: checks that it exists and is unchanged, that statistics agree with its footer and values, and its
rows.

The footer is read again and interpreted by this release's rules. Recorded statistics may be looser, never tighter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.deletes import deleted_rows
from lamella.snapshot.errors import (
    CorruptParquet,
    InvalidRequest,
    LamellaError,
    ManifestError,
    SchemaMismatch,
    StoreError,
)
from lamella.snapshot.function.base import Vector
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.parquet.block import optional_in_files, with_constants
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.file_values import DecodedFile, Unreadable
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.row_filter import vector_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.arrow import absent, conform_leaf, constant_scalars, leaf_type, repeated
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bucket import Bucket, bucket_of, has_bucket
from lamella.snapshot.stats.column import sum_of, sum_text
from lamella.snapshot.stats.constant import constant_values
from lamella.snapshot.stats.measure import Extent, extent
from lamella.snapshot.stats.ranges import problem as range_problem
from lamella.snapshot.storage import Store
from lamella.snapshot.storage.store import ObjectStat
from lamella.snapshot.verify.layers import Problem, value_of


class FileCheck(msgspec.Struct, frozen=True):
    """What was found at a block's location; ``footer`` None: it cannot be used."""

    problems: tuple[Problem, ...]
    footer: Footer | None


def check_file(store: Store, block: Block, schema: Schema | None) -> FileCheck:
    """Check the file of a block; ``schema`` is the one that it was written with (None: unknown)."""
    problems: list[Problem] = []
    footer = _footer(store, block, problems)
    if footer is not None and schema is not None:
        problems += _footer_problems(footer, block, schema)
    problems += _delete_problems(store, block)
    return FileCheck(tuple(problems), footer)


def _delete_problems(store: Store, block: Block) -> Iterator[Problem]:
    try:
        deleted = deleted_rows(store, block.deletes, block.row_count)
    except StoreError as error:
        yield Problem("unreachable", error.message, None, block.location)
    except LamellaError as error:
        yield Problem("deletes_damaged", error.message, None, block.location)
    else:
        if block.deletes and len(deleted) == block.row_count:
            yield Problem("deletes_invalid", "all of its rows are deleted", None, block.location)


def _footer(store: Store, block: Block, problems: list[Problem]) -> Footer | None:
    def wrong(code: str, message: str) -> None:
        problems.append(Problem(code, message, None, block.location))

    try:
        stat = store.stat(block.location)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:  # missing, or at an invalid location
        wrong("block_missing", error.message)
        return None
    if stat.size_bytes != block.file_size:
        wrong("block_size", f"the file has {stat.size_bytes} bytes, not {block.file_size}")
        return None
    try:
        footer = read_footer(store, block.location, stat)
    except StoreError as error:
        wrong("unreachable", error.message)
        return None
    except LamellaError as error:
        wrong("block_replaced" if _is_another(block, stat) else "footer_unreadable", error.message)
        return None
    if block.footer_sha256 is not None and footer.sha256 != block.footer_sha256:
        wrong("block_replaced", f"the SHA-256 of its footer is {footer.sha256}, not {block.footer_sha256}")
        return None
    if _is_another(block, stat):
        wrong("block_touched", f"its content id is {stat.content_id}, not {block.content_id}")
    return footer


def _is_another(block: Block, stat: ObjectStat) -> bool:
    return block.content_id is not None and block.content_id != stat.content_id


def _footer_problems(footer: Footer, block: Block, schema: Schema) -> Iterator[Problem]:
    def wrong(code: str, message: str, column_id: int | None = None) -> Problem:
        return Problem(code, message, column_id, block.location)

    try:
        now = block_of(footer, optional_in_files(schema, block.constants))
        now = with_constants(now, block.constants, schema)
    except SchemaMismatch as error:
        yield wrong("footer_schema", error.message)
        return
    except (CorruptParquet, ManifestError) as error:
        yield wrong("footer_unreadable", error.message)
        return
    if now.row_count != block.row_count:
        yield wrong("footer_rows", f"the footer has {now.row_count} rows, not {block.row_count}")
        return
    own = block.row_group_row_counts
    if own and sum(own) == block.row_count and now.row_group_row_counts != own:
        yield wrong("footer_rows", f"the footer's row groups are {list(now.row_group_row_counts)}")
    for column_id, metas in block.col_metas.items():
        if now.col_metas.get(column_id) != metas:
            yield wrong("footer_places", "the column's chunks are not at the positions in the footer", column_id)
    if block.page_index_location is not None and block.page_index_location != now.page_index_location:
        yield wrong("footer_places", f"the page index is at {now.page_index_location} according to the footer")
    leaves = schema.by_id()
    for column_id, stats in block.col_stats.items():
        leaf, fresh = leaves.get(column_id), now.col_stats.get(column_id)
        if leaf is not None and fresh is not None:
            yield from _column_problems(block, leaf, stats, fresh)


def _column_problems(block: Block, leaf: Leaf, stats: ColumnStats, fresh: ColumnStats) -> Iterator[Problem]:
    def wrong(code: str, message: str) -> Problem:
        return Problem(code, message, leaf.id, block.location)

    if stats.null_count is not None and fresh.null_count is not None and stats.null_count != fresh.null_count:
        yield wrong(
            "footer_nulls", f"the null count is {stats.null_count}, but {fresh.null_count} according to the footer"
        )
    if (stats.source == "schema") != (fresh.source == "schema"):
        if stats.source == "schema":
            yield wrong("footer_bounds", "according to the statistics the file does not have the column, but it does")
        elif stats.source == "footer":
            yield wrong("footer_bounds", "the file does not have the column")
        return
    if stats.source in ("scan", "partition"):
        return  # more precise than a footer; a deep verification checks them against the values
    try:
        recorded, now = _bounds(leaf, stats), _bounds(leaf, fresh)
    except (ManifestError, ValueError):
        return  # reported of the manifest
    unbelieved = []
    for side, mine, other in zip(("min", "max"), recorded, now, strict=True):
        if mine is None:
            continue
        if other is None:
            if not _is_empty(fresh, block.row_count):
                unbelieved.append(side)
        elif mine > other if side == "min" else mine < other:
            yield wrong("footer_bounds", f"{side} is {mine!r}, and {other!r} according to the footer")
    if stats.null_count is not None and fresh.null_count is None:
        unbelieved.append("null_count")
    if unbelieved:
        reason = f": {fresh.reason}" if fresh.reason else ""
        yield wrong(
            "footer_untrusted", f"{', '.join(unbelieved)} would not be used from the footer by this release{reason}"
        )
    elif _excludes_nan(stats, fresh):
        yield wrong("footer_nan", f"nan is {stats.nan!r}, and {fresh.nan!r} according to the footer")


def _bounds(leaf: Leaf, stats: ColumnStats) -> tuple[Any, Any]:
    return value_of(leaf.dtype, stats.min), value_of(leaf.dtype, stats.max)


def _is_empty(stats: ColumnStats, row_count: int) -> bool:
    return not row_count or stats.null_count == row_count or stats.nan == "all"


def _excludes_nan(stats: ColumnStats, fresh: ColumnStats) -> bool:
    if stats.nan == "none":
        return fresh.nan != "none"
    return stats.nan == "all" and fresh.nan != "all"


#: Distinct values are counted in columns of up to this many rows.
_DISTINCT_ROWS: Final = 1 << 20
#: Hashes are computed for the batches that end within this many rows.
_BUCKET_ROWS: Final = 1 << 16
#: Counts of distinct values may be estimates: a deviation of one part in this many, plus a few, is not a finding.
_DISTINCT_SHARE: Final = 5
_DISTINCT_FEW: Final = 5


class ValuesRead(msgspec.Struct, frozen=True):
    """What was wrong, and how many values were read."""

    problems: tuple[Problem, ...]
    values: int


def check_values(store: Store, footer: Footer, block: Block, schema: Schema) -> ValuesRead:
    """Compare a block's statistics with its values; ``schema`` is the one that it was written with.

    A column that pyarrow cannot decode as its own type, or that has no order, is left out.

    Raises:
        ObjectNotFound, StoreError: as the store.
    """
    try:
        columns = plan(footer.metadata.schema, optional_in_files(schema, block.constants)).present
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
    """Returns whether a column's values can be decoded and have an order."""
    if column.repeated or column.opaque or column.dtype.order is None:
        return False
    return not any(group.chunks[column.index].encrypted for group in footer.metadata.row_groups)


def as_type(array: pa.Array, dtype: DataType, name: str) -> pa.Array:
    """Converts decoded values to the table's type; raises Unreadable if they are not such values."""
    if dtype.order == "bytes" or dtype.is_float:
        return array
    try:
        return conform_leaf(array, dtype, name)
    except SchemaMismatch as error:
        raise Unreadable(error.message) from error


class _Measured(msgspec.Struct):
    span: Extent
    outside: Any = None  # a value in a gap
    of_other_bucket: Any = None  # a value that is not in the bucket
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
        if stats.bucket is not None and found.of_other_bucket is None and found.span.count <= _BUCKET_ROWS:
            found.of_other_bucket = _in_other_bucket(vector_of(array, column.dtype), column.dtype, stats.bucket)
        if stats.distinct_of_values is not None and found.span.count <= _DISTINCT_ROWS:
            seen.append(pc.unique(array.drop_null()))
    if stats.distinct_of_values is not None and found.span.count <= _DISTINCT_ROWS:
        found.distinct = len(pc.unique(pa.chunked_array(seen))) if seen else 0
    return found


def _in_other_bucket(vector: Vector, dtype: DataType, bucket: Bucket) -> Any:
    """Returns a value that is not in the bucket, None if there is none, or the type has no buckets."""
    if not has_bucket(dtype):
        return None  # reported of the manifest
    values = vector.values.take(np.flatnonzero(vector.valid)) if vector.is_bytes else vector.values[vector.valid]
    for value in values.to_pylist() if vector.is_bytes else values.tolist():
        if bucket_of(dtype, value, bucket[0]) != bucket[1]:
            return value
    return None


def _edges(dtype: DataType, stats: ColumnStats) -> Any:
    """Returns the edges of the ranges, None if they are missing or invalid, which is reported of the manifest."""
    try:
        low, high = value_of(dtype, stats.min), value_of(dtype, stats.max)
        if not stats.ranges or range_problem(dtype, stats.ranges, low, high) is not None:
            return None
        return [value_of(dtype, bound) for bound in stats.ranges]
    except (ManifestError, ValueError):
        return None


def _in_a_gap(vector: Any, edges: Sequence[Any]) -> Any:
    """Returns a value that no range contains, None if there is none."""
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
        yield wrong("values_nulls", f"the null count is {stats.null_count}, but there are {span.null_count} nulls")
    try:
        total = sum_of(column.dtype, stats)
    except ManifestError:
        total = None  # reported of the manifest
    if total is not None and span.total is not None and total != span.total:
        yield wrong(
            "values_sum", f"the sum is {stats.sum}, but that of the values {sum_text(column.dtype, span.total)}"
        )
    present = span.count - span.null_count
    if stats.nan == "none" and span.nan_count:
        yield wrong("values_nan", f"NaN is excluded, but there are {span.nan_count}")
    if stats.nan == "all" and span.nan_count != present:
        yield wrong("values_nan", f"every value is marked as NaN, but {present - span.nan_count} are not")
    try:
        low, high = value_of(column.dtype, stats.min), value_of(column.dtype, stats.max)
    except (ManifestError, ValueError):
        return  # reported of the manifest
    sides = (("min", low, span.low, stats.min_exact), ("max", high, span.high, stats.max_exact))
    for side, bound, value, exact in sides:
        if bound is None:
            continue
        if value is not None and (value < bound if side == "min" else value > bound):
            yield wrong("values_bounds", f"{side} is {bound!r}, but a value is {value!r}")
        elif exact and bound != value:
            yield wrong(
                "values_exact", f"{side} is marked as exact; it is {bound!r}, but the nearest value is {value!r}"
            )
    if measured.outside is not None:
        yield wrong("values_ranges", f"{measured.outside!r} is in a gap between the ranges")
    if measured.of_other_bucket is not None and stats.bucket is not None:
        count, number = stats.bucket
        yield wrong("values_bucket", f"{measured.of_other_bucket!r} is not in bucket {number} of {count}")
    stated, counted = stats.distinct_of_values, measured.distinct
    if stated is None or counted is None:
        return
    if abs(stated - counted) > _DISTINCT_FEW + counted // _DISTINCT_SHARE:
        yield wrong("values_distinct", f"{stated} distinct values are recorded, but there are {counted}")


#: Maximum number of rows of a block, its first ones, and of its columns that are examined.
ROWS: Final = 1 << 20
COLUMNS: Final = 8

_CALENDAR: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


class Rows(msgspec.Struct, frozen=True):
    """Columns by id, in the current schema's types, ``count`` rows each; ``leaves``: which columns these are."""

    leaves: tuple[Leaf, ...]
    columns: dict[int, Any]
    count: int


def read_rows(store: Store, footer: Footer, block: Block, written: Schema, current: Schema, rng: Random) -> Rows:
    """Reads rows of a block that was written with one schema, in terms of another; the columns are sampled.

    Raises:
        CorruptParquet: damaged pages. SchemaMismatch: the file does not fit the schema.
        ObjectNotFound, StoreError: as the store.
    """
    in_file = plan(footer.metadata.schema, optional_in_files(written, block.constants)).present
    planned = {column.column_id: column for column in in_file}
    constants = constant_scalars(constant_values(block.constants, written), written)
    usable = [leaf for leaf in current.leaves() if _is_usable(footer, leaf, planned.get(leaf.id))]
    chosen = rng.sample(usable, min(COLUMNS, len(usable)))
    total = sum(group.num_rows for group in footer.metadata.row_groups)
    count = min(total, ROWS)
    columns: dict[int, Any] = {}
    try:
        file = DecodedFile(store, footer)
    except Unreadable:
        return Rows((), {}, count)
    try:
        for leaf in chosen:
            try:
                if leaf.id in constants:
                    columns[leaf.id] = repeated(constants[leaf.id], count, leaf_type(leaf.dtype, leaf.name))
                else:
                    columns[leaf.id] = _column(file, current, leaf, planned.get(leaf.id), count)
            except (Unreadable, SchemaMismatch, InvalidRequest):
                continue  # not readable in Python
    finally:
        file.close()
    return Rows(tuple(leaf for leaf in chosen if leaf.id in columns), columns, count)


def _is_usable(footer: Footer, leaf: Leaf, column: PlannedColumn | None) -> bool:
    if leaf.repeated or leaf.dtype.order is None:
        return False
    if leaf.dtype.name in _CALENDAR and legacy_calendar(footer.metadata.properties):
        return False
    return column is None or is_readable(footer, column)


def _column(file: DecodedFile, current: Schema, leaf: Leaf, column: PlannedColumn | None, count: int) -> Any:
    if column is None:
        top = next((each for each in current.columns if each.id == leaf.id), None)
        return pa.nulls(count, leaf_type(leaf.dtype, leaf.name)) if top is None else absent(top, count)
    parts: list[Any] = []
    rows = 0
    for array in file.values(column.index):
        part = array if leaf.dtype.order == "bytes" else conform_leaf(array, leaf.dtype, leaf.name)
        parts.append(part[: count - rows])
        rows += len(parts[-1])
        if rows == count:
            break
    if rows != count:
        raise CorruptParquet(f"column {leaf.name!r} has {rows} rows where {count} were expected", column=leaf.name)
    return pa.chunked_array(parts) if parts else pa.nulls(0, leaf_type(leaf.dtype, leaf.name))
