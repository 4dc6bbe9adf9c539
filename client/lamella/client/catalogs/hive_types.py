"""Types of Hive as columns of a table."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.spark_types import TEXT_TYPE, columns_of

_PLAIN: Final = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "double precision": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "decimal": "decimal(10,0)",
}
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\)")
#: The text of a plain type, or of the name of a field: up to what may follow.
_WORD: Final = re.compile(r"`((?:[^`]|``)*)`|([^<>,:()]+(?:\([^)]*\))?)")


def spark_columns(schema_json: str) -> tuple[Column, ...]:
    """Returns the columns of a schema in Spark's JSON.

    Raises:
        InvalidSchema: a type that a table cannot hold, ``char(n)``, which Spark and Hive pad when they read it, or a
            default that Spark gives to rows of files without the column.
    """
    struct = json.loads(schema_json)
    _refuse_unlike(struct, "")
    return columns_of(json.dumps(struct))


def _refuse_unlike(kind: Any, path: str) -> None:
    if isinstance(kind, str):
        if kind.startswith("char("):
            raise InvalidSchema(f"column {path!r} is {kind}: readers pad its values in different ways", column=path)
        return
    for field in kind.get("fields", ()):
        here = f"{path}.{field['name']}".lstrip(".")
        metadata = field.get("metadata") or {}
        limited = metadata.get(TEXT_TYPE, "")
        if "char(" in limited.replace("varchar(", ""):
            raise InvalidSchema(f"column {here!r} is {limited}: readers pad its values in different ways", column=here)
        if (metadata.get("EXISTS_DEFAULT") or "NULL").upper() != "NULL":
            raise InvalidSchema(f"column {here!r} has a default for files that lack it", column=here)
        _refuse_unlike(field["type"], here)
    for part in ("elementType", "keyType", "valueType"):
        if part in kind:
            _refuse_unlike(kind[part], path)


def hive_columns(columns: list[tuple[str, str]]) -> tuple[Column, ...]:
    """Returns columns of names and Hive's types; raises as :func:`spark_columns`."""
    fields = [_field(name, _type(name, text)) for name, text in columns]
    return spark_columns(json.dumps({"type": "struct", "fields": fields}))


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _type(column: str, text: str) -> Any:
    reader = _Reader(column, text)
    kind = reader.kind()
    if reader.rest:
        raise reader.error()
    return kind


class _Reader:
    """Reads a type from left to right."""

    def __init__(self, column: str, text: str) -> None:
        self._column = column
        self._text = text
        self.rest = text.strip()

    def error(self) -> InvalidSchema:
        return InvalidSchema(
            f"column {self._column!r} has Hive's type {self._text}, which a table cannot hold", column=self._column
        )

    def kind(self) -> Any:
        word = self._word()
        name = word.lower()
        if name in ("array", "map", "struct") and self.rest.startswith("<"):
            self._take("<")
            kind = self._nested(name)
            self._take(">")
            return kind
        if name in _PLAIN:
            return _PLAIN[name]
        if (found := _DECIMAL.fullmatch(name)) is not None:
            return f"decimal({found[1]},{found[2] or 0})"
        if name.startswith("varchar("):
            return "string"
        if name.startswith("char("):
            return name
        raise self.error()

    def _nested(self, name: str) -> Any:
        if name == "array":
            return {"type": "array", "elementType": self.kind(), "containsNull": True}
        if name == "map":
            key = self.kind()
            self._take(",")
            return {"type": "map", "keyType": key, "valueType": self.kind(), "valueContainsNull": True}
        fields = []
        while True:
            field = self._word()
            self._take(":")
            fields.append(_field(field, self.kind()))
            if not self.rest.startswith(","):
                return {"type": "struct", "fields": fields}
            self._take(",")

    def _word(self) -> str:
        found = _WORD.match(self.rest)
        if found is None:
            raise self.error()
        self.rest = self.rest[found.end() :].lstrip()
        return found[1].replace("``", "`") if found[1] is not None else found[2].strip()

    def _take(self, mark: str) -> None:
        if not self.rest.startswith(mark):
            raise self.error()
        self.rest = self.rest[1:].lstrip()
