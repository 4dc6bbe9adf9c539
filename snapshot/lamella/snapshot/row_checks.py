"""Checks rows of Arrow for what a table requires of every row, before they are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema import Column, Schema


class RowChecks:
    """What ``schema`` requires of a row. May be shared between threads."""

    def __init__(self, schema: Schema) -> None:
        self._columns = [(at, column) for at, column in enumerate(schema.columns) if _requires(column)]

    def check(self, rows: pa.Table) -> None:
        """Check rows whose columns are the schema's, in its order and in the corresponding Arrow types.

        Raises:
            SchemaMismatch: a required column has a null, or a required field where the value around it is not null.
        """
        for at, column in self._columns:
            for values in rows.column(at).chunks:
                _check_values(values, column, column.name, values.null_count)


def _requires(column: Column) -> bool:
    """Returns whether a column, or a field in it, may not be null; the keys of maps never are."""
    parts = column.fields[1:] if column.dtype.name == "map" else column.fields
    return not column.nullable or any(map(_requires, parts))


def _check_values(values: Any, column: Column, path: str, nulls: int) -> None:
    """Check the values of a column; ``nulls``: how many of them are null that need not be null because of a value
    around them."""
    if nulls and not column.nullable:
        raise SchemaMismatch(f"column {path!r} is required and has nulls", column=path)
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
        _, items = pc.list_flatten(values.cast(pa.list_(entry))).flatten()
        return [(column.fields[1], items, items.null_count)]
    return ()
