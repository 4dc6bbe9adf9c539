"""What a filter may do with the rows of each entry, from zone maps alone.

The outcome of a predicate over an entry is the set of results that its rows may have: true, false, null. Every test may
only make that set too large, never too small. :func:`leaf_outcome` tests single predicates, :mod:`.outcome` has the
logic that puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, assert_never

import msgspec
import numpy as np

from lamella.snapshot.cache import estimated_bytes
from lamella.snapshot.columnar.keys import (
    BytesKeys,
    Keys,
    Mask,
    Ranks,
    Truth,
    both,
    either,
    filled,
    lesser,
    no,
    overlapping,
    spread,
)
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    Spans,
    Zones,
    constant,
)
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundIsUnknown,
    BoundLeaf,
    BoundNot,
    BoundOperator,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    BoundTest,
    Comparison,
    ConstantTerm,
    Derived,
    Fixed,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Pair,
    Prefix,
    columns_in,
    functions_in,
    leaves_of,
    terms_of,
)
from lamella.snapshot.expression.nodes import is_like, min_length
from lamella.snapshot.function.calendar import PartOfClock, PartOfDate
from lamella.snapshot.prune.outcome import Outcome, conjunction, flipped, never, only, resolved, split_columns
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats.bound import Value

# What range sets rule out: values, lists and two-sided ranges that fall wholly into gaps.
#
# A column's ranges were measured; those of months, hours and other parts that repeat follow from a block's bounds.
#
# Two comparisons of one column under an AND are looked at together, since each alone reaches beyond the gap.

#: The zone maps of a term.
ZonesOf = Callable[[BoundTerm], Zones]


def never_true(node: BoundPredicate, zones_of: ZonesOf) -> Mask | None:
    """Where gaps prove that a predicate is true for no row; None: nowhere."""
    if isinstance(node, BoundAnd):
        return _never_between(node, zones_of)
    if not isinstance(node, Comparison | Membership) or not may_have_gaps(node.term):
        return None
    zones = zones_of(node.term)
    if isinstance(node, Comparison) and (node.op != "eq" or _is_nan(node.value)):
        return None
    missed = _not_in_ranges(node, zones)
    if zones.buckets is None:
        return missed
    values = (node.value,) if isinstance(node, Comparison) else node.values
    others = zones.buckets.misses(values)
    return missed if others is None else others if missed is None else missed | others


def _not_in_ranges(node: Comparison | Membership, zones: Zones) -> Mask | None:
    spans = zones.spans
    if spans is None:
        return None
    if isinstance(node, Comparison):
        return spans.misses(_hit(node, spans))
    values = np.array(node.values, dtype=spans.low.dtype)
    first, last = np.searchsorted(values, spans.low, "left"), np.searchsorted(values, spans.high, "right")
    missed = spans.misses(first < last)
    return missed & zones.lacks(MAY_NAN) if node.has_nan else missed


def may_have_gaps(term: BoundTerm) -> bool:
    """Whether range sets of a term may be known."""
    return isinstance(term, Leaf) or (isinstance(term, Derived) and isinstance(term.function, PartOfDate | PartOfClock))


def _never_between(node: BoundAnd, zones_of: ZonesOf) -> Mask | None:
    sides: dict[BoundTerm, list[Comparison]] = {}
    for part in _comparisons(node):
        if may_have_gaps(part.term) and part.op != "eq" and not _is_nan(part.value):
            sides.setdefault(part.term, []).append(part)
    found: Mask | None = None
    for term, parts in sides.items():
        # With a side from above no NaN matches, which gaps say nothing of.
        if {part.op[0] for part in parts} != {"l", "g"}:
            continue
        spans = zones_of(term).spans
        if spans is not None:
            missed = spans.misses(np.logical_and.reduce([_hit(part, spans) for part in parts]))
            found = missed if found is None else found | missed
    return found


def _comparisons(node: BoundAnd) -> Iterator[Comparison]:
    for child in node.children:
        if isinstance(child, Comparison):
            yield child
        elif isinstance(child, BoundAnd):
            yield from _comparisons(child)


def _hit(node: Comparison, spans: Spans) -> Mask:
    """The ranges that may hold a value for which a comparison with a number is true."""
    value = spans.low.dtype.type(node.value)
    if node.op == "lt":
        return np.asarray(spans.low < value)
    if node.op == "le":
        return np.asarray(spans.low <= value)
    if node.op == "gt":
        return np.asarray(spans.high > value)
    if node.op == "ge":
        return np.asarray(spans.high >= value)
    return np.asarray((spans.low <= value) & (value <= spans.high))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


# What single predicates may do with the rows of each entry, from the zone maps of their terms.
#
# Value semantics are Spark SQL's: NaN equals itself and is greater than every number, -0.0 equals 0.0, text compares
# by its bytes. Every test may only make the set of results too large.

#: The zone maps of a column.
Lookup = Callable[[Leaf], Zones]


def term_zones(term: BoundTerm, lookup: Lookup, count: int) -> Zones:
    """The zone maps of a term: a column's own, a constant's, or what a function makes of its arguments'."""
    match term:
        case Leaf():
            return lookup(term)
        case ConstantTerm(value, dtype, _):
            return constant(dtype, value, count)
        case Derived(function, arguments, _, _):
            return function.zones(*(term_zones(argument, lookup, count) for argument in arguments))
        case _:
            assert_never(term)


