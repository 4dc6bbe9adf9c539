"""Bound filters: columns are ids, literals are values of the column's order.

Every node maps each row to true, false or null exactly as the filter does, except for :class:`Anything`, which is
unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lamella.snapshot.function import Function
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats.bound import Value

BoundOperator = Literal["lt", "le", "gt", "ge", "eq"]


class ConstantTerm(msgspec.Struct, frozen=True, gc=False):
    """A constant as a term: a value of ``dtype``, None for null.

    ``digits``: the number of digits of a whole number; with a decimal operand, Spark types it by these.
    """

    value: Value | None
    dtype: DataType
    name: str
    digits: int = 0


class Derived(msgspec.Struct, frozen=True, gc=False):
    """A function of terms, its result type, and its text."""

    function: Function
    arguments: tuple[BoundTerm, ...]
    dtype: DataType
    name: str


#: The operands of predicates. Each has ``dtype`` and ``name``.
BoundTerm = Leaf | ConstantTerm | Derived


class Fixed(msgspec.Struct, frozen=True, gc=False):
    """The same outcome for every row: true, false or null (None)."""

    value: bool | None


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """``term op value``; NaN as a value is greater than all and equal to itself."""

    term: BoundTerm
    op: BoundOperator
    value: Value
    text: str


class Pair(msgspec.Struct, frozen=True, gc=False):
    """``left op right``, two terms of one order: row by row."""

    left: BoundTerm
    op: BoundOperator
    right: BoundTerm
    text: str


class Membership(msgspec.Struct, frozen=True, gc=False):
    """``term IN values``: ascending, no duplicates, no NaN; ``has_nan`` and ``has_null``: whether these are listed
    too."""

    term: BoundTerm
    values: tuple[Value, ...]
    has_nan: bool
    has_null: bool
    text: str


class NullTest(msgspec.Struct, frozen=True, gc=False):
    """``term IS NULL``."""

    term: BoundTerm
    text: str


class NanTest(msgspec.Struct, frozen=True, gc=False):
    """``isnan(term)``, false for null."""

    term: BoundTerm
    text: str


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """Texts that begin with ``prefix``; ``whole``: all of those match, otherwise those that match the ``parts``."""

    term: BoundTerm
    prefix: bytes
    whole: bool
    text: str
    parts: tuple[str | int, ...] = ()


class NonNull(msgspec.Struct, frozen=True, gc=False):
    """The same outcome for every value of the term, NaN included; null for null."""

    term: BoundTerm
    value: bool
    text: str


class Anything(msgspec.Struct, frozen=True, gc=False):
    """An unknown result; with a ``term``, null exactly where that is null."""

    text: str
    reason: str
    term: BoundTerm | None = None


class BoundIsTrue(msgspec.Struct, frozen=True, gc=False):
    """``IS TRUE``: null becomes false."""

    child: BoundPredicate


class BoundIsUnknown(msgspec.Struct, frozen=True, gc=False):
    """``IS UNKNOWN``: null becomes true, all else false."""

    child: BoundPredicate


class BoundAnd(msgspec.Struct, frozen=True, gc=False):
    """Conjunction; an empty one is true."""

    children: tuple[BoundPredicate, ...]


class BoundOr(msgspec.Struct, frozen=True, gc=False):
    """Disjunction; an empty one is false."""

    children: tuple[BoundPredicate, ...]


class BoundNot(msgspec.Struct, frozen=True, gc=False):
    """Negation; null stays null."""

    child: BoundPredicate


#: Predicates of one term.
BoundTest = Comparison | Membership | NullTest | NanTest | Prefix | NonNull | Anything
BoundLeaf = BoundTest | Pair
BoundPredicate = Fixed | BoundLeaf | BoundIsTrue | BoundIsUnknown | BoundAnd | BoundOr | BoundNot


def children_of(node: BoundPredicate) -> tuple[BoundPredicate, ...]:
    """Returns the direct children of a node."""
    if isinstance(node, BoundAnd | BoundOr):
        return node.children
    return (node.child,) if isinstance(node, BoundNot | BoundIsTrue | BoundIsUnknown) else ()


def leaves_of(node: BoundPredicate) -> list[BoundLeaf]:
    """Returns the predicates of a tree, left to right."""
    if type(node) is Comparison:
        return [node]
    if type(node) is BoundAnd and set(map(type, node.children)) == {Comparison}:  # as most are
        return list(node.children)  # type: ignore[arg-type]
    found: list[BoundLeaf] = []
    left: list[BoundPredicate] = [node]
    while left:
        part = left.pop()
        if isinstance(part, BoundAnd | BoundOr):
            left.extend(part.children[::-1])
        elif isinstance(part, BoundNot | BoundIsTrue | BoundIsUnknown):
            left.append(part.child)
        elif not isinstance(part, Fixed):
            found.append(part)
    return found


def terms_of(leaf: BoundLeaf) -> tuple[BoundTerm, ...]:
    """Returns the terms of a predicate."""
    if isinstance(leaf, Pair):
        return leaf.left, leaf.right
    return () if leaf.term is None else (leaf.term,)


def functions_in(term: BoundTerm) -> int:
    """Returns the number of functions in a term."""
    return 1 + sum(map(functions_in, term.arguments)) if isinstance(term, Derived) else 0


def leaves_in(term: BoundTerm) -> tuple[Leaf, ...]:
    """Returns the columns of a term, without duplicates."""
    if isinstance(term, Leaf):
        return (term,)
    if isinstance(term, ConstantTerm):
        return ()
    return tuple(dict.fromkeys(leaf for argument in term.arguments for leaf in leaves_in(argument)))


def columns_of_terms(terms: Sequence[BoundTerm]) -> tuple[Leaf, ...]:
    """Returns the columns of terms, without duplicates, in the order of their first use."""
    return tuple(dict.fromkeys(leaf for term in terms for leaf in leaves_in(term)))


def columns_of(node: BoundPredicate) -> tuple[Leaf, ...]:
    """Returns the columns of a filter, without duplicates, in the order of their first use."""
    return columns_in(leaves_of(node))


def columns_in(parts: Sequence[BoundLeaf]) -> tuple[Leaf, ...]:
    """Returns the columns of predicates, without duplicates, in the order of their first use."""
    found: dict[Leaf, None] = {}
    for part in parts:
        if not isinstance(part, Pair) and type(part.term) is Leaf:
            found[part.term] = None
        else:
            found.update((leaf, None) for term in terms_of(part) for leaf in leaves_in(term))
    return tuple(found)


def column_ids(node: BoundPredicate) -> frozenset[int]:
    """Returns the columns whose statistics the filter uses."""
    return frozenset(leaf.id for leaf in columns_of(node))
