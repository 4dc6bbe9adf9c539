"""One comparison of a recipient's hint, as a predicate that is true wherever any recipient may find it true.

A hint is a filter that the recipient applies itself to the rows that it gets: in Spark, in pandas, in a tool that
nobody here knows. They differ in which rows a comparison is true for, so a value stands for all that one of them may
take it for, and a comparison that is negated also for rows of which SQL knows nothing:

* pandas holds 64-bit integers beside nulls as doubles, which are exact up to 2**53;
* a 32-bit column is compared with a double, or with that double rounded to 32 bits;
* -0.0 equals 0.0, or is less (Java's order of doubles);
* instants are compared by the microsecond, or by the millisecond (JavaScript, Delta's statistics);
* text is ordered by bytes, or by units of UTF-16, which agree below U+D800;
* ``not (a = 1)`` holds for a null and for NaN in pandas, and not in SQL; ``isna`` takes NaN for null.

What a hint says of a column as another type is a cast, which may round, wrap or depend on a time zone: not used.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec
import numpy as np

from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.expression import nodes
from lamella.snapshot.expression.moments import date_days, instant_us, is_finer_than_us, is_unicode, single
from lamella.snapshot.expression.nodes import And, Compare, IsNan, IsNull, Not, Or, Predicate, Ref, Unknown
from lamella.snapshot.schema import DataType, Leaf, Schema

Operator = Literal["eq", "lt", "le", "gt", "ge"]

_OPPOSITE: Final[dict[Operator, nodes.Operator]] = {"eq": "ne", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_EXACT_IN_DOUBLE: Final = 1 << 53
#: Integers of 64 bits that are the same double are no further apart.
_DOUBLE_STEP: Final = 1 << 11
_MILLISECOND_US: Final = 1_000
_LONG: Final = (-(1 << 63), (1 << 63) - 1)
#: Below this code point, text has one order in UTF-8, UTF-16 and by code points.
_ONE_ORDER_BELOW: Final = "\ud800"


class Meant(msgspec.Struct, frozen=True):
    """All values that a recipient may take a literal for: from ``low`` to ``high``.

    ``has_order`` False: recipients agree on what equals it, and not on what is less.
    """

    low: nodes.Literal
    high: nodes.Literal
    is_exact: bool = True
    has_order: bool = True


def one_order(text: str) -> bool:
    """Whether every recipient finds the same texts less than this one."""
    return all(character < _ONE_ORDER_BELOW for character in text)


def integer(value: int, dtype: DataType) -> Meant | None:
    """What an integer stands for beside a column of integers; None: more than 64 bits."""
    if not _LONG[0] <= value <= _LONG[1]:
        return None
    slack = _DOUBLE_STEP if dtype.bits == 64 and abs(value) >= _EXACT_IN_DOUBLE else 0
    return _between("integer", value - slack, value + slack)


def real(value: float, dtype: DataType) -> Meant | None:
    """What a number stands for beside a column of floats; None: no number."""
    if not math.isfinite(value):
        return None
    low, high = (value, value) if dtype.bits == 64 else _singles_around(value)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    # Never exact: of two zeros one may be less, and whoever compares decimals has not rounded at all.
    return Meant(nodes.Literal("double", low), nodes.Literal("double", high), is_exact=False)


def text(value: str) -> Meant | None:
    """What text stands for beside a column of text; None: it is no Unicode."""
    if not is_unicode(value):
        return None
    literal = nodes.Literal("string", value)
    return Meant(literal, literal, has_order=one_order(value))


def date(value: str) -> Meant | None:
    """What ``2026-01-31`` stands for beside a column of dates."""
    days = date_days(value) if len(value) == 10 else None
    return None if days is None else _between("date", days, days)


def instant(value: str) -> Meant | None:
    """What a time with its zone stands for beside a column of instants; None without a zone, or finer than that."""
    has_zone = value.endswith("Z") or value[-6:-5] in ("+", "-")
    at = instant_us(value, "UTC") if has_zone and "T" in value and not is_finer_than_us(value) else None
    if at is None:
        return None
    return _between("timestamp", at - _MILLISECOND_US, at + _MILLISECOND_US)


def boolean(value: bool) -> Meant:
    """What a truth value stands for."""
    literal = nodes.Literal("boolean", value)
    return Meant(literal, literal, has_order=False)


def _singles_around(value: float) -> tuple[float, float]:
    """The greatest number of 32 bits that is not more, and the least that is not less."""
    rounded = single(value)
    if rounded == value:
        return value, value
    away = math.inf if rounded < value else -math.inf
    other = float(np.nextafter(np.float32(rounded), np.float32(away)))
    return min(rounded, other), max(rounded, other)


def _between(kind: nodes.LiteralKind, low: int, high: int) -> Meant:
    return Meant(
        nodes.Literal(kind, max(low, _LONG[0])), nodes.Literal(kind, min(high, _LONG[1])), is_exact=low == high
    )


def column(schema: Schema, name: object) -> Leaf | None:
    """The column that a hint names; None where it names none, or one inside of another."""
    if not isinstance(name, str):
        return None
    try:
        found = schema.find(name)
    except UnknownColumn:
        return None
    return found if found is not None and len(found.path) == 1 and not found.repeated else None


def compared(operator: Operator, leaf: Leaf, meant: Meant, *, negated: bool) -> Predicate:
    """``column operator value``, or its negation: true of every row for which a recipient may find it true."""
    term = Ref(leaf.name)
    if operator != "eq" and not meant.has_order:
        return unused(leaf.name, "recipients differ in the order of these values")
    if not negated:
        return _test(term, operator, meant)
    if operator == "eq" and not meant.is_exact:
        return unused(leaf.name, "recipients differ in which values are another one")
    return _or_unknown(term, leaf, _test(term, _OPPOSITE[operator], meant))


def is_null(leaf: Leaf, *, negated: bool) -> Predicate:
    """``column IS NULL``, or its negation."""
    term = Ref(leaf.name)
    if negated:
        return Not(IsNull(term))
    return Or((IsNull(term), IsNan(term))) if leaf.dtype.is_float else IsNull(term)


def unused(what: str, reason: str) -> Predicate:
    """A part of a hint that leaves out nothing."""
    return Unknown(what if is_unicode(what) else "a part of a hint", reason)


def _test(term: Ref, operator: nodes.Operator, meant: Meant) -> Predicate:
    if meant.is_exact:
        return Compare(operator, term, meant.low)
    if operator in ("lt", "le"):
        return Compare("le", term, meant.high)
    if operator in ("gt", "ge"):
        return Compare("ge", term, meant.low)
    return And((Compare("ge", term, meant.low), Compare("le", term, meant.high)))


def _or_unknown(term: Ref, leaf: Leaf, test: Predicate) -> Predicate:
    more: tuple[Predicate, ...] = (IsNull(term), IsNan(term)) if leaf.dtype.is_float else (IsNull(term),)
    return Or((test, *more))
