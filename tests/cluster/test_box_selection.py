"""What is reclustered along z-order and Hilbert curves, tried on real rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.curve import CurveKind
from lamella.snapshot.cluster.extent import UNIMPROVABLE_LEVEL, Boxes
from lamella.snapshot.cluster.selection import Aims, Selection, select
from support.clustered import ClusteredTable, cut

BLOCK = 100
ROWS = 40_000
KINDS: tuple[CurveKind, ...] = ("zorder", "hilbert")


def aims(table: ClusteredTable, part: float = 1.0, **more: Any) -> Aims:
    """Runs that may rewrite a part of the table."""
    max_bytes = int(part * table.size_bytes) if part < 1 else 1 << 60
    return Aims(max_bytes=max_bytes, target=table.target, **more)


def random_table(kind: CurveKind, columns: int, seed: int = 1) -> ClusteredTable:
    """Rows in no order."""
    rows = np.random.default_rng(seed).integers(0, 1 << 20, (ROWS, columns))
    return ClusteredTable(cut(rows, ROWS // BLOCK), kind=kind)


def depth_of_rows(table: ClusteredTable) -> float:
    """How many blocks' boxes a row lies in, on average: what a look-up of it reads."""
    rows = np.concatenate([block.rows for block in table.blocks])
    sample = rows[np.random.default_rng(0).integers(0, len(rows), 400)]
    low = np.stack([block.rows.min(axis=0) for block in table.blocks])
    high = np.stack([block.rows.max(axis=0) for block in table.blocks])
    return float(((sample[:, None] >= low) & (sample[:, None] <= high)).all(axis=2).sum(axis=1).mean())


def chosen(found: Selection) -> list[int]:
    """The blocks of all tasks."""
    return sorted(int(block) for task in found.tasks for block in task.blocks)


@pytest.mark.slow
@pytest.mark.parametrize("part", [1.0, 0.3, 0.1])
@pytest.mark.parametrize(
    ("kind", "columns", "depth"), [("zorder", 2, 5.5), ("zorder", 3, 9.0), ("hilbert", 2, 3.5), ("hilbert", 3, 4.5)]
)
@pytest.mark.few(3)
def test_a_table_in_no_order_gets_into_order(kind: CurveKind, columns: int, depth: float, part: float) -> None:
    """Rows that lay in nearly every block end in a few, and the table is written some two times; in one run, if it may,
    they end as deep as sorting along the curve makes them.
    """
    table = random_table(kind, columns)
    assert depth_of_rows(table) > 350
    found = table.until_done(aims(table, part), 30)
    assert depth_of_rows(table) < (depth if part < 1 else {"zorder": 3.0 if columns == 2 else 4.2}.get(kind, 1.9))
    assert found.amplification <= (2.5 if part < 1 else 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [2, 3])
