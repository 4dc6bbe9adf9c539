"""Statistics of the shredded fields of variants, from a file's footer.

A field at a path is in two leaves of a file: ``typed_value`` has its values of one type, ``value`` all others, encoded
as variants. What the statistics of the first say holds for all rows if the second is always null, or has only variant
nulls: ``variant_get`` returns null for these, as for rows that lack the field. Parquet's VariantShredding requires that
an object is always in the columns of its shredded fields, so rows in which these columns are null have no such field.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.parquet.columns import Plan, PlannedColumn, planned_column
from lamella.snapshot.parquet.footer import FileMetadata
from lamella.snapshot.parquet.schema import FileLeaf
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats
from lamella.snapshot.schema import DataType, Leaf, Schema, parse_type, widens
from lamella.snapshot.stats import ColumnStats, from_bound, merge
from lamella.snapshot.stats.column import absent
from lamella.snapshot.variant.encoding import NULL
from lamella.snapshot.variant.paths import variant_steps

_BINARY = parse_type("binary")


def shredded_stats(
    metadata: FileMetadata, schema: Schema, plan: Plan, origin: Origin
) -> Iterator[tuple[int, ColumnStats]]:
    """Yields the id of each shredded field of a table, and its statistics in a file; a field of which nothing is known
    is left out."""
    fields = schema.shredded_leaves()
    if not fields:
        return
    variants = {leaf.path: leaf.id for leaf in schema.leaves() if leaf.dtype.name == "variant"}
    present = {column.column_id: metadata.schema.leaves[column.index] for column in plan.present}
    indexes = {leaf.file_path: index for index, leaf in enumerate(metadata.schema.leaves)}
    missing = {leaf.id for leaf in plan.absent}
    row_count = sum(group.num_rows for group in metadata.row_groups)
    for field in fields:
        column_id = variants[field.path[:-1]]
        if column_id in missing:
            yield field.id, absent(field, row_count)
        elif column_id in present and not field.repeated:
            found = _stats(metadata, field, present[column_id], indexes, origin)
            if found is not None:
                yield field.id, found


def _stats(
    metadata: FileMetadata, field: Leaf, variant: FileLeaf, indexes: dict[tuple[bytes, ...], int], origin: Origin
) -> ColumnStats | None:
    """Returns the statistics of a field; None: they are unknown."""
    group = variant.file_path[:-1]
    for step in variant_steps(field.path[-1]) or ():
        group = (*group, b"typed_value", str(step).encode("utf-8"))
    typed_at, rest_at = indexes.get((*group, b"typed_value")), indexes.get((*group, b"value"))
    if typed_at is None or not variant.opaque or variant.dtype.name != "variant":
        return None
    try:
        typed = _column(metadata, typed_at, field, field.dtype)
        rest = None if rest_at is None else _column(metadata, rest_at, field, _BINARY)
    except SchemaMismatch:
        return None  # values of another type
    parts: list[tuple[int, ColumnStats]] = []
    for number, rows in enumerate(each.num_rows for each in metadata.row_groups):
        if not rows:
            continue
        if rest is not None and not _has_only_nulls(_of_chunk(metadata, rest, number, origin), rows):
            return None
        parts.append((rows, _of_chunk(metadata, typed, number, origin)))
    if not parts:
        return None
    return parts[0][1] if len(parts) == 1 else msgspec.structs.replace(merge(field.dtype, parts), source="footer")


def _column(metadata: FileMetadata, index: int, field: Leaf, dtype: DataType) -> PlannedColumn:
    leaf = metadata.schema.leaves[index]
    stored = leaf.stored
    if not widens(stored, dtype) or (stored != dtype and not _is_number(stored)):
        raise SchemaMismatch(f"{field.name!r} is {stored} in the file", column=field.name)
    # A date is no timestamp to variant_get, and nanoseconds are no microseconds: only numbers may be wider.
    plain = msgspec.structs.replace(leaf, path=field.path, dtype=stored, opaque=False)
    return planned_column(index, plain, msgspec.structs.replace(field, dtype=dtype))


def _is_number(dtype: DataType) -> bool:
    return dtype.is_integer or dtype.is_float or dtype.name == "decimal"


def _of_chunk(metadata: FileMetadata, column: PlannedColumn, number: int, origin: Origin) -> ColumnStats:
    group = metadata.row_groups[number]
    orders = metadata.column_orders
    order = orders[column.index] if len(orders) == len(metadata.schema.leaves) else 0
    return chunk_stats(column, group.chunks[column.index], group.num_rows, order, origin)


def _has_only_nulls(stats: ColumnStats, rows: int) -> bool:
    """Returns whether a ``value`` is null in all rows, or a variant null where it is not."""
    if stats.null_count == rows:
        return True
    return stats.max is not None and from_bound(_BINARY, stats.max) <= NULL  # type: ignore[operator]  # bytes
