"""What is reclustered, tried on real rows: it converges, costs little, and stops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.extent import NOT_WRITTEN, UNIMPROVABLE_LEVEL, Intervals, Sizes, extents, mass_of
from lamella.snapshot.cluster.health import health
from lamella.snapshot.cluster.selection import Aims, Selection, select
from lamella.snapshot.columnar.zones import nothing_known
from support.clustered import BYTES_PER_ROW, ClusteredTable, cut

BLOCK = 100
ROWS = 40_000


def aims(table: ClusteredTable, part: float = 1.0, **more: Any) -> Aims:
    """Runs that may rewrite a part of the table."""
    max_bytes = int(part * table.size_bytes) if part < 1 else 1 << 60
    return Aims(max_bytes=max_bytes, target=table.target, **more)


def ordered(rows: int = ROWS) -> ClusteredTable:
    """A table in order."""
    return ClusteredTable(cut(np.arange(rows), rows // BLOCK))


def chosen(found: Selection) -> list[int]:
    """The blocks of all tasks."""
    return sorted(int(block) for task in found.tasks for block in task.blocks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "max_runs", "max_written"),
    [(1.0, 1, 1.0), (0.3, 8, 2.0), (0.1, 24, 2.3), (0.05, 50, 2.6), (0.02, 160, 3.5)],
)
def test_a_table_in_no_order_gets_into_order(part: float, max_runs: int, max_written: float) -> None:
    """Every block over every other: runs of any size bring the average depth to 2, and write the table a few times."""
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), ROWS // BLOCK))
    assert table.depths().average_depth == len(table)
    found = table.until_done(aims(table, part), max_runs)
    assert table.depths().average_depth <= 2
    assert found.amplification <= max_written
    rows = np.concatenate([block.rows[:, 0] for block in table.blocks])
    assert np.sort(rows).tolist() == list(range(ROWS))


def test_each_run_rewrites_as_much_as_it_may() -> None:
    """Of a table in no order, a run that may rewrite a tenth rewrites a tenth, in one task."""
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), ROWS // BLOCK))
    found = table.run(aims(table, 0.1))
    assert [task.size_bytes for task in found.tasks] == [table.size_bytes // 10]
    assert found.remaining_bytes == table.size_bytes * 9 // 10
    assert found.reason == "the limit max_bytes is reached"


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_ten_wide_appends_are_put_together_and_nothing_else(pieces: int, is_sorted: bool) -> None:
    """A table in order and ten appends of 0.5 % each over all of it: one run rewrites just those, under a tenth of the
    table, and the average depth is 2 again.
    """
    rng = np.random.default_rng(pieces)
    table = ordered()
    base = len(table)
    for _ in range(10):
        rows = rng.integers(0, ROWS, ROWS // 200)
        table.append(*cut(np.sort(rows) if is_sorted else rows, pieces))
    assert table.depths().average_depth > 10
    found = table.run(aims(table))
    assert chosen(found) == list(range(base, base + 10 * pieces))
    assert sum(task.size_bytes for task in found.tasks) < 0.05 * table.size_bytes
    assert table.depths().average_depth <= 2
    assert table.run(aims(table)).tasks == ()
    # And it goes on like that: the next ten, together with what the first ten have become.
    for _ in range(10):
        table.append(*cut(rng.integers(0, ROWS, ROWS // 200), pieces))
    assert sum(task.size_bytes for task in table.run(aims(table)).tasks) < 0.1 * table.size_bytes
    assert table.depths().average_depth <= 2


def test_appends_at_the_end_of_the_key_are_left_alone() -> None:
    """A time series whose appends come in order, or overlap the one before a little, is never rewritten."""
    rng = np.random.default_rng(5)
    table = ordered()
    for batch in range(30):
        start = ROWS + 1_000 * batch
        table.append(*cut(np.sort(rng.integers(start - 300, start + 1_000, 1_000)), 10))
        assert table.run(aims(table)).tasks == ()
    assert table.depths().average_depth < 1.5


def test_out_of_order_rows_cost_about_what_they_are() -> None:
    """Appends in no order at the end of a time series: only the rows near the end are rewritten, twice on average."""
    rng = np.random.default_rng(6)
    table = ordered()
    written = 0
    for batch in range(30):
        table.append(*cut(ROWS + 1_000 * batch + rng.integers(-1_500, 1_000, 1_000), 10))
        written += sum(task.rows for task in table.run(aims(table)).tasks)
        assert table.depths().max_depth <= 5
    assert written < 2.5 * 30_000


def test_blocks_of_a_hot_key_are_never_chosen() -> None:
    """Many blocks of one value: no layout can take them apart, so neither they nor what surrounds them is rewritten."""
    table = ordered()
    table.append(*[np.full(BLOCK, 20_050) for _ in range(200)], *[np.full(7, 123) for _ in range(50)])
    assert table.run(aims(table)).tasks == ()
    # Wide blocks over them are, with the two blocks that the values lie in, so that the depth is 2 there too.
    table.append(*cut(np.random.default_rng(1).integers(0, ROWS, 2_000), 20))
    assert chosen(table.run(aims(table))) == [1, 200, *range(650, 670)]
    assert table.depths().average_depth <= 2
    assert table.run(aims(table)).tasks == ()


@pytest.mark.parametrize("part", [1.0, 0.1])
@pytest.mark.parametrize("shape", ["zipf", "five values", "one value", "two hot values"])
def test_skewed_keys_get_into_order(shape: str, part: float) -> None:
    """However many rows a value has: it ends with an average depth of 2 at most, after writing the table twice."""
    rng = np.random.default_rng(8)
    rows = {
        "zipf": rng.zipf(1.2, ROWS) % 5_000,
        "five values": rng.integers(0, 5, ROWS),
        "one value": np.full(ROWS, 3),
        "two hot values": np.where(rng.random(ROWS) < 0.9, rng.integers(7, 9, ROWS), rng.integers(0, 1_000, ROWS)),
    }[shape]
    table = ClusteredTable(cut(rows, ROWS // BLOCK))
    found = table.until_done(aims(table, part), 40)
    assert table.depths().average_depth <= 2
    assert found.amplification <= 2.2


def test_blocks_of_very_different_sizes() -> None:
    """From one row to a tenth of the table: they converge, and blocks that are too large are cut."""
    rng = np.random.default_rng(9)
    edges = np.cumsum(rng.pareto(1.2, 700) * 30 + 1).astype(int)
    rows = rng.permutation(ROWS)
    table = ClusteredTable([block for block in np.split(rows, edges[edges < ROWS]) if len(block)])
    assert table.sizes.rows.max() > 20 * BLOCK
    found = table.until_done(aims(table, 0.4), 40)
    assert table.depths().average_depth <= 2.1
    assert table.sizes.rows.max() <= 1.5 * BLOCK
    assert found.amplification < 2.5


def test_a_frequent_value_at_an_end_makes_no_block_sparse() -> None:
    """Few values have most rows, so that sorted blocks begin or end with one of them. Appends over everything overlap
    these blocks, but do not lie between their ends: as with any other sorted table, only the appends are rewritten.
    """
    rng = np.random.default_rng(1)
    rows = np.minimum(rng.zipf(1.3, 2 * ROWS), 10_000_000)
    table = ClusteredTable(cut(np.sort(rows[:ROWS]), ROWS // BLOCK))
    base = len(table)
    table.append(*[np.sort(some) for some in cut(rows[ROWS : ROWS + 10 * ROWS // 200], 10)])
    lies = table.extents()
    assert isinstance(lies, Intervals)
    spans = mass_of(lies, table.sizes.rows).spans(lies)
    wide = (spans.width[:base] > 0.05) & ~lies.is_constant[:base]
    assert wide.sum() >= 2, "blocks that end with a frequent value"
    before = health(lies, table.sizes, shares=(0.001,)).look_ups[0]
    found = table.run(aims(table))
    assert chosen(found) == list(range(base, base + 10))
    after = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[0]
    assert before.blocks > 1.2 * before.ideal_blocks
    assert after.blocks < 1.1 * after.ideal_blocks


def test_one_block_that_is_far_too_large_is_sorted_into_pieces() -> None:
    """Over a table in order, two of them: also a task of a single block makes sense."""
    rng = np.random.default_rng(3)
    table = ordered()
    table.append(rng.integers(0, ROWS, 3_000), rng.integers(0, ROWS, 4_000))
    one_at_a_time = Aims(max_bytes=4_000 * BYTES_PER_ROW, target=table.target)
    assert [len(task.blocks) for task in table.run(one_at_a_time).tasks] == [1]


def test_what_is_larger_than_a_run_is_said() -> None:
    """Blocks that one run may not rewrite are left, and the reason says so."""
    table = ordered()
    table.append(*cut(np.random.default_rng(3).integers(0, ROWS, 9_000), 3))
    found = select(table.extents(), table.sizes, Aims(max_bytes=2_000 * BYTES_PER_ROW, target=table.target))
    assert found.tasks == ()
    assert found.reason == "each set of overlapping blocks exceeds max_bytes"


def test_only_allowed_blocks_are_chosen() -> None:
    """With a condition: blocks that the caller rules out stay, whatever lies over them."""
    rng = np.random.default_rng(2)
    table = ClusteredTable(cut(rng.permutation(ROWS), ROWS // BLOCK))
    allowed = rng.random(len(table)) < 0.4
    found = select(table.extents(), table.sizes, aims(table), allowed=allowed)
    assert chosen(found) == np.flatnonzero(allowed).tolist()
    for _ in range(3):
        runs = table.run(aims(table), allowed=allowed)
        allowed = np.concatenate([np.zeros(len(table) - 160, dtype=bool), np.ones(160, dtype=bool)])
    assert runs.tasks == ()


@pytest.mark.parametrize("round_to", [ROWS // 3, 2 * ROWS])
@pytest.mark.parametrize("part", [1.0, 0.1])
def test_bounds_that_say_nothing_are_given_up(round_to: int, part: float) -> None:
    """Texts that begin alike have cut bounds, and sorted blocks look as wide as before: each is tried once, and then
    settled.
    """
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), ROWS // BLOCK), round_to=round_to)
    found = table.until_done(aims(table, part), 12)
    assert found.amplification == pytest.approx(1.0)
    assert (table.sizes.level == UNIMPROVABLE_LEVEL).sum() > 0.9 * len(table)
    # New blocks over them are put into order among themselves.
    unimprovable_blocks = len(table)
    table.append(*cut(np.arange(200), 5))
    assert all(block >= unimprovable_blocks for block in chosen(table.run(aims(table))))


def test_blocks_without_bounds_are_rewritten() -> None:
    """They lie over everything, so they are the first to be chosen; alone they may stay."""
    table = ordered()
    known = table.extents()
    assert isinstance(known, Intervals)
    for count in (1, 2):
        wide = np.arange(len(table)) < count
        first, last = np.where(wide, 0, known.first), np.where(wide, known.count - 1, known.last)
        found = select(Intervals(first, last, known.count, wide), table.sizes, aims(table))
        assert chosen(found) == ([] if count == 1 else [0, 1])


def test_gains_are_what_they_are_said_to_be() -> None:
    """What look-ups of 0.1 % read less afterwards is what was expected before, within a fifth."""
    rng = np.random.default_rng(12)
    table = ordered()
    table.append(*[rng.integers(0, ROWS, 200) for _ in range(10)])
    table.append(*cut(np.sort(rng.integers(10_000, 12_000, 3_000)), 3), *cut(rng.integers(10_000, 12_000, 3_000), 10))
    found = select(table.extents(), table.sizes, aims(table, 0.04))
    before = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[0]
    table.rewrite(found.tasks)
    after = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[0]
    assert before.blocks - after.blocks == pytest.approx(sum(task.blocks_saved for task in found.tasks), rel=0.2)
    assert before.size_bytes - after.size_bytes == pytest.approx(sum(t.bytes_saved for t in found.tasks), rel=0.2)


def test_what_gains_too_little_is_not_done() -> None:
    """A run is made only when it saves look-ups enough for the part of the table that it rewrites."""
    rng = np.random.default_rng(12)
    table = ordered()
    table.append(*[rng.integers(0, ROWS, 200) for _ in range(10)])
    (task,) = select(table.extents(), table.sizes, aims(table)).tasks
    everything = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[0]
    saved = max(task.blocks_saved / everything.blocks, task.bytes_saved / everything.size_bytes)
    assert task.gain == pytest.approx(saved / (task.size_bytes / table.size_bytes), rel=1e-6)
    assert select(table.extents(), table.sizes, aims(table, min_gain=task.gain * 0.99)).tasks
    found = select(table.extents(), table.sizes, aims(table, min_gain=task.gain * 1.01))
    assert (found.tasks, found.reason) == ((), "sorting would gain too little")


def test_the_worst_comes_first() -> None:
    """Two places are too deep: what gains more for a byte is done when there is not room for both."""
    rng = np.random.default_rng(4)
    table = ordered()
    table.append(*cut(rng.integers(1_000, 5_000, 1_000), 10), *cut(rng.integers(20_000, 24_000, 1_000), 40))
    found = select(table.extents(), table.sizes, Aims(max_bytes=1_200 * BYTES_PER_ROW, target=table.target))
    assert chosen(found)[-1] >= 430
    gains = [task.gain for task in select(table.extents(), table.sizes, aims(table)).tasks]
    assert len(gains) == 2
    assert gains == sorted(gains, reverse=True)


def test_tasks_lie_apart() -> None:
    """No two tasks of a run have a part of the key's range in common, so what they write does not overlap."""
    rng = np.random.default_rng(4)
    table = ordered()
    for start in (0, 9_000, 20_000, 33_000):
        table.append(*cut(rng.integers(start, start + 4_000, 2_000), 20))
    found = select(table.extents(), table.sizes, aims(table))
    lies = table.extents()
    assert isinstance(lies, Intervals)
    ends = sorted((int(lies.low[task.blocks].min()), int(lies.high[task.blocks].max())) for task in found.tasks)
    assert len(ends) == 4
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ends))
    assert all((np.diff(lies.low[task.blocks]) >= 0).all() for task in found.tasks)


