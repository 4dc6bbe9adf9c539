"""How many blocks overlap, as intervals on a line and as boxes.

*Depth* of a key value: the number of blocks whose range contains it, which is the number of blocks that a look-up of
the value reads. Depth of a block: the maximum depth within its range, at least 1. *Overlaps* of a block: the number of
other blocks that overlap it. Blocks that only touch do not overlap (see :mod:`lamella.snapshot.cluster.extent`). Blocks
that all hold one and the same value form a pile: together they count once in every depth and do not overlap each other,
since no layout can separate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot.cluster.extent import Boxes, Intervals, Numbers, Rows
from lamella.snapshot.columnar.keys import Mask

# Depth and overlaps of boxes.
#
# The depth of a point is the number of boxes that contain it. Depth is evaluated at the low corners of boxes. The depth
# of a box is the maximum depth of such a corner inside it; a point where only parts of several boxes meet may be
# deeper. The overlaps of a box are the other boxes that intersect it in every column. As on a line, boxes of one key
# value form a pile.
#
# Up to ``EXACT`` boxes are evaluated exactly. For more, a sample of boxes and corners is drawn with a given generator:
# about ``PAIRS`` pairs of corner and box, so a million boxes take seconds.

EXACT: Final = 4_000
PAIRS: Final = 100_000_000
_MIN_SAMPLE: Final = 300
_PAIRS_AT_ONCE: Final = 4_000_000


def sampled(count: int, rng: np.random.Generator) -> Rows:
    """Samples the boxes to evaluate; their indexes, ascending."""
    if count <= EXACT:
        return np.arange(count)
    return np.sort(rng.choice(count, min(count, max(_MIN_SAMPLE, PAIRS // count)), replace=False))


class Corners:
    """The sides of boxes as arrays: ``low`` and ``high`` have a row per box and a column per key column."""

    def __init__(self, boxes: Boxes) -> None:
        self.low = np.column_stack([side.low for side in boxes.sides])
        self.high = np.column_stack([side.high for side in boxes.sides])
        self.weight = _pile_shares(boxes, self.low)
        self.is_constant = boxes.is_constant

    def holding(self, point: Any) -> Mask:
        """Returns the boxes that contain a point."""
        return np.asarray(((self.low <= point) & (point <= self.high)).all(axis=1))

    def depth_at(self, point: Any) -> float:
        """Returns the number of boxes that contain a point; a pile counts as one."""
        return float(self.weight[self.holding(point)].sum())


def box_depths(boxes: Boxes, rng: np.random.Generator) -> Depths:
    """Returns the depth and overlaps of boxes, or of a sample of them if there are many."""
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
    """Returns 1 for each box; the boxes of one key value share a total of 1."""
    weight = np.ones(len(boxes))
    constant = np.flatnonzero(boxes.is_constant)
    if len(constant):
        _, owner, counts = np.unique(low[constant], axis=0, return_inverse=True, return_counts=True)
        weight[constant] = 1.0 / counts[owner.reshape(-1)]
    return weight


#: Depths up to this have their own bucket in a histogram.
_SINGLE: Final = 16


class Depths(msgspec.Struct, frozen=True, eq=False):
    """Depth and overlaps (int64) of each of the blocks ``blocks`` (their indexes among all blocks).

    ``is_exact``: False if the blocks are a sample, or if depths were evaluated at sampled points only and may be
    greater.
    """

    blocks: Any
    depth: Any
    overlaps: Any
    is_exact: bool = True


class DepthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of depths. ``histogram``: number of evaluated blocks per depth, keyed by the upper end of each bucket: 1
    to 16, then powers of two; empty buckets are left out. All members are 0 when there are no blocks.
    """

    average_depth: float = 0.0
    average_overlaps: float = 0.0
    p50_depth: int = 0
    p95_depth: int = 0
    p99_depth: int = 0
    max_depth: int = 0
    histogram: dict[int, int] = {}
    is_exact: bool = True


def interval_depths(intervals: Intervals) -> Depths:
    """Returns the exact depth and overlaps of every block on a line, in O(n log n)."""
    low, high, constant = intervals.low, intervals.high, intervals.is_constant
    points, at_points = _profile(low, high, constant)
    first = np.searchsorted(points, low)
    last = np.searchsorted(points, high, side="right") - 1
    begun = np.searchsorted(np.sort(low), high, side="right")
    ended = np.searchsorted(np.sort(high), low, side="left")
    overlaps = begun - ended - 1
    values, owner, piled = np.unique(low[constant], return_inverse=True, return_counts=True)
    if len(values):
        overlaps[constant] -= piled[owner] - 1
    return Depths(np.arange(len(low)), _range_max(at_points, first, last), overlaps)


def depth_profile(intervals: Intervals) -> tuple[Rows, Rows]:
    """Returns the points where a block begins, ascending, and the depth at each. The maximum depth occurs at one of
    them."""
    return _profile(intervals.low, intervals.high, intervals.is_constant)


def summary(found: Depths) -> DepthSummary:
    """Summarizes depths."""
    if not len(found.depth):
        return DepthSummary(is_exact=found.is_exact)
    p50, p95, p99 = np.percentile(found.depth, [50, 95, 99], method="inverted_cdf").tolist()
    return DepthSummary(
        average_depth=float(found.depth.mean()),
        average_overlaps=float(found.overlaps.mean()),
        p50_depth=int(p50),
        p95_depth=int(p95),
        p99_depth=int(p99),
        max_depth=int(found.depth.max()),
        histogram=_histogram(found.depth),
        is_exact=found.is_exact,
    )


def _profile(low: Rows, high: Rows, constant: npt.NDArray[np.bool_]) -> tuple[Rows, Rows]:
    # A pile of constant blocks counts once.
    piles = np.unique(low[constant])
    begins = np.sort(np.concatenate([low[~constant], piles]))
    ends = np.sort(np.concatenate([high[~constant], piles]))
    points = begins[np.concatenate([np.ones(min(len(begins), 1), dtype=bool), begins[1:] != begins[:-1]])]
    depth = np.searchsorted(begins, points, side="right") - np.searchsorted(ends, points, side="left")
    return points, depth


def _range_max(values: Rows, first: Rows, last: Rows) -> Rows:
    """Returns the maximum of each range, ends included, from a sparse table: runs of 1, 2, 4, ... values, two of which
    cover a range."""
    found = np.zeros(len(first), dtype=np.int64)
    level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
    runs = values
    for each in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == each)
        found[rows] = np.maximum(runs[first[rows]], runs[last[rows] - (1 << each) + 1])
        runs = np.maximum(runs[: -(1 << each)], runs[1 << each :])
    return found


def _histogram(depth: Rows) -> dict[int, int]:
    exponent = np.ceil(np.log2(np.maximum(depth, 1))).astype(np.int64)
    buckets = np.where(depth <= _SINGLE, depth, np.left_shift(1, exponent))
    values, counts = np.unique(buckets, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
