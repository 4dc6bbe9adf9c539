"""Clean-up and leases over HTTP, by the clients and from the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lamella.client import AsyncLamella, Lamella
from lamella.client.cli.app import cli
from lamella.client.http.maintenance import SnapshotLease
from lamella.service.catalog import SweepMark, open_catalog
from lamella.snapshot.errors import InvalidRequest, LeaseNotFound, ObjectNotFound, SnapshotNotFound
from lamella.snapshot.ids import Ids
from support.own_app import NewOwn
from support.race import TABLE
from support.service_api import TableApi, World, parquet_bytes


def with_garbage(world: World) -> tuple[TableApi, str]:
    """A table with one file in it, and a block in its folder that is garbage but for its age."""
    table = world.table()
    table.register(world.numbers(world.folder(), 1)[0])
    garbage = world.put(f"{table.info()['location']}/_b/{Ids().new()}_v1.parquet", a=[1], s=["x"])
    return table, garbage


def test_a_fresh_table_has_nothing_to_clean_up(world: World) -> None:
    """Everything is younger than the minimum age; the answer says so and names why each snapshot stays."""
    table, garbage = with_garbage(world)
    for execute in (False, True):
        answer = table.api.call("POST", f"{table.path}/vacuum", {"execute": execute})
        assert answer["executed"] is execute
        assert answer["garbage"] == {}
        assert answer["young"]["objects"] > 5
        assert [disposition["expires"] for disposition in answer["snapshots"]] == [False, False]
        assert answer["snapshots"][0]["reason"] == "it is the current one"
    assert world.store.stat(garbage).size_bytes > 0


@pytest.mark.parametrize(
    "body", [{"older_than": "soon"}, {"max_objects": 0}, {"max_objects": 10**9}, {"page_token": "x"}, {"now": True}]
)
def test_a_vacuum_that_cannot_be_requested(world: World, body: dict[str, object]) -> None:
    """Wrong ages, numbers, tokens and members are the caller's mistake."""
    table = world.table()
    assert table.api.problem("POST", f"{table.path}/vacuum", body).status == 400


