"""What a table's statistics prove about constraints of rows that exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lamella.snapshot.errors import NotProven
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats


def require_no_nulls(base: Snapshot, schema: Schema) -> None:
    """Raise NotProven unless every column that becomes required with ``schema`` has a value in all rows of ``base``.

    Null counts include deleted rows, so a column of which only deleted rows are null is not proven.
    """
    if not base.summary.row_count:
        return
    before = {column.id: column for column, _, _ in _columns(base.schema.columns, ())}
    for column, path, repeated in _columns(schema.columns, ()):
        if column.nullable:
            continue
        known = before.get(column.id)
        if known is None:
            is_proven = column.default is not None
        else:
            is_proven = not known.nullable or (not repeated and _has_no_null(known, base.summary.col_stats))
        if not is_proven:
            name = ".".join(path)
            reason = _reason(base, column, repeated=repeated)
            raise NotProven(f"column {name!r} cannot become required: {reason}", column=name)


def _columns(
    columns: Iterable[Column], above: tuple[str, ...], *, repeated: bool = False
) -> Iterator[tuple[Column, tuple[str, ...], bool]]:
    """Yields every column with its path, and whether it is in a list or map."""
    for column in columns:
        here = (*above, column.name)
        yield column, here, repeated
        yield from _columns(column.fields, here, repeated=repeated or column.dtype.name in ("list", "map"))


def _has_no_null(column: Column, stats: Mapping[int, ColumnStats]) -> bool:
    """Returns whether no row has a null in the column, or in a struct around it.

    A field has a null wherever the struct around it is null, so one field without nulls proves it for the struct.
    Nothing is known about lists and maps.
    """
    if column.dtype.name == "struct":
        return any(_has_no_null(field, stats) for field in column.fields)
    if column.dtype.is_nested:
        return False
    found = stats.get(column.id)
    return found is not None and found.null_count == 0


def _reason(base: Snapshot, column: Column, *, repeated: bool) -> str:
    found = base.summary.col_stats.get(column.id)
    if column.dtype.is_nested or repeated:
        return (
            "no statistics prove that it has no nulls; create a table in which it is required, and write the rows there"
        )
    if found is None or found.null_count is None:
        return (
            "the number of nulls is not known for every block; compact or recluster the table, which counts them, and"
            " try again"
        )
    return (
        f"the files have {found.null_count} nulls in it. Update or delete these rows, then purge the table"
        " (min_deleted_share 0.001): deleted rows count until they are out of the files"
    )
