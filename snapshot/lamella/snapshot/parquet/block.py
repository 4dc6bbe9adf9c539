"""Converts a footer to a schema, and to a block of a table."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lamella.snapshot.errors import CorruptParquet, InvalidSchema, ManifestError, SchemaMismatch
from lamella.snapshot.manifest import Block, ColumnMeta
from lamella.snapshot.parquet.columns import PlannedColumn, plan
from lamella.snapshot.parquet.footer import FileMetadata, Footer
from lamella.snapshot.parquet.schema import collation_problem
from lamella.snapshot.parquet.shredded_stats import shredded_stats
from lamella.snapshot.parquet.statistics_rules import Origin, chunk_stats, null_count
from lamella.snapshot.parquet.writer import legacy_calendar, writer_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats import ColumnStats, merge
from lamella.snapshot.stats.column import absent
from lamella.snapshot.stats.constant import Constants, constant_stats

_MAX_BYTES = 1 << 62


def schema_of(footer: Footer) -> Schema:
    """Returns the file's schema as a table schema, ids assigned depth first.

    Raises:
        InvalidSchema: no columns, names that are duplicates ignoring case, or text with a collation.
    """
    problem = collation_problem(footer.metadata.properties)
    if problem is not None:
        raise InvalidSchema(f"{footer.location}: {problem}")
    try:
        return Schema.assign(footer.metadata.schema.columns)
    except InvalidSchema as error:
        raise InvalidSchema(f"{footer.location}: {error.message}", **error.details) from error


def block_of(footer: Footer, schema: Schema) -> Block:
    """Returns the block of a file in a table of ``schema``, with every column's statistics (known or not).

    Bounds are in the table's types. A column that the file lacks is all null, or has its default. Row groups are
    merged; empty ones change nothing.

    Raises:
        SchemaMismatch: the file's columns do not fit the table's; see :func:`lamella.snapshot.parquet.columns.plan`.
            Also possible nulls in a column that the table requires, and text with a collation.
        CorruptParquet: values in a row group without rows, sizes beyond 64 bits.
    """
    metadata = footer.metadata
    problem = collation_problem(metadata.properties)
    if problem is not None:
        raise SchemaMismatch(f"{footer.location}: {problem}")
    try:
        planned = plan(metadata.schema, schema)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{footer.location}: {error.message}", **error.details) from error
    row_count = sum(group.num_rows for group in metadata.row_groups)
    origin = Origin(writer_of(metadata.created_by), legacy_calendar(metadata.properties))
    stats: dict[int, ColumnStats] = {}
    metas: dict[int, tuple[ColumnMeta, ...]] = {}
    for column in planned.present:
        stats[column.column_id] = _column_stats(footer, column, origin)
        chunks = [group.chunks[column.index] for group in metadata.row_groups]
        if not column.opaque and not any(chunk.encrypted for chunk in chunks):
            metas[column.column_id] = tuple(
                [ColumnMeta(chunk.offset, chunk.compressed_size, chunk.num_values) for chunk in chunks]
            )
    for leaf in planned.absent:
        stats[leaf.id] = absent(leaf, row_count)
    stats.update(shredded_stats(metadata, schema, planned, origin))
    for name, below in planned.may_be_null:
        if not any(_has_no_null(footer, column, stats[column.column_id], origin) for column in below):
            raise _may_have_nulls(footer, name)
    block_size = sum(chunk.uncompressed_size for group in metadata.row_groups for chunk in group.chunks)
    if block_size > _MAX_BYTES:
        raise CorruptParquet(f"{footer.location}: the sum of the sizes exceeds 64 bits")
    bloom_location, bloom_size = _bloom(footer)
    return Block(
        location=footer.location,
        row_count=row_count,
        file_size=footer.stat.size_bytes,
        block_size=block_size,
        col_stats=stats,
        col_metas=metas,
        row_group_row_counts=tuple([group.num_rows for group in metadata.row_groups]),
        bloom_filter_index_location=bloom_location,
        bloom_filter_index_size=bloom_size,
        page_index_location=_page_index(metadata),
        compression=",".join(
            sorted({chunk.codec for group in metadata.row_groups for chunk in group.chunks if chunk.codec})
        ),
        content_id=footer.stat.content_id,
        footer_sha256=footer.sha256,
        created_by=metadata.created_by,
        schema_id=schema.schema_id,
        by_name=planned.by_name,
    )


def optional_in_files(schema: Schema, column_ids: Iterable[int]) -> Schema:
    """Returns the schema for files that may lack some columns, because constants stand in for them."""
    wanted = set(column_ids)
    if not any(column.id in wanted and not column.nullable for column in schema.columns):
        return schema
    columns = tuple(
        msgspec.structs.replace(column, nullable=True) if column.id in wanted else column for column in schema.columns
    )
    return msgspec.structs.replace(schema, columns=columns)


def with_constants(block: Block, constants: Constants, schema: Schema) -> Block:
    """Returns the block with these constants and the statistics that follow from them.

    ``schema``: the one that the block was written with.

    Raises:
        SchemaMismatch: a constant of a column that the file has, that is not a column of the top level with plain
            values, that is of another type, or that is null in a required column.
    """
    stats = dict(block.col_stats)
    for column_id, constant in constants.items():
        leaf = schema.by_id().get(column_id)
        if leaf is None or len(leaf.path) > 1 or leaf.repeated:
            raise SchemaMismatch(f"{block.location}: no plain column has the id {column_id}", column_id=column_id)
        known = block.col_stats.get(column_id)
        if column_id in block.col_metas or (known is not None and known.source not in ("schema", "constant")):
            raise SchemaMismatch(f"{block.location}: the file has a column {leaf.name!r} of its own", column=leaf.name)
        if constant is None and not leaf.nullable and block.row_count:
            raise SchemaMismatch(f"{block.location}: column {leaf.name!r} is required, but null", column=leaf.name)
        try:
            stats[column_id] = constant_stats(leaf.dtype, constant, block.row_count)
        except ManifestError as error:
            raise SchemaMismatch(
                f"{block.location}: column {leaf.name!r}: {error.message}", column=leaf.name
            ) from error
    return msgspec.structs.replace(block, constants=dict(constants), col_stats=stats)


def _column_stats(footer: Footer, column: PlannedColumn, origin: Origin) -> ColumnStats:
    metadata = footer.metadata
    orders = metadata.column_orders
    order = orders[column.index] if len(orders) == len(metadata.schema.leaves) else 0
    parts: list[tuple[int, ColumnStats]] = []
    for group in metadata.row_groups:
        chunk = group.chunks[column.index]
        if group.num_rows:
            parts.append((group.num_rows, chunk_stats(column, chunk, group.num_rows, order, origin)))
        elif chunk.num_values:
            raise CorruptParquet(
                f"{footer.location}: column {column.name!r} has values in a row group without rows", column=column.name
            )
    found = parts[0][1] if len(parts) == 1 else _merged(column, parts)
    if column.must_have_no_null and found.null_count != 0:
        raise _may_have_nulls(footer, column.name)
    return found


def _may_have_nulls(footer: Footer, name: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{footer.location}: column {name!r} is required in the table but may have nulls in the file; append the file's"
        " rows instead (lamella append), which checks each of them",
        column=name,
    )


def _has_no_null(footer: Footer, column: PlannedColumn, stats: ColumnStats, origin: Origin) -> bool:
    """Returns whether a leaf certainly has no null, and neither has anything around it."""
    if not column.repeated:
        return stats.null_count == 0
    # In a list, the footer's null counts also count empty lists.
    chunks = [group.chunks[column.index] for group in footer.metadata.row_groups if group.num_rows]
    return not column.opaque and all(not chunk.encrypted and null_count(column, chunk, origin) == 0 for chunk in chunks)


def _merged(column: PlannedColumn, parts: list[tuple[int, ColumnStats]]) -> ColumnStats:
    return msgspec.structs.replace(merge(column.dtype, parts), source="footer")


def _page_index(metadata: FileMetadata) -> tuple[int, int] | None:
    """Returns the one range of bytes, as (offset, length), that contains every column and offset index of the file."""
    ranges = [
        range_
        for group in metadata.row_groups
        for chunk in group.chunks
        for range_ in (chunk.column_index, chunk.offset_index)
        if range_ is not None
    ]
    if not ranges:
        return None
    start = min(offset for offset, _ in ranges)
    return start, max(offset + length for offset, length in ranges) - start


def _bloom(footer: Footer) -> tuple[str | None, int]:
    """Returns the file itself if its only row group has Bloom filters, and their size as far as the footer gives it."""
    groups = footer.metadata.row_groups
    if len(groups) != 1:
        return None, 0  # a filter per row group covers that row group only
    lengths = [chunk.bloom_filter[1] for chunk in groups[0].chunks if chunk.bloom_filter is not None]
    return (footer.location, sum(lengths)) if lengths else (None, 0)
