"""Blocks on a line or as boxes: which overlap too much, and the estimated result of sorting them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from lamella.snapshot.cluster import curve
from lamella.snapshot.cluster.depth import Corners, depth_profile, interval_depths, sampled
from lamella.snapshot.cluster.extent import Boxes, Extents, Intervals, Numbers, Read, Rows, Sizes, Spans, mass_of, read
from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.columnar.points import spread

#: Blocks at most this many times as dense as the necessary ones together are rewritten with them.
AS_DENSE: Final = 1.0


class Layout(Protocol):
    """All blocks of a table with their layout."""

    @property
    def density(self) -> Numbers:
        """Returns for each block its bytes by the rows within its range, both as fractions of the table; about 1 if no
        other block has rows there, less if others have, and more if many of its rows have the value of an end."""

    @property
    def min_gain(self) -> float:
        """Returns the smallest relative gain that is believed; a smaller estimate may be an error."""

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """Returns blocks whose rewriting brings the depth down to the target everywhere, least dense ones first; may be
        none."""

    def components(self, chosen: Mask) -> list[Rows]:
        """Splits the chosen blocks into groups with disjoint key ranges, each in key order."""

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Splits blocks into those at their deepest point, least dense first, and the others, nearest first."""

    def in_order(self, blocks: Rows) -> Rows:
        """Returns blocks in key order."""

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """Returns what look-ups of a share of the rows read of some blocks, per kind of look-up; that of the whole key
        is last."""

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """Returns what the same look-ups would read if the blocks were sorted together and cut into ``pieces``."""


