"""How many boxes lie over one another, and over each box.

Depth of a place: how many boxes it lies in. It is looked at in the low corners of boxes. Depth of a box: the greatest
depth of such a corner in it; a place where only parts of several boxes meet may be deeper. Overlaps of a box: how many
others it has a place in common with, in every column. As on a line, boxes of one and the same key value are one pile.

Of up to :data:`EXACT` boxes all are looked at; of more a sample of boxes and of their corners, drawn with a given
generator: about :data:`PAIRS` pairs of corner and box, so a million boxes take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lamella.snapshot.cluster.depth import Depths
from lamella.snapshot.cluster.extent import Boxes, Rows
from lamella.snapshot.cluster.row_share import Numbers
from lamella.snapshot.columnar.masks import Mask

EXACT: Final = 4_000
PAIRS: Final = 100_000_000
_LEAST_SAMPLE: Final = 300
_PAIRS_AT_ONCE: Final = 4_000_000


def sampled(count: int, rng: np.random.Generator) -> Rows:
    """Which of so many boxes to look at, ascending."""
    if count <= EXACT:
        return np.arange(count)
    return np.sort(rng.choice(count, min(count, max(_LEAST_SAMPLE, PAIRS // count)), replace=False))


class Corners:
    """The sides of boxes as arrays: ``low`` and ``high`` have a row for each box and a column for each column."""

    def __init__(self, boxes: Boxes) -> None:
        self.low = np.column_stack([side.low for side in boxes.sides])
        self.high = np.column_stack([side.high for side in boxes.sides])
        self.weight = _pile_shares(boxes, self.low)
        self.is_constant = boxes.is_constant

    def holding(self, place: Any) -> Mask:
        """The boxes that a place lies in."""
        return np.asarray(((self.low <= place) & (place <= self.high)).all(axis=1))

    def depth_at(self, place: Any) -> float:
        """How many those are, a pile as one."""
        return float(self.weight[self.holding(place)].sum())


def box_depths(boxes: Boxes, rng: np.random.Generator) -> Depths:
    """The depth and overlaps of boxes; of a sample of them where there are many."""
    corners = Corners(boxes)
    blocks = sampled(len(boxes), rng)
    low, high = corners.low, corners.high
    depth = np.zeros(len(blocks))
    overlaps = np.zeros(len(blocks), dtype=np.int64)
    for part in _parts(blocks, len(boxes)):
        inside, meets = (np.ones((len(part), len(boxes)), dtype=bool) for _ in range(2))
        for column in range(low.shape[1]):
            mine, ends = low[part, column, None], high[part, column, None]
            begun = low[:, column] <= mine
            inside &= begun & (high[:, column] >= mine)
            meets &= (high[:, column] >= mine) & (low[:, column] <= ends)
        here = inside @ corners.weight
        found = np.where(inside[:, blocks], here[:, None], 0.0).max(axis=0)
        depth = np.maximum(depth, found)
        overlaps[np.searchsorted(blocks, part)] = meets.sum(axis=1) - 1
    constant = corners.is_constant[blocks]
    piled = np.round(1.0 / corners.weight[blocks[constant]]).astype(np.int64)
    overlaps[constant] -= piled - 1
    return Depths(blocks, np.round(depth).astype(np.int64), overlaps, is_exact=len(blocks) == len(boxes))


def _parts(blocks: Rows, count: int) -> Iterator[Rows]:
    step = max(1, _PAIRS_AT_ONCE // max(count, 1))
    for start in range(0, len(blocks), step):
        yield blocks[start : start + step]


def _pile_shares(boxes: Boxes, low: Any) -> Numbers:
    """1 for each box, and for those of one key value 1 for all together."""
    weight = np.ones(len(boxes))
    constant = np.flatnonzero(boxes.is_constant)
    if len(constant):
        _, owner, counts = np.unique(low[constant], axis=0, return_inverse=True, return_counts=True)
        weight[constant] = 1.0 / counts[owner.reshape(-1)]
    return weight
