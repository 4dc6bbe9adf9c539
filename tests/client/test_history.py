"""A table's past through the clients and the command, over a running service."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fixtures_server import ServerProcess
from lamella.client.cli.app import cli
from lamella.client.http import AsyncLamella, Lamella, Table
from lamella.client.http.history import ChangesPages
from lamella.client.http.maintenance import SnapshotLease
from lamella.snapshot.errors import (
    AlreadyExists,
    BlocksGone,
    CommitConflict,
    InvalidRequest,
    NotAppendOnly,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
    from_code,
)
from lamella.snapshot.schema import Column
from lamella.snapshot.wire import ChangesAnswer, LeaseInfo, PrunedBlock, SnapshotChanges


@pytest.fixture
def lake(server: ServerProcess) -> Iterator[Lamella]:
    """A client of a service with the namespace ``db``."""
    with Lamella(server.url) as lake:
        lake.create_namespace("db")
        yield lake


@pytest.fixture
def grown(lake: Lamella, tmp_path: Path) -> tuple[Table, list[str], list[str]]:
    """A table to which three files of ten numbers were appended one by one; the files, and the snapshots' ids."""
    lake.create_table("db.t", schema=[Column(name="a", type="int64")])
    table = lake.table("db.t")
    ids, files = [table.info().snapshot_id], []
    for turn in range(3):
        file = tmp_path / f"{turn}.parquet"
        pq.write_table(pa.table({"a": range(10 * turn, 10 * turn + 10)}), file)
        files.append(f"file://{file}")
        ids.append(table.register([files[-1]]).snapshot_id)
    return table, files, ids


def locations(blocks: tuple[PrunedBlock, ...]) -> list[str]:
    """Where blocks are."""
    return [block.location for block in blocks]


def test_tags_name_snapshots_for_every_question(grown: tuple[Table, list[str], list[str]]) -> None:
    """Made, moved, listed and dropped; with an end by time or by age."""
    table, files, ids = grown
    assert table.tag("first", ids[1]).snapshot_id == ids[1]
    with pytest.raises(AlreadyExists):
        table.tag("first")
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    moved = table.tag("first", ids[2], move=True, expires_at=end)
    assert (moved.snapshot_id, moved.expires_at_ms) == (ids[2], int(end.timestamp() * 1000))
    aged = table.tag("aged", "first", max_age=dt.timedelta(hours=1))
    assert aged.expires_at_ms is not None
    assert [tag.name for tag in table.tags()] == ["aged", "first"]
    assert table.prune(snapshot_id="first").locations == files[:2]
    assert table.scan(snapshot_id="first").count() == 20
    assert table.scan("a >= 5", snapshot_id="first").to_arrow().num_rows == 15
    assert table.aggregate(["count(*)"], snapshot_id="first").records() == [{"count(*)": 20}]
    assert [page.block_count for page in table.prune_pages(snapshot_id="first", page_size=1)] == [1, 1]
    assert table.snapshot("first").snapshot_id == ids[2]
    assert locations(table.diff("first").added) == files[2:]
    assert [info.snapshot_id for info in table.snapshots(snapshot_id="first", page_size=1)] == ids[2::-1]
    times = {info.snapshot_id: info.timestamp_ms for info in table.snapshots()}
    assert [info.tags for info in table.snapshots(timestamp=times[ids[2]])] == [("aged", "first"), (), ()]
    assert locations(table.diff(from_timestamp=times[ids[0]], to_timestamp=times[ids[1]]).added) == files[:1]
    table.drop_tag("first")
    with pytest.raises(TagNotFound):
        table.drop_tag("first")
    with pytest.raises(SnapshotNotFound):
        table.prune(snapshot_id="first")


def test_a_rollback_and_its_refusals(grown: tuple[Table, list[str], list[str]]) -> None:
    """To a tag or a time, on the base that was meant, and only when the files are there."""
    table, files, ids = grown
    table.tag("good", ids[1])
    with pytest.raises(CommitConflict):
        table.rollback("good", base_snapshot_id=ids[1])
    done = table.rollback("good", base_snapshot_id=ids[3])
    assert (done.restored_snapshot_id, done.prev_snapshot_id, done.removed) == (ids[1], ids[3], 2)
    assert table.prune().locations == files[:1]
    Path(files[2].removeprefix("file://")).unlink()
    with pytest.raises(BlocksGone) as caught:
        table.rollback(ids[3])
    assert caught.value.details["blocks"] == files[2:]
    with pytest.raises(InvalidRequest):
        table.rollback()
    with pytest.raises(InvalidRequest):
        table.rollback("good", timestamp=1)