def connected(low: Rows, high: Rows) -> list[Rows]:
    """Groups intervals so that the groups do not overlap; each group is ordered by where its intervals begin."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    breaks = np.flatnonzero(low[order][1:] > reach[:-1]) + 1
    return list(np.split(order, breaks)) if len(order) else []


NARROW_BLOCKS: Final = 8
_WIDER: Final = 4.0
_BITS: Final = 16


class Neighbours(msgspec.Struct, frozen=True, eq=False):
    """The neighbourhood of n blocks. ``start`` and ``stop``: the range of each in each column, as fractions of all rows
    (n rows, a column per key column).

    ``position``: numbers that sort like the middles of blocks along the key. ``width_class``: from 0, the narrowest.
    ``narrow``: the width that counts as narrow.
    """

    start: Any
    stop: Any
    position: Any
    width_class: Any
    narrow: float

    @property
    def width(self) -> Numbers:
        """The probability that a look-up of one key value reads each block."""
        return np.asarray(np.prod(self.stop - self.start, axis=1))

    def order(self, blocks: Rows) -> Rows:
        """Returns blocks by width class, and within a class along the key."""
        return blocks[np.lexsort((blocks, self.position[blocks], self.width_class[blocks]))]


def neighbours(extents: Extents, rows: Rows, block_rows: float) -> Neighbours:
    """Computes the neighbourhood of blocks; ``block_rows``: rows of a block of the target size."""
    sides = (extents,) if isinstance(extents, Intervals) else extents.sides
    spans = [mass_of(side, rows).spans(side) for side in sides]
    start = np.column_stack([each.start for each in spans])
    stop = np.column_stack([each.stop for each in spans])
    narrow = min(1.0, NARROW_BLOCKS * block_rows / max(float(rows.sum()), 1.0))
    width = np.maximum(np.prod(stop - start, axis=1), narrow)
    classes = np.floor(np.log(width / narrow) / np.log(_WIDER) + 1e-9).astype(np.int64)
    return Neighbours(start, stop, _positions((start + stop) / 2), classes, narrow)


def _positions(middles: Any) -> Numbers:
    if middles.shape[1] == 1:
        return np.asarray(middles[:, 0])
    points = np.minimum(middles * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint64)
    ranks = np.empty(len(points))
    # Neighbours along a Hilbert curve are neighbours, whichever curve the table uses.
    ranks[curve.order(curve.positions("hilbert", points, _BITS))] = np.arange(len(points))
    return ranks


# Blocks on a line.
#
# Where the depth is too great, the least dense blocks are rewritten. The density of a block is the fraction of the rows
# in its range that are its own. Rewriting a sparse block that covers half of the table is cheap and reduces the depth
# of half of the table; rewriting a dense one costs as much as it holds and only helps locally. Where the depth is d and
# the target is t, the d - t + 1 least dense blocks are taken, since together they come back as one layer. Blocks about
# as dense as all of those together are taken too: one layer less for twice the cost, and no stack of layers that each
# are only slightly larger than the one before.


class LineLayout:
    """The :class:`~lamella.snapshot.cluster.layout.Layout` of blocks on a line."""

    min_gain = 0.02

    def __init__(self, intervals: Intervals, sizes: Sizes) -> None:
        self._intervals = intervals
        self._sizes = sizes
        self._low, self._high = intervals.low, intervals.high
        self._mass = mass_of(intervals, sizes.rows)
        self._spans = self._mass.spans(intervals)
        self._depth = interval_depths(intervals).depth
        total = max(float(sizes.size_bytes.sum()), 1.0)
        # Blocks that only touch do not overlap, so many rows with the value of an end do not make a block sparse.
        self.density: Numbers = sizes.size_bytes / total / np.maximum(self._mass.within(intervals), 1e-12)

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """Returns the least dense blocks wherever the depth is too great."""
        found = np.zeros(len(self._low), dtype=bool)
        trigger = self._trigger(target_depth)
        # Other blocks do not cover any point that is too deep.
        candidates = np.flatnonzero(allowed & ~self._intervals.is_constant & (self._depth > trigger))
        if not len(candidates):
            return found
        order = candidates[np.argsort(self._low[candidates], kind="stable")]
        low, high = self._low[order].tolist(), self._high[order].tolist()
        density, level = self.density[order].tolist(), self._sizes.level[order].tolist()
        points, depths = depth_profile(self._intervals)
        deep = depths > trigger
        free: list[tuple[float, int, int]] = []
        taken: list[tuple[int, int]] = []
        together = 0.0
        begun = 0
        for point, depth in zip(points[deep].tolist(), depths[deep].tolist(), strict=True):
            while begun < len(low) and low[begun] <= point:
                heapq.heappush(free, (density[begun], level[begun], begun))
                begun += 1
            while taken and taken[0][0] < point:
                together -= density[heapq.heappop(taken)[1]]
            wanted = depth - target_depth + 1
            while free:
                lowest, _, block = free[0]
                if high[block] < point:
                    heapq.heappop(free)
                    continue
                if len(taken) >= wanted and lowest > AS_DENSE * together:
                    break
                heapq.heappop(free)
                heapq.heappush(taken, (high[block], block))
                together += lowest
                found[order[block]] = True
        return found

    def _trigger(self, target_depth: int) -> int:
        """Returns the depth that is too great: above the target, or above twice the target while the average depth is
        below it."""
        return target_depth if self._depth.mean() > target_depth else 2 * target_depth

    def components(self, chosen: Mask) -> list[Rows]:
        """Splits the chosen blocks into groups that do not overlap."""
        blocks = np.flatnonzero(chosen)
        return [blocks[group] for group in connected(self._low[blocks], self._high[blocks])]

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Splits blocks into those at the deepest point, and the others, beginning with those after it."""
        low, high = self._low[blocks], self._high[blocks]
        points, depths = depth_profile(self._intervals.take(blocks))
        peak = points[int(np.argmax(depths))]
        there = (low <= peak) & (high >= peak)
        cover = blocks[there]
        cover = cover[np.lexsort((cover, self._sizes.level[cover], self.density[cover]))]
        behind, before = blocks[low > peak], blocks[high < peak]
        behind = behind[np.argsort(self._low[behind], kind="stable")]
        before = before[np.argsort(-self._high[before], kind="stable")]
        return cover, np.concatenate([behind, before])

    def in_order(self, blocks: Rows) -> Rows:
        """Returns blocks in key order."""
        return blocks[np.lexsort((blocks, self._high[blocks], self._low[blocks]))]

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """Returns what look-ups read of some blocks."""
        return [read(self._spans.take(blocks).read_by(share), self._sizes.take(blocks))]

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """Returns what look-ups would read if the blocks were sorted together and cut into ``pieces``."""
        likely = self._sorted(blocks, pieces).read_by(share)
        return [Read(float(likely.sum()), float(likely.mean() * self._sizes.size_bytes[blocks].sum()))]

    def _sorted(self, blocks: Rows, pieces: int) -> Spans:
        """Returns the spans of the pieces, which have equally many of the blocks' rows."""
        first, last = 2 * self._intervals.first[blocks], 2 * self._intervals.last[blocks]
        begin, end = int(first.min()), int(last.max())
        sums = self._mass.sums[begin : end + 2]
        width = self._spans.width[blocks]
        density = np.divide(self._sizes.rows[blocks], width, out=np.zeros(len(blocks)), where=width > 0)
        rows = spread(end + 1 - begin, first - begin, last - begin, density) * np.diff(sums)
        reached = np.concatenate([[0.0], np.cumsum(rows)])
        edges = np.interp(np.linspace(0.0, reached[-1], pieces + 1), reached, sums)
        return self._mass.widened(Spans(edges[:-1], edges[1:]))


