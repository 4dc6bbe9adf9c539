"""Blocks on a line or as boxes: what overlaps too much, and what sorting some of them would give."""

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

#: Blocks that are at most so many times as dense as those that have to be taken, together, are taken with them.
AS_DENSE: Final = 1.0


class Layout(Protocol):
    """All blocks of a table."""

    @property
    def density(self) -> Numbers:
        """Of the rows where a block lies, the part that are its own: 1 when it lies there alone."""

    @property
    def min_gain(self) -> float:
        """A guess that blocks read less often by less than this part may be wrong."""

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """Blocks to rewrite so that the depth is at most the target everywhere, the least dense ones; it may be
        none."""

    def components(self, chosen: Mask) -> list[Rows]:
        """The chosen blocks in groups that have no part of the key's range in common, each in key order."""

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Of some blocks those at their deepest place, the least dense first, and the others, the nearest first."""

    def in_order(self, blocks: Rows) -> Rows:
        """Blocks in key order."""

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """What look-ups of a share of the rows read of some blocks; for each sort of look-up, that of the whole key
        last."""

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """What they would read if these were sorted together and cut into so many."""


def connected(low: Rows, high: Rows) -> list[Rows]:
    """Intervals in groups that do not overlap, each in the order of their beginnings."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    breaks = np.flatnonzero(low[order][1:] > reach[:-1]) + 1
    return list(np.split(order, breaks)) if len(order) else []


NARROW_BLOCKS: Final = 8
_WIDER: Final = 4.0
_BITS: Final = 16


class Neighbours(msgspec.Struct, frozen=True, eq=False):
    """n blocks. ``start`` and ``stop``: where each lies in each column, parts of all rows (n rows, a column for each).

    ``place``: numbers that sort as the middles of blocks along the key. ``width_class``: from 0, the narrowest.
    ``narrow``: what counts as narrow.
    """

    start: Any
    stop: Any
    place: Any
    width_class: Any
    narrow: float

    @property
    def width(self) -> Numbers:
        """How likely a look-up of one key value reads each block."""
        return np.asarray(np.prod(self.stop - self.start, axis=1))

    def order(self, blocks: Rows) -> Rows:
        """Blocks by class, and within that along the key."""
        return blocks[np.lexsort((blocks, self.place[blocks], self.width_class[blocks]))]


def neighbours(extents: Extents, rows: Rows, block_rows: float) -> Neighbours:
    """Where blocks stand to each other; ``block_rows``: rows of a block of the target size."""
    sides = (extents,) if isinstance(extents, Intervals) else extents.sides
    spans = [mass_of(side, rows).spans(side) for side in sides]
    start = np.column_stack([each.start for each in spans])
    stop = np.column_stack([each.stop for each in spans])
    narrow = min(1.0, NARROW_BLOCKS * block_rows / max(float(rows.sum()), 1.0))
    width = np.maximum(np.prod(stop - start, axis=1), narrow)
    classes = np.floor(np.log(width / narrow) / np.log(_WIDER) + 1e-9).astype(np.int64)
    return Neighbours(start, stop, _places((start + stop) / 2), classes, narrow)


def _places(middles: Any) -> Numbers:
    if middles.shape[1] == 1:
        return np.asarray(middles[:, 0])
    points = np.minimum(middles * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint64)
    ranks = np.empty(len(points))
    # Neighbours along a Hilbert curve are neighbours, whichever curve the table has.
    ranks[curve.order(curve.positions("hilbert", points, _BITS))] = np.arange(len(points))
    return ranks


# Blocks on a line: what overlaps too much, and what sorting some of them would give.
#
# Which blocks are rewritten where it is too deep: the least dense ones. A block's density is the part of the rows in
# its range that are its own. Taking away a thin block that lies over half of the table costs little and makes half of
# the table less deep; taking away a dense one costs as much as it holds and helps where it lies. Where the depth is d
# and may be t, the d - t + 1 least dense blocks are taken, since together they come back as one layer. And then those
# that are about as dense as all of them together: for twice the cost one layer less, and no pile of layers of which
# each is only a little larger than the one before.


