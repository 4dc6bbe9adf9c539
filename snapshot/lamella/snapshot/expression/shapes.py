"""Binds filters that differ from an earlier one in their literals alone, without reading them again.

Programs ask the same questions with other values. The *shape* of a filter is its SQL text without the literals. The
first filter of a shape is read and bound as any other; its :class:`Shape` then has the columns, the operators and the
structure, and the next filter only has its literals converted, by the same functions.

A shape is certain or there is none: it is made only of comparisons, IN, LIKE and IS NULL of columns that the plain
reader (:mod:`.sql_plain`) reads, and only if it rebuilds the filter that it is made of exactly. Whatever is unusual
about a literal (its spelling, its type, a value that the column cannot have) is left to the reader and binder.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import spark_casts
from lamella.snapshot.expression.bind import bind, bind_comparison, bind_like, conjuncts_of, membership, narrowed
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundNot,
    BoundOr,
    BoundPredicate,
    Membership,
)
from lamella.snapshot.expression.nodes import (
    And,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Ref,
)
from lamella.snapshot.expression.sql_plain import read_plain
from lamella.snapshot.expression.sql_terms import number
from lamella.snapshot.expression.text import literal_text, text_of
from lamella.snapshot.schema import Leaf, Schema

#: A text in quotes without escapes, or a number.
_LITERAL: Final = re.compile(
    r"('[^'\\]*+'|(?<![\w.])[0-9]++(?:\.[0-9]++)?+(?:e[+-]?[0-9]++)?+(?![\w.]))", re.ASCII | re.IGNORECASE
)
#: What makes it uncertain where a literal begins or ends.
_UNCERTAIN: Final = re.compile("['\"`\\\\]|--|/\\*")
#: Most characters, and most literals, of a filter with a shape.
MAX_CHARACTERS: Final = 2_048
_MAX_LITERALS: Final = 64
#: Whole numbers of more digits may have another type.
_MAX_DIGITS: Final = 18

#: Literals that are words: they are part of the shape.
_WORDS: Final = ("boolean", "null")

#: A text without its literals: what is before, between and behind them.
ShapeKey = tuple[str, ...]


def split_literals(text: str) -> tuple[ShapeKey, list[str]] | None:
    """Returns the shape of a filter's text, and its literals as they are spelled; None for a text that is too long."""
    if len(text) > MAX_CHARACTERS:
        return None
    parts = _LITERAL.split(text)
    return tuple(parts[::2]), parts[1::2]


class LiteralKind(msgspec.Struct, frozen=True, gc=False):
    """A literal to come: of what ``kind`` it is, and whether a minus is in front of it."""

    kind: str
    is_negative: bool

    def read(self, spelling: str, time_zone: str) -> Literal | None:
        """Returns the literal; None if it is of another kind, or not certain."""
        kind, is_text = self.kind, spelling[0] == "'"
        if kind == "integer":
            if len(spelling) > _MAX_DIGITS or not spelling.isdigit():
                return None
            return Literal("integer", -int(spelling) if self.is_negative else int(spelling))
        if not is_text:
            literal = number(f"-{spelling}" if self.is_negative else spelling)
            return literal if literal is not None and literal.kind == kind else None
        text = spelling[1:-1]
        if kind == "string":
            return Literal("string", text)
        value = None
        if kind == "timestamp":
            value = _instant_us(text)
            if value is None:
                value = spark_casts.instant_us(text, time_zone)
        elif kind == "timestamp_ntz":
            value = spark_casts.wall_us(text)
        elif kind == "date":
            value = spark_casts.date_days(text)
        return None if value is None else Literal(kind, value)  # type: ignore[arg-type]  # one of these three


