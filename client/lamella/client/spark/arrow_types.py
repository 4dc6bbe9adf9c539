"""Arrow schemas: of blocks as they are written (column ids as Parquet field ids), and of rows that Spark takes."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.rows.arrow_types import leaf_type
from lamella.snapshot.schema import Column, DataType, Schema, parse_type

#: Types that Spark has too, or reads as ones it has.
_WRITABLE: Final = frozenset(
    {
        *("boolean", "float32", "float64", "date", "string", "enum", "json", "binary", "fixed"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
_UNWRITABLE: Final = "Lamella's Spark writer cannot write columns of type"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema of a block's Arrow table.

    Raises:
        InvalidSchema: a type that cannot be written from Spark (float16, uuid, bson, intervals, ...).
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
        or (dtype.name in ("timestamp", "timestamp_ntz") and dtype.unit != "ns")
        or (dtype.name == "time" and dtype.unit == "us")
    )
    if not writable:
        raise InvalidSchema(f"{_UNWRITABLE} {dtype}: {name!r}", column=name)
    return leaf_type(dtype, name)


_OF_SPARK: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("us"),
    "time(9)": pa.time64("ns"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def spark_arrow_schema(schema_json: str) -> pa.Schema:
    """How Spark takes rows of a schema (its own JSON) from Python.

    Raises:
        InvalidSchema: a type that no table of ours is read as.
    """
    return pa.schema([_spark_field(field) for field in json.loads(schema_json)["fields"]])


def _spark_field(field: dict[str, Any]) -> pa.Field:
    return pa.field(field["name"], _spark_type(field["type"], field["name"]))


def _spark_type(spark: Any, name: str) -> Any:
    if isinstance(spark, str):
        if spark.startswith("decimal("):
            dtype = parse_type(spark)
            return pa.decimal128(dtype.precision, dtype.scale)
        if spark in _OF_SPARK:
            return _OF_SPARK[spark]
    elif spark["type"] == "struct":
        return pa.struct([_spark_field(field) for field in spark["fields"]])
    elif spark["type"] == "array":
        return pa.list_(pa.field("element", _spark_type(spark["elementType"], name)))
    elif spark["type"] == "map":
        return pa.map_(_spark_type(spark["keyType"], name), _spark_type(spark["valueType"], name))
    raise InvalidSchema(f"column {name!r} cannot be read as Spark's type {spark}", column=name)
