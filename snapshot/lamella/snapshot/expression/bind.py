"""Binding: replaces names by column ids and literals by values of the column's order; inexact predicates become
unknown."""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, assert_never

import msgspec

from lamella.snapshot.concurrency import check_deadline
from lamella.snapshot.errors import FilterTypeMismatch, InvalidFilter, InvalidRequest, UnknownColumn
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.bind_numbers import literal_of
from lamella.snapshot.expression.bind_terms import TermBinder
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundNot,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    Comparison,
    ConstantTerm,
    Derived,
    Fixed,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Pair,
    Prefix,
)
from lamella.snapshot.expression.cases import has_case, over_branches
from lamella.snapshot.expression.coerce import (
    MAX_DIGITS,
    Point,
    Unusable,
    are_comparable,
    check_comparable,
    coerce,
    common_digits,
    family,
    is_beyond_long,
)
from lamella.snapshot.expression.nodes import (
    ANY,
    MAX_NODES,
    MIRRORED,
    ONE,
    And,
    Call,
    Cast,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    IsUnknown,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    OneTermPredicate,
    Operator,
    Or,
    Predicate,
    Ref,
    StartsWith,
    Term,
    TermPredicate,
    Truth,
    Unknown,
    is_like,
    like_parts,
)
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.types import Order
from lamella.snapshot.stats.bound import Value

_EXACT_SINGLE: Final = 1 << 24
#: The smallest number with more digits than Spark's widest decimal.
_TOO_LONG: Final = 10**MAX_DIGITS
_INTEGER_TEXT: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE_TEXT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def membership(term: BoundTerm, literals: tuple[Literal, ...], time_zone: str, text: str) -> Membership | Anything:
    """Binds ``term IN literals``.

    Raises:
        FilterTypeMismatch: one of the literals can never be compared with the term.
    """
    dtype = term.dtype
    if dtype.is_integer:
        plain = _whole_numbers(literals, *dtype.int_range)
        if plain is not None:
            return Membership(term, plain, False, False, text)
    # Spark refuses a list with one value that cannot be compared with the term, whatever the others are.
    for literal in literals:
        check_comparable(literal, term)
    given = _one_type([literal for literal in literals if literal.kind != "null"], term)
    if isinstance(given, Unusable):
        return Anything(text, given.reason)
    order, (low, high) = dtype.order, dtype.int_range
    values: set[int | float | bytes] = set()
    has_nan = False
    for literal in given:
        point = coerce(literal, term, time_zone)
        if isinstance(point, Unusable):
            return Anything(text, point.reason)
        value = point.value
        if isinstance(value, float):
            if math.isnan(value):
                has_nan = dtype.is_float
            elif order == "float":
                values.add(value + 0.0)
        elif isinstance(value, bytes) or (isinstance(value, int) and low <= value <= high):
            values.add(value)  # a fraction lies between two values: it equals none
    has_null = len(given) < len(literals)
    return Membership(term, tuple(sorted(values)), has_nan, has_null, text)


def _whole_numbers(literals: tuple[Literal, ...], low: int, high: int) -> tuple[int, ...] | None:
    """Returns the values of a list of whole numbers that an integer column may have; None for any other list."""
    values: set[int] = set()
    for literal in literals:
        value = literal.value
        if literal.kind != "integer" or not isinstance(value, int) or not -_TOO_LONG < value < _TOO_LONG:
            return None
        if low <= value <= high:
            values.add(value)
    return tuple(sorted(values))


