"""Block sizes, the part of a cluster key that blocks cover, and what look-ups read.

Only order matters here, so values become *points*: the distinct bounds, numbered in order (nulls last, NaN above all
numbers). A block with an unknown bound extends to the end on that side. Inexact bounds are treated as bounds.

A block covers the points ``first`` to ``last``. It is *constant* when both are the same, which means that it has a
single key value. For overlap tests, a block that is not constant begins after its first point and ends before its last
one, because sorting cannot separate two blocks that share an end point. So [1, 5] and [5, 9] do not overlap, nor do [1,
5] and a block of 5 alone; [1, 5] and a block of 3 do.

**A linear key of several columns** is compared column by column. Bounds exist per column: which value of the second
column belongs to the minimum of the first is unknown, unless the first is constant in the block. So the columns that
are constant in a block determine its position, and the first column that varies determines its range. For example, two
neighbours in a sorted table whose first column ranges over 3 to 5 and 5 to 7 touch at 5, as do all blocks between them
that hold only 5; the second column tells those apart. The bounds of the second column of the two neighbours are
ignored, because it is unknown where between 3 and 5 they apply.

**z-order and Hilbert keys**: a block is a box, with one interval per column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.curve import CurveKind
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.points import ranked, spread
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NULL, MAY_NUMBER, Zones
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import ClusterKind

#: Table properties that set the target size of blocks.
TARGET_ROWS: Final = "target_block_rows"
TARGET_BYTES: Final = "target_block_bytes"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")

#: ``Sizes.level`` of blocks that were not written for the key.
NOT_WRITTEN: Final = -1
#: Blocks of this level are never chosen again, because rewriting does not help them.
UNIMPROVABLE_LEVEL: Final = 32
#: Blocks below this fraction of the target size are small and worth merging.
SMALL: Final = 0.4
#: Blocks above this multiple of the target size are large and worth splitting.
LARGE: Final = 2.0


class Sizes(msgspec.Struct, frozen=True, eq=False):
    """Sizes of n blocks: their rows, the bytes of their files (both int64), and ``level``, the number of times their
    rows were rewritten for the cluster key (int64, 0 to 32; -1: the block was not written for this key).
    """

    rows: Any
    size_bytes: Any
    level: Any

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Any) -> Sizes:
        """Returns the sizes of some of the blocks, in the given order."""
        return Sizes(self.rows[chosen], self.size_bytes[chosen], self.level[chosen])


class BlockTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Target size of a block: a number of rows or bytes of file, whichever is reached first."""

    rows: int = 1_000_000
    size_bytes: int = 128 << 20

    def fill(self, sizes: Sizes) -> Any:
        """Returns how much of the target each block fills: the maximum of its fractions of the rows and of the
        bytes."""
        return np.maximum(sizes.rows / self.rows, sizes.size_bytes / self.size_bytes)

    def is_small(self, sizes: Sizes) -> Mask:
        """Returns the blocks that compaction merges: below 40 % of both targets."""
        return np.asarray(self.fill(sizes) < SMALL)

    def is_large(self, sizes: Sizes) -> Mask:
        """Returns the blocks that compaction splits: above 200 % of either target."""
        return np.asarray(self.fill(sizes) > LARGE)

    def is_perfect(self, sizes: Sizes) -> Mask:
        """Returns the blocks that compaction leaves alone: neither small nor large."""
        return ~(self.is_small(sizes) | self.is_large(sizes))

    def is_perfect_block(self, rows: int, size_bytes: int) -> bool:
        """Returns whether compaction would leave one block alone."""
        return SMALL <= max(rows / self.rows, size_bytes / self.size_bytes) <= LARGE

    def blocks_of(self, rows: Any, size_bytes: Any) -> Any:
        """Returns into how many blocks of about the same size the rows and bytes are cut."""
        fill = np.maximum(np.asarray(rows) / self.rows, np.asarray(size_bytes) / self.size_bytes)
        return np.maximum(np.round(fill), 1).astype(np.int64)


def block_target_of(properties: Mapping[str, str]) -> BlockTarget:
    """Reads the target block size from a table's properties.

    Raises:
        InvalidRequest: one of the two properties is not a positive integer.
    """
    default = BlockTarget()
    return BlockTarget(
        rows=_positive(properties, TARGET_ROWS, default.rows),
        size_bytes=_positive(properties, TARGET_BYTES, default.size_bytes),
    )


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None or int(text) == 0:
        raise InvalidRequest(
            f"property {name} must be a whole number of at least 1 with at most 18 digits, not {text[:100]!r}",
            property=name,
        )
    return int(text)


Rows = npt.NDArray[np.int64]


