"""Boxes: what overlaps too much, and what sorting some of them along their curve would give.

As on a line (:mod:`lamella.snapshot.cluster.line_layout`), with two differences. Even a table sorted along a curve has
boxes that overlap, since the piece of a curve that a block holds is no box; what sorting gives is tried on rows drawn
from the boxes, so a guess, and only what makes look-ups read a fifth less is done. And there is no order to sweep
along, so it is looked at places: the middle of each box, or of a sample of the boxes where there are many.

How much of the rows lies in a box is taken to be the product of what lies in its sides, as if columns were independent.
Where they are not, there is less in wide boxes off the diagonal and more in narrow ones on it: densities are then only
comparable, and gains lower than they will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from lamella.snapshot.cluster import curve
from lamella.snapshot.cluster.block_sizes import Sizes
from lamella.snapshot.cluster.box_depth import Corners, sampled
from lamella.snapshot.cluster.extent import Boxes, Rows
from lamella.snapshot.cluster.layout import AS_DENSE, connected
from lamella.snapshot.cluster.lookup import Read, read
from lamella.snapshot.cluster.row_share import Numbers, Spans, mass_of
from lamella.snapshot.columnar.masks import Mask

#: Places of a group of boxes that are looked at for the deepest.
_PEAKS: Final = 500
#: What sorting would give is tried with so many pieces at most, of so many rows.
_TRIED_PIECES: Final = 128
_ROWS_OF_PIECE: Final = 32
_BITS: Final = 12
#: What was tried may be a little too good.
_ROOM: Final = 1.15


def usual_depth(kind: str, columns: int) -> float:
    """How many boxes a row of a table sorted along a curve lies in; measured with 50 to 1,300 blocks of random rows.

    z-order jumps: 2.4 to 2.8 with two columns, 3.4 to 4.3 with three, 4.0 to 5.3 with four. Hilbert: 1.3 to 1.8.
    """
    return 1.9 if kind == "hilbert" else {2: 3.0, 3: 4.5}.get(columns, 5.5)


class BoxLayout:
    """See :class:`lamella.snapshot.cluster.layout.Layout`."""

    least_gain = 0.2

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
        order = curve.order(curve.positions(self._boxes.kind, _ranked(columns), _BITS))
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
    return np.asarray(np.column_stack(ranks) * (1 << _BITS) // len(columns), dtype=np.uint64)