def test_changes_are_iterated_snapshot_by_snapshot(grown: tuple[Table, list[str], list[str]]) -> None:
    """However small the pages are; a reader goes on from the last snapshot."""
    table, files, ids = grown
    changes = list(table.changes(ids[0]))
    assert [each.snapshot_id for each in changes] == ids[1:]
    assert [locations(each.added) for each in changes] == [[file] for file in files]
    assert list(table.changes(ids[0], page_size=1)) == changes
    assert list(table.changes(ids[3])) == []
    (net,) = table.changes(ids[1], filter={"type": "gt", "term": "a", "value": 25}, net=True)
    assert locations(net.added) == files[2:]
    (sized,) = table.changes(ids[0], ids[1], columns=["a"])
    assert sized.added[0].column_size_bytes
    assert next(iter(table.changes(ids[0], filter=False))).added == ()
    table.commit(removed=files[:1], operation="delete")
    appended = table.changes(ids[2], append_only=True)
    assert locations(next(appended).added) == files[2:]
    with pytest.raises(NotAppendOnly):
        next(appended)


def test_a_scan_of_what_is_new_reads_those_blocks_alone(grown: tuple[Table, list[str], list[str]]) -> None:
    """With filters, limits and orders as ever; refused when blocks were removed, for then it cannot be told."""
    table, files, ids = grown
    table.tag("read", ids[1])
    assert sorted(table.scan(changes_since="read").to_arrow()["a"].to_pylist()) == list(range(10, 30))
    assert table.scan(changes_since="read").count() == 20
    assert table.scan("a < 12", changes_since="read").to_arrow()["a"].to_pylist() == [10, 11]
    assert table.scan(changes_since="read", limit=3).to_arrow().num_rows == 3
    top = table.scan(changes_since="read", order_by="a", limit=2).to_arrow()["a"].to_pylist()
    assert top == [10, 11]
    assert table.scan(changes_since="read", snapshot_id=ids[2]).count() == 10
    assert table.scan(changes_since=ids[3]).count() == 0
    table.commit(removed=files[:1], operation="delete")
    with pytest.raises(NotAppendOnly):
        table.scan(changes_since="read").count()


def test_dropped_tables_come_back(lake: Lamella, grown: tuple[Table, list[str], list[str]]) -> None:
    """By name or id; a purged one does not."""
    table, files, _ = grown
    before = table.info()
    lake.drop_table("db.t")
    assert [(each.name, each.table_id) for each in lake.dropped_tables("db")] == [("t", before.table_id)]
    assert lake.undrop_table("db.t") == before
    lake.drop_table("db.t")
    assert lake.undrop_table("db.u", table_id=before.table_id).name == "u"
    lake.drop_table("db.u")
    assert lake.undrop_table("db.u", as_name="t") == before
    assert table.prune().locations == files
    with pytest.raises(InvalidRequest):
        lake.undrop_table("db.t", table_id="x", as_name="y")
    lake.drop_table("db.t", purge=True)
    assert lake.dropped_tables("db") == ()
    with pytest.raises(TableNotFound):
        lake.undrop_table("db.t")


def test_a_renamed_table_keeps_everything(lake: Lamella, grown: tuple[Table, list[str], list[str]]) -> None:
    """Its id, location, snapshots and tags; a commit that began under the old name is in it."""
    table, files, ids = grown
    before = table.info()
    table.tag("first", ids[1])
    lake.create_namespace("other")
    after = lake.rename_table("db.t", "db.u")
    assert after == msgspec.structs.replace(before, name="u")
    assert lake.rename_table("db.u", "other.t") == msgspec.structs.replace(before, namespace="other")
    moved = lake.table("other.t")
    assert moved.prune(snapshot_id="first").locations == files[:1]
    assert [each.snapshot_id for each in moved.snapshots()] == ids[::-1]
    with pytest.raises(TableNotFound):
        table.info()
    lake.create_table("db.t", schema=before.schema.columns)
    with pytest.raises(AlreadyExists):
        lake.rename_table("other.t", "db.t")
    with pytest.raises(InvalidRequest):
        lake.rename_table("other.t", "other.t")
    with pytest.raises(InvalidRequest):
        lake.rename_table("other.t", "other.no name")


