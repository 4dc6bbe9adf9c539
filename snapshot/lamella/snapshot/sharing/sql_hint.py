"""``predicateHints``: SQL texts that all hold. Columns beside values, null tests and connectives are used."""

from __future__ import annotations

import math
from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_sql
from lamella.snapshot.expression.nodes import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    Ref,
    Term,
    Truth,
)
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.sharing import hint
from lamella.snapshot.sharing.hint import Meant, unused

_MOST_LISTED: Final = 1_000


def read_sql_hint(given: str, schema: Schema) -> Predicate:
    """The predicate of a hint's text; what cannot be read for certain is unknown in it, and nothing is an error."""
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
            return _unused() if leaf is None else hint.is_null(leaf, negated=negated)
        case Truth(term):
            return _compared(Compare("eq", term, Literal("boolean", True)), schema, negated=negated)
        case Compare():
            return _compared(node, schema, negated=negated)
        case In(term, literals):
            if len(literals) > _MOST_LISTED:
                return unused("a list", f"lists of more than {_MOST_LISTED} values are not used")
            each = tuple(_compared(Compare("eq", term, one), schema, negated=negated) for one in literals)
            return And(each) if negated else Or(each)
        case _:
            return _unused()


def _compared(node: Compare, schema: Schema, *, negated: bool) -> Predicate:
    leaf = _column(node.left, schema)
    if leaf is None or not isinstance(node.right, Literal):
        return _unused()
    meant = _meant(node.right, leaf.dtype)
    if meant is None:
        return unused(leaf.name, "it is not compared with a value of its type")
    if node.op == "ne":
        return hint.compared("eq", leaf, meant, negated=not negated)
    return hint.compared(node.op, leaf, meant, negated=negated)


def _column(term: Term, schema: Schema) -> Leaf | None:
    return hint.column(schema, term.path) if isinstance(term, Ref) else None


def _meant(literal: Literal, dtype: DataType) -> Meant | None:
    value = literal.value
    if literal.kind == "integer" and isinstance(value, int) and dtype.is_integer:
        return hint.integer(value, dtype)
    if literal.kind in ("integer", "decimal", "double", "float") and dtype.is_float:
        number = _number(value)
        return None if number is None else hint.real(number, dtype)
    if literal.kind == "boolean" and isinstance(value, bool) and dtype.name == "boolean":
        return hint.boolean(value)
    if literal.kind == "string" and isinstance(value, str):
        if dtype.is_text:
            return hint.text(value)
        return hint.date(value) if dtype.name == "date" else None
    if literal.kind == "date" and isinstance(value, int) and dtype.name == "date":
        return Meant(literal, literal)
    return None  # decimals are rounded by some, and times without a zone are those of a session


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _unused() -> Predicate:
    return unused("a part of the hint", "only columns beside values and tests for null are used")