# Boxes.
#
# This works as on a line (``LineLayout``), with two differences. First, boxes overlap even in a table that is sorted
# along a curve, because the part of a curve that a block holds is not a box. The result of sorting is therefore
# estimated with sampled rows, and only groups that save look-ups a fifth of their reads are rewritten. Second, there is
# no order to sweep along, so depth is evaluated at points: the middle of each box, or of a sample of the boxes if there
# are many.
#
# The fraction of rows in a box is taken to be the product of the fractions in its sides, as if columns were
# independent. If they are not, wide boxes off the diagonal hold fewer rows and narrow ones on it hold more: densities
# are then only comparable to each other, and gains are underestimated.

#: Points of a group of boxes at which the greatest depth is searched.
_PEAKS: Final = 500
#: Maximum number of pieces in which sorting is tried, and of rows per piece.
_TRIED_PIECES: Final = 128
_ROWS_OF_PIECE: Final = 32
_LAYOUT_BITS: Final = 12
#: Margin: the estimate from the trial may be slightly too good.
_MARGIN: Final = 1.15


def usual_depth(kind: str, columns: int) -> float:
    """Returns the number of boxes that contain a row in a table sorted along a curve; measured with 50 to 1,300 blocks
    of random rows. z-order jumps: 2.4 to 2.8 with two columns, 3.4 to 4.3 with three, 4.0 to 5.3 with four. Hilbert:
    1.3 to 1.8.
    """
    return 1.9 if kind == "hilbert" else {2: 3.0, 3: 4.5}.get(columns, 5.5)


