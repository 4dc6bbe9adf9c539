"""A filter that decides rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, assert_never

import msgspec
import numpy as np
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import EvaluationFailed, FilterNotEvaluable
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    Comparison,
    Derived,
    Fixed,
    Held,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Pair,
    Prefix,
    columns_of,
    leaves_in,
    leaves_of,
)
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import And, Constant, IsTrue, Like, Not, Or, Predicate, TermPredicate, Unknown
from lamella.snapshot.expression.terms import TermBinder
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.function.text import NOT_UTF8
from lamella.snapshot.function.vector import Vector, constant_vector
from lamella.snapshot.function.vector import text_of as utf8_of
from lamella.snapshot.rows.compare import compared, member
from lamella.snapshot.rows.like import Pattern, like_pattern
from lamella.snapshot.rows.truth import Truth, everywhere
from lamella.snapshot.rows.vectors import vector_of
from lamella.snapshot.schema import Leaf, Schema


class TextMatch(msgspec.Struct, frozen=True):
    """``term LIKE pattern``: what the bound form of a filter, made for zone maps, does not keep."""

    term: BoundTerm
    pattern: Pattern


class RowFilter:
    """A filter over the columns of ``schema``, ready to decide rows. Safe to share between threads.

    ``time_zone`` and ``case_sensitive`` as for :func:`lamella.snapshot.expression.bind`.

    Raises:
        FilterNotEvaluable: a part of the filter cannot be decided exactly; names it.
        UnknownColumn, FilterTypeMismatch, InvalidRequest: as binding does.
    """

    def __init__(
        self, predicate: Predicate, schema: Schema, *, time_zone: str = "UTC", case_sensitive: bool = False
    ) -> None:
        self._predicate = predicate
        self._schema = schema
        self._time_zone = time_zone
        self._case_sensitive = case_sensitive
        self._tests: dict[Predicate, BoundPredicate | TextMatch] = {}
        self._prepare(predicate)
        found = (
            leaf
            for test in self._tests.values()
            for leaf in (leaves_in(test.term) if isinstance(test, TextMatch) else columns_of(test))
        )
        self.columns: tuple[Leaf, ...] = tuple(dict.fromkeys(found))

    def matches(self, columns: Mapping[int, Any], count: int) -> Mask:
        """Which of ``count`` rows match; ``columns`` holds at least :attr:`columns` as Arrow arrays, by column id.

        Raises:
            EvaluationFailed: in some row a value that is needed cannot be computed (an overflow, a division by zero, a
                cast out of range), as in Spark's ANSI mode.
        """
        truth = self.decide(columns, count)
        if truth.failed is not None and truth.failed.any():
            text = text_of(self._predicate)
            raise EvaluationFailed(f"{text}: {truth.reason}", predicate=text, reason=truth.reason)
        return truth.true

    def decide(self, columns: Mapping[int, Any], count: int) -> Truth:
        """The filter's truth in every row, with the rows where it cannot be computed."""
        return self._truth(self._predicate, _Rows(columns, count))

    def _prepare(self, node: Predicate) -> None:
        match node:
            case Constant():
                return
            case And(children) | Or(children):
                for child in children:
                    self._prepare(child)
            case Not(child) | IsTrue(child):
                self._prepare(child)
            case _:
                self._tests[node] = self._test(node)

    def _test(self, node: TermPredicate | Unknown) -> BoundPredicate | TextMatch:
        bound = bind(node, self._schema, time_zone=self._time_zone, case_sensitive=self._case_sensitive)
        vague = [
            leaf
            for leaf in leaves_of(bound)
            if isinstance(leaf, Anything) or (isinstance(leaf, Prefix) and not leaf.whole)
        ]
        if not vague:
            return bound
        made = self._text_match(node) if isinstance(node, Like) else None
        if made is not None:
            return made
        text = text_of(node)
        reason = next((leaf.reason for leaf in vague if isinstance(leaf, Anything)), "it is not understood")
        raise FilterNotEvaluable(f"the reader cannot decide {text}: {reason}", predicate=text, reason=reason)

    def _text_match(self, node: Like) -> TextMatch | None:
        term = TermBinder(self._schema, self._time_zone, self._case_sensitive).bind(node.term)
        pattern = like_pattern(node.pattern, node.escape)
        if pattern is None or isinstance(term, Unusable | Held) or not term.dtype.is_text:
            return None
        return TextMatch(term, pattern)

    def _truth(self, node: Predicate, rows: _Rows) -> Truth:
        match node:
            case Constant(value):
                return everywhere(value, rows.count)
            case And(children):
                parts = (self._truth(child, rows) for child in children)
                return reduce(Truth.and_then, parts, everywhere(True, rows.count))
            case Or(children):
                parts = (self._truth(child, rows) for child in children)
                return reduce(Truth.or_else, parts, everywhere(False, rows.count))
            case Not(child):
                return self._truth(child, rows).negated()
            case IsTrue(child):
                return self._truth(child, rows).settled()
            case _:
                test = self._tests[node]
                return _matched(test, rows) if isinstance(test, TextMatch) else _bound_truth(test, rows)


