"""Converts literals to a column's own order, exactly or not at all.

The rules are those of Spark SQL's casts, resolved at bind time: an exact answer becomes a value (possibly with another
operator: ``int_column > 4.5`` is ``int_column > 4``); what Spark would decide row by row, or by a lossy cast, is
:class:`Unusable`; what no engine could compare is a ``FilterTypeMismatch``.
"""

from __future__ import annotations

import math
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from lamella.snapshot.errors import FilterTypeMismatch
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.nodes import Literal
from lamella.snapshot.expression.text import literal_text
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.schema.types import PER_SECOND

_DAY_US: Final = 86_400_000_000
_EXACT_DOUBLE: Final = 1 << 53
_EXACT_SINGLE: Final = 1 << 24
#: Digits of Spark's widest decimal.
MAX_DIGITS: Final = 38
#: Digits of the decimal to which Spark converts an integer type, by its bits.
DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_SPELLED: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_SPELLED_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,6})?", re.ASCII | re.IGNORECASE)
_FAMILIES: Final = {
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "moment"),
    **{"boolean": "boolean", "time": "time", "binary": "binary"},
}
_LITERAL_FAMILIES: Final = {
    **dict.fromkeys(("integer", "decimal", "double", "float"), "number"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "moment"),
    **{"boolean": "boolean", "binary": "binary"},
}
#: The words that Spark casts to a boolean, and those without digits that it casts to a number.
_TRUTHS: Final = frozenset({"t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"})
_NO_DIGITS: Final = frozenset({"nan", "inf", "infinity"})


class Target(Protocol):
    """The operand that a literal is compared with: a column, or a function of columns."""

    @property
    def dtype(self) -> DataType:
        """Returns the operand's type."""

    @property
    def name(self) -> str:
        """Returns the operand's text, for messages."""


class Point(msgspec.Struct, frozen=True):
    """An exact position on the column's number line; a fraction lies between two values of the column."""

    value: int | float | bytes | Fraction


class Unusable(msgspec.Struct, frozen=True):
    """The literal cannot be compared exactly, with the reason."""

    reason: str


def coerce(literal: Literal, leaf: Target, time_zone: str) -> Point | Unusable:
    """Returns the position of ``literal`` (not null) among the column's values.

    Raises:
        FilterTypeMismatch: the two can never be compared.
    """
    dtype = leaf.dtype
    if literal.kind == dtype.name and dtype.unit == "us" and isinstance(literal.value, int):
        return Point(int(literal.value))  # a boolean, a day or a time of the column's own type
    if dtype.is_integer:
        if literal.kind == "integer" and isinstance(literal.value, int):
            return Point(literal.value)
        return _number(literal, leaf)
    if dtype.is_text:
        return _text(literal, leaf)
    if dtype.order is None:
        return Unusable(f"values of type {dtype} have no order")
    if dtype.is_float:
        return _float(literal, leaf)
    match dtype.name:
        case "decimal":
            return _number(literal, leaf)
        case "date":
            return _date(literal, leaf, time_zone)
        case "timestamp" | "timestamp_ntz":
            return _timestamp(literal, leaf, time_zone)
        case "time":
            return _time(literal, leaf)
        case "boolean":
            return _boolean(literal, leaf)
        case _:
            return _binary(literal, leaf)


@lru_cache(maxsize=256)
def family(dtype: DataType) -> str | None:
    """Returns the family of types that Spark compares with each other and with text. None: unknown."""
    if dtype.is_integer or dtype.is_float or dtype.name == "decimal":
        return "number"
    if dtype.is_text:
        return "text"
    return _FAMILIES.get(dtype.name)


def are_comparable(left: str | None, right: str | None) -> bool:
    """Returns False for two families that Spark refuses to compare."""
    return left is None or right is None or left == right or "text" in (left, right)


def check_comparable(literal: Literal, leaf: Target) -> None:
    """Raise FilterTypeMismatch for a literal that Spark never compares with a value of the type."""
    known = family(leaf.dtype)
    if not are_comparable(known, _LITERAL_FAMILIES.get(literal.kind)):
        raise _mismatch(literal, leaf)
    if literal.kind == "string" and known not in (None, "text", "binary"):
        word = str(literal.value).strip().lower()
        if (
            (known == "boolean" and word not in _TRUTHS)
            or (known == "number" and not _has_digits(literal) and word.lstrip("+-") not in _NO_DIGITS)
            or (
                known in ("moment", "time")
                and spark_casts.is_impossible(str(literal.value), _kind_of_moment(leaf.dtype))
            )
        ):
            raise _mismatch(literal, leaf)


