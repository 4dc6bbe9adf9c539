"""Conversion of types to Spark's, in Spark's own JSON form; does not need Spark.

Types that Spark's Parquet reader cannot read have no Spark type: float16, time in milliseconds, timestamps in
nanoseconds, decimals beyond 38 digits, interval, geometry, geography, null. ``time`` is readable if the
session has ``spark.sql.timeType.enabled``.

Columns are always nullable in Spark, as with Spark's own file sources: a wrong "not null" would let the optimizer drop
a test, and a correct one gains nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column, DataType, Schema
from lamella.snapshot.schema.types import canonical_type

_PLAIN: Final = {
    "boolean": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "uint8": "short",
    "uint16": "integer",
    "uint32": "long",
    "uint64": "decimal(20,0)",
    "float32": "float",
    "float64": "double",
    "date": "date",
    "string": "string",
    "enum": "string",
    "json": "string",
    "binary": "binary",
    "bson": "binary",
    "fixed": "binary",
    "uuid": "binary",
    "variant": "variant",
}
_TIME: Final = {"us": "time(6)", "ns": "time(9)"}
_MAX_DECIMAL_DIGITS: Final = 38
_SQL_NAMES: Final = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}

# The types of columns in a table created by `write`, by Spark's types.
_FROM_SPARK: Final = {
    "boolean": "boolean",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date",
    "timestamp": "timestamp(us)",
    "timestamp_ntz": "timestamp_ntz(us)",
    "time(6)": "time(us)",
    "string": "string",
    "binary": "binary",
    "variant": "variant",
}


#: The member of a field's metadata in which Spark's plans have ``varchar(n)`` or ``char(n)``; the field is a string.
TEXT_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED_TEXT: Final = re.compile(r"(var)?char\([0-9]+\)")
#: The collation that compares bytes, as every plain string does; Spark names it in a table's definition.
_PLAIN_COLLATION: Final = " collate UTF8_BINARY"


class SparkSchema(msgspec.Struct, frozen=True):
    """A table's columns as Spark sees them.

    ``shown`` has every column; one that Spark cannot read is ``binary`` with a comment, so that ``DESCRIBE`` is
    complete and the others can be read. ``readable`` has only the others. Both are Spark's JSON. ``unreadable`` gives
    the type of each column that is in ``shown`` only. ``typed`` is ``shown`` with ``varchar(n)`` and ``char(n)`` where
    that has strings; Spark's catalog takes these types, and its plans have strings for them.
    """

    shown: str
    readable: str
    unreadable: dict[str, str]
    typed: str

    def check(self, names: Iterable[str]) -> None:
        """Raise InvalidSchema if Spark cannot read one of these columns, naming all of them."""
        wanted = {name.lower() for name in names}
        bad = {name: text for name, text in self.unreadable.items() if name.lower() in wanted}
        if bad:
            listed = _listed(bad)
            remedy = "name the columns that you need instead"
            if any("(ns)" in text for text in bad.values()):
                remedy += ", or copy the rows into a table with microseconds (see Troubleshooting)"
            raise InvalidSchema(f"Spark cannot read the type of {listed}; {remedy}", columns=sorted(bad))


def _listed(unreadable: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({text})" for name, text in unreadable.items())


def spark_notes(schema: Schema) -> tuple[str, ...]:
    """Returns sentences about the columns of a table that no session of Spark can read; mostly none.

    Files with nanoseconds are what pandas and Polars write by default, and nothing else says that Spark has no type for
    them before somebody reads the table there.
    """
    unreadable = spark_schema(schema, time_type=True).unreadable
    if not unreadable:
        return ()
    note = f"Spark cannot read {_listed(unreadable)}"
    if any("(ns)" in text for text in unreadable.values()):
        note += "; for Spark, write times with microseconds (see Troubleshooting)"
    return (note,)


def spark_schema(schema: Schema, *, time_type: bool = False) -> SparkSchema:
    """Converts a table's schema. ``time_type``: the session reads ``TIME``."""
    shown, readable, unreadable, typed = [], [], {}, []
    for column in schema.columns:
        mapped = _type(column, time_type)
        if mapped is None:
            text = _type_text(column)
            unreadable[column.name] = text
            comment = f"type {text}: Spark cannot read it"
            shown.append(_field(column.name, "binary", comment))
            typed.append(shown[-1])
        else:
            field = _field(column.name, mapped, column.doc)
            if column.default is not None:
                field["metadata"] |= {"EXISTS_DEFAULT": sql_default(column.dtype, mapped, column.default)}
            if (default := column.default_of_new_rows) is not None:
                field["metadata"] |= {"CURRENT_DEFAULT": sql_default(column.dtype, mapped, default)}
            shown.append(field)
            readable.append(field)
            typed.append({**field, "type": _with_text_lengths(mapped, column)})
    all_shown = _struct_json(shown)
    all_typed = _struct_json(typed) if schema.text_lengths else all_shown
    return SparkSchema(all_shown, _struct_json(readable), unreadable, all_typed)