def leaf_outcome(node: BoundLeaf, lookup: Lookup, count: int) -> Outcome:
    """The outcome of one predicate; anything where a row of a term may fail."""
    if isinstance(node, Pair):
        left, right = term_zones(node.left, lookup, count), term_zones(node.right, lookup, count)
        return _unless_failing(_pair(node, left, right), left, right)
    if node.term is None:
        return Outcome(True, True, True, True)
    zones = lookup(node.term) if isinstance(node.term, Leaf) else term_zones(node.term, lookup, count)
    if isinstance(node, Comparison) and zones.is_complete and node.value == node.value:
        return _complete(node.op, node.value, zones)
    return _unless_failing(zones_outcome(node, zones), zones)


def _may_fail(node: BoundPredicate, lookup: Lookup, count: int) -> Truth:
    """Where a row may fail in any term of a filter, or in a part that is not known."""
    found: Truth = False
    for leaf in leaves_of(node):
        if isinstance(leaf, Anything):
            return True
        for term in terms_of(leaf):
            fails = term_zones(term, lookup, count).fails if isinstance(term, Derived) else None
            found = found if fails is None else either(found, fails)
    return found


def _unless_failing(outcome: Outcome, *terms: Zones) -> Outcome:
    for zones in terms:
        if zones.fails is not None:
            where = zones.fails
            outcome = Outcome(
                either(outcome.true, where),
                either(outcome.false, where),
                either(outcome.null, where),
                either(outcome.doubt, where),
            )
    return outcome


def zones_outcome(node: BoundTest, zones: Zones) -> Outcome:
    """The outcome of a predicate, from the zone maps of its term; rows that fail are left to the caller."""
    null, number, nan = zones.flag(MAY_NULL), zones.flag(MAY_NUMBER), zones.flag(MAY_NAN)
    match node:
        case NullTest():
            return resolved(null, either(number, nan), False, no(zones.flag(NULLS_KNOWN)))
        case NanTest():
            return resolved(nan, either(number, null), False, nan)
        case NonNull(_, value, _):
            some = either(number, nan)
            return resolved(some if value else False, False if value else some, null, False)
        case Anything():
            some = either(number, nan)
            return resolved(some, some, null, some)
        case Comparison():
            true, false = _compare(node, zones, number, nan)
        case Membership():
            true, false = _member(node, zones, number, nan)
            if node.has_null:  # x IN (.., NULL): a row that equals none of the rest is null, not false
                null, false = either(null, false), False
        case Prefix():
            true, false = _prefix(node, zones, number)
            if not node.whole:
                true, false, single = _decide_single_values(node, zones, true, false)
                if not node.prefix:
                    return resolved(true, false, null, both(number, no(single)))
        case _:
            assert_never(node)
    known = both(zones.flag(LOW_KNOWN), zones.flag(HIGH_KNOWN))
    return resolved(true, false, null, both(number, no(known)))


def _pair(node: Pair, left: Zones, right: Zones) -> Outcome:
    """``left op right`` row by row: what two values may do that lie anywhere within their bounds."""
    op = node.op
    if op in ("gt", "ge"):
        left, right, op = right, left, "lt" if op == "gt" else "le"
    null = either(left.flag(MAY_NULL), right.flag(MAY_NULL))
    left_number, right_number = left.flag(MAY_NUMBER), right.flag(MAY_NUMBER)
    numbers = both(left_number, right_number)
    left_nan, right_nan = left.flag(MAY_NAN), right.flag(MAY_NAN)
    left_some, right_some = either(left_number, left_nan), either(right_number, right_nan)
    below = _may_be_less(left, right)  # some left < some right
    above = _may_be_less(right, left)  # some right < some left
    if op == "lt":
        true = either(both(numbers, below), both(left_number, right_nan))
        false = either(both(numbers, no(_always_less(left, right))), both(left_nan, right_some))
    elif op == "le":
        true = either(both(numbers, no(_always_less(right, left))), both(left_some, right_nan))
        false = either(both(numbers, above), both(left_nan, right_number))
    else:
        apart = either(_always_less(left, right), _always_less(right, left))
        true = either(both(numbers, no(apart)), both(left_nan, right_nan))
        differ = either(above, below)
        false = either(both(numbers, differ), either(both(left_nan, right_number), both(left_number, right_nan)))
    present = both(left_some, right_some)
    known = both(both(left.flag(LOW_KNOWN), left.flag(HIGH_KNOWN)), both(right.flag(LOW_KNOWN), right.flag(HIGH_KNOWN)))
    return resolved(both(true, present), both(false, present), null, both(numbers, no(known)))