class LineLayout:
    """See :class:`lamella.snapshot.cluster.layout.Layout`."""

    min_gain = 0.02

    def __init__(self, intervals: Intervals, sizes: Sizes) -> None:
        self._intervals = intervals
        self._sizes = sizes
        self._low, self._high = intervals.low, intervals.high
        self._mass = mass_of(intervals, sizes.rows)
        self._spans = self._mass.spans(intervals)
        self._depth = interval_depths(intervals).depth
        total = max(float(sizes.size_bytes.sum()), 1.0)
        self.density: Numbers = sizes.size_bytes / total / np.maximum(self._spans.width, 1e-12)

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """The least dense blocks wherever it is too deep."""
        found = np.zeros(len(self._low), dtype=bool)
        trigger = self._trigger(target_depth)
        # Other blocks lie nowhere where it is too deep.
        candidates = np.flatnonzero(allowed & ~self._intervals.is_constant & (self._depth > trigger))
        if not len(candidates):
            return found
        order = candidates[np.argsort(self._low[candidates], kind="stable")]
        low, high = self._low[order].tolist(), self._high[order].tolist()
        density, level = self.density[order].tolist(), self._sizes.level[order].tolist()
        places, depths = depth_profile(self._intervals)
        deep = depths > trigger
        free: list[tuple[float, int, int]] = []
        taken: list[tuple[int, int]] = []
        together = 0.0
        begun = 0
        for place, depth in zip(places[deep].tolist(), depths[deep].tolist(), strict=True):
            while begun < len(low) and low[begun] <= place:
                heapq.heappush(free, (density[begun], level[begun], begun))
                begun += 1
            while taken and taken[0][0] < place:
                together -= density[heapq.heappop(taken)[1]]
            wanted = depth - target_depth + 1
            while free:
                least, _, block = free[0]
                if high[block] < place:
                    heapq.heappop(free)
                    continue
                if len(taken) >= wanted and least > AS_DENSE * together:
                    break
                heapq.heappop(free)
                heapq.heappush(taken, (high[block], block))
                together += least
                found[order[block]] = True
        return found

    def _trigger(self, target_depth: int) -> int:
        """What is too deep: more than the target, or more than twice that while blocks are less deep on average."""
        return target_depth if self._depth.mean() > target_depth else 2 * target_depth

    def components(self, chosen: Mask) -> list[Rows]:
        """The chosen blocks in groups that do not overlap."""
        blocks = np.flatnonzero(chosen)
        return [blocks[group] for group in connected(self._low[blocks], self._high[blocks])]

    def around_peak(self, blocks: Rows) -> tuple[Rows, Rows]:
        """Those at the deepest place, and the others, those behind it first."""
        low, high = self._low[blocks], self._high[blocks]
        places, depths = depth_profile(self._intervals.take(blocks))
        peak = places[int(np.argmax(depths))]
        there = (low <= peak) & (high >= peak)
        cover = blocks[there]
        cover = cover[np.lexsort((cover, self._sizes.level[cover], self.density[cover]))]
        behind, before = blocks[low > peak], blocks[high < peak]
        behind = behind[np.argsort(self._low[behind], kind="stable")]
        before = before[np.argsort(-self._high[before], kind="stable")]
        return cover, np.concatenate([behind, before])

    def in_order(self, blocks: Rows) -> Rows:
        """Blocks in key order."""
        return blocks[np.lexsort((blocks, self._high[blocks], self._low[blocks]))]

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """What look-ups read of some blocks."""
        return [read(self._spans.take(blocks).read_by(share), self._sizes.take(blocks))]

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """What they would read if these were sorted together and cut into so many."""
        likely = self._sorted(blocks, pieces).read_by(share)
        return [Read(float(likely.sum()), float(likely.mean() * self._sizes.size_bytes[blocks].sum()))]

    def _sorted(self, blocks: Rows, pieces: int) -> Spans:
        """Where the pieces would lie: each has as many of the blocks' rows as the others."""
        first, last = 2 * self._intervals.first[blocks], 2 * self._intervals.last[blocks]
        begin, end = int(first.min()), int(last.max())
        sums = self._mass.sums[begin : end + 2]
        width = self._spans.width[blocks]
        density = np.divide(self._sizes.rows[blocks], width, out=np.zeros(len(blocks)), where=width > 0)
        rows = spread(end + 1 - begin, first - begin, last - begin, density) * np.diff(sums)
        reached = np.concatenate([[0.0], np.cumsum(rows)])
        edges = np.interp(np.linspace(0.0, reached[-1], pieces + 1), reached, sums)
        return self._mass.widened(Spans(edges[:-1], edges[1:]))


