"""What a filter may do with the rows of each entry, from zone maps alone.

The outcome of a predicate over an entry is the set of results that its rows may have: true, false, null. Every test
here may only make that set too large, never too small. Sets combine by SQL's three-valued logic; a negation swaps
"may be true" with "may be false" and is therefore sound, which negating a lone "may match" would not be.

Value semantics are Spark SQL's: NaN equals itself and is greater than every number, -0.0 equals 0.0, text compares
by its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec
import numpy as np

from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, Ranks, lesser
from lamella.snapshot.columnar.zones import (
    HIGH_KNOWN,
    LOW_KNOWN,
    MAY_NAN,
    MAY_NULL,
    MAY_NUMBER,
    NULLS_KNOWN,
    Zones,
    constant,
)
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    BoundTerm,
    BoundTest,
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
)
from lamella.snapshot.expression.like import is_like
from lamella.snapshot.prune.classes import only, split_columns
from lamella.snapshot.prune.gaps import never_true
from lamella.snapshot.schema import Leaf
from lamella.snapshot.stats.bound import Value


class Outcome(msgspec.Struct, frozen=True):
    """Per entry: may a row be true, false, null; ``doubt``: something was missing that could have decided it."""

    true: Mask
    false: Mask
    null: Mask
    doubt: Mask


#: The zone maps of a column.
Lookup = Callable[[Leaf], Zones]


def evaluate(node: BoundPredicate, lookup: Lookup, count: int) -> Outcome:
    """The outcome of a filter over ``count`` entries."""
    return _by_class(node, split_columns(node), lookup, count)


def _by_class(
    node: BoundPredicate, columns: tuple[tuple[Leaf, tuple[int, ...]], ...], lookup: Lookup, count: int
) -> Outcome:
    """The outcomes for each kind of row, put together; see :mod:`.classes`."""
    if not columns:
        return _evaluate(node, lookup, count)
    (column, kinds), *rest = columns
    zones = lookup(column)
    present = [zones.has(kind) for kind in kinds]
    if not np.any(np.add.reduce([mask.astype(np.uint8) for mask in present]) > 1):
        return _by_class(node, tuple(rest), lookup, count)
    true, false, null, doubt = (_no(count) for _ in range(4))
    for kind, mask in zip(kinds, present, strict=True):
        if mask.any():
            part = only(zones, kind)

            def narrowed(leaf: Leaf, part: Zones = part) -> Zones:
                return part if leaf == column else lookup(leaf)

            outcome = _by_class(node, tuple(rest), narrowed, count)
            true, false, null = (
                true | (outcome.true & mask),
                false | (outcome.false & mask),
                null | (outcome.null & mask),
            )
            doubt = doubt | (outcome.doubt & mask)
    if any(kind == MAY_NULL for kind in kinds):  # an unknown count of nulls leaves it open whether there are any
        doubt = doubt | (zones.has(MAY_NULL) & zones.lacks(NULLS_KNOWN))
    return _settled(true, false, null, doubt)


def _evaluate(node: BoundPredicate, lookup: Lookup, count: int) -> Outcome:
    match node:
        case Fixed(value):
            true, false, null = (np.full(count, value is which) for which in (True, False, None))
            return Outcome(true, false, null, _no(count))
        case BoundNot(child):
            inner = _evaluate(child, lookup, count)
            return Outcome(inner.false, inner.true, inner.null, inner.doubt)
        case BoundIsTrue(child):
            inner = _evaluate(child, lookup, count)
            return _settled(inner.true, inner.false | inner.null, _no(count), inner.doubt)
        case BoundAnd(children):
            parts = [_evaluate(child, lookup, count) for child in children]
            return _without_gaps(node, _conjunction(parts, count), lookup, count)
        case BoundOr(children):
            flipped = [_flip(_evaluate(child, lookup, count)) for child in children]
            return _flip(_conjunction(flipped, count))
        case _:
            return _without_gaps(node, leaf_outcome(node, lookup, count), lookup, count)


def _without_gaps(node: BoundPredicate, outcome: Outcome, lookup: Lookup, count: int) -> Outcome:
    """The outcome, less what the gaps of range sets rule out."""
    never = never_true(node, lambda term: term_zones(term, lookup, count))
    if never is None:
        return outcome
    return _settled(outcome.true & ~never, outcome.false, outcome.null, outcome.doubt)


def term_zones(term: BoundTerm, lookup: Lookup, count: int) -> Zones:
    """The zone maps of a term: a column's own, a constant's, or what a function makes of its arguments'."""
    match term:
        case Leaf():
            return lookup(term)
        case Held(value, dtype, _):
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
        anything = np.ones(count, dtype=bool)
        return Outcome(anything, anything, anything, anything)
    zones = term_zones(node.term, lookup, count)
    return _unless_failing(_of_zones(node, zones, count), zones)


