"""How many blocks lie over one another: as counting says, on lines and of boxes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cluster import depth
from lamella.snapshot.cluster.depth import Depths, DepthSummary, box_depths, depth_profile, interval_depths, summary
from lamella.snapshot.cluster.extent import Boxes, Intervals
from support.clustered import ClusteredTable

Pair = tuple[int, int]
PAIRS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))


def interior(pair: Pair) -> set[float]:
    """Where a block is, in halves: a single value, or all between two of them."""
    low, high = pair
    return {float(low)} if low == high else {at / 4 for at in range(4 * low + 1, 4 * high)}


def counted(boxes: list[list[Pair]]) -> tuple[list[int], list[int]]:
    """Depths and overlaps, place by place and pair by pair."""
    cells = [set(itertools.product(*map(interior, box))) for box in boxes]
    constant = [all(low == high for low, high in box) for box in boxes]
    depth_at: dict[Any, int] = {}
    for cell in set().union(*cells):
        here = [at for at in range(len(boxes)) if cell in cells[at]]
        piles = [at for at in here if constant[at]]
        depth_at[cell] = len(here) - max(len(piles) - 1, 0)
    depths = [max(depth_at[cell] for cell in mine) for mine in cells]
    overlaps = []
    for left in range(len(boxes)):
        others = [at for at in range(len(boxes)) if at != left and cells[left] & cells[at]]
        overlaps.append(sum(1 for at in others if not (constant[left] and constant[at])))
    return depths, overlaps


def line(pairs: list[Pair]) -> Intervals:
    """Intervals of whole numbers."""
    found = ClusteredTable([np.array(pair) for pair in pairs]).extents()
    assert isinstance(found, Intervals)
    return found


def boxes_of(boxes: list[list[Pair]]) -> Boxes:
    """Boxes of whole numbers."""
    found = ClusteredTable([np.array(box).T for box in boxes], kind="hilbert").extents()
    assert isinstance(found, Boxes)
    return found


@given(st.lists(PAIRS, min_size=1, max_size=14))
def test_depths_on_a_line_are_as_counted(pairs: list[Pair]) -> None:
    """Blocks that touch do not overlap, a pile of one value counts once; the profile's peak is the greatest depth."""
    found = interval_depths(line(pairs))
    depths, overlaps = counted([[pair] for pair in pairs])
    assert found.depth.tolist() == depths
    assert found.overlaps.tolist() == overlaps
    assert found.is_exact
    assert depth_profile(line(pairs))[1].max() == max(depths)


def test_what_touches_does_not_overlap() -> None:
    """The cases that the definition is made of."""
    cases: dict[tuple[Pair, ...], list[int]] = {
        ((1, 5), (5, 9)): [1, 1],
        ((1, 5), (4, 9)): [2, 2],
        ((1, 5), (5, 5)): [1, 1],
        ((1, 5), (3, 3)): [2, 2],
        ((3, 3), (3, 3)): [1, 1],
        ((1, 5), (3, 3), (3, 3)): [2, 2, 2],
        ((1, 5), (1, 5)): [2, 2],
    }
    for pairs, wanted in cases.items():
        assert interval_depths(line(list(pairs))).depth.tolist() == wanted, pairs


@given(st.lists(st.tuples(PAIRS, PAIRS).map(list), min_size=1, max_size=8))
def test_overlaps_of_boxes_are_as_counted(boxes: list[list[Pair]]) -> None:
    """In every column at once. Depths are looked at in corners of boxes: never more than there are, and at least 1."""
    found = box_depths(boxes_of(boxes), np.random.default_rng(0))
    depths, overlaps = counted(boxes)
    assert found.overlaps.tolist() == overlaps
    assert all(1 <= seen <= real for seen, real in zip(found.depth.tolist(), depths, strict=True))


@given(st.lists(PAIRS, min_size=1, max_size=10))
def test_boxes_that_are_equal_in_one_column_are_as_deep_as_lines(pairs: list[Pair]) -> None:
    """With one and the same wide interval in the other column, corners tell every depth, as long as none is a point."""
    wide = [pair for pair in pairs if pair[0] < pair[1]] or [(0, 1)]
    found = box_depths(boxes_of([[pair, (0, 9)] for pair in wide]), np.random.default_rng(0))
    on_line = interval_depths(line(wide))
    assert found.depth.tolist() == on_line.depth.tolist()
    assert found.overlaps.tolist() == on_line.overlaps.tolist()


def test_many_boxes_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more boxes than are looked at one by one, a sample says nearly the same, and says that it is one. It sees
    fewer corners, and so is never too deep.
    """
    rng = np.random.default_rng(4)
    low = rng.integers(0, 1_000, (3_000, 2))
    corners = np.stack([low, low + rng.integers(1, 200, (3_000, 2))], axis=1)
    boxes = ClusteredTable(list(corners), kind="zorder").extents()
    assert isinstance(boxes, Boxes)
    everything = summary(box_depths(boxes, rng))
    monkeypatch.setattr(depth, "EXACT", 1_000)
    monkeypatch.setattr(depth, "PAIRS", 1_500_000)
    found = box_depths(boxes, rng)
    assert len(found.blocks) == 500
    assert not found.is_exact
    some = summary(found)
    assert everything.is_exact
    assert not some.is_exact
    assert everything.average_depth * 0.85 < some.average_depth < everything.average_depth * 1.02
    assert some.average_overlaps == pytest.approx(everything.average_overlaps, rel=0.1)


def test_depths_are_summed_up() -> None:
    """Averages, percentiles, and a histogram of single depths up to 16 and powers of two above."""
    depth = np.array([1] * 90 + [2] * 5 + [16, 17, 32, 33, 1000])
    found = summary(Depths(np.arange(100), depth, np.arange(100)))
    assert found.average_depth == depth.mean()
    assert found.average_overlaps == 49.5
    assert (found.p50_depth, found.p95_depth, found.p99_depth, found.max_depth) == (1, 2, 33, 1000)
    assert found.histogram == {1: 90, 2: 5, 16: 1, 32: 2, 64: 1, 1024: 1}
    nothing = np.zeros(0, dtype=np.int64)
    assert summary(Depths(nothing, nothing, nothing)) == DepthSummary()


def test_a_hundred_thousand_blocks_are_as_quick_as_sorting() -> None:
    """A pile of wide blocks over a sorted table: every block is as deep as all of them and itself."""
    count, wide = 100_000, 1_000
    pairs = np.concatenate([np.arange(count)[:, None] + [0, 1], np.tile([0, count], (wide, 1))])
    found = interval_depths(line([(int(low), int(high)) for low, high in pairs]))
    assert (found.depth == wide + 1).all()
    assert (found.overlaps[:count] == wide).all()
    assert (found.overlaps[count:] == count + wide - 1).all()