def _one_type(literals: list[Literal], term: BoundTerm) -> list[Literal] | Unusable:
    """Returns the list as Spark evaluates it: IN converts column and values to one common type before it compares."""
    kinds = {literal.kind for literal in literals}
    if (
        "float" in kinds
        and term.dtype.is_integer
        and term.dtype.bits > 16
        and not all(
            abs(float(literal.value or 0)) < _EXACT_SINGLE
            for literal in literals
            if literal.kind in ("float", "integer")
        )
    ):
        return Unusable("without ANSI, Spark compares the list in single precision")
    if term.dtype.is_integer or term.dtype.name == "decimal":
        digits = [
            common_digits(_typed(literal), term) for literal in literals if literal.kind in ("decimal", "integer")
        ]
        whole, scale = max((w for w, _ in digits), default=0), max((s for _, s in digits), default=0)
        if whole + scale > MAX_DIGITS:
            return Unusable("Spark rounds the list to a common decimal type of 38 digits")
    if "double" in kinds and (term.dtype.is_integer or term.dtype.name == "decimal"):
        if kinds - {"double", "integer", "float"}:
            return Unusable("the list mixes doubles with other types")
        return [
            literal if literal.kind != "integer" else Literal("double", float(literal.value or 0))
            for literal in literals
        ]
    as_text = "string" in kinds and not term.dtype.is_text
    if as_text and not (kinds == {"string"} and all(_canonical(literal, term) for literal in literals)):
        return Unusable("the list has text for a column of another type, which Spark casts by its settings")
    return literals


def _typed(literal: Literal) -> Literal:
    """Returns a number with its type, as in a list; a comparison would use its digits."""
    if literal.type or not isinstance(literal.value, int) or not -(1 << 63) <= literal.value < 1 << 63:
        return literal
    return Literal(literal.kind, literal.value, "int32" if -(1 << 31) <= literal.value < 1 << 31 else "int64")


def _canonical(literal: Literal, term: BoundTerm) -> bool:
    """Returns whether comparing as text and comparing as the column's type give the same answer."""
    text = str(literal.value)
    if term.dtype.is_integer:  # uint64 is a decimal in Spark, which it compares with text as doubles
        return _INTEGER_TEXT.fullmatch(text) is not None and term.dtype.name != "uint64"
    if term.dtype.name == "date":
        return _DATE_TEXT.fullmatch(text) is not None and spark_casts.date_days(text) is not None
    return term.dtype.name == "binary"


_MIN_PARTS: Final = 2
#: The comparisons of one term, which define a range; NaN is outside if the range has an upper limit.
_Range = list[Comparison]
_LOW: Final = ("gt", "ge", "eq")
_HIGH: Final = ("lt", "le", "eq")


def narrowed(children: Sequence[BoundPredicate]) -> tuple[BoundPredicate, ...]:
    """Combines the children of a conjunction into narrower predicates; the result for each row stays the same."""
    flat: list[BoundPredicate] = []
    for child in children:
        if isinstance(child, BoundAnd):
            flat += child.children
        else:
            flat.append(child)
    if len(flat) < _MIN_PARTS:
        return tuple(flat)
    if len(flat) == _MIN_PARTS and _are_ends(*flat):
        return tuple(flat)
    flat = _without_ends(flat)
    ranges: dict[BoundTerm, _Range] = {}
    lists = False
    for child in flat:
        if isinstance(child, Comparison):
            if child.value == child.value:  # no NaN
                found = ranges.get(child.term)
                if found is None:
                    ranges[child.term] = [child]
                else:
                    found.append(child)
        elif isinstance(child, Membership):
            lists = True
    if not ranges:
        return tuple(flat)
    if lists:
        flat = [_cut(child, ranges.get(child.term)) if isinstance(child, Membership) else child for child in flat]
    for term, found in ranges.items():
        if len(found) >= _MIN_PARTS and _is_empty(found):
            text = " AND ".join(part.text for part in found)
            flat.append(Membership(term, (), False, False, text))
    return tuple(flat)


def _are_ends(one: BoundPredicate, other: BoundPredicate) -> bool:
    """Returns whether these are the two ends of a range that is not empty, as those of most ranges are."""
    if type(one) is not Comparison or type(other) is not Comparison or one.term != other.term:
        return False
    low, high = (one, other) if one.op in ("ge", "gt") else (other, one)
    return low.op in ("ge", "gt") and high.op in ("le", "lt") and low.value < high.value  # type: ignore[operator]


