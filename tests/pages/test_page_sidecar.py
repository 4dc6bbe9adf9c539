"""Page sidecars: built beside the segment, bound to it, never trusted further than their checksums."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer, PrunedBlock, PruneRequest
from pages.reads_counted import ReadsCounted

ROWS = 1_000
PAGE_ROWS = 100


class Lake:
    """A table of sorted files: ``k`` runs through them, ``t`` is text of it, ``r`` is the same in every file."""

    def __init__(self, folder: Path, *, files: int = 4, segment_blocks: int = 2, page_files: int = 256) -> None:
        self.folder = folder
        self.paths = [folder / f"f{at}.parquet" for at in range(files)]
        for at, path in enumerate(self.paths):
            self.write(at, path)
        self.store = ReadsCounted(FsspecStore())
        self.root = f"file://{folder}/lake"
        self.segment_blocks, self.page_files = segment_blocks, page_files
        self.warehouse = self.opened()
        locations = [f"file://{path}" for path in self.paths]
        schema = schema_of(read_footer(self.store, locations[0]))
        blocks, _ = ingest(self.store, locations, schema)
        empty = self.warehouse.create("t", schema, now_ms=1)
        self.pointer: SnapshotPointer = self.warehouse.commit(
            empty, added=self.warehouse.prepare("t", schema, blocks), now_ms=2
        ).pointer
        self.store.read_bytes.clear()

    def opened(self) -> Warehouse:
        """The warehouse as another process sees it, nothing cached."""
        return Warehouse(self.store, self.root, segment_blocks=self.segment_blocks, page_files=self.page_files)

    def write(self, at: int, path: Path, *, page_rows: int = PAGE_ROWS) -> None:
        """File number ``at``."""
        keys = range(at * ROWS, (at + 1) * ROWS)
        table = pa.table(
            {"k": keys, "t": [f"t{key:09d}" for key in keys], "r": [key % ROWS * 7 % ROWS for key in keys]}
        )
        pq.write_table(
            table, path, write_page_index=True, max_rows_per_page=page_rows, row_group_size=500, use_dictionary=["r"]
        )

    def prune(self, text: str, warehouse: Warehouse | None = None, **options: object) -> PruneAnswer:
        """Prune to pages."""
        request = msgspec.convert({"filter": text, "level": "page", **options}, PruneRequest)
        return (warehouse or self.warehouse).prune(self.pointer, request)

    def sidecars(self) -> list[Path]:
        """The page sidecars."""
        return sorted(self.folder.glob("lake/t/_sg/*.pages"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Four files of ten pages a column and row group, in two segments."""
    return Lake(tmp_path)


def blocks_of(answer: PruneAnswer) -> tuple[PrunedBlock, ...]:
    """The blocks."""
    assert answer.blocks is not None
    return answer.blocks


def ranges(answer: PruneAnswer) -> list[tuple[str, int, int]]:
    """(file, first row, rows) of every range."""
    return [
        (Path(block.location).stem, first, count)
        for block in blocks_of(answer)
        if block.pages is not None
        for first, count in zip(block.pages.file_row, block.pages.row_count, strict=True)
    ]


def test_a_single_row_lookup_reads_one_page_per_column(lake: Lake) -> None:
    """On the sort column: one file, one range of one page, and just that page's bytes of each column."""
    (block,) = blocks_of(lake.prune("k = 2345", columns=["k", "t", "r"]))
    assert block.pages is not None
    assert (block.pages.row_group, block.pages.first_row, block.pages.row_count) == ([0], [300], [100])
    assert block.pages.file_row == [300]
    for column in block.pages.columns or ():
        assert (column.row_group, column.first_row, column.row_count) == ([0], [300], [100])
        assert len(column.dictionary) == (column.column == "r")
    read = sum(sum(column.size_bytes) for column in block.pages.columns or ())
    assert read < block.file_size / 8


def test_text_in_the_middle_of_a_page_is_found(lake: Lake) -> None:
    """Bounds of text decide as those of numbers do."""
    assert ranges(lake.prune("t = 't000003999'")) == [("f3", 900, 100)]
    assert ranges(lake.prune("t BETWEEN 't000001099' AND 't000001100'")) == [("f1", 0, 200)]


def test_a_request_without_pages_reads_nothing_of_them(lake: Lake) -> None:
    """Level block opens no file and no page sidecar."""
    lake.warehouse.build_pages(lake.pointer)
    lake.store.read_bytes.clear()
    answer = lake.opened().prune(lake.pointer, PruneRequest(filter="k = 2345"))
    assert [block.pages for block in blocks_of(answer)] == [None]
    assert answer.report.pages is None
    assert not [location for location in lake.store.read_bytes if location.endswith((".parquet", ".pages"))]


def test_files_are_opened_once_and_then_remembered(lake: Lake) -> None:
    """The second request reads nothing."""
    first = lake.prune("k = 2345", columns=["t"])
    assert first.report.pages is not None
    assert first.report.pages.files_read == 1
    assert lake.store.files_read() == [f"file://{lake.paths[2]}"]
    lake.store.read_bytes.clear()
    second = lake.prune("k = 2345", columns=["t"])
    assert second.report.pages is not None
    assert (second.report.pages.files_read, second.report.pages.cells_cached) == (0, 2)
    assert not lake.store.read_bytes
    assert blocks_of(first) == blocks_of(second)


