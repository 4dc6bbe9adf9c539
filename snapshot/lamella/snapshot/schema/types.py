"""Logical types of columns: their canonical text, the order of their values, and collations.

A type is written as text, in manifests and over HTTP: ``int64``, ``decimal(38,10)``, ``timestamp(us)``, ... Spark's own
spellings (``bigint``, ``double``, ``timestamp``, ``binary``, ...) are read too. The type of a column may also be
``varchar(n)`` or ``char(n)``: its values are strings, and every writer sees to their length (:func:`text_length`).

``order`` names the domain in which values are compared, and thereby the Python type of a value:

======== ===================================================== ================================
order    value                                                 types
======== ===================================================== ================================
int      ``int``, signed 64 bit                                boolean (0, 1), int8..int64, date
                                                               (days), time and timestamp (in
                                                               their unit since 00:00 / epoch)
uint     ``int``, unsigned 64 bit                              uint8..uint64
float    ``float``; NaN greatest, -0.0 = 0.0 (Spark SQL)       float16, float32, float64
decimal  unscaled ``int`` at the type's own scale              decimal
bytes    ``bytes``, unsigned and lexicographic                 string, enum, json, binary, bson,
                                                               fixed, uuid
None     no order: no bounds, comparisons are unknown          interval, variant, geometry, ...,
                                                               struct, list, map
======== ===================================================== ================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from lamella.snapshot.errors import InvalidSchema
from lamella.snapshot.near_names import did_you_mean

# Collations: texts that Spark compares otherwise than byte by byte, as named in its JSON form of a schema.
#
# This form is stored next to Parquet's own schema in files that Spark wrote, and in the log of a Delta table. A column
# with a collation is an ordinary ``string`` there; the metadata of the field, or of a field that contains it, names the
# collations of all texts in it by their paths from that field on: ``{"__COLLATIONS": {"tags.element":
# "icu.UNICODE_CI"}}``.
#
# Bounds and filters here compare bytes. Under a collation equality and order differ, so no row may be skipped because
# of its text's bytes; code that adopts a schema refuses these columns.

#: The member of a field's metadata.
KEY: Final = "__COLLATIONS"
#: Prefix of a collated ``string`` type, before the collation's name.
_TYPE: Final = "string collate "
#: Compares bytes.
_BINARY: Final = "UTF8_BINARY"


def may_name_collations(text: str) -> bool:
    """Returns whether a schema's JSON text must be examined; most need not."""
    return KEY in text or _TYPE in text


