"""Arrow schemas of rows that Spark takes."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import parse_type

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
