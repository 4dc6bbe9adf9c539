"""What look-ups are expected to read, against what they really read of tables of real rows; and figures of layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cluster.extent import (
    NOT_WRITTEN,
    UNIMPROVABLE_LEVEL,
    BlockTarget,
    Intervals,
    Sizes,
    Spans,
    extents,
    mass_of,
    met,
)
from lamella.snapshot.cluster.health import Health, LookUp, health
from lamella.snapshot.cluster.selection import Aims
from lamella.snapshot.columnar.zones import nothing_known
from support.clustered import ClusteredTable, cut

ROWS = 40_000
BLOCKS = 100


def tables() -> dict[str, list[Any]]:
    """Layouts of 40,000 rows."""
    rng = np.random.default_rng(7)
    values = rng.permutation(ROWS)
    hot = np.where(rng.random(ROWS) < 0.3, 17, rng.integers(0, 1_000, ROWS))
    return {
        "random": cut(values, BLOCKS),
        "sorted": cut(np.sort(values), BLOCKS),
        "ten runs": [block for run in cut(values, 10) for block in cut(np.sort(run), BLOCKS // 10)],
        "sorted, and ten wide ones": cut(np.sort(values), BLOCKS) + [rng.choice(ROWS, 200) for _ in range(10)],
        "nearly sorted": cut(values[np.argsort(values + rng.normal(0, ROWS / 40, ROWS))], BLOCKS),
        "skewed": cut(np.sort(rng.lognormal(0, 3, ROWS) * 1e6), BLOCKS),
        "a hot value": cut(np.sort(hot), BLOCKS),
        "five values": cut(np.sort(rng.integers(0, 5, ROWS)), BLOCKS),
    }


def measured(table: ClusteredTable, share: float, rng: np.random.Generator) -> tuple[float, float]:
    """Blocks and bytes that ranges of a share of the rows really meet."""
    rows = np.sort(np.concatenate([block.rows[:, 0] for block in table.blocks]))
    low = np.array([block.rows.min() for block in table.blocks])
    high = np.array([block.rows.max() for block in table.blocks])
    size_bytes = table.sizes.size_bytes
    width = int(share * len(rows))
    begin = rng.integers(0, len(rows) - width, 2_000)
    hits = (low <= rows[begin + width][:, None]) & (high >= rows[begin][:, None])
    return float(hits.sum(axis=1).mean()), float((hits * size_bytes).sum(axis=1).mean())


def figures(table: ClusteredTable) -> Health:
    """Those of a table."""
    return health(table.extents(), table.sizes, table.target)


def of(found: Health, share: float, column: int | None = None) -> LookUp:
    """One sort of look-up."""
    (one,) = (each for each in found.look_ups if each.share == share and each.column == column)
    return one


@pytest.mark.parametrize("name", list(tables()))
def test_expected_reads_are_what_is_read(name: str) -> None:
    """A point, 0.1 % and 1 % of the rows: blocks and bytes within a twentieth; within a sixth where rows are in no
    order, which is the hardest to guess.
    """
    table = ClusteredTable(tables()[name], block_rows=ROWS // BLOCKS)
    found = figures(table)
    for share in (0.0, 0.001, 0.01):
        one = of(found, share)
        blocks, size_bytes = measured(table, share, np.random.default_rng(1))
        within = 0.17 if name == "random" else 0.05
        assert one.blocks == pytest.approx(blocks, rel=within)
        assert one.size_bytes == pytest.approx(size_bytes, rel=within)
        assert one.ideal_blocks <= one.blocks * 1.001


@pytest.mark.parametrize("name", ["sorted", "skewed", "a hot value", "five values"])
def test_a_sorted_table_reads_what_is_ideal(name: str) -> None:
    """Also when a value has more rows than a block: that is not the layout's fault."""
    found = figures(ClusteredTable(tables()[name], block_rows=ROWS // BLOCKS))
    assert found.depth.max_depth == 1
    for one in found.look_ups:
        assert one.blocks == pytest.approx(one.ideal_blocks, rel=0.005)
        assert one.size_bytes == pytest.approx(one.ideal_bytes, rel=0.005)


def test_the_ideal_is_what_sorting_gives() -> None:
    """The ideal of an unsorted table is near what its sorted rows read, in blocks of the same sizes."""
    sizes = [300, 10, 700, 90] * 20
    rows = np.random.default_rng(3).permutation(sum(sizes))
    edges = np.cumsum(sizes)[:-1]
    table, best = (ClusteredTable(list(np.split(each, edges))) for each in (rows, np.sort(rows)))
    for share in (0.001, 0.01):
        blocks, size_bytes = measured(best, share, np.random.default_rng(1))
        assert of(figures(table), share).ideal_blocks == pytest.approx(blocks, rel=0.05)
        assert of(figures(table), share).ideal_bytes == pytest.approx(size_bytes, rel=0.05)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted), min_size=1, max_size=5),
    st.floats(0, 0.9),
)
def test_the_chance_to_be_read_is_that_of_ranges_begun_anywhere(pairs: list[list[float]], share: float) -> None:
    """As trying many ranges gives."""
    spans = Spans(np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))
    begin = np.linspace(0, 1 - share, 4_001)
    hits = (spans.start <= begin[:, None] + share) & (spans.stop >= begin[:, None])
    assert spans.read_by(share) == pytest.approx(hits.mean(axis=0), abs=2e-3)
    assert spans.read_by(1.0).tolist() == [1.0] * len(pairs)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_chance_that_two_spans_meet(width: float, share: float) -> None:
    """As trying both everywhere gives."""
    at, begin = np.linspace(0, 1 - width, 301), np.linspace(0, 1 - share, 301)
    meets = (at[:, None] <= begin + share) & (at[:, None] + width >= begin)
    assert met(np.array([width]), share)[0] == pytest.approx(meets.mean(), abs=0.02)


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=10))
def test_spans_hold_their_rows(blocks: list[list[int]]) -> None:
    """A block spans at least the part of all rows that it has, and nothing beyond the table."""
    table = ClusteredTable([np.array(block) for block in blocks])
    intervals, rows = table.extents(), table.sizes.rows
    assert isinstance(intervals, Intervals)
    mass = mass_of(intervals, rows)
    spans = mass.spans(intervals)
    assert (spans.start >= 0).all()
    assert (spans.stop <= 1 + 1e-9).all()
    assert (spans.width >= rows / rows.sum() - 1e-9).all()
    within = mass.within(intervals)
    assert (within > 0).all()
    assert (within <= spans.width + 1e-9).all()
    # Only blocks of one value say how many rows a value has.
    ends = [
        np.isin(intervals.first[intervals.is_constant], end)
        for end in zip(intervals.first, intervals.last, strict=True)
    ]
    free = ~np.array([each.any() for each in ends])
    assert within[free] == pytest.approx(spans.width[free])