def collations_in(schema: Any) -> dict[str, str]:
    """Returns the collation of each text of a struct type, by dotted path; texts that are compared by bytes are left
    out.

    ``schema`` is the decoded JSON. Raises ValueError if it is not a struct type.
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
            raise ValueError(f"the collations of field {field['name']!r} are not an object")
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
        raise ValueError(f"column {path!r} has no known type")


Order = Literal["int", "uint", "float", "decimal", "bytes"]
Unit = Literal["ms", "us", "ns"]

#: Units per second.
PER_SECOND: Final[dict[str, int]] = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_INTEGERS: Final = {f"int{b}": (b, "int") for b in (8, 16, 32, 64)} | {f"uint{b}": (b, "uint") for b in (8, 16, 32, 64)}
_FLOATS: Final = {"float16": 16, "float32": 32, "float64": 64}
_BYTES: Final = frozenset({"string", "enum", "json", "binary", "bson", "fixed", "uuid"})
_UNORDERED: Final = frozenset(
    {"interval", "variant", "geometry", "geography", "null", "unknown", "struct", "list", "map"}
)
_TEXTS: Final = frozenset({"string", "enum", "json"})
_ORDERS: Final[dict[str, Order]] = {
    **{name: "uint" if order == "uint" else "int" for name, (_, order) in _INTEGERS.items()},
    **dict.fromkeys(_FLOATS, "float"),
    **dict.fromkeys(_BYTES, "bytes"),
    **dict.fromkeys(("boolean", "date", "time", "timestamp", "timestamp_ntz"), "int"),
}


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


_RANGES: Final = {
    **{name: _signed(bits) for name, bits in _FLOATS.items()},
    **{name: (0, (1 << b) - 1) if order == "uint" else _signed(b) for name, (b, order) in _INTEGERS.items()},
    "boolean": (0, 1),
    "date": _signed(32),
}
_LONG: Final = _signed(64)

_ALIASES: Final = {
    "bool": "boolean",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "real": "float32",
    "double": "float64",
    "varchar": "string",
    "char": "string",
    "bytes": "binary",
    "timestamp": "timestamp(us)",
    "timestamp_ltz": "timestamp(us)",
    "timestamp_ntz": "timestamp_ntz(us)",
    "time": "time(us)",
    "decimal": "decimal(10,0)",
}


class DataType(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A logical type; ``str()`` gives its canonical text, :func:`parse_type` reads it."""

    name: str
    precision: int = 0  # decimal digits
    scale: int = 0  # decimal digits after the point
    unit: Unit = "us"  # time and timestamp
    length: int = 0  # fixed, in bytes

    @property
    def order(self) -> Order | None:
        """Returns the comparison domain (see the module's table), None if values have no order."""
        if self.name == "decimal":  # more than 38 digits do not fit 128 bits, and no available reader compares them
            return "decimal" if self.precision <= 38 else None
        return _ORDERS.get(self.name)

    @property
    def bits(self) -> int:
        """Returns the width of integers and floats, otherwise 0."""
        return _INTEGERS[self.name][0] if self.name in _INTEGERS else _FLOATS.get(self.name, 0)

    @property
    def is_integer(self) -> bool:
        """Returns whether the type is int8..int64 or uint8..uint64."""
        return self.name in _INTEGERS

    @property
    def is_float(self) -> bool:
        """Returns whether the type is float16, float32 or float64, the types that can hold NaN."""
        return self.name in _FLOATS

    @property
    def is_text(self) -> bool:
        """Returns whether the type is UTF-8 text: string, enum, json."""
        return self.name in _TEXTS

    @property
    def is_nested(self) -> bool:
        """Returns whether the type is struct, list or map."""
        return self.name in ("struct", "list", "map")

    @property
    def int_range(self) -> tuple[int, int]:
        """Returns the minimum and maximum of a type with order ``int``, ``uint`` or ``decimal``."""
        if self.name == "decimal":
            return 1 - 10**self.precision, 10**self.precision - 1
        return _RANGES.get(self.name, _LONG)

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name in ("time", "timestamp", "timestamp_ntz"):
            return f"{self.name}({self.unit})"
        if self.name == "fixed":
            return f"fixed({self.length})"
        return self.name


#: No type has longer parameters; Python refuses to parse numbers of thousands of digits.
_MAX_PARAMETER_DIGITS = 9
_PARAMETERS = re.compile(r"^([a-z_0-9]+)\(\s*([a-z0-9]+)\s*(?:,\s*(-?[0-9]+)\s*)?\)$")


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """Parses a type's text.

    Raises:
        InvalidSchema: unknown name, or parameters out of range.
    """
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name == "boolean" or name == "date" or name in _INTEGERS or name in _FLOATS or name in _UNORDERED:
        return DataType(name)
    if name in _BYTES - {"fixed"}:
        return DataType(name, length=16 if name == "uuid" else 0)
    match = _PARAMETERS.match(name)
    if match is None:
        raise _unknown_type(text, name)
    base, first, second = match.group(1), match.group(2), match.group(3)
    if max(len(first), len(second or "")) > _MAX_PARAMETER_DIGITS:
        raise InvalidSchema("a type has invalid parameters", type=text)
    if base == "decimal" and first.isdigit():
        precision, scale = int(first), int(second or 0)
        if 1 <= precision <= 76 and 0 <= scale <= precision:
            return DataType("decimal", precision=precision, scale=scale)
    elif base in ("time", "timestamp", "timestamp_ntz") and second is None:
        if first in ("ms", "us", "ns"):
            return DataType(base, unit=first)  # type: ignore[arg-type]  # narrowed by the test just above
    elif base == "fixed" and second is None and first.isdigit() and int(first) > 0:
        return DataType("fixed", length=int(first))
    elif base in ("varchar", "char") and second is None and first.isdigit():
        return DataType("string")
    if base not in _NAMES:
        raise _unknown_type(text, base)
    raise InvalidSchema(f"type {text!r} has invalid parameters", type=text)


_NAMES: Final = sorted({"boolean", "date", *_INTEGERS, *_FLOATS, *_BYTES, *_UNORDERED, *_ALIASES})


def _unknown_type(text: str, name: str) -> InvalidSchema:
    base = name.partition("(")[0].strip()
    if base in _NAMES and base != name:
        return InvalidSchema(f"type {text!r} has invalid parameters", type=text)
    return InvalidSchema(f"unknown type {text!r}", type=text, **did_you_mean(base, _NAMES))


