"""A table's columns as an Iceberg schema, and checks that Iceberg's readers read its files equally.

Types follow format version 2 of the Iceberg specification. A column without a type there makes the table unreadable as
an Iceberg table: leaving it out would change the meaning of ``SELECT *``, and another type its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.schema import Column, DataType, Schema

_PLAIN: Final = {
    **{"boolean": "boolean", "date": "date", "uuid": "uuid", "float32": "float", "float64": "double"},
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    **dict.fromkeys(("string", "enum", "json"), "string"),
    **dict.fromkeys(("binary", "bson"), "binary"),
}
_TIMES: Final = {"time": "time", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
_REASONS: Final = {
    "uint32": "Iceberg has no unsigned types, and its readers would read large values as negative",
    "uint64": "Iceberg has no unsigned types",
    **dict.fromkeys(("uint8", "uint16"), "Iceberg has no unsigned types, and Spark's reader fails on them"),
    "ns": "nanoseconds require Iceberg format version 3",
    "variant": "variants require Iceberg format version 3",
    "ms": "Iceberg uses microseconds, and Spark's reader would read the files' milliseconds as microseconds; widen it "
    "to us and compact"
    "",
}


def type_name(dtype: DataType) -> str | None:
    """Returns Iceberg's name of a leaf type, None if it has none."""
    if dtype.name == "decimal":
        return f"decimal({dtype.precision}, {dtype.scale})" if dtype.precision <= 38 else None
    if dtype.name == "fixed":
        return f"fixed[{dtype.length}]"
    if dtype.name in _TIMES:
        return _TIMES[dtype.name] if dtype.unit == "us" else None
    return _PLAIN.get(dtype.name)


def schema_json(schema: Schema) -> dict[str, Any]:
    """Returns the schema in table metadata form. Every field is optional: no statistics prove that a file has no null.

    Raises:
        NotExpressible: a column has no Iceberg type, or a default, which format version 2 does not support.
    """
    return {
        "type": "struct",
        "schema-id": schema.schema_id,
        "fields": [_field(column, ()) for column in schema.columns],
    }


def name_mapping(schema: Schema, earlier: Iterable[Schema]) -> list[dict[str, Any]]:
    """Returns the name mapping for files without field ids: the columns' current and earlier names.

    Raises:
        NotExpressible: files of the table call two columns by one name, so that no mapping is right for all.
    """
    names: dict[int, dict[str, None]] = {}
    owners: dict[tuple[int, str], int] = {}
    for each in (schema, *earlier):
        for parent, column in _placed(each.columns, 0):
            names.setdefault(column.id, {})[column.name] = None
            owner = owners.setdefault((parent, column.name), column.id)
            if owner != column.id:
                raise NotExpressible(
                    f"the name {column.name!r} was used for two columns of this table, and its files have only names: "
                    "an Iceberg name mapping cannot distinguish them. Rewrite the table (compact)"
                    "",
                    column=column.name,
                )
    return [_mapped(column, names) for column in schema.columns]


def _field(column: Column, path: tuple[str, ...]) -> dict[str, Any]:
    here = (*path, column.name)
    if column.default is not None:
        raise NotExpressible(
            f"column {'.'.join(here)!r} has a default, which requires Iceberg format version 3", column=".".join(here)
        )
    found: dict[str, Any] = {
        "id": column.id,
        "name": column.name,
        "required": False,
        "type": _type(column, here),
    }
    return found if column.doc is None else found | {"doc": column.doc}


def _type(column: Column, path: tuple[str, ...]) -> Any:
    dtype = column.dtype
    if dtype.name == "struct":
        return {"type": "struct", "fields": [_field(field, path) for field in column.fields]}
    if dtype.name == "list":
        element = column.fields[0]
        return {
            "type": "list",
            "element-id": element.id,
            "element-required": False,
            "element": _type(element, (*path, element.name)),
        }
    if dtype.name == "map":
        key, value = column.fields
        return {
            "type": "map",
            "key-id": key.id,
            "key": _type(key, (*path, key.name)),
            "value-id": value.id,
            "value-required": False,
            "value": _type(value, (*path, value.name)),
        }
    name = type_name(dtype)
    if name is None:
        reason = _REASONS.get(dtype.unit if dtype.name in _TIMES else dtype.name, "Iceberg has no such type")
        raise NotExpressible(
            f"column {'.'.join(path)!r} of type {dtype} cannot be read as Iceberg: {reason}",
            column=".".join(path),
            type=str(dtype),
        )
    return name


def _placed(columns: Iterable[Column], parent: int) -> Iterator[tuple[int, Column]]:
    for column in columns:
        yield parent, column
        yield from _placed(column.fields, column.id)


def _mapped(column: Column, names: Mapping[int, Mapping[str, None]]) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": column.id, "names": list(names[column.id])}
    if column.fields:
        found["fields"] = [_mapped(field, names) for field in column.fields]
    return found