def test_a_sidecar_spares_the_files(lake: Lake) -> None:
    """Once built, no file is opened, and only the cells that are asked for are read."""
    of_files = lake.prune("k < 1500 AND r > 900", columns=["t"])
    built = lake.warehouse.build_pages(lake.pointer)
    assert (built.segments, built.blocks, built.left_out) == (2, 4, {})
    assert len(lake.sidecars()) == 2
    lake.store.read_bytes.clear()
    fresh = lake.opened()
    answer = lake.prune("k < 1500 AND r > 900", fresh, columns=["t"])
    assert blocks_of(answer) == blocks_of(of_files)
    assert lake.store.files_read() == []
    assert answer.report.pages is not None
    assert answer.report.pages.files_read == 0
    assert answer.report.pages.cells_from_sidecars > 0


def test_building_again_does_nothing_unless_requested(lake: Lake) -> None:
    """A sidecar that is there is left alone; ``rebuild`` writes it anew."""
    lake.warehouse.build_pages(lake.pointer)
    again = lake.warehouse.build_pages(lake.pointer)
    assert (again.segments, again.skipped) == (0, 2)
    assert lake.warehouse.build_pages(lake.pointer, rebuild=True).segments == 2


def test_a_deleted_sidecar_is_missed_by_nothing(lake: Lake) -> None:
    """It is derived: the files say the same."""
    lake.warehouse.build_pages(lake.pointer)
    before = blocks_of(lake.prune("k = 17", columns=["k"]))
    for path in lake.sidecars():
        path.unlink()
    assert blocks_of(lake.prune("k = 17", lake.opened(), columns=["k"])) == before
    assert lake.warehouse.build_pages(lake.pointer).segments == 2


def test_a_replaced_files_pages_are_never_used(lake: Lake) -> None:
    """Its footer has another hash: the block is answered whole, and the report says why."""
    lake.write(1, lake.paths[1], page_rows=50)
    answer = lake.prune("k = 1500", columns=["k"])
    (block,) = blocks_of(answer)
    assert block.pages is not None
    assert block.pages.whole
    assert block.pages.reason == "the file has changed since it was registered"
    assert block.pages.unplaced == ["k"]
    assert answer.report.pages is not None
    assert answer.report.pages.reasons == {"the file has changed since it was registered": 1}
    built = lake.warehouse.build_pages(lake.pointer)
    assert built.left_out == {"the file has changed since it was registered": 1}
    (block,) = blocks_of(lake.prune("k = 1500", columns=["k"]))
    assert block.pages is not None
    assert block.pages.whole


def test_a_missing_file_leaves_its_block_whole(lake: Lake) -> None:
    """Whoever reads it will see that it is gone; pruning does not fail."""
    lake.paths[1].unlink()
    answer = lake.prune("k = 1500 OR k = 3500")
    (gone, there) = blocks_of(answer)
    assert gone.pages is not None
    assert there.pages is not None
    assert (gone.pages.whole, gone.pages.reason) == (True, "object_not_found")
    assert not there.pages.whole


def test_a_sidecar_of_another_segment_is_not_used(lake: Lake) -> None:
    """It is bound to the hash of its segment's manifest."""
    lake.warehouse.build_pages(lake.pointer)
    one, other = lake.sidecars()
    shutil.copyfile(one, other)
    fresh = lake.opened()
    answer = lake.prune("k >= 0 AND r = 3", fresh)
    assert answer.report.pages is not None
    assert any("belongs to another segment" in reason for reason in answer.report.pages.reasons)
    other.unlink()
    assert ranges(answer) == ranges(lake.prune("k >= 0 AND r = 3", lake.opened()))
    assert lake.warehouse.build_pages(lake.pointer).segments == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255), cut=st.booleans())
def test_damage_to_a_sidecar_changes_no_answer(lake: Lake, at: float, byte: int, cut: bool) -> None:
    """Every byte is under a checksum; with damage the files answer, and the report says so."""
    if not lake.sidecars():
        lake.warehouse.build_pages(lake.pointer)
    path = lake.sidecars()[0]
    good = path.read_bytes()
    position = int(at * len(good))
    bad = good[:position] if cut else good[:position] + bytes([good[position] ^ byte]) + good[position + 1 :]
    path.write_bytes(bad)
    try:
        answer = lake.prune("k >= 0 AND r = 3", lake.opened(), columns=["k", "t"])
    finally:
        path.write_bytes(good)
    assert blocks_of(answer) == blocks_of(lake.prune("k >= 0 AND r = 3", lake.opened(), columns=["k", "t"]))