def _with_text_lengths(spark: Any, column: Column) -> Any:
    """Return the type of a column in Spark's JSON with the lengths of its text."""
    if column.text_length is not None:
        return column.type
    if not isinstance(spark, dict):
        return spark
    parts = [_with_text_lengths(part, field) for part, field in zip(_parts(spark), column.fields, strict=True)]
    if spark["type"] == "struct":
        fields = [{**field, "type": part} for field, part in zip(spark["fields"], parts, strict=True)]
        return {**spark, "fields": fields}
    return {**spark, **dict(zip(_PARTS[spark["type"]], parts, strict=True))}


#: The members of Spark's JSON of a type that have its parts.
_PARTS: Final = {"array": ("elementType",), "map": ("keyType", "valueType")}


def _parts(spark: dict[str, Any]) -> list[Any]:
    """Return the types of the parts of a type in Spark's JSON."""
    if spark["type"] == "struct":
        return [field["type"] for field in spark["fields"]]
    return [spark[member] for member in _PARTS[spark["type"]]]


def required_schema(shown: str) -> str:
    """Returns ``typed`` of :class:`SparkSchema` with all columns and their parts as required. It must not be used for
    reading or writing."""
    struct = json.loads(shown)
    _require(struct)
    return json.dumps(struct)


def _require(spark: Any) -> None:
    """Make the parts of a type in Spark's JSON required."""
    if not isinstance(spark, dict):
        return
    for field in spark.get("fields", ()):
        field["nullable"] = False
        _require(field["type"])
    for flag, part in (("containsNull", "elementType"), ("valueContainsNull", "valueType")):
        if flag in spark:
            spark[flag] = False
            _require(spark[part])


def declared_schema(shown: str, schema: Schema) -> str:
    """Returns ``typed`` of :class:`SparkSchema` with the table's ``nullable``, for a ``CREATE TABLE`` statement.

    It must not be used for reading.
    """
    struct = json.loads(shown)
    _declare(struct, schema.columns)
    return json.dumps(struct)


def _declare(struct: dict[str, Any], columns: Iterable[Column]) -> None:
    for field, column in zip(struct["fields"], columns, strict=True):
        field["nullable"] = column.nullable
        if column.dtype.name == "struct" and isinstance(field["type"], dict):
            _declare(field["type"], column.fields)


def sql_default(dtype: DataType, spark: str, default: str) -> str:
    """Returns a column's default as Spark SQL, of exactly the column's Spark type.

    As ``EXISTS_DEFAULT`` in a field's metadata it is the value that Spark's Parquet reader uses if a file lacks the
    column, as ``CURRENT_DEFAULT`` that of new rows.
    """
    if dtype.is_text:
        escaped = default.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if dtype.order == "bytes":
        return f"X'{default}'"
    return f"CAST('{default}' AS {_SQL_NAMES.get(spark, spark)})"


