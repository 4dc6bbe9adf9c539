"""Binding: names become column ids, literals values of the column's order, and what cannot be exact becomes unknown."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final, assert_never

from lamella.snapshot.errors import FilterTypeMismatch, InvalidRequest
from lamella.snapshot.expression import moments
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundNot,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    Comparison,
    Fixed,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Prefix,
)
from lamella.snapshot.expression.coerce import MAX_DIGITS, Point, Unusable, coerce, common_digits, is_beyond_long
from lamella.snapshot.expression.nodes import (
    And,
    ColumnPredicate,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Truth,
    Unknown,
)
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.schema import Leaf, Schema

_EXACT_SINGLE: Final = 1 << 24
_INTEGER_TEXT: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE_TEXT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NESTED: Final = "a struct, list or map as a whole has no statistics"
_REPEATED: Final = "the column lies below a list or map: its statistics say nothing of whole rows"


def bind(
    predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
) -> BoundPredicate:
    """The filter over ``schema``'s columns.

    Raises:
        UnknownColumn: a name that the schema does not have (also inside parts that are not used).
        FilterTypeMismatch: a literal that can never be compared with its column, or a condition that is no boolean.
        InvalidRequest: an unknown time zone.
    """
    if moments.zone(time_zone) is None:
        raise InvalidRequest(f"unknown time zone {time_zone!r}", time_zone=time_zone)
    return _Binder(schema, time_zone, case_sensitive).bind(predicate)


class _Binder:
    def __init__(self, schema: Schema, time_zone: str, case_sensitive: bool) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive

    def bind(self, node: Predicate) -> BoundPredicate:
        match node:
            case Constant(value):
                return Fixed(value)
            case And(children):
                return BoundAnd(tuple(self.bind(child) for child in children))
            case Or(children):
                return BoundOr(tuple(self.bind(child) for child in children))
            case Not(child):
                return BoundNot(self.bind(child))
            case IsTrue(child):
                return BoundIsTrue(self.bind(child))
            case Unknown(text, reason, columns):
                for path in columns:
                    self._schema.find(path, case_sensitive=self._case_sensitive)
                return Anything(text, reason)
            case _:
                return self._over_column(node)

    def _over_column(self, node: ColumnPredicate) -> BoundPredicate:
        leaf, text = self._schema.find(node.ref.path, case_sensitive=self._case_sensitive), text_of(node)
        if leaf is None:
            return Anything(text, _NESTED)
        if leaf.repeated:
            return Anything(text, _REPEATED)
        match node:
            case Compare(op, _, literal):
                return self._compare(op, leaf, literal, text)
            case NullSafeEqual(_, literal):
                return self._null_safe(leaf, literal, text)
            case In(_, literals):
                return self._in(leaf, literals, text)
            case IsNull():
                return NullTest(leaf, text)
            case IsNan():
                return _is_nan(leaf, text)
            case Like(_, pattern, escape):
                return _like(leaf, pattern, escape, text)
            case StartsWith(_, prefix):
                return _starts_with(leaf, prefix, text)
            case Truth():
                if leaf.dtype.name != "boolean":
                    message = f"column {leaf.name!r} of type {leaf.dtype} is no condition"
                    raise FilterTypeMismatch(message, column=leaf.name)
                return _at(leaf, "eq", Point(1), text)
            case _:
                assert_never(node)

    def _compare(self, op: Operator, leaf: Leaf, literal: Literal, text: str) -> BoundPredicate:
        if literal.kind == "null":
            return Fixed(None)
        place = coerce(literal, leaf, self._time_zone)
        if isinstance(place, Unusable):
            return Anything(text, place.reason)
        ordering = op not in ("eq", "ne")
        if ordering and leaf.dtype.is_integer and leaf.dtype.name != "uint64" and is_beyond_long(literal):
            return Anything(text, "Spark decides a comparison beyond 64 bits for nulls too, against SQL's rule")
        if op == "ne":
            return BoundNot(_at(leaf, "eq", place, text))
        return _at(leaf, op, place, text)

    def _null_safe(self, leaf: Leaf, literal: Literal, text: str) -> BoundPredicate:
        if literal.kind == "null":
            return NullTest(leaf, text)
        return BoundIsTrue(self._compare("eq", leaf, literal, text))

    def _in(self, leaf: Leaf, literals: tuple[Literal, ...], text: str) -> BoundPredicate:
        given = _one_type([literal for literal in literals if literal.kind != "null"], leaf)
        if isinstance(given, Unusable):
            return Anything(text, given.reason)
        values: set[int | float | bytes] = set()
        has_nan = False
        for literal in given:
            place = coerce(literal, leaf, self._time_zone)
            if isinstance(place, Unusable):
                return Anything(text, place.reason)
            value = place.value
            if isinstance(value, Fraction):
                continue  # lies between two values: equals none
            if isinstance(value, float) and math.isnan(value):
                has_nan = leaf.dtype.is_float
            elif leaf.dtype.order in ("float", "bytes"):
                values.add(value + 0.0 if isinstance(value, float) else value)
            elif isinstance(value, int):
                low, high = leaf.dtype.int_range
                if low <= value <= high:
                    values.add(value)
        has_null = len(given) < len(literals)
        return Membership(leaf, tuple(sorted(values)), has_nan, has_null, text)


def _at(leaf: Leaf, op: BoundOperator, place: Point, text: str) -> BoundPredicate:
    """``column op place`` with the place moved onto a value of the column."""
    value = place.value
    if leaf.dtype.order in ("float", "bytes"):
        if isinstance(value, Fraction):
            raise AssertionError("floats and bytes have no places between values")
        return Comparison(leaf, op, value, text)
    if isinstance(value, float):  # NaN or infinite, against integers
        above = math.isnan(value) or value > 0
        return NonNull(leaf, op in ("lt", "le") if above else op in ("gt", "ge"), text)
    if isinstance(value, Fraction):
        if op == "eq":
            return NonNull(leaf, False, text)
        whole = math.floor(value)  # x < 4.5 and x <= 4.5 are x <= 4; x > 4.5 and x >= 4.5 are x > 4
        op, value = ("le" if op in ("lt", "le") else "gt"), whole
    if isinstance(value, bytes):
        raise AssertionError("bytes in a column of numbers")
    low, high = leaf.dtype.int_range
    if value < low:
        return NonNull(leaf, op in ("gt", "ge"), text)
    if value > high:
        return NonNull(leaf, op in ("lt", "le"), text)
    return Comparison(leaf, op, value, text)


def _is_nan(leaf: Leaf, text: str) -> BoundPredicate:
    if leaf.dtype.is_float:
        return NanTest(leaf, text)
    if leaf.dtype.is_integer or leaf.dtype.name == "decimal":
        return Fixed(False)
    raise FilterTypeMismatch(f"isnan needs a number; {leaf.name!r} is {leaf.dtype}", column=leaf.name)


def _starts_with(leaf: Leaf, prefix: Literal, text: str) -> BoundPredicate:
    if not leaf.dtype.is_text or isinstance(prefix.value, bytes):
        return Anything(text, "only text columns have prefixes")
    start = str(prefix.value).encode("utf-8")
    return Prefix(leaf, start, True, text) if start else NonNull(leaf, True, text)


def _like(leaf: Leaf, pattern: str, escape: str, text: str) -> BoundPredicate:
    if not leaf.dtype.is_text:
        return Anything(text, "LIKE over other types casts them row by row")
    shape = _like_shape(pattern, escape)
    if shape is None:
        return Anything(text, "the pattern's escapes are not valid")
    prefix, rest = shape
    start = prefix.encode("utf-8")
    if rest == "":
        return Comparison(leaf, "eq", start, text)
    if set(rest) == {"%"}:
        return Prefix(leaf, start, True, text) if start else NonNull(leaf, True, text)
    if start:
        return Prefix(leaf, start, False, text)
    return Anything(text, "a pattern without fixed beginning needs an n-gram index", leaf)


def _one_type(literals: list[Literal], leaf: Leaf) -> list[Literal] | Unusable:
    """The list as Spark sees it: IN brings column and values to one common type before it compares."""
    kinds = {literal.kind for literal in literals}
    if (
        "float" in kinds
        and leaf.dtype.is_integer
        and leaf.dtype.bits > 16
        and not all(
            abs(float(literal.value or 0)) < _EXACT_SINGLE
            for literal in literals
            if literal.kind in ("float", "integer")
        )
    ):
        return Unusable("without ANSI, Spark compares the list in single precision")
    if leaf.dtype.is_integer or leaf.dtype.name == "decimal":
        digits = [common_digits(literal, leaf) for literal in literals if literal.kind in ("decimal", "integer")]
        whole, scale = max((w for w, _ in digits), default=0), max((s for _, s in digits), default=0)
        if whole + scale > MAX_DIGITS:
            return Unusable("Spark rounds the list to a common decimal type of 38 digits")
    if "double" in kinds and (leaf.dtype.is_integer or leaf.dtype.name == "decimal"):
        if kinds - {"double", "integer", "float"}:
            return Unusable("the list mixes doubles with other types")
        return [
            literal if literal.kind != "integer" else Literal("double", float(literal.value or 0))
            for literal in literals
        ]
    as_text = "string" in kinds and not leaf.dtype.is_text
    if as_text and not (kinds == {"string"} and all(_canonical(literal, leaf) for literal in literals)):
        return Unusable("the list has text for a column of another type, which Spark casts by its settings")
    return literals


def _canonical(literal: Literal, leaf: Leaf) -> bool:
    """True when text compared as text and text cast to the column's type give the same answer."""
    text = str(literal.value)
    if leaf.dtype.is_integer:  # uint64 is a decimal in Spark, which it compares with text as doubles
        return _INTEGER_TEXT.fullmatch(text) is not None and leaf.dtype.name != "uint64"
    if leaf.dtype.name == "date":
        return _DATE_TEXT.fullmatch(text) is not None and moments.date_days(text) is not None
    return leaf.dtype.name == "binary"


def _like_shape(pattern: str, escape: str) -> tuple[str, str] | None:
    """The fixed beginning of a LIKE pattern and what follows; None when an escape stands before another character."""
    prefix: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if escape and character == escape:
            if index + 1 == len(pattern) or pattern[index + 1] not in ("%", "_", escape):
                return None
            prefix.append(pattern[index + 1])
            index += 2
            continue
        if character in "%_":
            return "".join(prefix), pattern[index:]
        prefix.append(character)
        index += 1
    return "".join(prefix), ""
