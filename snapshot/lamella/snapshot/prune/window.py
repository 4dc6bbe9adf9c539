"""Where in a layer a filter can be true at all, by binary search: what makes sorted and clustered columns cheap.

Entries whose greatest value so far lies below a bound, and those from which on the least value lies above it, cannot
match. Both limits ascend with the entries in whatever order these are, so they are searched, not compared; in a
sorted layer they leave a handful of entries, in an unsorted one all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, Zones
from lamella.snapshot.expression.bound import BoundAnd, BoundIsTrue, BoundOr, BoundPredicate, Comparison, Membership
from lamella.snapshot.schema import Leaf

#: Entries from ``start`` to before ``stop``.
Window = tuple[int, int]

#: Layers of fewer entries are compared as a whole in about the time of a search.
WORTH_ENTRIES: Final = 2_048
#: So many windows are looked at apart; more are joined where the smallest gaps are.
_MOST: Final = 16


class Edges(msgspec.Struct, frozen=True):
    """``reached``: the greatest value of an entry and all before it; ``left``: the least of it and all behind it.

    NaN counts as the greatest value, and a bound that is not known as the end of the type.
    """

    reached: npt.NDArray[Any]
    left: npt.NDArray[Any]


def edges_of(zones: Zones) -> Edges | None:
    """The edges of a column; None where values are not machine numbers."""
    low, high = zones.low, zones.high
    if not isinstance(low, NumberKeys) or not isinstance(high, NumberKeys):
        return None
    kind = low.array.dtype
    least, greatest = _ends(kind)
    number, nan = zones.has(MAY_NUMBER), zones.has(MAY_NAN)
    highs = np.where(zones.has(HIGH_KNOWN), high.array, kind.type(greatest))
    highs = np.where(nan, kind.type(greatest), np.where(number, highs, kind.type(least)))
    lows = np.where(number, np.where(zones.has(LOW_KNOWN), low.array, kind.type(least)), kind.type(greatest))
    if kind.kind == "f":  # a bound that is NaN in a damaged file says nothing
        lows = np.where(np.isnan(lows), least, lows)
        highs = np.where(np.isnan(highs), greatest, highs)
    return Edges(np.maximum.accumulate(highs), np.minimum.accumulate(lows[::-1])[::-1])


def windows(node: BoundPredicate, edges: Callable[[Leaf], Edges | None], count: int) -> list[Window]:
    """Ascending, apart from each other, none of them empty: outside, the filter is true for no row."""
    match node:
        case BoundAnd(children):
            found = [(0, count)]
            for child in children:
                found = _common(found, windows(child, edges, count))
            return found
        case BoundOr(children):
            return _joined([each for child in children for each in windows(child, edges, count)])
        case BoundIsTrue(child):
            return windows(child, edges, count)
        case Comparison(Leaf() as leaf, op, value, _):
            known = edges(leaf)
            return [(0, count)] if known is None or _is_nan(value) else _between(known, op, value, count)
        case Membership(Leaf() as leaf, values, False, _, _) if 0 < len(values) <= 4 * _MOST:
            known = edges(leaf)
            if known is not None:
                return _joined([each for value in values for each in _between(known, "eq", value, count)])
    return [(0, count)]


def _between(edges: Edges, op: str, value: Any, count: int) -> list[Window]:
    start, stop = 0, count
    number = edges.left.dtype.type(value)
    least, greatest = _ends(edges.left.dtype)
    # The ends of a type also stand for what is not known and, the greatest, for NaN, which is greater than infinity.
    if op in ("gt", "ge", "eq"):
        beyond = op == "gt" and number != greatest
        start = int(np.searchsorted(edges.reached, number, side="right" if beyond else "left"))
    if op in ("lt", "le", "eq"):
        below = op == "lt" and number != least
        stop = int(np.searchsorted(edges.left, number, side="left" if below else "right"))
    return [(start, stop)] if start < stop else []


def _ends(kind: np.dtype[Any]) -> tuple[Any, Any]:
    return (-np.inf, np.inf) if kind.kind == "f" else (np.iinfo(kind).min, np.iinfo(kind).max)


def _common(one: list[Window], other: list[Window]) -> list[Window]:
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return sorted((start, stop) for start, stop in found if start < stop)


def _joined(parts: list[Window]) -> list[Window]:
    found: list[Window] = []
    for start, stop in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    while len(found) > _MOST:
        gap = min(range(len(found) - 1), key=lambda at: found[at + 1][0] - found[at][1])
        found[gap : gap + 2] = [(found[gap][0], found[gap + 1][1])]
    return found


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
