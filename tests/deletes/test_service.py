"""Blocks with deleted rows in a running service: commits, readers, jobs, clean-up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.jobs.rewrite import Bounds, compact
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import (
    BlocksRefused,
    CommitConflict,
    CorruptDeletes,
    HashMismatch,
    ReaderFeatureMissing,
)
from lamella.snapshot.manifest import FEATURES, Block, DeleteFile
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore
from support.deleted_rows import blocks_of, set_deletes

ROWS = 100
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def lake(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A service with a local warehouse, and its client."""
    folder = tmp_path_factory.mktemp("deletes")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "feedback": "true"})
    with Lamella(server.url) as lake:
        lake.create_namespace("d")
        yield lake
    assert server.stop() == 0, server.log_text()


class World:
    """A table of three files with ``a`` from 0 to 299 and ``b``, null in every third row."""

    def __init__(self, lake: Lamella, name: str, folder: Path) -> None:
        self.lake, self.name, self.folder = lake, name, folder
        self.store = FsspecStore()
        columns = [Column(name=column, type="int64") for column in "ab"]
        lake.create_table(name, schema=columns)
        self.files = []
        for number in range(3):
            values = range(number * ROWS, (number + 1) * ROWS)
            path = folder / f"{number}.parquet"
            rows = pa.table({"a": list(values), "b": [None if each % 3 == 0 else each % 7 for each in values]})
            pq.write_table(rows, path, row_group_size=30, write_page_index=True, data_page_size=1)
            self.files.append(path.as_uri())
        self.table.register(self.files)

    @property
    def table(self) -> Table:
        """The table."""
        return self.lake.table(self.name)

    def block(self, number: int) -> Block:
        """The table's entry for a file."""
        return blocks_of(self.table)[self.files[number]]

    def vectors(self, *each: Sequence[int]) -> list[DeleteFile]:
        """Lists of positions in a new file."""
        number = len(list(self.folder.glob("*.puffin")))
        file = VectorFile((self.folder / f"{number}.puffin").as_uri())
        entries = [file.add("x", np.array(rows, dtype=np.int64)) for rows in each]
        self.store.put(file.location, file.finished())
        return entries

    def delete(self, number: int, *entries: DeleteFile, **more: Any) -> None:
        """Give a file other lists of deleted rows."""
        set_deletes(self.table, {self.files[number]: entries}, **more)

    def values(self, filter: str | None = None, **more: Any) -> list[int]:
        """``a`` of the rows that a filter leaves."""
        return sorted(self.table.scan(filter, columns=["a"], **more).to_arrow()["a"].to_pylist())


@pytest.fixture
def world(lake: Lamella, tmp_path: Path) -> World:
    """A table that no other test has."""
    return World(lake, f"d.t{next(_NAMES)}", tmp_path)


def test_deleted_rows_are_in_no_scan_and_no_count(world: World) -> None:
    """Of whole files and of pages, for filters that are proven and for others; also in fragments."""
    gone = {0, 5, 29, 30, 31, 99}
    (entry,) = world.vectors(sorted(gone))
    world.delete(0, entry)
    left = [value for value in range(300) if value not in gone]
    info = world.table.info()
    assert (info.row_count, info.live_row_count, info.required_features) == (300, 294, ("deletes",))
    assert world.values() == left
    matching: dict[str, Sequence[int]] = {
        "a < 100": range(100),
        "a >= 29 AND a < 33": range(29, 33),
        "b = 3": [value for value in range(300) if value % 3 and value % 7 == 3],
        "b IS NULL AND a < 7": (0, 3, 6),
        "a = 30": (30,),
    }
    for filter, all_of_it in matching.items():
        wanted = [value for value in all_of_it if value not in gone]
        assert world.values(filter) == wanted, filter
        scan = world.table.scan(filter, columns=["a"])
        assert scan.count() == len(wanted), filter
        parts = [part.to_arrow()["a"].to_pylist() for part in scan.fragments()]
        assert sorted(value for part in parts for value in part) == wanted, filter
    assert world.table.scan(limit=97).to_arrow().num_rows == 97
    first = world.table.scan(order_by="a", limit=4).to_arrow()["a"].to_pylist()
    assert first == [1, 2, 3, 4]


