"""A filter bound to a schema: columns are ids, literals are values of the column's order.

Every node maps each row to true, false or null exactly as the filter does, but for the nodes whose name says that
they are unknown.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats.bound import Value

BoundOperator = Literal["lt", "le", "gt", "ge", "eq"]


class Fixed(msgspec.Struct, frozen=True):
    """The same outcome for every row: true, false or null (None)."""

    value: bool | None


class Comparison(msgspec.Struct, frozen=True):
    """``column op value``; NaN as a value is greater than all and equal to itself."""

    leaf: Leaf
    op: BoundOperator
    value: Value
    text: str


class Membership(msgspec.Struct, frozen=True):
    """``column IN values``: ascending, no doubles, no NaN; ``has_nan`` and ``has_null`` say what else is listed."""

    leaf: Leaf
    values: tuple[Value, ...]
    has_nan: bool
    has_null: bool
    text: str


class NullTest(msgspec.Struct, frozen=True):
    """``column IS NULL``."""

    leaf: Leaf
    text: str


class NanTest(msgspec.Struct, frozen=True):
    """``isnan(column)``, false for null."""

    leaf: Leaf
    text: str


class Prefix(msgspec.Struct, frozen=True):
    """Values that begin with ``prefix``; ``whole``: all of those match, else some may."""

    leaf: Leaf
    prefix: bytes
    whole: bool
    text: str


class NonNull(msgspec.Struct, frozen=True):
    """The same outcome for every value of the column, NaN included; null for null."""

    leaf: Leaf
    value: bool
    text: str


class Anything(msgspec.Struct, frozen=True):
    """Not known; with a ``leaf``, null exactly where that column is null."""

    text: str
    reason: str
    leaf: Leaf | None = None


class BoundIsTrue(msgspec.Struct, frozen=True):
    """Null becomes false."""

    child: BoundPredicate


class BoundAnd(msgspec.Struct, frozen=True):
    """Conjunction; an empty one is true."""

    children: tuple[BoundPredicate, ...]


class BoundOr(msgspec.Struct, frozen=True):
    """Disjunction; an empty one is false."""

    children: tuple[BoundPredicate, ...]


class BoundNot(msgspec.Struct, frozen=True):
    """Negation; null stays null."""

    child: BoundPredicate


BoundLeaf = Comparison | Membership | NullTest | NanTest | Prefix | NonNull | Anything
BoundPredicate = Fixed | BoundLeaf | BoundIsTrue | BoundAnd | BoundOr | BoundNot


def children_of(node: BoundPredicate) -> tuple[BoundPredicate, ...]:
    """The direct parts of a node."""
    if isinstance(node, BoundAnd | BoundOr):
        return node.children
    return (node.child,) if isinstance(node, BoundNot | BoundIsTrue) else ()


def leaves_of(node: BoundPredicate) -> list[BoundLeaf]:
    """The predicates of a tree, left to right."""
    if isinstance(node, Fixed):
        return []
    if isinstance(node, BoundAnd | BoundOr | BoundNot | BoundIsTrue):
        return [leaf for child in children_of(node) for leaf in leaves_of(child)]
    return [node]


def column_ids(node: BoundPredicate) -> frozenset[int]:
    """The columns whose statistics the filter asks for."""
    return frozenset(leaf.leaf.id for leaf in leaves_of(node) if leaf.leaf is not None)
