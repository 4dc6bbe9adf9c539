"""Commits that delete rows of blocks, over HTTP: what is refused, what merges, what depends on other tables."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lamella.client.jobs.delete import DeleteResult, delete_rows
from lamella.client.jobs.rewrite import Bounds, compact, plan, purge
from lamella.client.rewrite.commit import TableState, write_vectors
from lamella.client.rewrite.engine import SerialEngine
from lamella.snapshot.delete_policy import DeleteMode
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.errors import (
    BlocksRefused,
    CommitConflict,
    InvalidRequest,
    LamellaError,
    ReadConflict,
    SnapshotNotFound,
)
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.wire import BlockDeletes, TableRead
from support.deleted_rows import blocks_of

ROWS = 100
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def lake(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A service with a local warehouse, and its client."""
    folder = tmp_path_factory.mktemp("commit_deletes")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        lake.create_namespace("d")
        yield lake
    assert server.stop() == 0, server.log_text()


class World:
    """A table of four blocks with ``a`` from 0 to 399, ``b`` its remainder by 7."""

    def __init__(self, lake: Lamella, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.lake, self.name = lake, f"d.c{next(_NAMES)}"
        columns = [Column(name=column, type="int64") for column in "ab"]
        lake.create_table(self.name, schema=columns, properties=properties)
        self.files = []
        for number in range(4):
            values = range(number * ROWS, (number + 1) * ROWS)
            path = folder / f"{self.name}.{number}.parquet"
            pq.write_table(pa.table({"a": list(values), "b": [each % 7 for each in values]}), path)
            self.files.append(path.as_uri())
        self.table.register(self.files)

    @property
    def table(self) -> Table:
        """The table."""
        return self.lake.table(self.name)

    @property
    def layout(self) -> TableLayout:
        """Its folder."""
        return TableLayout(self.table.info().location)

    def vectors(self, rows: Mapping[int, Sequence[int]], snapshot_id: str | None = None) -> list[BlockDeletes]:
        """Vectors of blocks, by number, with these rows and those that are deleted in a snapshot."""
        state = TableState.read(self.lake, self.name, snapshot_id=snapshot_id)
        positions = {self.files[number]: np.array(sorted(each), np.int64) for number, each in rows.items()}
        return write_vectors(self.lake, state, state.target(), positions)[0]

    def values(self) -> list[int]:
        """``a`` of all rows."""
        return sorted(self.table.scan(columns=["a"]).to_arrow()["a"].to_pylist())

    def context(self) -> JobContext:
        """The context of a job on the table."""
        return JobContext(lake=self.lake, table=self.name, engine=SerialEngine())

    def delete(self, where: str, mode: DeleteMode | None = None) -> DeleteResult:
        """Delete rows by a filter."""
        return delete_rows(self.context(), where, mode=mode)


@pytest.fixture
def world(lake: Lamella, tmp_path: Path) -> World:
    """A table that no other test has."""
    return World(lake, tmp_path)


def test_a_commit_deletes_rows_and_says_how_many_blocks_changed(world: World) -> None:
    """The files stay, the history names the change, and a key makes it happen once."""
    base = world.table.info().snapshot_id
    sent = world.vectors({0: [1, 2], 3: [99]})
    given: dict[str, Any] = {"deletes": sent, "base_snapshot_id": base, "operation": "delete", "row_change": "delete"}
    answers = [world.table.commit(**given, idempotency_key="once") for _ in range(2)]
    assert answers[0] == answers[1]
    assert (answers[0].changed, answers[0].added, answers[0].removed, answers[0].block_count) == (2, 0, 0, 4)
    assert world.values() == [value for value in range(400) if value not in (1, 2, 399)]
    info = world.table.info()
    assert (info.row_count, info.live_row_count, info.block_count) == (400, 397, 4)
    assert world.table.snapshot(info.snapshot_id).row_changes == ("delete",)


def _damaged(world: World) -> list[BlockDeletes]:
    location = world.layout.deletes("00000000-0000-7000-8000-000000000001")
    file = VectorFile(location)
    entry = file.add(world.files[0], np.array([1], np.int64))
    FsspecStore().put(location, file.finished().replace(b"\xd1\xd3\x39\x64", b"\xd1\xd3\x39\x65"))
    return [BlockDeletes(location=world.files[0], deletes=entry)]


def _of_too_many_rows(world: World) -> list[BlockDeletes]:
    location = world.layout.deletes("00000000-0000-7000-8000-000000000002")
    file = VectorFile(location)
    entry = file.add(world.files[0], np.array([ROWS], np.int64))
    FsspecStore().put(location, file.finished())
    return [BlockDeletes(location=world.files[0], deletes=entry)]


def _elsewhere(world: World) -> list[BlockDeletes]:
    (sent,) = world.vectors({0: [1]})
    location = sent.deletes.location.replace(world.table.info().table_id, "01a218e0-0000-7000-8000-000000000001")
    entry = msgspec.structs.replace(sent.deletes, location=location)
    return [BlockDeletes(location=world.files[0], deletes=entry)]


def _twice(world: World) -> list[BlockDeletes]:
    return world.vectors({0: [1]}) * 2


def _unknown(world: World) -> list[BlockDeletes]:
    (sent,) = world.vectors({0: [1]})
    return [msgspec.structs.replace(sent, location=world.files[0].replace(".0.", ".9."))]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (_damaged, BlocksRefused),
        (_of_too_many_rows, BlocksRefused),
        (_elsewhere, InvalidRequest),
        (_twice, InvalidRequest),
        (_unknown, CommitConflict),
    ],
)
def test_vectors_that_cannot_be_meant_are_refused(world: World, make: Any, error: type[LamellaError]) -> None:
    """Nothing is committed."""
    before = world.table.info().snapshot_id
    with pytest.raises(error):
        world.table.commit(deletes=make(world), base_snapshot_id=before)
    assert world.table.info().snapshot_id == before