# Boxes: what overlaps too much, and what sorting some of them along their curve would give.
#
# As on a line (``snapshot.cluster.layout``), with two differences. Even a table sorted along a curve has boxes that
# overlap, since the piece of a curve that a block holds is no box; what sorting gives is tried on rows drawn from the
# boxes, so a guess, and only what makes look-ups read a fifth less is done. And there is no order to sweep along, so
# it is looked at places: the middle of each box, or of a sample of the boxes where there are many.
#
# How much of the rows lies in a box is taken to be the product of what lies in its sides, as if columns were
# independent. Where they are not, there is less in wide boxes off the diagonal and more in narrow ones on it:
# densities are then only comparable, and gains lower than they will be.

#: Places of a group of boxes that are looked at for the deepest.
_PEAKS: Final = 500
#: What sorting would give is tried with so many pieces at most, of so many rows.
_TRIED_PIECES: Final = 128
_ROWS_OF_PIECE: Final = 32
_LAYOUT_BITS: Final = 12
#: What was tried may be a little too good.
_ROOM: Final = 1.15


def usual_depth(kind: str, columns: int) -> float:
    """How many boxes a row of a table sorted along a curve lies in; measured with 50 to 1,300 blocks of random rows.

    z-order jumps: 2.4 to 2.8 with two columns, 3.4 to 4.3 with three, 4.0 to 5.3 with four. Hilbert: 1.3 to 1.8.
    """
    return 1.9 if kind == "hilbert" else {2: 3.0, 3: 4.5}.get(columns, 5.5)


