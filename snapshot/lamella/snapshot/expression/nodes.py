"""The filter language as values: what was asked, before any schema is looked at.

A filter is a tree of predicates over columns and literals, with SQL's three-valued logic. Whatever cannot be
expressed is :class:`Unknown`: it may be true, false or null for any row, so it excludes nothing, and its neighbours
still do.
"""

from __future__ import annotations

from typing import Literal as Choice

import msgspec

Operator = Choice["lt", "le", "gt", "ge", "eq", "ne"]

#: How a literal was written, which decides what it may be compared with and how (see ``bind``).
LiteralKind = Choice[
    "null",
    "boolean",
    "integer",  # value: int
    "decimal",  # value: text of a decimal number, exact
    "double",  # value: float
    "float",  # value: float that is exact in 32 bits
    "string",  # SQL text: compared with other types by Spark's casts
    "text",  # JSON text: stands for a date, timestamp, decimal, uuid, ... of the column's own type
    "binary",  # value: bytes
    "date",  # value: days since 1970-01-01
    "timestamp",  # value: microseconds since the epoch, an instant
    "timestamp_ntz",  # value: microseconds since the epoch, wall clock
]


class Literal(msgspec.Struct, frozen=True):
    """A constant; ``kind`` says how it was written."""

    kind: LiteralKind
    value: bool | int | float | str | bytes | None = None


class Ref(msgspec.Struct, frozen=True):
    """A column by its dotted path."""

    path: str


class Constant(msgspec.Struct, frozen=True):
    """TRUE, FALSE, or NULL."""

    value: bool | None


class Compare(msgspec.Struct, frozen=True):
    """``column op literal``; null when either is null."""

    op: Operator
    ref: Ref
    literal: Literal


class NullSafeEqual(msgspec.Struct, frozen=True):
    """``column <=> literal``; never null."""

    ref: Ref
    literal: Literal


class In(msgspec.Struct, frozen=True):
    """``column IN (literals)``, of any length."""

    ref: Ref
    literals: tuple[Literal, ...]


class IsNull(msgspec.Struct, frozen=True):
    """``column IS NULL``."""

    ref: Ref


class IsNan(msgspec.Struct, frozen=True):
    """``isnan(column)``; false for null."""

    ref: Ref


class Like(msgspec.Struct, frozen=True):
    """``column LIKE pattern``, with ``%``, ``_`` and one escape character (empty: none)."""

    ref: Ref
    pattern: str
    escape: str = "\\"


class StartsWith(msgspec.Struct, frozen=True):
    """``startswith(column, prefix)``."""

    ref: Ref
    prefix: Literal


class Truth(msgspec.Struct, frozen=True):
    """A boolean column as a predicate."""

    ref: Ref


class IsTrue(msgspec.Struct, frozen=True):
    """``(predicate) IS TRUE``: null counts as false."""

    child: Predicate


class And(msgspec.Struct, frozen=True):
    """All of the children."""

    children: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True):
    """Any of the children."""

    children: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True):
    """SQL's NOT: null stays null."""

    child: Predicate


class Unknown(msgspec.Struct, frozen=True):
    """A predicate that is not used: its text, the reason, and the columns it names (they must exist)."""

    text: str
    reason: str
    columns: tuple[str, ...] = ()


#: Predicates over one column and constants.
ColumnPredicate = Compare | NullSafeEqual | In | IsNull | IsNan | Like | StartsWith | Truth
Predicate = Constant | ColumnPredicate | IsTrue | And | Or | Not | Unknown

TRUE = Constant(True)
