"""Cluster keys over real HTTP: changed, kept, taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamella.client.http import Lamella
from lamella.snapshot.errors import CommitConflict, InvalidRequest, InvalidSchema, SnapshotNotFound, UnknownColumn
from lamella.snapshot.manifest import ClusterStats
from lamella.snapshot.schema.evolution import DropColumn, RenameColumn
from support.race import TABLE, Race
from support.service_api import TableApi, World, read_problem

KEY = f"{TABLE}/cluster-key"


def operations(table: TableApi) -> list[str]:
    """The operations of the history, newest first."""
    return [entry["operation"] for entry in table.history()]


def test_a_key_is_changed_in_a_snapshot_of_its_own(world: World) -> None:
    """The answer, the table's info and the snapshot agree; the blocks are as they were."""
    raw = world.table(cluster_key=["a"])
    raw.register(*world.numbers(world.folder(), 2))
    before = raw.info()
    assert (before["cluster_key"], before["cluster_kind"], before["cluster_key_id"]) == (["a"], "linear", 0)
    with Lamella(world.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        changed = table.cluster_by(["s", "A"], "zorder")
        assert (changed.columns, changed.kind, changed.key_id) == (("s", "a"), "zorder", 1)
        assert table.cluster_key() == changed
        info = table.info()
        assert (info.cluster_key, info.cluster_kind, info.cluster_key_id) == (("s", "a"), "zorder", 1)
        assert info.snapshot_id == changed.snapshot_id
        key = table.snapshot(changed.snapshot_id).cluster_key
        assert key is not None
        assert (key.columns, key.kind, key.key_id) == (("s", "a"), "zorder", 1)
        old = table.snapshot(before["snapshot_id"]).cluster_key
        assert old is not None
        assert (old.columns, old.kind, old.key_id) == (("a",), "linear", 0)
    assert operations(raw) == ["cluster", "append", "create"]
    assert raw.snapshot()["segments"] == raw.snapshot(before["snapshot_id"])["segments"]
    assert raw.info()["properties"] == before["properties"]


def test_the_key_that_is_there_already_makes_no_snapshot(local: World) -> None:
    """A request that changes nothing is answered with what is there; a copy of it as well."""
    raw = local.table(cluster_key=["a"], cluster_kind="hilbert")
    body = {"columns": ["A"], "kind": "hilbert"}
    first = raw.api.call("PUT", f"{raw.path}/cluster-key", body, key="same")
    assert first == {"snapshot_id": raw.info()["snapshot_id"], "columns": ["a"], "kind": "hilbert", "key_id": 0}
    assert operations(raw) == ["create"]
    raw.api.call("PUT", f"{raw.path}/cluster-key", {"columns": ["s"]})
    assert raw.api.call("PUT", f"{raw.path}/cluster-key", body, key="same") == first
    assert operations(raw) == ["cluster", "create"]


def test_a_key_is_taken_away_and_comes_back_as_another(local: World) -> None:
    """Its id is never given again."""
    raw = local.table(cluster_key=["a"])
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        gone = table.cluster_by([])
        assert (gone.columns, gone.kind, gone.key_id) == ((), "linear", None)
        assert (table.info().cluster_key, table.info().cluster_key_id) == ((), None)
        assert table.cluster_by([]).snapshot_id == gone.snapshot_id
        assert table.cluster_by(["a"]).key_id == 1


def test_a_key_goes_through_renames_and_rollbacks(local: World) -> None:
    """A rename is no other key; a rollback brings the old key with its id, and the next one gets a fresh id."""
    raw = local.table(cluster_key=["a", "s"], cluster_kind="zorder")
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        start = table.info().snapshot_id
        table.evolve([RenameColumn(column="a", name="n")])
        assert table.cluster_key().columns == ("n", "s")
        assert (table.cluster_key().kind, table.cluster_key().key_id) == ("zorder", 0)
        with pytest.raises(InvalidSchema, match="cluster key"):
            table.evolve([DropColumn(column="n")])
        assert table.cluster_by(["s"]).key_id == 1
        table.evolve([DropColumn(column="n")])
        table.rollback(start)
        back = table.cluster_key()
        assert (back.columns, back.kind, back.key_id) == (("a", "s"), "zorder", 0)
        assert table.cluster_by(["a"]).key_id == 2


def test_a_change_for_another_key_than_the_one_in_force_is_a_conflict(local: World) -> None:
    """`base_snapshot_id` bears with appends and renames, and not with another key."""
    raw = local.table(cluster_key=["a"])
    with Lamella(local.url) as lake:
        table = lake.table(f"{raw.namespace}.{raw.name}")
        base = table.info().snapshot_id
        raw.register(*local.numbers(local.folder(), 1))
        table.evolve([RenameColumn(column="s", name="text")])
        changed = table.cluster_by(["text"], base_snapshot_id=base)
        with pytest.raises(CommitConflict) as caught:
            table.cluster_by(["a"], base_snapshot_id=base)
        assert caught.value.details["snapshot_id"] == changed.snapshot_id
        with pytest.raises(SnapshotNotFound):
            table.cluster_by(["a"], base_snapshot_id="019b76da-a800-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("columns", "kind", "error"),
    [(["x"], "linear", UnknownColumn), (["a", "a"], "linear", InvalidRequest), ([], "zorder", InvalidRequest)],
)
def test_what_is_no_key_is_refused(local: World, columns: list[str], kind: Any, error: type[Exception]) -> None:
    """And the table is as it was."""
    raw = local.table()
    with Lamella(local.url) as lake, pytest.raises(error):
        lake.table(f"{raw.namespace}.{raw.name}").cluster_by(columns, kind)
    raw.api.problem("PUT", f"{raw.path}/cluster-key", {"columns": ["a"], "kind": "sorted"})
    assert operations(raw) == ["create"]


def test_a_kind_without_columns_makes_no_table(local: World) -> None:
    """A new table is refused as a change is."""
    raw = local.table()
    body = {"name": "u", "schema": [{"name": "a", "type": "int64"}], "cluster_kind": "zorder"}
    problem = raw.api.problem("POST", f"/v1/namespaces/{raw.namespace}/tables", body)
    assert problem.code == "invalid_request"


@pytest.mark.parametrize(
    ("meanwhile", "key_id"),
    [
        (lambda race: race.other.post(f"{TABLE}/register", json={"paths": [race.file("x")]}), 0),
        (lambda race: race.other.put(KEY, json={"columns": ["a"], "kind": "zorder"}), 1),
        (lambda race: race.other.put(KEY, json={"columns": ["a"], "kind": "hilbert"}), 0),
    ],
    ids=["append", "other key", "same key"],
)
def test_a_change_that_loses_the_race_is_made_on_the_winners_snapshot(
    race: Race, meanwhile: Callable[[Race], Any], key_id: int
) -> None:
    """Nothing of the winner is lost, and the id counts from the winner's."""
    race.meanwhile = lambda: meanwhile(race)
    answer = race.app.put(KEY, json={"columns": ["a"], "kind": "hilbert"})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["key_id"], answer.json()["kind"]) == (key_id, "hilbert")
    info = race.other.get(TABLE).json()
    assert info["cluster_key_id"] == key_id
    assert info["snapshot_id"] == answer.json()["snapshot_id"]


