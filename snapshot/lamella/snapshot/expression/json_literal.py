"""Constants of JSON filters: JSON's own scalars, and typed literals that carry any value exactly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.moments import is_unicode, single
from lamella.snapshot.expression.nodes import Literal, LiteralKind
from lamella.snapshot.schema import parse_type

_INT64: Final = 1 << 63
#: No type holds more than 128 bits; far longer numbers would only cost time.
_MAX_BITS: Final = 1024
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


_DECIMAL_TYPE: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)", re.ASCII)
_MAX_DIGITS: Final = 38


def wrong(path: str, message: str) -> InvalidFilter:
    """The error for something that is not of the grammar, at a JSON path."""
    return InvalidFilter(f"{message} (at {path})", position=path)


def json_literal(value: Any, path: str) -> Literal:
    """The constant that a JSON value stands for; raises InvalidFilter."""
    if value is None:
        return Literal("null")
    if isinstance(value, bool):
        return Literal("boolean", value)
    if isinstance(value, int):
        if value.bit_length() >= _MAX_BITS:
            raise wrong(path, "the number is too long")
        return Literal("integer", value)
    if isinstance(value, float):
        return Literal("double", value)
    if isinstance(value, str):
        encodable(value, path)
        return Literal("text", value)
    if isinstance(value, dict) and value.get("type") == "literal":
        return _typed(value, path)
    raise wrong(path, "a value is a JSON scalar or a typed literal")


def json_literals(values: list[Any], path: str) -> tuple[Literal, ...]:
    """The constants of a list at a JSON path; raises InvalidFilter."""
    return tuple(
        [
            Literal("integer", value)
            if type(value) is int and -_INT64 <= value < _INT64  # most long lists, with no path made for each
            else json_literal(value, f"{path}[{index}]")
            for index, value in enumerate(values)
        ]
    )


def encodable(text: str, path: str) -> None:
    """Raise InvalidFilter for text that is not valid Unicode."""
    if not is_unicode(text):
        raise wrong(path, "the text is not valid Unicode")


def shown(value: Any) -> str:
    """A short text of a JSON value for messages; a long or deep one is named by its type."""
    return repr(value) if isinstance(value, str | float | bool) and len(str(value)) <= 100 else type(value).__name__


def _typed(node: dict[str, Any], path: str) -> Literal:
    kind, value = node.get("data-type"), node.get("value")
    if kind is None and not isinstance(value, dict):
        return json_literal(value, f"{path}.value")
    sized = _DECIMAL_TYPE.fullmatch(kind) if isinstance(kind, str) else None
    reader = _TYPED.get(kind if sized is None else "decimal") if isinstance(kind, str) else None
    literal = reader(value) if reader is not None else None
    if sized is not None and literal is not None:
        literal = _of_size(literal, int(sized[1]), int(sized[2]))
    if literal is None:
        raise wrong(path, f"{shown(value)} is not a value of {shown(kind)}")
    return literal


def _typed_integer(kind: LiteralKind) -> Callable[[Any], Literal | None]:
    def read(value: Any) -> Literal | None:
        inside = isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
        return Literal(kind, value) if inside else None

    return read


def _typed_float(value: Any, kind: LiteralKind = "double") -> Literal | None:
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if isinstance(value, str):
        number = special.get(value)
    else:
        fits = isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _MAX_BITS)
        number = float(value) if fits and not isinstance(value, bool) else None
    if number is None:
        return None
    return Literal(kind, single(number) if kind == "float" else number)


def _typed_decimal(value: Any) -> Literal | None:
    if not isinstance(value, str) or len(value) > 128 or not _DECIMAL.fullmatch(value):
        return None
    return Literal("decimal", format(Decimal(value), "f"))


def _typed_text(value: Any) -> Literal | None:
    if not isinstance(value, str):
        return None
    encodable(value, "$")
    return Literal("string", value)


def _of_size(literal: Literal, precision: int, scale: int) -> Literal | None:
    """A decimal as one of a type; None when that does not have it."""
    _, digits, exponent = Decimal(str(literal.value)).as_tuple()
    if not isinstance(exponent, int) or not scale <= precision <= _MAX_DIGITS:
        return None
    fits = -exponent <= scale and len(digits) + exponent <= precision - scale
    return Literal("decimal", literal.value, f"decimal({precision},{scale})") if fits else None


def _suffixed(name: str) -> Callable[[Any], Literal | None]:
    low, high = parse_type(name).int_range

    def read(value: Any) -> Literal | None:
        inside = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return Literal("integer", value, parse_type(name).name) if inside else None

    return read


def _typed_binary(value: Any) -> Literal | None:
    try:
        return Literal("binary", bytes.fromhex(value)) if isinstance(value, str) else None
    except ValueError:
        return None


_TYPED: Final[dict[str, Callable[[Any], Literal | None]]] = {
    "null": lambda value: Literal("null") if value is None else None,
    "boolean": lambda value: Literal("boolean", value) if isinstance(value, bool) else None,
    "long": _typed_integer("integer"),
    **{name: _suffixed(name) for name in ("tinyint", "smallint", "bigint")},
    "double": _typed_float,
    "float": lambda value: _typed_float(value, "float"),
    "decimal": _typed_decimal,
    "string": _typed_text,
    "binary": _typed_binary,
    "date": _typed_integer("date"),
    "timestamp": _typed_integer("timestamp"),
    "timestamp_ntz": _typed_integer("timestamp_ntz"),
}
