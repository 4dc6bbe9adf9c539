"""Predicates as short SQL text, for reports and plans."""

from __future__ import annotations

from typing import Final, assert_never

from lamella.snapshot.expression.nodes import (
    SUFFIXES,
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
    Or,
    Predicate,
    Ref,
    StartsWith,
    Term,
    Truth,
    Unknown,
)

_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "<>"}
_SUFFIX_OF: Final = {dtype: suffix for suffix, dtype in SUFFIXES.items()}
_LIST_SHOWN: Final = 5
#: Characters of a text, or digits of binary, that are shown.
TEXT_SHOWN: Final = 60


def literal_text(literal: Literal) -> str:
    """A literal as SQL would spell it; long text is cut with an ellipsis."""
    kind, value = literal.kind, literal.value
    if kind == "integer":
        return str(value) + _SUFFIX_OF.get(literal.type, "")
    if kind == "null":
        return "NULL"
    if kind in ("string", "text"):
        text = str(value)
        cut = text if len(text) <= TEXT_SHOWN else text[:TEXT_SHOWN] + "…"
        return "'" + cut.replace("'", "''") + "'"
    if isinstance(value, bytes):
        digits = value.hex().upper()
        return f"X'{digits if len(digits) <= TEXT_SHOWN else digits[:TEXT_SHOWN] + '…'}'"
    if kind == "boolean":
        return "true" if value else "false"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return f"{kind}({value})"
    return f"CAST({value} AS {literal.type})" if literal.type else str(value)


_INFIX: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def term_text(term: Term) -> str:
    """A term's SQL text."""
    if isinstance(term, Ref):
        return term.path
    match term:
        case Literal():
            return literal_text(term)
        case Cast(inner, target):
            return f"CAST({term_text(inner)} AS {target})"
        case Call(name, (left, right)) if name in _INFIX:
            return f"({term_text(left)} {_INFIX[name]} {term_text(right)})"
        case Call("negative", (inner,)):
            return f"(- {term_text(inner)})"
        case Call(name, arguments):
            return f"{name}({', '.join(term_text(argument) for argument in arguments)})"
        case _:
            assert_never(term)


def text_of(predicate: Predicate) -> str:
    """The predicate's SQL text, long lists shortened."""
    match predicate:
        case Compare(op, left, right):
            one = left.path if isinstance(left, Ref) else term_text(left)
            other = literal_text(right) if isinstance(right, Literal) else term_text(right)
            return f"{one} {_SIGNS[op]} {other}"
        case Constant(value):
            return "NULL" if value is None else "true" if value else "false"
        case NullSafeEqual(left, right):
            return f"{term_text(left)} <=> {term_text(right)}"
        case In(term, literals):
            shown = ", ".join(literal_text(value) for value in literals[:_LIST_SHOWN])
            more = f", … {len(literals)} in all" if len(literals) > _LIST_SHOWN else ""
            return f"{term_text(term)} IN ({shown}{more})"
        case IsNull(term):
            return f"{term_text(term)} IS NULL"
        case IsNan(term):
            return f"isnan({term_text(term)})"
        case Like(term, pattern, _):
            return f"{term_text(term)} LIKE {literal_text(Literal('string', pattern))}"
        case StartsWith(term, prefix):
            return f"startswith({term_text(term)}, {literal_text(prefix)})"
        case Truth(term):
            return term_text(term)
        case IsTrue(child):
            return f"({text_of(child)}) IS TRUE"
        case IsUnknown(child):
            return f"({text_of(child)}) IS NULL"
        case Not(IsNull(term)):
            return f"{term_text(term)} IS NOT NULL"
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
