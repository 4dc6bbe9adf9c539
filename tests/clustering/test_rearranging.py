"""Blocks in other segments: the same blocks, the same answers, whatever others commit meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import CommitConflict
from lamella.snapshot.manifest import Block, ClusterStats, SnapshotPointer, Summary
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Options, Verification
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.regroup import Swap, Written
from lamella.snapshot.wire import PruneRequest
from support.watched_store import WatchedStore

SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="s", type="string")])
ROWS = 6


class Lake:
    """A table of small files, whose segments have at most ``segment_blocks`` blocks."""

    def __init__(self, folder: Path, *, segment_blocks: int = 4, pages: bool = False) -> None:
        self.puts: list[str] = []
        self.store = WatchedStore(FsspecStore(), self.puts.append)
        self.root = f"file://{folder}/lake"
        self.folder = folder
        shape = Shape(segment_blocks=segment_blocks, fan_in=2, group_segments=2, max_grouped=4)
        self.warehouse = Warehouse(self.store, self.root, shape=shape, prepare_pages=pages)
        self.pointer = self.warehouse.create("t", SCHEMA, cluster_key=("a",), now_ms=1)
        self.count = 0

    def block(self, low: int) -> Block:
        """A file of some rows from ``low`` on, with sketches."""
        path = self.folder / f"{self.count}.parquet"
        self.count += 1
        rows = {"a": list(range(low, low + ROWS)), "s": [f"v{row % 3}" for row in range(ROWS)]}
        pq.write_table(pa.table(rows), path, write_page_index=True)
        blocks, _ = ingest(self.store, [f"file://{path}"], SCHEMA, workers=1, verify=True)
        return blocks[0]

    def append(self, *lows: int) -> None:
        """Files in one commit; every other one says for which key it was written."""
        blocks = [self.block(low) for low in lows]
        said = [
            msgspec.structs.replace(block, cluster_stats=ClusterStats(key_id=0, level=number)) if number % 2 else block
            for number, block in enumerate(blocks)
        ]
        added = self.warehouse.prepare("t", SCHEMA, said)
        self.pointer = self.warehouse.commit(self.pointer, added=added, now_ms=2).pointer

    def remove(self, *locations: str) -> None:
        """Without some blocks."""
        self.pointer = self.warehouse.commit(self.pointer, removed=locations, now_ms=2).pointer

    def blocks(self, pointer: SnapshotPointer | None = None) -> dict[str, Block]:
        """What manifests say of each block, by a warehouse that has nothing in memory."""
        fresh = Warehouse(self.store, self.root)
        refs = fresh.segments(self.pointer if pointer is None else pointer)
        return {block.location: block for ref in refs for block in fresh.segment(ref).blocks}

    def swap(self, rows: Sequence[int], rng: Random, pieces: int) -> Written:
        """The blocks of some segments in so many others, at random."""
        refs = list(self.warehouse.segments(self.pointer))
        positions = [(at, block) for at, row in enumerate(rows) for block in range(refs[row].summary.block_count)]
        rng.shuffle(positions)
        cuts = sorted(rng.sample(range(1, len(positions)), min(pieces, len(positions)) - 1))
        made = tuple(tuple(positions[start:stop]) for start, stop in pairwise([0, *cuts, len(positions)]))
        return self.warehouse.rearranging.write(self.pointer, Swap(rows=tuple(rows), made=made))

    def commit(self, *written: Written) -> tuple[Written, ...]:
        """On the current snapshot; which were done."""
        result, done = self.warehouse.rearranging.commit(self.pointer, written, now_ms=3)
        assert (result.added, result.removed, result.snapshot.operation) == (0, 0, "regroup")
        self.pointer = result.pointer
        return done

    def found(self, filter: str | None = None, level: str = "block") -> set[str]:
        """What a prune keeps, by a warehouse that has nothing in memory."""
        request = PruneRequest(filter=filter, level=level)  # type: ignore[arg-type]  # one of the levels
        answer = Warehouse(self.store, self.root).prune(self.pointer, request)
        self.report = answer.report
        return {block.location for block in answer.blocks or ()}

    def verify(self) -> None:
        """Every claim holds."""
        assert Verification(self.store, self.root, "t", self.pointer, Options(pages=False)).run().findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.few(3)
def test_blocks_stay_what_they_are_in_whatever_segments(tmp_path: Path, seed: int) -> None:
    """What is said of blocks, totals and counts of distinct values, what filters keep: all as before."""
    rng = Random(seed)
    lake = Lake(tmp_path, segment_blocks=rng.choice([2, 4, 8]))
    for _ in range(rng.randint(3, 7)):
        lake.append(*(rng.randint(0, 500) for _ in range(rng.randint(1, 9))))
    before, summary = lake.blocks(), lake.warehouse.snapshot(lake.pointer).summary
    filters = [f"a BETWEEN {low} AND {low + 40}" for low in range(0, 500, 60)]
    found = [lake.found(text) for text in filters]
    refs = list(lake.warehouse.segments(lake.pointer))
    rows = rng.sample(range(len(refs)), rng.randint(1, len(refs)))
    half = max(1, len(rows) // 2)
    swaps = [lake.swap(part, rng, rng.randint(1, 5)) for part in (rows[:half], rows[half:]) if part]
    assert lake.commit(*swaps) == tuple(swaps)
    assert lake.blocks() == before
    after = lake.warehouse.snapshot(lake.pointer).summary
    assert uncounted(after) == uncounted(summary)
    for column_id, stats in after.col_stats.items():
        counts = stats.distinct_of_values, summary.col_stats[column_id].distinct_of_values
        assert counts[0] is not None
        assert counts[1] is not None
        assert abs(counts[0] - counts[1]) <= 0.1 * counts[1]
    assert [lake.found(text) for text in filters] == found
    lake.verify()
    # Sketches went with the blocks: after a removal counts are made again from what is left.
    gone = sorted(before)[: len(before) // 2]
    lake.remove(*gone)
    left = lake.warehouse.snapshot(lake.pointer).summary.col_stats[1].distinct_of_values
    low_rows = {row for location, block in before.items() if location not in gone for row in _values(block)}
    assert left is not None
    assert abs(left - len(low_rows)) <= 0.1 * len(low_rows) + 1
    lake.verify()


def uncounted(summary: Summary) -> Summary:
    """A summary without counts of distinct values, which unions of other unions may round otherwise."""
    stats = {
        column_id: msgspec.structs.replace(each, distinct_of_values=None)
        for column_id, each in summary.col_stats.items()
    }
    return msgspec.structs.replace(summary, col_stats=stats)


def _values(block: Block) -> range:
    low = block.col_stats[1].min
    assert low is not None
    value = int(str(low.int64))
    return range(value, value + ROWS)


def test_keys_of_blocks_do_not_change(tmp_path: Path) -> None:
    """So skip indexes know them as before."""
    lake = Lake(tmp_path)
    lake.append(*range(0, 90, 10))
    before = {tuple(key) for key in block_keys(lake.blocks().values()).tolist()}
    lake.commit(lake.swap(range(len(list(lake.warehouse.segments(lake.pointer)))), Random(1), 3))
    refs = lake.warehouse.segments(lake.pointer)
    after = np.concatenate([lake.warehouse.manifests.block_keys(ref) for ref in refs])
    assert {tuple(key) for key in after.tolist()} == before


def test_pages_go_with_the_blocks(tmp_path: Path) -> None:
    """No file is opened to find pages, and the places are those of the files."""
    lake = Lake(tmp_path, pages=True)
    lake.append(*range(0, 90, 10))
    lake.commit(lake.swap(range(len(list(lake.warehouse.segments(lake.pointer)))), Random(2), 3))
    assert len(lake.found("a BETWEEN 20 AND 40", "page")) == 3
    assert lake.report.pages is not None
    assert lake.report.pages.files_read == 0
    assert lake.warehouse.build_pages(lake.pointer).segments == 0


def test_others_go_on_meanwhile_and_only_what_they_touched_is_left_out(tmp_path: Path) -> None:
    """Appends change nothing; a removal takes its segment's swap away and no other one."""
    lake = Lake(tmp_path)
    for start in range(0, 160, 40):
        lake.append(*range(start, start + 40, 10))
    refs = list(lake.warehouse.segments(lake.pointer))
    assert [ref.summary.block_count for ref in refs] == [4, 4, 4, 4]
    one, two = lake.swap([0, 1], Random(3), 2), lake.swap([2, 3], Random(4), 3)
    lake.append(1_000)
    gone = lake.warehouse.segment(refs[1]).blocks[0].location
    lake.remove(gone)
    before = lake.blocks()
    assert lake.commit(one, two) == (two,)
    assert lake.blocks() == before
    lake.verify()
    with pytest.raises(CommitConflict) as caught:
        lake.commit(one, two)
    assert caught.value.details["snapshot_id"] == lake.pointer.snapshot_id


