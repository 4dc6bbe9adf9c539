"""Predicates over ``CASE``, as predicates over the values of its branches.

``CASE WHEN p THEN a ELSE b END > 5`` is ``(p IS TRUE AND a > 5) OR (NOT (p IS TRUE) AND b > 5)``: for each row exactly
one of the conditions is true, so the result is the same, null included. What a branch computes is only needed for rows
that reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Final

import msgspec

from lamella.snapshot.expression.bind_numbers import (
    DOUBLE,
    MAX_DIGITS,
    coalesce_type,
    constant,
    signed_bits,
    type_of,
)
from lamella.snapshot.expression.bind_terms import TermBinder
from lamella.snapshot.expression.bound import ConstantTerm
from lamella.snapshot.expression.coerce import DIGITS, Unusable
from lamella.snapshot.expression.nodes import (
    And,
    Call,
    Case,
    Cast,
    Compare,
    IsTrue,
    Literal,
    LiteralKind,
    Not,
    NullSafeEqual,
    Or,
    Predicate,
    Term,
    TermPredicate,
)
from lamella.snapshot.schema import DataType, parse_type

#: Maximum number of combinations of branches in one predicate.
MAX_ALTERNATIVES: Final = 64
_MIXED: Final = Unusable("the branches of the CASE have several types, which Spark casts row by row")
_TOO_MANY: Final = Unusable(f"a CASE is used with up to {MAX_ALTERNATIVES} combinations of branches")
_PLAIN: Final = frozenset(
    {"string", "text", "boolean", "date", "timestamp", "timestamp_ntz", "double", "float", "binary"}
)

#: A term without CASE, and the conditions under which it is the value.
_Alternative = tuple[tuple[Predicate, ...], Term]


def has_case(node: TermPredicate) -> bool:
    """Returns whether a predicate has a CASE among its terms."""
    if isinstance(node, Compare | NullSafeEqual):
        return _in_term(node.left) or _in_term(node.right)
    return _in_term(node.term)


def _in_term(term: Term) -> bool:
    match term:
        case Cast(inner, _):
            return _in_term(inner)
        case Call(_, arguments):
            return any(map(_in_term, arguments))
        case _:
            return isinstance(term, Case)


def over_branches(node: TermPredicate, binder: TermBinder) -> Predicate | Unusable:
    """Returns a predicate without CASE that has the same result for each row, or the reason why it is not known.

    Raises:
        UnknownColumn, InvalidFilter: as :meth:`TermBinder.bind`, in a value of a branch.
    """
    names = ("left", "right") if isinstance(node, Compare | NullSafeEqual) else ("term",)
    sides: list[list[_Alternative]] = []
    for name in names:
        found = _alternatives(getattr(node, name), binder)
        if isinstance(found, Unusable):
            return found
        sides.append(found)
    parts: list[Predicate] = []
    for chosen in _combined(sides):
        conditions = [condition for each, _ in chosen for condition in each]
        terms = {name: term for name, (_, term) in zip(names, chosen, strict=True)}
        parts.append(And((*conditions, msgspec.structs.replace(node, **terms))))
    return Or(tuple(parts)) if 0 < len(parts) <= MAX_ALTERNATIVES else _TOO_MANY


def branches(conditions: Sequence[Predicate], results: Sequence[Predicate]) -> Predicate:
    """Returns the predicate that a CASE of predicates is: one result for each condition, and one more for the rest."""
    parts = [And((*guards, result)) for guards, result in zip(_guards(conditions), results, strict=True)]
    return Or(tuple(parts))


def _guards(conditions: Sequence[Predicate]) -> list[tuple[Predicate, ...]]:
    """Returns the conditions under which each branch, and the rest, is reached: one of them for each row."""
    before: list[Predicate] = [Not(IsTrue(condition)) for condition in conditions]
    reached: list[tuple[Predicate, ...]] = [
        (*before[:at], IsTrue(condition)) for at, condition in enumerate(conditions)
    ]
    return [*reached, tuple(before)]


def _combined(sides: Sequence[Sequence[_Alternative]]) -> Iterable[tuple[_Alternative, ...]]:
    count = 1
    for side in sides:
        count *= len(side)
    return product(*sides) if count <= MAX_ALTERNATIVES else ()


def _alternatives(term: Term, binder: TermBinder) -> list[_Alternative] | Unusable:
    match term:
        case Cast(inner, target):
            found = _alternatives(inner, binder)
            if isinstance(found, Unusable):
                return found
            return [(conditions, Cast(value, target)) for conditions, value in found]
        case Call(function, arguments):
            sides: list[list[_Alternative]] = []
            for argument in arguments:
                each = _alternatives(argument, binder)
                if isinstance(each, Unusable):
                    return each
                sides.append(each)
            calls: list[_Alternative] = []
            for chosen in _combined(sides):
                conditions = tuple(condition for part, _ in chosen for condition in part)
                calls.append((conditions, Call(function, tuple(value for _, value in chosen))))
            return calls or _TOO_MANY
        case Case(listed, otherwise):
            return _of_case([*(each.value for each in listed), otherwise], [each.condition for each in listed], binder)
        case _:
            return [((), term)]


def _of_case(values: list[Term], conditions: list[Predicate], binder: TermBinder) -> list[_Alternative] | Unusable:
    found: list[_Alternative] = []
    for guards, value in zip(_guards(conditions), values, strict=True):
        inner = _alternatives(value, binder)
        if isinstance(inner, Unusable):
            return inner
        found += [((*guards, *more), each) for more, each in inner]
    if len(found) > MAX_ALTERNATIVES:
        return _TOO_MANY
    terms = _of_one_type([term for _, term in found], binder)
    if isinstance(terms, Unusable):
        return terms
    return [(guards, term) for (guards, _), term in zip(found, terms, strict=True)]


def _of_one_type(terms: list[Term], binder: TermBinder) -> list[Term] | Unusable:
    """Returns the values of a CASE in its type; the reason if that type may round a value."""
    kinds = {term.kind for term in terms if isinstance(term, Literal)} - {"null"}
    others: list[DataType] = []
    for term in terms:
        if isinstance(term, Literal):
            continue
        bound = binder.bind(term)
        if isinstance(bound, Unusable):
            return bound
        others.append(bound.dtype)
    if not others:
        return _constants(terms, kinds)
    dtype = others[0]
    if any(other != dtype for other in others):
        return _widest(terms, others) if not kinds else _MIXED
    if not kinds:
        return terms
    if kinds <= {"integer", "decimal"} and (dtype == DOUBLE or dtype.is_integer or dtype.name == "decimal"):
        numbers = [constant(term) for term in terms if isinstance(term, Literal) and term.kind != "null"]
        wanted = coalesce_type(dtype, [each for each in numbers if isinstance(each, ConstantTerm)])
        if wanted is None or any(isinstance(each, Unusable) for each in numbers):
            return _MIXED
        return [_as(term, wanted, is_same=wanted == dtype) for term in terms]
    if len(kinds) == 1 and kinds <= {dtype.name, "double" if dtype == DOUBLE else "", "text"}:
        return terms
    return _MIXED


def _constants(terms: list[Term], kinds: set[LiteralKind]) -> list[Term] | Unusable:
    """Returns the constants of a CASE of constants in its type."""
    if len(kinds) <= 1 and kinds <= _PLAIN:
        return terms
    if not kinds <= {"integer", "decimal"}:
        return _MIXED
    types = [type_of(term) for term in terms if isinstance(term, Literal) and term.kind != "null"]
    if kinds == {"integer"} and all(each.is_integer for each in types):
        widest = max(types, key=lambda each: each.bits)
        return [_as(term, widest, is_same=False) for term in terms]
    digits = [(each.precision, each.scale) if each.name == "decimal" else (DIGITS[each.bits], 0) for each in types]
    scale = max(s for _, s in digits)
    precision = max(p - s for p, s in digits) + scale
    if precision > MAX_DIGITS:
        return _MIXED
    return [_as(term, DataType("decimal", precision=precision, scale=scale), is_same=False) for term in terms]


def _widest(terms: list[Term], types: list[DataType]) -> list[Term] | Unusable:
    """Returns the values as the widest of several integer types."""
    if not all(each.is_integer and each.name != "uint64" for each in types):
        return _MIXED
    widest = parse_type(f"int{max(map(signed_bits, types))}")
    return [_as(term, widest, is_same=False) for term in terms]


def _as(term: Term, dtype: DataType, *, is_same: bool) -> Term:
    """Returns a value of a CASE in its type; ``is_same``: what is no literal has it already."""
    if not isinstance(term, Literal):
        return term if is_same else Cast(term, str(dtype))
    if term.kind == "null":
        return term
    if dtype.is_float:
        return Literal("double", float(Fraction(Decimal(str(term.value)))))
    return Cast(Literal(term.kind, term.value), str(dtype))