def _kind_of_moment(dtype: DataType) -> str:
    return dtype.name.removesuffix("_ntz")


def _mismatch(literal: Literal, leaf: Target) -> FilterTypeMismatch:
    return FilterTypeMismatch(
        f"column {leaf.name!r} of type {leaf.dtype} cannot be compared with {literal_text(literal)}",
        column=leaf.name,
        type=str(leaf.dtype),
        literal=literal_text(literal),
    )


def _boolean(literal: Literal, leaf: Target) -> Point | Unusable:
    if literal.kind == "boolean":
        return Point(int(bool(literal.value)))
    if literal.kind in ("string", "text"):
        words = {"true": 1, "false": 0}
        word = str(literal.value).strip(" ").lower()  # Spark keeps other blanks, such as NBSP
        if word in words:
            return Point(words[word])
        if literal.kind == "string":
            return Unusable("this spelling of a boolean is not supported")
    raise _mismatch(literal, leaf)


def _ratio(literal: Literal) -> tuple[int, int] | None:
    """Returns the number that an integer or decimal literal spells, as numerator and denominator."""
    if literal.kind == "integer" and isinstance(literal.value, int):
        return literal.value, 1
    if literal.kind == "decimal" and isinstance(literal.value, str):
        return Decimal(literal.value).as_integer_ratio()
    return None


def is_beyond_long(literal: Literal) -> bool:
    """Returns whether an integer or decimal is outside of the range of 64-bit integers."""
    ratio = _ratio(literal)
    return ratio is not None and not -(1 << 63) * ratio[1] <= ratio[0] <= ((1 << 63) - 1) * ratio[1]


def _number(literal: Literal, leaf: Target) -> Point | Unusable:
    decimal = leaf.dtype.name == "decimal"
    ratio = _ratio(literal)
    if ratio is not None:
        if (decimal or literal.kind == "decimal") and sum(common_digits(literal, leaf)) > MAX_DIGITS:
            return Unusable("Spark rounds the two to a common decimal type of 38 digits")
        return _quotient(ratio[0] * 10**leaf.dtype.scale, ratio[1])
    if literal.kind in ("double", "float"):
        value = float(literal.value or 0.0)
        if literal.kind == "float" and leaf.dtype.is_integer and leaf.dtype.bits > 16 and abs(value) >= _EXACT_SINGLE:
            return Unusable("without ANSI, Spark compares an integer with a FLOAT in single precision")
        return _number_by_double(value, leaf)
    if literal.kind in ("string", "text"):
        if literal.kind == "string" and (decimal or leaf.dtype.name == "uint64"):  # Spark's decimal(20,0)
            return Unusable("Spark compares a decimal with text as doubles")
        number = _spelled(str(literal.value).strip(" "))
        if literal.kind == "text":
            if number is None or (not decimal and number.denominator != 1):
                raise _mismatch(literal, leaf)
            return _scaled(number, leaf)
        low, high = leaf.dtype.int_range
        if number is not None and number.denominator == 1 and low <= number <= high:
            return _scaled(number, leaf)
        if not _has_digits(literal):
            raise _mismatch(literal, leaf)
        return Unusable("how text that is not a whole number of the column's type is cast depends on Spark's settings")
    raise _mismatch(literal, leaf)


def common_digits(literal: Literal, leaf: Target) -> tuple[int, int]:
    """Returns the digits before and after the point of the decimal type that represents a column's values and a number
    exactly.

    A number has its ``type``, or else that of its digits. Spark has no more than :data:`MAX_DIGITS` of both together:
    it rounds, or gives null.
    """
    if literal.type:
        dtype = parse_type(literal.type)
        whole, scale = (DIGITS[dtype.bits], 0) if dtype.is_integer else (dtype.precision - dtype.scale, dtype.scale)
    elif isinstance(literal.value, int):
        whole, scale = len(str(abs(literal.value))), 0
    else:
        parts = Decimal(str(literal.value)).as_tuple()
        digits, exponent = len(parts.digits), parts.exponent if isinstance(parts.exponent, int) else 0
        whole, scale = digits + exponent, -exponent
    column_digits = leaf.dtype.precision - leaf.dtype.scale if leaf.dtype.name == "decimal" else DIGITS[64]
    return max(whole, column_digits), max(scale, leaf.dtype.scale)


