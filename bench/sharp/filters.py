"""Filters of the benchmark as values, which can be translated to every planner's language.

A filter is a tree of :class:`And`, :class:`Or` and :class:`Not` over atoms; an atom names one column, or compares two.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Constant = bool | int | float | Decimal | str | bytes | dt.date | dt.datetime


class Compare(msgspec.Struct, frozen=True):
    """``column op value``."""

    column: str
    op: Operator
    value: Constant


class Between(msgspec.Struct, frozen=True):
    """``column BETWEEN low AND high``, both ends included."""

    column: str
    low: Constant
    high: Constant


class In(msgspec.Struct, frozen=True):
    """``column [NOT] IN (values)``."""

    column: str
    values: tuple[Constant, ...]
    negated: bool = False


class Null(msgspec.Struct, frozen=True):
    """``column IS [NOT] NULL``."""

    column: str
    negated: bool = False


class NullSafe(msgspec.Struct, frozen=True):
    """``column <=> value``: true or false, never null."""

    column: str
    value: Constant


class Like(msgspec.Struct, frozen=True):
    """``column [NOT] LIKE pattern``, without escapes."""

    column: str
    pattern: str
    negated: bool = False


class StartsWith(msgspec.Struct, frozen=True):
    """``startswith(column, prefix)``."""

    column: str
    prefix: str


class Columns(msgspec.Struct, frozen=True):
    """``left op right``, two columns of one type."""

    left: str
    op: Operator
    right: str


class Text(msgspec.Struct, frozen=True):
    """A condition over a function or arithmetic of one column, in Spark's SQL and in DuckDB's.

    ``near``: values of the column at and around which the condition may change, for the oracle of min and max.
    """

    column: str
    spark: str
    duckdb: str
    near: tuple[Constant, ...] = ()


class And(msgspec.Struct, frozen=True):
    """All of the parts."""

    parts: tuple[Filter, ...]


class Or(msgspec.Struct, frozen=True):
    """Any of the parts."""

    parts: tuple[Filter, ...]


class Not(msgspec.Struct, frozen=True):
    """SQL's NOT."""

    part: Filter


Atom = Compare | Between | In | Null | NullSafe | Like | StartsWith | Columns | Text
Filter = Atom | And | Or | Not


def atoms_of(node: Filter) -> Iterator[Atom]:
    """The atoms, left to right."""
    match node:
        case And(parts) | Or(parts):
            for part in parts:
                yield from atoms_of(part)
        case Not(part):
            yield from atoms_of(part)
        case _:
            yield node


def columns_of(node: Filter) -> frozenset[str]:
    """The columns that a filter names."""
    return frozenset(
        name
        for atom in atoms_of(node)
        for name in ((atom.left, atom.right) if isinstance(atom, Columns) else (atom.column,))
    )


def branches(node: Filter) -> list[list[Filter]]:
    """The filter as an OR of ANDs of atoms and negated atoms.

    Kleene's logic obeys De Morgan and distribution, so both are true for the same rows, null ones included.
    """
    return _branches(node, negated=False)


def _branches(node: Filter, *, negated: bool) -> list[list[Filter]]:
    match node:
        case Not(part):
            return _branches(part, negated=not negated)
        case And(parts) | Or(parts):
            each = [_branches(part, negated=negated) for part in parts]
            if isinstance(node, Or) is not negated:
                return [branch for found in each for branch in found]
            product: list[list[Filter]] = [[]]
            for found in each:
                product = [left + right for left in product for right in found]
            return product
        case _:
            return [[Not(node) if negated else node]]