def test_rows_of_an_end_are_not_within() -> None:
    """Half of all rows have the value 5: what lies from 0 to 5, or from 5 to 9, has only its own rows within."""
    table = ClusteredTable([np.array([0, 5]), np.array([5, 5, 5, 5]), np.array([5, 9])])
    intervals = table.extents()
    assert isinstance(intervals, Intervals)
    mass = mass_of(intervals, table.sizes.rows)
    assert (mass.spans(intervals).width >= 0.5).all()
    assert mass.within(intervals)[1] == mass.spans(intervals).width[1]
    assert (mass.within(intervals)[[0, 2]] <= 0.25).all()


def test_blocks_are_counted_by_what_they_are() -> None:
    """Constant, unclustered, settled, unknown, small, perfect, large."""
    table = ClusteredTable(
        [np.full(500, 7), np.arange(100), np.arange(39), np.arange(90), np.arange(41), np.arange(201)]
    )
    sizes = Sizes(
        table.sizes.rows, table.sizes.size_bytes, np.array([NOT_WRITTEN, 0, 3, UNIMPROVABLE_LEVEL, NOT_WRITTEN, 31])
    )
    found = health(table.extents(), sizes, table.target)
    assert (found.block_count, found.row_count, found.size_bytes) == (6, 971, 97_100)
    assert (found.constant_blocks, found.unclustered_blocks, found.unimprovable_blocks) == (1, 2, 1)
    assert (found.small_blocks, found.perfect_blocks, found.large_blocks) == (1, 3, 2)
    assert found.unknown_blocks == 0
    assert health(extents("linear", [nothing_known(6)]), sizes).unknown_blocks == 6
    by_bytes = BlockTarget(rows=1 << 40, size_bytes=10_000)
    assert by_bytes.is_small(sizes).tolist() == [False, False, True, False, False, False]


def test_an_empty_table_has_figures() -> None:
    """No blocks, or blocks without rows."""
    nothing = np.zeros(0, dtype=np.int64)
    found = health(extents("linear", [nothing_known(0)]), Sizes(nothing, nothing, nothing))
    assert (found.block_count, found.depth.average_depth, found.look_ups) == (0, 0.0, ())
    zeros = np.zeros(2, dtype=np.int64)
    assert health(extents("hilbert", [nothing_known(2)] * 2), Sizes(zeros, zeros, zeros)).look_ups == ()
    with pytest.raises(ValueError, match="same blocks"):
        health(extents("linear", [nothing_known(1)]), Sizes(zeros, zeros, zeros))


def test_boxes_have_look_ups_by_each_column_and_by_all() -> None:
    """Sorted along a Hilbert curve, each column reads about the square root of all blocks, and both at once a few; as
    really read, within a tenth.
    """
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 1 << 20, (ROWS, 2))
    table = ClusteredTable(cut(rows, 400), kind="hilbert", block_rows=ROWS // 400)
    before = figures(table)
    table.run(Aims(max_bytes=1 << 60, target=table.target))
    found = figures(table)
    low = np.stack([block.rows.min(axis=0) for block in table.blocks])
    high = np.stack([block.rows.max(axis=0) for block in table.blocks])
    for column in (0, 1):
        assert of(before, 0.01, column).blocks > 350
        begin = rng.integers(0, int(0.99 * (1 << 20)), 1_000)[:, None]
        hits = (low[:, column] <= begin + 0.01 * (1 << 20)) & (high[:, column] >= begin)
        assert of(found, 0.01, column).blocks == pytest.approx(hits.sum(axis=1).mean(), rel=0.1)
        assert of(found, 0.01, column).ideal_blocks < of(found, 0.01, column).blocks < 30
    side = 0.1 * (1 << 20)
    corner = rng.integers(0, int(0.9 * (1 << 20)), (1_000, 1, 2))
    both = ((low <= corner + side) & (high >= corner)).all(axis=2)
    assert of(found, 0.01).blocks == pytest.approx(both.sum(axis=1).mean(), rel=0.1)
    assert of(found, 0.01).ideal_blocks < of(found, 0.01).blocks