def _spelled(text: str) -> Fraction | None:
    return Fraction(Decimal(text)) if len(text) <= 128 and _SPELLED.fullmatch(text) else None


def _has_digits(literal: Literal) -> bool:
    return any(character.isdigit() for character in str(literal.value))


def _scaled(number: Fraction, leaf: Target) -> Point:
    return _quotient(number.numerator * 10**leaf.dtype.scale, number.denominator)


def _quotient(numerator: int, denominator: int) -> Point:
    """Returns the position of a quotient, a whole number if it is one."""
    whole, rest = divmod(numerator, denominator)
    return Point(Fraction(numerator, denominator) if rest else whole)


def _number_by_double(value: float, leaf: Target) -> Point | Unusable:
    """Compares as doubles, like Spark; that is exact for integers up to 2^53, and for literals below it."""
    if leaf.dtype.name == "decimal":
        return Unusable("Spark compares a decimal with a double as doubles; spell the number without exponent")
    if math.isinf(value) or math.isnan(value):
        return Point(value)
    if leaf.dtype.bits == 64 and abs(value) >= _EXACT_DOUBLE:
        return Unusable("64-bit integers lose digits when compared with a double this large")
    exact = Fraction(value)
    return Point(exact.numerator if exact.denominator == 1 else exact)


def _float(literal: Literal, leaf: Target) -> Point | Unusable:
    narrow = leaf.dtype.bits < 64
    ratio = _ratio(literal)
    if ratio is not None:
        try:
            value = ratio[0] / ratio[1]
        except OverflowError:
            return Unusable("the number is too large for a double")
        if literal.kind == "integer" and narrow and spark_casts.single(value) != ratio[0]:
            return Unusable("Spark may round this integer to single precision")
        return Point(value)
    if literal.kind in ("double", "float"):
        value = float(literal.value if literal.value is not None else math.nan)
        # A JSON number is a double in Spark and single precision in Iceberg: it is used where both agree.
        if narrow and literal.kind == "double" and value == value and spark_casts.single(value) != value:
            return Unusable("the number is not exact in single precision, and readers differ on rounding it")
        return Point(value)
    if literal.kind in ("string", "text"):
        text = str(literal.value).strip(" ")
        if not _SPELLED_FLOAT.fullmatch(text):
            if _has_digits(literal) or text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                return Unusable("this spelling of a number can be read in different ways")
            raise _mismatch(literal, leaf)
        value = float(text)
        if math.isinf(value) or (narrow and spark_casts.single(value) != value):
            return Unusable("text is cast to a number row by row")
        return Point(value)
    raise _mismatch(literal, leaf)


def _date(literal: Literal, leaf: Target, time_zone: str) -> Point | Unusable:
    if literal.kind == "date" and isinstance(literal.value, int):
        return Point(literal.value)
    if literal.kind in ("string", "text"):
        days = spark_casts.date_days(str(literal.value))
        return _unread_time(literal, leaf) if days is None else Point(days)
    if literal.kind in ("timestamp", "timestamp_ntz") and isinstance(literal.value, int):
        # Spark casts the date to midnight of the session's zone
        if literal.kind == "timestamp" and not spark_casts.is_utc(time_zone):
            return Unusable("a date compared with a timestamp depends on the time zone's transitions")
        return _quotient(literal.value, _DAY_US)
    raise _mismatch(literal, leaf)