def test_a_commit_that_lost_is_made_again_with_the_segments_that_are_written(tmp_path: Path) -> None:
    """On a newer base nothing but the snapshot is written anew."""
    lake = Lake(tmp_path, segment_blocks=8)
    for start in range(0, 320, 80):
        lake.append(*range(start, start + 80, 10))
    swap = lake.swap([0, 1], Random(5), 2)
    lost = lake.warehouse.rearranging.commit(lake.pointer, [swap], now_ms=3)[0].pointer
    lake.append(1_000)
    lake.puts.clear()
    assert lake.commit(swap) == (swap,)
    new = {ref.segment_id for ref in swap.new}
    assert not any(segment_id in location for location in lake.puts for segment_id in new)
    assert new <= {ref.segment_id for ref in lake.warehouse.segments(lake.pointer)}
    assert set(lake.blocks(lost)) < set(lake.blocks())
    lake.verify()


def test_segments_of_groups_are_replaced_too(tmp_path: Path) -> None:
    """A group without one of its segments, and one without any."""
    lake = Lake(tmp_path, segment_blocks=2)
    for start in range(0, 400, 20):
        lake.append(start, start + 10)
    snapshot = lake.warehouse.snapshot(lake.pointer)
    assert snapshot.groups
    before = lake.blocks()
    in_first = snapshot.groups[0].segment_count
    lake.commit(lake.swap([0, in_first, snapshot.segment_count - 1], Random(6), 3))
    assert lake.blocks() == before
    lake.verify()
    first = lake.warehouse.snapshot(lake.pointer).groups[0].segment_count
    lake.commit(lake.swap(range(first), Random(7), first))
    assert lake.blocks() == before
    lake.verify()


@pytest.mark.parametrize("made", [(((0, 0),),), (((0, 0), (0, 1), (0, 1)),), (((0, 0), (0, 1), (0, 2)),)])
def test_a_swap_has_every_block_once(tmp_path: Path, made: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    """One too few, one twice, one that is not there: nothing is written."""
    lake = Lake(tmp_path)
    lake.append(0, 10)
    lake.puts.clear()
    with pytest.raises(ValueError, match="once"):
        lake.warehouse.rearranging.write(lake.pointer, Swap(rows=(0,), made=made))
    assert lake.puts == []
