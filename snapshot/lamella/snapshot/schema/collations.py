"""Collations: texts that Spark compares otherwise than byte by byte, as its JSON form of a schema names them.

That form stands beside Parquet's own schema in files that Spark wrote, and in the log of a Delta table. A column with
a collation is a ``string`` there like any other; the metadata of the field that it is, or is in, name the collations of
all texts in it by their paths from that field on: ``{"__COLLATIONS": {"tags.element": "icu.UNICODE_CI"}}``.

Bounds and filters here are of bytes. By a collation other texts are equal, and least and greatest, so nothing that is
known of a text's bytes may leave out a row; whoever takes a schema over refuses these columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

#: The member of a field's metadata.
KEY: Final = "__COLLATIONS"
#: In place of the type ``string``, before the collation's name.
_TYPE: Final = "string collate "
#: Compares bytes.
_BINARY: Final = "UTF8_BINARY"


def may_name_collations(text: str) -> bool:
    """Whether a schema's JSON text has to be looked at; most have not."""
    return KEY in text or _TYPE in text


def collations_in(schema: Any) -> dict[str, str]:
    """The collation of each text of a struct type, by its path with dots; texts that are compared by bytes have none.

    ``schema`` is the decoded JSON. Raises ValueError when it is no struct type.
    """
    return dict(_of_struct(schema, ""))


def _of_struct(struct: Any, above: str) -> Iterator[tuple[str, str]]:
    fields = struct.get("fields") if isinstance(struct, dict) and struct.get("type") == "struct" else None
    if not isinstance(fields, list):
        raise ValueError("a struct type is expected")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise ValueError("a field has no name")
        metadata = field.get("metadata") or {}
        named = metadata.get(KEY) or {} if isinstance(metadata, dict) else None
        if not isinstance(named, dict):
            raise ValueError(f"the collations of field {field['name']!r} are no object")
        for path, collation in named.items():
            if str(collation).rpartition(".")[2] != _BINARY:
                yield above + str(path), str(collation)
        yield from _of_type(field.get("type"), above + field["name"])


def _of_type(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, str):
        if kind.startswith(_TYPE) and kind.removeprefix(_TYPE) != _BINARY:
            yield path, kind.removeprefix(_TYPE)
        return
    name = kind.get("type") if isinstance(kind, dict) else None
    if name == "struct":
        yield from _of_struct(kind, f"{path}.")
    elif name == "array":
        yield from _of_type(kind.get("elementType"), f"{path}.element")
    elif name == "map":
        yield from _of_type(kind.get("keyType"), f"{path}.key")
        yield from _of_type(kind.get("valueType"), f"{path}.value")
    elif name == "udt":
        yield from _of_type(kind.get("sqlType"), path)
    else:
        raise ValueError(f"column {path!r} has no type that is known")
