"""The Arrow schema of blocks as they are written: the table's columns, their ids as Parquet field ids."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.rows.arrow_types import leaf_type
from lamella.snapshot.schema import Column, DataType, Schema

#: Types of which a file says after writing what it said before.
_WRITABLE: Final = frozenset(
    {
        *("boolean", "float32", "float64", "date", "string", "enum", "json", "binary", "fixed"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
_UNWRITABLE: Final = "Lamella's writer cannot write columns of type"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema of a block's Arrow table.

    Raises:
        InvalidSchema: a type that cannot be written (float16, uuid, bson, intervals, ...).
    """
    return pa.schema([_field(column) for column in schema.columns])


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _type(column), nullable=column.nullable, metadata={"PARQUET:field_id": str(column.id)})


def _type(column: Column) -> Any:
    dtype = column.dtype
    if dtype.name == "struct":
        return pa.struct([_field(part) for part in column.fields])
    if dtype.name == "list":
        return pa.list_(_field(column.fields[0]))
    if dtype.name == "map":
        key, value = column.fields
        return pa.map_(_field(key), _field(value))
    return _leaf(dtype, column.name)


def _leaf(dtype: DataType, name: str) -> Any:
    writable = (
        dtype.name in _WRITABLE
        or (dtype.name == "decimal" and dtype.precision <= 38)
        or dtype.name in ("timestamp", "timestamp_ntz", "time")
    )
    if not writable:
        raise InvalidSchema(f"{_UNWRITABLE} {dtype}: {name!r}", column=name)
    return leaf_type(dtype, name)
