"""Registering files that were in the table before: never a row twice, never a deleted row again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.delete import delete_rows
from lamella.client.jobs.rewrite import compact, recluster
from lamella.client.rewrite.engine import SerialEngine
from lamella.service.app import create_app
from lamella.service.backup import export_catalog, import_catalog
from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import DuplicateBlock
from lamella.snapshot.ids import Ids
from lamella.snapshot.parquet.footer import read_footer
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.own_app import NewOwn
from support.pausable_service import WAIT_S, PausableService
from support.race import TABLE, Race
from support.service_api import World, fresh_name, parquet_bytes, read_problem

_FILES = 6
_ROWS = 4
#: What a client sees of a snapshot: rows by location, and the files that left the table.
State = tuple[dict[str, frozenset[int]], frozenset[str]]


def footer_of(store: FsspecStore, location: str) -> str:
    """The hash of a file's footer, as blocks have it."""
    return read_footer(store, location).sha256


class Registrations(RuleBasedStateMachine):
    """One table, a folder of files, and everything that moves rows from file to file."""

    app: ClassVar[AppClient]
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

    def committed(self, snapshot_id: str) -> None:
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
        present = frozenset().union(*self.rows.values()) if self.rows else frozenset()
        if take:  # only where the caller is right that no row is in the table
            files = [f for f in files if present.isdisjoint(self.numbers(f))]
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
        self.committed(answer["snapshot_id"])

    @rule(
        picks=st.sets(st.integers(0, _FILES - 1), min_size=1, max_size=3),
        take=st.sampled_from([False, False, False, True]),
        footer=st.booleans(),
        drops=st.booleans(),
    )
    def commit(self, picks: set[int], take: bool, footer: bool, drops: bool) -> None:
        """A program adds files of the folder, or exchanges those that are there: all of them, or it is refused."""
        files = sorted(location for location, number in self.files.items() if number in picks)
        removed = [f for f in files if f in self.rows] if drops else []
        present = frozenset().union(*(rows for f, rows in self.rows.items() if f not in removed))
        if take and any(not present.isdisjoint(self.numbers(f)) for f in files):
            return
        added = [{"location": f, "row_count": _ROWS, "file_size": 0} for f in files]
        if footer:
            added = [block | {"footer_sha256": footer_of(self.store, str(block["location"]))} for block in added]
        body: dict[str, Any] = {"added": added, "removed": removed, "take_replaced": take}
        back = [f for f in files if f not in removed and (f in self.rows or (f in self.gone and not take))]
        if back:
            problem = self.call("POST", f"/{self.name}/commits", body, 409)
            assert problem["code"] == "duplicate_block"
            assert set(problem["details"]["blocks"]) <= set(back)
            return
        answer = self.call("POST", f"/{self.name}/commits", body)
        self.rows |= {f: self.numbers(f) for f in files}
        self.committed(answer["snapshot_id"])

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
        left = sorted(a for location in removed for a in self.rows[location] if a % _ROWS not in lost)
        if not left:
            return
        made = self.put(f"{self.root}/_b/{self.ids.new()}_v1.parquet", left)
        body = {
            "added": [{"location": made, "row_count": len(left), "file_size": 0}],
            "removed": removed,
            "operation": "delete" if lost else "compact",
        }
        answer = self.call("POST", f"/{self.name}/commits", body)
        for location in removed:
            del self.rows[location]
            if location in self.files:
                self.gone.add(location)
        self.rows[made] = frozenset(left)
        self.committed(answer["snapshot_id"])

    @precondition(lambda self: self.rows)
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def drop(self, picks: list[int]) -> None:
        """A delete of all rows of some blocks."""
        removed = self.some(picks)
        answer = self.call("POST", f"/{self.name}/commits", {"removed": removed, "operation": "delete"})
        for location in removed:
            del self.rows[location]
            if location in self.files:
                self.gone.add(location)
        self.committed(answer["snapshot_id"])

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
        self.committed(answer["snapshot_id"])

    @rule()
    def clean_up(self) -> None:
        """All older snapshots and what only they need go; what left the table is still known."""
        self.call("POST", f"/{self.name}/vacuum", {"execute": True, "older_than": "0s"})
        retained = {
            entry["snapshot_id"] for entry in self.call("GET", f"/{self.name}/snapshots?page_size=1000")["snapshots"]
        }
        self.history = {snapshot_id: state for snapshot_id, state in self.history.items() if snapshot_id in retained}

    @rule()
    def add_property(self) -> None:
        """A snapshot of the same blocks."""
        answer = self.call("POST", f"/{self.name}/commits", {"properties": {"x": "y"}})
        self.committed(answer["snapshot_id"])

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
    with AppClient(create_app(options)) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        Registrations.app, Registrations.folder = app, folder
        yield Registrations


@pytest.mark.slow
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


def added(location: str, **more: Any) -> dict[str, Any]:
    """A block of three rows, as a program commits it."""
    return {"location": location, "row_count": 3, "file_size": 0, **more}


