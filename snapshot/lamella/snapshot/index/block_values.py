"""What a term is in the rows of a block, as the table's readers see it: read from the block's file, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lamella.snapshot.errors import CorruptParquet
from lamella.snapshot.expression.bound import BoundTerm, leaves_in
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.layout import Store
from lamella.snapshot.layout.store import ObjectStat
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet.decoded import DecodedFile, Unreadable
from lamella.snapshot.parquet.footer import Footer, read_footer
from lamella.snapshot.parquet.plan import PlannedColumn, plan
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.rows.conform import absent, conform_leaf
from lamella.snapshot.rows.term import RowTerms
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.schema.evolution import Versioned, schema_at


class ExpressionFails(Exception):
    """The expression has no value in some row."""


def term_values(store: Store, table: Versioned, term: BoundTerm, block: Block, footer: Footer) -> Iterator[Vector]:
    """The values of a term in all rows of a block, some rows at a time, in order; ``footer``: :func:`own_footer`.

    Raises:
        Unreadable, ExpressionFails, CorruptParquet, SchemaMismatch, ObjectNotFound, StoreError: they cannot be had.
    """
    columns = _columns(table, block, footer)
    try:
        file = DecodedFile(store, footer)
    except Unreadable as error:
        raise Unreadable(f"the file cannot be decoded: {error}") from error
    try:
        yield from _batches(file, footer, table.history[-1], columns, leaves_in(term), term)
    finally:
        file.close()


def place_in_file(table: Versioned, leaf: Leaf, block: Block, footer: Footer) -> int | None:
    """Where a column stands in the schema of a block's file, if its values are there just as they are read.

    None also where the block's statistics come from the values, since its footer was not to be believed.
    """
    column = _columns(table, block, footer).get(leaf.id)
    known = block.col_stats.get(leaf.id)
    if column is None or (known is not None and known.source == "scan"):
        return None
    try:
        _require_plain(footer, column)
    except Unreadable:
        return None
    return column.index


def _columns(table: Versioned, block: Block, footer: Footer) -> Mapping[int, PlannedColumn]:
    written = schema_at(table, block.written_with)
    return {column.column_id: column for column in plan(footer.metadata.schema, written).present}


def _batches(
    file: DecodedFile,
    footer: Footer,
    schema: Schema,
    columns: Mapping[int, PlannedColumn],
    leaves: Sequence[Leaf],
    term: BoundTerm,
) -> Iterator[Vector]:
    there = [leaf for leaf in leaves if leaf.id in columns]
    lacking = [leaf for leaf in leaves if leaf.id not in columns]
    if not there:
        raise Unreadable("the file has none of the columns")
    for leaf in there:
        _require_plain(footer, columns[leaf.id])
    for arrays in zip(*(file.values(columns[leaf.id].index) for leaf in there), strict=True):
        count = len(arrays[0])
        if any(len(array) != count for array in arrays):
            raise CorruptParquet(f"{footer.location}: the columns of a row group have different numbers of rows")
        values: dict[int, Any] = {
            leaf.id: conform_leaf(_as_leaf(array, leaf), leaf.dtype, leaf.name)
            for leaf, array in zip(there, arrays, strict=True)
        }
        for leaf in lacking:
            column = next((each for each in schema.columns if each.id == leaf.id), None)
            values[leaf.id] = pa.nulls(count) if column is None else absent(column, count)
        vector = RowTerms(values, count).vector(term)
        if vector.failed is not None and vector.failed.any():
            raise ExpressionFails(f"the expression fails in a row: {vector.reason}")
        yield Vector(vector.values, np.asarray(vector.valid))


def _as_leaf(array: Any, leaf: Leaf) -> Any:
    """Text comes out of a file as bytes; raises Unreadable when these are none."""
    if not leaf.dtype.is_text or not pa.types.is_large_binary(array.type):
        return array
    try:
        return array.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise Unreadable(f"{leaf.name} has text that is not UTF-8") from error


def _require_plain(footer: Footer, column: PlannedColumn) -> None:
    if column.repeated or column.opaque:
        raise Unreadable(f"{column.name} is not a column of single values")
    if any(group.chunks[column.index].encrypted for group in footer.metadata.row_groups):
        raise Unreadable(f"{column.name} is encrypted")
    if column.gregorian_from is not None and legacy_calendar(footer.metadata.properties):
        raise Unreadable(f"{column.name} may have days of the old calendar")


def own_footer(store: Store, block: Block) -> Footer:
    """The footer of a block's file, which is still the one that was registered.

    Raises:
        CorruptParquet: it is another one by now. NotParquet, ObjectNotFound, StoreError: as reading does.
    """
    stat = ObjectStat(location=block.location, size_bytes=block.file_size, content_id=block.content_id or "")
    now = store.stat(block.location)
    replaced = block.content_id is not None and now.content_id != block.content_id
    if now.size_bytes != block.file_size or replaced:
        raise CorruptParquet(f"{block.location} is another file by now")
    footer = read_footer(store, block.location, stat)
    if block.footer_sha256 is not None and footer.sha256 != block.footer_sha256:
        raise CorruptParquet(f"{block.location} is another file by now")
    return footer
