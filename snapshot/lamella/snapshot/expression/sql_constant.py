"""Constants of SQL text: which value a literal or a cast of one stands for, if that is certain."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from lamella.snapshot.expression import moments
from lamella.snapshot.expression.nodes import Literal

_INTEGER_TYPES: Final = {
    exp.DType.TINYINT: 8,
    exp.DType.SMALLINT: 16,
    exp.DType.INT: 32,
    exp.DType.BIGINT: 64,
}
_MAX_NUMBER_CHARACTERS: Final = 64
# What Java and Python both read as the same number: no underscores, no digits of other scripts.
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,6})?", re.ASCII | re.IGNORECASE)
_SPECIAL: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def bare(node: exp.Expr) -> exp.Expr:
    """What stands inside parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def constant(node: exp.Expr, time_zone: str) -> Literal | None:
    """The constant that a node stands for; None when it is none, or one whose value is not certain."""
    sign = ""
    while isinstance(node, exp.Neg | exp.Paren):
        if isinstance(node, exp.Neg):
            if sign:  # the inner one overflows for a type's smallest number, and may wrap around
                return None
            sign = "-"
        node = node.this
    if isinstance(node, exp.Literal):
        if node.is_string:
            return None if sign or not moments.is_unicode(node.this) else Literal("string", node.this)
        return number(sign + node.this)
    if sign and not isinstance(node, exp.Cast):
        return None
    if isinstance(node, exp.Null):
        return Literal("null")
    if isinstance(node, exp.Boolean):
        return Literal("boolean", bool(node.this))
    if isinstance(node, exp.HexString):
        return _hex(node.this)
    if isinstance(node, exp.RawString):
        return Literal("string", node.this)
    if isinstance(node, exp.Cast):  # TryCast is one; typed literals (5L, DATE '...') arrive as casts
        return _cast(node, sign, time_zone)
    return None


def _cast(node: exp.Cast, sign: str, time_zone: str) -> Literal | None:
    inner, target = bare(node.this), node.to.this
    if not isinstance(inner, exp.Literal) or node.args.get("format"):
        return None
    text = inner.this
    if target in _INTEGER_TYPES and not inner.is_string:
        literal = number(sign + text)
        limit = 1 << (_INTEGER_TYPES[target] - 1)
        inside = literal is not None and isinstance(literal.value, int) and -limit <= literal.value < limit
        return literal if inside else None
    if target in (exp.DType.DOUBLE, exp.DType.FLOAT):
        return _float(sign, text, single=target is exp.DType.FLOAT)
    if target is exp.DType.DECIMAL:
        return _decimal_cast(sign + text, node.to)
    if sign or not inner.is_string:
        return None
    if target in (exp.DType.DATE, exp.DType.DATE32):
        days = moments.date_days(text)
        return None if days is None else Literal("date", days)
    if target in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ):
        micros = moments.instant_us(text, time_zone)
        return None if micros is None else Literal("timestamp", micros)
    if target is exp.DType.TIMESTAMPNTZ:
        micros = moments.wall_us(text)
        return None if micros is None else Literal("timestamp_ntz", micros)
    return None


def number(text: str) -> Literal | None:
    """The constant that an unquoted number without a suffix is in Spark; None for what no type of Spark holds."""
    if len(text) > _MAX_NUMBER_CHARACTERS:  # more digits than any decimal has are an error in Spark
        return None
    lowered = text.lower()
    try:
        if "e" in lowered:  # Spark: a number with an exponent is a double
            return Literal("double", float(lowered))
        if "." in lowered:
            return Literal("decimal", str(Decimal(lowered)))
        return Literal("integer", int(lowered))
    except (ValueError, InvalidOperation):
        return None


def _float(sign: str, text: str, *, single: bool) -> Literal | None:
    spelled = sign + text.strip(" ")
    if not (_NUMBER.fullmatch(spelled) or _SPECIAL.fullmatch(spelled)):
        return None
    value = float(spelled)
    if not single:
        return Literal("double", value)
    if moments.is_between_singles(value):  # rounding twice may not be rounding once
        return None
    return Literal("float", moments.single(value))


def _decimal_cast(text: str, target: exp.DataType) -> Literal | None:
    spelled = text.strip(" ")
    if not _NUMBER.fullmatch(spelled):
        return None
    try:
        value = Decimal(spelled)
        precision, scale = (int(part.this.this) for part in target.expressions)
    except (ValueError, InvalidOperation, AttributeError):
        return None
    digits, exponent = value.as_tuple().digits, value.as_tuple().exponent
    fits = isinstance(exponent, int) and -exponent <= scale and len(digits) + exponent <= precision - scale
    return Literal("decimal", str(value)) if fits else None  # a cast that rounds is left alone


def _hex(text: str) -> Literal | None:
    try:
        return Literal("binary", bytes.fromhex(text if len(text) % 2 == 0 else "0" + text))
    except ValueError:
        return None