def test_a_base_is_looked_at_again_after_a_lost_race(race: Race) -> None:
    """The key that came in between is a conflict, and stays."""
    base = race.app.get(TABLE).json()["snapshot_id"]
    race.meanwhile = lambda: race.other.put(KEY, json={"columns": ["a"], "kind": "zorder"})
    problem = read_problem(race.app.put(KEY, json={"columns": ["a"], "base_snapshot_id": base}))
    assert (problem.status, problem.code) == (409, "commit_conflict")
    assert race.other.get(KEY).json()["kind"] == "zorder"


def block(location: str, stats: dict[str, Any] | None) -> dict[str, Any]:
    """A block as a writer sends it."""
    return {"location": location, "row_count": 10, "file_size": 1, "cluster_stats": stats}


def test_blocks_say_for_which_key_they_were_written(local: World) -> None:
    """What a writer says of a key that the table has or had is kept, whatever is committed behind it."""
    table = local.table(cluster_key=["a"])
    files = local.numbers(local.folder(), 3)
    table.api.call("PUT", f"{table.path}/cluster-key", {"columns": ["s"]})
    said = [{"key_id": 0, "level": 3}, {"key_id": 1, "level": 32}, None]
    for file, stats in zip(files, said, strict=True):
        table.commit(added=[block(file, stats)])
    found = {each["location"]: each.get("cluster_stats") for each in table.blocks()}
    assert found == dict(zip(files, said, strict=True))
    assert len(table.snapshot()["segments"]) <= 3
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        segments = [handle.segment(ref.segment_id) for ref in handle.snapshot(handle.info().snapshot_id).segments]
        stats_of = {each.location: each.cluster_stats for segment in segments for each in segment.blocks}
        assert stats_of[files[1]] == ClusterStats(key_id=1, level=32)
        answer = handle.verify()
        assert answer.findings == ()


@pytest.mark.parametrize(
    "stats",
    [
        {"key_id": 1, "level": 0},
        {"key_id": -1, "level": 0},
        {"key_id": 0, "level": -1},
        {"key_id": 0, "level": 33},
        {"key_id": "0", "level": 1},
        {"level": 1},
    ],
)
def test_what_cannot_be_said_of_a_block_is_refused(local: World, stats: dict[str, Any]) -> None:
    """A key that the table never had, a level that there is not, other forms."""
    table = local.table(cluster_key=["a"])
    (file,) = local.numbers(local.folder(), 1)
    problem = table.api.problem("POST", f"{table.path}/commits", {"added": [block(file, stats)]})
    assert problem.code in ("blocks_refused", "invalid_request")
    assert table.info()["block_count"] == 0


def test_a_table_that_never_had_a_key_takes_no_such_word(local: World) -> None:
    """There is nothing that it could mean."""
    table = local.table()
    (file,) = local.numbers(local.folder(), 1)
    problem = table.api.problem("POST", f"{table.path}/commits", {"added": [block(file, {"key_id": 0, "level": 0})]})
    assert problem.code == "blocks_refused"