def test_appends_during_renames_are_all_there(lake: Lamella) -> None:
    """Each writer either commits to the table or is told that the name is gone, and then uses the new one."""
    lake.create_table("db.t0", schema=[Column(name="a", type="int64")])
    names = [f"db.t{number}" for number in range(6)]

    def append(value: int) -> None:
        for name in (name for _ in range(1_000) for name in names):
            with contextlib.suppress(TableNotFound):
                lake.table(name).append({"a": [value]}, idempotency_key=f"append-{value}")
                return
        raise AssertionError("the table was never found")

    with ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(append, value) for value in range(24)]
        for old, new in itertools.pairwise(names):
            lake.rename_table(old, new)
        for each in appends:
            each.result()
    assert sorted(lake.table("db.t5").scan().to_arrow()["a"].to_pylist()) == list(range(24))


def test_the_async_client_does_the_same(server: ServerProcess, grown: tuple[Table, list[str], list[str]]) -> None:
    """The same calls, awaited."""
    _, files, ids = grown

    async def go() -> None:
        async with AsyncLamella(server.url) as lake:
            table = lake.table("db.t")
            await table.tag("first", ids[1], max_age=dt.timedelta(days=1))
            assert [tag.name for tag in await table.tags()] == ["first"]
            assert [c.snapshot_id async for c in table.changes("first", page_size=1)] == ids[2:]
            assert [s.snapshot_id async for s in table.snapshots(snapshot_id="first")] == ids[1::-1]
            assert (await table.rollback("first")).restored_snapshot_id == ids[1]
            await table.drop_tag("first")
            assert locations((await table.diff(ids[0])).added) == files[:1]
            assert (await lake.rename_table("db.t", "db.u")).name == "u"
            assert (await lake.rename_table("db.u", "db.t")).name == "t"
            await lake.drop_table("db.t")
            assert [each.name for each in await lake.dropped_tables("db")] == ["t"]
            assert (await lake.undrop_table("db.t")).row_count == 10

    asyncio.run(go())


@pytest.fixture
def run(server: ServerProcess) -> Callable[..., Result]:
    """Runs a command against the service."""

    def command(*args: str) -> Result:
        return CliRunner().invoke(cli, [*args, "--url", server.url])

    return command


def shown(result: Result) -> str:
    """What a command printed; it must have succeeded."""
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_shows_and_changes_the_past(
    run: Callable[..., Result], grown: tuple[Table, list[str], list[str]]
) -> None:
    """Tags, times by @, changes, rollback, dropped tables; as text and as JSON."""
    table, files, ids = grown

    def as_json(*args: str) -> Any:
        return json.loads(shown(run(*args, "--json")))

    assert ids[1] in shown(run("tag", "create", "db.t", "v1", "--snapshot", ids[1], "--max-age", "30d"))
    assert as_json("tag", "create", "db.t", "v2", "--snapshot", "v1")["snapshot_id"] == ids[1]
    expires = as_json("tag", "move", "db.t", "v2", "--snapshot", ids[2], "--expires", "2999-01-01")["expires_at_ms"]
    assert expires == 32472144000000
    assert [tag["name"] for tag in as_json("tag", "list", "db.t")["tags"]] == ["v1", "v2"]
    assert "it is dropped" not in shown(run("tag", "list", "db.t"))
    time = next(info.timestamp_ms for info in table.snapshots() if info.snapshot_id == ids[2])
    assert "v2" in shown(run("snapshots", "db.t", "--from", f"@{time}"))
    assert len(as_json("snapshots", "db.t", "--from", "v1")["snapshots"]) == 2
    assert as_json("prune", "db.t", "--snapshot", "v1")["snapshot_id"] == ids[1]
    assert as_json("aggregate", "db.t", "count(*)", "--snapshot", "v1")["snapshot_id"] == ids[1]
    assert [b["location"] for b in as_json("diff", "db.t", "v1", f"@{time}")["added"]] == files[1:2]
    assert files[2] in shown(run("changes", "db.t", "v1", "--where", "a > 25"))
    lines = shown(run("changes", "db.t", f"@{time - 1}", "--json")).splitlines()
    assert [json.loads(line)["snapshot_id"] for line in lines] == ids[2:]
    assert as_json("changes", "db.t", "v1", "v2", "--net", "--append-only")["operation"] == "net"
    assert "1 block" in shown(run("rollback", "db.t", "v1", "--base", ids[3]))
    assert as_json("rollback", "db.t", f"@{time}")["restored_snapshot_id"] == ids[2]
    assert shown(run("tag", "drop", "db.t", "v1")) == "tag v1 is dropped\n"
    assert as_json("tag", "drop", "db.t", "v2") == {}
    assert shown(run("tables", "rename", "db.t", "db.u")) == "table db.t is now db.u\n"
    assert as_json("tables", "rename", "db.u", "db.t")["name"] == "t"
    assert "undrop" in shown(run("tables", "drop", "db.t"))
    (dropped,) = as_json("tables", "dropped", "db")["tables"]
    assert dropped["table_id"] in shown(run("tables", "dropped", "db"))
    assert as_json("tables", "undrop", "db.u", "--id", dropped["table_id"])["name"] == "u"
    shown(run("tables", "drop", "db.u"))
    assert "db.t is restored" in shown(run("tables", "undrop", "db.u", "--as", "t"))
    assert "permanently" in shown(run("tables", "drop", "db.t", "--purge"))
    failed = run("changes", "db.t", "v1")
    assert (failed.exit_code, "table_not_found" in failed.stderr) == (1, True)