def _unless_failing(outcome: Outcome, *terms: Zones) -> Outcome:
    fails = [zones.fails for zones in terms if zones.fails is not None]
    if not fails:
        return outcome
    where = np.logical_or.reduce(fails)
    return Outcome(outcome.true | where, outcome.false | where, outcome.null | where, outcome.doubt | where)


def _of_zones(node: BoundTest, zones: Zones, count: int) -> Outcome:
    null = zones.has(MAY_NULL)
    number = zones.has(MAY_NUMBER)
    nan = zones.has(MAY_NAN)
    match node:
        case NullTest():
            return _settled(null, number | nan, _no(count), zones.lacks(NULLS_KNOWN))
        case NanTest():
            return _settled(nan, number | null, _no(count), nan)
        case NonNull(_, value, _):
            some = number | nan
            return _settled(some if value else _no(count), _no(count) if value else some, null, _no(count))
        case Anything():
            some = number | nan
            return _settled(some, some, null, some)
        case Comparison():
            true, false = _compare(node, zones, number, nan)
        case Membership():
            true, false = _member(node, zones, number, nan)
            if node.has_null:  # x IN (.., NULL): a row that equals none of the rest is null, not false
                null, false = null | false, _no(count)
        case Prefix():
            true, false = _prefix(node, zones, number)
            if not node.whole:
                single = _alike(node, zones, true, false)
                if not node.prefix:
                    return _settled(true, false, null, number & ~single)
        case _:
            assert_never(node)
    unbounded = number & (zones.lacks(LOW_KNOWN) | zones.lacks(HIGH_KNOWN))
    return _settled(true, false, null, unbounded)


def _pair(node: Pair, left: Zones, right: Zones) -> Outcome:
    """``left op right`` row by row: what two values may do that lie anywhere within their bounds."""
    op = node.op
    if op in ("gt", "ge"):
        left, right, op = right, left, "lt" if op == "gt" else "le"
    null = left.has(MAY_NULL) | right.has(MAY_NULL)
    numbers = left.has(MAY_NUMBER) & right.has(MAY_NUMBER)
    left_nan, right_nan = left.has(MAY_NAN), right.has(MAY_NAN)
    left_some, right_some = left.has(MAY_NUMBER) | left_nan, right.has(MAY_NUMBER) | right_nan
    below = _may_be_less(left, right)  # some left < some right
    above = _may_be_less(right, left)  # some right < some left
    never_above = ~above  # every left <= every right
    if op == "lt":
        true = (numbers & below) | (left.has(MAY_NUMBER) & right_nan)
        false = (numbers & ~_always_less(left, right)) | (left_nan & right_some)
    elif op == "le":
        true = (numbers & ~_always_less(right, left)) | (left_some & right_nan)
        false = (numbers & ~never_above) | (left_nan & right.has(MAY_NUMBER))
    else:
        apart = _always_less(left, right) | _always_less(right, left)
        same = never_above & ~below
        true = (numbers & ~apart) | (left_nan & right_nan)
        false = (numbers & ~same) | (left_nan & right.has(MAY_NUMBER)) | (left.has(MAY_NUMBER) & right_nan)
    both = left_some & right_some
    known = LOW_KNOWN | HIGH_KNOWN
    open_ended = numbers & (((left.flags & right.flags) & np.uint8(known)) != known)
    return _settled(true & both, false & both, null, open_ended)


def _may_be_less(one: Zones, other: Zones) -> Mask:
    """Where some number of ``one`` may be less than some number of ``other``."""
    if one.low is None or other.high is None:
        return np.ones(len(one), dtype=bool)
    return one.lacks(LOW_KNOWN) | other.lacks(HIGH_KNOWN) | lesser(one.low, other.high)


def _always_less(one: Zones, other: Zones) -> Mask:
    """Where every number of ``one`` is less than every number of ``other``."""
    if one.high is None or other.low is None:
        return np.zeros(len(one), dtype=bool)
    return one.has(HIGH_KNOWN) & other.has(LOW_KNOWN) & lesser(one.high, other.low)


def _compare(node: Comparison, zones: Zones, number: Mask, nan: Mask) -> tuple[Mask, Mask]:
    value, op = node.value, node.op
    if isinstance(value, float) and math.isnan(value):
        return _compare_nan(op, number, nan)
    low, high = zones.low, zones.high
    if low is None or high is None:
        return number | nan, number | nan
    no_low, no_high = zones.lacks(LOW_KNOWN), zones.lacks(HIGH_KNOWN)
    if op == "lt":  # some value < v; some value >= v, and every NaN
        return number & (no_low | low.less(value)), (number & (no_high | ~high.less(value))) | nan
    if op == "le":
        return number & (no_low | low.less_equal(value)), (number & (no_high | ~high.less_equal(value))) | nan
    if op == "gt":
        return (number & (no_high | ~high.less_equal(value))) | nan, number & (no_low | low.less_equal(value))
    if op == "ge":
        return (number & (no_high | ~high.less(value))) | nan, number & (no_low | low.less(value))
    at_or_above, at_or_below = no_high | ~high.less(value), no_low | low.less_equal(value)
    above, below = no_high | ~high.less_equal(value), no_low | low.less(value)
    return number & at_or_above & at_or_below, (number & (above | below)) | nan