def test_levels_count_rewrites() -> None:
    """What comes out is one level above the highest that went in, and below the level of settled blocks."""
    rng = np.random.default_rng(4)
    table = ClusteredTable([rng.integers(0, 99, BLOCK) for _ in range(6)])
    for levels, wanted in (([NOT_WRITTEN] * 6, 1), ([0] * 6, 1), ([NOT_WRITTEN, 3, 1, 0, 2, 1], 4), ([31] * 6, 31)):
        sizes = Sizes(table.sizes.rows, table.sizes.size_bytes, np.array(levels))
        assert [task.level for task in select(table.extents(), sizes, aims(table)).tasks] == [wanted]
    sizes = Sizes(table.sizes.rows, table.sizes.size_bytes, np.full(6, UNIMPROVABLE_LEVEL))
    assert select(table.extents(), sizes, aims(table)).tasks == ()


def test_of_equal_blocks_those_rewritten_less_often_go_first() -> None:
    """Where there is not room for all."""
    table = ClusteredTable([np.array([0, 9])] * 10)
    levels = np.array([5, 0, 5, 0, 5, 0, 5, 0, 5, 0])
    sizes = Sizes(table.sizes.rows, table.sizes.size_bytes, levels)
    found = select(table.extents(), sizes, Aims(max_bytes=5 * 2 * BYTES_PER_ROW, target=table.target))
    assert chosen(found) == [1, 3, 5, 7, 9]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "max_written"), [(2, 45.0), (4, 14.0), (8, 6.0)])