def _without_ends(flat: list[BoundPredicate]) -> list[BoundPredicate]:
    """Rewrites ``x >= 5 AND x <> 5`` to ``x > 5``: excludes the ends of ranges that another conjunct excludes."""
    ends = {child.term for child in flat if isinstance(child, Comparison) and child.op in ("ge", "le")}
    excluded: dict[BoundTerm, set[Value]] = {}
    for child in flat if ends else ():
        if not isinstance(child, BoundNot):
            continue
        inner = child.child
        if isinstance(inner, Comparison) and inner.op == "eq" and inner.term in ends:
            excluded.setdefault(inner.term, set()).add(inner.value)
        elif isinstance(inner, Membership) and not inner.has_null and inner.term in ends:
            excluded.setdefault(inner.term, set()).update(inner.values)
    if not excluded:
        return flat
    return [
        msgspec.structs.replace(child, op="gt" if child.op == "ge" else "lt")
        if isinstance(child, Comparison) and child.op in ("ge", "le") and child.value in excluded.get(child.term, ())
        else child
        for child in flat
    ]


def _cut(listed: Membership, found: _Range | None) -> Membership:
    if found is None:
        return listed
    low, high = _ends(found)
    values = listed.values
    first, last = 0, len(values)
    if low is not None:
        first = (bisect_right if low.op == "gt" else bisect_left)(values, low.value)
    if high is not None:
        last = (bisect_left if high.op == "lt" else bisect_right)(values, high.value)
    return msgspec.structs.replace(listed, values=values[first:last], has_nan=listed.has_nan and high is None)


def _is_empty(parts: _Range) -> bool:
    """Returns whether no value matches, including NaN: one part's upper limit is outside another's lower one."""
    low, high = _ends(parts)
    if low is None or high is None:
        return False
    if low.value == high.value:
        return low.op == "gt" or high.op == "lt"
    return low.value > high.value  # type: ignore[operator]  # one order per term


def _ends(parts: _Range) -> tuple[Comparison | None, Comparison | None]:
    """Returns the part with the highest lower limit, and the one with the lowest upper limit; None if there is none."""
    low: Comparison | None = None
    high: Comparison | None = None
    for part in parts:
        if part.op in _LOW and (
            low is None
            or part.value > low.value  # type: ignore[operator]  # one order per term
            or (part.op == "gt" and part.value == low.value)
        ):
            low = part
        if part.op in _HIGH and (
            high is None
            or part.value < high.value  # type: ignore[operator]  # one order per term
            or (part.op == "lt" and part.value == high.value)
        ):
            high = part
    return low, high


_OPERATORS: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


#: The deadline is checked once per this many predicates.
_BETWEEN_CHECKS: Final = 64
_NULL: Final = ConstantTerm(None, DataType("boolean"), "NULL")
_ORDERING: Final = ("lt", "le", "gt", "ge")


class _Kind(msgspec.Struct, frozen=True):
    """What binding needs to know of a type; ``is_signed``: an integer type that Spark has too."""

    order: Order | None
    is_signed: bool
    minimum: int
    maximum: int


@lru_cache(maxsize=1_024)
def _kind(dtype: DataType) -> _Kind:
    return _Kind(dtype.order, dtype.is_integer and dtype.name != "uint64", *dtype.int_range)


