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

from lamella.snapshot.columnar.keys import BytesKeys, Keys, Mask, Ranks
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.expression.bound import (
    Anything,
    BoundAnd,
    BoundIsTrue,
    BoundLeaf,
    BoundNot,
    BoundOr,
    BoundPredicate,
    Comparison,
    Fixed,
    Membership,
    NanTest,
    NonNull,
    NullTest,
    Prefix,
)
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
    match node:
        case Fixed(value):
            true, false, null = (np.full(count, value is which) for which in (True, False, None))
            return Outcome(true, false, null, _no(count))
        case BoundNot(child):
            inner = evaluate(child, lookup, count)
            return Outcome(inner.false, inner.true, inner.null, inner.doubt)
        case BoundIsTrue(child):
            inner = evaluate(child, lookup, count)
            return _settled(inner.true, inner.false | inner.null, _no(count), inner.doubt)
        case BoundAnd(children):
            return _conjunction([evaluate(child, lookup, count) for child in children], count)
        case BoundOr(children):
            flipped = [_flip(evaluate(child, lookup, count)) for child in children]
            return _flip(_conjunction(flipped, count))
        case _:
            return leaf_outcome(node, lookup, count)


def leaf_outcome(node: BoundLeaf, lookup: Lookup, count: int) -> Outcome:
    """The outcome of one predicate."""
    if isinstance(node, Anything) and node.leaf is None:
        anything = np.ones(count, dtype=bool)
        return Outcome(anything, anything, anything, anything)
    if node.leaf is None:
        raise AssertionError("only an unknown predicate has no column")
    zones = lookup(node.leaf)
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
        case _:
            assert_never(node)
    unbounded = number & (zones.lacks(LOW_KNOWN) | zones.lacks(HIGH_KNOWN))
    return _settled(true, false, null, unbounded)


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
        return number, number
    end = after_prefix(node.prefix)
    starts_below_end = np.ones_like(number) if end is None else zones.lacks(LOW_KNOWN) | low.less(end)
    reaches = zones.lacks(HIGH_KNOWN) | ~high.less(node.prefix)
    true = number & starts_below_end & reaches
    if not node.whole:
        return true, number
    inside_low = zones.has(LOW_KNOWN) & ~low.less(node.prefix)
    inside_high = zones.has(HIGH_KNOWN) & (np.ones_like(number) if end is None else high.less(end))
    return true, number & ~(inside_low & inside_high)


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
