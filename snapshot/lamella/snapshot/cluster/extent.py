"""How large blocks are, where they lie on a cluster key, and what look-ups read.

Everything here is about order, so values are *points*: the different bounds, numbered in order (nulls last, NaN above
all numbers). A block whose bound is not known reaches to the end on that side. Bounds that are not exact are bounds all
the same.

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

#: Properties of a table that say how large its blocks should be.
TARGET_ROWS: Final = "target_block_rows"
TARGET_BYTES: Final = "target_block_bytes"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")

#: What ``Sizes.level`` is of blocks that were not written for the key.
NOT_WRITTEN: Final = -1
#: Blocks of this level are never chosen again: rewriting does not help them.
SETTLED: Final = 32
#: Blocks below this part of the wanted size are small: worth putting together.
SMALL: Final = 0.4
#: Above this multiple of it they are large: worth splitting.
LARGE: Final = 2.0


class Sizes(msgspec.Struct, frozen=True, eq=False):
    """n blocks: their rows, the bytes of their files (both int64), and how often rows of them were rewritten for the
    cluster key (``level``, int64, 0 to 32; -1: the block was not written for this key).
    """

    rows: Any
    size_bytes: Any
    level: Any

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Any) -> Sizes:
        """Some of the blocks, in that order."""
        return Sizes(self.rows[chosen], self.size_bytes[chosen], self.level[chosen])


class BlockTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a block should have: so many rows, or so many bytes of file, whichever comes first."""

    rows: int = 1_000_000
    size_bytes: int = 128 << 20

    def fill(self, sizes: Sizes) -> Any:
        """How much of the target each block fills: the greater of its part of the rows and of the bytes."""
        return np.maximum(sizes.rows / self.rows, sizes.size_bytes / self.size_bytes)

    def is_small(self, sizes: Sizes) -> Mask:
        """Blocks that compaction puts together: below 40 % of both."""
        return np.asarray(self.fill(sizes) < SMALL)

    def is_large(self, sizes: Sizes) -> Mask:
        """Blocks that compaction splits: above 200 % of one."""
        return np.asarray(self.fill(sizes) > LARGE)

    def is_perfect(self, sizes: Sizes) -> Mask:
        """Blocks that compaction leaves alone: neither small nor large."""
        return ~(self.is_small(sizes) | self.is_large(sizes))

    def is_perfect_block(self, rows: int, size_bytes: int) -> bool:
        """The same of one block."""
        return SMALL <= max(rows / self.rows, size_bytes / self.size_bytes) <= LARGE

    def blocks_of(self, rows: Any, size_bytes: Any) -> Any:
        """Into how many blocks of about the same size so many rows and bytes are cut."""
        fill = np.maximum(np.asarray(rows) / self.rows, np.asarray(size_bytes) / self.size_bytes)
        return np.maximum(np.round(fill), 1).astype(np.int64)


def block_target_of(properties: Mapping[str, str]) -> BlockTarget:
    """The size that blocks of a table with these properties should have.

    Raises:
        InvalidRequest: the value of one of the two properties is not a whole number above zero.
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
            f"property {name} is a whole number from 1, of at most 18 digits, not {text[:100]!r}", property=name
        )
    return int(text)


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


# Where on a line the rows of blocks are, and what look-ups read.
#
# Zone maps say where a block begins and ends, not where its rows are in between. That is inferred from all blocks
# together: rows are where other blocks say that rows are. Starting with as many rows between any two neighbouring
# points, each block's rows are put where the rows of all blocks were in the round before, ``ROUNDS`` times; those of a
# constant block are at its point. (Going on would put everything where blocks overlap most. See
# ``snapshot.workload.distribution``, which does the same for different values.)
#
# So each block has a *span*: the part of all rows before it, to that part behind it. A block of a sorted table spans
# what it holds. A look-up of a range that has a share s of all rows, wherever that begins, reads the blocks that the
# range meets.

ROUNDS: Final = 4
Numbers = npt.NDArray[np.float64]


class Spans(msgspec.Struct, frozen=True, eq=False):
    """n blocks, each from ``start`` to ``stop``, parts of all rows from 0 to 1."""

    start: Any
    stop: Any

    def __len__(self) -> int:
        return len(self.start)

    @property
    def width(self) -> Numbers:
        """The part of all rows that lie where a block lies: how likely a look-up of one row's value reads it."""
        return np.asarray(self.stop - self.start)

    def take(self, rows: Any) -> Spans:
        """Some of the blocks, in that order."""
        return Spans(self.start[rows], self.stop[rows])

    def read_by(self, share: float) -> Numbers:
        """How likely each block is read by a range of a share of the rows (0: one value), begun anywhere from 0 to
        ``1 - share``, each place as likely as another."""
        if share >= 1:
            return np.ones(len(self.start))
        begin = np.maximum(self.start - share, 0.0)
        end = np.minimum(self.stop, 1.0 - share)
        return np.asarray(np.clip((end - begin) / (1.0 - share), 0.0, 1.0))


