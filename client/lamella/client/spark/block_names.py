"""What a table's columns are called inside blocks of older schemas, as schemas for Spark's own Parquet reader.

A file is read by the names that the table had when the file was written. The reader hands back columns by position,
so the names that it is given need not be those that Spark's plan has: one schema in terms of the files is enough, as
long as all files of a scan agree on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column, Schema

#: Under which name Spark's reader finds a column by Parquet field id.
_FIELD_ID: Final = "parquet.field.id"


def written_struct(wanted: dict[str, Any], current: Schema, written: Schema) -> dict[str, Any]:
    """A Spark struct type (its JSON as Python) whose names are those of ``current``, by the names of ``written``.

    A column that blocks of ``written`` cannot have keeps its name, or gets one that nothing has, so that Spark finds
    none and puts null or the default.
    """
    return _written(wanted, current.columns, written.columns)


def identified_struct(wanted: dict[str, Any], current: Schema) -> dict[str, Any]:
    """The same struct type with every field's column id, for files whose field ids are the table's column ids."""
    return _identified(wanted, current.columns)


def layouts(wanted: dict[str, Any], history: Sequence[Schema], schema_ids: Iterable[int]) -> dict[str, list[int]]:
    """The different structs (as JSON) that the blocks of these schemas need, and the schemas that need each."""
    schemas = {schema.schema_id: schema for schema in history}
    found: dict[str, list[int]] = {}
    for schema_id in sorted(set(schema_ids)):
        struct = wanted
        if schema_id != history[-1].schema_id:
            struct = written_struct(wanted, history[-1], schemas[schema_id])
        found.setdefault(json.dumps(struct), []).append(schema_id)
    return found


def _written(struct: dict[str, Any], now: Sequence[Column], then: Sequence[Column]) -> dict[str, Any]:
    before = {column.id: column for column in then}
    taken = {column.name.lower() for column in then}
    fields = []
    for field in struct["fields"]:
        column = _named(now, field["name"])
        old = before.get(column.id)
        if old is not None:
            mapped = {**field, "name": old.name, "type": _written_type(field["type"], column, old)}
        elif column.name.lower() in taken:
            mapped = {**field, "name": _free(column.id, taken)}
        else:
            mapped = field
        fields.append(mapped)
    return {**struct, "fields": fields}


def _written_type(spark: Any, now: Column, then: Column) -> Any:
    if isinstance(spark, str) or not now.fields:
        return spark
    if spark["type"] == "struct":
        return _written(spark, now.fields, then.fields)
    if spark["type"] == "array":
        return {**spark, "elementType": _written_type(spark["elementType"], now.fields[0], then.fields[0])}
    return {
        **spark,
        "keyType": _written_type(spark["keyType"], now.fields[0], then.fields[0]),
        "valueType": _written_type(spark["valueType"], now.fields[1], then.fields[1]),
    }


def _identified(struct: dict[str, Any], now: Sequence[Column]) -> dict[str, Any]:
    fields = []
    for field in struct["fields"]:
        column = _named(now, field["name"])
        metadata = {**field["metadata"], _FIELD_ID: column.id}
        name = f"_lamella_{column.id}"
        fields.append({**field, "name": name, "type": _identified_type(field["type"], column), "metadata": metadata})
    return {**struct, "fields": fields}


def _identified_type(spark: Any, now: Column) -> Any:
    if isinstance(spark, str) or not now.fields:
        return spark
    if spark["type"] == "struct":
        return _identified(spark, now.fields)
    if spark["type"] == "array":
        return {**spark, "elementType": _identified_type(spark["elementType"], now.fields[0])}
    return {
        **spark,
        "keyType": _identified_type(spark["keyType"], now.fields[0]),
        "valueType": _identified_type(spark["valueType"], now.fields[1]),
    }


def _free(column_id: int, taken: set[str]) -> str:
    name = f"_lamella_absent_{column_id}"
    while name in taken:
        name += "_"
    return name


def _named(columns: Sequence[Column], name: str) -> Column:
    for column in columns:
        if column.name.lower() == name.lower():
            return column
    raise InvalidSchema(f"the table has no column {name!r}", column=name)
