"""Registrations and commits when something else happens in between, each time at the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.store import ObjectStat
from support.app_client import AppClient
from support.race import TABLE, NewRace, Race
from support.service_api import parquet_bytes, read_problem


def test_an_append_that_loses_the_race_is_made_on_the_winners_snapshot(race: Race) -> None:
    """The pointer moved while the snapshot was written: the append is rebased, and both are in the history."""
    winner, loser = race.file("winner"), race.file("loser")
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [winner]})
    answer = race.app.post(f"{TABLE}/register", json={"paths": [loser]})
    assert answer.status_code == 200, answer.text
    assert race.locations() == [winner, loser]
    history = race.other.get(f"{TABLE}/snapshots").json()["snapshots"]
    assert [entry["block_count"] for entry in history] == [2, 1, 0]
    assert history[0]["snapshot_id"] == answer.json()["snapshot_id"]
    assert "lamella_commit_retries_total 1.0" in race.app.get("/metrics").text


def test_files_that_another_registers_meanwhile_are_refused_and_the_others_taken(race: Race) -> None:
    """The overlap is found in the commit itself, and the registration goes on without it."""
    shared, own = race.file("shared"), race.file("own")
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [shared]})
    answer = race.app.post(f"{TABLE}/register", json={"paths": [shared, own]}).json()
    assert answer["registered"] == 1
    assert [(entry["path"], entry["code"]) for entry in answer["refused"]] == [(shared, "duplicate_block")]
    assert race.locations() == [shared, own]


@pytest.mark.parametrize("strict", [False, True])
def test_a_registration_that_another_made_meanwhile_is_a_duplicate(race: Race, strict: bool) -> None:
    """Nothing is left to do: 409, and every file is in the table once."""
    file = race.file("shared")
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [file]})
    problem = read_problem(race.app.post(f"{TABLE}/register", json={"paths": [file], "strict": strict}))
    assert (problem.status, problem.code) == (409, "duplicate_block")
    assert race.locations() == [file]


def test_a_block_that_another_removes_meanwhile_is_a_conflict(race: Race) -> None:
    """It is named, and the commit's own blocks are not added."""
    old, new = race.file("old"), race.file("new")
    race.app.post(f"{TABLE}/register", json={"paths": [old]})
    race.meanwhile = lambda: race.other.post(f"{TABLE}/commits", json={"removed": [old]})
    block = {"location": new, "row_count": 1, "file_size": 0}
    problem = read_problem(race.app.post(f"{TABLE}/commits", json={"added": [block], "removed": [old]}))
    assert (problem.status, problem.code, problem.details["blocks"]) == (409, "commit_conflict", [old])
    assert race.locations() == []


def test_a_table_that_is_dropped_meanwhile_is_not_found(race: Race) -> None:
    """A commit does not bring a table back, nor end up in a new one of the same name."""
    file = race.file("x")

    def replace_table() -> None:
        race.other.delete(TABLE)
        columns = [{"name": "a", "type": "int64"}]
        race.other.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns})

    race.meanwhile = replace_table
    problem = read_problem(race.app.post(f"{TABLE}/register", json={"paths": [file]}))
    assert (problem.status, problem.code) == (404, "table_not_found")
    assert race.locations() == []


def test_a_commit_that_never_wins_gives_up_in_time(new_race: NewRace) -> None:
    """After `commit_deadline_s` the answer is 503 with `Retry-After`, and nothing was done."""
    race = new_race(commit_deadline_s=0.2)
    race.times = 1_000
    numbers = count()
    race.meanwhile = lambda: race.other.post(f"{TABLE}/register", json={"paths": [race.file(f"{next(numbers)}")]})
    response = race.app.post(f"{TABLE}/register", json={"paths": [race.file("late")]})
    assert (read_problem(response).status, read_problem(response).code) == (503, "unavailable")
    assert int(response.headers["retry-after"]) >= 1
    names = {location.rpartition("/")[2] for location in race.locations()}
    assert names
    assert "late.parquet" not in names


def test_a_file_that_changes_while_it_is_registered_is_refused(tmp_path: Path) -> None:
    """Its statistics are of bytes that are no longer there."""
    file = tmp_path / "x.parquet"
    file.write_bytes(parquet_bytes({"a": [1]}))
    replaced = parquet_bytes({"a": [1_000_000, 2]})

    class Replacing(FsspecStore):
        """Replaces the file right after its footer was read."""

        def read_range(self, location: str, start: int, length: int) -> bytes:
            data = super().read_range(location, start, length)
            if location.endswith("/x.parquet"):
                file.write_bytes(replaced)
            return data

        def read_cached_ends(self, locations: Sequence[str], length: int) -> dict[str, tuple[ObjectStat, bytes]]:
            found = super().read_cached_ends(locations, length)
            file.write_bytes(replaced)
            return found

    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    with AppClient(create_app(settings, store=Replacing())) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        problem = read_problem(app.post(f"{TABLE}/register", json={"paths": [str(file)]}))
        assert problem.code == "blocks_refused"
        assert [entry["code"] for entry in problem.details["refused"]] == ["conflict"]
        assert app.get(TABLE).json()["block_count"] == 0


