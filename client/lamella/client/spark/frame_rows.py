"""A frame's columns as a table's: matched by name, in the table's order and types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lamella.snapshot.errors import SchemaMismatch
from lamella.snapshot.schema import Column, Schema, parse_type, widens
from lamella.snapshot.schema.spark_types import columns_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aligned(frame: DataFrame, schema: Schema) -> DataFrame:
    """The frame with the table's columns in its order, named by position: mapInArrow stumbles over dots in names.

    Raises:
        SchemaMismatch: columns are missing that have no default, or not the table's, or of types that do not fit.
    """
    return frame.select(*_aligned(frame, schema)).toDF(*[f"c{at}" for at in range(len(schema.columns))])


def _aligned(frame: DataFrame, schema: Schema) -> list[Any]:
    """The frame's columns in the table's order, names and types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    given = {column.name.lower(): column for column in columns_of(frame.schema.json())}
    if len(given) != len(frame.columns):
        raise SchemaMismatch("the frame has two columns of one name, without regard to case")
    wanted = {column.name.lower(): column for column in schema.columns}
    missing = [column.name for key, column in wanted.items() if key not in given and column.default is None]
    strange = [column.name for key, column in given.items() if key not in wanted]
    if missing or strange:
        raise SchemaMismatch(
            f"the frame's columns are not the table's: missing {missing}, unknown {strange}",
            columns=[*missing, *strange],
        )
    shown = spark_schema(schema, time_type=True)
    shown.check(wanted)
    types = StructType.fromJson(json.loads(shown.readable))
    selected = []
    for key, column in wanted.items():
        if key not in given:
            default = F.expr(types[column.name].metadata["EXISTS_DEFAULT"])
            selected.append(default.cast(types[column.name].dataType).alias(column.name))
            continue
        if not _fits(given[key], column):
            raise SchemaMismatch(
                f"column {column.name!r} is {_text(given[key])} in the frame and {_text(column)} in the table",
                column=column.name,
            )
        quoted = given[key].name.replace("`", "``")
        selected.append(F.col(f"`{quoted}`").cast(types[column.name].dataType).alias(column.name))
    return selected


def _fits(given: Column, wanted: Column) -> bool:
    """True when every value can be kept; values of narrower types are checked when they are written."""
    if given.fields or wanted.fields:
        same = given.type == wanted.type and len(given.fields) == len(wanted.fields)
        return same and all(
            one.name == other.name and _fits(one, other) for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    if widens(given.dtype, wanted.dtype):
        return True
    # What Spark shows a column of the table as may come back: uint32 as bigint, enum as string, fixed(4) as binary.
    back = json.loads(spark_schema(Schema.assign([wanted]), time_type=True).readable)["fields"]
    return bool(back) and isinstance(back[0]["type"], str) and widens(given.dtype, parse_type(_plain(back[0]["type"])))


def _plain(spark: str) -> str:
    return {"time(6)": "time(us)", "time(9)": "time(ns)"}.get(spark, spark)


def _text(column: Column) -> str:
    return f"{column.type}<{', '.join(_text(part) for part in column.fields)}>" if column.fields else column.type