def test_a_commit_brings_no_file_back_unless_that_is_requested(local: World) -> None:
    """A program that sends its commit again after a compaction is refused as a registration is, and told what to do."""
    table, folder = local.table(), local.folder()
    file = local.put(f"{folder}/x.parquet", a=[1, 2, 3], s=["x", "y", "z"])
    made = local.put(f"{folder}-new/x.parquet", a=[1, 2, 3], s=["x", "y", "z"])
    path = f"{table.path}/commits"
    table.commit(added=[added(file)])
    table.commit(removed=[file], added=[added(made)], operation="compact")
    problem = table.api.problem("POST", path, {"added": [added(file)]})
    assert (problem.status, problem.code, problem.details["blocks"]) == (409, "duplicate_block", [file])
    assert "take_replaced" in problem.detail
    assert table.info()["row_count"] == 3
    exchanged = {"removed": [made], "added": [added(made, footer_sha256="0" * 64)], "operation": "verify"}
    assert table.api.call("POST", path, exchanged)["row_count"] == 3
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        with pytest.raises(DuplicateBlock):
            handle.commit([added(file)])
        assert handle.commit([added(file)], take_replaced=True).row_count == 6


def test_a_commit_of_another_file_at_the_location_of_a_dropped_one_is_taken(local: World) -> None:
    """Where the footers show that it is another one; without them it may be the file whose rows were deleted."""
    table, folder = local.table(), local.folder()
    (file,) = local.numbers(folder, 1)
    table.register(file)
    table.commit(removed=[file], operation="delete")
    path = f"{table.path}/commits"
    same = footer_of(FsspecStore(), file)
    for block in (added(file, footer_sha256=same), added(file)):
        assert table.api.problem("POST", path, {"added": [block]}).code == "duplicate_block"
    local.store.delete(file)
    local.put(file, a=[1, 2, 3], s=["x", "y", "z"])
    other = footer_of(FsspecStore(), file)
    assert table.api.call("POST", path, {"added": [added(file, footer_sha256=other)]})["row_count"] == 3


def test_commits_of_one_group_bring_no_file_back(pausable: PausableService) -> None:
    """Of those that wait together each comes behind the ones before it: what they took out stays out."""
    file, made = pausable.file("old"), pausable.file("made")
    assert pausable.app.post(f"{TABLE}/register", json={"paths": [file]}).status_code == 200
    first = pausable.hold()
    bodies: list[dict[str, Any]] = [
        {"removed": [file], "added": [added(made)], "operation": "compact"},
        {"added": [added(file)]},
        {"added": [added(file)], "take_replaced": True},
    ]
    sent = []
    for number, body in enumerate(bodies):
        sent.append(pausable.send("commits", body))
        pausable.queued(number + 1)
    pausable.go.set()
    answers = [future.result(WAIT_S) for future in (first, *sent)]
    assert [answer.status_code for answer in answers] == [200, 200, 409, 200]
    assert read_problem(answers[2]).code == "duplicate_block"


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


def test_a_restored_catalog_knows_what_had_left_by_then(new_own: NewOwn, tmp_path: Path) -> None:
    """Files that left before the export stay out; those that left after it are blocks again, and never both."""
    own = new_own()
    files = [f"file://{tmp_path}/{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        own.store.put(file, parquet_bytes({"a": [number], "s": ["x"]}))
    made = [f"{own.info()['location']}/_b/{Ids().new()}_v1.parquet" for _ in range(2)]
    for number, location in enumerate(made):
        own.store.put(location, parquet_bytes({"a": [number], "s": ["x"]}))

    def replace(app: AppClient, number: int) -> None:
        block = {"location": made[number], "row_count": 1, "file_size": 0}
        body = {"removed": [files[number]], "added": [block], "operation": "compact"}
        assert app.post(f"{TABLE}/commits", json=body).status_code == 200

    assert own.app.post(f"{TABLE}/register", json={"paths": files}).status_code == 200
    replace(own.app, 0)
    old = open_engine(catalog_url(f"{own.folder}/warehouse/_catalog.db"), timeout_s=10, connections=2)
    data = io.BytesIO()
    export_catalog(old, data, warehouse=f"file://{own.folder}/warehouse")
    old.dispose()
    replace(own.app, 1)
    new = open_engine(catalog_url(str(tmp_path / "restored.db")), timeout_s=10, connections=2)
    data.seek(0)
    import_catalog(new, data)
    new.dispose()
    options = Settings(warehouse=f"{own.folder}/warehouse", catalog=str(tmp_path / "restored.db"))
    with AppClient(create_app(options)) as app:
        for turn in range(2):
            problem = read_problem(app.post(f"{TABLE}/register", json={"paths": files}))
            assert (problem.code, sorted(problem.details["blocks"])) == ("duplicate_block", files)
            assert read_problem(app.post(f"{TABLE}/register", json={"paths": made})).code == "duplicate_block"
            block = {"location": files[0], "row_count": 1, "file_size": 0}
            problem = read_problem(app.post(f"{TABLE}/commits", json={"added": [block]}))
            assert problem.code == "duplicate_block"
            blocks = app.post(f"{TABLE}/prune", json={}).json()["blocks"]
            assert {block["location"] for block in blocks} == {*made[: turn + 1], *files[turn + 1 :]}
            if turn == 0:
                replace(app, 1)
