"""Rows of a block as a reader of the current schema sees them: some columns, as far as a filter can decide them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.snapshot.errors import CorruptParquet, InvalidRequest, SchemaMismatch
from lamella.snapshot.layout import Store
from lamella.snapshot.parquet.decoded import DecodedFile, Unreadable
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.parquet.plan import PlannedColumn, plan
from lamella.snapshot.parquet.writer import legacy_calendar
from lamella.snapshot.rows.arrow_types import leaf_type
from lamella.snapshot.rows.conform import absent, conform_leaf
from lamella.snapshot.schema import Leaf, Schema
from lamella.snapshot.verify.values import is_readable

#: So many rows of a block, its first ones, and so many of its columns are looked at.
ROWS: Final = 1 << 20
COLUMNS: Final = 8

_CALENDAR: Final = frozenset({"date", "timestamp", "timestamp_ntz"})


class Rows(msgspec.Struct, frozen=True):
    """Columns by id, in the current schema's types, ``count`` rows each; ``leaves`` says which."""

    leaves: tuple[Leaf, ...]
    columns: dict[int, Any]
    count: int


def read_rows(store: Store, footer: Footer, written: Schema, current: Schema, rng: Random) -> Rows:
    """Rows of a file that was written with one schema, as of another; the columns are drawn.

    Raises:
        CorruptParquet: damaged pages. SchemaMismatch: the file does not fit the schema.
        ObjectNotFound, StoreError: as the store says.
    """
    planned = {column.column_id: column for column in plan(footer.metadata.schema, written).present}
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
                columns[leaf.id] = _column(file, current, leaf, planned.get(leaf.id), count)
            except (Unreadable, SchemaMismatch, InvalidRequest):
                continue  # not a column that a reader in Python can have
    finally:
        file.close()
    return Rows(tuple(leaf for leaf in chosen if leaf.id in columns), columns, count)


def read_leaves(store: Store, footer: Footer, written: Schema, current: Schema, leaves: Sequence[Leaf]) -> Rows | None:
    """All rows of some columns; None when one of them cannot be had. Raises as :func:`read_rows`."""
    planned = {column.column_id: column for column in plan(footer.metadata.schema, written).present}
    if not all(_is_usable(footer, leaf, planned.get(leaf.id)) for leaf in leaves):
        return None
    count = sum(group.num_rows for group in footer.metadata.row_groups)
    try:
        file = DecodedFile(store, footer)
    except Unreadable:
        return None
    try:
        columns = {leaf.id: _column(file, current, leaf, planned.get(leaf.id), count) for leaf in leaves}
    except (Unreadable, SchemaMismatch, InvalidRequest):
        return None
    finally:
        file.close()
    return Rows(tuple(leaves), columns, count)


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
