"""The oracle of every pruning test: filters decided row by row, straight from Spark SQL's rules.

It shares no code with binding or evaluation, and knows nothing of statistics. Rows hold values in their type's order
(see ``lamella.snapshot.schema.types``): unscaled decimals, days, microseconds, bytes.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import DataType, Schema

Row = Mapping[str, Any]
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # wall clock on purpose
_OPERATORS = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


class Oracle:
    """Decides filters over rows of one schema; UTC is the session's time zone."""

    def __init__(self, schema: Schema) -> None:
        self._types = {leaf.name: leaf.dtype for leaf in schema.leaves()}

    def decide(self, predicate: n.Predicate, row: Row) -> bool | None:
        """True, False or None (SQL's null)."""
        match predicate:
            case n.Constant(value):
                return value
            case n.And(children):
                results = [self.decide(child, row) for child in children]
                return False if False in results else None if None in results else True
            case n.Or(children):
                results = [self.decide(child, row) for child in children]
                return True if True in results else None if None in results else False
            case n.Not(child):
                result = self.decide(child, row)
                return None if result is None else not result
            case n.IsTrue(child):
                return self.decide(child, row) is True
            case n.IsNull(ref):
                return row[ref.path] is None
            case n.IsNan(ref):
                value = row[ref.path]
                return isinstance(value, float) and math.isnan(value)
            case n.Truth(ref):
                return None if row[ref.path] is None else bool(row[ref.path])
            case n.Compare(op, ref, literal):
                return self._compare(op, ref.path, literal, row)
            case n.NullSafeEqual(ref, literal):
                if row[ref.path] is None or literal.kind == "null":
                    return row[ref.path] is None and literal.kind == "null"
                return self._compare("eq", ref.path, literal, row)
            case n.In(ref, literals):
                results = [self._compare("eq", ref.path, literal, row) for literal in literals]
                return True if True in results else None if None in results else False
            case n.StartsWith(ref, prefix):
                value = row[ref.path]
                return None if value is None else value.startswith(str(prefix.value).encode())
            case n.Like(ref, pattern, escape):
                value = row[ref.path]
                return None if value is None else _like(value.decode(), pattern, escape)
        raise AssertionError(f"the oracle cannot decide {predicate}")

    def _compare(self, op: str, path: str, literal: n.Literal, row: Row) -> bool | None:
        value = row[path]
        beyond = _beyond_long(op, self._types[path], literal)
        if beyond is not None:
            return beyond
        if value is None or literal.kind == "null":
            return None
        left, right = _pair(value, self._types[path], literal)
        return bool(_OPERATORS[op](left, right))


def _beyond_long(op: str, dtype: DataType, literal: n.Literal) -> bool | None:
    """Spark 4.3 folds an order comparison of an integer with a decimal beyond 64 bits to a constant, also for null."""
    integral = dtype.is_integer and dtype.name != "uint64"
    if not integral or op in ("eq", "ne") or literal.kind not in ("integer", "decimal"):
        return None
    number = Fraction(Decimal(str(literal.value)))
    if number > 2**63 - 1:
        return op in ("lt", "le")
    return op in ("gt", "ge") if number < -(2**63) else None


def _pair(value: Any, dtype: DataType, literal: n.Literal) -> tuple[Any, Any]:
    """Both sides in one comparable domain, as Spark's casts would bring them there."""
    given = literal.value
    if isinstance(value, bytes):
        return value, given if isinstance(given, bytes) else str(given).encode()
    if dtype.name == "boolean":
        return bool(value), given
    if dtype.name == "date":
        if literal.kind in ("timestamp", "timestamp_ntz"):
            return value * 86_400_000_000, given
        days = given if literal.kind == "date" else (dt.date.fromisoformat(str(given)) - dt.date(1970, 1, 1)).days
        return value, days
    if dtype.name in ("timestamp", "timestamp_ntz"):
        micros = Fraction(value * 10**6, _PER_SECOND[dtype.unit])
        if literal.kind == "date":
            return micros, Fraction(int(given or 0) * 86_400_000_000)
        if literal.kind in ("string", "text"):
            at = dt.datetime.fromisoformat(str(given)) - _EPOCH
            return micros, Fraction((at.days * 86_400 + at.seconds) * 10**6 + at.microseconds)
        return micros, Fraction(int(given or 0))
    if dtype.is_float:
        number = float(given or 0) if literal.kind == "double" else float(Decimal(str(given)))
        return _total(float(value)), _total(number)
    exact = Fraction(value, 10**dtype.scale)
    if literal.kind in ("double", "float"):
        return _total(float(exact)), _total(float(given if given is not None else 0.0))
    return exact, Fraction(Decimal(str(given)))


def _total(number: float) -> tuple[bool, float]:
    """Spark's order of doubles: NaN equals itself and is greatest; -0.0 equals 0.0."""
    return (True, 0.0) if math.isnan(number) else (False, number + 0.0)


def _like(text: str, pattern: str, escape: str) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == escape and escape:
        return bool(text) and bool(rest) and text[0] == rest[0] and _like(text[1:], rest[1:], escape)
    if head == "%":
        return any(_like(text[i:], rest, escape) for i in range(len(text) + 1))
    return bool(text) and head in ("_", text[0]) and _like(text[1:], rest, escape)
