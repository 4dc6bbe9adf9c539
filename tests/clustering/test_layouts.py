"""Figures of layouts beside plain models: blocks in columns, depths by every pair, segments by every range."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot import commit as commits
from lamella.snapshot.cluster.extent import Intervals, extents
from lamella.snapshot.columnar import zones_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.expression.text import tree_of
from lamella.snapshot.manifest import Block, ClusterStats, SnapshotPointer
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.layouts import SHARE, LayoutScan, Where, key_of
from lamella.snapshot.wire import PruneRequest, RegroupRequest
from lamella.snapshot.workload.recorded_filters import Recorded, masked
from verify.test_random_tables import RandomTable

INT64 = parse_type("int64")
SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="int64")])


class Table:
    """Blocks that say where they lie, without files."""

    def __init__(self, name: str, *, segment_blocks: int = 8, cluster_key: tuple[str, ...] = ("a",)) -> None:
        shape = commits.Shape(segment_blocks=segment_blocks, fan_in=2, group_segments=4)
        self.warehouse = Warehouse(FsspecStore(), f"memory://layouts/{name}", shape=shape)
        self.pointer = self.warehouse.create("t", SCHEMA, cluster_key=cluster_key, now_ms=1)
        self.blocks: list[tuple[int, int]] = []

    def append(self, *ranges: tuple[int, int], rows: int = 100) -> None:
        """One commit of blocks from each low to each high of ``a``; ``b`` is the same, negated."""
        blocks = []
        for low, high in ranges:
            number = len(self.blocks)
            self.blocks.append((low, high))
            blocks.append(
                Block(
                    location=f"memory://b/{number:06}",
                    row_count=rows,
                    file_size=1 + number,
                    col_stats={1: _stats(low, high), 2: _stats(-high, -low)},
                    cluster_stats=ClusterStats(key_id=0, level=number % 5) if number % 3 else None,
                )
            )
        added = self.warehouse.prepare("t", SCHEMA, blocks)
        self.pointer = self.warehouse.commit(self.pointer, added=added, now_ms=2).pointer


def _stats(low: int, high: int) -> ColumnStats:
    return ColumnStats(min=to_bound(INT64, low), max=to_bound(INT64, high), null_count=0)


def scan_of(warehouse: Warehouse, pointer: SnapshotPointer) -> LayoutScan:
    """The blocks of a snapshot in columns."""
    finder = warehouse._finder
    return LayoutScan(finder._manifests, finder.layers(pointer))


@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 8))
@settings(max_examples=25)
def test_columns_say_what_manifests_say(seed: int, steps: int) -> None:
    """Of any life of a table, schema changes and all: sizes, keys of blocks, and the zone maps of every column."""
    with tempfile.TemporaryDirectory() as folder:
        table = RandomTable(seed, Path(folder))
        for _ in range(steps):
            table.step()
        head = table.warehouse.snapshot(table.pointer)
        refs = list(table.warehouse.segments(table.pointer))
        blocks = [block for ref in refs for block in table.warehouse.segment(ref).blocks]
        scan = scan_of(table.warehouse, table.pointer)
        assert len(scan) == len(blocks)
        assert scan.row_count.tolist() == [block.row_count for block in blocks]
        assert scan.file_size.tolist() == [block.file_size for block in blocks]
        assert scan.segment.tolist() == [n for n, ref in enumerate(refs) for _ in range(ref.summary.block_count)]
        assert [each.location for each in scan.identities(np.arange(len(blocks)))] == [b.location for b in blocks]
        seen = commits.seen_blocks(head, blocks)
        for leaf in head.schema.leaves():
            expected = zones_of(leaf.dtype, [(block.row_count, block.col_stats.get(leaf.id)) for block in seen])
            found = scan.zones(leaf)
            assert (found.flags & 0x3F).tolist() == (
                expected.flags & 0x3F
            ).tolist()  # of exactness zones_of says nothing
            if leaf.dtype.order is not None:
                one, other = extents("linear", [found]), extents("linear", [expected])
                assert isinstance(one, Intervals)
                assert isinstance(other, Intervals)
                assert (one.first.tolist(), one.last.tolist()) == (other.first.tolist(), other.last.tolist())


def test_levels_count_only_for_the_key_in_force() -> None:
    """Another key, or none, finds no block written for it."""
    table = Table("levels")
    table.append(*((10 * n, 10 * n + 5) for n in range(10)))
    written = [n % 5 if n % 3 else -1 for n in range(10)]
    assert scan_of(table.warehouse, table.pointer).sizes().level.tolist() == written
    table.pointer = table.warehouse.cluster(table.pointer, ["b"], now_ms=3).pointer
    assert set(scan_of(table.warehouse, table.pointer).sizes().level.tolist()) == {-1}
    assert table.warehouse.layouts.clustering(table.pointer).unclustered_blocks == 10


@pytest.mark.parametrize("seed", range(25))
def test_depths_and_overlaps_are_those_of_looking_at_every_pair(seed: int) -> None:
    """Of random blocks in random segments, and of those that a filter leaves."""
    rng = Random(seed)
    table = Table(f"pairs{seed}", segment_blocks=rng.choice([2, 5, 50]))
    for _ in range(rng.randint(1, 6)):
        lows = [rng.randint(0, 300) for _ in range(rng.randint(1, 10))]
        table.append(*((low, low + rng.choice([1, 5, 40])) for low in lows))
    upper = rng.randint(0, 340)
    for where, ranges in (
        (None, table.blocks),
        (f"a <= {upper}", [each for each in table.blocks if each[0] <= upper]),
    ):
        condition = None if where is None else Where(read_filter(where))
        found = table.warehouse.layouts.clustering(table.pointer, where=condition)
        assert (found.blocks, found.blocks_total) == (len(ranges), len(table.blocks))
        overlaps = [sum(_overlap(one, other) for other in ranges) - 1 for one in ranges]
        depths = [max((_at(position + 0.5, ranges) for position in range(one[0], one[1])), default=1) for one in ranges]
        if ranges:
            assert found.depth.average_overlaps == pytest.approx(np.mean(overlaps))
            assert found.depth.average_depth == pytest.approx(np.mean(depths))
            assert found.depth.max_depth == max(depths)
        assert sum(found.depth.histogram.values()) == len(ranges)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """What only touches does not overlap."""
    return max(one[0], other[0]) < min(one[1], other[1])


def _at(position: float, ranges: list[tuple[int, int]]) -> int:
    return sum(low < position < high for low, high in ranges)


@pytest.mark.parametrize("seed", range(12))
def test_segments_selected_are_those_that_ranges_meet(seed: int) -> None:
    """Of blocks that tile a line, in random segments: as many as ranges begun at every place meet, within a tenth."""
    rng = Random(seed)
    count = 60
    table = Table(f"kept{seed}", segment_blocks=10)
    positions = list(range(count))
    if rng.random() < 0.8:
        rng.shuffle(positions)
    for start in range(0, count, 10):
        table.append(*((1_000 * at, 1_000 * at + 999) for at in positions[start : start + 10]))
    found = table.warehouse.layouts.clustering(table.pointer)
    hulls = []
    for ref in table.warehouse.segments(table.pointer):
        of_blocks = [table.blocks[int(b.location.rpartition("/")[2])] for b in table.warehouse.segment(ref).blocks]
        hulls.append((min(low for low, _ in of_blocks), max(high for _, high in of_blocks)))
    width = SHARE * 1_000 * count
    begins = np.linspace(0, 1_000 * count - width, 2_000)
    expected = np.mean([sum(low <= at + width and at <= high for low, high in hulls) for at in begins.tolist()])
    assert found.segments_opened == pytest.approx(expected, rel=0.1)
    sampled = [int(at) for at in begins[::100].tolist()]
    counts = []
    for at in sampled:
        request = PruneRequest(filter=f"a BETWEEN {at} AND {at + width:.0f}", level="segment")
        counts.append(len(table.warehouse.prune(table.pointer, request).segments or ()))
    assert found.segments_opened == pytest.approx(np.mean(counts), rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "zorder", "hilbert"])
@pytest.mark.parametrize("seed", range(6))
def test_a_regrouping_keeps_every_block_and_gains_what_it_says(seed: int, kind: str) -> None:
    """Part after part until there is no more: the figures of the answer are those of the table afterwards."""
    rng = Random(seed)
    table = Table(f"regroup{kind}{seed}", segment_blocks=20, cluster_key=("a", "b") if kind != "linear" else ("a",))
    layouts, rearranging = table.warehouse.layouts, table.warehouse.rearranging
    lows = [10 * n for n in range(240)]
    rng.shuffle(lows)
    for start in range(0, 240, 20):
        table.append(*((low, low + rng.choice([9, 9, 9, 200])) for low in lows[start : start + 20]))
    table.pointer = table.warehouse.cluster(
        table.pointer,
        ["a"] if kind == "linear" else ["a", "b"],
        kind,  # type: ignore[arg-type]  # one of the kinds
        now_ms=3,
    ).pointer
    before = _all(table)
    first = layouts.clustering(table.pointer).segments_opened
    for _ in range(20):
        made = layouts.regroup(table.pointer, RegroupRequest(max_segments=rng.choice([4, 8])))
        assert made.before == pytest.approx(layouts.clustering(table.pointer).segments_opened)
        if not made.written:
            assert not made.plan.groups
            break
        result, done = rearranging.commit(table.pointer, made.written, now_ms=4)
        assert done == made.written
        table.pointer = result.pointer
        after = layouts.clustering(table.pointer).segments_opened
        # Small segments may have been folded on the way.
        assert after == pytest.approx(made.before - sum(made.gains), rel=0.15)
        assert _all(table) == before
    else:
        pytest.fail("regroupings never came to an end")
    assert layouts.clustering(table.pointer).segments_opened < 0.6 * first


def _all(table: Table) -> dict[str, Block]:
    refs = table.warehouse.segments(table.pointer)
    found = [block for ref in refs for block in table.warehouse.segment(ref).blocks]
    assert len({block.location for block in found}) == len(found)
    return {block.location: block for block in found}


def test_time_that_is_up_ends_a_part_behind_its_first_group() -> None:
    """So every part gets something done."""
    table = Table("time", segment_blocks=4)
    for base in (0, 10_000, 20_000):
        for shift in range(4):
            table.append(*((base + 100 * n + 20 * shift, base + 100 * n + 20 * shift + 15) for n in range(4)))
    whole = table.warehouse.layouts.regroup(table.pointer, RegroupRequest())
    assert len(whole.plan.groups) == len(whole.written) == 3
    part = table.warehouse.layouts.regroup(table.pointer, RegroupRequest(), until=lambda: True)
    assert (len(part.plan.groups), len(part.written)) == (3, 1)
    nothing = table.warehouse.layouts.regroup(table.pointer, RegroupRequest(dry_run=True))
    assert (len(nothing.plan.groups), nothing.written) == (3, ())


def test_the_key_that_is_requested() -> None:
    """The table's own when it has one, also when it is named; else the one that is named."""
    table = Table("key")
    head = table.warehouse.head(table.pointer)
    assert key_of(head).key_id == key_of(head, ["A"]).key_id == 0
    assert key_of(head, ["a"], "zorder").key_id is None
    assert [term.name for term in key_of(head, ["b", "a"]).terms] == ["b", "a"]
    without = table.warehouse.cluster(table.pointer, [], now_ms=3).pointer
    assert key_of(table.warehouse.head(without), ["a"]).key_id is None
    with pytest.raises(InvalidRequest):
        key_of(table.warehouse.head(without))
    assert table.warehouse.layouts.average_depth(without) is None
    assert table.warehouse.layouts.average_depth(table.pointer) == 0.0