def _compare_nan(op: str, number: Mask, nan: Mask) -> tuple[Mask, Mask]:
    nothing = np.zeros_like(nan)
    return {
        "lt": (number, nan),
        "le": (number | nan, nothing),
        "gt": (nothing, number | nan),
        "ge": (nan, number),
        "eq": (nan, number),
    }[op]


def _member(node: Membership, zones: Zones, number: Mask, nan: Mask) -> tuple[Mask, Mask]:
    nan_true, nan_false = (nan, np.zeros_like(nan)) if node.has_nan else (np.zeros_like(nan), nan)
    if not node.values:
        return nan_true, number | nan_false
    low, high = zones.low, zones.high
    if low is None or high is None:
        return number | nan, number | nan
    known = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)
    no_low, no_high = zones.lacks(LOW_KNOWN), zones.lacks(HIGH_KNOWN)
    first = np.where(no_low, 0, low.rank(node.values, right=False))  # values below the block's smallest
    last = np.where(no_high, len(node.values), high.rank(node.values, right=True))  # values up to its greatest
    hit = first < last
    # only a block of one value, and that value listed, has no row outside the list
    single = known & _single_value(low, high, node.values, first, last)
    return (number & hit) | nan_true, (number & ~(hit & single)) | nan_false


def _single_value(low: Keys, high: Keys, values: Sequence[Value], first: Ranks, last: Ranks) -> Mask:
    """Where low and high are one and the same listed value."""
    low_listed = low.rank(values, right=True) - first == 1
    high_listed = last - high.rank(values, right=False) == 1
    return np.asarray((last - first == 1) & low_listed & high_listed)


def _prefix(node: Prefix, zones: Zones, number: Mask) -> tuple[Mask, Mask]:
    low, high = zones.low, zones.high
    if not isinstance(low, BytesKeys) or not isinstance(high, BytesKeys):
        return number.copy(), number.copy()
    end = after_prefix(node.prefix)
    starts_below_end = np.ones_like(number) if end is None else zones.lacks(LOW_KNOWN) | low.less(end)
    reaches = zones.lacks(HIGH_KNOWN) | ~high.less(node.prefix)
    true = number & starts_below_end & reaches
    if not node.whole:
        return true, number.copy()
    inside_low = zones.has(LOW_KNOWN) & ~low.less(node.prefix)
    inside_high = zones.has(HIGH_KNOWN) & (np.ones_like(number) if end is None else high.less(end))
    return true, number & ~(inside_low & inside_high)


def _alike(node: Prefix, zones: Zones, true: Mask, false: Mask) -> Mask:
    """Decide entries of one value by the whole pattern, in place; returns which these are."""
    low, high = zones.low, zones.high
    single = zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN) & zones.has(MAY_NUMBER)
    if not isinstance(low, BytesKeys) or not isinstance(high, BytesKeys):
        return np.zeros_like(single)
    single &= low.prefix == high.prefix
    for index in np.flatnonzero(single):
        value = low.at(int(index))
        try:
            text = value.decode("utf-8") if value == high.at(int(index)) else None
        except UnicodeDecodeError:
            text = None
        if text is None:
            single[index] = False
        elif is_like(text, node.parts):
            false[index] = False
        else:
            true[index] = False
    return single


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest byte string greater than everything that begins with ``prefix``; None when there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _conjunction(parts: list[Outcome], count: int) -> Outcome:
    """SQL's AND over sets of outcomes; parts are taken as independent, which can only enlarge the result."""
    true, false = np.ones(count, dtype=bool), _no(count)
    not_false = np.ones(count, dtype=bool)  # a row may be true or null in every part
    null, doubt = _no(count), _no(count)
    for part in parts:
        true = true & part.true
        false = false | part.false
        not_false = not_false & (part.true | part.null)
        null = null | part.null
        doubt = doubt | part.doubt
    return _settled(true, false, null & not_false, doubt)


def _flip(outcome: Outcome) -> Outcome:
    return Outcome(outcome.false, outcome.true, outcome.null, outcome.doubt)


def _settled(true: Mask, false: Mask, null: Mask, doubt: Mask) -> Outcome:
    """An outcome whose doubt is dropped where only one result is left."""
    single = true.astype(np.uint8) + false + null <= 1
    return Outcome(true, false, null, doubt & ~single)


def _no(count: int) -> Mask:
    return np.zeros(count, dtype=bool)