def test_counts_and_bounds_are_those_of_the_rows_that_are_left(world: World) -> None:
    """What the statistics do not prove is scanned."""
    (entry,) = world.vectors([0, 99])
    world.delete(0, entry)
    count = world.table.aggregate(["count(*)"], reader_features=FEATURES)
    assert count.records() == [{"count(*)": 298}]
    exact = world.table.aggregate(["min(a)", "count(b)"], "a >= 100", reader_features=FEATURES)
    assert exact.records() == [{"min(a)": 100, "count(b)": 200 - len([a for a in range(100, 300) if a % 3 == 0])}]
    minimum = world.table.aggregate(["min(a)"], reader_features=FEATURES)
    assert [block.location for block in minimum.scan] == [world.files[0]]
    assert world.table.aggregate(["max(a)"], reader_features=FEATURES).records() == [{"max(a)": 299}]


def test_two_lists_count_together(world: World) -> None:
    """They may have rows in common, so their number is not known, and the block is scanned to count."""
    world.delete(0, *world.vectors([1, 2], [2, 3]))
    assert world.table.info().live_row_count is None
    assert world.values("a < 6") == [0, 4, 5]
    assert world.table.scan("a < 100").count() == 97
    answer = world.table.aggregate(["count(*)"], reader_features=FEATURES)
    assert [block.location for block in answer.scan] == [world.files[0]]


def test_a_reader_that_does_not_declare_deletes_gets_no_files(world: World) -> None:
    """Not by a prune, a difference, a list of blocks, a segment, a plan, or another protocol."""
    before = world.table.info().snapshot_id
    world.delete(0, *world.vectors([1]))
    segment = world.table.snapshot(world.table.info().snapshot_id).segments[0]
    for request in (
        lambda: world.table.prune("false"),
        lambda: world.table.prune("a = 1", reader_features=["constants"]),
        lambda: world.table.diff(before),
        lambda: world.table.blocks(world.files[:1]),
        lambda: world.table.segment(segment.segment_id),
        lambda: world.table.plan("compact"),
    ):
        with pytest.raises(ReaderFeatureMissing) as refused:
            request()
        assert refused.value.details["features"] == ["deletes"]
    result = CliRunner().invoke(cli, ["prune", world.name, "--json", "--url", world.lake.url])
    assert result.exit_code == 1
    assert "deleted rows that are still in the files" in result.stderr


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cardinality": 7}, CorruptDeletes),
        ({"sha256": "0" * 64}, HashMismatch),
        ({"offset": 5}, HashMismatch),
        ({"location": "file:///nowhere/x.puffin"}, None),
        ({"length": 0}, None),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(world: World, change: dict[str, Any], error: Any) -> None:
    """Nothing is committed."""
    (entry,) = world.vectors([1])
    before = world.table.info().snapshot_id
    with pytest.raises(BlocksRefused) as refused:
        world.delete(0, msgspec.structs.replace(entry, **change))
    (listed,) = refused.value.details["refused"]
    assert error is None or listed["code"] == error.code
    assert world.table.info().snapshot_id == before


def test_a_block_keeps_a_row(world: World) -> None:
    """One of which all rows are deleted is refused, also by two lists; positions outside of it as well."""
    for lists in (([*range(100)],), ([*range(60)], [*range(50, 100)]), ([100],)):
        with pytest.raises(BlocksRefused):
            world.delete(0, *world.vectors(*lists))
    world.delete(0, *world.vectors([*range(99)]))
    assert world.values("a < 150") == [*range(99, 150)]
    assert [block.verdict for block in world.table.prune("a < 100", reader_features=FEATURES).records()] == ["ALL"]


def test_the_service_fills_in_what_an_entry_lacks(world: World) -> None:
    """Number and hash; an empty list is no list."""
    (entry, nothing) = world.vectors([1, 2], [])
    world.delete(0, msgspec.structs.replace(entry, cardinality=None, sha256=None), nothing)
    assert world.block(0).deletes == (entry,)
    world.delete(0, nothing)
    assert world.block(0).deletes == ()
    assert world.table.info().required_features == ()


