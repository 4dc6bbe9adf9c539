"""Predicate hints of recipients, as SQL and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
import numpy as np

from lamella.snapshot.errors import InvalidRequest, UnknownColumn
from lamella.snapshot.expression import nodes, read_sql
from lamella.snapshot.expression.nodes import (
    MAX_DEPTH,
    MAX_NODES,
    And,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    Not,
    Or,
    Predicate,
    Ref,
    Term,
    Truth,
    Unknown,
)
from lamella.snapshot.expression.nodes import (
    Literal as FilterLiteral,
)
from lamella.snapshot.expression.spark_casts import date_days, instant_us, is_finer_than_us, is_unicode, single
from lamella.snapshot.schema import DataType, Leaf, Schema

# One comparison of a recipient's hint, as a predicate that is true wherever any recipient may evaluate it to true.
#
# A hint is a filter that the recipient itself applies to the rows that it gets: in Spark, in pandas, or in an unknown
# tool. They differ in which rows a comparison is true for, so a value stands for all values that one of them may use,
# and a negated comparison is also true for rows where SQL gives null:
#
# * pandas holds 64-bit integers beside nulls as doubles, which are exact up to 2**53; * a 32-bit column is compared
# with a double, or with that double rounded to 32 bits; * -0.0 equals 0.0, or is less (Java's order of doubles); *
# instants are compared by the microsecond, or by the millisecond (JavaScript, Delta's statistics); * text is ordered by
# bytes, or by units of UTF-16, which agree below U+D800; * ``not (a = 1)`` holds for a null and for NaN in pandas, and
# not in SQL; ``isna`` takes NaN for null.
#
# A hint that uses a column with another type implies a cast, which may round, wrap or depend on a time zone: it is not
# used.

Operator = Literal["eq", "lt", "le", "gt", "ge"]

_OPPOSITE: Final[dict[Operator, nodes.Operator]] = {"eq": "ne", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_EXACT_IN_DOUBLE: Final = 1 << 53
#: Integers of 64 bits that map to the same double differ by at most this.
_DOUBLE_STEP: Final = 1 << 11
_MILLISECOND_US: Final = 1_000
_LONG: Final = (-(1 << 63), (1 << 63) - 1)
#: Below this code point, text has one order in UTF-8, UTF-16 and by code points.
_ONE_ORDER_BELOW: Final = "\ud800"


class Meant(msgspec.Struct, frozen=True):
    """All values that a recipient may use for a literal: from ``low`` to ``high``.

    ``has_order`` False: recipients agree on equality, but not on order.
    """

    low: nodes.Literal
    high: nodes.Literal
    is_exact: bool = True
    has_order: bool = True


def one_order(text: str) -> bool:
    """Returns whether all recipients agree which texts are less than this one."""
    return all(character < _ONE_ORDER_BELOW for character in text)


def integer(value: int, dtype: DataType) -> Meant | None:
    """Returns the meaning of an integer for an integer column; None if it exceeds 64 bits."""
    if not _LONG[0] <= value <= _LONG[1]:
        return None
    slack = _DOUBLE_STEP if dtype.bits == 64 and abs(value) >= _EXACT_IN_DOUBLE else 0
    return _between("integer", value - slack, value + slack)


def real(value: float, dtype: DataType) -> Meant | None:
    """Returns the meaning of a number for a float column; None for NaN, infinities, and values beside one."""
    if not math.isfinite(value):
        return None
    low, high = (value, value) if dtype.bits == 64 else _singles_around(value)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    # Never exact: one zero may be less than the other, and a recipient that compares decimals does not round.
    return Meant(nodes.Literal("double", low), nodes.Literal("double", high), is_exact=False)


def text(value: str) -> Meant | None:
    """Returns the meaning of text for a text column; None if it is not valid Unicode."""
    if not is_unicode(value):
        return None
    literal = nodes.Literal("string", value)
    return Meant(literal, literal, has_order=one_order(value))


def date(value: str) -> Meant | None:
    """Returns the meaning of ``2026-01-31`` for a date column."""
    days = date_days(value) if len(value) == 10 else None
    return None if days is None else _between("date", days, days)


def instant(value: str) -> Meant | None:
    """Returns the meaning of a time with a zone for an instant column; None without a zone, or if it is finer than the
    column."""
    has_zone = value.endswith("Z") or value[-6:-5] in ("+", "-")
    at = instant_us(value, "UTC") if has_zone and "T" in value and not is_finer_than_us(value) else None
    if at is None:
        return None
    return _between("timestamp", at - _MILLISECOND_US, at + _MILLISECOND_US)


def boolean(value: bool) -> Meant:
    """Returns the meaning of a boolean."""
    literal = nodes.Literal("boolean", value)
    return Meant(literal, literal, has_order=False)


def _singles_around(value: float) -> tuple[float, float]:
    """Returns the nearest 32-bit numbers: the greatest that is not more, and the smallest that is not less."""
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
    """Returns the column that a hint names; None if it names none, or a nested one."""
    if not isinstance(name, str):
        return None
    try:
        found = schema.find(name)
    except UnknownColumn:
        return None
    return found if found is not None and len(found.path) == 1 and not found.repeated else None


def compared(operator: Operator, leaf: Leaf, meant: Meant, *, negated: bool) -> Predicate:
    """Returns ``column operator value``, or its negation: true of every row for which a recipient may evaluate it to
    true."""
    term = Ref(leaf.name)
    if operator != "eq" and not meant.has_order:
        return unused(leaf.name, "recipients differ in how they order these values")
    if not negated:
        return _test(term, operator, meant)
    if operator == "eq" and not meant.is_exact:
        return unused(leaf.name, "recipients differ in which values are equal")
    return _or_unknown(term, leaf, _test(term, _OPPOSITE[operator], meant))


def is_null(leaf: Leaf, *, negated: bool) -> Predicate:
    """Returns ``column IS NULL``, or its negation."""
    term = Ref(leaf.name)
    if negated:
        return Not(IsNull(term))
    return Or((IsNull(term), IsNan(term))) if leaf.dtype.is_float else IsNull(term)


def unused(what: str, reason: str) -> Predicate:
    """Returns a part of a hint that excludes nothing."""
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


_OPERATORS: Final[dict[str, Operator]] = {
    **{"equal": "eq", "lessThan": "lt", "lessThanOrEqual": "le"},
    **{"greaterThan": "gt", "greaterThanOrEqual": "ge"},
}
# ``jsonPredicateHints``: a tree of operations in a JSON text.
#
# Leaves have types: ``{"op": "column", "name": "a", "valueType": "int"}`` and ``{"op": "literal", "value": "5",
# "valueType": "int"}``. A type other than the column's is a cast, so both types must be the one that holds the column's
# values without loss.

_MIRRORED: Final[dict[Operator, Operator]] = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
_SMALL: Final = frozenset({"int8", "int16", "int32", "uint8", "uint16"})
_INT: Final = (-(1 << 31), (1 << 31) - 1)


def read_json_hint(given: str, schema: Schema) -> Predicate:
    """Parses a hint's text to a predicate; parts that cannot be read with certainty are unknown, and nothing is an
    error."""
    try:
        tree = msgspec.json.decode(given.encode("utf-8", "surrogatepass"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return unused("jsonPredicateHints", "it is not JSON")
    return _Reader(schema).predicate(tree, 1, negated=False)


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._nodes = 0

    def predicate(self, node: Any, depth: int, *, negated: bool) -> Predicate:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return unused("a part of the hint", "the hint is too large")
        parts = node.get("children") if isinstance(node, dict) else None
        kind = node.get("op") if isinstance(node, dict) else None
        if isinstance(kind, str) and isinstance(parts, list) and parts:
            if kind in ("and", "or"):
                children = tuple(self.predicate(part, depth + 1, negated=negated) for part in parts)
                return And(children) if (kind == "and") is not negated else Or(children)
            if kind == "not" and len(parts) == 1:
                return self.predicate(parts[0], depth + 1, negated=not negated)
            if kind == "isNull" and len(parts) == 1:
                return self._null_test(parts[0], negated=negated)
            if kind in _OPERATORS and len(parts) == 2:
                return self._compare(_OPERATORS[kind], parts, negated=negated)
        return unused("an operation", "it is not part of the protocol")

    def _null_test(self, node: Any, *, negated: bool) -> Predicate:
        found = self._column(node)
        if found is None:
            return unused("isNull", "it does not refer to a column of the table with the column's type")
        return is_null(found, negated=negated)

    def _compare(self, operator: Operator, parts: list[Any], *, negated: bool) -> Predicate:
        left, right = parts
        if isinstance(left, dict) and left.get("op") == "literal":
            left, right, operator = right, left, _MIRRORED[operator]
        leaf = self._column(left)
        if leaf is None:
            return unused("a comparison", "it does not refer to a column of the table with the column's type")
        meant = _value(right, left["valueType"], leaf.dtype)
        if meant is None:
            return unused(leaf.name, "it is not compared with a value of its type")
        return compared(operator, leaf, meant, negated=negated)

    def _column(self, node: Any) -> Leaf | None:
        if not isinstance(node, dict) or node.get("op") != "column":
            return None
        leaf, kind = column(self._schema, node.get("name")), node.get("valueType")
        fits = _FITS.get(kind) if isinstance(kind, str) else None
        return leaf if leaf is not None and fits is not None and fits(leaf.dtype) else None


def _value(node: Any, kind: str, dtype: DataType) -> Meant | None:
    if not isinstance(node, dict) or node.get("op") != "literal" or node.get("valueType") != kind:
        return None
    value = node.get("value")
    return _READ[kind](value, dtype) if isinstance(value, str) else None


def _integer(value: str, dtype: DataType) -> Meant | None:
    return integer(int(value), dtype) if _INTEGER.fullmatch(value) else None


def _small_integer(value: str, dtype: DataType) -> Meant | None:
    found = _integer(value, dtype)
    return found if found is not None and _INT[0] <= int(value) <= _INT[1] else None


def _real(value: str, dtype: DataType) -> Meant | None:
    return real(float(value), dtype) if _NUMBER.fullmatch(value) else None


def _boolean(value: str, _dtype: DataType) -> Meant | None:
    return boolean(value == "true") if value in ("true", "false") else None


#: By a leaf's type: the columns that it casts without loss, and its values.
_FITS: Final[dict[str, Callable[[DataType], bool]]] = {
    "bool": lambda dtype: dtype.name == "boolean",
    "int": lambda dtype: dtype.name in _SMALL,
    "long": lambda dtype: dtype.name in _SMALL or dtype.name in ("int64", "uint32"),
    "float": lambda dtype: dtype.name == "float32",
    "double": lambda dtype: dtype.name in ("float32", "float64"),
    "string": lambda dtype: dtype.is_text,
    "date": lambda dtype: dtype.name == "date",
    "timestamp": lambda dtype: dtype.name == "timestamp",
}
_READ: Final[dict[str, Callable[[str, DataType], Meant | None]]] = {
    "bool": _boolean,
    "int": _small_integer,
    "long": _integer,
    "float": _real,
    "double": _real,
    "string": lambda value, _dtype: text(value),
    "date": lambda value, _dtype: date(value),
    "timestamp": lambda value, _dtype: instant(value),
}


_MAX_LISTED: Final = 1_000


def read_sql_hint(given: str, schema: Schema) -> Predicate:
    """Parses a hint's text to a predicate; parts that cannot be read with certainty are unknown, and nothing is an
    error."""
    try:
        return _predicate(read_sql(given), schema, negated=False)
    except InvalidRequest as error:
        return unused("predicateHints", error.message)


def _predicate(node: Predicate, schema: Schema, *, negated: bool) -> Predicate:
    match node:
        case Constant(bool(value)):
            return Constant(value is not negated)
        case Not(child):
            return _predicate(child, schema, negated=not negated)
        case And(children) | Or(children):
            parts = tuple(_predicate(child, schema, negated=negated) for child in children)
            return And(parts) if isinstance(node, And) is not negated else Or(parts)
        case IsNull(term):
            leaf = _column(term, schema)
            return _unused() if leaf is None else is_null(leaf, negated=negated)
        case Truth(term):
            return _compared(Compare("eq", term, FilterLiteral("boolean", True)), schema, negated=negated)
        case Compare():
            return _compared(node, schema, negated=negated)
        case In(term, literals):
            if len(literals) > _MAX_LISTED:
                return unused("a list", f"lists of more than {_MAX_LISTED} values are not used")
            each = tuple(_compared(Compare("eq", term, one), schema, negated=negated) for one in literals)
            return And(each) if negated else Or(each)
        case _:
            return _unused()


def _compared(node: Compare, schema: Schema, *, negated: bool) -> Predicate:
    leaf = _column(node.left, schema)
    if leaf is None or not isinstance(node.right, FilterLiteral):
        return _unused()
    meant = _meant(node.right, leaf.dtype)
    if meant is None:
        return unused(leaf.name, "it is not compared with a value of its type")
    if node.op == "ne":
        return compared("eq", leaf, meant, negated=not negated)
    return compared(node.op, leaf, meant, negated=negated)


def _column(term: Term, schema: Schema) -> Leaf | None:
    return column(schema, term.path) if isinstance(term, Ref) else None


def _meant(literal: FilterLiteral, dtype: DataType) -> Meant | None:
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int) and dtype.is_integer:
        return integer(value, dtype)
    if literal.kind in ("integer", "decimal", "double", "float") and dtype.is_float:
        number = _number(value)
        return None if number is None else real(number, dtype)
    if literal.kind == "boolean" and isinstance(value, bool) and dtype.name == "boolean":
        return boolean(value)
    if literal.kind == "string" and isinstance(value, str):
        if dtype.is_text:
            return text(value)
        return date(value) if dtype.name == "date" else None
    if literal.kind == "date" and isinstance(value, int) and dtype.name == "date":
        return Meant(literal, literal)
    return None  # some recipients round decimals, and times without a zone depend on the session


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _unused() -> Predicate:
    return unused("a part of the hint", "only comparisons of columns with values and null tests are used")
