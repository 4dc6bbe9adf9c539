"""The oracle of every pruning test: filters decided row by row, straight from Spark SQL's rules.

It shares no code with binding or evaluation, and knows nothing of statistics. Rows hold values in their type's order
(see ``lamella.snapshot.schema.types``): unscaled decimals, days, microseconds, bytes. Terms are computed by
``support.term_oracle``, with ANSI mode and without: a row that matches in either has to be read.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from lamella.snapshot.expression import nodes as n
from lamella.snapshot.schema import DataType, Schema
from support import calendar_oracle as calendar
from support.calendar_oracle import Undecided
from support.term_oracle import DOUBLE, Fails, Row, TermOracle, wider

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

#: Spark refuses to compute the row in ANSI mode.
FAILS: Final = "fails"
#: Python cannot say what Spark would give.
UNDECIDED: Final = "undecided"
Result = bool | str | None


class Oracle:
    """Decides filters over rows of one schema, in a session of that time zone."""

    def __init__(self, schema: Schema, time_zone: str = "UTC") -> None:
        self._types = {leaf.name: leaf.dtype for leaf in schema.leaves()}
        self.terms = TermOracle(self._types, time_zone)
        self.terms.decide = self.result

    def decide(self, predicate: n.Predicate, row: Row) -> bool | None:
        """True, False or None (SQL's null); without ANSI mode, for filters that Python can decide."""
        result = self.result(predicate, row, ansi=False)
        assert result is None or isinstance(result, bool), f"the oracle cannot decide {predicate} over {row}"
        return result

    def may_match(self, predicate: n.Predicate, row: Row) -> bool:
        """True when the row matches in ANSI mode or without it, so that it must be read."""
        return any(self.result(predicate, row, ansi=ansi) is True for ansi in (False, True))

    def may_not_match(self, predicate: n.Predicate, row: Row) -> bool:
        """True when the row fails or does not match, in ANSI mode or without it: a block of it is not ALL."""
        return any(self.result(predicate, row, ansi=ansi) not in (True, UNDECIDED) for ansi in (False, True))

    def may_fail(self, predicate: n.Predicate, row: Row) -> bool:
        """True when a part of the filter may fail in ANSI mode, so that Spark may or may not run into it."""
        if isinstance(predicate, n.And | n.Or):
            return any(self.may_fail(child, row) for child in predicate.children)
        if isinstance(predicate, n.Not | n.IsTrue | n.IsUnknown):
            return self.may_fail(predicate.child, row)
        return self.result(predicate, row, ansi=True) in (FAILS, UNDECIDED)

    def result(self, predicate: n.Predicate, row: Row, *, ansi: bool) -> Result:
        """True, False, None (SQL's null), FAILS, or UNDECIDED."""
        match predicate:
            case n.Constant(value):
                return value
            case n.And(children):
                return _conjunction([self.result(child, row, ansi=ansi) for child in children])
            case n.Or(children):
                return _negated(_conjunction([_negated(self.result(child, row, ansi=ansi)) for child in children]))
            case n.Not(child):
                return _negated(self.result(child, row, ansi=ansi))
            case n.IsTrue(child):
                result = self.result(child, row, ansi=ansi)
                return result if isinstance(result, str) else result is True
            case n.IsUnknown(child):
                result = self.result(child, row, ansi=ansi)
                return result if isinstance(result, str) else result is None
        try:
            return self._of_terms(predicate, row, ansi)
        except Fails:
            return FAILS
        except Undecided:
            return UNDECIDED

    def _of_terms(self, predicate: n.Predicate, row: Row, ansi: bool) -> bool | None:
        if isinstance(predicate, n.Compare):
            return self._compare(predicate.op, predicate.left, predicate.right, row, ansi)
        if isinstance(predicate, n.NullSafeEqual):
            left, right = (self.terms.value(term, row, ansi=ansi) for term in (predicate.left, predicate.right))
            if left is None or right is None:
                return left is None and right is None
            return self._compare("eq", predicate.left, predicate.right, row, ansi)
        assert isinstance(predicate, n.IsNull | n.IsNan | n.Truth | n.In | n.StartsWith | n.Like)
        value = self.terms.value(predicate.term, row, ansi=ansi)
        match predicate:
            case n.IsNull():
                return value is None
            case n.IsNan():
                return isinstance(value, float) and math.isnan(value)
            case n.Truth():
                return None if value is None else bool(value)
            case n.In(term, literals):
                results = [self._compare("eq", term, literal, row, ansi) for literal in literals]
                return True if True in results else None if None in results else False
            case n.StartsWith(_, prefix):
                return None if value is None else value.startswith(str(prefix.value).encode())
            case n.Like(_, pattern, escape):
                return None if value is None else _like(value.decode(), pattern, escape)
        raise AssertionError(f"the oracle cannot decide {predicate}")

    def _compare(self, op: str, left: n.Term, right: n.Term, row: Row, ansi: bool) -> bool | None:
        if not isinstance(right, n.Literal):
            return self._pair(op, left, right, row, ansi)
        if isinstance(left, n.Ref):
            value, dtype = row[left.path], self._types[left.path]
        else:
            value, dtype = self.terms.value(left, row, ansi=ansi), self.terms.type_of(left)
        beyond = _beyond_long(op, dtype, right)
        if beyond is not None:
            return beyond
        if value is None or right.kind == "null":
            return None
        one, other = self._beside(value, dtype, right)
        return bool(_OPERATORS[op](one, other))

    def _pair(self, op: str, left: n.Term, right: n.Term, row: Row, ansi: bool) -> bool | None:
        types = [self.terms.type_of(term) for term in (left, right)]
        wanted = wider(*types)
        values = [self.terms.value(term, row, ansi=ansi) for term in (left, right)]
        if None in values:
            return None
        one, other = (self.terms.cast(v, t, wanted, ansi=ansi) for v, t in zip(values, types, strict=True))
        if wanted.is_float:
            if wanted != DOUBLE and types[0] != types[1]:
                raise Undecided
            one, other = _total(one), _total(other)
        return bool(_OPERATORS[op](one, other))

    def _beside(self, value: Any, dtype: DataType, literal: n.Literal) -> tuple[Any, Any]:
        """Both sides in one comparable domain, as Spark's casts would bring them there."""
        given, zone = literal.value, self.terms.zone
        if isinstance(value, bytes):
            return value, given if isinstance(given, bytes) else str(given).encode()
        if dtype.name == "boolean":
            return bool(value), given
        if dtype.name == "date":
            if literal.kind == "timestamp":
                return calendar.midnight_of(value, zone), given
            if literal.kind == "timestamp_ntz":
                return value * calendar.DAY_US, given
            days = given if literal.kind == "date" else (dt.date.fromisoformat(str(given)) - dt.date(1970, 1, 1)).days
            return value, days
        if dtype.name in ("timestamp", "timestamp_ntz"):
            return Fraction(value * 10**6, _PER_SECOND[dtype.unit]), Fraction(self._moment(literal, dtype))
        if dtype.is_float:
            number = float(given or 0) if literal.kind == "double" else float(Decimal(str(given)))
            return _total(float(value)), _total(number)
        exact = Fraction(value, 10**dtype.scale)
        if literal.kind in ("double", "float"):
            return _total(float(exact)), _total(float(given if given is not None else 0.0))
        return exact, Fraction(Decimal(str(given)))

    def _moment(self, literal: n.Literal, dtype: DataType) -> int:
        """A literal as a timestamp of the other side's kind."""
        given, zone = literal.value, self.terms.zone
        if literal.kind == "date":
            assert isinstance(given, int)
            return calendar.midnight_of(given, zone) if dtype.name == "timestamp" else given * calendar.DAY_US
        if literal.kind in ("string", "text"):
            at = dt.datetime.fromisoformat(str(given)) - _EPOCH
            wall = (at.days * 86_400 + at.seconds) * 10**6 + at.microseconds
            return calendar.instant_of(wall, zone) if dtype.name == "timestamp" else wall
        if literal.kind != dtype.name and zone is not dt.UTC:
            raise Undecided
        return int(given or 0)


def _conjunction(results: list[Result]) -> Result:
    """SQL's AND; a part that fails matters only where no other part is false."""
    for decisive in (False, FAILS, UNDECIDED, None):
        if any(result is decisive or result == decisive for result in results if type(result) is type(decisive)):
            return decisive
    return True


def _negated(result: Result) -> Result:
    return result if result is None or isinstance(result, str) else not result


def _beyond_long(op: str, dtype: DataType, literal: n.Literal) -> bool | None:
    """Spark 4.3 folds an order comparison of an integer with a decimal beyond 64 bits to a constant, also for null."""
    integral = dtype.is_integer and dtype.name != "uint64"
    if not integral or op in ("eq", "ne") or literal.kind not in ("integer", "decimal"):
        return None
    number = Fraction(Decimal(str(literal.value)))
    if number > 2**63 - 1:
        return op in ("lt", "le")
    return op in ("gt", "ge") if number < -(2**63) else None


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