def bind(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> BoundPredicate:
    """Binds a filter to the columns of ``schema``.

    Raises:
        UnknownColumn: a name that the schema does not have (also inside parts that are not used).
        FilterTypeMismatch: a literal that can never be compared with its column, two terms that Spark refuses to
            compare, or a condition that is not a boolean. The error has the ``position`` of the predicate, like
            UnknownColumn.
        InvalidRequest: an unknown time zone.
    """
    if spark_casts.zone(time_zone) is None:
        raise InvalidRequest(f"unknown time zone {time_zone!r}", time_zone=time_zone)
    return _Binder(schema, time_zone, case_sensitive).bind(predicate)


class _Binder:
    def __init__(self, schema: Schema, time_zone: str, case_sensitive: bool) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self._terms = TermBinder(schema, time_zone, case_sensitive)
        self._bound_count = 0

    def bind(self, node: Predicate) -> BoundPredicate:
        if not self._bound_count % _BETWEEN_CHECKS:
            check_deadline()
        self._bound_count += 1
        match node:
            case Constant(value):
                return Fixed(value)
            case And():
                return BoundAnd(narrowed([self.bind(child) for child in conjuncts_of(node)]))
            case Or(children):
                return BoundOr(tuple([self.bind(child) for child in children]))
            case Not(child):
                return BoundNot(self.bind(child))
            case IsTrue(child):
                return BoundIsTrue(self.bind(child))
            case IsUnknown(child):
                return BoundIsUnknown(self.bind(child))
            case _:
                try:
                    return self._bind_one(node)
                except (FilterTypeMismatch, UnknownColumn, InvalidFilter) as error:
                    if node.at.position is not None:
                        error.details.setdefault("position", node.at.position)
                    raise

    def _bind_one(self, node: TermPredicate | Unknown) -> BoundPredicate:
        if not isinstance(node, Unknown) and has_case(node):
            if self._bound_count > MAX_NODES:  # a CASE in the condition of a CASE is bound several times
                return Anything(text_of(node), "the filter has too many branches")
            plain = over_branches(node, self._terms)
            return Anything(text_of(node), plain.reason) if isinstance(plain, Unusable) else self.bind(plain)
        if isinstance(node, Compare):
            return self._compare(node.op, node.left, node.right, text_of(node))
        if isinstance(node, Unknown):
            for path in node.columns:
                self._schema.find(path, case_sensitive=self._case_sensitive)
            return Anything(node.text, node.reason)
        return self._over_terms(node)

    def _over_terms(self, node: NullSafeEqual | OneTermPredicate) -> BoundPredicate:
        text = text_of(node)
        if isinstance(node, NullSafeEqual):
            return self._null_safe(node.left, node.right, text)
        term = _NULL if node.term == Literal("null") else self._terms.bind(node.term)
        if isinstance(term, Unusable):
            return Anything(text, term.reason)
        if isinstance(term, ConstantTerm):
            return _of_constant(node, term, text)
        match node:
            case In(_, literals):
                return membership(term, literals, self._time_zone, text)
            case IsNull():
                return NullTest(term, text)
            case IsNan():
                return _is_nan(term, text)
            case Like(_, pattern, escape):
                return bind_like(term, pattern, escape, text)
            case StartsWith(_, prefix):
                return _starts_with(term, prefix, text)
            case Truth():
                if term.dtype.is_text and isinstance(term, Derived):
                    return Anything(text, "text as a condition is cast row by row")
                if term.dtype.name != "boolean":
                    what = f"column {term.name!r}" if isinstance(term, Leaf) else term.name
                    raise FilterTypeMismatch(f"{what} of type {term.dtype} is not a condition", column=term.name)
                return _at(term, "eq", Point(1), text)
            case _:
                assert_never(node)

    def _compare(self, op: Operator, left: Term, right: Term, text: str) -> BoundPredicate:
        if not isinstance(left, Ref):
            constant = self._constant(left)
            if constant is not None and (other := self._constant(right)) is not None:
                return _constants(op, constant, other, text)
            if constant is not None:
                left, right, op = right, left, MIRRORED[op]
        literal = self._constant(right)
        term = self._terms.bind(left)
        if literal is None:
            return self._pair(op, term, self._terms.bind(right), text)
        if isinstance(term, Unusable):
            return Anything(text, term.reason)
        return bind_comparison(op, term, literal, text, self._time_zone)

    def _constant(self, term: Term) -> Literal | None:
        """Returns the constant value of a term in a comparison, with a type only if a cast or a function gave it one;
        None if it is not constant."""
        if isinstance(term, Literal):
            return term if not term.type else Literal(term.kind, term.value)
        if not _is_constant(term):
            return None
        bound_term = self._terms.bind(term)
        return literal_of(bound_term) if isinstance(bound_term, ConstantTerm) else None

    def _pair(self, op: Operator, left: BoundTerm | Unusable, right: BoundTerm | Unusable, text: str) -> BoundPredicate:
        for side in (left, right):
            if isinstance(side, Unusable):
                return Anything(text, side.reason)
        if isinstance(left, Unusable) or isinstance(right, Unusable):
            raise AssertionError("both sides were checked")
        if not are_comparable(family(left.dtype), family(right.dtype)):
            raise FilterTypeMismatch(
                f"{left.name} of type {left.dtype} cannot be compared with {right.name} of type {right.dtype}",
                column=left.name,
                type=str(left.dtype),
            )
        in_one_order = self._terms.in_one_order(left, right)
        if isinstance(in_one_order, Unusable):
            return Anything(text, in_one_order.reason)
        left, right = in_one_order
        if op == "ne":
            return BoundNot(Pair(left, "eq", right, text))
        return Pair(left, op, right, text)

    def _null_safe(self, left: Term, right: Term, text: str) -> BoundPredicate:
        if self._constant(left) is not None:
            left, right = right, left
        if (constant := self._constant(left)) is not None:
            return _null_safe_constants(constant, self._constant(right), text)
        literal = self._constant(right)
        if literal is not None and literal.kind == "null":
            return self._over_terms(IsNull(left))
        equal = BoundIsTrue(self._compare("eq", left, right, text))
        if literal is not None:
            return equal
        both_null = [self._over_terms(IsNull(side)) for side in (left, right)]
        return BoundOr((equal, BoundAnd(tuple(both_null))))


def bind_comparison(op: Operator, term: BoundTerm, literal: Literal, text: str, time_zone: str) -> BoundPredicate:
    """Binds ``term op literal``; raises FilterTypeMismatch if the two can never be compared."""
    if literal.kind == "null":
        return Fixed(None)
    check_comparable(literal, term)
    point = coerce(literal, term, time_zone)
    if isinstance(point, Unusable):
        return Anything(text, point.reason)
    if op in _ORDERING and _kind(term.dtype).is_signed and is_beyond_long(literal):
        return Anything(text, "Spark decides a comparison beyond 64 bits for nulls too, against SQL's rule")
    if op == "ne":
        return BoundNot(_at(term, "eq", point, text))
    return _at(term, op, point, text)


def conjuncts_of(node: And) -> list[Predicate]:
    """Returns the parts of a conjunction and of nested ones, in order, so that all are examined together once."""
    for child in node.children:
        if type(child) is And:
            break
    else:
        return list(node.children)
    found: list[Predicate] = []
    left: list[Predicate] = [node]
    while left:
        part = left.pop()
        if isinstance(part, And):
            left.extend(part.children[::-1])
        else:
            found.append(part)
    return found


def _is_constant(term: Term) -> bool:
    match term:
        case Cast(inner, _):
            return _is_constant(inner)
        case Call(_, arguments):
            return all(map(_is_constant, arguments))
        case _:
            return isinstance(term, Literal)


def _constants(op: Operator, left: Literal, right: Literal, text: str) -> BoundPredicate:
    """Binds a comparison of two constants of one kind, or of exact numbers; other pairs stay unknown."""
    if "null" in (left.kind, right.kind):
        return Fixed(None)
    sides = [_comparable_constant(each) for each in (left, right)]
    exact = left.kind in ("integer", "decimal") and right.kind in ("integer", "decimal")
    if (left.kind == right.kind or exact) and None not in sides:
        return Fixed(_OPERATORS[op](*sides))
    return Anything(text, "a comparison of constants of several types is not evaluated")


def _comparable_constant(literal: Literal) -> Any:
    """Returns a constant as a value with Spark's order among those of its kind; None: its kind is not compared."""
    value = literal.value
    if literal.kind in ("integer", "decimal"):
        number = Decimal(str(value))
        return number if len(number.as_tuple().digits) <= MAX_DIGITS else None
    if literal.kind == "string":
        return str(value).encode()
    if literal.kind == "double" and isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value + 0.0)
    return value if literal.kind in ("boolean", "date", "timestamp", "timestamp_ntz", "binary") else None