def test_a_vector_without_the_rows_that_are_deleted_already_is_refused(world: World) -> None:
    """It would bring them back."""
    world.delete("a = 5")
    base = world.table.info().snapshot_id
    location = world.layout.deletes("00000000-0000-7000-8000-000000000003")
    file = VectorFile(location)
    entry = file.add(world.files[0], np.array([7], np.int64))
    FsspecStore().put(location, file.finished())
    with pytest.raises(BlocksRefused, match="lacks rows"):
        world.table.commit(deletes=[BlockDeletes(location=world.files[0], deletes=entry)], base_snapshot_id=base)
    assert 5 not in world.values()


@pytest.mark.parametrize(
    "given",
    [
        {"row_change": "append"},
        {"row_change": "replace"},
        {"removed": True},
        {"base_snapshot_id": None},
    ],
)
def test_members_that_contradict_each_other_are_refused(world: World, given: dict[str, Any]) -> None:
    """A deletion is no append and no replacement, a block is not removed and changed, and a vector has a base."""
    request: dict[str, Any] = {"deletes": world.vectors({0: [1]}), "base_snapshot_id": world.table.info().snapshot_id}
    request.update({**given, "removed": [world.files[0]]} if given.get("removed") else given)
    with pytest.raises(InvalidRequest):
        world.table.commit(**request)


def test_deletes_made_on_one_snapshot_merge(world: World) -> None:
    """One after the other, and from several threads at once."""
    base = world.table.info().snapshot_id
    sent = [world.vectors({number: [at, at + 1] for number in range(4)}) for at in range(8)]
    failures: list[Exception] = []

    def send(vectors: list[BlockDeletes]) -> None:
        try:
            with Lamella(world.lake.url) as lake:
                lake.table(world.name).commit(deletes=vectors, base_snapshot_id=base, row_change="delete")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(each,)) for each in sent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert world.values() == [value for value in range(400) if value % ROWS > 8]
    assert all(len(block.deletes) == 1 for block in blocks_of(world.table).values())


def test_a_vector_is_never_applied_twice(world: World) -> None:
    """Sent again without a key, it deletes nothing more; a row that came back by a rollback stays."""
    base = world.table.info().snapshot_id
    sent = world.vectors({0: [1]})
    world.table.commit(deletes=sent, base_snapshot_id=base, row_change="delete")
    world.table.commit(deletes=sent, base_snapshot_id=base, row_change="delete")
    assert world.table.info().live_row_count == 399
    after = world.table.info().snapshot_id
    world.table.rollback(base)
    more = world.vectors({0: [2]}, snapshot_id=after)
    world.table.commit(deletes=more, base_snapshot_id=after, row_change="delete")
    assert world.values() == [value for value in range(400) if value != 2]