#: The most characters of ``char``: every value is padded to the length of the column.
MAX_PADDED_CHARS: Final = 65_535


class TextLength(msgspec.Struct, frozen=True, gc=False):
    """How long text is in a column of type ``varchar(n)`` or ``char(n)``: at most ``max_chars`` Unicode code points.

    ``is_padded``: shorter text is padded with blanks, so that all text has exactly this length (``char``).
    """

    max_chars: int
    is_padded: bool = False

    def fit(self, text: str) -> str | None:
        """Returns the text as it is stored; None: it is too long. Blanks at its end that are too many are cut off."""
        if text[self.max_chars :].strip(" "):
            return None
        return text.ljust(self.max_chars) if self.is_padded else text[: self.max_chars]


def allows_all(wider: TextLength | None, narrower: TextLength | None) -> bool:
    """Returns whether all text of a column of length ``narrower`` may be in one of length ``wider``; None: any text."""
    if wider is None or wider == narrower:
        return True
    return narrower is not None and not wider.is_padded and narrower.max_chars <= wider.max_chars


_LIMITED_TEXT: Final = re.compile(r"^(var)?char\(\s*([0-9]+)\s*\)$")


@lru_cache(maxsize=4096)
def text_length(text: str) -> TextLength | None:
    """Returns the length that a type's text gives to its values; None: it is not ``varchar(n)`` or ``char(n)``.

    Raises:
        InvalidSchema: a length that no column can have.
    """
    match = _LIMITED_TEXT.match(text.strip().lower())
    if match is None:
        return None
    parse_type(text)
    found = TextLength(int(match.group(2)), is_padded=match.group(1) is None)
    if found.max_chars < 1 or (found.is_padded and found.max_chars > MAX_PADDED_CHARS):
        raise InvalidSchema(
            f"a column cannot be {text}: its text has at least 1 character, and in CHAR(n) at most {MAX_PADDED_CHARS}",
            type=text,
        )
    return found


def canonical_type(text: str) -> str:
    """Returns the normalized text of a column's type: ``varchar(n)``, ``char(n)``, or that of its :class:`DataType`;
    raises InvalidSchema."""
    length = text_length(text)
    if length is None:
        return str(parse_type(text))
    return f"{'char' if length.is_padded else 'varchar'}({length.max_chars})"


def widens(source: DataType, target: DataType) -> bool:
    """Returns whether every value of ``source`` is a value of ``target`` in the same order, as in Spark's Parquet
    reader.

    A timestamp of a finer unit than the table's is allowed too: its bounds are rounded outwards, since readers disagree
    on truncation.
    """
    if source == target:
        return True
    if source.is_integer and target.is_integer:
        if source.order == target.order:
            return source.bits <= target.bits
        return source.order == "uint" and source.bits < target.bits
    if changes_kind(source, target):
        return True
    if source.is_float and target.is_float:
        return source.bits <= target.bits
    if source.name == "decimal" and target.name == "decimal":
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    if source.name == target.name and source.name in ("time", "timestamp", "timestamp_ntz"):
        return True
    if source.is_text and target.is_text:
        return True
    return source.name in ("binary", "bson", "fixed", "uuid") and target.name == "binary"


def changes_kind(source: DataType, target: DataType) -> bool:
    """Returns whether a column of type ``source`` may become one of ``target``, a type of another kind.

    Integers become doubles or decimals, dates become timestamps without time zone, as Spark's Parquet reader reads them
    and as Delta widens them: integers of up to 32 bits need 10 digits before the decimal point, others 20.
    """
    if source.order == "int" and source.is_integer:
        if target.name == "decimal":
            return target.precision - target.scale >= (10 if source.bits <= 32 else 20)
        return target.name == "float64" and source.bits <= 32
    return source.name == "date" and target.name == "timestamp_ntz" and target.unit == "us"


def factor(source: DataType, target: DataType) -> int:
    """Returns the factor that converts a value of ``source`` to one of ``target``, which is wider, in the domains of
    their orders."""
    if target.name == "decimal":
        return int(10 ** (target.scale - source.scale))
    if source.name == "date" and target.name == "timestamp_ntz":
        return 86_400 * PER_SECOND[target.unit]
    if source.name in ("time", "timestamp", "timestamp_ntz"):
        return PER_SECOND[target.unit] // PER_SECOND[source.unit]
    return 1