class BoxLayout:
    """The :class:`~lamella.snapshot.cluster.layout.Layout` of boxes."""

    min_gain = 0.2

    def __init__(self, boxes: Boxes, sizes: Sizes, seed: int) -> None:
        self._boxes = boxes
        self._sizes = sizes
        self._corners = Corners(boxes)
        self._seed = seed
        self._masses = [mass_of(side, sizes.rows) for side in boxes.sides]
        self._spans = [mass.spans(side) for mass, side in zip(self._masses, boxes.sides, strict=True)]
        self._start = np.column_stack([spans.start for spans in self._spans])
        self._stop = np.column_stack([spans.stop for spans in self._spans])
        volume = np.maximum(np.prod(self._stop - self._start, axis=1), 1e-12)
        self.density: Numbers = sizes.size_bytes / max(float(sizes.size_bytes.sum()), 1.0) / volume

    @cached_property
    def _depth_of_sorted(self) -> float:
        """The number of boxes that overlap at a row when this table is sorted: estimated with a sample of rows, and at
        most the usual depth. Columns with few values make it smaller; many rows with one key make it appear greater.
        """
        every = np.arange(len(self.density))
        tried = self.read_sorted(every, len(every), 0.0)[-1].blocks
        return float(np.clip(_MARGIN * tried, 1.0, usual_depth(self._boxes.kind, len(self._boxes.sides))))

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """Returns the least dense boxes wherever the depth is too great."""
        found = np.zeros(len(self.density), dtype=bool)
        if not len(found):
            return found
        usable = allowed & ~self._boxes.is_constant
        middles = self._middles(sampled(len(found), np.random.default_rng(self._seed)))
        depths = np.array([self._corners.depth_at(point) for point in middles])
        wanted = target_depth * self._depth_of_sorted
        trigger = wanted if depths.mean() > wanted else 2 * wanted
        for point, depth in zip(middles[depths > trigger], depths[depths > trigger].tolist(), strict=True):
            here = self._sparse_first(np.flatnonzero(self._corners.holding(point) & usable))
            # They come back at the depth of a sorted table.
            count = int(np.ceil(depth - wanted + self._depth_of_sorted))
            density = self.density[here]
            together = np.cumsum(density)
            # Excludes boxes that are denser than the result would be.
            useful = self._depth_of_sorted * density <= together
            before = np.concatenate([[0.0], together[:-1]])
            wanted_too = (np.arange(len(here)) < count) | (density <= AS_DENSE * before)
            # Both conditions hold up to some index, except for the first few.
            cutoff = int(np.argmin(wanted_too)) if not wanted_too.all() else len(here)
            found[here[: int(np.flatnonzero(useful[:cutoff]).max(initial=-1)) + 1]] = True
        return found

    def components(self, chosen: Mask) -> list[Rows]:
        """Splits the chosen boxes into groups that one column separates, and each of those again by another column."""
        done: list[Rows] = []
        groups = [np.flatnonzero(chosen)] if chosen.any() else []
        while groups:
            group = groups.pop()
            for column in range(self._start.shape[1]):
                parts = connected(self._corners.low[group, column], self._corners.high[group, column])
                if len(parts) > 1:
                    groups += [group[part] for part in parts]
                    break
            else:
                done.append(self.in_order(group))
        return sorted(done, key=lambda blocks: int(blocks[0]))

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Splits boxes into those at the deepest of their middles, and the others by their distance from it."""
        low, high = self._corners.low[blocks], self._corners.high[blocks]
        looked_at = blocks[:: max(1, len(blocks) // _PEAKS)]
        middles = self._middles(looked_at)
        counts = [int(((low <= point) & (point <= high)).all(axis=1).sum()) for point in middles]
        best = int(np.argmax(counts))
        there = ((low <= middles[best]) & (middles[best] <= high)).all(axis=1)
        peak = looked_at[best]
        centres = (self._start + self._stop) / 2
        others = blocks[~there]
        away = np.abs(centres[others] - centres[peak]).max(axis=1)
        return self._sparse_first(blocks[there]), others[np.lexsort((others, away))]

    def in_order(self, blocks: Rows) -> Rows:
        """Returns boxes ordered by their low corners."""
        return blocks[np.lexsort((blocks, *self._corners.low[blocks].T[::-1]))]

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """Returns what look-ups read of some boxes: ranges of each column, and of all columns at once."""
        sizes = self._sizes.take(blocks)
        return [read(likely, sizes) for likely in _read_by([spans.take(blocks) for spans in self._spans], share)]

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """Returns what look-ups would read if the boxes were sorted together and cut into ``pieces``, estimated with
        sampled rows."""
        tried = min(pieces, _TRIED_PIECES)
        columns = self._sampled_rows(blocks, tried * _ROWS_OF_PIECE)
        order = curve.order(curve.positions(self._boxes.kind, _ranked(columns), _LAYOUT_BITS))
        sides = []
        for column, mass in zip(columns.T, self._masses, strict=True):
            rows = column[order].reshape(tried, _ROWS_OF_PIECE)
            start, stop = rows.min(axis=1), rows.max(axis=1)
            # A sample of rows spans less than all rows, and many pieces span less than few.
            grown = (stop - start) * (
                (_ROWS_OF_PIECE + 1) / (_ROWS_OF_PIECE - 1) * (tried / pieces) ** (1 / columns.shape[1])
            )
            middle = (start + stop) / 2
            sides.append(mass.widened(Spans(np.maximum(middle - grown / 2, 0.0), np.minimum(middle + grown / 2, 1.0))))
        size_bytes = float(self._sizes.size_bytes[blocks].sum())
        likely = [float(each.mean()) for each in _read_by(sides, share)]
        return [Read(pieces * each, size_bytes * each) for each in likely]

    def _sampled_rows(self, blocks: Rows, count: int) -> Any:
        """Samples rows of some boxes, each as a fraction of all rows in every column; rows of one point are in its
        middle."""
        rng = np.random.default_rng(self._seed)
        rows = self._sizes.rows[blocks].astype(np.float64)
        edges = np.cumsum(rows)
        owner = blocks[np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1]), len(blocks) - 1)]
        low, high = self._start[owner], self._stop[owner]
        found = low + rng.random(low.shape) * (high - low)
        return np.column_stack([mass.centred(column) for mass, column in zip(self._masses, found.T, strict=True)])

    def _middles(self, blocks: Rows) -> Any:
        return (self._corners.low[blocks] + self._corners.high[blocks]) // 2

    def _sparse_first(self, blocks: Rows) -> Rows:
        return blocks[np.lexsort((blocks, self._sizes.level[blocks], self.density[blocks]))]


def volume_of(boxes: Boxes, blocks: Rows) -> float:
    """Returns the volume of some boxes: the expected number of them that a look-up meets, with all points of a column
    equally likely."""
    sides = [(side.last - side.first + 1)[blocks] / max(side.count, 1) for side in boxes.sides]
    return float(np.prod(np.stack(sides), axis=0).sum())


def _read_by(sides: Sequence[Spans], share: float) -> list[Numbers]:
    """Returns the probability that each box is read, for ranges of each column and for a range of all columns that
    together have the share."""
    alone = [side.read_by(share) for side in sides]
    together = [side.read_by(share ** (1 / len(sides))) for side in sides]
    return [*alone, np.asarray(np.prod(together, axis=0))]


def _ranked(columns: Any) -> curve.Points:
    """Returns each column's numbers as ranks within the column; equal numbers have the same rank."""
    ranks = [np.searchsorted(np.sort(column), column) for column in columns.T]
    return np.asarray(np.column_stack(ranks) * (1 << _LAYOUT_BITS) // len(columns), dtype=np.uint64)
