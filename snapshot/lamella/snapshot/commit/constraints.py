"""Whether a table can have a constraint: what its columns allow, and what its statistics prove of rows that exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lamella.snapshot.errors import InvalidSchema, NotProven, UnknownColumn
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.row_checks import check_filter
from lamella.snapshot.schema import Check, Column, Leaf, Schema
from lamella.snapshot.schema.evolution import AddCheck, evolve
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


def require_checks(before: Schema, schema: Schema) -> None:
    """Raise an error unless all constraints of ``schema`` can be checked, and are about the same columns as in
    ``before`` if that had them.

    Raises:
        InvalidSchema: a column of a constraint is dropped, renamed, or gets another type.
        InvalidFilter, UnknownColumn, FilterTypeMismatch, FilterNotEvaluable, InvalidRequest, LimitExceeded: the
            condition of a new constraint.
    """
    for check in schema.checks:
        if check not in before.checks:
            check_filter(check, schema)
            continue
        used = _columns_of(check, before)
        now = schema.by_id()
        for leaf in used:
            current = now.get(leaf.id)
            if current is None or (current.path, current.dtype) != (leaf.path, leaf.dtype):
                raise InvalidSchema(
                    f"column {leaf.name!r} is used by the constraint {check.name!r}: drop the constraint first",
                    column=leaf.name,
                    constraint=check.name,
                )
        try:
            is_same = [leaf.id for leaf in _columns_of(check, schema)] == [leaf.id for leaf in used]
        except UnknownColumn:
            is_same = False
        if not is_same:
            raise InvalidSchema(
                f"the condition of the constraint {check.name!r} would mean other columns: drop the constraint first",
                constraint=check.name,
            )


def _columns_of(check: Check, schema: Schema) -> tuple[Leaf, ...]:
    return check_filter(check, schema).columns


def added_check(check: Check) -> AddCheck:
    """Returns the change that adds a constraint."""
    return AddCheck(name=check.name, condition=check.condition, time_zone=check.time_zone)


def with_checks(schema: Schema, checks: Sequence[Check]) -> Schema:
    """Returns the schema of a new table with constraints; raises InvalidSchema for names that occur twice, and as
    :func:`require_checks`."""
    if not checks:
        return schema
    made = msgspec.structs.replace(evolve(schema, [added_check(each) for each in checks]), schema_id=schema.schema_id)
    require_checks(schema, made)
    return made
