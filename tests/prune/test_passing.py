"""Prunes of a table whose columns do not fit into memory: the same answers, and the rest of the cache stays."""

from __future__ import annotations

import time
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar.snapshot_blocks import BatchSizes
from lamella.snapshot.concurrency import wait_until
from lamella.snapshot.errors import Unavailable
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer, PruneRequest, Shape
from support.operations import CountedStore

SCHEMA: Final = Schema.assign(
    [Column(name="a", type="int64"), Column(name="b", type="string"), Column(name="c", type="float64")]
)
#: Blocks of a segment, and segments.
SEGMENT: Final = 10
SEGMENTS: Final = 60
BLOCKS: Final = SEGMENT * SEGMENTS
SIZES: Final = BatchSizes(chunk_segments=4, worth_segments=2, batch_blocks=16, min_cached_blocks=8)
#: The layer of segments fits, and the columns of all blocks do not.
SMALL_BYTES: Final = 25_000
SHAPES: Final[tuple[Shape, ...]] = ("records", "ranges")


def bound(column: int, value: int | float | bytes) -> Bound | None:
    """A bound as statistics have it."""
    return to_bound(SCHEMA.leaves()[column].dtype, value)


def blocks(rng: Random, count: int, empty_share: float) -> list[Block]:
    """Blocks of which some have no bounds, nulls, or no rows; all others span the middle of ``a``."""
    found = []
    for number in range(count):
        row_count = 0 if rng.random() < empty_share else 10
        letter = rng.randrange(26)
        stats = {
            1: ColumnStats(min=bound(0, rng.randrange(100)), max=bound(0, 900 + rng.randrange(100)), null_count=0),
            2: ColumnStats(
                min=bound(1, b"%c%d" % (97 + letter, rng.randrange(9))),
                max=bound(1, b"%c~" % (97 + letter)),
                null_count=rng.choice([0, 0, 0, 3]),
            ),
        }
        if rng.random() < 0.5:
            stats[3] = ColumnStats(min=bound(2, number * 1.0), max=bound(2, number + 0.5), null_count=0)
        found.append(
            Block(
                location=f"memory://passing/{number:05}",
                row_count=row_count,
                file_size=rng.randrange(1, 1_000),
                col_stats=stats if row_count else {},
            )
        )
    return found


class Table:
    """One table, and warehouses of two sizes on it."""

    def __init__(self, seed: int, segment: int = SEGMENT, empty_share: float = 0.02) -> None:
        self._segment = segment
        self.store = CountedStore(FsspecStore())
        self._root = "memory://passing-table"
        rng = Random(seed)
        warehouse = Warehouse(self.store, self._root, segment_blocks=segment)
        table_id = rng.randbytes(16).hex()
        pointer = warehouse.create(table_id, SCHEMA, now_ms=1)
        refs = warehouse.prepare(table_id, SCHEMA, blocks(rng, segment * SEGMENTS, empty_share))
        self.pointer: SnapshotPointer = warehouse.commit(pointer, added=refs, now_ms=2).pointer

    def opened(self, cache_bytes: int) -> Warehouse:
        """A warehouse that has nothing in memory."""
        return Warehouse(
            self.store, self._root, segment_blocks=self._segment, cache_bytes=cache_bytes, batch_sizes=SIZES
        )


def without_times(answer: PruneAnswer) -> PruneAnswer:
    """An answer without what may differ between two ways to the same blocks."""
    stages = tuple(msgspec.structs.replace(stage, ms=0.0) for stage in answer.report.stages)
    report = msgspec.structs.replace(answer.report, stages=stages, reused_blocks=0, from_cache=False)
    return msgspec.structs.replace(answer, report=report)


def some_filter(rng: Random) -> str:
    """A filter that leaves many segments to look at, some of them as a whole."""
    return rng.choice(
        [
            f"a = {rng.randrange(1_000)}",
            f"a BETWEEN {rng.randrange(200)} AND {rng.randrange(800, 1_000)}",
            f"b LIKE '{chr(97 + rng.randrange(26))}%'",
            "b IS NULL",
            f"b IS NULL OR a < {rng.randrange(100)}",
            f"c >= {rng.randrange(BLOCKS)}",
            f"c >= {rng.randrange(BLOCKS)} AND a > {rng.randrange(1_000)}",
            f"NOT (a < {rng.randrange(100)} AND b > '{chr(97 + rng.randrange(26))}')",
            "c IS NOT NULL",
        ]
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_answers_do_not_depend_on_whether_columns_fit_into_memory(seed: int) -> None:
    """Blocks, verdicts, stages and what was not used are the same of a warehouse with a small cache."""
    table = Table(seed)
    rng = Random(seed + 1)
    large, small = table.opened(1 << 26), table.opened(SMALL_BYTES)
    for _ in range(6):
        request = PruneRequest(filter=some_filter(rng), shape=rng.choice(SHAPES))
        expected, found = (without_times(each.prune(table.pointer, request)) for each in (large, small))
        assert found == expected, request.filter


def test_segments_that_are_decided_as_a_whole_are_not_opened_again() -> None:
    """What the blocks of a segment have in common is cached, though the column that it comes from does not fit."""
    table = Table(5, segment=200, empty_share=0)
    warehouse = table.opened(500_000)
    found = warehouse.prune(table.pointer, PruneRequest(filter="a = 500", shape="ranges"))
    assert found.report.stages[-1].kept == 200 * SEGMENTS
    first = table.store.reads
    table.store.reset()
    warehouse.prune(table.pointer, PruneRequest(filter="a = 501", shape="ranges"))
    assert table.store.reads <= first // 4


def test_a_prune_beyond_its_deadline_says_what_helps() -> None:
    """The error of a scan that cannot be finished names the settings by which it can."""
    table = Table(6, segment=100)
    warehouse = table.opened(280_000)
    wide = "b LIKE 'x%'"
    warehouse.prune(table.pointer, PruneRequest(filter=wide, level="segment"))  # the filter and the layer are read
    wait_until(time.monotonic())
    try:
        with pytest.raises(Unavailable, match="cache_dir") as raised:
            warehouse.prune(table.pointer, PruneRequest(filter=wide, shape="ranges"))
    finally:
        wait_until(None)
    assert raised.value.details["reason"] == "deadline"