def test_of_two_commits_that_read_each_others_table_one_is_refused(lake: Lamella, tmp_path: Path) -> None:
    """Otherwise "delete A if B has rows" and "delete B if A has rows" would both happen (write skew)."""
    for _ in range(5):
        one, other = World(lake, tmp_path), World(lake, tmp_path)
        outcomes: list[LamellaError | None] = [None, None]
        barrier = threading.Barrier(2)
        reads = [
            TableRead(table=each.name, snapshot_id=each.table.info().snapshot_id, filter="a < 10")
            for each in (other, one)
        ]

        def run(
            number: int,
            world: World,
            read: TableRead,
            outcomes: list[LamellaError | None] = outcomes,
            barrier: threading.Barrier = barrier,
        ) -> None:
            vectors, base = world.vectors({0: range(10)}), world.table.info().snapshot_id
            with Lamella(world.lake.url) as own:
                barrier.wait()
                try:
                    own.table(world.name).commit(deletes=vectors, base_snapshot_id=base, reads=[read])
                except LamellaError as error:
                    outcomes[number] = error

        threads = [
            threading.Thread(target=run, args=(number, world, read))
            for number, (world, read) in enumerate(zip((one, other), reads, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [each for each in outcomes if each is not None]
        assert len(refused) == 1
        assert isinstance(refused[0], ReadConflict)
        assert sorted((len(one.values()), len(other.values()))) == [390, 400]


def test_a_commit_depends_only_on_the_rows_that_it_read(lake: Lamella, tmp_path: Path) -> None:
    """Other rows of the table may change, and a compaction changes none."""
    own, read = World(lake, tmp_path), World(lake, tmp_path)

    def commit(filter: str | None, snapshot_id: str) -> None:
        own.table.commit(
            deletes=own.vectors({0: [own.values()[0]]}),
            base_snapshot_id=own.table.info().snapshot_id,
            reads=[TableRead(table=read.name, snapshot_id=snapshot_id, filter=filter)],
        )

    then = read.table.info().snapshot_id
    read.delete("a = 350")
    commit("a < 100", then)
    with pytest.raises(ReadConflict) as caught:
        commit("a > 300", then)
    assert caught.value.details["table"] == read.name
    then = read.table.info().snapshot_id
    assert compact(read.context()).blocks_before == 4
    commit(None, then)
    with pytest.raises(InvalidRequest):
        commit("nothing = 1", then)
    with pytest.raises(SnapshotNotFound):
        commit(None, "00000000-0000-7000-8000-000000000009")


def test_few_rows_are_deleted_by_vectors_and_many_by_rewriting(world: World) -> None:
    """A quarter of a block's rows is the limit, deleted ones included; the table's properties and a call change it."""
    few = world.delete("a < 20")
    assert (few.rows, few.vectors, few.rewritten, few.bytes_written) == (20, 1, 0, 0)
    more = world.delete("a < 30")
    assert (more.rows, more.vectors, more.rewritten) == (10, 0, 1)
    forced = world.delete("a >= 100 AND a < 190", mode="merge-on-read")
    assert (forced.rows, forced.vectors, forced.rewritten) == (90, 1, 0)
    world.table.commit(operation="alter", properties={"write.delete.mode": "copy-on-write"})
    rewritten = world.delete("a = 250")
    assert (rewritten.rows, rewritten.vectors, rewritten.rewritten) == (1, 0, 1)
    world.table.commit(
        operation="alter", properties={"write.delete.mode": "auto", "write.delete.max_deleted_share": "0.5"}
    )
    half = world.delete("a >= 300 AND a < 350")
    assert (half.rows, half.vectors, half.rewritten) == (50, 1, 0)
    whole = world.delete("a >= 300")
    assert (whole.rows, whole.emptied + whole.dropped, whole.vectors, whole.rewritten) == (50, 1, 0, 0)
    assert world.values() == [*range(30, 100), *range(190, 250), *range(251, 300)]
    assert world.table.snapshot(whole.snapshot_id).row_changes == ("delete",)


@pytest.mark.parametrize(
    "properties",
    [
        {"write.delete.mode": "sometimes"},
        {"write.delete.max_deleted_share": "1.5"},
        {"write.delete.max_deleted_share": "x"},
    ],
)
def test_an_invalid_policy_is_refused_when_it_is_set(world: World, properties: dict[str, str]) -> None:
    """And not by the next delete."""
    with pytest.raises(InvalidRequest, match=next(iter(properties))):
        world.table.commit(operation="alter", properties=properties)


def test_an_unknown_mode_of_a_delete_is_refused(world: World) -> None:
    """It is no silent copy-on-write."""
    with pytest.raises(InvalidRequest, match="mode is one of auto, copy-on-write, merge-on-read, not 'fast'"):
        world.delete("a < 20", mode="fast")  # type: ignore[arg-type]


def test_a_delete_beside_another_delete_and_a_compaction_is_repeated_where_needed(world: World) -> None:
    """What others deleted merges at once; blocks that they rewrote are read again."""
    world.delete("a = 1")

    class Between(SerialEngine):
        def run(self, stage: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            yield from super().run(stage, tasks)
            if changes:
                changes.pop()()

    changes: list[Callable[[], object]] = [lambda: world.delete("b = 3 AND a < 50")]
    context = msgspec.structs.replace(world.context(), engine=Between())
    merged = delete_rows(context, "a IN (2, 3)")
    assert (merged.rows, merged.tries) == (2, 1)
    changes = [lambda: compact(world.context())]
    again = delete_rows(msgspec.structs.replace(world.context(), engine=Between()), "a IN (4, 105)")
    assert (again.rows, again.tries) == (2, 2)
    gone = {1, 2, 3, 4, 105, *(value for value in range(50) if value % 7 == 3)}
    assert world.values() == [value for value in range(400) if value not in gone]


def test_a_purge_writes_blocks_without_their_deleted_rows(world: World) -> None:
    """Those with a tenth of their rows deleted, the worst first, or any; other blocks stay, and no reader sees it."""
    world.delete("a < 15 OR a = 100 OR (a >= 200 AND a < 220)")
    before = world.values()
    planned = plan(world.context(), "purge", Bounds())
    assert [task.blocks[0].location for task in planned.tasks] == [world.files[2], world.files[0]]
    assert [task.row_count for task in planned.tasks] == [80, 85]
    limited = plan(world.context(), "purge", Bounds(max_blocks=1))
    assert (len(limited.tasks), limited.remaining_blocks) == (1, 1)
    none = purge(world.context(), Bounds(where="a > 300"))
    assert (none.tasks, none.snapshot_id) == (0, None)
    done = purge(world.context())
    assert (done.tasks, done.rows, done.blocks_before, done.blocks_after) == (2, 165, 2, 2)
    blocks = blocks_of(world.table)
    assert {path for path, block in blocks.items() if block.deletes} == {world.files[1]}
    assert world.files[3] in blocks
    assert world.values() == before
    assert purge(world.context(), Bounds(min_deleted_share=0)).tasks == 1
    info = world.table.info()
    assert (info.deletes_count, info.live_row_count, info.row_count) == (0, len(before), len(before))
    assert info.required_features == ()
    assert world.table.snapshot(info.snapshot_id).row_changes == ("replace",)
    assert world.table.verify(deep=True, sample=1.0).is_clean


def test_a_purge_from_the_command_line(world: World) -> None:
    """The plan first, then the work."""
    world.delete("a < 15")
    runner = CliRunner()
    url = ["--url", world.lake.url, "--engine", "local", "--processes", "1"]
    planned = runner.invoke(cli, ["purge", world.name, "--dry-run", "--json", *url], catch_exceptions=False)
    assert planned.exit_code == 0, planned.output
    assert len(msgspec.json.decode(planned.stdout)["tasks"]) == 1
    done = runner.invoke(cli, ["purge", world.name, *url], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert world.table.info().deletes_count == 0


def test_compaction_counts_rows_that_are_left(lake: Lamella, tmp_path: Path) -> None:
    """A block of which most rows are deleted is small, whatever its file has."""
    world = World(lake, tmp_path, {"target_block_rows": "100"})
    assert not plan(world.context(), "compact", Bounds()).tasks
    for low in (0, 100):
        world.delete(f"a >= {low} AND a < {low + 70}", mode="merge-on-read")
    (task,) = plan(world.context(), "compact", Bounds()).tasks
    assert (len(task.blocks), task.row_count, task.pieces) == (2, 60, 1)
    done = compact(world.context())
    assert (done.blocks_before, done.blocks_after, done.rows) == (2, 1, 60)
    assert world.values() == [*range(70, 100), *range(170, 400)]


def test_the_plan_of_readers_names_one_vector_for_each_block(world: World) -> None:
    """However often rows of it were deleted."""
    for value in (1, 2, 150, 151):
        world.delete(f"a = {value}")
    answer = world.table.prune(None, reader_features=FEATURES)
    counts = {block.location: [entry.cardinality for entry in block.deletes or ()] for block in answer.records()}
    assert counts == {world.files[0]: [2], world.files[1]: [2], world.files[2]: [], world.files[3]: []}
