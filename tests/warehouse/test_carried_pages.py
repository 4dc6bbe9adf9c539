"""Page sidecars when small segments are folded: the pages go with the blocks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

SCHEMA = Schema.assign([Column(name="k", type="int64"), Column(name="t", type="string")])


class Lake:
    """Files of 300 rows in pages of 100, each appended by a commit of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = FsspecStore()
        self.root = f"file://{folder}/lake"
        self.folder = folder
        self.warehouse = Warehouse(self.store, self.root, segment_blocks=3, prepare_pages=True)
        self.pointer = self.warehouse.create("t", SCHEMA, now_ms=1)

    def block(self, number: int) -> Block:
        path = self.folder / f"{number}.parquet"
        rows = {"k": list(range(number * 300, number * 300 + 300)), "t": [f"t{row % 7}" for row in range(300)]}
        table = pa.table(rows, schema=pa.schema([("k", pa.int64()), ("t", pa.string())]))
        pq.write_table(table, path, write_page_index=True, data_page_size=1, write_batch_size=100)
        blocks, _ = ingest(self.store, [f"file://{path}"], SCHEMA, workers=1)
        return blocks[0]

    def append(self, *numbers: int) -> None:
        refs = self.warehouse.prepare("t", SCHEMA, [self.block(number) for number in numbers])
        self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=2).pointer

    def page_locations(self) -> list[tuple[str, object]]:
        """What a reader of two rows is told, by a warehouse that has nothing in memory."""
        request = PruneRequest(filter="k IN (150, 650)", columns=("k",), level="page")
        answer = Warehouse(self.store, self.root).prune(self.pointer, request)
        assert answer.blocks is not None
        self.report = answer.report.pages
        return [(block.location, block.pages) for block in answer.blocks]


def without_pages(lake: Lake, pointer: SnapshotPointer) -> None:
    for location in lake.warehouse.objects(pointer).optional:
        if location.endswith(".pages"):
            lake.store.delete(location)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_merged_segments_keep_their_pages(lake: Lake) -> None:
    """Three appends become one segment: no file is opened to find pages, and the places are those of the files."""
    for number in range(4):
        lake.append(number)
    assert [ref.summary.block_count for ref in lake.warehouse.segments(lake.pointer)] == [3, 1]
    carried = lake.page_locations()
    assert lake.report is not None
    assert lake.report.files_read == 0
    assert lake.report.cells_from_sidecars > 0
    without_pages(lake, lake.pointer)
    assert lake.page_locations() == carried
    assert lake.report.files_read == 2
    assert lake.warehouse.build_pages(lake.pointer).segments == 2


def test_a_segment_without_pages_leaves_the_fold_without_them(lake: Lake) -> None:
    """Nothing is made up for it; the answer comes from the files until pages are built."""
    lake.append(0)
    without_pages(lake, lake.pointer)
    for number in range(1, 3):
        lake.append(number)
    assert lake.warehouse.snapshot(lake.pointer).segment_count == 1
    found = lake.page_locations()
    assert lake.report is not None
    assert lake.report.files_read == 2
    assert lake.warehouse.build_pages(lake.pointer).segments == 1
    assert lake.page_locations() == found


@pytest.mark.parametrize("removed", [[1], [0, 3], [1, 4, 5]])
def test_the_rest_of_a_segment_keeps_its_pages(lake: Lake, removed: list[int]) -> None:
    """Blocks leave segments; what is left is written again, alone or merged with others."""
    lake.append(0, 1, 2)
    lake.append(3, 4, 5)
    locations = [f"file://{lake.folder}/{number}.parquet" for number in removed]
    lake.pointer = lake.warehouse.commit(lake.pointer, removed=locations, operation="delete", now_ms=3).pointer
    carried = lake.page_locations()
    assert lake.report is not None
    assert lake.report.files_read == 0
    without_pages(lake, lake.pointer)
    assert lake.page_locations() == carried
