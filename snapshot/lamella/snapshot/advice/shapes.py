"""Filters without their literals, to be kept; and literals drawn for them again from what manifests say of columns.

A *masked* filter has :data:`MARK` in the place of each constant, or with ``secret`` a keyed hash of it, so that equal
constants can be told to be equal and nothing else. Of patterns the wildcards are left, and how long the text between
them is. Small whole numbers and units inside of functions stay, since they are part of what is asked.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, assert_never

import msgspec

from lamella.snapshot.expression.like import ONE, like_parts
from lamella.snapshot.expression.nodes import (
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

#: Stands for a constant.
MARK: Final = "?"
#: Of longer lists so many marks are kept.
MOST_LISTED: Final = 100
_SMALL: Final = 1_000
_UNITS: Final = frozenset(
    ("year", "quarter", "month", "mon", "mm", "yyyy", "yy", "week", "day", "dd", "hour", "minute")
)
_HASH_CHARS: Final = 16
_LEFT_OUT: Final = "its constants are not kept"


def masked(predicate: Predicate, secret: bytes | None = None) -> Predicate:
    """The filter without its literals; with hashes in their place when there is a ``secret``."""
    return _Masking(secret).predicate(predicate)


class _Masking:
    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret

    def predicate(self, node: Predicate) -> Predicate:
        match node:
            case And(children):
                return And(tuple(map(self.predicate, children)))
            case Or(children):
                return Or(tuple(map(self.predicate, children)))
            case Not(child):
                return Not(self.predicate(child))
            case IsTrue(child):
                return IsTrue(self.predicate(child))
            case IsUnknown(child):
                return IsUnknown(self.predicate(child))
            case Constant():
                return node
            case Unknown():
                return Unknown(MARK, _LEFT_OUT)
            case Compare(op, left, right):
                return Compare(op, self._operand(left), self._operand(right))
            case NullSafeEqual(left, right):
                return NullSafeEqual(self._operand(left), self._operand(right))
            case In(term, literals):
                return In(self._term(term), tuple(self._literal(each) for each in literals[:MOST_LISTED]))
            case Like(term, pattern, escape):
                return Like(self._term(term), self._pattern(pattern, escape))
            case StartsWith(term, prefix):
                return StartsWith(self._term(term), Literal("string", MARK * len(str(prefix.value))))
            case IsNull(term) | IsNan(term) | Truth(term):
                return msgspec.structs.replace(node, term=self._term(term))
            case _:
                assert_never(node)

    def _operand(self, term: Term) -> Term:
        if isinstance(term, Cast) and isinstance(term.term, Literal):  # a constant all the same
            term = term.term
        return self._literal(term) if isinstance(term, Literal) else self._term(term)

    def _term(self, term: Term) -> Term:
        match term:
            case Ref():
                return term
            case Cast(inner, target):
                return Cast(self._term(inner), target)
            case Call(function, arguments):
                return Call(function, tuple(map(self._term, arguments)))
            case Literal(kind, value):
                small = kind == "integer" and isinstance(value, int) and abs(value) <= _SMALL
                is_unit = isinstance(value, str) and value.lower() in _UNITS
                return term if small or is_unit else self._literal(term)
            case _:
                assert_never(term)

    def _literal(self, literal: Literal) -> Literal:
        if literal.kind == "null":
            return literal
        if self._secret is None:
            return Literal("string", MARK)
        digest = hmac.new(self._secret, repr((literal.kind, literal.value)).encode(), hashlib.sha256).hexdigest()
        return Literal("string", f"{MARK}{digest[:_HASH_CHARS]}")

    def _pattern(self, pattern: str, escape: str) -> str:
        parts = like_parts(pattern, escape)
        if parts is None:
            return MARK
        return "".join(MARK * len(part) if isinstance(part, str) else "_" if part == ONE else "%" for part in parts)


def is_mark(literal: Literal) -> bool:
    """Whether a constant of a masked filter is to be drawn."""
    return literal.kind == "string" and isinstance(literal.value, str) and literal.value.startswith(MARK)
