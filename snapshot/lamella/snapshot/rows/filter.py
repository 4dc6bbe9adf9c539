"""A filter that decides rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import msgspec

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.errors import EvaluationFailed, FilterNotEvaluable
from lamella.snapshot.expression import bind
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    Fixed,
    Held,
    Pair,
    Prefix,
    columns_of,
    leaves_in,
    leaves_of,
)
from lamella.snapshot.expression.coerce import Unusable
from lamella.snapshot.expression.nodes import (
    And,
    Constant,
    IsTrue,
    IsUnknown,
    Like,
    Not,
    Or,
    Predicate,
    TermPredicate,
    Unknown,
)
from lamella.snapshot.expression.terms import TermBinder
from lamella.snapshot.expression.text import text_of
from lamella.snapshot.rows.compare import compared
from lamella.snapshot.rows.leaf_truth import matched, truth_of, where
from lamella.snapshot.rows.like import Pattern, like_pattern
from lamella.snapshot.rows.term import RowTerms
from lamella.snapshot.rows.truth import Truth, everywhere
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
                cast out of range), as in Spark's ANSI mode; or it is not certain what Spark makes of a document.
        """
        truth = self.decide(columns, count)
        if truth.failed is not None and truth.failed.any():
            text = text_of(self._predicate)
            raise EvaluationFailed(f"{text}: {truth.reason}", predicate=text, reason=truth.reason)
        return truth.true

    def decide(self, columns: Mapping[int, Any], count: int) -> Truth:
        """The filter's truth in every row, with the rows where it cannot be computed."""
        return self._truth(self._predicate, RowTerms(columns, count))

    def _prepare(self, node: Predicate) -> None:
        match node:
            case Constant():
                return
            case And(children) | Or(children):
                for child in children:
                    self._prepare(child)
            case Not(child) | IsTrue(child) | IsUnknown(child):
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

    def _truth(self, node: Predicate, rows: RowTerms) -> Truth:
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
            case IsUnknown(child):
                return self._truth(child, rows).unknown()
            case _:
                test = self._tests[node]
                if isinstance(test, TextMatch):
                    return matched(test.pattern, rows.vector(test.term))
                return _bound_truth(test, rows)


def _bound_truth(node: BoundPredicate, rows: RowTerms) -> Truth:
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
        case BoundIsUnknown(child):
            return _bound_truth(child, rows).unknown()
        case _:
            return _leaf_truth(node, rows)


def _leaf_truth(node: BoundLeaf, rows: RowTerms) -> Truth:
    if isinstance(node, Pair):
        left, right = rows.vector(node.left), rows.vector(node.right)
        return where(compared(left, node.op, right), left, right)
    if node.term is None:
        raise AssertionError("a filter with such a part is refused")
    truth = truth_of(node, rows.vector(node.term))
    if truth is None:
        raise AssertionError("a filter with such a part is refused")
    return truth