class BoxLayout:
    """See :class:`lamella.snapshot.cluster.layout.Layout`."""

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
        """How many boxes lie over one another in this table when it is sorted: as tried with some rows, and no more
        than usual. There are fewer where a column has few values; and seemingly more where many rows have one key.
        """
        every = np.arange(len(self.density))
        tried = self.read_sorted(every, len(every), 0.0)[-1].blocks
        return float(np.clip(_ROOM * tried, 1.0, usual_depth(self._boxes.kind, len(self._boxes.sides))))

    def chosen(self, target_depth: int, allowed: Mask) -> Mask:
        """The least dense boxes wherever it is too deep."""
        found = np.zeros(len(self.density), dtype=bool)
        if not len(found):
            return found
        usable = allowed & ~self._boxes.is_constant
        middles = self._middles(sampled(len(found), np.random.default_rng(self._seed)))
        depths = np.array([self._corners.depth_at(place) for place in middles])
        wanted = target_depth * self._depth_of_sorted
        trigger = wanted if depths.mean() > wanted else 2 * wanted
        for place, depth in zip(middles[depths > trigger], depths[depths > trigger].tolist(), strict=True):
            here = self._sparse_first(np.flatnonzero(self._corners.holding(place) & usable))
            # They come back as so many as a sorted table has.
            count = int(np.ceil(depth - wanted + self._depth_of_sorted))
            density = self.density[here]
            together = np.cumsum(density)
            # None that is denser than what would come out.
            useful = self._depth_of_sorted * density <= together
            before = np.concatenate([[0.0], together[:-1]])
            wanted_too = (np.arange(len(here)) < count) | (density <= AS_DENSE * before)
            # Both hold up to some place, but for the first few.
            most = int(np.argmin(wanted_too)) if not wanted_too.all() else len(here)
            found[here[: int(np.flatnonzero(useful[:most]).max(initial=-1)) + 1]] = True
        return found

    def components(self, chosen: Mask) -> list[Rows]:
        """The chosen boxes in groups that can be told apart by one column, and that again by another."""
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
        """Those at the deepest middle of one of them, and the others by their distance from it."""
        low, high = self._corners.low[blocks], self._corners.high[blocks]
        looked_at = blocks[:: max(1, len(blocks) // _PEAKS)]
        middles = self._middles(looked_at)
        counts = [int(((low <= place) & (place <= high)).all(axis=1).sum()) for place in middles]
        best = int(np.argmax(counts))
        there = ((low <= middles[best]) & (middles[best] <= high)).all(axis=1)
        peak = looked_at[best]
        centres = (self._start + self._stop) / 2
        others = blocks[~there]
        away = np.abs(centres[others] - centres[peak]).max(axis=1)
        return self._sparse_first(blocks[there]), others[np.lexsort((others, away))]

    def in_order(self, blocks: Rows) -> Rows:
        """Boxes by their low corners."""
        return blocks[np.lexsort((blocks, *self._corners.low[blocks].T[::-1]))]

    def read_now(self, blocks: Rows, share: float) -> list[Read]:
        """What look-ups read of some boxes: ranges of each column, and of all columns at once."""
        sizes = self._sizes.take(blocks)
        return [read(likely, sizes) for likely in _read_by([spans.take(blocks) for spans in self._spans], share)]

    def read_sorted(self, blocks: Rows, pieces: int, share: float) -> list[Read]:
        """What they would read if these were sorted together and cut into so many: tried with rows drawn from them."""
        tried = min(pieces, _TRIED_PIECES)
        columns = self._drawn(blocks, tried * _ROWS_OF_PIECE)
        order = curve.order(curve.positions(self._boxes.kind, _ranked(columns), _LAYOUT_BITS))
        sides = []
        for column, mass in zip(columns.T, self._masses, strict=True):
            rows = column[order].reshape(tried, _ROWS_OF_PIECE)
            start, stop = rows.min(axis=1), rows.max(axis=1)
            # Few rows span less than all, and many pieces less than few.
            grown = (stop - start) * (
                (_ROWS_OF_PIECE + 1) / (_ROWS_OF_PIECE - 1) * (tried / pieces) ** (1 / columns.shape[1])
            )
            middle = (start + stop) / 2
            sides.append(mass.widened(Spans(np.maximum(middle - grown / 2, 0.0), np.minimum(middle + grown / 2, 1.0))))
        size_bytes = float(self._sizes.size_bytes[blocks].sum())
        likely = [float(each.mean()) for each in _read_by(sides, share)]
        return [Read(pieces * each, size_bytes * each) for each in likely]

    def _drawn(self, blocks: Rows, count: int) -> Any:
        """Rows of some boxes, each as a part of all rows in every column; those of one point in its middle."""
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


def room_of(boxes: Boxes, blocks: Rows) -> float:
    """How much room some boxes take up: in how many of them a look-up lies, where points count alike in each column."""
    sides = [(side.last - side.first + 1)[blocks] / max(side.count, 1) for side in boxes.sides]
    return float(np.prod(np.stack(sides), axis=0).sum())


def _read_by(sides: Sequence[Spans], share: float) -> list[Numbers]:
    """How likely each box is read, by ranges of each column, and of all columns that together have the share."""
    alone = [side.read_by(share) for side in sides]
    together = [side.read_by(share ** (1 / len(sides))) for side in sides]
    return [*alone, np.asarray(np.prod(together, axis=0))]


def _ranked(columns: Any) -> curve.Points:
    """Each column's numbers by their rank among all of it; equal ones have one."""
    ranks = [np.searchsorted(np.sort(column), column) for column in columns.T]
    return np.asarray(np.column_stack(ranks) * (1 << _LAYOUT_BITS) // len(columns), dtype=np.uint64)
