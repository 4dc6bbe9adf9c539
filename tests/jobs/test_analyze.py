"""Analysis: blocks get the statistics of their values, beside other writers, and their rows stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.cli.app import cli
from lamella.client.http import Table
from lamella.client.jobs.analyze import analyze
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.jobs.rewrite import compact
from lamella.client.rewrite.commit import TableState, write_vectors
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.rewrite.stages import Stage
from lamella.snapshot.errors import InvalidRequest, JobCancelled, UnknownColumn
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse.manifests import Manifests

BLOCKS = 4
ROWS = 60
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def lake(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A service with a local warehouse, and its client."""
    folder = tmp_path_factory.mktemp("analyze")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        lake.create_namespace("z")
        yield lake
    assert server.stop() == 0, server.log_text()


def rows_of(block: int) -> pa.Table:
    """Rows with nulls, NaN, long texts and values of several types."""
    at = range(block * ROWS, (block + 1) * ROWS)
    return pa.table(
        {
            "a": pa.array(list(at), pa.int64()),
            "b": pa.array([None if i % 7 == 0 else i % 5 for i in at], pa.int32()),
            "f": pa.array([float("nan") if i % 9 == 0 else i / 4 for i in at], pa.float64()),
            "s": pa.array([f"{'x' * (i % 80)}{i:04}" for i in at]),
            "m": pa.array([Decimal(i) / 100 for i in at], pa.decimal128(14, 2)),
            "l": pa.array([[i, i + 1] for i in at], pa.list_(pa.int64())),
        }
    )


class World:
    """A table of files that another writer wrote without statistics."""

    def __init__(self, lake: Lamella, folder: Path, **options: Any) -> None:
        self.lake, self.name = lake, f"z.t{next(_NAMES)}"
        self.files = []
        for number in range(BLOCKS):
            path = folder / f"{self.name}.{number}.parquet"
            pq.write_table(rows_of(number), path, **{"write_statistics": False, **options})
            self.files.append(path.as_uri())
        lake.create_table(self.name, schema_from=self.files[0])
        self.table.register(self.files)

    @property
    def table(self) -> Table:
        """The table."""
        return self.lake.table(self.name)

    def context(self, engine: Any = None, **more: Any) -> JobContext:
        """The context of a job on the table."""
        return JobContext(lake=self.lake, table=self.name, engine=engine or SerialEngine(), **more)

    def blocks(self) -> dict[str, Block]:
        """The blocks of the current snapshot, as manifests have them, by location."""
        snapshot = TableState.read(self.lake, self.name).snapshot
        manifests = Manifests(FsspecStore(), 1 << 20)
        return {block.location: block for ref in manifests.refs(snapshot) for block in manifests.segment(ref).blocks}

    def counts(self) -> dict[str, int]:
        """The number of distinct values of each column."""
        return dict(self.table.info().distinct_of_values)

    def values(self) -> list[int]:
        """``a`` of all rows."""
        return sorted(self.table.scan(columns=["a"]).to_arrow()["a"].to_pylist())


class Meddling(SerialEngine):
    """Does something else when a stage has read the blocks."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`SerialEngine`."""
        yield from super().run(stage, tasks)
        self._then()


@pytest.fixture
def world(lake: Lamella, tmp_path: Path) -> World:
    """A table that no other test has."""
    return World(lake, tmp_path)


def test_blocks_get_the_statistics_of_their_values(world: World) -> None:
    """As if their values had been read at registration, in one commit of the same rows; then nothing is left."""
    verified = f"z.t{next(_NAMES)}"
    world.lake.create_table(verified, schema_from=world.files[0])
    world.lake.table(verified).register(world.files, verify=True)
    before = world.blocks()
    assert world.counts() == {}
    assert len(world.table.prune("a = 70").locations) == BLOCKS
    done = analyze(world.context())
    assert (done.blocks, done.rows, done.failures, done.remaining_blocks) == (BLOCKS, BLOCKS * ROWS, (), 0)
    assert len(world.table.prune("a = 70").locations) == 1
    expected = World.__new__(World)
    expected.lake, expected.name = world.lake, verified
    after = world.blocks()
    schema = TableState.read(world.lake, world.name).snapshot.schema
    ids = [schema.leaf(name).id for name in ("a", "b", "f", "s", "m")]
    for each in expected.blocks().values():
        for column_id in ids:
            assert after[each.location].col_stats[column_id] == each.col_stats[column_id]
            assert each.col_stats[column_id].source == "scan"
    assert world.counts() == expected.counts() != {}
    for location, block in after.items():
        assert (block.footer_sha256, block.content_id) == (before[location].footer_sha256, before[location].content_id)
    last = next(iter(world.table.snapshots()))
    assert (last.snapshot_id, last.operation) == (done.snapshot_id, "analyze")
    assert world.table.snapshot(last.snapshot_id).row_changes == ("replace",)
    again = analyze(world.context())
    assert (again.blocks, again.unchanged, again.snapshot_id) == (0, 0, None)
    (change,) = world.table.changes(last.prev_snapshot_id)
    assert (change.added, change.removed) == ((), ())
    assert world.table.row_changes(last.prev_snapshot_id).to_arrow().num_rows == 0
    assert world.values() == list(range(BLOCKS * ROWS))


