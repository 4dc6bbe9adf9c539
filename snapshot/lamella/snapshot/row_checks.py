"""Checks rows of Arrow for what a table requires of every row, before they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.counts import counted
from lamella.snapshot.errors import CheckViolation, InvalidFilter, SchemaMismatch
from lamella.snapshot.expression import read_filter
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.schema import Check, Column, Leaf, Schema
from lamella.snapshot.schema.arrow import conform_leaf
from lamella.snapshot.schema.evolution import AddCheck
from lamella.snapshot.schema.text_lengths import check_text, has_text_length
from lamella.snapshot.stats.measure import leaf_values


class RowChecks:
    """What ``schema`` requires of a row. May be shared between threads."""

    def __init__(self, schema: Schema) -> None:
        self._columns = [(at, column) for at, column in enumerate(schema.columns) if _requires(column)]
        self._checks = [(check, check_filter(check, schema)) for check in schema.checks]

    def check(self, rows: pa.Table) -> None:
        """Check rows whose columns are the schema's, in its order and in the corresponding Arrow types.

        Raises:
            SchemaMismatch: a required column has a null, or a required field where the value around it is not null; a
                text does not have the length that its column gives it.
            CheckViolation: a constraint is false for a row, or cannot be computed.
        """
        for at, column in self._columns:
            for values in rows.column(at).chunks:
                _check_values(values, column, column.name, values.null_count)
        for check, decides in self._checks:
            columns = {
                leaf.id: conform_leaf(leaf_values(rows, leaf).combine_chunks(), leaf.dtype, leaf.name)
                for leaf in decides.columns
            }
            truth = decides.decide(columns, rows.num_rows)
            if truth.failed is not None and truth.failed.any():
                raise CheckViolation(
                    f"constraint {check.name!r} CHECK ({check.condition}) cannot be computed for a row: {truth.reason}",
                    constraint=check.name,
                )
            if truth.false.any():
                shown = _shown(columns, decides.columns, int(truth.false.argmax()))
                raise CheckViolation(
                    f"constraint {check.name!r} CHECK ({check.condition}) is false for "
                    f"{counted(int(truth.false.sum()), 'row')}, first where {shown}",
                    constraint=check.name,
                )


def check_filter(check: Check | AddCheck, schema: Schema) -> RowFilter:
    """Returns the condition of a constraint, which decides rows.

    Raises:
        InvalidFilter: it cannot be read (``position`` says where), or depends on the time.
        FilterNotEvaluable: a part of it cannot be decided row by row.
        UnknownColumn, FilterTypeMismatch, InvalidRequest, LimitExceeded: as for a filter.
    """
    read = [read_filter(check.condition, time_zone=check.time_zone, now_us=now_us) for now_us in (0, _OTHER_TIME_US)]
    if read[0] != read[1]:
        raise InvalidFilter(f"the condition of constraint {check.name!r} depends on the current time")
    return RowFilter(read[0], schema, time_zone=check.time_zone)


def violation(check: Check | AddCheck) -> str:
    """Returns the filter, as SQL, of the rows for which a constraint is false."""
    return f"NOT ({check.condition}\n)"  # the condition may end with a comment


#: Another day, hour and second than 0.
_OTHER_TIME_US: Final = 400 * 86_400_000_000 + 3_661_000_001
_MAX_SHOWN: Final = 5
_MAX_TEXT: Final = 60


def _shown(columns: Mapping[int, Any], leaves: Sequence[Leaf], row: int) -> str:
    """Returns the values that a constraint has in a row, as text."""
    values = [f"{leaf.name} = {str(columns[leaf.id][row].as_py())[:_MAX_TEXT]}" for leaf in leaves[:_MAX_SHOWN]]
    return ", ".join(values) or "it has no columns"


def _requires(column: Column) -> bool:
    """Returns whether a column, or a field in it, may not be null or has text of a length; the keys of maps are never
    null."""
    if column.dtype.name == "map":
        key, value = column.fields
        return not column.nullable or has_text_length(key) or _requires(value)
    return not column.nullable or column.text_length is not None or any(map(_requires, column.fields))


def _check_values(values: Any, column: Column, path: str, nulls: int) -> None:
    """Check the values of a column; ``nulls``: how many of them are null that need not be null because of a value
    around them."""
    if nulls and not column.nullable:
        raise SchemaMismatch(f"column {path!r} is required and has nulls", column=path)
    if column.text_length is not None:
        check_text(values, column, path)
    for part, inner, inner_nulls in _parts(values, column):
        if _requires(part):
            _check_values(inner, part, f"{path}.{part.name}", inner_nulls)


def _parts(values: Any, column: Column) -> Iterable[tuple[Column, Any, int]]:
    """Returns the parts of a nested column, their values and the number of their own nulls."""
    if column.dtype.name == "struct":
        # A field is null wherever the struct is.
        fields = values.flatten()
        return [
            (part, field, field.null_count - values.null_count)
            for part, field in zip(column.fields, fields, strict=True)
        ]
    if column.dtype.name == "list":
        elements = pc.list_flatten(values)
        return [(column.fields[0], elements, elements.null_count)]
    if column.dtype.name == "map":
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        keys, items = pc.list_flatten(values.cast(pa.list_(entry))).flatten()
        return [(column.fields[0], keys, 0), (column.fields[1], items, items.null_count)]
    return ()