def test_many_files_of_one_schema_are_registered_and_the_others_refused(tmp_path: Path) -> None:
    """More than are decoded one by one: with one that is damaged, one of another table, one that changes and some that
    are in the table already; the blocks are those that each file gives alone."""
    folder = tmp_path / "files"
    folder.mkdir()
    paths = [f"file://{folder}/{number:03}.parquet" for number in range(150)]
    for number, path in enumerate(paths):
        Path(path.removeprefix("file://")).write_bytes(parquet_bytes({"a": [number, number + 1]}))
    changing = folder / "149.parquet"

    class Replacing(FsspecStore):
        """Replaces one file when the versions are compared."""

        def stat_many(self, locations: Sequence[str]) -> dict[str, ObjectStat]:
            changing.write_bytes(parquet_bytes({"a": [7]}))
            return super().stat_many(locations)

    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    with AppClient(create_app(settings, store=Replacing())) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        assert app.post(f"{TABLE}/register", json={"paths": paths[:3]}).json()["registered"] == 3
        (folder / "020.parquet").write_bytes(b"no Parquet file")
        foreign = tmp_path / "warehouse" / str(UUID(int=7)) / "x.parquet"
        foreign.parent.mkdir()
        foreign.write_bytes(parquet_bytes({"a": [1]}))
        answer = app.post(f"{TABLE}/register", json={"paths": [f"file://{folder}", str(foreign)]}).json()
        blocks = app.post(f"{TABLE}/prune", json={"filter": "a = 100"}).json()["blocks"]
        count = app.get(TABLE).json()["block_count"]
    refused = {entry["path"].rpartition("/")[2]: entry["code"] for entry in answer["refused"]}
    duplicates = dict.fromkeys(["000.parquet", "001.parquet", "002.parquet"], "duplicate_block")
    others = {"020.parquet": "not_parquet", "x.parquet": "invalid_request", "149.parquet": "conflict"}
    assert refused == {**duplicates, **others}
    assert (answer["registered"], answer["row_count"], count) == (145, 290, 148)
    assert answer["file_size_bytes"] == sum(
        file.stat().st_size for file in folder.iterdir() if file.name not in refused
    )
    assert [block["location"] for block in blocks] == paths[99:101]


def test_a_store_that_fails_is_a_502_and_changes_nothing(race: Race) -> None:
    """Neither the table nor a stored answer; the same request with its key succeeds later."""
    file = race.file("x")
    folder = next(path for path in (race.folder / "warehouse").iterdir() if (path / "_ss").exists())
    (folder / "_sg").write_text("a file where a folder belongs")
    body = {"paths": [file]}
    problem = read_problem(race.app.post(f"{TABLE}/register", json=body, headers={"Idempotency-Key": "k"}))
    assert (problem.status, problem.code) == (502, "store_error")
    assert race.locations() == []
    (folder / "_sg").unlink()
    assert race.app.post(f"{TABLE}/register", json=body, headers={"Idempotency-Key": "k"}).status_code == 200


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_damaged_manifest_is_the_services_fault(race: Race, damage: str) -> None:
    """A manifest that is gone or altered is a 500 with a code, never a 404 or an answer made from it."""
    race.app.post(f"{TABLE}/register", json={"paths": [race.file("x")]})
    info = race.app.get(TABLE).json()
    folder = Path(info["location"].removeprefix("file://")) / "_ss"
    for path in folder.glob(f"{info['snapshot_id']}_v3.*"):
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes().replace(b'"row_count":1', b'"row_count":2'))
    expected = "manifest_error" if damage == "gone" else "hash_mismatch"
    with AppClient(create_app(Settings(warehouse=str(race.folder / "warehouse")))) as fresh:
        for response in (
            fresh.get(f"{TABLE}/snapshots/{info['snapshot_id']}"),
            fresh.get(TABLE),
            fresh.post(f"{TABLE}/prune", json={"filter": "a = 1"}),
        ):
            problem = read_problem(response)
            assert (problem.status, problem.code) == (500, expected)