def _may_be_less(one: Zones, other: Zones) -> Truth:
    """Where some number of ``one`` may be less than some number of ``other``."""
    if one.low is None or other.high is None:
        return True
    known = both(one.flag(LOW_KNOWN), other.flag(HIGH_KNOWN))
    return either(no(known), lesser(one.low, other.high))


def _always_less(one: Zones, other: Zones) -> Truth:
    """Where every number of ``one`` is less than every number of ``other``."""
    if one.high is None or other.low is None:
        return False
    return both(both(one.flag(HIGH_KNOWN), other.flag(LOW_KNOWN)), lesser(one.high, other.low))


def _complete(op: BoundOperator, value: Value, zones: Zones) -> Outcome:
    """As :func:`_compare` with a value that is not NaN, where nothing is missing and no row is NaN: so mostly."""
    low, high, null = zones.low, zones.high, zones.flag(MAY_NULL)
    assert low is not None and high is not None  # noqa: S101, PT018  # else something is missing
    if op == "eq":
        reached, left = ~high.less(value) & low.less_equal(value), low.less(value) | ~high.less_equal(value)
        return Outcome(reached, left, null, False)
    if op in ("lt", "ge"):
        some, others = low.less(value), ~high.less(value)
    else:
        some, others = low.less_equal(value), ~high.less_equal(value)
    return Outcome(some, others, null, False) if op in ("lt", "le") else Outcome(others, some, null, False)


def _compare(node: Comparison, zones: Zones, number: Truth, nan: Truth) -> tuple[Truth, Truth]:
    value, op = node.value, node.op
    if isinstance(value, float) and math.isnan(value):
        return _compare_nan(op, number, nan)
    low, high = zones.low, zones.high
    if low is None or high is None:
        some = either(number, nan)
        return some, some
    no_low, no_high = no(zones.flag(LOW_KNOWN)), no(zones.flag(HIGH_KNOWN))
    if op in ("lt", "ge"):  # some value < v; some value >= v, and every NaN
        below = both(number, either(no_low, low.less(value)))
        not_below = either(both(number, either(no_high, ~high.less(value))), nan)
        return (below, not_below) if op == "lt" else (not_below, below)
    if op in ("le", "gt"):
        upto = both(number, either(no_low, low.less_equal(value)))
        beyond = either(both(number, either(no_high, ~high.less_equal(value))), nan)
        return (upto, beyond) if op == "le" else (beyond, upto)
    at_or_above, at_or_below = either(no_high, ~high.less(value)), either(no_low, low.less_equal(value))
    above, below = either(no_high, ~high.less_equal(value)), either(no_low, low.less(value))
    return both(number, both(at_or_above, at_or_below)), either(both(number, either(above, below)), nan)


def _compare_nan(op: str, number: Truth, nan: Truth) -> tuple[Truth, Truth]:
    if op == "lt":
        return number, nan
    if op == "le":
        return either(number, nan), False
    return (False, either(number, nan)) if op == "gt" else (nan, number)


def _member(node: Membership, zones: Zones, number: Truth, nan: Truth) -> tuple[Truth, Truth]:
    nan_true, nan_false = (nan, False) if node.has_nan else (False, nan)
    if not node.values:
        return nan_true, either(number, nan_false)
    low, high = zones.low, zones.high
    if low is None or high is None:
        some = either(number, nan)
        return some, some
    low_known, high_known = zones.flag(LOW_KNOWN), zones.flag(HIGH_KNOWN)
    # values below the entry's smallest, and values up to its greatest
    first = _where(low_known, low.rank(node.values, right=False), 0)
    last = _where(high_known, high.rank(node.values, right=True), len(node.values))
    hit = first < last
    # only an entry of one value, and that value listed, has no row outside the list
    single = both(both(low_known, high_known), _single_value(low, high, node.values, first, last))
    return either(both(number, hit), nan_true), either(both(number, no(both(hit, single))), nan_false)