class Intervals(msgspec.Struct, frozen=True, eq=False):
    """n blocks on a line of ``count`` points: the ``first`` and ``last`` point of each (int64), and whether one of its
    bounds is unknown (``is_unknown``).
    """

    first: Any
    last: Any
    count: int
    is_unknown: Any

    def __len__(self) -> int:
        return len(self.first)

    @property
    def is_constant(self) -> Mask:
        """Returns the blocks of one key value."""
        return np.asarray(self.first == self.last)

    @property
    def low(self) -> Rows:
        """Where each block begins, on a line that has one position before, at and after each point. Two blocks overlap
        if ``low <= other.high`` and ``other.low <= high``, and constant ones also if their values are equal."""
        return np.asarray(3 * self.first + np.where(self.is_constant, 1, 2))

    @property
    def high(self) -> Rows:
        """Where each block ends on the same line, inclusive."""
        return np.asarray(3 * self.last + np.where(self.is_constant, 1, 0))

    def take(self, rows: Any) -> Intervals:
        """Returns some of the blocks, in the given order."""
        return Intervals(self.first[rows], self.last[rows], self.count, self.is_unknown[rows])


class Boxes(msgspec.Struct, frozen=True, eq=False):
    """n blocks of a key with a curve of ``kind``, with one interval for each of at least two columns."""

    kind: CurveKind
    sides: tuple[Intervals, ...]

    def __len__(self) -> int:
        return len(self.sides[0])

    @property
    def is_constant(self) -> Mask:
        """Returns the blocks with one value in every column."""
        return np.asarray(np.logical_and.reduce([side.is_constant for side in self.sides]))

    @property
    def is_unknown(self) -> Mask:
        """Returns the blocks with an unknown bound."""
        return np.asarray(np.logical_or.reduce([side.is_unknown for side in self.sides]))

    def take(self, rows: Any) -> Boxes:
        """Returns some of the blocks, in the given order."""
        return Boxes(self.kind, tuple(side.take(rows) for side in self.sides))


#: The ranges of a cluster key that blocks cover.
Extents = Intervals | Boxes


def extents(kind: ClusterKind, columns: Sequence[Zones]) -> Extents:
    """Returns the extents of blocks on a cluster key, from the zone maps of its columns in key order.

    Gives intervals for a linear key and for a key of one column, otherwise boxes.

    Raises:
        ValueError: no columns, or columns that do not describe the same blocks.
    """
    if not columns or len({len(zones) for zones in columns}) > 1:
        raise ValueError("a cluster key needs at least one column, each with a zone map for every block")
    sides = [_side(zones) for zones in columns]
    if len(sides) == 1:
        return sides[0]
    return _lexicographic(sides) if kind == "linear" else Boxes(kind, tuple(sides))


def _side(zones: Zones) -> Intervals:
    """Returns the blocks' intervals on one column.

    Point 0 is below all known values. The known values follow, then one point above all of them, then NaN and null.
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
    """Returns the blocks' intervals on the line of all columns together, as the module describes."""
    count = len(sides[0])
    lows: list[Rows] = []
    highs: list[Rows] = []
    #: Blocks that are constant in all columns so far.
    open_ = np.ones(count, dtype=bool)
    unknown = np.zeros(count, dtype=bool)
    for side in sides:
        # After the column that varies: above all tuples with this prefix for the low end, below them for the high end.
        lows.append(np.where(open_, side.first + 1, side.count + 1))
        highs.append(np.where(open_, side.last + 1, 0))
        unknown |= open_ & side.is_unknown
        open_ = open_ & side.is_constant
        if not open_.any():
            break
    tuples = np.concatenate([np.column_stack(lows), np.column_stack(highs)])
    order = np.lexsort(tuple(tuples[:, column] for column in reversed(range(tuples.shape[1]))))
    inner = tuples[order]
    differs = np.concatenate([np.zeros(min(len(inner), 1), dtype=bool), (inner[1:] != inner[:-1]).any(axis=1)])
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(differs)
    return Intervals(ranks[:count], ranks[count:], int(ranks.max(initial=-1)) + 1, unknown)


# The distribution of rows along a line, and what look-ups read.
#
# Zone maps give the ends of a block, not the distribution of its rows. That is inferred from all blocks together: rows
# are where other blocks say that rows are. The estimate begins with equally many rows between any two neighbouring
# points. Then, ``ROUNDS`` times, each block's rows are distributed like the rows of all blocks in the previous round;
# those of a constant block stay at its point. (More rounds would move everything to where most blocks overlap.
# ``snapshot.workload.distribution`` does the same for distinct values.)
#
# So each block has a *span*: from the fraction of all rows before it to the fraction up to its end. A block of a sorted
# table spans exactly its own rows. A range look-up that covers a share s of all rows reads the blocks that the range
# meets.

ROUNDS: Final = 4
Numbers = npt.NDArray[np.float64]


