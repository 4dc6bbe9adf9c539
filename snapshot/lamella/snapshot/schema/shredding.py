"""The shredded fields of a table's variants as text: ``v:a.b::int, v:tags['first tag']::string``.

That is a column, a path in it, and a type, as in Spark's ``v:a.b::int``. The columns are those of a schema; in it, each
field is one of the fields of its variant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from lamella.snapshot.errors import InvalidSchema, UnknownColumn
from lamella.snapshot.schema.column import Column, path_parts, quoted_path
from lamella.snapshot.schema.types import DataType, parse_type
from lamella.snapshot.variant.paths import path_text, variant_steps

#: The table property with this text.
SHREDDING: Final = "lamella.variant.shredding"
_MAX_CHARACTERS: Final = 64 << 10
_COLUMN: Final = re.compile(r"\s*((?:`(?:[^`]|``)+`|[^`.:,\s]+)(?:\.(?:`(?:[^`]|``)+`|[^`.:,\s]+))*)\s*:\s*")
_TYPE: Final = re.compile(r"\s*::\s*(\w+(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?)\s*(,|$)")
_SQL_NAMES: Final = {
    **{"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float32": "float"},
    **{"float64": "double", "timestamp(us)": "timestamp", "timestamp_ntz(us)": "timestamp_ntz"},
}

#: The fields of each variant, by the path of its column.
Shredding = dict[tuple[str, ...], tuple[Column, ...]]


def read_shredding(text: str) -> Shredding:
    """Returns the fields that a text names; none for an empty text.

    Raises:
        InvalidSchema: the text has another form, or a path or type that cannot be shredded.
    """
    found: dict[tuple[str, ...], list[Column]] = {}
    at = 0
    while text[at:].strip():
        column = _COLUMN.match(text, at)
        path = None if column is None else path_parts(column[1])
        end = -1 if column is None else _end_of_path(text, column.end())
        kind = None if end < 0 else _TYPE.match(text, end)
        if column is None or path is None or kind is None or len(text) > _MAX_CHARACTERS:
            raise InvalidSchema(
                f"shredded fields are written like v:a.b::int, v:c::string, not {text[at : at + 200]!r}",
                text=text[:200],
            )
        given = text[column.end() : end]
        steps = variant_steps(("$" if given.startswith("[") else "$.") + given)
        if steps is None:
            raise InvalidSchema(f"{given!r} is not a path of names in a variant", text=given)
        found.setdefault(path, []).append(Column(name=path_text(steps), type=str(parse_type(kind[1]))))
        at = kind.end()
    return {path: tuple(fields) for path, fields in found.items()}


def shredding_text(columns: Sequence[Column]) -> str:
    """Returns the shredded fields of columns as text."""
    return ", ".join(_texts(columns, ()))


def with_shredding(columns: Sequence[Column], shredding: Shredding) -> tuple[Column, ...]:
    """Returns columns with these shredded fields; a variant that is not named has none.

    Raises:
        UnknownColumn: there is no such column.
        InvalidSchema: it is not a variant.
    """
    left = {tuple(part.lower() for part in path): fields for path, fields in shredding.items()}
    made = tuple(_with_fields(column, (), left) for column in columns)
    for path in left:
        raise UnknownColumn(f"there is no variant {quoted_path(path)!r}", column=quoted_path(path))
    return made


def spark_name(dtype: DataType) -> str:
    """Returns the name of a type in Spark's SQL, if it has one there that differs."""
    return _SQL_NAMES.get(str(dtype), str(dtype))


def _with_fields(column: Column, above: tuple[str, ...], left: Shredding) -> Column:
    here = (*above, column.name.lower())
    if column.dtype.name != "variant":
        if here in left:
            raise InvalidSchema(f"column {column.name!r} is {column.dtype}, not a variant", column=column.name)
        fields = tuple(_with_fields(field, here, left) for field in column.fields)
    else:
        known = {(field.name, field.type): field for field in column.fields}
        fields = tuple(known.get((field.name, field.type), field) for field in left.pop(here, ()))
    return Column(
        name=column.name,
        type=column.type,
        id=column.id,
        nullable=column.nullable,
        fields=fields,
        doc=column.doc,
        default=column.default,
        write_default=column.write_default,
    )


def _texts(columns: Sequence[Column], above: tuple[str, ...]) -> Iterator[str]:
    for column in columns:
        here = (*above, column.name)
        if column.dtype.name != "variant":
            yield from _texts(column.fields, here)
            continue
        for field in column.fields:
            path = field.name.removeprefix("$").removeprefix(".")
            yield f"{quoted_path(here)}:{path}::{spark_name(field.dtype)}"


def _end_of_path(text: str, at: int) -> int:
    """Returns where the ``::`` behind a path is, which may also be in the quotes of one of its names; -1: nowhere."""
    while at < len(text):
        if text.startswith("::", at):
            return at
        if text.startswith(("['", '["'), at):
            at = text.find(text[at + 1] + "]", at + 2)
            if at < 0:
                return -1
        at += 1
    return -1
