"""What is compacted, tried on real rows: blocks get fewer, stay sharp, and it stops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.cluster.compaction import Limits, Packing, pack
from lamella.snapshot.cluster.extent import UNIMPROVABLE_LEVEL, BlockTarget, Intervals, Sizes, mass_of
from lamella.snapshot.cluster.health import LookUp, health
from lamella.snapshot.cluster.selection import Aims
from support.clustered import BYTES_PER_ROW, ClusteredTable, cut

BLOCK = 100
ROWS = 40_000


def packing(table: ClusteredTable, limits: Limits = Limits(), *, by_key: bool = True) -> Packing:  # noqa: B008  # a value
    """The bins of a run."""
    return pack(table.extents() if by_key else None, table.sizes, table.target, limits)


def until_done(table: ClusteredTable, limits: Limits = Limits(), *, by_key: bool = True, max_runs: int = 200) -> int:  # noqa: B008
    """Runs until one has no bins; returns the rows that were rewritten."""
    written = 0
    for _ in range(max_runs):
        found = packing(table, limits, by_key=by_key)
        if not found.bins:
            return written
        before = len(table)
        large = int(table.target.is_large(table.sizes).sum())
        table.pack(found.bins)
        written += sum(each.rows for each in found.bins)
        merged = sum(len(each.blocks) - 1 for each in found.bins if len(each.blocks) > 1)
        split = sum(each.pieces - 1 for each in found.bins if len(each.blocks) == 1)
        assert len(table) == before - merged + split
        assert merged or int(table.target.is_large(table.sizes).sum()) < large
    raise AssertionError(f"not done after {max_runs} runs")


def look_up(table: ClusteredTable) -> LookUp:
    """What a look-up of 0.1 % reads."""
    return health(table.extents(), table.sizes, table.target, shares=(0.001,)).look_ups[0]


def ordered() -> ClusteredTable:
    """A table in order, in blocks of the target size."""
    return ClusteredTable(cut(np.arange(ROWS), ROWS // BLOCK))


def test_small_blocks_in_order_become_full_ones_in_order() -> None:
    """Ten thousand tiny blocks of a sorted table become as many as there should be, none over another, at once."""
    table = ClusteredTable(cut(np.arange(ROWS), 8_000))
    assert until_done(table) == ROWS
    assert len(table) == ROWS // BLOCK
    assert table.depths().max_depth == 1
    assert table.target.is_perfect(table.sizes).all()


@pytest.mark.parametrize("by_key", [True, False])
def test_small_blocks_in_no_order_become_full_ones(by_key: bool) -> None:
    """Where every block lies over every other, sharpness is not in the way; nor is it without a key."""
    table = ClusteredTable(cut(np.random.default_rng(1).permutation(ROWS), 8_000))
    assert until_done(table, by_key=by_key) < 1.1 * ROWS
    assert len(table) <= ROWS // BLOCK + 2


def test_without_a_key_neighbours_are_those_that_stand_together() -> None:
    """Blocks keep the order that they came in."""
    table = ClusteredTable([np.arange(at, at + size) for at, size in enumerate([30, 30, 100, 30, 20, 30])])
    found = packing(table, by_key=False).bins
    assert [each.blocks.tolist() for each in found] == [[0, 1, 3], [4, 5]]
    assert (found[0].rows, found[0].size_bytes, found[0].pieces) == (90, 90 * BYTES_PER_ROW, 1)


def test_the_two_ends_of_the_key_stay_apart() -> None:
    """Two small blocks of a table in order, one at each end, would make one that lies over everything."""
    table = ordered()
    table.append(np.arange(30), np.arange(ROWS - 30, ROWS))
    assert packing(table).bins == ()
    assert packing(table).reason == "no small blocks are adjacent"
    table.append(np.arange(200, 230), np.arange(ROWS - 330, ROWS - 300))
    assert sorted(each.blocks.tolist() for each in packing(table).bins) == [[400, 402], [403, 401]]


def test_wide_blocks_and_narrow_ones_stay_apart() -> None:
    """Small appends over all of the table are put together, and those at one place, and not with each other."""
    rng = np.random.default_rng(2)
    table = ordered()
    table.append(
        *[rng.integers(0, ROWS, 10) for _ in range(9)], *[np.arange(20_000 + at, 20_010 + at) for at in range(9)]
    )
    assert sorted(sorted(each.blocks.tolist()) for each in packing(table).bins) == [
        list(range(400, 409)),
        list(range(409, 418)),
    ]


@pytest.mark.parametrize("shape", ["narrow", "one value each", "wide", "halves", "half of them"])
def test_compaction_keeps_look_ups_sharp(shape: str) -> None:
    """Hundreds of small blocks anywhere: afterwards a look-up reads hardly more bytes and no more blocks."""
    rng = np.random.default_rng(3)
    table = ordered()
    start = rng.integers(0, ROWS - 200, 400)
    if shape == "half of them":
        table = ClusteredTable(cut(np.arange(ROWS), ROWS // BLOCK // 2) + cut(np.arange(ROWS), 4_000))
    else:
        table.append(
            *{
                "narrow": [np.sort(rng.integers(at, at + 100, 5)) for at in start],
                "one value each": [np.full(5, at) for at in start],
                "wide": [rng.integers(0, ROWS, 5) for _ in start],
                "halves": [rng.integers(0, ROWS // 2, 5) + (at % 2) * ROWS // 2 for at in start],
            }[shape]
        )
    before, small = look_up(table), int(table.target.is_small(table.sizes).sum())
    depth = table.depths().average_depth
    until_done(table)
    after = look_up(table)
    assert int(table.target.is_small(table.sizes).sum()) < 0.12 * small
    assert after.blocks < before.blocks + 0.5
    assert after.size_bytes < 1.3 * before.size_bytes + BLOCK * BYTES_PER_ROW
    assert table.depths().average_depth < depth + 0.5


def test_large_blocks_are_split() -> None:
    """Above twice the target, into pieces that are not touched again; a bin of one block is never anything else."""
    table = ClusteredTable([np.arange(1_234), np.arange(200), np.arange(201), np.arange(95)])
    found = packing(table)
    assert {int(each.blocks[0]): each.pieces for each in found.bins} == {0: 12, 2: 2}
    table.pack(found.bins)
    assert table.target.is_perfect(table.sizes).all()
    assert packing(table).bins == ()
    assert packing(table).reason == "no block is small or too large"


@pytest.mark.slow
def test_a_block_is_not_written_again_for_a_few_rows() -> None:
    """A table that gets five rows at a time: each row is rewritten a few times, not with every append."""
    for width in (20, ROWS):
        rng = np.random.default_rng(4)
        table = ordered()
        written = 0
        for batch in range(400):
            start = ROWS + 5 * batch if width < ROWS else 0
            table.append(np.sort(rng.integers(start, start + width, 5)))
            found = packing(table)
            table.pack(found.bins)
            written += sum(each.rows for each in found.bins)
        assert written < 5 * 2_000
        assert len(table) < ROWS // BLOCK + 40


def test_a_medium_block_is_filled_up() -> None:
    """One of 40 % to 80 % may be in a bin, when it becomes full by that; two are not put together."""
    table = ClusteredTable([np.arange(60), np.arange(30)])
    assert [sorted(each.blocks.tolist()) for each in packing(table).bins] == [[0, 1]]
    assert packing(ClusteredTable([np.arange(60), np.arange(10)])).bins == ()
    assert packing(ClusteredTable([np.arange(50), np.arange(50)])).bins == ()


@pytest.mark.slow
def test_a_run_keeps_its_limits() -> None:
    """Bytes and blocks; what saves most blocks for a byte goes first; what is left is said; and later runs do it."""
    table = ClusteredTable(cut(np.arange(ROWS), 2_000) + cut(np.arange(ROWS, 2 * ROWS), 4_000))
    limits = Limits(max_bytes=1_000 * BYTES_PER_ROW, max_blocks=150)
    found = packing(table, limits)
    assert sum(each.size_bytes for each in found.bins) <= limits.max_bytes
    assert sum(len(each.blocks) for each in found.bins) <= limits.max_blocks
    assert all(int(each.blocks.min()) >= 2_000 for each in found.bins)
    assert found.reason == "the limit max_bytes or max_blocks is reached"
    assert found.remaining_blocks == 6_000 - sum(len(each.blocks) for each in found.bins)
    until_done(table, limits)
    assert len(table) == 2 * ROWS // BLOCK
    tiny = packing(ClusteredTable([np.arange(20), np.arange(20)]), Limits(max_bytes=30 * BYTES_PER_ROW))
    assert tiny.bins == ()
    large = packing(ClusteredTable([np.arange(900)]), Limits(max_bytes=300 * BYTES_PER_ROW))
    assert (large.bins, large.reason) == ((), "each bin exceeds max_bytes or max_blocks")


def test_bytes_fill_a_block_too() -> None:
    """A block is as full as it is of rows or of bytes, whichever is more."""
    target = BlockTarget(rows=1_000_000, size_bytes=128 << 20)
    rows = np.full(10, 1_000)
    level = np.zeros(10, dtype=np.int64)
    found = pack(None, Sizes(rows, np.full(10, 32 << 20), level), target)
    assert [len(each.blocks) for each in found.bins] == [4, 4, 2]
    assert pack(None, Sizes(rows, np.full(10, 60 << 20), level), target).bins == ()


@pytest.mark.parametrize(
    ("levels", "wanted"),
    [
        ([-1, -1], 0),
        ([-1, 3], 3),
        ([2, UNIMPROVABLE_LEVEL], 2),
        ([-1, UNIMPROVABLE_LEVEL], 0),
        ([UNIMPROVABLE_LEVEL] * 2, UNIMPROVABLE_LEVEL),
    ],
)
def test_levels_go_on(levels: list[int], wanted: int) -> None:
    """What comes out has the level of what went in, and is settled only when all of that was."""
    rows = np.full(2, 10)
    (one,) = pack(None, Sizes(rows, rows, np.array(levels)), BlockTarget(rows=100)).bins
    assert one.level == wanted


def test_only_allowed_blocks_are_packed() -> None:
    """And the arguments have to be of the same blocks."""
    table = ClusteredTable(cut(np.arange(1_000), 100))
    allowed = np.arange(100) < 40
    found = pack(table.extents(), table.sizes, table.target, allowed=allowed)
    assert sorted(int(block) for each in found.bins for block in each.blocks) == list(range(40))
    with pytest.raises(ValueError, match="same blocks"):
        pack(table.extents(), table.sizes.take(allowed), table.target)


def test_blocks_along_a_curve_are_packed_with_their_neighbours() -> None:
    """Small boxes all over a square: those near each other become one, which lies over little more."""
    rng = np.random.default_rng(5)
    table = ClusteredTable(cut(rng.integers(0, 1 << 20, (ROWS, 2)), ROWS // BLOCK), kind="hilbert")
    table.run(Aims(max_bytes=1 << 60, target=table.target))
    corners = rng.integers(0, (1 << 20) - 30_000, (600, 2))
    table.append(*[corner + rng.integers(0, 30_000, (5, 2)) for corner in corners])
    before = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[-1]
    until_done(table)
    after = health(table.extents(), table.sizes, shares=(0.001,)).look_ups[-1]
    assert int(table.target.is_small(table.sizes).sum()) < 60
    assert after.blocks < before.blocks
    assert after.size_bytes < 1.35 * before.size_bytes


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 400), min_size=1, max_size=80),
    st.sampled_from([0.0, 0.02, 1.0]),
    st.sampled_from([3, 50, 10**6]),
    st.booleans(),
    st.sampled_from([10**9, 300, 120]),
    st.sampled_from([10**9, 7, 2]),
)
def test_it_always_stops(
    seed: int, sizes: list[int], noise: float, values: int, by_key: bool, max_rows: int, max_blocks: int
) -> None:
    """Whatever blocks there are and however little a run may do: each bin saves blocks or splits a large one, none
    makes a block that has to be split, no row is lost, and it ends.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, values, sum(sizes)))
    rows = rows[np.argsort(np.arange(len(rows)) + rng.normal(0, 1, len(rows)) * noise * len(rows))]
    table = ClusteredTable(list(np.split(rows, np.cumsum(sizes)[:-1])))
    limits = Limits(max_bytes=max_rows * BYTES_PER_ROW, max_blocks=max_blocks)
    first = packing(table, limits, by_key=by_key)
    assert [each.blocks.tolist() for each in first.bins] == [
        each.blocks.tolist() for each in packing(table, limits, by_key=by_key).bins
    ]
    before = table.sizes.rows.max()
    until_done(table, limits, by_key=by_key)
    assert table.sizes.rows.max() <= max(before, 120)
    left = np.concatenate([block.rows[:, 0] for block in table.blocks])
    assert np.sort(left).tolist() == np.sort(rows).tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(30, 300), st.sampled_from([0.001, 0.02, 0.3, 1.0]))
def test_rows_lie_in_hardly_more_blocks_than_before(seed: int, count: int, width: float) -> None:
    """Small blocks of any width over a table in order: each bin lies over at most a quarter more than all of its
    blocks, or over as much as eight blocks of the target size hold.
    """
    rng = np.random.default_rng(seed)
    table = ordered()
    span = int(width * ROWS)
    table.append(*[rng.integers(at, at + span + 1, 3) for at in rng.integers(0, ROWS - span + 1, count)])
    before = table.extents()
    found = packing(table)
    assert isinstance(before, Intervals)
    spans = mass_of(before, table.sizes.rows).spans(before)
    for each in found.bins:
        hull = spans.stop[each.blocks].max() - spans.start[each.blocks].min()
        assert hull <= max(1.25 * spans.width[each.blocks].sum(), 8 * BLOCK / table.sizes.rows.sum()) * 1.001
