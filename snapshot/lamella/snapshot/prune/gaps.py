"""What range sets rule out: values, lists and two-sided ranges that fall wholly into gaps.

A column's ranges were measured; those of months, hours and other parts that repeat follow from a block's bounds.

Two comparisons of one column under an AND are looked at together, since each alone reaches beyond the gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.spans import Spans
from lamella.snapshot.columnar.zones import MAY_NAN, Zones
from lamella.snapshot.expression.bound import BoundAnd, BoundPredicate, BoundTerm, Comparison, Derived, Membership
from lamella.snapshot.function.calendar import PartOfClock, PartOfDate
from lamella.snapshot.schema import Leaf

#: The zone maps of a term.
ZonesOf = Callable[[BoundTerm], Zones]


def never_true(node: BoundPredicate, zones_of: ZonesOf) -> Mask | None:
    """Where gaps prove that a predicate is true for no row; None: nowhere."""
    if isinstance(node, BoundAnd):
        return _never_between(node, zones_of)
    if not isinstance(node, Comparison | Membership) or not may_have_gaps(node.term):
        return None
    zones = zones_of(node.term)
    spans = zones.spans
    if spans is None:
        return None
    if isinstance(node, Comparison):
        return None if node.op != "eq" or _is_nan(node.value) else spans.misses(_hit(node, spans))
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
