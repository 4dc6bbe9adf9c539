"""The clients and the command against a running service, over loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fixtures_server import ServerProcess, StartServer
from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.client.http import RetryPolicy
from lamella.snapshot.errors import (
    AlreadyExists,
    BlocksRefused,
    BodyTooLarge,
    CommitConflict,
    DuplicateBlock,
    IdempotencyMismatch,
    InvalidFilter,
    NamespaceNotEmpty,
    NamespaceNotFound,
    SegmentNotFound,
    SnapshotNotFound,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.schema import Column


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Five Parquet files of ten rows; `a` runs from 0 to 49."""
    made = []
    for n in range(5):
        path = tmp_path / "data" / f"{n}.parquet"
        path.parent.mkdir(exist_ok=True)
        rows = range(n * 10, n * 10 + 10)
        pq.write_table(pa.table({"a": pa.array(rows, pa.int64()), "s": [f"s{r}" for r in rows]}), path)
        made.append(f"file://{path}")
    return made


@pytest.fixture
def lake(server: ServerProcess) -> Iterator[Lamella]:
    """A client of a service with the namespace `db`."""
    with Lamella(server.url) as lake:
        lake.create_namespace("db", {"owner": "me"})
        yield lake


def test_a_tables_whole_life(lake: Lamella, files: list[str]) -> None:
    """Make, fill, look at, prune, change and drop a table through the sync client."""
    info = lake.create_table("db.t", schema_from=files[0], cluster_key=["a"], properties={"k": "v"})
    assert (info.cluster_key, info.properties, info.block_count) == (("a",), {"k": "v"}, 0)
    assert lake.tables("db") == ("t",)
    table = lake.table("db.t")
    registered = table.register(files)
    assert (registered.registered, registered.row_count, registered.refused) == (5, 50, ())
    assert table.info().snapshot_id == registered.snapshot_id

    answer = table.prune("a > 14 AND a < 25", ["a"], explain=True)
    assert sorted(answer.locations) == files[1:3]
    assert answer.report.blocks_total == 5
    assert [block.column_size_bytes for block in answer.records()] != [None, None]
    assert list(table.prune("a > 14 AND a < 25", ["a"], shape="records", explain=True).records()) == list(
        answer.records()
    )
    assert table.prune({"type": "gt", "term": "a", "value": 44}).locations == files[4:]
    assert table.prune("a > 100").block_count == 0

    removed = table.commit(removed=files[:1], base_snapshot_id=registered.snapshot_id, operation="delete")
    assert (removed.removed, removed.block_count) == (1, 4)
    assert table.prune().block_count == 4
    assert table.prune(snapshot_id=registered.snapshot_id).block_count == 5

    history = list(table.snapshots(page_size=1))
    assert [entry.operation for entry in history] == ["delete", "append", "create"]
    snapshot = table.snapshot(registered.snapshot_id)
    assert snapshot.summary.row_count == 50
    segment = table.segment(snapshot.segments[0].segment_id, snapshot_id=registered.snapshot_id)
    assert sorted(block.location for block in segment.blocks) == files

    with pytest.raises(NamespaceNotEmpty):
        lake.drop_namespace("db")
    lake.drop_table("db.t")
    lake.drop_namespace("db")
    assert lake.namespaces() == ()


def test_the_async_client_does_the_same(lake: Lamella, files: list[str]) -> None:
    """The twin makes, fills and prunes a table, with several requests under way at once."""

    async def go() -> None:
        async with AsyncLamella(lake.url) as twin:
            await twin.create_table("db.t", schema=[Column(name="a", type="bigint"), Column(name="s", type="string")])
            table = twin.table("db.t")
            await asyncio.gather(*(table.register([file]) for file in files))
            answers = await asyncio.gather(*(table.prune(f"a = {n}") for n in (3, 23, 43)))
            assert [answer.locations for answer in answers] == [[files[0]], [files[2]], [files[4]]]
            history = [entry async for entry in table.snapshots(page_size=2)]
            assert 2 <= len(history) <= 6, "registrations at one time may share a snapshot"

    asyncio.run(go())
    assert lake.table("db.t").prune().block_count == 5


