"""Registering files that were in the table before: never a row twice, never a deleted row again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from starlette.testclient import TestClient

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.deletion import delete_rows
from lamella.client.jobs.rewriting import compact, recluster
from lamella.client.rewrite.engine import SerialEngine
from lamella.service.app import create_app
from lamella.service.settings import Settings
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import FsspecStore
from support.race import TABLE, Race
from support.service_api import World, fresh_name, parquet_bytes, read_problem

_FILES = 6
_ROWS = 4
#: What a client sees of a snapshot: rows by location, and the files that left the table.
State = tuple[dict[str, frozenset[int]], frozenset[str]]


class Registrations(RuleBasedStateMachine):
    """One table, a folder of files, and everything that moves rows from file to file."""

    app: ClassVar[TestClient]
    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.ids = Ids()
        self.store = FsspecStore()
        self.name = fresh_name("t")
        columns = [{"name": "a", "type": "int64"}]
        made = self.call("POST", "", {"name": self.name, "schema": columns}, 201)
        self.root = made["location"]
        numbers = {number: range(number * _ROWS, (number + 1) * _ROWS) for number in range(_FILES)}
        folder = f"file://{self.folder}/{self.name}"
        self.files = {self.put(f"{folder}/{number}.parquet", rows): number for number, rows in numbers.items()}
        #: By location of live blocks; files that left the table.
        self.rows: dict[str, frozenset[int]] = {}
        self.gone: set[str] = set()
        self.history: dict[str, State] = {made["snapshot_id"]: ({}, frozenset())}
        self.current = made["snapshot_id"]

    def put(self, location: str, values: Any) -> str:
        """A file of numbers."""
        self.store.put(location, parquet_bytes({"a": list(values)}))
        return location

    def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        """The answer's JSON."""
        answer = self.app.request(method, f"/v1/namespaces/db/tables{path}", json=body)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def landed(self, snapshot_id: str) -> None:
        """A snapshot that has what the model has now."""
        self.current = snapshot_id
        self.history[snapshot_id] = (dict(self.rows), frozenset(self.gone))

    def some(self, picks: list[int]) -> list[str]:
        """Different live blocks."""
        live = sorted(self.rows)
        return sorted({live[pick % len(live)] for pick in picks}) if live else []

    @rule(picks=st.sets(st.integers(0, _FILES - 1), min_size=1), take=st.sampled_from([False, False, False, True]))
    def register(self, picks: set[int], take: bool) -> None:
        """Some files, of which each is taken only if no row of it can be in the table or was deleted from it."""
        files = sorted(location for location, number in self.files.items() if number in picks)
        held = frozenset().union(*self.rows.values()) if self.rows else frozenset()
        if take:  # only where the caller is right that no row is in the table
            files = [f for f in files if held.isdisjoint(self.numbers(f))]
        fresh = [f for f in files if f not in self.rows and (take or f not in self.gone)]
        if not files:
            return
        body = {"paths": files, "take_replaced": take}
        if not fresh:
            problem = self.call("POST", f"/{self.name}/register", body, 409)
            assert problem["code"] == "duplicate_block"
            assert sorted(problem["details"]["blocks"]) == files
            return
        answer = self.call("POST", f"/{self.name}/register", body)
        assert sorted(entry["path"] for entry in answer["refused"]) == sorted(set(files) - set(fresh))
        assert answer["registered"] == len(fresh)
        self.rows |= {f: self.numbers(f) for f in fresh}
        self.landed(answer["snapshot_id"])

    def numbers(self, file: str) -> frozenset[int]:
        """The rows of a file of the folder."""
        first = self.files[file] * _ROWS
        return frozenset(range(first, first + _ROWS))

    @precondition(lambda self: self.rows)
    @rule(
        picks=st.lists(st.integers(0, 99), min_size=1, max_size=4), lost=st.sets(st.integers(0, _ROWS - 1), max_size=3)
    )
    def rewrite(self, picks: list[int], lost: set[int]) -> None:
        """A compaction, or a delete that leaves some rows: a block of Lamella's in the place of others."""
        removed = self.some(picks)
        left = sorted(a for place in removed for a in self.rows[place] if a % _ROWS not in lost)
        if not left:
            return
        made = self.put(f"{self.root}/_b/{self.ids.new()}_v1.parquet", left)
        body = {
            "added": [{"location": made, "row_count": len(left), "file_size": 0}],
            "removed": removed,
            "operation": "delete" if lost else "compact",
        }
        answer = self.call("POST", f"/{self.name}/commits", body)
        for place in removed:
            del self.rows[place]
            if place in self.files:
                self.gone.add(place)
        self.rows[made] = frozenset(left)
        self.landed(answer["snapshot_id"])

    @precondition(lambda self: self.rows)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def drop(self, picks: list[int]) -> None:
        """A delete of all rows of some blocks."""
        removed = self.some(picks)
        answer = self.call("POST", f"/{self.name}/commits", {"removed": removed, "operation": "delete"})
        for place in removed:
            del self.rows[place]
            if place in self.files:
                self.gone.add(place)
        self.landed(answer["snapshot_id"])

    @rule(pick=st.integers(0, 99))
    def roll_back(self, pick: int) -> None:
        """To any snapshot of the history: what left the table since then is there again, and what came is not."""
        earlier = [snapshot_id for snapshot_id in self.history if snapshot_id != self.current]
        if not earlier:
            return
        target = earlier[pick % len(earlier)]
        answer = self.call("POST", f"/{self.name}/rollback", {"snapshot_id": target})
        rows, gone = self.history[target]
        self.rows, self.gone = dict(rows), set(gone)
        self.landed(answer["snapshot_id"])

    @rule()
    def clean_up(self) -> None:
        """All older snapshots and what only they need go; what left the table is still known."""
        self.call("POST", f"/{self.name}/vacuum", {"execute": True, "older_than": "0s"})
        kept = {
            entry["snapshot_id"] for entry in self.call("GET", f"/{self.name}/snapshots?page_size=1000")["snapshots"]
        }
        self.history = {snapshot_id: state for snapshot_id, state in self.history.items() if snapshot_id in kept}

    @rule()
    def add_property(self) -> None:
        """A snapshot of the same blocks."""
        answer = self.call("POST", f"/{self.name}/commits", {"properties": {"x": "y"}})
        self.landed(answer["snapshot_id"])

    @invariant()
    def no_row_is_there_twice(self) -> None:
        """The blocks are the model's, and no two of them have a row in common."""
        found = self.call("POST", f"/{self.name}/prune", {})["blocks"]
        assert sorted(block["location"] for block in found) == sorted(self.rows)
        assert sum(map(len, self.rows.values())) == len(frozenset().union(*self.rows.values()))


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Registrations]]:
    """The lives, over a service of their own."""
    folder = tmp_path_factory.mktemp("again")
    options = Settings(warehouse=f"{folder}/warehouse", vacuum_min_age_s=0, retention_max_age_s=0)
    with TestClient(create_app(options)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        Registrations.app, Registrations.folder = app, folder
        yield Registrations


def test_registrations_live_as_the_model_does(lives: type[Registrations]) -> None:
    """Tens of short lives of a table."""
    run_state_machine_as_test(
        lives, settings=settings(max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=_QUIET)
    )


@pytest.mark.soak
def test_registrations_live_long_as_the_model_does(lives: type[Registrations]) -> None:
    """Hundreds of long lives, whose many small sets of replaced files are merged."""
    run_state_machine_as_test(
        lives, settings=settings(max_examples=200, stateful_step_count=80, deadline=None, suppress_health_check=_QUIET)
    )


def test_the_jobs_that_rewrite_files_are_remembered(local: World) -> None:
    """After a compaction, a recluster and a delete the folder can be registered again, and nothing changes."""
    table, folder = local.table(cluster_key=["a"]), local.folder()
    files = local.numbers(folder, 5)
    table.register(folder)
    with Lamella(local.url) as lake:
        name = f"{table.namespace}.{table.name}"
        for turn, work in enumerate((compact, recluster, None)):
            context = JobContext(lake=lake, table=name, engine=SerialEngine(), sizes=Sizes(block_rows=1_000))
            if work is None:
                assert delete_rows(context, "a < 15").rows == 15
            else:
                work(context)
            rows = 45 if work is None else 50 + 10 * turn
            assert table.info()["row_count"] == rows
            problem = table.api.problem("POST", f"{table.path}/register", {"paths": [folder]})
            assert problem.code == "duplicate_block"
            assert set(files) <= set(problem.details["blocks"])
            assert table.info()["row_count"] == rows
            if turn == 0:
                local.put(f"{folder}/more.parquet", a=range(100, 110), s=["x"] * 10)
                answer = table.register(folder)
                assert (answer["registered"], len(answer["refused"])) == (1, 5)
                files.append(f"{folder}/more.parquet")
        assert lake.table(name).verify().is_clean
        assert lake.table(name).register([files[0]], take_replaced=True).registered == 1


def test_a_file_that_is_dropped_and_then_another_one_may_come_back(local: World) -> None:
    """After a plain removal another file at the place is another file; after a rewrite it is a version of the same."""
    table, folder = local.table(), local.folder()
    files = local.numbers(folder, 2)
    table.register(folder)
    table.commit(removed=files[:1], operation="delete")
    path = f"{table.path}/register"
    assert table.api.problem("POST", path, {"paths": files[:1]}).code == "duplicate_block"
    local.store.delete(files[0])
    local.put(files[0], a=[1, 2, 3], s=["x", "y", "z"])
    assert table.register(files[0])["registered"] == 1

    made = local.put(f"{folder}-new/x.parquet", a=[1, 2, 3], s=["x", "y", "z"])
    added = [{"location": made, "row_count": 3, "file_size": 0}]
    table.commit(removed=files[:1], added=added, operation="compact")
    local.store.delete(files[0])
    local.put(files[0], a=[1, 2, 3, 4], s=["x", "y", "z", "z"])
    assert table.api.problem("POST", path, {"paths": files[:1]}).code == "duplicate_block"
    assert table.api.call("POST", path, {"paths": files[:1], "take_replaced": True})["registered"] == 1


def test_blocks_of_lamellas_own_do_not_come_back(local: World) -> None:
    """What is in the table's block folder and not in the table was replaced, or never committed."""
    table, folder = local.table(), local.folder()
    table.register(*local.numbers(folder, 1))
    made = local.put(f"{table.info()['location']}/_b/{Ids().new()}_v1.parquet", a=[1], s=["x"])
    path = f"{table.path}/register"
    assert table.api.problem("POST", path, {"paths": [made]}).code == "duplicate_block"
    assert table.api.call("POST", path, {"paths": [made], "take_replaced": True})["registered"] == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_file_that_is_rewritten_while_it_is_registered_does_not_come_twice(race: Race, strict: bool) -> None:
    """Another service registers and compacts it between the look-up and the commit."""
    file, own, made = race.file("shared", 1), race.file("own", 2), race.file("made", 1)
    added = [{"location": made, "row_count": 1, "file_size": 0}]

    def register_and_compact() -> None:
        race.other.post(f"{TABLE}/register", json={"paths": [file]})
        answer = race.other.post(f"{TABLE}/commits", json={"removed": [file], "added": added, "operation": "compact"})
        assert answer.status_code == 200, answer.text

    race.meanwhile = register_and_compact
    answer = race.app.post(f"{TABLE}/register", json={"paths": [file, own], "strict": strict})
    if strict:
        assert read_problem(answer).code == "duplicate_block"
        assert race.locations() == [made]
    else:
        assert (answer.json()["registered"], [r["path"] for r in answer.json()["refused"]]) == (1, [file])
        assert race.locations() == [made, own]
