"""Where blocks lie on the columns of a cluster key, by their zone maps.

Everything here is about order, so values are *points*: the different bounds, numbered in order (nulls last, NaN above
all numbers). A block whose bound is not known reaches to the end on that side. Bounds that are not exact are bounds
all the same.

A block lies from its ``first`` to its ``last`` point. It is *constant* when both are one: it has a single key value
there. A block that is not constant begins behind its first point and ends before its last one when it is asked whether
two blocks overlap: what they touch in, sorting cannot take away. So [1, 5] and [5, 9] do not overlap, nor do [1, 5] and
a block of 5 alone; [1, 5] and a block of 3 do.

**A linear key of several columns** is compared column by column. A block's bounds are of each column by itself: which
value of the second column belongs to the least of the first is not known, unless the first is constant in the block. So
a block lies where the columns that are constant in it put it, and the column behind them says from where to where. Two
neighbours in a sorted table, say the first column from 3 to 5 and from 5 to 7, touch in 5, as do all blocks of 5 alone
between them; these are told apart by the second column. What the bounds of the second column say of the other two is
left out: it holds somewhere between 3 and 5, nobody knows where.

**z-order and Hilbert keys**: a block is a box, an interval in each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.curve import CurveKind
from lamella.snapshot.columnar.masks import Mask
from lamella.snapshot.columnar.points import ranked
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, Zones
from lamella.snapshot.manifest import ClusterKind

Rows = npt.NDArray[np.int64]


class Intervals(msgspec.Struct, frozen=True, eq=False):
    """n blocks on one line of ``count`` points: for each its ``first`` and its ``last`` point (int64), and whether a
    bound of it is not known (``is_unknown``).
    """

    first: Any
    last: Any
    count: int
    is_unknown: Any

    def __len__(self) -> int:
        return len(self.first)

    @property
    def is_constant(self) -> Mask:
        """Blocks of one key value."""
        return np.asarray(self.first == self.last)

    @property
    def low(self) -> Rows:
        """Where each begins, on a line with a place before, at and behind each point; so two blocks overlap when
        ``low <= other.high`` and ``other.low <= high``, and constant ones also with those of the same value."""
        return np.asarray(3 * self.first + np.where(self.is_constant, 1, 2))

    @property
    def high(self) -> Rows:
        """Where each ends, on the same line; that place is still part of it."""
        return np.asarray(3 * self.last + np.where(self.is_constant, 1, 0))

    def take(self, rows: Any) -> Intervals:
        """Some of the blocks, in that order."""
        return Intervals(self.first[rows], self.last[rows], self.count, self.is_unknown[rows])


class Boxes(msgspec.Struct, frozen=True, eq=False):
    """n blocks along a curve of a kind, with an interval on each of at least two columns."""

    kind: CurveKind
    sides: tuple[Intervals, ...]

    def __len__(self) -> int:
        return len(self.sides[0])

    @property
    def is_constant(self) -> Mask:
        """Blocks of one value in every column."""
        return np.asarray(np.logical_and.reduce([side.is_constant for side in self.sides]))

    @property
    def is_unknown(self) -> Mask:
        """Blocks of which a bound is not known."""
        return np.asarray(np.logical_or.reduce([side.is_unknown for side in self.sides]))

    def take(self, rows: Any) -> Boxes:
        """Some of the blocks, in that order."""
        return Boxes(self.kind, tuple(side.take(rows) for side in self.sides))


#: Where the blocks of a table lie.
Extents = Intervals | Boxes


def extents(kind: ClusterKind, columns: Sequence[Zones]) -> Extents:
    """Where blocks lie on a cluster key: the zone maps of its columns, in the key's order, each of all blocks.

    Intervals for a linear key and for one of a single column, else boxes.

    Raises:
        ValueError: no column, or columns that are not of the same blocks.
    """
    if not columns or len({len(zones) for zones in columns}) > 1:
        raise ValueError("a cluster key has at least one column, each with a zone map of every block")
    sides = [_side(zones) for zones in columns]
    if len(sides) == 1:
        return sides[0]
    return _lexicographic(sides) if kind == "linear" else Boxes(kind, tuple(sides))


def _side(zones: Zones) -> Intervals:
    """The blocks on one column.

    Point 0 lies before all values that are known, then come these, one behind them all, NaN and null.
    """
    numbers = zones.has(MAY_NUMBER)
    knows_low = numbers & zones.has(LOW_KNOWN) if zones.low is not None else np.zeros(len(zones), dtype=bool)
    knows_high = numbers & zones.has(HIGH_KNOWN) if zones.high is not None else np.zeros(len(zones), dtype=bool)
    lows, highs, count = np.zeros(len(zones), dtype=np.int64), np.zeros(len(zones), dtype=np.int64), 0
    if zones.low is not None and zones.high is not None:
        with_low, with_high = np.flatnonzero(knows_low), np.flatnonzero(knows_high)
        points, lows[with_low], highs[with_high] = ranked(zones.low.take(with_low), zones.high.take(with_high))
        count = len(points)
    above, nan, null = count + 1, count + 2, count + 3
    may_nan, may_null = zones.has(MAY_NAN), zones.has(MAY_NULL)
    first = np.where(numbers, np.where(knows_low, lows + 1, 0), np.where(may_nan, nan, null))
    last = np.where(numbers, np.where(knows_high, highs + 1, above), nan)
    last = np.where(may_nan, nan, last)
    last = np.where(may_null | ~(numbers | may_nan), null, last)
    return Intervals(first, np.maximum(first, last), count + 4, numbers & ~(knows_low & knows_high))


def _lexicographic(sides: Sequence[Intervals]) -> Intervals:
    """The blocks on the line of all columns together, see the module."""
    count = len(sides[0])
    lows: list[Rows] = []
    highs: list[Rows] = []
    #: Blocks that are constant in all columns so far.
    open_ = np.ones(count, dtype=bool)
    unknown = np.zeros(count, dtype=bool)
    for side in sides:
        # Behind the column that varies: above all tuples that begin alike for the low end, below them for the high one.
        lows.append(np.where(open_, side.first + 1, side.count + 1))
        highs.append(np.where(open_, side.last + 1, 0))
        unknown |= open_ & side.is_unknown
        open_ = open_ & side.is_constant
        if not open_.any():
            break
    tuples = np.concatenate([np.column_stack(lows), np.column_stack(highs)])
    places = np.lexsort(tuple(tuples[:, column] for column in reversed(range(tuples.shape[1]))))
    inner = tuples[places]
    differs = np.concatenate([np.zeros(min(len(inner), 1), dtype=bool), (inner[1:] != inner[:-1]).any(axis=1)])
    ranks = np.empty(len(places), dtype=np.int64)
    ranks[places] = np.cumsum(differs)
    return Intervals(ranks[:count], ranks[count:], int(ranks.max(initial=-1)) + 1, unknown)