def test_errors_arrive_as_their_own_class(lake: Lamella, files: list[str]) -> None:
    """What the service refuses raises the class that its code names, with the place."""
    with pytest.raises(AlreadyExists):
        lake.create_namespace("db")
    with pytest.raises(NamespaceNotFound):
        lake.tables("nowhere")
    with pytest.raises(TableNotFound):
        lake.table("db.t").info()
    lake.create_table("db.t", schema_from=files[0])
    table = lake.table("db.t")
    table.register(files)
    with pytest.raises(DuplicateBlock) as refused:
        table.register(files[:1])
    assert refused.value.details["refused"][0]["path"] == files[0]
    with pytest.raises(BlocksRefused) as missing:
        table.register(["file:///nowhere/x.parquet"])
    assert missing.value.details["refused"][0]["code"] == "object_not_found"
    with pytest.raises(InvalidFilter) as bad:
        table.prune("a = 1 AND )")
    assert bad.value.details["position"] == 10
    with pytest.raises(UnknownColumn):
        table.prune("b = 1")
    with pytest.raises(SnapshotNotFound):
        table.prune(snapshot_id="01a1fd35-daa7-7367-aa99-743f508a57f7")
    with pytest.raises(SegmentNotFound):
        table.segment("01a1fd35-daa7-7367-aa99-743f508a57f7")
    base = table.info().snapshot_id
    block = next(block for block in table.segment(table.snapshot(base).segments[0].segment_id).blocks)
    with pytest.raises(DuplicateBlock):
        table.commit(added=[block])
    table.commit(removed=files[:1], base_snapshot_id=base)
    with pytest.raises(CommitConflict):
        table.commit(removed=files[:1], base_snapshot_id=base)


def test_a_repeated_key_changes_nothing_twice(lake: Lamella, files: list[str]) -> None:
    """The same mutation under the same key has one effect and one answer; another one under it is refused."""
    lake.create_table("db.t", schema_from=files[0])
    table = lake.table("db.t")
    first = table.register(files[:2], idempotency_key="k1")
    assert table.register(files[:2], idempotency_key="k1") == first
    assert len(list(table.snapshots())) == 2
    with pytest.raises(IdempotencyMismatch):
        table.register(files[2:], idempotency_key="k1")


def test_a_body_over_the_limit_is_reported_as_such(start_server: StartServer, tmp_path: Path) -> None:
    """A body that the service does not take is a BodyTooLarge, not a lost connection, and the client goes on."""
    server = start_server(warehouse=tmp_path / "warehouse", max_body_bytes=2048)
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="a", type="int64")])
        with pytest.raises(BodyTooLarge):
            lake.table("db.t").register(["memory://" + "x" * 4096])
        assert lake.tables("db") == ("t",)


def test_a_client_outlives_the_service(lake: Lamella, server: ServerProcess) -> None:
    """A kept connection of a service that was killed is replaced after its restart."""
    patient = Lamella(lake.url, policy=RetryPolicy(attempts=5, base_delay_s=0.01))
    assert patient.namespaces()[0].properties == {"owner": "me"}
    server.kill()
    server.restart()
    assert patient.namespaces()[0].name == "db"
    patient.close()


def run(lake: Lamella, *args: str) -> Result:
    """A command against the service."""
    return CliRunner().invoke(cli, args, env={"LAMELLA_URL": lake.url})


def test_the_command_works_from_end_to_end(lake: Lamella, files: list[str], tmp_path: Path) -> None:
    """Make, fill and prune a table from the command line."""
    (tmp_path / "data" / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    folder = str(tmp_path / "data")
    assert run(lake, "namespaces", "create", "shop").exit_code == 0
    assert "shop" in run(lake, "namespaces", "list").stdout
    assert run(lake, "tables", "create", "shop.t", "--schema-from", f"{folder}/0.parquet").exit_code == 0
    done = run(lake, "register", "shop.t", *(f"{folder}/{n}.parquet" for n in range(5)), "--batch", "2")
    assert done.exit_code == 0
    assert "5 files with 50 rows" in done.stdout
    done = run(lake, "register", "shop.t", folder)
    assert done.exit_code == 1
    assert "broken.parquet" in done.stderr
    assert "append" in run(lake, "snapshots", "shop.t").stdout
    assert "int64" in run(lake, "tables", "show", "shop.t").stdout
    shown = run(lake, "prune", "shop.t", "a > 44 AND upper(s) = 'S45'", "--explain")
    assert "read 1 of 5 blocks" in shown.stdout
    assert "4.parquet" in shown.stdout
    answer = json.loads(run(lake, "prune", "shop.t", "a > 44", "--json").stdout)
    assert [block["location"] for block in answer["blocks"]] == files[4:]
    bad = run(lake, "prune", "shop.t", "a = 1 AND )")
    assert bad.exit_code == 1
    assert bad.stderr.splitlines()[-2:] == ["  a = 1 AND )", "            ^"]
    assert run(lake, "tables", "drop", "shop.t").exit_code == 0
    assert run(lake, "namespaces", "drop", "shop").exit_code == 0