def _null_safe_constants(left: Literal, right: Literal | None, text: str) -> BoundPredicate:
    if right is None:
        raise AssertionError("a constant is on the right")
    nulls = [each.kind == "null" for each in (left, right)]
    return Fixed(all(nulls)) if any(nulls) else _constants("eq", left, right, text)


def _of_constant(node: OneTermPredicate, term: ConstantTerm, text: str) -> BoundPredicate:
    """Binds a predicate on a constant, such as a branch of a CASE."""
    unknown = Anything(text, "this predicate on a constant is not evaluated")
    if isinstance(node, IsNull):
        return Fixed(term.value is None)
    literal = literal_of(term)
    if literal is None:
        return unknown
    is_null = literal.kind == "null"
    match node:
        case In(_, literals):
            return BoundOr(tuple(_constants("eq", literal, each, text) for each in literals))
        case IsNan():
            if is_null or literal.kind == "double":
                return Fixed(isinstance(literal.value, float) and math.isnan(literal.value))
        case Truth():
            if is_null or literal.kind == "boolean":
                return Fixed(None if is_null else bool(literal.value))
        case Like(_, pattern, escape):
            parts = like_parts(pattern, escape)
            if is_null or (literal.kind == "string" and parts is not None):
                return Fixed(None if is_null or parts is None else is_like(str(literal.value), parts))
        case StartsWith(_, prefix):
            if is_null or (literal.kind == "string" and isinstance(prefix.value, str)):
                return Fixed(None if is_null else str(literal.value).startswith(str(prefix.value)))
        case _:
            assert_never(node)
    return unknown