#: The spelling of times that programs use; others take the longer way.
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}|\.[0-9]{6})?(?:Z|[+-]0[0-9]:[0-5][0-9])",
    re.ASCII,
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def _instant_us(text: str) -> int | None:
    """Returns the instant of a time with an offset; None for a text that is spelled in another way."""
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return (dt.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def literal_kinds(text: str, time_zone: str) -> tuple[LiteralKind, ...] | None:
    """Returns the kinds of a filter's literals, in the order of its text.

    Another text of this shape whose literals can all be read as these kinds is the same filter but for its literals.
    None if that is not certain, or if a pattern is among them, which is more than a literal.
    """
    split = split_literals(text)
    if split is None or any(map(_UNCERTAIN.search, split[0])):
        return None
    predicate = read_plain(text, time_zone)
    literals = None if predicate is None else _literals_of(predicate)
    if literals is None or len(literals) != len(split[1]):
        return None
    kinds = tuple(
        LiteralKind(literal.kind, before.endswith("-")) for literal, before in zip(literals, split[0][:-1], strict=True)
    )
    if any(kind.read(each, time_zone) != of for kind, each, of in zip(kinds, split[1], literals, strict=True)):
        return None
    return kinds


def _literals_of(node: Predicate) -> list[Literal] | None:
    """Returns the literals of comparisons, IN and IS NULL of columns; None for other filters."""
    match node:
        case And(children) | Or(children):
            found: list[Literal] = []
            for child in children:
                inner = _literals_of(child)
                if inner is None:
                    return None
                found += inner
            return found
        case Not(child):
            return _literals_of(child)
        case Compare(_, Ref(), Literal() as right):
            return [right] if right.kind not in _WORDS else []
        case In(Ref(), literals):
            return [literal for literal in literals if literal.kind not in _WORDS]
        case IsNull(Ref()):
            return []
        case _:
            return None


class _Comparison(msgspec.Struct, frozen=True, gc=False):
    """A column and a literal to come; ``text`` is that of the comparison up to the literal."""

    column: Leaf
    op: Operator
    text: str
    value: LiteralKind


class _List(msgspec.Struct, frozen=True, gc=False):
    """A column, and a list of literals to come."""

    ref: Ref
    column: Leaf
    values: tuple[LiteralKind, ...]


class _Pattern(msgspec.Struct, frozen=True, gc=False):
    """A column, and a pattern to come."""

    ref: Ref
    column: Leaf


class _Same(msgspec.Struct, frozen=True, gc=False):
    """A part without literals."""

    bound: BoundPredicate


class _All(msgspec.Struct, frozen=True, gc=False):
    parts: tuple[_Part, ...]


class _Any(msgspec.Struct, frozen=True, gc=False):
    parts: tuple[_Part, ...]


class _Opposite(msgspec.Struct, frozen=True, gc=False):
    part: _Part


_Part = _Comparison | _List | _Pattern | _Same | _All | _Any | _Opposite


class _Unsure(Exception):
    """The filter is left to the reader and binder."""


class Shape(msgspec.Struct, frozen=True, gc=False):
    """A filter without its literals, bound to the columns of a schema. :func:`shape_of` makes it."""

    _part: _Part
    _time_zone: str

    def bound(self, literals: Sequence[str]) -> BoundPredicate | None:
        """Returns the filter with these literals, as :func:`~.bind.bind` would; None if that is not certain."""
        try:
            return _bound(self._part, iter(literals), self._time_zone)
        except (_Unsure, LamellaError, UnicodeEncodeError):  # the reader and binder raise errors with a position
            return None


def shape_of(text: str, bound: BoundPredicate, schema: Schema, *, time_zone: str, case_sensitive: bool) -> Shape | None:
    """Returns the shape of a filter that was bound to a schema; None if it has none."""
    found = split_literals(text)
    if found is None or len(found[1]) > _MAX_LITERALS or any(map(_UNCERTAIN.search, found[0])):
        return None
    predicate = read_plain(text, time_zone)
    if predicate is None:
        return None
    maker = _Maker(schema, time_zone, case_sensitive, found[0])
    try:
        part = maker.part(predicate)
    except _Unsure:
        return None
    if maker.literals != len(found[1]):
        return None
    shape = Shape(part, time_zone)
    return shape if shape.bound(found[1]) == bound else None


class _Maker:
    """Makes the parts of a shape; ``literals`` counts those that were met, which are in the order of the text."""

    def __init__(self, schema: Schema, time_zone: str, case_sensitive: bool, key: ShapeKey) -> None:
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self._key = key
        self.literals = 0

    def part(self, node: Predicate) -> _Part:
        match node:
            case And():
                return _All(tuple([self.part(child) for child in conjuncts_of(node)]))
            case Or(children):
                return _Any(tuple([self.part(child) for child in children]))
            case Not(child):
                return _Opposite(self.part(child))
            case Compare(op, Ref() as left, Literal() as right) if right.kind not in _WORDS:
                column = self._column(left)
                value = self._value(right, column)
                return _Comparison(column, op, text_of(node).removesuffix(literal_text(right)), value)
            case In(Ref() as term, literals):
                column = self._column(term)
                return _List(term, column, tuple([self._value(literal, column) for literal in literals]))
            case Like(Ref() as term, _, "\\"):
                self.literals += 1
                return _Pattern(term, self._column(term))
            case _:
                try:
                    return _Same(
                        bind(node, self._schema, time_zone=self._time_zone, case_sensitive=self._case_sensitive)
                    )
                except LamellaError as error:
                    raise _Unsure from error

    def _column(self, ref: Ref) -> Leaf:
        leaf = self._schema.find(ref.path, case_sensitive=self._case_sensitive)
        if leaf is None or leaf.repeated:
            raise _Unsure
        return leaf

    def _value(self, literal: Literal, column: Leaf) -> LiteralKind:
        if literal.type or literal.kind in _WORDS or self.literals >= len(self._key):
            raise _Unsure
        if literal.kind == "string" and not column.dtype.is_text:  # what the text says decides
            raise _Unsure
        is_negative = self._key[self.literals].endswith("-")
        self.literals += 1
        return LiteralKind(literal.kind, is_negative)


def _bound(part: _Part, literals: Iterator[str], time_zone: str) -> BoundPredicate:
    if type(part) is _Comparison:
        literal = part.value.read(next(literals), time_zone)
        if literal is None:
            raise _Unsure
        return bind_comparison(part.op, part.column, literal, part.text + literal_text(literal), time_zone)
    if type(part) is _All:
        return BoundAnd(narrowed([_bound(each, literals, time_zone) for each in part.parts]))
    if type(part) is _Any:
        return BoundOr(tuple([_bound(each, literals, time_zone) for each in part.parts]))
    if type(part) is _Opposite:
        return BoundNot(_bound(part.part, literals, time_zone))
    if type(part) is _List:
        return _bound_list(part, literals, time_zone)
    if type(part) is _Pattern:
        spelling = next(literals)
        if spelling[0] != "'":
            raise _Unsure
        node = Like(part.ref, spelling[1:-1])
        return bind_like(part.column, node.pattern, node.escape, text_of(node))
    assert type(part) is _Same  # noqa: S101  # there is no other
    return part.bound


def _bound_list(part: _List, literals: Iterator[str], time_zone: str) -> Membership | BoundPredicate:
    values = []
    for value in part.values:
        literal = value.read(next(literals), time_zone)
        if literal is None:
            raise _Unsure
        values.append(literal)
    node = In(part.ref, tuple(values))
    return membership(part.column, node.literals, time_zone, text_of(node))
