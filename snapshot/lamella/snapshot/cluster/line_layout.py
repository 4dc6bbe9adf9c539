"""Blocks on a line: what overlaps too much, and what sorting some of them would give.

Which blocks are rewritten where it is too deep: the least dense ones. A block's density is the part of the rows in its
range that are its own. Taking away a thin block that lies over half of the table costs little and makes half of the
table less deep; taking away a dense one costs as much as it holds and helps where it lies. Where the depth is d and
may be t, the d - t + 1 least dense blocks are taken, since together they come back as one layer. And then those that
are about as dense as all of them together: for twice the cost one layer less, and no pile of layers of which each is
only a little larger than the one before.
"""

from __future__ import annotations

import heapq

import numpy as np

from lamella.snapshot.cluster.block_sizes import Sizes
from lamella.snapshot.cluster.depth import depth_profile, interval_depths
from lamella.snapshot.cluster.extent import Intervals, Rows
from lamella.snapshot.cluster.layout import AS_DENSE, connected
from lamella.snapshot.cluster.lookup import Read, read
from lamella.snapshot.cluster.row_share import Numbers, Spans, mass_of
from lamella.snapshot.columnar.masks import Mask
from lamella.snapshot.columnar.points import spread


class LineLayout:
    """See :class:`lamella.snapshot.cluster.layout.Layout`."""

    least_gain = 0.02

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
