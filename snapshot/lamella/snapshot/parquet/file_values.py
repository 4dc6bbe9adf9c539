"""Decodes the values of a file batch by batch, and computes statistics from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from lamella.snapshot.errors import CorruptParquet, SchemaMismatch
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.footer import Footer, StoreFile
from lamella.snapshot.parquet.schema import INT96, FileLeaf
from lamella.snapshot.parquet.statistics_rules import lower_bound, upper_bound
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.schema.types import factor, widens
from lamella.snapshot.sketch import Sketch, estimate, family_of
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.stats import ColumnStats, to_bound, unknown
from lamella.snapshot.stats.bound import Value
from lamella.snapshot.stats.column import has_sum, sum_text
from lamella.snapshot.stats.measure import Extent, extent
from lamella.snapshot.stats.ranges import RangeFinder, has_ranges
from lamella.snapshot.storage.store import Store

# The values of one leaf of a file, batch by batch, in the Arrow type of the file's own type.
#
# pyarrow decodes by the Arrow schema that a writer may have stored in the file; here only Parquet's own schema counts.

#: Rows per decoded batch.
BATCH_ROWS: Final = 1 << 16


class Unreadable(Exception):
    """pyarrow cannot return the values of a leaf in their own type; the message states why."""


class DecodedFile:
    """A file whose leaves can be decoded. Must be closed."""

    def __init__(self, store: Store, footer: Footer, *, int96_unit: str = "us") -> None:
        """Open a file whose footer has been read.

        Raises:
            Unreadable: pyarrow does not support the file.
            CorruptParquet: it reads another footer.
        """
        self._footer = footer
        try:
            self._file = ParquetFile(
                StoreFile(store, footer.stat),
                coerce_int96_timestamp_unit=int96_unit,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
        except pa.ArrowNotImplementedError as error:
            raise Unreadable(str(error)) from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptParquet(f"{footer.location}: {error}") from error
        found = self._file.metadata
        if found.num_columns != len(footer.metadata.schema.leaves) or found.num_row_groups != len(
            footer.metadata.row_groups
        ):
            raise CorruptParquet(f"{footer.location}: two readers of the footer disagree")

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)

    def values(self, index: int) -> Iterator[pa.Array]:
        """Yields the values of a leaf that is not below a list or map, all rows of all row groups in order.

        Raises:
            Unreadable: the values cannot be decoded, or not in their own type.
            CorruptParquet: damaged pages, or another number of rows than in the footer.
        """
        leaf = self._footer.metadata.schema.leaves[index]
        for array in self._decoded(index, leaf):
            yield in_file_type(leaf, array)

    def nanoseconds(self, index: int) -> Iterator[pa.Array]:
        """Yields the values of an INT96 leaf of a file that was opened with that unit; distant ones have wrapped
        around.

        Raises as :meth:`values`.
        """
        for array in self._decoded(index, self._footer.metadata.schema.leaves[index]):
            if array.type != pa.timestamp("ns"):
                raise Unreadable(f"INT96 is decoded as {array.type}")
            yield array

    def _decoded(self, index: int, leaf: FileLeaf) -> Iterator[pa.Array]:
        for group, facts in enumerate(self._footer.metadata.row_groups):
            if not facts.num_rows:
                continue
            rows = 0
            for batch in self._batches(group, index, leaf):
                array = batch.column(0)
                while pa.types.is_struct(array.type):
                    array = pc.struct_field(array, [0])  # null where the struct is
                rows += len(array)
                yield array
            if rows != facts.num_rows:
                raise CorruptParquet(
                    f"{self._footer.location}: column {leaf.name!r} has {rows} rows in row group {group}, "
                    f"but the footer says {facts.num_rows}",
                    column=leaf.name,
                )

    def _batches(self, group: int, index: int, leaf: FileLeaf) -> Iterator[Any]:
        # The reader below ParquetFile takes a leaf's index; by name, "a.b" may be two different leaves.
        batches = self._file.reader.iter_batches(
            BATCH_ROWS, row_groups=[group], column_indices=[index], use_threads=False
        )
        try:
            yield from batches
        except pa.ArrowNotImplementedError as error:
            raise Unreadable(str(error)) from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptParquet(
                f"{self._footer.location}: column {leaf.name!r} cannot be read: {error}", column=leaf.name
            ) from error


def in_file_type(leaf: FileLeaf, array: pa.Array) -> pa.Array:
    """Converts values decoded by pyarrow to the Arrow type of the leaf's own type; raises Unreadable."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = leaf.dtype
    if dtype.order is None:
        return array
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        unit = "us" if leaf.physical == INT96 else dtype.unit
        if getattr(array.type, "unit", None) != unit or pa.types.is_duration(array.type):
            raise Unreadable(f"{dtype} is decoded as {array.type}")
        return array
    try:
        return array.cast(arrow_type(dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unreadable(f"{dtype} is decoded as {array.type}: {error}") from error


def arrow_type(dtype: DataType) -> pa.DataType:
    """Returns the Arrow type in which values of a type with order, except times, are measured."""
    if dtype.name == "boolean":
        return pa.bool_()
    if dtype.is_integer:
        return getattr(pa, dtype.name)()
    if dtype.is_float:
        return pa.float64() if dtype.bits == 64 else pa.float32()
    if dtype.name == "date":
        return pa.date32()
    if dtype.name == "decimal":
        return pa.decimal128(dtype.precision, dtype.scale)
    return pa.large_binary()


# Statistics from a file's values instead of its footer, which can be trusted whoever wrote the file.
#
# Every value is decoded, column by column and batch by batch. What pyarrow cannot decode in its own type stays unknown.
# A file whose pages contradict its footer is refused. The file's own page index and Bloom filters come from the same
# writer as its footer; a verified block does not refer to them.

#: Nanoseconds that fit 64 bits, as microseconds, with a margin.
_NANOS_FIT = (1 << 63) // 1000 - 1


def verified(store: Store, footer: Footer, schema: Schema, block: Block) -> Block:
    """Returns ``block`` (made of ``footer`` by ``block_of``) with the statistics of the file's values.

    Raises:
        CorruptParquet: pages that cannot be decoded, or that have another number of rows than the footer.
        SchemaMismatch: nulls in a column that the table requires.
        ObjectNotFound, StoreError: as the store.
    """
    present = plan(footer.metadata.schema, schema).present
    return _without_the_writers_indexes(_with_values(store, footer, present, _without_shredded(block, schema)))


def _without_shredded(block: Block, schema: Schema) -> Block:
    """Returns a block without what its footer says about shredded fields, whose values are not read."""
    fields = {leaf.id for leaf in schema.shredded_leaves()}
    stats = {
        column_id: each
        for column_id, each in block.col_stats.items()
        if column_id not in fields or each.source != "footer"
    }
    return msgspec.structs.replace(block, col_stats=stats)


def with_scanned_columns(
    store: Store, footer: Footer, schema: Schema, block: Block, column_ids: Collection[int]
) -> Block:
    """Returns ``block`` with the statistics of the values of these columns, as far as the file has them; raises as
    :func:`verified`."""
    columns = [column for column in plan(footer.metadata.schema, schema).present if column.column_id in column_ids]
    return _with_values(store, footer, columns, block)


def _with_values(store: Store, footer: Footer, columns: Sequence[PlannedColumn], block: Block) -> Block:
    stats = dict(block.col_stats)
    sketches = dict(block.sketches)
    try:
        file = DecodedFile(store, footer)
    except Unreadable as error:
        stats |= {column.column_id: _not_known(column, str(error)) for column in columns}
        return msgspec.structs.replace(block, col_stats=stats)
    try:
        for column in columns:
            known = stats.get(column.column_id) or unknown(column.dtype, "not recorded")
            found, sketch = _scanned(store, footer, file, column, known)
            stats[column.column_id] = found
            if sketch is not None:
                sketches[column.column_id] = sketch
    finally:
        file.close()
    return msgspec.structs.replace(block, col_stats=stats, sketches=sketches)


def _without_the_writers_indexes(block: Block) -> Block:
    return msgspec.structs.replace(
        block,
        page_index_location=None,
        bloom_filter_index_location=None,
        bloom_filter_index_size=0,
    )


def _scanned(
    store: Store, footer: Footer, file: DecodedFile, column: PlannedColumn, of_footer: ColumnStats
) -> tuple[ColumnStats, Sketch | None]:
    leaf = footer.metadata.schema.leaves[column.index]
    if column.repeated or column.opaque or _is_encrypted(footer, column.index):
        return _not_known(column, of_footer.reason or "not a column of single values"), None
    span = Extent()
    # Sketched values must hash as in the table's other files: not if values are converted to its type.
    same = family_of(leaf.dtype) == family_of(column.dtype) and column.convert is None
    sketcher = Sketcher(leaf.dtype) if same and family_of(leaf.dtype) is not None else None
    finder = RangeFinder(leaf.dtype) if has_ranges(leaf.dtype) and column.convert is None else None
    try:
        for values in file.values(column.index):
            span = span.joined(extent(leaf.dtype, values))
            if finder is not None and len(values) > values.null_count:
                finder.add(values)
            if sketcher is not None:
                sketcher.add(values)
        finer = leaf.physical == INT96 and _may_have_finer_digits(store, footer, column.index, span)
    except Unreadable as error:
        return _not_known(column, str(error)), None
    if column.must_have_no_null and span.null_count:
        raise SchemaMismatch(
            f"{footer.location}: column {column.name!r} is required in the table but has nulls in the file",
            column=column.name,
        )
    stats = _stats(column, leaf.dtype, span, of_footer.in_memory_size, footer, finer)
    if finder is not None and stats.min_exact and stats.max_exact:
        stats = msgspec.structs.replace(stats, ranges=finder.ranges(column.dtype))
    sketch = sketcher.sketch() if sketcher is not None else None
    if sketch is None:
        return stats, None
    return msgspec.structs.replace(stats, distinct_of_values=estimate(sketch)), sketch


def _is_encrypted(footer: Footer, index: int) -> bool:
    return any(group.chunks[index].encrypted for group in footer.metadata.row_groups)


def _not_known(column: PlannedColumn, reason: str) -> ColumnStats:
    return msgspec.structs.replace(unknown(column.dtype, reason), source="scan")


def _stats(
    column: PlannedColumn, dtype: DataType, span: Extent, size: int | None, footer: Footer, finer: bool
) -> ColumnStats:
    reason = None
    low, high = span.low, span.high
    if dtype.order in ("int", "uint", "decimal") and low is not None and high is not None:
        lowest, highest = dtype.int_range
        if low < lowest or high > highest:  # type: ignore[operator]  # integers
            low = high = None
            reason = "a value is outside the column's type"
    limits = column.gregorian_from
    if limits is not None and legacy_calendar(footer.metadata.properties):  # dates of the old calendar mean other days
        low, high, reason = _gregorian(low, high, limits)
    if finer and high is not None:
        high = int(high) + 1
    lower, low_exact = lower_bound(column, low, exact=not finer)
    upper, high_exact = upper_bound(column, high, exact=not finer)
    if span.low is not None and (lower is None or upper is None):
        reason = reason or "a bound is outside the table's type"
    return ColumnStats(
        min=None if lower is None else to_bound(column.dtype, lower),
        max=None if upper is None else to_bound(column.dtype, upper),
        null_count=span.null_count,
        nan=span.nan,
        min_exact=low_exact,
        max_exact=high_exact,
        in_memory_size=size,
        sum=_sum(column, dtype, span) if reason is None else None,
        source="scan",
        reason=reason,
    )


def _sum(column: PlannedColumn, dtype: DataType, span: Extent) -> str | None:
    """Returns the sum in the column's type, of values in the file's."""
    if span.total is None or not (has_sum(dtype) and has_sum(column.dtype) and widens(dtype, column.dtype)):
        return None
    return sum_text(column.dtype, span.total * factor(dtype, column.dtype))


def _gregorian(
    low: Value | None, high: Value | None, limits: tuple[int, int]
) -> tuple[Value | None, Value | None, str | None]:
    """Returns the bounds that mean the same in the old calendar."""
    new_low = None if low is not None and low < limits[0] else low  # type: ignore[operator]  # integers
    new_high = None if high is not None and high < limits[1] else high  # type: ignore[operator]  # integers
    changed = new_low != low or new_high != high
    return new_low, new_high, "dates or times of the Julian calendar" if changed else None


def _may_have_finer_digits(store: Store, footer: Footer, index: int, span: Extent) -> bool:
    """Returns whether INT96 timestamps may have digits below the microsecond, which were rounded down."""
    if span.low is None or span.high is None:
        return False
    if not -_NANOS_FIT < span.low < _NANOS_FIT or not -_NANOS_FIT < span.high < _NANOS_FIT:  # type: ignore[operator]
        return True
    try:
        file = DecodedFile(store, footer, int96_unit="ns")
    except Unreadable as error:
        raise CorruptParquet(f"{footer.location}: {error}") from error
    try:
        return any(_has_remainder(values) for values in file.nanoseconds(index))
    finally:
        file.close()


def _has_remainder(values: pa.Array) -> bool:
    nanos = values.cast(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
    return bool(np.any(nanos % 1000))
