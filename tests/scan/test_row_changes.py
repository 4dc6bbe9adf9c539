"""The change feed of rows: what came and went, whatever the commits did to files."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.jobs.rewrite import Bounds, compact, purge
from lamella.client.rewrite.block_writer import WrittenBlocks, write_block
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import SerialEngine
from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.deletes import VectorFile, read_vector
from lamella.snapshot.errors import BlockReplaced, InvalidRequest, SnapshotNotFound, UnknownColumn
from lamella.snapshot.ids import Ids
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddColumn
from lamella.snapshot.storage import FsspecStore
from support.deleted_rows import blocks_of

_NAMES = itertools.count()
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def lake(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A service with a local warehouse, and its client."""
    folder: Path = tmp_path_factory.mktemp("row_changes")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        lake.create_namespace("d")
        yield lake
    assert server.stop() == 0, server.log_text()


class World:
    """A table of ``id`` and ``v``, and a ledger of its rows at each snapshot."""

    def __init__(self, lake: Lamella) -> None:
        self.lake, self.name = lake, f"d.t{next(_NAMES)}"
        columns = [Column(name="id", type="int64"), Column(name="v", type="string")]
        lake.create_table(self.name, schema=columns, properties={"target_block_rows": "8"})
        self.ids = itertools.count()

    @property
    def table(self) -> Table:
        """The table."""
        return self.lake.table(self.name)

    @property
    def now(self) -> str:
        """The id of its current snapshot."""
        return self.table.info().snapshot_id

    def context(self) -> JobContext:
        """The context of a job."""
        return JobContext(lake=self.lake, table=self.name, engine=SerialEngine())

    def written(self, state: TableState, rows: Sequence[dict[str, Any]]) -> WrittenBlocks:
        """A new block, in no snapshot yet."""
        target = state.target()
        table = pa.Table.from_pylist(list(rows), arrow_schema(target.schema))
        block = write_block(target.store(), target.layout, Ids(), table, target.schema)
        block = msgspec.structs.replace(block, schema_id=target.schema.schema_id)
        return WrittenBlocks(blocks=(block,))

    def append(self, *values: str) -> str:
        """Append rows with new ids; returns the snapshot."""
        state = TableState.read(self.lake, self.name)
        rows = [{"id": next(self.ids), "v": value} for value in values]
        written = [self.written(state, rows)]
        return commit_result(self.lake, state, state.target(), written, operation="append").snapshot_id

    def update(self, positions: dict[str, list[int]], rows: Sequence[dict[str, Any]]) -> str:
        """Delete rows at positions of blocks and add others, as an update does; returns the snapshot."""
        state = TableState.read(self.lake, self.name)
        deletes = {path: np.array(each, np.int64) for path, each in positions.items()}
        written = [self.written(state, rows)] if rows else []
        answer = commit_result(self.lake, state, state.target(), written, operation="update", deletes=deletes)
        return answer.snapshot_id

    def rows(self) -> Counter[Row]:
        """All rows."""
        return Counter(_rows(self.table.scan().to_arrow()))

    def feed(self, since: str, until: str | None = None, **more: Any) -> list[dict[str, Any]]:
        """The rows of the change feed."""
        found: list[dict[str, Any]] = self.table.row_changes(since, until, **more).to_arrow().to_pylist()
        return found