class Mass(msgspec.Struct, frozen=True, eq=False):
    """How the rows of a table are spread over a line: point k is element 2k, what lies behind it element 2k + 1.

    ``sums``: the part of all rows before each element, and 1.
    """

    sums: Any

    def spans(self, intervals: Intervals) -> Spans:
        """The spans of blocks on that line."""
        return Spans(self.sums[2 * intervals.first], self.sums[2 * intervals.last + 1])

    def place(self, part: Numbers) -> Rows:
        """The element in which so great a part of the rows is reached."""
        found = np.searchsorted(self.sums, part, side="right") - 1
        return np.asarray(np.clip(found, 0, len(self.sums) - 2))

    def centred(self, part: Numbers) -> Numbers:
        """Parts of the rows; those within one point at its middle."""
        element = self.place(part)
        middle = (self.sums[element] + self.sums[element + 1]) / 2
        return np.asarray(np.where(element % 2 == 0, middle, part))

    def widened(self, spans: Spans) -> Spans:
        """Spans that end within the rows of one point take in all of these."""
        first, last = self.place(spans.start), self.place(np.nextafter(spans.stop, 0))
        return Spans(
            np.where(first % 2 == 0, self.sums[first], spans.start),
            np.where(last % 2 == 0, self.sums[last + 1], spans.stop),
        )


def mass_of(intervals: Intervals, rows: Rows) -> Mass:
    """How the rows of blocks are spread."""
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
            room = sums[last + 1] - sums[first]
            density = np.divide(count, room, out=np.zeros(len(count)), where=room > 0)
            weight = np.maximum(weight * spread(elements, first, last, density), 0.0) + piles
    total = float(weight.sum())
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    return Mass(np.minimum(sums / total, 1.0) if total > 0 else np.linspace(0.0, 1.0, elements + 1))


class Read(msgspec.Struct, frozen=True):
    """Blocks read, and bytes of their files."""

    blocks: float
    size_bytes: float

    def minus(self, other: Read) -> Read:
        """What this is more."""
        return Read(self.blocks - other.blocks, self.size_bytes - other.size_bytes)

    def share_of(self, whole: Read) -> float:
        """Which part of the blocks or of the bytes of a whole this is, whichever is more."""
        return max(
            self.blocks / whole.blocks if whole.blocks > 0 else 0.0,
            self.size_bytes / whole.size_bytes if whole.size_bytes > 0 else 0.0,
        )


def read(likely: Any, sizes: Sizes) -> Read:
    """What is read of blocks, each as likely as said."""
    return Read(float(np.sum(likely)), float(np.sum(likely * sizes.size_bytes)))


def met(width: Numbers, share: float) -> Numbers:
    """How likely a range of a share of the rows meets a span of ``width``, both begun anywhere."""
    if share >= 1:
        return np.ones(len(width))
    free = np.maximum(1.0 - width - share, 0.0) ** 2
    room = (1.0 - width) * (1.0 - share)
    return np.asarray(1.0 - np.divide(free, room, out=np.zeros(len(width)), where=room > 0))