class Spans(msgspec.Struct, frozen=True, eq=False):
    """n blocks, each from ``start`` to ``stop``, as fractions of all rows from 0 to 1."""

    start: Any
    stop: Any

    def __len__(self) -> int:
        return len(self.start)

    @property
    def width(self) -> Numbers:
        """The fraction of all rows within each block's range: the probability that a look-up of a random row's value
        reads it."""
        return np.asarray(self.stop - self.start)

    def take(self, rows: Any) -> Spans:
        """Returns some of the blocks, in the given order."""
        return Spans(self.start[rows], self.stop[rows])

    def read_by(self, share: float) -> Numbers:
        """Returns the probability that each block is read by a range with a share of the rows (0: one value), whose
        beginning is uniform from 0 to ``1 - share``."""
        if share >= 1:
            return np.ones(len(self.start))
        begin = np.maximum(self.start - share, 0.0)
        end = np.minimum(self.stop, 1.0 - share)
        return np.asarray(np.clip((end - begin) / (1.0 - share), 0.0, 1.0))


class Mass(msgspec.Struct, frozen=True, eq=False):
    """The distribution of a table's rows over a line: point k is element 2k, the gap after it is element 2k + 1.

    ``sums``: the fraction of all rows before each element, followed by 1.
    """

    sums: Any

    def spans(self, intervals: Intervals) -> Spans:
        """Returns the spans of blocks on the line."""
        return Spans(self.sums[2 * intervals.first], self.sums[2 * intervals.last + 1])

    def within(self, intervals: Intervals) -> Numbers:
        """Returns the fraction of all rows that sorting could move into or out of each block: those between its ends.
        For a constant block: the rows of its value."""
        whole = self.spans(intervals).width
        between = self.sums[2 * intervals.last] - self.sums[np.minimum(2 * intervals.first + 1, len(self.sums) - 1)]
        return np.asarray(np.where(intervals.is_constant, whole, between))

    def element_at(self, part: Numbers) -> Rows:
        """Returns the element in which a fraction of the rows is reached."""
        found = np.searchsorted(self.sums, part, side="right") - 1
        return np.asarray(np.clip(found, 0, len(self.sums) - 2))

    def centred(self, part: Numbers) -> Numbers:
        """Moves fractions that fall within one point to the middle of its rows."""
        element = self.element_at(part)
        middle = (self.sums[element] + self.sums[element + 1]) / 2
        return np.asarray(np.where(element % 2 == 0, middle, part))

    def widened(self, spans: Spans) -> Spans:
        """Extends spans that end within the rows of one point to all rows of that point."""
        first, last = self.element_at(spans.start), self.element_at(np.nextafter(spans.stop, 0))
        return Spans(
            np.where(first % 2 == 0, self.sums[first], spans.start),
            np.where(last % 2 == 0, self.sums[last + 1], spans.stop),
        )


def mass_of(intervals: Intervals, rows: Rows) -> Mass:
    """Returns the distribution of the rows of blocks."""
    elements = max(2 * intervals.count - 1, 1)
    constant = intervals.is_constant
    piles: Numbers = np.bincount(2 * intervals.first[constant], rows[constant], minlength=elements).astype(np.float64)
    first, last = 2 * intervals.first[~constant], 2 * intervals.last[~constant]
    count = rows[~constant].astype(np.float64)
    weight = np.zeros(elements)
    weight[1::2] = 1.0
    if not len(count):
        weight = piles
    else:
        for _ in range(ROUNDS):
            sums = np.concatenate([[0.0], np.cumsum(weight)])
            widths = sums[last + 1] - sums[first]
            density = np.divide(count, widths, out=np.zeros(len(count)), where=widths > 0)
            weight = np.maximum(weight * spread(elements, first, last, density), 0.0) + piles
    total = float(weight.sum())
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    return Mass(np.minimum(sums / total, 1.0) if total > 0 else np.linspace(0.0, 1.0, elements + 1))


class Read(msgspec.Struct, frozen=True):
    """Expected number of blocks read, and bytes of their files."""

    blocks: float
    size_bytes: float

    def minus(self, other: Read) -> Read:
        """Returns the difference to another cost."""
        return Read(self.blocks - other.blocks, self.size_bytes - other.size_bytes)

    def share_of(self, whole: Read) -> float:
        """Returns the fraction of a total, of its blocks or of its bytes, whichever is greater."""
        return max(
            self.blocks / whole.blocks if whole.blocks > 0 else 0.0,
            self.size_bytes / whole.size_bytes if whole.size_bytes > 0 else 0.0,
        )


def read(likely: Any, sizes: Sizes) -> Read:
    """Returns the expected cost of reading blocks with the given probabilities."""
    return Read(float(np.sum(likely)), float(np.sum(likely * sizes.size_bytes)))


def met(width: Numbers, share: float) -> Numbers:
    """Returns the probability that a range with a share of the rows meets a span of ``width``, if both begin
    anywhere."""
    if share >= 1:
        return np.ones(len(width))
    free = np.maximum(1.0 - width - share, 0.0) ** 2
    total = (1.0 - width) * (1.0 - share)
    return np.asarray(1.0 - np.divide(free, total, out=np.zeros(len(width)), where=total > 0))