def test_what_endless_appends_cost(target: int, max_written: float) -> None:
    """A hundred appends over all of the table, each followed by a run: the fewer layers are wanted, the more is written
    for each row that arrives, and it is never the whole table each time.
    """
    rng = np.random.default_rng(7)
    table = ordered(5_000)
    written = 0
    for _ in range(100):
        table.append(*cut(np.sort(rng.integers(0, 5_000, 200)), 2))
        written += sum(task.rows for task in table.run(aims(table, target_depth=target)).tasks)
        assert table.depths().average_depth <= target
    assert written / 20_000 < max_written


def test_the_same_table_gives_the_same_tasks() -> None:
    """Nothing is left to chance."""
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), ROWS // BLOCK))
    runs = [select(table.extents(), table.sizes, aims(table, 0.1)) for _ in range(2)]
    assert [task.blocks.tolist() for task in runs[0].tasks] == [task.blocks.tolist() for task in runs[1].tasks]


def test_tables_without_rows_need_nothing() -> None:
    """No blocks, or empty ones."""
    for count in (0, 3):
        zeros = np.zeros(count, dtype=np.int64)
        found = select(extents("linear", [nothing_known(count)]), Sizes(zeros, zeros, zeros), Aims())
        assert (found.tasks, found.reason) == ((), "the table has no rows")
    with pytest.raises(ValueError, match="same blocks"):
        select(extents("linear", [nothing_known(1)]), Sizes(zeros, zeros, zeros), Aims())


