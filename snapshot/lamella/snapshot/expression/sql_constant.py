"""Constants of SQL text: which value a literal or a cast of one stands for, if that is certain."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from lamella.snapshot.expression import moments
from lamella.snapshot.expression.nodes import SUFFIXES, Cast, Literal
from lamella.snapshot.schema import parse_type

_INTEGER_TYPES: Final = {
    exp.DType.TINYINT: "int8",
    exp.DType.SMALLINT: "int16",
    exp.DType.INT: "int32",
    exp.DType.BIGINT: "int64",
}
_INT: Final = 1 << 31
_MAX_NUMBER_CHARACTERS: Final = 64
# What Java and Python both read as the same number: no underscores, no digits of other scripts.
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SUFFIXED: Final = re.compile(r"(-?[0-9.]+(?:e[+-]?[0-9]+)?)(BD|[DFLSY])", re.ASCII | re.IGNORECASE)
_SPECIAL: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def bare(node: exp.Expr) -> exp.Expr:
    """What stands inside parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


class ImpossibleLiteral(Exception):
    """A constant that Spark refuses, such as the thirteenth month; ``text`` is the quoted text or the number."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def constant(node: exp.Expr, time_zone: str) -> Literal | Cast | None:
    """The constant that a node stands for; None when it is none, or one whose value is not certain.

    Raises:
        ImpossibleLiteral: one that Spark refuses.
    """
    node = bare(node)
    if isinstance(node, exp.Neg):
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.this)  # one literal, minus sign and all
        found = None if isinstance(bare(inner), exp.Neg) else constant(inner, time_zone)
        return None if found is None else _negated(found)
    if isinstance(node, exp.Literal):
        if not node.is_string:
            return number(node.this)
        return Literal("string", node.this) if moments.is_unicode(node.this) else None
    if isinstance(node, exp.Null):
        return Literal("null")
    if isinstance(node, exp.Boolean):
        return Literal("boolean", bool(node.this))
    if isinstance(node, exp.HexString):
        return _hex(node.this)
    if isinstance(node, exp.RawString):
        return Literal("string", node.this)
    if isinstance(node, exp.Cast):  # TryCast is one; DATE '...' and the like arrive as casts
        return _cast(node, time_zone)
    return None


def _negated(found: Literal | Cast) -> Literal | Cast | None:
    """A minus before parentheses or a cast: the type stays, and its digits no longer count beside a decimal."""
    literal, target = (found.term, found.type) if isinstance(found, Cast) else (found, "")
    if not isinstance(literal, Literal):
        return None
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int):
        dtype = parse_type(target or literal.type or ("int32" if -_INT <= value < _INT else "int64"))
        low, high = dtype.int_range
        return Cast(Literal("integer", -value), dtype.name) if low <= -value <= high else None
    if literal.kind == "decimal":
        negative = Literal("decimal", str(Decimal(str(value)).copy_negate()))
        return Cast(negative, target) if target else negative
    if literal.kind in ("double", "float") and isinstance(value, float):
        return Literal(literal.kind, -value)
    return None


def _cast(node: exp.Cast, time_zone: str) -> Literal | Cast | None:
    inner, target = bare(node.this), node.to.this
    if node.args.get("format"):
        return None
    if target in _INTEGER_TYPES:
        return _integer_cast(constant(node.this, time_zone), _INTEGER_TYPES[target])
    negative = isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal) and not inner.this.is_string
    literal = inner.this if negative else inner
    if not isinstance(literal, exp.Literal):
        return None
    text = "-" + literal.this if negative else literal.this
    if target in (exp.DType.DOUBLE, exp.DType.FLOAT):
        return _float(text, single=target is exp.DType.FLOAT)
    if target is exp.DType.DECIMAL:
        return _decimal_cast(text, node.to)
    if not literal.is_string:
        return None
    found: Literal | None = None
    if target in (exp.DType.DATE, exp.DType.DATE32):
        days = moments.date_days(text)
        found = None if days is None else Literal("date", days)
    elif target in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ):
        micros = moments.instant_us(text, time_zone)
        found = None if micros is None else Literal("timestamp", micros)
    elif target is exp.DType.TIMESTAMPNTZ:
        micros = moments.wall_us(text)
        found = None if micros is None else Literal("timestamp_ntz", micros)
    else:
        return None
    kind = "date" if target in (exp.DType.DATE, exp.DType.DATE32) else "timestamp"
    if found is None and not node.args.get("safe") and moments.is_impossible(text, kind):
        raise ImpossibleLiteral(f"{text!r} is no {kind}", text)
    return found


def _integer_cast(inner: Literal | Cast | None, target: str) -> Cast | None:
    """A whole number in an integer type that has it."""
    literal = inner.term if isinstance(inner, Cast) else inner
    if not isinstance(literal, Literal) or literal.kind != "integer" or not isinstance(literal.value, int):
        return None
    low, high = parse_type(target).int_range
    return Cast(Literal("integer", literal.value), target) if low <= literal.value <= high else None


def number(text: str) -> Literal | None:
    """The constant that an unquoted number is in Spark, with its suffix; None for what no type of Spark holds.

    Raises:
        ImpossibleLiteral: it is beyond the type that its suffix names.
    """
    if len(text) > _MAX_NUMBER_CHARACTERS:  # more digits than any decimal has are an error in Spark
        return None
    suffixed = _SUFFIXED.fullmatch(text)
    if suffixed is not None:
        return _suffixed(suffixed[1], suffixed[2])
    lowered = text.lower()
    try:
        if "e" in lowered:  # Spark: a number with an exponent is a double
            return Literal("double", float(lowered))
        if "." in lowered:
            return Literal("decimal", str(Decimal(lowered)))
        return Literal("integer", int(lowered))
    except (ValueError, InvalidOperation):
        return None


def _suffixed(text: str, suffix: str) -> Literal | None:
    kind = suffix.upper()
    if kind in SUFFIXES:
        if not text.lstrip("-").isdecimal():
            return None
        value, dtype = int(text), parse_type(SUFFIXES[kind])
        if not dtype.int_range[0] <= value <= dtype.int_range[1]:
            written = text.lstrip("-") + suffix
            raise ImpossibleLiteral(f"{text}{suffix} is beyond the type that its suffix names", written)
        return Literal("integer", value, dtype.name)
    if kind in ("D", "F"):
        return _float(text, single=kind == "F")
    return Literal("decimal", str(Decimal(text))) if _NUMBER.fullmatch(text) else None


def _float(text: str, *, single: bool) -> Literal | None:
    spelled = text.strip(" ")
    if not (_NUMBER.fullmatch(spelled) or _SPECIAL.fullmatch(spelled)):
        return None
    value = float(spelled)
    if not single:
        return Literal("double", value)
    if moments.is_between_singles(value):  # rounding twice may not be rounding once
        return None
    return Literal("float", moments.single(value))


def _decimal_cast(text: str, target: exp.DataType) -> Cast | None:
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
    # a cast that rounds is left alone
    return Cast(Literal("decimal", str(value)), f"decimal({precision},{scale})") if fits else None


def _hex(text: str) -> Literal | None:
    try:
        return Literal("binary", bytes.fromhex(text if len(text) % 2 == 0 else "0" + text))
    except ValueError:
        return None