class _Rows:
    """The rows at hand; each term is computed once."""

    def __init__(self, columns: Mapping[int, Any], count: int) -> None:
        self.count = count
        self._columns = columns
        self._vectors: dict[BoundTerm, Vector] = {}

    def vector(self, term: BoundTerm) -> Vector:
        """A term's values."""
        found = self._vectors.get(term)
        if found is None:
            found = self._vectors[term] = self._made(term)
        return found

    def _made(self, term: BoundTerm) -> Vector:
        match term:
            case Leaf():
                return vector_of(self._columns[term.id], term.dtype)
            case Held(value, dtype, _):
                return constant_vector(dtype, value, self.count)
            case Derived(function, arguments, _, _):
                return function.rows(*(self.vector(argument) for argument in arguments))
            case _:
                assert_never(term)


def _bound_truth(node: BoundPredicate, rows: _Rows) -> Truth:
    match node:
        case Fixed(value):
            return everywhere(value, rows.count)
        case BoundAnd(children):
            parts = (_bound_truth(child, rows) for child in children)
            return reduce(Truth.and_then, parts, everywhere(True, rows.count))
        case BoundOr(children):
            parts = (_bound_truth(child, rows) for child in children)
            return reduce(Truth.or_else, parts, everywhere(False, rows.count))
        case BoundNot(child):
            return _bound_truth(child, rows).negated()
        case BoundIsTrue(child):
            return _bound_truth(child, rows).settled()
        case _:
            return _leaf_truth(node, rows)


def _leaf_truth(node: BoundLeaf, rows: _Rows) -> Truth:
    if isinstance(node, Pair):
        left, right = rows.vector(node.left), rows.vector(node.right)
        return _where(compared(left, node.op, right), left, right)
    if isinstance(node, Anything):
        raise AssertionError("a filter with such a part is refused")
    vector = rows.vector(node.term)
    match node:
        case NullTest():
            return _never_null(~vector.valid, vector)
        case NanTest():
            return _never_null(vector.valid & np.isnan(vector.values), vector)
        case NonNull(_, value, _):
            return _where(np.full(rows.count, value), vector)
        case Comparison(_, op, value, _):
            return _where(compared(vector, op, value), vector)
        case Membership(_, values, has_nan, has_null, _):
            found = _where(member(vector, values, has_nan=has_nan), vector)
            return Truth(found.true, np.zeros_like(found.true), found.failed, found.reason) if has_null else found
        case Prefix(_, prefix, _, _):
            return _where(pc.starts_with(vector.values, prefix).to_numpy(zero_copy_only=False), vector)
        case _:
            assert_never(node)


def _matched(test: TextMatch, rows: _Rows) -> Truth:
    vector = rows.vector(test.term)
    text, broken = utf8_of(vector)
    found = test.pattern.matches(text)
    if not broken.any():
        return _where(found, vector)
    failed = broken & vector.valid if vector.failed is None else (broken & vector.valid) | vector.failed
    return _where(found, Vector(vector.values, vector.valid, failed, vector.reason or NOT_UTF8))


def _where(found: Mask, *vectors: Vector) -> Truth:
    """True and false as ``found`` says, null where a vector is; a null on the left hides a failure on the right."""
    usable = np.ones(len(found), dtype=bool)
    failed: Mask | None = None
    reason = ""
    for vector in vectors:
        if vector.failed is not None:
            here = vector.failed & usable
            failed = here if failed is None else failed | here
            reason = reason or vector.reason
        usable = usable & vector.valid
    if failed is not None:
        usable = usable & ~failed
    return Truth(found & usable, ~found & usable, failed, reason)


def _never_null(found: Mask, vector: Vector) -> Truth:
    if vector.failed is None:
        return Truth(found, ~found)
    return Truth(found & ~vector.failed, ~found & ~vector.failed, vector.failed, vector.reason)
