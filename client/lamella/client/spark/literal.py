"""Spark values as typed literals of the filter language: exact, or refused."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Decimal
from typing import Any, Final

from lamella.snapshot.schema import DataType
from lamella.snapshot.schema.spark_types import spark_type_name

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_MAX_DIGITS: Final = 38
# Dates and times whose text is unambiguous.
_TIME_TEXT: Final = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,6})?)?")


class Inexpressible(Exception):
    """A part of a filter has no exact form; ``str()`` is the reason. Never leaves this package."""


def typed_literal(kind: str, value: Any) -> dict[str, Any]:
    """Return a literal of the filter language."""
    return {"type": "literal", "data-type": kind, "value": value}


NULL: Final = typed_literal("null", None)
TRUE: Final[dict[str, Any]] = {"type": "true"}
FALSE: Final[dict[str, Any]] = {"type": "false"}


def unknown(text: str, reason: str) -> dict[str, Any]:
    """Return a node that keeps every block and is reported as not used."""
    return {"type": "unknown", "text": text[:200], "reason": reason}


def literal(column: DataType, spark_type: str, value: Any) -> dict[str, Any]:
    """Return the literal for a comparison of a column with a value of ``spark_type`` (Spark's JSON name).

    ``value``: Spark's own form or its text: days for ``date``, microseconds for ``timestamp`` (UTC) and
    ``timestamp_ntz``, a number or its shortest text for the others, ``bytes`` for ``binary``.

    Raises:
        Inexpressible: column and value have different types in Spark, so that Spark casts one of them.
    """
    expected = spark_type_name(column)
    base = spark_type.partition("(")[0]
    if expected is None or expected.partition("(")[0] != base:
        raise Inexpressible(f"a column of type {column} compared with a value of type {spark_type}")
    if value is None:
        return NULL
    if base == "boolean":
        return typed_literal("boolean", value if isinstance(value, bool) else value == "true")
    if base in _INTEGERS:
        return typed_literal("long", int(value))
    if base == "float":
        return _double(_as_float32(float(value)))
    if base == "double":
        return _double(float(value))
    if base == "decimal":
        return typed_literal("decimal", format(Decimal(str(value)), "f"))
    if base in ("date", "timestamp", "timestamp_ntz"):
        return typed_literal(base, int(value))
    if base == "string":
        text = str(value)
        if "\ufffd" in text:  # Java's replacement for bytes that are not UTF-8
            raise Inexpressible("a string that may not be valid UTF-8")
        return typed_literal("string", text)
    if base == "binary":
        return typed_literal("binary", bytes(value).hex())
    raise Inexpressible(f"values of type {spark_type}")


def cross_type_literal(column: DataType, spark_type: str, value: Any) -> dict[str, Any]:
    """Return the literal for a comparison that Spark has not analysed yet, so that it may still cast the column or the
    value.

    ``value``: see :func:`literal`. Casts that Spark would do exactly are done here; others have no exact form.

    Raises:
        Inexpressible: the cast may round, or depends on settings.
    """
    base = spark_type.partition("(")[0]
    if value is None:
        return NULL
    if base in _INTEGERS:
        if column.is_integer:
            return typed_literal("long", int(value))
        if column.name == "decimal" and max(column.precision - column.scale, 20) + column.scale <= _MAX_DIGITS:
            return typed_literal("long", int(value))
        if column.is_float and abs(int(value)) <= (1 << 24 if column.bits < 64 else 1 << 53):
            return typed_literal("double", float(value))
    elif base == "double":
        if column.is_float or (column.is_integer and abs(float(value)) < (1 << 53)):
            return _double(float(value))
    elif base == "decimal":
        number = Decimal(str(value))
        if column.name == "decimal" and number.is_finite():
            _, digits, exponent = number.as_tuple()
            scale = max(0, -int(exponent))
            whole = max(len(digits) + int(exponent), 10)
            if max(column.precision - column.scale, whole) + max(column.scale, scale) <= _MAX_DIGITS:
                return typed_literal("decimal", format(number, "f"))
    elif base == "string" and column.name in ("date", "timestamp", "timestamp_ntz"):
        if _TIME_TEXT.fullmatch(str(value)) and _is_time(str(value)):
            return typed_literal("string", str(value))
    elif spark_type_name(column) == base:
        return literal(column, spark_type, value)
    raise Inexpressible(f"Spark may cast: a column of type {column} compared with a value of type {spark_type}")


def _is_time(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _double(number: float) -> dict[str, Any]:
    if math.isnan(number):
        return typed_literal("double", "NaN")
    if math.isinf(number):
        return typed_literal("double", "Infinity" if number > 0 else "-Infinity")
    return typed_literal("double", number)


def _as_float32(number: float) -> float:
    # Java prints 0.1f as "0.1"; the compared value is the nearest float.
    if math.isnan(number) or math.isinf(number):
        return number
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)