def spark_type_name(dtype: DataType) -> str | None:
    """Returns Spark's JSON name of a type that is not nested; None if Spark cannot read it (``time`` is never covered
    here)."""
    mapped = _leaf(dtype, time_type=False)
    return mapped if isinstance(mapped, str) else None


def columns_of(schema_json: str) -> tuple[Column, ...]:
    """Returns the columns of a new table for a DataFrame with that Spark schema (JSON).

    Raises:
        InvalidSchema: a type that Lamella does not store from Spark (intervals, collated strings, ...).
    """
    return tuple(_column(field, field["name"]) for field in json.loads(schema_json)["fields"])


def _column(field: dict[str, Any], path: str) -> Column:
    return _named(field["name"], field["type"], bool(field.get("nullable", True)), path, field.get("metadata") or {})


def _named(name: str, spark: Any, nullable: bool, path: str, metadata: dict[str, Any]) -> Column:
    doc = metadata.get("comment")
    if isinstance(spark, str):
        spark = spark.removesuffix(_PLAIN_COLLATION)
        text = _FROM_SPARK.get(spark)
        if spark.startswith("decimal(") or _LIMITED_TEXT.fullmatch(spark):
            text = spark
        if text is None or "__COLLATIONS" in metadata:
            raise InvalidSchema(f"column {path!r} has Spark type {spark}, which a table cannot hold", column=path)
        return Column(name=name, type=canonical_type(text), nullable=nullable, doc=doc)
    kind = spark.get("type")
    if kind == "struct":
        fields = tuple(_column(f, f"{path}.{f['name']}") for f in spark["fields"])
        return Column(name=name, type="struct", nullable=nullable, fields=fields, doc=doc)
    if kind == "array":
        element = _named("element", spark["elementType"], bool(spark["containsNull"]), f"{path}.element", {})
        return Column(name=name, type="list", nullable=nullable, fields=(element,), doc=doc)
    if kind == "map":
        key = _named("key", spark["keyType"], False, f"{path}.key", {})
        value = _named("value", spark["valueType"], bool(spark["valueContainsNull"]), f"{path}.value", {})
        return Column(name=name, type="map", nullable=nullable, fields=(key, value), doc=doc)
    raise InvalidSchema(f"column {path!r} has Spark type {kind}, which a table cannot hold", column=path)


def _type(column: Column, time_type: bool) -> Any:
    dtype = column.dtype
    if dtype.name == "struct":
        fields = []
        for part in column.fields:
            mapped = _type(part, time_type)
            if mapped is None:
                return None
            fields.append(_field(part.name, mapped, part.doc))
        return {"type": "struct", "fields": fields}
    if dtype.name == "list":
        element = _type(column.fields[0], time_type)
        return element and {"type": "array", "elementType": element, "containsNull": True}
    if dtype.name == "map":
        key, value = (_type(part, time_type) for part in column.fields)
        if key is None or value is None:
            return None
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _leaf(dtype, time_type)


def _leaf(dtype: DataType, time_type: bool) -> str | None:
    if dtype.name == "decimal":
        return str(dtype) if dtype.precision <= _MAX_DECIMAL_DIGITS else None
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return dtype.name if dtype.unit in ("ms", "us") else None
    if dtype.name == "time":
        return _TIME.get(dtype.unit) if time_type else None
    return _PLAIN.get(dtype.name)


def _type_text(column: Column) -> str:
    if column.fields:
        return f"{column.type}<{', '.join(_type_text(part) for part in column.fields)}>"
    return str(column.dtype)


def _field(name: str, mapped: Any, comment: str | None) -> dict[str, Any]:
    metadata = {"comment": comment} if comment else {}
    return {"name": name, "type": mapped, "nullable": True, "metadata": metadata}


def _struct_json(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": fields})