def _at(term: BoundTerm, op: BoundOperator, point: Point, text: str) -> BoundPredicate:
    """Binds ``column op point``, with the point moved to a value of the column."""
    value, kind = point.value, _kind(term.dtype)
    if kind.order in ("float", "bytes"):
        if not isinstance(value, int | float | bytes):
            raise AssertionError("floats and bytes have no points between values")
        return Comparison(term, op, value, text)
    if isinstance(value, float):  # NaN or infinite, compared with integers
        above = math.isnan(value) or value > 0
        return NonNull(term, op in ("lt", "le") if above else op in ("gt", "ge"), text)
    if isinstance(value, bytes):
        raise AssertionError("bytes in a column of numbers")
    if not isinstance(value, int):
        if op == "eq":
            return NonNull(term, False, text)
        whole = math.floor(value)  # x < 4.5 and x <= 4.5 are x <= 4; x > 4.5 and x >= 4.5 are x > 4
        op, value = ("le" if op in ("lt", "le") else "gt"), whole
    if value < kind.minimum:
        return NonNull(term, op in ("gt", "ge"), text)
    if value > kind.maximum:
        return NonNull(term, op in ("lt", "le"), text)
    return Comparison(term, op, value, text)


def _is_nan(term: BoundTerm, text: str) -> BoundPredicate:
    if term.dtype.is_float:
        return NanTest(term, text)
    if term.dtype.is_integer or term.dtype.name == "decimal":
        return (
            Fixed(False) if isinstance(term, Leaf) else Anything(text, "isnan of a computed whole number is not used")
        )
    raise FilterTypeMismatch(f"isnan needs a number; {term.name!r} is {term.dtype}", column=term.name)


def _starts_with(term: BoundTerm, prefix: Literal, text: str) -> BoundPredicate:
    if not term.dtype.is_text or isinstance(prefix.value, bytes):
        return Anything(text, "only text columns have prefixes")
    start = str(prefix.value).encode("utf-8")
    return Prefix(term, start, True, text) if start else NonNull(term, True, text)


def bind_like(term: BoundTerm, pattern: str, escape: str, text: str) -> BoundPredicate:
    """Binds ``term LIKE pattern``."""
    if not term.dtype.is_text:
        return Anything(text, "LIKE over other types casts them row by row")
    parts = like_parts(pattern, escape)
    if parts is None:
        return Anything(text, "the escapes in the pattern are not valid")
    start = parts[0].encode("utf-8") if parts and isinstance(parts[0], str) else b""
    if len(parts) <= 1 and parts != (ANY,) and parts != (ONE,):
        return Comparison(term, "eq", start, text)
    if parts == (ANY,):
        return NonNull(term, True, text)
    if start and parts[1:] == (ANY,):
        return Prefix(term, start, True, text)
    return Prefix(term, start, False, text, parts)