@pytest.mark.parametrize(
    "args",
    [
        ("tag", "create", "db.t", "x", "--snapshot", "a", "--timestamp", "1"),
        ("tag", "create", "db.t", "x", "--max-age", "1d", "--expires", "2999-01-01"),
        ("tag", "create", "db.t", "x", "--max-age", "soon"),
        ("tag", "create", "db.t", "x", "--max-age", "999999999w"),
        ("tag", "create", "db.t", "x", "--expires", "soon"),
        ("tables", "undrop", "db.t", "--id", "x", "--as", "y"),
        ("update", "db.t", "--set", "a=1"),
        ("update", "db.t", "--set", "a=1", "--where", "b = 2", "--all"),
        ("delete", "db.t"),
        ("vacuum",),
        ("rollback", "db.t"),
    ],
)
def test_wrong_usage_has_status_2(args: tuple[str, ...]) -> None:
    """Nothing is asked of a service."""
    assert CliRunner().invoke(cli, args).exit_code == 2


def block(number: int) -> PrunedBlock:
    """A block."""
    return PrunedBlock(location=f"memory://b/{number}", row_count=1, file_size=1, verdict="ALL")


def test_a_snapshot_that_pages_cut_is_put_together_again() -> None:
    """In order, and each snapshot once."""

    def part(name: str, added: list[int], removed: list[int], continues: bool) -> SnapshotChanges:
        return SnapshotChanges(
            snapshot_id=name,
            from_snapshot_id="f",
            timestamp_ms=1,
            operation="x",
            added=tuple(map(block, added)),
            removed=tuple(map(block, removed)),
            continues=continues,
        )

    pages = [
        [part("a", [1], [], False), part("b", [2], [], True)],
        [part("b", [3], [4], True)],
        [part("b", [], [5], False), part("c", [], [], False)],
    ]
    whole = ChangesPages()
    found = [
        each
        for page in pages
        for each in whole.of(ChangesAnswer(since_snapshot_id="s", until_snapshot_id="u", changes=tuple(page)))
    ]
    assert found == [
        part("a", [1], [], False),
        part("b", [2, 3], [4, 5], False),
        part("c", [], [], False),
    ]


def test_an_expired_snapshot_is_one_that_is_not_found() -> None:
    """A program that catches the wider error catches it too."""
    error = from_code("snapshot_expired", "gone", {})
    assert isinstance(error, SnapshotExpired)
    assert isinstance(error, SnapshotNotFound)


def test_a_lease_that_no_thread_can_renew_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no thread left; then nobody reads, and nothing is to be kept from a clean-up."""

    class Leased:
        """A table with one lease."""

        def __init__(self) -> None:
            self.leases: list[str] = []

        def lease(self, owner: str, *, ttl_s: int, snapshot_id: str | None) -> LeaseInfo:
            """Take it."""
            self.leases.append(owner)
            return LeaseInfo(
                lease_id="l", snapshot_id=snapshot_id or "s", owner=owner, created_at_ms=0, expires_at_ms=ttl_s
            )

        def renew_lease(self, lease_id: str, *, ttl_s: int) -> LeaseInfo:
            """Never."""
            raise AssertionError((lease_id, ttl_s))

        def release_lease(self, lease_id: str) -> None:
            """Give it back."""
            assert lease_id == "l"
            self.leases.pop()

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    table = Leased()
    monkeypatch.setattr(threading.Thread, "start", cannot)
    with pytest.raises(RuntimeError, match="new thread"), SnapshotLease(table, snapshot_id="s"):
        raise AssertionError("nothing is read")
    assert table.leases == []
