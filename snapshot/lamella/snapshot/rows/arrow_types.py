"""How columns of a table look in Arrow."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column, DataType

_PLAIN: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
    "enum": pa.string(),
    "json": pa.string(),
    "binary": pa.binary(),
    "bson": pa.binary(),
    "geometry": pa.binary(),
    "geography": pa.binary(),
    "uuid": pa.binary(16),
    "null": pa.null(),
}


def arrow_field(column: Column) -> pa.Field:
    """A column as a field of an Arrow schema.

    Raises:
        InvalidRequest: the column is of a type that has no form in Arrow here (interval, variant, unknown).
    """
    return pa.field(column.name, arrow_type(column), nullable=column.nullable)


def arrow_type(column: Column) -> Any:
    """The Arrow type of a column; raises as :func:`arrow_field` does."""
    dtype = column.dtype
    if dtype.name == "struct":
        return pa.struct([arrow_field(part) for part in column.fields])
    if dtype.name == "list":
        return pa.list_(arrow_field(column.fields[0]))
    if dtype.name == "map":
        key, value = column.fields
        return pa.map_(arrow_type(key), arrow_field(value))
    return leaf_type(dtype, column.name)


def leaf_type(dtype: DataType, name: str) -> Any:
    """The Arrow type of a column that holds values; raises as :func:`arrow_field` does."""
    if dtype.name in _PLAIN:
        return _PLAIN[dtype.name]
    if dtype.name == "decimal":
        make = pa.decimal128 if dtype.precision <= 38 else pa.decimal256
        return make(dtype.precision, dtype.scale)
    if dtype.name == "time":
        return pa.time32("ms") if dtype.unit == "ms" else pa.time64(dtype.unit)
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return pa.timestamp(dtype.unit, tz="UTC" if dtype.name == "timestamp" else None)
    if dtype.name == "fixed":
        return pa.binary(dtype.length)
    raise InvalidRequest(f"column {name!r} of type {dtype} cannot be read as Arrow; leave it out", column=name)