@st.composite
def layouts(draw: st.DrawFn) -> tuple[ClusteredTable, float, int]:
    """Tables of one or two columns, from sorted to random, of few or many values, in blocks of any size."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(50, 3_000))
    columns = draw(st.integers(1, 2))
    values = np.column_stack(
        [rng.integers(0, draw(st.sampled_from([2, 10, 200, 10**6])), rows) for _ in range(columns)]
    )
    noise = draw(st.sampled_from([0.0, 0.01, 0.2, 10.0]))
    values = values[
        np.lexsort((*values.T[::-1][:-1], values[:, 0] + rng.normal(0, 1, rows) * noise * np.ptp(values[:, 0])))
    ]
    edges = np.unique(rng.integers(0, rows, draw(st.integers(1, 60))))
    blocks = [block for block in np.split(values, edges) if len(block)]
    table = ClusteredTable(
        blocks, block_rows=draw(st.sampled_from([20, 100])), round_to=draw(st.sampled_from([1, 1, 1, 7]))
    )
    return table, draw(st.sampled_from([1.0, 0.5, 0.2])), draw(st.integers(1, 4))


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_it_always_stops(case: tuple[ClusteredTable, float, int]) -> None:
    """Whatever the layout: runs stop, no row is lost, and once nothing is selected on a table that any run may rewrite
    whole, blocks are on average no deeper than the target, and nowhere deeper than twice that.
    """
    table, part, target = case
    rows = np.sort(np.concatenate([block.rows for block in table.blocks]), axis=0).tolist()
    found = table.until_done(aims(table, part, target_depth=target, min_gain=0.0), 300)
    assert np.sort(np.concatenate([block.rows for block in table.blocks]), axis=0).tolist() == rows
    assert found.amplification <= 4 / part
    if part == 1.0 and table.round_to == 1:
        # A block of one value under another block is all that cannot be taken apart.
        assert table.depths().average_depth <= max(target, 2)
        assert table.depths().max_depth <= 2 * max(target, 2)


def test_the_expected_reads_of_a_sorted_run_never_grow() -> None:
    """From run to run, what look-ups read goes down."""
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), ROWS // BLOCK))
    last = np.inf
    for _ in range(20):
        if not table.run(aims(table, 0.1)).tasks:
            break
        lies = table.extents()
        assert isinstance(lies, Intervals)
        reads = float(mass_of(lies, table.sizes.rows).spans(lies).read_by(0.001).sum())
        assert reads < last + 0.5
        last = reads