def test_rows_come_back_by_rollback_and_time_travel(world: World) -> None:
    """Each snapshot has its own list."""
    before = world.table.info().snapshot_id
    world.delete(0, *world.vectors([1]))
    between = world.table.info().snapshot_id
    world.delete(0, *world.vectors([1, 2]))
    counts = [len(world.values("a < 4", snapshot_id=each)) for each in (before, between, None)]
    assert counts == [4, 3, 2]
    changed = world.table.diff(between, reader_features=FEATURES)
    assert [len(changed.added), len(changed.removed), changed.unchanged_blocks] == [1, 1, 2]
    world.table.rollback(before)
    assert world.values("a < 4") == [0, 1, 2, 3]
    world.table.rollback(between)
    assert world.values("a < 4") == [0, 2, 3]


def context(world: World) -> JobContext:
    """For jobs in this process."""
    return JobContext(lake=world.lake, table=world.name, engine=SerialEngine())


def test_compaction_leaves_deleted_rows_out(world: World) -> None:
    """The new file has the other rows, and requires nothing of its reader."""
    world.delete(0, *world.vectors([0, 50]))
    world.delete(1, *world.vectors([1, 2], [2, 3]))
    gone = {0, 50, 101, 102, 103}
    result = compact(context(world), Bounds())
    assert (result.blocks_before, result.blocks_after, result.rows) == (3, 1, 295)
    info = world.table.info()
    assert (info.row_count, info.live_row_count, info.required_features) == (295, 295, ())
    assert world.values() == [value for value in range(300) if value not in gone]
    assert world.table.verify(deep=True, sample=1.0).is_clean


def test_deleting_by_a_filter_counts_and_keeps_what_is_left(world: World) -> None:
    """Rows that are deleted already are neither counted nor brought back by a rewrite."""
    world.delete(0, *world.vectors([0, 50]))
    world.delete(1, *world.vectors([0, 1], [1, 2]))
    world.delete(2, *world.vectors([0]))
    done = delete_rows(context(world), "a < 10 OR a >= 100 AND a < 200")
    assert done.rows == 9 + 97
    assert world.values() == [value for value in [*range(10, 100), *range(201, 300)] if value != 50]
    assert world.table.info().deletes_count == 2
    done = delete_rows(context(world), "a > 5000 OR true")
    assert done.rows == 89 + 99
    assert world.values() == []


def test_a_rewrite_does_not_undo_an_earlier_delete(world: World) -> None:
    """The block that it read is not the current one any more."""
    read_at = world.table.info().snapshot_id
    block = world.block(0)
    world.delete(0, *world.vectors([1]))
    with pytest.raises(CommitConflict):
        world.table.commit([], [block.location], read_at, operation="delete")
    assert 0 in world.values()


def test_reports_about_blocks_with_deleted_rows_are_not_stored(world: World) -> None:
    """A rollback brings rows back that match."""
    world.table.commit(properties={"lamella.feedback.enabled": "true"}, operation="set")
    before = world.table.info().snapshot_id
    world.delete(0, *world.vectors([5]))
    assert world.table.scan("a = 5", feedback=True).to_arrow().num_rows == 0
    assert (
        world.table.report_empty("a = 5", world.files[:1], snapshot_id=world.table.info().snapshot_id).remembered == 0
    )
    world.table.rollback(before)
    assert world.values("a = 5") == [5]


def test_verify_reads_the_lists(world: World) -> None:
    """A list that is gone, or was changed, is found."""
    (entry,) = world.vectors([1])
    world.delete(0, entry)
    assert world.table.verify(deep=True, sample=1.0).is_clean
    path = Path(entry.location.removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data.replace(data[4:60], bytes(56)))
    assert {finding.code for finding in world.table.verify().findings} == {"deletes_damaged"}
    with pytest.raises(HashMismatch):
        world.values()
    path.unlink()
    assert {finding.code for finding in world.table.verify().findings} == {"deletes_damaged"}