def test_unknown_bounds_are_counted_and_reach_everywhere() -> None:
    """A block of which nothing is known lies over all others."""
    table = Table("unknown")
    table.append((0, 10), (20, 30), (40, 50))
    (ref,) = table.warehouse.prepare(
        "t",
        SCHEMA,
        [Block(location="memory://b/x", row_count=100, file_size=1), msgspec.structs.replace(_plain(), row_count=0)],
    )
    table.pointer = table.warehouse.commit(table.pointer, added=[ref], now_ms=3).pointer
    found = table.warehouse.layouts.clustering(table.pointer)
    assert (found.blocks, found.blocks_total, found.unknown_blocks) == (4, 5, 1)
    assert (found.depth.max_depth, found.depth.histogram) == (2, {2: 4})


def _plain() -> Block:
    return Block(location="memory://b/empty", row_count=1, file_size=1)


def test_recorded_filters_cost_what_prunes_read() -> None:
    """Whole filters to the block and byte; masked ones about as much as they once kept; others are left out."""
    table = Table("recorded")
    table.append(*((10 * n, 10 * n + 9) for n in range(100)))

    def recorded(filter: str, **changes: Any) -> Recorded:
        tree = msgspec.json.encode(tree_of(read_filter(filter))).decode()
        plain = Recorded(tree=tree, text=filter, is_full=True, times=4, considered=400, selected=40)
        return msgspec.structs.replace(plain, **changes)

    masked_tree = msgspec.json.encode(tree_of(masked(read_filter("a BETWEEN 5 AND 6"), None))).decode()
    filters = [
        recorded("a BETWEEN 95 AND 214"),
        recorded("gone = 1"),
        recorded("a > 0", tree=masked_tree, text="a BETWEEN ? AND ?", is_full=False, considered=100, selected=5),
    ]
    found = table.warehouse.layouts.clustering(table.pointer, recorded=filters)
    whole, sampled = found.recorded
    assert (whole.filter, whole.times, whole.cost.blocks) == ("a BETWEEN 95 AND 214", 4, 13)
    assert whole.cost.bytes == sum(1 + number for number in range(9, 22))
    assert whole.cost.skip == pytest.approx(0.87)
    assert 1 <= sampled.cost.blocks <= 25
    assert list(found.left_out) == ["gone = 1"]
    assert table.warehouse.layouts.clustering(table.pointer, recorded=filters).recorded == found.recorded