def test_a_lease_is_taken_renewed_listed_and_released(world: World) -> None:
    """It stands in the listing until it is released; what is not there cannot be renewed."""
    table = world.table()
    with Lamella(world.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        lease = handle.lease("a report", ttl_s=60)
        assert lease.snapshot_id == table.info()["snapshot_id"]
        renewed = handle.renew_lease(lease.lease_id, ttl_s=600)
        assert renewed.expires_at_ms > lease.expires_at_ms
        assert [one.lease_id for one in handle.leases()] == [lease.lease_id]
        handle.release_lease(lease.lease_id)
        handle.release_lease(lease.lease_id)
        assert handle.leases() == ()
        with pytest.raises(LeaseNotFound):
            handle.renew_lease(lease.lease_id)
        with pytest.raises(SnapshotNotFound):
            handle.lease("a report", snapshot_id=str(Ids().new()))
        for ttl_s, owner in ((0, "x"), (10**9, "x"), (60, ""), (60, "a\nb")):
            with pytest.raises(InvalidRequest):
                handle.lease(owner, ttl_s=ttl_s)


def test_a_snapshot_is_pinned_while_a_block_of_code_runs(world: World) -> None:
    """There is a lease inside and none afterwards; one that is only for long work is not taken for short."""
    table = world.table()
    with Lamella(world.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        with SnapshotLease(handle, owner="a test") as pinned:
            assert pinned.lease is not None
            assert [one.owner for one in handle.leases()] == ["a test"]
        assert handle.leases() == ()
        with SnapshotLease(handle, after_s=3600) as pinned:
            assert pinned.lease is None
        assert handle.leases() == ()


def test_the_async_client_does_the_same(world: World) -> None:
    """Vacuum, leases and the purge of dropped tables are there for asyncio too."""
    table = world.table()

    async def work() -> None:
        async with AsyncLamella(world.url) as lake:
            handle = lake.table(f"{table.namespace}.{table.name}")
            assert not (await handle.vacuum()).executed
            lease = await handle.lease("a test")
            await handle.renew_lease(lease.lease_id)
            assert [one.lease_id for one in await handle.leases()] == [lease.lease_id]
            await handle.release_lease(lease.lease_id)
            assert not (await lake.purge_dropped()).executed

    asyncio.run(work())


def test_a_table_refuses_files_of_another_table(world: World) -> None:
    """What stands in a table's folder goes with that table, so no other one may register it, and it only if told to."""
    table, theirs = with_garbage(world)
    other = world.table()
    problem = other.api.problem("POST", f"{other.path}/register", {"paths": [theirs]})
    assert "belongs to another table" in problem.detail
    added = [{"location": theirs, "row_count": 1, "file_size": 1}]
    problem = other.api.problem("POST", f"{other.path}/commits", {"added": added})
    assert "belongs to another table" in problem.detail
    assert table.api.problem("POST", f"{table.path}/register", {"paths": [theirs]}).code == "duplicate_block"
    assert table.register(theirs, take_replaced=True)["registered"] == 1


def test_retention_properties_are_checked_when_they_are_set(world: World) -> None:
    """A spelling mistake in retention is an error at once, and not found by the first clean-up."""
    table = world.table(properties={"lamella.retention.max_age": "30d", "lamella.retention.min_snapshots": "3"})
    for properties in ({"lamella.retention.max_age": "30 days"}, {"lamella.retention.max_ages": "30d"}):
        problem = table.api.problem("POST", f"{table.path}/commits", {"properties": properties})
        assert problem.code == "invalid_request"
        body = {"name": "u", "schema": [{"name": "a", "type": "int64"}], "properties": properties}
        problem = table.api.problem("POST", table.path.rpartition("/")[0], body)
        assert problem.code == "invalid_request"


def test_the_command_says_what_it_would_do(local: World) -> None:
    """As a table for people and as JSON; without --execute it is a dry run."""
    table, _ = with_garbage(local)
    name = f"{table.namespace}.{table.name}"
    runner = CliRunner()
    said = runner.invoke(cli, ["vacuum", name, "--url", local.url])
    assert said.exit_code == 0, said.output
    assert "nothing was deleted" in said.output
    done = runner.invoke(cli, ["vacuum", name, "--execute", "--older-than", "7d", "--json", "--url", local.url])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["executed"] is True
    dropped = runner.invoke(cli, ["vacuum", "--dropped", "--json", "--url", local.url])
    assert dropped.exit_code == 0, dropped.output
    assert json.loads(dropped.output)["executed"] is False
    for wrong in (["vacuum"], ["vacuum", name, "--dropped"], ["vacuum", "--dropped", "--older-than", "1d"]):
        assert runner.invoke(cli, [*wrong, "--url", local.url]).exit_code == 2


def test_a_file_that_an_interrupted_clean_up_left_marked_is_refused_for_good(new_own: NewOwn, tmp_path: Path) -> None:
    """The answer is no 503, which clients would repeat until the next clean-up of the table."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    own = new_own(catalog=url)
    table_id = own.info()["table_id"]
    file = f"{own.info()['location']}/_b/{Ids().new()}_v1.parquet"
    own.store.put(file, parquet_bytes({"a": [1], "s": ["x"]}))
    mark = SweepMark(location=file, table_id=table_id, kind="block", size_bytes=1, marked_at_ms=1)
    catalog = open_catalog(url)
    catalog.mark_for_deletion(table_id, [mark], watermark_ms=0)
    catalog.close()
    bodies: dict[str, dict[str, object]] = {
        "register": {"paths": [file]},
        "commits": {"added": [{"location": file, "row_count": 1, "file_size": 0}]},
    }

    def send(end: str, key: str) -> tuple[int, str, str | None]:
        answer = own.app.post(f"{TABLE}/{end}", json=bodies[end], headers={"Idempotency-Key": key})
        return answer.status_code, answer.json()["code"], answer.json().get("details", {}).get("location")

    for end in bodies:
        assert send(end, end) == (409, "deletion_pending", file)
    own.clean_up()  # finishes what the other one marked
    with pytest.raises(ObjectNotFound):
        own.store.stat(file)
    for end in bodies:
        assert send(end, end) == (409, "deletion_pending", file)
        assert send(end, f"another {end}")[0] in (404, 422)
