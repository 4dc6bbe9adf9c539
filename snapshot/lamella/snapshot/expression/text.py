"""Predicates as short SQL text, for reports and plans."""

from __future__ import annotations

from typing import Final, assert_never

from lamella.snapshot.expression.nodes import (
    And,
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
    Or,
    Predicate,
    StartsWith,
    Truth,
    Unknown,
)

_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "<>"}
_LIST_SHOWN: Final = 5
_TEXT_SHOWN: Final = 60


def literal_text(literal: Literal) -> str:
    """A literal as SQL would spell it; long text is cut with an ellipsis."""
    value = literal.value
    if literal.kind == "null":
        return "NULL"
    if literal.kind in ("string", "text"):
        text = str(value)
        cut = text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN] + "…"
        return "'" + cut.replace("'", "''") + "'"
    if isinstance(value, bytes):
        digits = value.hex().upper()
        return f"X'{digits if len(digits) <= _TEXT_SHOWN else digits[:_TEXT_SHOWN] + '…'}'"
    if literal.kind == "boolean":
        return "true" if value else "false"
    if literal.kind in ("date", "timestamp", "timestamp_ntz"):
        return f"{literal.kind}({value})"
    return str(value)


def text_of(predicate: Predicate) -> str:
    """The predicate's SQL text, long lists shortened."""
    match predicate:
        case Constant(value):
            return "NULL" if value is None else "true" if value else "false"
        case Compare(op, ref, literal):
            return f"{ref.path} {_SIGNS[op]} {literal_text(literal)}"
        case NullSafeEqual(ref, literal):
            return f"{ref.path} <=> {literal_text(literal)}"
        case In(ref, literals):
            shown = ", ".join(literal_text(value) for value in literals[:_LIST_SHOWN])
            more = f", … {len(literals)} in all" if len(literals) > _LIST_SHOWN else ""
            return f"{ref.path} IN ({shown}{more})"
        case IsNull(ref):
            return f"{ref.path} IS NULL"
        case IsNan(ref):
            return f"isnan({ref.path})"
        case Like(ref, pattern, _):
            return f"{ref.path} LIKE {literal_text(Literal('string', pattern))}"
        case StartsWith(ref, prefix):
            return f"startswith({ref.path}, {literal_text(prefix)})"
        case Truth(ref):
            return ref.path
        case IsTrue(child):
            return f"({text_of(child)}) IS TRUE"
        case Not(IsNull(ref)):
            return f"{ref.path} IS NOT NULL"
        case Not(child):
            return f"NOT ({text_of(child)})"
        case And(children):
            return " AND ".join(f"({text_of(c)})" if isinstance(c, Or) else text_of(c) for c in children) or "true"
        case Or(children):
            return " OR ".join(f"({text_of(c)})" if isinstance(c, And) else text_of(c) for c in children) or "false"
        case Unknown(text, _, _):
            return text
        case _:
            assert_never(predicate)