def test_ten_wide_appends_are_put_together(kind: CurveKind, columns: int) -> None:
    """After ten appends of 0.5 % each over all of a table in order, one run rewrites mostly those, and rows lie at most
    twice as deep as in order, and one deeper.
    """
    table = random_table(kind, columns)
    table.run(aims(table))
    before, base = depth_of_rows(table), len(table)
    rng = np.random.default_rng(2)
    for _ in range(10):
        table.append(*cut(rng.integers(0, 1 << 20, (ROWS // 200, columns)), 4))
    assert depth_of_rows(table) > 30
    found = table.run(aims(table))
    assert set(range(base, base + 40)) <= set(chosen(found))
    assert sum(task.size_bytes for task in found.tasks) < 0.25 * table.size_bytes
    assert depth_of_rows(table) < 2 * before + 1
    assert table.run(aims(table)).tasks == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_in_order_is_left_alone(kind: CurveKind) -> None:
    """Boxes along a curve overlap, and nothing can be done about it."""
    for columns in (2, 3, 4):
        table = random_table(kind, columns)
        table.run(aims(table))
        assert table.run(aims(table)).tasks == ()
    few = ClusteredTable([np.array([[0, 0], [9, 9]]), np.array([[10, 10], [19, 19]])], kind=kind)
    assert select(few.extents(), few.sizes, aims(few)).reason == "no blocks that may be sorted overlap too much"


@pytest.mark.parametrize("kind", KINDS)
def test_appends_beside_the_others_are_left_alone(kind: CurveKind) -> None:
    """New rows with greater values in one column lie over nothing."""
    table = random_table(kind, 2)
    table.run(aims(table))
    rng = np.random.default_rng(3)
    for batch in range(1, 6):
        table.append(np.column_stack([rng.integers(0, 1 << 20, 300) + (batch << 20), rng.integers(0, 1 << 20, 300)]))
        assert table.run(aims(table)).tasks == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_go_together_and_columns_of_few_values(kind: CurveKind) -> None:
    """What is known of columns one by one is misleading then: it converges all the same."""
    rng = np.random.default_rng(4)
    x = rng.normal(0, 1e6, ROWS)
    shapes = {
        "correlated": np.column_stack([x, x + rng.normal(0, 1e5, ROWS)]),
        "few by many": np.column_stack([rng.integers(0, 3, ROWS), rng.integers(0, 1 << 20, ROWS)]),
        "zipf": np.column_stack([rng.zipf(1.3, ROWS) % 1000, rng.zipf(1.5, ROWS) % 1000]),
    }
    for name, rows in shapes.items():
        best = ClusteredTable(cut(rows.astype(np.int64), ROWS // BLOCK), kind=kind)
        best.run(aims(best))
        table = ClusteredTable(cut(rows.astype(np.int64), ROWS // BLOCK), kind=kind)
        found = table.until_done(aims(table, 0.2), 30)
        assert found.amplification <= 2.5, name
        assert depth_of_rows(table) < 2.5 * depth_of_rows(best) + 6, name


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_a_hot_key_are_never_chosen(kind: CurveKind) -> None:
    """Blocks of one value in every column stay, under whatever."""
    table = random_table(kind, 2)
    table.run(aims(table))
    base = len(table)
    table.append(*[np.full((BLOCK, 2), 500_000) for _ in range(200)])
    assert table.run(aims(table)).tasks == ()
    table.append(*cut(np.random.default_rng(1).integers(0, 1 << 20, (2_000, 2)), 20))
    found = chosen(table.run(aims(table)))
    assert not set(range(base, base + 200)) & set(found)
    assert set(range(base + 200, base + 220)) <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_that_say_nothing_are_given_up(kind: CurveKind) -> None:
    """Bounds so coarse that sorted blocks look as before: after they were tried, they are settled."""
    rows = np.random.default_rng(1).integers(0, 1 << 20, (ROWS, 2))
    for round_to in (1 << 19, 1 << 21):
        table = ClusteredTable(cut(rows, ROWS // BLOCK), kind=kind, round_to=round_to)
        found = table.until_done(aims(table, 0.25), 20)
        assert found.amplification <= 2.5
        assert (table.sizes.level == UNIMPROVABLE_LEVEL).any()


def test_tasks_lie_apart() -> None:
    """Two tasks can be told apart by a column, so what they write does not overlap."""
    table = random_table("hilbert", 2)
    table.run(aims(table))
    rng = np.random.default_rng(4)
    for x, y in ((0, 0), (700_000, 100_000), (100_000, 700_000)):
        table.append(*cut(np.column_stack([rng.integers(x, x + 200_000, 800), rng.integers(y, y + 200_000, 800)]), 16))
    found = select(table.extents(), table.sizes, aims(table))
    lies = table.extents()
    assert isinstance(lies, Boxes)
    assert len(found.tasks) == 3
    ends = [
        [(side.low[task.blocks].min(), side.high[task.blocks].max()) for side in lies.sides] for task in found.tasks
    ]
    for at, left in enumerate(ends):
        for right in ends[:at]:
            assert any(a[1] < b[0] or b[1] < a[0] for a, b in zip(left, right, strict=True))


def test_the_same_table_gives_the_same_tasks() -> None:
    """A seed stands for all chance; only allowed blocks are chosen."""
    table = random_table("zorder", 2)
    allowed = np.arange(len(table)) % 3 == 0
    runs = [select(table.extents(), table.sizes, aims(table, 0.2), allowed=allowed, seed=3) for _ in range(2)]
    assert chosen(runs[0]) == chosen(runs[1])
    assert chosen(runs[0])
    assert all(block % 3 == 0 for block in chosen(runs[0]))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(KINDS),
    st.integers(2, 3),
    st.sampled_from([2, 20, 10**6]),
    st.integers(2, 50),
    st.sampled_from([1.0, 0.3]),
    st.sampled_from([1, 1, 9]),
)
def test_it_always_stops(
    seed: int, kind: CurveKind, columns: int, values: int, blocks: int, part: float, round_to: int
) -> None:
    """Whatever the layout: runs stop, and no row is lost."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, values, (rng.integers(blocks, 2_000), columns))
    rows[:, 0] += rng.integers(0, 2) * rows[:, 1]
    edges = np.unique(rng.integers(1, len(rows), blocks))
    table = ClusteredTable(list(np.split(rows, edges)), kind=kind, block_rows=50, round_to=round_to)
    found = table.until_done(aims(table, part, min_gain=0.0), 100)
    assert found.amplification <= 6 / part
    left = np.concatenate([block.rows for block in table.blocks])
    assert left[np.lexsort(left.T)].tolist() == rows[np.lexsort(rows.T)].tolist()