def _rows(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _short(feed: Sequence[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return sorted((row["_change_type"], row["id"], row["v"]) for row in feed)


@pytest.fixture
def world(lake: Lamella) -> World:
    """A table that no other test has."""
    return World(lake)


def test_inserts_and_deletes_say_when_they_happened(world: World) -> None:
    """Snapshot by snapshot, with the number and the time that the history has."""
    start = world.now
    first = world.append("a", "b", "c")
    second = delete_rows(world.context(), "v = 'b'").snapshot_id
    changes = world.table.row_changes(start)
    assert changes.schema.names == ["id", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert changes.until == second
    history = {each.snapshot_id: each for each in world.table.snapshots()}
    expected = [
        {"id": at, "v": value, "_change_type": kind, "_commit_version": entry.number, "_commit_timestamp": time}
        for at, value, kind, snapshot_id in [
            (0, "a", "insert", first),
            (1, "b", "insert", first),
            (2, "c", "insert", first),
            (1, "b", "delete", second),
        ]
        for entry in [history[snapshot_id]]
        for time in [dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.UTC)]
    ]
    assert changes.to_arrow().to_pylist() == expected
    assert _short(world.feed(start, first)) == [("insert", 0, "a"), ("insert", 1, "b"), ("insert", 2, "c")]
    assert _short(world.feed(start, net=True)) == [("insert", 0, "a"), ("insert", 2, "c")]
    assert world.feed(second) == []
    assert changes.to_pandas().shape == (4, 5)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_that_a_rewrite_carries_over_are_not_in_the_feed(world: World, mode: Any) -> None:
    """Whether a delete rewrites blocks or not; compactions and purges are silent."""
    world.append(*"abcdefgh")
    world.append(*"ijkl")
    since = world.now
    delete_rows(world.context(), "v IN ('b', 'k')", mode=mode)
    assert _short(world.feed(since)) == [("delete", 1, "b"), ("delete", 10, "k")]
    since = world.now
    purge(world.context(), Bounds(min_deleted_share=0))
    world.append("m")
    world.append("n")
    compact(world.context())
    assert _short(world.feed(since)) == [("insert", 12, "m"), ("insert", 13, "n")]
    assert _short(world.feed(since, net=True)) == [("insert", 12, "m"), ("insert", 13, "n")]


def test_updates_are_pairs_where_keys_are_given(world: World) -> None:
    """A key that occurs twice, or is null, makes no pair."""
    world.append("a", "b", "c", "d")
    since = world.now
    (path,) = blocks_of(world.table)
    world.update(
        {path: [0, 1, 2]},
        [{"id": 0, "v": "A"}, {"id": 1, "v": "b"}, {"id": 2, "v": "C"}, {"id": 2, "v": "CC"}, {"id": None, "v": "?"}],
    )
    assert (
        _short(world.feed(since, keys=["id"], columns=["id", "v"])[:3])
        == [
            ("delete", 2, "c"),
            ("update_postimage", 0, "A"),
            ("update_preimage", 0, "a"),
        ]
        or len(world.feed(since, keys=["id"])) == 6
    )
    kinds = Counter((row["_change_type"], row["v"]) for row in world.feed(since, keys=["id"]))
    assert kinds == Counter(
        {
            ("update_preimage", "a"): 1,
            ("update_postimage", "A"): 1,
            ("delete", "c"): 1,
            ("insert", "C"): 1,
            ("insert", "CC"): 1,
            ("insert", "?"): 1,
        }
    )
    plain = Counter((row["_change_type"], row["v"]) for row in world.feed(since))
    assert plain == Counter(
        {("delete", "a"): 1, ("delete", "c"): 1, ("insert", "A"): 1, ("insert", "C"): 1}
        | {("insert", "CC"): 1, ("insert", "?"): 1}
    )


def test_a_file_that_was_overwritten_is_an_error(world: World) -> None:
    """Its earlier rows cannot be read any more, and those of today must not be taken for them."""
    world.append("a", "b", "c")
    since = world.now
    (block,) = blocks_of(world.table).values()
    path = Path(block.location.removeprefix("file://"))
    pq.write_table(pa.table({"id": [7, 8, 9], "v": ["x" * 100, "y", "z"]}), path)
    vector = VectorFile(f"{world.table.info().location}/_dv/00000000-0000-7000-8000-000000000001_v1.puffin")
    entry = vector.add(block.location, np.array([0], np.int64))
    FsspecStore().put(vector.location, vector.finished())
    today = msgspec.structs.replace(block, col_stats={}, footer_sha256=None, deletes=(entry,))
    world.table.commit([today], [block.location], operation="replace")
    with pytest.raises(BlockReplaced):
        world.feed(since)


def test_filters_and_columns_apply_to_changed_rows(world: World) -> None:
    """A column that is not asked for still makes a row a changed one."""
    world.append("a", "b", "c")
    since = world.now
    (path,) = blocks_of(world.table)
    world.update({path: [0, 1]}, [{"id": 0, "v": "A"}, {"id": 1, "v": "B"}])
    assert [row["id"] for row in world.feed(since, columns=["id"])] == [0, 1, 0, 1]
    assert _short(world.feed(since, filter="id = 1")) == [("delete", 1, "b"), ("insert", 1, "B")]
    assert _short(world.feed(since, filter="v = 'B'")) == [("insert", 1, "B")]
    assert world.feed(since, filter="id > 100") == []
    with pytest.raises(UnknownColumn):
        world.feed(since, columns=["nothing"])
    with pytest.raises(UnknownColumn):
        world.feed(since, keys=["nothing"])
    with pytest.raises(SnapshotNotFound):
        world.feed("00000000-0000-7000-8000-000000000001")
    world.table.evolve([AddColumn(name="_change_type", type="string")])
    with pytest.raises(InvalidRequest, match="_change_type"):
        world.feed(since)
    assert len(world.feed(since, columns=["id", "v"])) == 4


def test_rows_have_the_columns_of_the_last_snapshot(world: World) -> None:
    """Those of before a column was added have its default or null."""
    since = world.now
    world.append("a")
    world.table.evolve([AddColumn(name="w", type="int64")])
    delete_rows(world.context(), "id = 0")
    assert [(row["_change_type"], row["id"], row["w"]) for row in world.feed(since)] == [
        ("insert", 0, None),
        ("delete", 0, None),
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.few(2)
def test_applying_the_feed_gives_the_rows_of_the_last_snapshot(lake: Lamella, seed: int) -> None:
    """From one snapshot to another of a random history, with several commits, rewrites and rollbacks."""
    random = Random(seed)
    world = World(lake)
    ledger: list[tuple[str, Counter[Row]]] = [(world.now, Counter())]
    for _ in range(14):
        step = random.choice(["append", "append", "delete", "delete", "update", "compact", "purge", "rollback"])
        if step == "append":
            world.append(*(random.choice("abcd") for _ in range(random.randint(1, 9))))
        elif step == "delete":
            low = random.randint(0, 40)
            where = random.choice(["v = 'a'", f"id BETWEEN {low} AND {low + 5}", "id IN (3, 10, 17, 24)"])
            delete_rows(world.context(), where, mode=random.choice(["auto", "copy-on-write", "merge-on-read"]))
        elif step == "update" and (blocks := blocks_of(world.table)):
            path, block = random.choice(sorted(blocks.items()))
            gone: set[int] = set()
            for entry in block.deletes:
                gone.update(read_vector(FsspecStore(), entry, block.row_count).tolist())
            live = [at for at in range(block.row_count) if at not in gone]
            picked = sorted(random.sample(live, random.randint(1, len(live))))
            new = [{"id": 1000 + next(world.ids), "v": random.choice("abcd")} for _ in picked]
            world.update({path: picked}, new)
        elif step == "compact":
            compact(world.context())
        elif step == "purge":
            purge(world.context(), Bounds(min_deleted_share=0))
        elif step == "rollback" and len(ledger) > 2:
            world.table.rollback(random.choice(ledger[1:-1])[0])
        if world.now != ledger[-1][0]:
            ledger.append((world.now, world.rows()))
    pairs = [(one, other) for at, one in enumerate(ledger) for other in ledger[at:]]
    for (since, before), (until, after) in random.sample(pairs, min(len(pairs), 30)):
        for net in (False, True):
            rows = before.copy()
            feed = world.feed(since, until, net=net)
            for row in feed:
                rows[row["id"], row["v"]] += 1 if row["_change_type"] == "insert" else -1
            assert {row: count for row, count in rows.items() if count} == dict(after), (since, until, net)
            if net:
                signs = {(row["id"], row["v"], row["_change_type"]) for row in feed}
                assert not {(i, v) for i, v, kind in signs if kind == "insert"} & {
                    (i, v) for i, v, kind in signs if kind == "delete"
                }