def _timestamp(literal: Literal, leaf: Target, time_zone: str) -> Point | Unusable:
    instant = leaf.dtype.name == "timestamp"
    if literal.kind in ("string", "text"):
        text = str(literal.value)
        micros = spark_casts.instant_us(text, time_zone) if instant else spark_casts.wall_us(text)
        if micros is None:
            return _unread_time(literal, leaf)
        if leaf.dtype.unit == "ns" and spark_casts.is_finer_than_us(text):
            return Unusable("Spark truncates times to microseconds, other readers do not")
        return _in_unit(micros, leaf)
    if literal.kind == "date" and isinstance(literal.value, int):
        wall = literal.value * _DAY_US
        at = spark_casts.midnight_us(literal.value, time_zone) if instant else wall
        return (
            Unusable("the date is outside the years 1 to 9999, or has no midnight because of a clock change")
            if at is None
            else _in_unit(at, leaf)
        )
    if literal.kind in ("timestamp", "timestamp_ntz") and isinstance(literal.value, int):
        same = (literal.kind == "timestamp") == instant
        if not same and not spark_casts.is_utc(time_zone):
            return Unusable("the comparison of times with and without time zone depends on the time zone's transitions")
        return _in_unit(literal.value, leaf)
    raise _mismatch(literal, leaf)


def _unread_time(literal: Literal, leaf: Target) -> Unusable:
    """Returns the result for text that is not parsed as a date or time here, but may be by Spark; raises if it cannot
    be one."""
    if spark_casts.is_impossible(str(literal.value), _kind_of_moment(leaf.dtype)):
        raise _mismatch(literal, leaf)
    return Unusable("this spelling of a time can be read in different ways")


def _in_unit(micros: int, leaf: Target) -> Point:
    """Returns microseconds in the column's unit; between two milliseconds the result is a fraction."""
    return _quotient(micros * PER_SECOND[leaf.dtype.unit], 1_000_000)


def _time(literal: Literal, leaf: Target) -> Point | Unusable:
    if literal.kind in ("string", "text"):
        text = str(literal.value)
        micros = spark_casts.time_of_day_us(text)
        if micros is None:
            return _unread_time(literal, leaf)
        if leaf.dtype.unit == "ns" and spark_casts.is_finer_than_us(text):
            return Unusable("Spark truncates times to microseconds, other readers do not")
        return _in_unit(micros, leaf)
    raise _mismatch(literal, leaf)


def _text(literal: Literal, leaf: Target) -> Point | Unusable:
    if literal.kind in ("string", "text"):
        return Point(str(literal.value).encode("utf-8"))
    if literal.kind in ("integer", "decimal", "double", "float", "date", "timestamp", "timestamp_ntz", "boolean"):
        return Unusable(f"Spark casts text column {leaf.name} to the literal's type, row by row")
    return Unusable(f"Spark casts text column {leaf.name} to binary")


def _binary(literal: Literal, leaf: Target) -> Point | Unusable:
    if literal.kind == "binary" and isinstance(literal.value, bytes):
        return Point(literal.value)
    if literal.kind == "string":
        if leaf.dtype.name in ("uuid", "fixed"):
            return Unusable(f"readers differ in how they compare {leaf.dtype} with text")
        return Point(str(literal.value).encode("utf-8"))
    if literal.kind == "text":
        try:
            text = str(literal.value)
            return Point(uuid.UUID(text).bytes if leaf.dtype.name == "uuid" else bytes.fromhex(text))
        except ValueError:
            raise _mismatch(literal, leaf) from None
    raise _mismatch(literal, leaf)


def literal_of(dtype: DataType, value: int | float | bytes) -> Literal | None:
    """Returns a value of a type's order as a constant; None if it has no spelling."""
    if isinstance(value, bytes):
        return Literal("string", value.decode("utf-8", "replace")) if dtype.is_text else Literal("binary", value)
    if dtype.is_float:
        return Literal("double", float(value))
    whole = int(value)
    if dtype.name == "boolean":
        return Literal("boolean", bool(whole))
    if dtype.is_integer:
        return Literal("integer", whole)
    if dtype.name == "decimal":
        digits = str(abs(whole)).rjust(dtype.scale + 1, "0")
        text = f"{digits[: len(digits) - dtype.scale]}.{digits[len(digits) - dtype.scale :]}" if dtype.scale else digits
        return Literal("decimal", ("-" if whole < 0 else "") + text)
    if dtype.name == "date":
        return Literal("date", whole)
    if dtype.name in ("timestamp", "timestamp_ntz"):
        micros, rest = divmod(whole * 1_000_000, PER_SECOND[dtype.unit])
        if rest:
            return None  # constants have microseconds; another moment would select other rows
        return Literal("timestamp" if dtype.name == "timestamp" else "timestamp_ntz", micros)
    return None