def test_columns_and_limits_leave_the_rest_to_other_runs(world: World) -> None:
    """What was analyzed stays, with its sketches, when other columns and blocks follow."""
    first = analyze(world.context(), ["a"], max_blocks=2)
    assert (first.blocks, first.remaining_blocks) == (2, 2)
    assert world.counts() == {}
    assert analyze(world.context(), ["a"], max_bytes=1).blocks == 1
    assert analyze(world.context(), ["a"]).blocks == 1
    assert world.counts().keys() == {"a"}
    assert abs(world.counts()["a"] - BLOCKS * ROWS) < 20
    assert analyze(world.context(), ["b", "s"]).blocks == BLOCKS
    assert world.counts().keys() == {"a", "b", "s"}
    assert world.counts()["b"] == 5
    with pytest.raises(UnknownColumn):
        analyze(world.context(), ["nowhere"])
    with pytest.raises(InvalidRequest, match="no statistics of values"):
        analyze(world.context(), ["l.element"])


def test_blocks_of_lamella_are_not_read(world: World) -> None:
    """Their statistics come from their values; only registered blocks beside them are read."""
    world.table.append(rows_of(9))
    assert "a" not in world.counts()
    assert analyze(world.context()).blocks == BLOCKS
    assert "a" in world.counts()


def test_blocks_that_others_change_are_left_out(world: World) -> None:
    """A block of which rows were deleted meanwhile is not replaced; the others are, and no row is lost."""
    gone = [1, 2, 3]

    def delete() -> None:
        delete_rows(world.context(), f"a IN ({', '.join(map(str, gone))})", mode="merge-on-read")

    done = analyze(world.context(Meddling(delete)))
    assert (done.blocks, done.conflicts) == (BLOCKS - 1, 1)
    assert world.values() == [value for value in range(BLOCKS * ROWS) if value not in gone]
    following = analyze(world.context())
    assert (following.blocks, following.conflicts) == (1, 0)
    assert world.values() == [value for value in range(BLOCKS * ROWS) if value not in gone]
    assert world.table.info().live_row_count == BLOCKS * ROWS - len(gone)


def test_blocks_that_others_rewrite_are_left_out(world: World) -> None:
    """A compaction that comes first wins: its blocks have the statistics of their values anyway."""
    done = analyze(world.context(Meddling(lambda: compact(world.context()))))
    assert (done.blocks, done.conflicts, done.snapshot_id) == (0, BLOCKS, None)
    assert world.values() == list(range(BLOCKS * ROWS))
    assert analyze(world.context()).blocks == 0


def test_changes_that_were_planned_before_still_commit(world: World) -> None:
    """The rows are the same, so a deletion of rows and a compaction that read the blocks before are no conflicts."""
    state = TableState.read(world.lake, world.name)
    sent, _ = write_vectors(world.lake, state, state.target(), {world.files[1]: np.array([0, 5], np.int64)})
    analyze(world.context())
    world.table.commit(deletes=sent, base_snapshot_id=state.snapshot.snapshot_id, operation="delete")
    left = [value for value in range(BLOCKS * ROWS) if value not in (ROWS, ROWS + 5)]
    assert world.values() == left
    changed = world.blocks()[world.files[1]]
    assert changed.col_stats[1].source == "scan"

    done = compact(world.context(Meddling(lambda: analyze(world.context()))))
    assert done.blocks_before == BLOCKS
    assert world.values() == left


def test_skip_indexes_still_cover_the_blocks(world: World) -> None:
    """An index knows blocks by their files, which are the same."""
    world.table.create_index("by_s", "bloom", "s")
    world.table.refresh_index("by_s")
    analyze(world.context())
    coverage = world.table.index("by_s").coverage
    assert coverage is not None
    assert (coverage.indexed, coverage.not_indexed) == (BLOCKS, 0)


def test_an_interrupted_analysis_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed is not read again."""
    monkeypatch.setattr("lamella.client.jobs.analyze._COMMIT_BLOCKS", 1)
    seen: list[int] = []
    context = world.context(on_progress=lambda done, _total, _unit: seen.append(done), cancelled=lambda: len(seen) == 2)
    with pytest.raises(JobCancelled):
        analyze(context)
    assert seen == sorted(seen)
    assert len(seen) == 2
    assert analyze(world.context()).blocks == BLOCKS - 2
    assert "a" in world.counts()


def test_a_block_that_cannot_be_read_is_reported(world: World) -> None:
    """It stays as it was; the command says which, and exits with 1."""
    path = Path(world.files[2].removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data[:8] + bytes(len(data) // 2 - 8) + data[len(data) // 2 :])
    url = ["--url", world.lake.url]
    result = CliRunner().invoke(cli, ["analyze", world.name, "--columns", "a, s", "--processes", "1", *url])
    assert result.exit_code == 1, result.output
    assert world.files[2] in result.output
    assert f"{BLOCKS - 1} blocks" in result.output
    (left,) = analyze(world.context(), ["a"]).failures
    assert left.location == world.files[2]
    assert world.blocks()[world.files[2]].col_stats[1].source == "footer"


def test_a_table_that_follows_a_source_is_read_by_a_refresh(lake: Lamella, tmp_path: Path) -> None:
    """Analysis refuses it and says what reads its values; that refresh does."""
    name = f"z.t{next(_NAMES)}"
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(2):
        pq.write_table(rows_of(number), folder / f"{number}.parquet", write_statistics=False)
    lake.create_external(name, {"kind": "directory", "location": folder.as_uri()})
    with pytest.raises(InvalidRequest, match="full and verify"):
        analyze(JobContext(lake=lake, table=name, engine=SerialEngine()))
    lake.table(name).refresh()
    assert "a" not in lake.table(name).info().distinct_of_values
    lake.table(name).refresh("full", verify=True)
    assert "a" in lake.table(name).info().distinct_of_values