def _where(known: Truth, ranks: Ranks, otherwise: int) -> Ranks:
    if known is True:
        return ranks
    return np.where(filled(known, len(ranks)), ranks, otherwise)


def _single_value(low: Keys, high: Keys, values: Sequence[Value], first: Ranks, last: Ranks) -> Truth:
    """Where low and high are one and the same listed value."""
    one = last - first == 1
    if not one.any():
        return False
    low_listed = low.rank(values, right=True) - first == 1
    high_listed = last - high.rank(values, right=False) == 1
    return np.asarray(one & low_listed & high_listed)


def _prefix(node: Prefix, zones: Zones, number: Truth) -> tuple[Truth, Truth]:
    low, high = zones.low, zones.high
    if not isinstance(low, BytesKeys) or not isinstance(high, BytesKeys):
        return number, number
    end = after_prefix(node.prefix)
    low_known, high_known = zones.flag(LOW_KNOWN), zones.flag(HIGH_KNOWN)
    below_end: Truth = True if end is None else low.less(end)
    beyond: Mask = ~high.less(node.prefix)
    true = both(number, both(either(no(low_known), below_end), either(no(high_known), beyond)))
    if not node.whole:
        return true, number
    inside_low = both(low_known, ~low.less(node.prefix))
    inside_high = both(high_known, True if end is None else high.less(end))
    return true, both(number, no(both(inside_low, inside_high)))


def _decide_single_values(node: Prefix, zones: Zones, true: Truth, false: Truth) -> tuple[Truth, Truth, Truth]:
    """Decide entries of one value by the whole pattern; what may be true and false, and which entries these are."""
    low, high = zones.low, zones.high
    bounded = both(both(zones.flag(LOW_KNOWN), zones.flag(HIGH_KNOWN)), zones.flag(MAY_NUMBER))
    if not isinstance(low, BytesKeys) or not isinstance(high, BytesKeys):
        return true, false, False
    rows = np.flatnonzero(both(bounded, low.prefix == high.prefix))
    if not len(rows):
        return true, false, False
    count = len(zones)
    single = np.zeros(count, dtype=bool)
    true, false = spread(true, count), spread(false, count)
    shortest = min_length(node.parts)  # a pattern may be much longer than any text
    for index in rows.tolist():
        value = low.at(index)
        try:
            text = value.decode("utf-8") if value == high.at(index) else None
        except UnicodeDecodeError:
            text = None
        if text is not None:
            single[index] = True
            if len(text) >= shortest and is_like(text, node.parts):
                false[index] = False
            else:
                true[index] = False
    return true, false, single


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest byte string greater than everything that begins with ``prefix``; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


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
            size_bytes = 0 if _is_small(self.node) else estimated_bytes(self.node, (Leaf, DataType))
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
    """One filter, to be evaluated over several layers; what depends on the filter alone is made once.

    ``key``: the filter's, where it is known already.
    """

    def __init__(self, node: BoundPredicate, key: FilterKey | None = None) -> None:
        self.node = node
        #: Its predicates, left to right.
        self.leaves = leaves_of(node)
        #: Each column that the filter names.
        self.columns = columns_in(self.leaves)
        #: What results of this filter are kept under.
        self.key = FilterKey.of(node) if key is None else key
        self._only: Evaluator | None = None

    @cached_property
    def split(self) -> _Split:
        """The columns whose kinds of rows are looked at apart; see :mod:`.outcome`."""
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
            gaps = gaps or lookup(column).has_gaps
        return self._by_class(self.split, lookup, count, gaps)

    def _by_class(self, columns: _Split, lookup: Lookup, count: int, gaps: bool) -> Outcome:
        """The outcomes for each kind of row, put together; see :mod:`.outcome`."""
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
        return resolved(true, false, null, doubt)


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
            return resolved(inner.true, either(inner.false, inner.null), False, inner.doubt)
        case BoundIsUnknown(child):
            inner = _evaluate(child, lookup, count, gaps)
            # IS TRUE and <=> are never null, but a row may fail in them.
            fails = _may_fail(child, lookup, count)
            true, false = either(inner.null, fails), either(either(inner.true, inner.false), fails)
            return resolved(true, false, False, either(inner.doubt, fails))
        case BoundAnd(children):
            found = conjunction([_evaluate(child, lookup, count, gaps) for child in children])
        case BoundOr(children):
            return flipped(conjunction([flipped(_evaluate(child, lookup, count, gaps)) for child in children]))
        case _:
            found = leaf_outcome(node, lookup, count)
    if not gaps:
        return found
    return never(found, never_true(node, lambda term: term_zones(term, lookup, count)))
