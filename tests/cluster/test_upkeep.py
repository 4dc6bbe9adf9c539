"""Appends, compaction and reclustering by turns: they do not undo each other's work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.compaction import pack
from lamella.snapshot.cluster.health import health
from lamella.snapshot.cluster.selection import Aims, select
from support.clustered import ClusteredTable, cut

ROWS = 20_000
BLOCK = 100


def maintain(table: ClusteredTable, max_turns: int = 40) -> int:
    """Compact and recluster by turns until neither has anything to do; returns the rows that were rewritten."""
    aims = Aims(max_bytes=1 << 60, target=table.target)
    written = 0
    for _ in range(max_turns):
        bins = pack(table.extents(), table.sizes, table.target).bins
        table.pack(bins)
        found = table.run(aims)
        written += sum(each.rows for each in bins) + sum(task.rows for task in found.tasks)
        if not bins and not found.tasks:
            return written
    raise AssertionError(f"not done after {max_turns} turns")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "hilbert", "zorder"])
def test_a_table_of_many_small_appends_is_maintained(kind: Any) -> None:
    """A hundred small appends in all sorts of places: look-ups end near the ideal, and blocks near their size."""
    rng = np.random.default_rng(5)
    columns = 1 if kind == "linear" else 2
    table = ClusteredTable(cut(rng.integers(0, ROWS, (ROWS, columns)), ROWS // BLOCK), kind=kind)
    written = maintain(table)
    for batch in range(100):
        width = int(rng.choice([50, 1_000, ROWS]))
        start = rng.integers(0, ROWS - width + 1, columns)
        table.append(*cut(start + rng.integers(0, width, (60, columns)), int(rng.integers(1, 4))))
        if batch % 10 == 9:
            written += maintain(table)
    found = health(table.extents(), table.sizes, table.target, shares=(0.01,))
    one = found.look_ups[-1]
    assert found.small_blocks < 25
    assert one.blocks < 2.2 * one.ideal_blocks + 1
    assert written < 12 * ROWS


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["linear", "linear", "hilbert"]),
    st.sampled_from([5, 300, 10**6]),
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 6), st.sampled_from([0.001, 0.1, 1.0])), max_size=8),
)
def test_upkeep_always_ends(seed: int, kind: Any, values: int, appends: list[tuple[int, int, float]]) -> None:
    """Whatever is appended: compaction and reclustering together come to an end, and no row is lost."""
    rng = np.random.default_rng(seed)
    columns = 1 if kind == "linear" else 2
    table = ClusteredTable(cut(rng.integers(0, values, (1_000, columns)), 20), kind=kind)
    for rows, blocks, width in appends:
        low = rng.integers(0, values, columns)
        table.append(*cut(low + rng.integers(0, max(1, int(width * values)), (rows, columns)), min(blocks, rows)))
    before = np.concatenate([block.rows for block in table.blocks])
    maintain(table)
    after = np.concatenate([block.rows for block in table.blocks])
    assert after[np.lexsort(after.T)].tolist() == before[np.lexsort(before.T)].tolist()


#: What twenty runs may write for each row that was appended, by target depth; the table doubles meanwhile.
MAX_WRITTEN = {2: 12.0, 3: 6.5, 4: 4.5, 8: 3.5}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(MAX_WRITTEN)),
    st.sampled_from(["all different", "few values", "skewed", "late"]),
    st.sampled_from([(25, 1), (25, 3), (50, 1), (10, 1)]),
    st.booleans(),
)
def test_two_hundred_appends_with_a_run_after_every_ten(
    seed: int, target_depth: int, values: str, sizes: tuple[int, int], is_sorted: bool
) -> None:
    """After each run blocks are on average no deeper than the target, and nowhere deeper than twice that; the runs
    together write so many rows for each one appended, never more; the same table gives the same tasks; and no row is
    lost.
    """
    rng = np.random.default_rng(seed)
    rows, blocks = sizes
    first = 200 * rows
    everything = _values(values, first + 200 * rows, rng)
    table = ClusteredTable(cut(np.sort(everything[:first]), first // 50), block_rows=50)
    aims = Aims(max_bytes=1 << 60, target=table.target, target_depth=target_depth)
    written = 0
    for append in range(200):
        new = everything[first + append * rows :][:rows]
        table.append(*cut(np.sort(new) if is_sorted else new, blocks))
        if append % 10 < 9:
            continue
        again = select(table.extents(), table.sizes, aims)
        found = table.run(aims)
        assert [task.blocks.tolist() for task in found.tasks] == [task.blocks.tolist() for task in again.tasks]
        written += sum(task.rows for task in found.tasks)
        depth = table.depths()
        assert depth.average_depth <= target_depth
        assert depth.max_depth <= 2 * target_depth
    assert written <= MAX_WRITTEN[target_depth] * 200 * rows
    assert np.sort(np.concatenate([block.rows[:, 0] for block in table.blocks])).tolist() == sorted(everything)


def _values(kind: str, count: int, rng: np.random.Generator) -> Any:
    """Keys in the order in which they arrive; "late": times that come up to a tenth of all rows late."""
    if kind == "all different":
        return rng.permutation(count)
    if kind == "few values":
        return rng.integers(0, 40, count)
    if kind == "skewed":
        return np.minimum(rng.zipf(1.3, count), 10_000_000)
    return np.argsort(np.arange(count) + rng.integers(0, count // 10, count))