def test_a_request_opens_so_many_files_and_says_what_it_left(tmp_path: Path) -> None:
    """The rest is answered by whole row groups."""
    lake = Lake(tmp_path, page_files=1)
    answer = lake.prune("r = 3", columns=["k"])
    assert answer.report.pages is not None
    assert answer.report.pages.files_read == 1
    (reason,) = answer.report.pages.reasons
    assert "1 files were opened" in reason
    assert answer.report.pages.reasons[reason] == 3
    rows = [sum(block.pages.row_count) for block in blocks_of(answer) if block.pages is not None]
    assert rows[0] < ROWS
    assert rows[1:] == [ROWS] * 3
    assert [block.pages.unplaced for block in blocks_of(answer) if block.pages is not None][1:] == [["k"]] * 3


def test_whole_blocks_answer_all_rows(lake: Lake) -> None:
    """ALL blocks are not looked into, and their ranges are proven; SOME blocks beside them are."""
    answer = lake.prune("k < 1150")
    first, second = blocks_of(answer)
    assert first.pages is not None
    assert second.pages is not None
    assert (first.verdict, first.pages.row_count, first.pages.all_match) == ("ALL", [500, 500], [True, True])
    assert (second.pages.row_count, second.pages.all_match) == ([100, 100], [True, False])


def test_the_page_stage_counts_rows_and_bytes(lake: Lake) -> None:
    """It stands last in the funnel."""
    answer = lake.prune("k = 2345", columns=["k"])
    (block,) = blocks_of(answer)
    stage = answer.report.stages[-1]
    assert (stage.stage, stage.considered, stage.kept) == ("page", ROWS, PAGE_ROWS)
    assert block.pages is not None
    assert block.pages.columns is not None
    assert stage.bytes == sum(block.pages.columns[0].size_bytes)


def test_a_block_without_a_range_left_is_dropped(lake: Lake) -> None:
    """Its bounds overlap the filter, no page's do."""
    request = PruneRequest(filter="t > 't000000499' AND t < 't000000500'")
    assert len(blocks_of(lake.warehouse.prune(lake.pointer, request))) == 1
    assert blocks_of(lake.prune("t > 't000000499' AND t < 't000000500'")) == ()


def test_pages_stand_beside_their_blocks_in_any_order_and_shape(lake: Lake) -> None:
    """With an order and a limit, and as columns."""
    records = lake.prune("r < 30", order_by=[{"column": "k", "descending": True}], limit=100)
    assert Path(blocks_of(records)[0].location).stem == "f3"
    columns = lake.prune("r < 30", order_by=[{"column": "k", "descending": True}], limit=100, shape="columns")
    assert columns.block_columns is not None
    assert columns.block_columns.pages == [block.pages for block in blocks_of(records)]
    everything = {name: rows for name, *rows in ranges(lake.prune("r < 30"))}
    assert {name: rows for name, *rows in ranges(records)}.items() <= everything.items()


def test_an_answer_survives_the_wire(lake: Lake) -> None:
    """As JSON and back."""
    answer = lake.prune("k = 2345 OR r = 5", columns=["k", "r"])
    assert msgspec.json.decode(msgspec.json.encode(answer), type=PruneAnswer) == answer


def test_random_small_caches_change_no_answer(tmp_path: Path) -> None:
    """What does not fit is read again."""
    lake = Lake(tmp_path)
    rng = Random(3)
    small = Warehouse(lake.store, lake.root, page_cache_bytes=9_000)
    for _ in range(30):
        low = rng.randrange(4 * ROWS)
        text = f"k >= {low} AND k < {low + rng.randrange(1, 700)} AND r < {rng.randrange(1, ROWS)}"
        assert blocks_of(lake.prune(text, small, columns=["t"])) == blocks_of(lake.prune(text, columns=["t"]))


def test_new_segments_get_sidecars_on_request(lake: Lake) -> None:
    """With ``prepare_pages`` they are there before the first request."""
    warehouse = Warehouse(lake.store, f"{lake.root}-eager", prepare_pages=True)
    schema = lake.warehouse.head(lake.pointer).schema
    blocks, _ = ingest(lake.store, [f"file://{path}" for path in lake.paths], schema)
    empty = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    lake.store.read_bytes.clear()
    answer = warehouse.prune(pointer, PruneRequest(filter="k = 2345", level="page"))
    assert ranges(answer) == [("f2", 300, 100)]
    assert lake.store.files_read() == []


@pytest.mark.parametrize("eager", [False, True])
def test_a_verified_block_has_no_page_statistics(lake: Lake, eager: bool) -> None:
    """Its statistics were taken from the values since its writer is not trusted; its page index is the writer's."""
    warehouse = Warehouse(lake.store, f"{lake.root}-verified", prepare_pages=eager)
    schema = lake.warehouse.head(lake.pointer).schema
    blocks, _ = ingest(lake.store, [f"file://{lake.paths[0]}"], schema, verify=True)
    empty = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    (block,) = blocks_of(warehouse.prune(pointer, PruneRequest(filter="k = 345", level="page", columns=("k",))))
    assert block.pages is not None
    assert block.pages.whole
    assert block.pages.unplaced == ["k"]
    assert "verified by reading the values" in (block.pages.reason or "")
