"""What a filter may do with the rows of each entry, from zone maps alone.

The outcome of a predicate over an entry is the set of results that its rows may have: true, false, null. Every test
may only make that set too large, never too small. :mod:`.leaves` has the tests of single predicates,
:mod:`.outcome` the logic that puts them together.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec

from lamella.snapshot.cache import held_bytes
from lamella.snapshot.columnar.masks import Truth, both, either, no, overlapping
from lamella.snapshot.columnar.zones import MAY_NULL, NULLS_KNOWN, Zones
from lamella.snapshot.expression.bound import (
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    Comparison,
    Fixed,
    Membership,
    Prefix,
    columns_in,
    functions_in,
    leaves_of,
    terms_of,
)
from lamella.snapshot.prune.classes import only, split_columns
from lamella.snapshot.prune.gaps import may_have_gaps, never_true
from lamella.snapshot.prune.leaves import Lookup, leaf_outcome, term_zones
from lamella.snapshot.prune.outcome import Outcome, conjunction, flipped, never, settled
from lamella.snapshot.schema import DataType, Leaf

__all__ = ["Evaluator", "FilterKey", "Lookup", "Outcome", "evaluate"]

#: What a function counts, beside the comparison of its result.
_FUNCTION: Final = 3
#: Comparisons of a small filter.
_FEW: Final = 4

_Split = tuple[tuple[Leaf, tuple[int, ...]], ...]


def evaluate(node: BoundPredicate, lookup: Lookup, count: int) -> Outcome:
    """The outcome of a filter over ``count`` entries, as arrays."""
    return Evaluator(node).outcome(lookup, count).arrays(count)


class FilterKey(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A filter as a key: equal filters are equal keys. ``digest``: its hash, made once."""

    node: BoundPredicate
    digest: int
    _size_bytes: int = -1

    @classmethod
    def of(cls, node: BoundPredicate) -> FilterKey:
        """The key of a filter."""
        return cls(node, hash(node))

    @property
    def size_bytes(self) -> int:
        """What the filter takes in memory, counted once: whatever is kept under this key keeps it, too."""
        if self._size_bytes < 0:
            size_bytes = 0 if _is_small(self.node) else held_bytes(self.node, (Leaf, DataType))
            msgspec.structs.force_setattr(self, "_size_bytes", size_bytes)
        return self._size_bytes

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, FilterKey) and self.digest == other.digest
        return same and isinstance(other, FilterKey) and (self.node is other.node or self.node == other.node)


def _is_small(node: BoundPredicate) -> bool:
    """Whether it is a few comparisons of columns with numbers: what is kept counts more than that for itself."""
    for part in node.children[:_FEW] if type(node) is BoundAnd else (node,):
        if type(part) is not Comparison or type(part.term) is not Leaf or type(part.value) is bytes:
            return False
    return type(node) is not BoundAnd or len(node.children) <= _FEW


class Evaluator:
    """One filter, to be evaluated over several layers; what depends on the filter alone is made once."""

    def __init__(self, node: BoundPredicate) -> None:
        self.node = node
        #: Its predicates, left to right.
        self.leaves = leaves_of(node)
        #: Each column that the filter names.
        self.columns = columns_in(self.leaves)
        #: What results of this filter are kept under.
        self.key = FilterKey.of(node)
        self._only: Evaluator | None = None

    @cached_property
    def split(self) -> _Split:
        """The columns whose kinds of rows are looked at apart; see :mod:`.classes`."""
        return split_columns(self.leaves)

    @cached_property
    def weight(self) -> int:
        """About how many comparisons of a number it takes to test one entry, for an estimate; at least 1."""
        return max(1, sum(_weight(leaf) for leaf in self.leaves))

    @cached_property
    def _has_parts(self) -> bool:
        """Whether gaps may be known of a function of a column."""
        terms = (term for part in self.leaves for term in terms_of(part))
        return any(not isinstance(term, Leaf) and may_have_gaps(term) for term in terms)

    def only(self, parts: tuple[BoundPredicate, ...]) -> Evaluator:
        """The conjunction of some of the filter's parts; the last one is kept, as it is asked for again."""
        node = parts[0] if len(parts) == 1 else BoundAnd(parts)
        if self._only is None or self._only.node != node:
            self._only = Evaluator(node)
        return self._only

    def outcome(self, lookup: Lookup, count: int) -> Outcome:
        """The outcome over ``count`` entries."""
        gaps = self._has_parts
        for column in self.columns:
            gaps = gaps or lookup(column).spans is not None
        return self._by_class(self.split, lookup, count, gaps)

    def _by_class(self, columns: _Split, lookup: Lookup, count: int, gaps: bool) -> Outcome:
        """The outcomes for each kind of row, put together; see :mod:`.classes`."""
        if not columns:
            return _evaluate(self.node, lookup, count, gaps)
        (column, kinds), *rest = columns
        zones = lookup(column)
        present = [_some_of(zones, kind) for kind in kinds]
        if not count or not overlapping(present):
            return self._by_class(tuple(rest), lookup, count, gaps)
        true: Truth = False
        false: Truth = False
        null: Truth = False
        doubt: Truth = False
        for kind, mask in zip(kinds, present, strict=True):
            if mask is False:
                continue
            part = only(zones, kind)

            def narrowed(leaf: Leaf, part: Zones = part) -> Zones:
                return part if leaf == column else lookup(leaf)

            outcome = self._by_class(tuple(rest), narrowed, count, gaps)
            true = either(true, both(outcome.true, mask))
            false = either(false, both(outcome.false, mask))
            null = either(null, both(outcome.null, mask))
            doubt = either(doubt, both(outcome.doubt, mask))
        if any(kind == MAY_NULL for kind in kinds):  # an unknown count of nulls leaves it open whether there are any
            doubt = either(doubt, both(zones.flag(MAY_NULL), no(zones.flag(NULLS_KNOWN))))
        return settled(true, false, null, doubt)


def _weight(leaf: BoundLeaf) -> int:
    """As :attr:`Evaluator.weight`, of one predicate."""
    own = 1
    if isinstance(leaf, Prefix):
        own = 4 if leaf.parts else 2
    elif isinstance(leaf, Membership):
        own = 1 + len(leaf.values).bit_length()
    return own + sum(_FUNCTION * functions_in(term) for term in terms_of(leaf))


def _some_of(zones: Zones, kinds: int) -> Truth:
    """Where a row may be of one of the kinds."""
    found: Truth = False
    bit = 1
    while bit <= kinds:
        if kinds & bit:
            found = either(found, zones.flag(bit))
        bit <<= 1
    return found


def _evaluate(node: BoundPredicate, lookup: Lookup, count: int, gaps: bool) -> Outcome:
    match node:
        case Fixed(value):
            return Outcome(value is True, value is False, value is None, False)
        case BoundNot(child):
            return flipped(_evaluate(child, lookup, count, gaps))
        case BoundIsTrue(child):
            inner = _evaluate(child, lookup, count, gaps)
            return settled(inner.true, either(inner.false, inner.null), False, inner.doubt)
        case BoundIsUnknown(child):
            inner = _evaluate(child, lookup, count, gaps)
            return settled(inner.null, either(inner.true, inner.false), False, inner.doubt)
        case BoundAnd(children):
            found = conjunction([_evaluate(child, lookup, count, gaps) for child in children])
        case BoundOr(children):
            return flipped(conjunction([flipped(_evaluate(child, lookup, count, gaps)) for child in children]))
        case _:
            found = leaf_outcome(node, lookup, count)
    if not gaps:
        return found
    return never(found, never_true(node, lambda term: term_zones(term, lookup, count)))
