"""Binding of IN: the listed constants become values of the column's order, or the list is not understood."""

from __future__ import annotations

import math
import re
from typing import Final

from lamella.snapshot.expression import moments
from lamella.snapshot.expression.bound import Anything, BoundTerm, Membership
from lamella.snapshot.expression.coerce import MAX_DIGITS, Unusable, check_comparable, coerce, common_digits
from lamella.snapshot.expression.nodes import Literal

_EXACT_SINGLE: Final = 1 << 24
#: The least number that has more digits than Spark's widest decimal.
_TOO_LONG: Final = 10**MAX_DIGITS
_INTEGER_TEXT: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE_TEXT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def membership(term: BoundTerm, literals: tuple[Literal, ...], time_zone: str, text: str) -> Membership | Anything:
    """``term IN literals``.

    Raises:
        FilterTypeMismatch: one of them can never be compared with the term.
    """
    dtype = term.dtype
    if dtype.is_integer:
        plain = _whole_numbers(literals, *dtype.int_range)
        if plain is not None:
            return Membership(term, plain, False, False, text)
    # Spark refuses a list with one value that the term cannot be compared with, whatever the others are.
    for literal in literals:
        check_comparable(literal, term)
    given = _one_type([literal for literal in literals if literal.kind != "null"], term)
    if isinstance(given, Unusable):
        return Anything(text, given.reason)
    order, (low, high) = dtype.order, dtype.int_range
    values: set[int | float | bytes] = set()
    has_nan = False
    for literal in given:
        place = coerce(literal, term, time_zone)
        if isinstance(place, Unusable):
            return Anything(text, place.reason)
        value = place.value
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
    """The values of a list of whole numbers that a column of integers may have; None for any other list."""
    values: set[int] = set()
    for literal in literals:
        value = literal.value
        if literal.kind != "integer" or not isinstance(value, int) or not -_TOO_LONG < value < _TOO_LONG:
            return None
        if low <= value <= high:
            values.add(value)
    return tuple(sorted(values))


def _one_type(literals: list[Literal], term: BoundTerm) -> list[Literal] | Unusable:
    """The list as Spark sees it: IN brings column and values to one common type before it compares."""
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
    """A number as a list has it: by its type, where a comparison would go by its digits."""
    if literal.type or not isinstance(literal.value, int) or not -(1 << 63) <= literal.value < 1 << 63:
        return literal
    return Literal(literal.kind, literal.value, "int32" if -(1 << 31) <= literal.value < 1 << 31 else "int64")


def _canonical(literal: Literal, term: BoundTerm) -> bool:
    """True when text compared as text and text cast to the column's type give the same answer."""
    text = str(literal.value)
    if term.dtype.is_integer:  # uint64 is a decimal in Spark, which it compares with text as doubles
        return _INTEGER_TEXT.fullmatch(text) is not None and term.dtype.name != "uint64"
    if term.dtype.name == "date":
        return _DATE_TEXT.fullmatch(text) is not None and moments.date_days(text) is not None
    return term.dtype.name == "binary"
