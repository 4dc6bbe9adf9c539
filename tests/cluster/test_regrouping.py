"""Which blocks go to which segment, tried on many segments: fewer are looked into, and it stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.extent import Extents
from lamella.snapshot.cluster.regroup import RegroupAims, Regrouping, regroup
from lamella.snapshot.cluster.selection import Aims
from support.clustered import ClusteredTable, cut

SEGMENT = 50
BLOCKS = 5_000
AIMS = RegroupAims(segment_blocks=SEGMENT)
Rows = np.ndarray[Any, np.dtype[np.int64]]


class Segments:
    """Blocks in segments."""

    def __init__(self, table: ClusteredTable, segment_of: Any) -> None:
        self.extents: Extents = table.extents()
        self.rows = table.sizes.rows
        self.segment_of: Rows = np.unique(np.asarray(segment_of), return_inverse=True)[1].astype(np.int64)
        self.low = np.array([block.rows[:, 0].min() for block in table.blocks])
        self.high = np.array([block.rows[:, 0].max() for block in table.blocks])

    @property
    def count(self) -> int:
        """How many segments there are."""
        return int(self.segment_of.max()) + 1

    def run(self, aims: RegroupAims = AIMS, **how: Any) -> Regrouping:
        """One run: regroup, and put blocks into other segments."""
        found = regroup(self.extents, self.rows, self.segment_of, aims, **how)
        following = self.count
        for group in found.groups:
            members = np.flatnonzero(np.isin(self.segment_of, group.segments))
            assert sorted(np.concatenate(group.blocks).tolist()) == members.tolist()
            for blocks in group.blocks:
                assert 0 < len(blocks) <= aims.segment_blocks
                self.segment_of[blocks] = following
                following += 1
        self.segment_of = np.unique(self.segment_of, return_inverse=True)[1].astype(np.int64)
        return found

    def until_done(self, aims: RegroupAims = AIMS, max_runs: int = 60) -> int:
        """Runs until one does nothing; returns how many segments were replaced."""
        replaced = 0
        for _ in range(max_runs):
            found = self.run(aims)
            if not found.groups:
                return replaced
            assert sum(len(group.segments) for group in found.groups) <= aims.max_segments
            replaced += sum(len(group.segments) for group in found.groups)
        raise AssertionError(f"not done after {max_runs} runs")

    def opened(self, share: float = 0.001) -> float:
        """How many segments ranges of the first column (whole numbers, spread evenly) are really sent to."""
        low, high = np.full(self.count, 1 << 60), np.full(self.count, -1)
        np.minimum.at(low, self.segment_of, self.low)
        np.maximum.at(high, self.segment_of, self.high)
        top = int(self.high.max())
        begin = np.random.default_rng(0).integers(0, int(top * (1 - share)), 2_000)[:, None]
        return float(((low <= begin + share * top) & (high >= begin)).sum(axis=1).mean())


def narrow(count: int = BLOCKS) -> ClusteredTable:
    """Blocks side by side."""
    return ClusteredTable(cut(np.arange(10 * count), count), block_rows=10)


def test_blocks_that_were_added_in_no_order_get_into_order() -> None:
    """Every segment lies over all of the key: after one run as few are looked into as in a sorted table, and as few as
    was expected.
    """
    ordered = np.arange(BLOCKS) // SEGMENT
    segments = Segments(narrow(), np.random.default_rng(1).permutation(ordered))
    before = segments.opened()
    assert before > 90
    found = segments.run()
    assert found.opened_before == pytest.approx(before, rel=0.02)
    assert segments.count == BLOCKS // SEGMENT
    assert segments.opened() == pytest.approx(found.opened_after, rel=0.02)
    assert segments.opened() == pytest.approx(Segments(narrow(), ordered).opened(), rel=0.02)
    assert segments.run().groups == ()


@pytest.mark.parametrize(("max_segments", "replaced"), [(50, 220), (20, 240), (10, 320)])
def test_bounded_runs_get_there_too(max_segments: int, replaced: int) -> None:
    """With few segments a run, each is replaced a few times, and look-ups see at most two or so."""
    segments = Segments(narrow(), np.random.default_rng(1).permutation(np.arange(BLOCKS) // SEGMENT))
    assert segments.until_done(RegroupAims(segment_blocks=SEGMENT, max_segments=max_segments)) <= replaced
    assert segments.opened() < 2.3


def test_wide_segments_of_newer_appends_are_put_into_order_alone() -> None:
    """A table in order and ten segments over all of it: only those ten are replaced."""
    rng = np.random.default_rng(2)
    table = narrow()
    appended = [np.sort(rng.integers(at, at + 30, 5)) for at in rng.integers(0, 10 * BLOCKS - 30, 10 * SEGMENT)]
    table.append(*appended)
    segments = Segments(table, np.arange(len(table)) // SEGMENT)
    assert segments.opened() > 10.5
    found = segments.run()
    assert [sorted(group.segments.tolist()) for group in found.groups] == [list(range(100, 110))]
    assert segments.opened() < 2.5
    assert segments.run().groups == ()


def test_a_wide_block_in_every_segment_is_taken_out() -> None:
    """One block over everything makes a segment useless: those blocks get segments of their own."""
    table = narrow()
    table.append(*[np.array([0, 10 * BLOCKS - 1]) for _ in range(100)])
    segments = Segments(table, np.concatenate([np.arange(BLOCKS) // SEGMENT, np.arange(100)]))
    assert segments.opened() == 100
    segments.run()
    assert segments.opened() < 4
    assert segments.run().groups == ()


def test_blocks_that_are_all_wide_are_left_alone() -> None:
    """However deep segments lie, no other grouping would be better, and that is known beforehand."""
    table = ClusteredTable([np.array([0, 1_000])] * 1_000)
    segments = Segments(table, np.arange(1_000) // SEGMENT)
    found = segments.run()
    assert (found.groups, found.reason) == ((), "regrouping would gain too little")
    assert found.opened_before == found.opened_after == 20


def test_a_table_in_order_is_left_alone() -> None:
    """And so are segments that touch."""
    segments = Segments(narrow(), np.arange(BLOCKS) // SEGMENT)
    found = segments.run()
    assert (found.groups, found.reason) == ((), "no segments overlap too much")


def test_small_segments_come_out_full() -> None:
    """Of many small segments over one another, fewer and full ones are made."""
    order = np.random.default_rng(3).permutation(1_000)
    segments = Segments(narrow(1_000), order // 4)
    assert segments.count == 250
    segments.run(RegroupAims(segment_blocks=SEGMENT, max_segments=1_000))
    assert segments.count == 20


def test_only_allowed_segments_are_replaced() -> None:
    """And the arguments have to be of the same blocks and segments."""
    segments = Segments(narrow(), np.random.default_rng(1).permutation(np.arange(BLOCKS) // SEGMENT))
    allowed = np.arange(100) % 2 == 0
    (group,) = segments.run(allowed=allowed).groups
    assert sorted(group.segments.tolist()) == np.flatnonzero(allowed).tolist()
    with pytest.raises(ValueError, match="same blocks"):
        regroup(segments.extents, segments.rows[1:], segments.segment_of)
    with pytest.raises(ValueError, match="have no block"):
        regroup(segments.extents, segments.rows, segments.segment_of * 2)


@pytest.mark.slow
def test_segments_of_a_table_along_a_curve() -> None:
    """Boxes in no order are grouped with their neighbours, so that ranges of each column and of both see fewer."""
    rows = np.random.default_rng(1).integers(0, 1 << 20, (50_000, 2))
    table = ClusteredTable(cut(rows, 2_500), kind="hilbert", block_rows=20)
    table.run(Aims(max_bytes=1 << 60, target=table.target))
    count = len(table)
    segments = Segments(table, np.random.default_rng(2).permutation(np.arange(count) // SEGMENT))
    assert segments.opened() > 45
    found = segments.run()
    assert segments.opened() < 14
    assert found.opened_after < 0.2 * found.opened_before
    assert segments.run().groups == ()


def test_tables_without_rows_need_nothing() -> None:
    """No blocks at all."""
    nothing = np.zeros(0, dtype=np.int64)
    found = regroup(narrow(10).extents().take(nothing), nothing, nothing)
    assert (found.groups, found.reason) == ((), "the table has no rows")


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 400),
    st.sampled_from([1, 4, 30]),
    st.sampled_from([0.0, 0.05, 1.0]),
    st.sampled_from([2, 5, 1_000]),
    st.sampled_from([1, 2]),
    st.sampled_from(["linear", "zorder"]),
)
def test_it_always_stops(
    seed: int, blocks: int, width: int, noise: float, max_segments: int, columns: int, kind: Any
) -> None:
    """Whatever lies where: runs stop, no block is lost, and no run makes look-ups see more segments than expected."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 1_000, (blocks, columns))
    wide = rng.integers(0, width * np.where(rng.random((blocks, 1)) < 0.1, 20, 1) + 1)
    table = ClusteredTable(list(np.stack([start, start + wide], axis=1)), kind=kind)
    order = np.argsort(start[:, 0] + rng.normal(0, 1, blocks) * noise * 1_000)
    segment_of = np.empty(blocks, dtype=np.int64)
    segment_of[order] = np.arange(blocks) // rng.integers(1, 20)
    segments = Segments(table, segment_of)
    aims = RegroupAims(segment_blocks=10, max_segments=max_segments, min_gain=0.0, target_depth=int(rng.integers(1, 4)))
    for _ in range(200):
        found = segments.run(aims)
        assert found.opened_after <= found.opened_before + 1e-9
        if not found.groups:
            break
    else:
        raise AssertionError("not done after 200 runs")
