"""The audit trail: every change that is asked for is in it, whatever comes of it, and nothing else is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from fixtures_server import StartServer
from lamella.service.access import actor_of
from lamella.service.access.principal import OPEN, set_principal
from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.service.composition import Core, operations
from lamella.service.config.settings import Settings
from lamella.service.extensions import register_all
from lamella.service.http.routing import REQUEST_ID
from lamella.service.telemetry.logs import make_log
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.audit import Audit, about
from lamella.snapshot.errors import LamellaError, OutcomeUnknown, Unavailable
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import AuditEntry
from support.app_client import AppClient
from support.service_api import Api, parquet_bytes, read_problem

TABLE = "/v1/namespaces/db/tables/t"
COLUMNS = [{"name": "a", "type": "int64"}]
#: Requests of another method than GET that change nothing, or are signs of life. Whoever adds to these says so here.
NOT_AUDITED = {
    *(
        "prune",
        "prune_batch",
        "diff",
        "aggregate",
        "sample",
        "current_snapshots",
        "advise",
        "candidates",
        "plan_auto",
        "what_if",
        "why_not",
        "plan",
        "blocks",
    ),
    *("plan_table_scan", "fetch_scan_tasks", "cancel_plan", "report_iceberg_metrics", "iceberg_token"),
    *("sign_iceberg_request", "query_shared_table"),
    *("claim_job", "heartbeat_job", "finish_job", "enqueue_due_jobs", "renew_lease", "report_auto"),
}


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[AppClient]:
    """A service with nothing in it."""
    with AppClient(create_app(Settings(warehouse=str(folder / "warehouse"), **settings))) as app:
        yield app


def trail(app: AppClient, query: str = "") -> list[dict[str, Any]]:
    """The entries, newest first."""
    answer = app.get(f"/v1/audit?page_size=1000{query}")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["entries"])


def summaries(entries: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What they say, the oldest first."""
    members = ("operation", "target", "status", "code")
    return [tuple(entry[member] for member in members) for entry in reversed(entries)]


def mutating(app: AppClient) -> list[tuple[str, str, str]]:
    """The id, method and path of every operation that is no GET, as the API describes them."""
    paths = app.get("/openapi.json").json()["paths"]
    return [
        (operation["operationId"], method.upper(), path)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "get"
    ]


def test_an_entry_names_the_snapshot_that_its_request_committed(tmp_path: Path) -> None:
    """Also of several requests in one snapshot; a repeated request, a refused one and a new name commit none."""
    with served(tmp_path) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        made = app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": COLUMNS}).json()["snapshot_id"]
        (tmp_path / "x.parquet").write_bytes(parquet_bytes({"a": [1, 2]}))
        body = {"paths": [str(tmp_path / "x.parquet")]}
        headers = {"Idempotency-Key": "once"}
        committed = [app.post(f"{TABLE}/register", json=body, headers=headers).json()["snapshot_id"] for _ in range(2)]
        assert app.post(f"{TABLE}/register", json=body).status_code == 409
        app.post(f"{TABLE}/rename", json={"name": "u"})
        found = [(entry["operation"], entry["snapshot_id"]) for entry in reversed(trail(app))]
    assert found == [
        ("create_namespace", None),
        ("create_table", made),
        ("register", committed[0]),
        ("register", None),
        ("register", None),
        ("rename_table", None),
    ]


def test_every_change_that_is_requested_is_in_the_trail(tmp_path: Path) -> None:
    """Each operation that is no GET leaves one entry with its status and code, but those that are known to change
    nothing."""
    with served(tmp_path) as app:
        assert app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        assert app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": COLUMNS}).status_code == 201
        before = trail(app)
        expected, foreign = {}, set()
        for name, method, path in mutating(app):
            given = {"namespace": "db", "table": "none", "job_id": "0199f0a0-0000-7000-8000-000000000000"}
            url = path
            for part in re.findall(r"{(\w+)}", path):
                url = url.replace(f"{{{part}}}", given.get(part, "some"))
            answer = app.request(method, url, json={}, headers={"X-Request-Id": f"of-{name}"})
            if path.startswith("/iceberg"):  # an error has the name of Iceberg's class there
                foreign.add(name)
            code = answer.json().get("code") if answer.status_code >= 400 and name not in foreign else None
            expected[name] = (answer.status_code, code)
        entries = trail(app)[: -len(before)]
        found = {entry["operation"]: (entry["status"], entry["code"]) for entry in entries}
        assert len(found) == len(entries)
        shown = {name: (status, None if name in foreign else code) for name, (status, code) in found.items()}
        assert shown == {name: each for name, each in expected.items() if name not in NOT_AUDITED}
        assert set(expected) >= NOT_AUDITED
        assert {entry["request_id"] for entry in entries} == {f"of-{name}" for name in found}
        assert all(code for status, code in found.values() if status >= 400)
        assert {entry["actor"] for entry in entries} == {"anonymous"}
        assert {entry["client"] for entry in entries} == {"testclient"}


def test_what_reads_is_not_watched(tmp_path: Path) -> None:
    """A prune, a GET and a sign of life go to their handlers directly."""
    settings = Settings(warehouse=str(tmp_path / "w"))
    catalog = open_catalog(settings.catalog_url)
    core = Core(settings, store=FsspecStore(), catalog=catalog, ids=Ids(), clock=unix_ms)
    register_all(core)
    try:
        for operation in (each.operation for each in operations(core)):
            is_read = operation.method == "GET" or operation.name in NOT_AUDITED
            assert operation.is_audited == (not is_read), operation.name
    finally:
        core.close()


def test_an_entry_says_what_a_change_was_about(tmp_path: Path) -> None:
    """A table, a namespace, a job or the service; of what is made, the name that it was to get."""
    file = tmp_path / "x.parquet"
    file.write_bytes(parquet_bytes({"a": [1]}))
    with served(tmp_path) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": COLUMNS})
        app.post(f"{TABLE}/register", json={"paths": [f"file://{file}"]})
        app.post(f"{TABLE}/register", json={"paths": [f"file://{file}"]}, headers={"Content-Type": "text/plain"})
        app.put(f"{TABLE}/cluster-key", json={"columns": ["nothing"]})
        job = app.post("/v1/jobs", json={"kind": "compact", "table": "db.t"}).json()["job_id"]
        app.post(f"/v1/jobs/{job}/cancel")
        app.delete(TABLE)
        app.post("/v1/namespaces/db/undrop", json={"name": "t", "as": "u"})
        app.post("/v1/vacuum-dropped", json={})
        assert summaries(trail(app)) == [
            ("create_namespace", "db.*", 201, None),
            ("create_namespace", "db.*", 409, "already_exists"),
            ("create_table", "db.t", 201, None),
            ("register", "db.t", 200, None),
            ("register", "db.t", 400, "invalid_request"),
            ("set_cluster_key", "db.t", 400, "unknown_column"),
            ("submit_job", "db.t", 201, None),
            ("cancel_job", job, 200, None),
            ("drop_table", "db.t", 204, None),
            ("undrop_table", "db.u", 200, None),
            ("vacuum_dropped", None, 200, None),
        ]
        assert [entry["operation"] for entry in trail(app, "&table=db.u")] == ["undrop_table"]
        assert len(trail(app, "&table=db.t")) == 6
        assert trail(app, "&table=nothing") == []


def test_text_that_is_no_name_is_not_noted(tmp_path: Path) -> None:
    """Neither in the trail nor in the log: it may be anything that somebody put into a body."""
    with served(tmp_path) as app:
        app.post("/v1/namespaces", json={"name": "very private"})
        app.post("/v1/namespaces", json={"name": "db"})
        app.post("/v1/namespaces/db/tables", json={"name": "very private", "schema": COLUMNS})
        app.post("/v1/namespaces/db/undrop", json={"name": "very private\n"})
        app.post("/v1/jobs", json={"kind": "compact", "table": "very private.x"})
        app.delete("/v1/namespaces/db/tables/" + "x" * 2_000 + "%00")
        found = trail(app)
    assert "private" not in json.dumps(found)
    assert [entry["target"] for entry in reversed(found)][:5] == [None, "db.*", "db.*", "db.*", None]
    assert len(found[0]["target"]) == 300


def test_a_request_that_is_answered_again_is_in_the_trail_again(tmp_path: Path) -> None:
    """With the status and the code that it is answered with, also where these were stored."""
    with served(tmp_path) as app:
        for _ in range(2):
            app.post("/v1/namespaces", json={"name": "db"}, headers={"Idempotency-Key": "a"})
        for _ in range(2):
            app.delete("/v1/namespaces/none", headers={"Idempotency-Key": "b"})
        assert summaries(trail(app)) == [
            ("create_namespace", "db.*", 201, None),
            ("create_namespace", "db.*", 201, None),
            ("drop_namespace", "none.*", 404, "namespace_not_found"),
            ("drop_namespace", "none.*", 404, "namespace_not_found"),
        ]


def test_the_trail_is_read_page_by_page(tmp_path: Path) -> None:
    """Each entry once; tokens of other listings are refused."""
    with served(tmp_path) as app:
        for number in range(7):
            app.post("/v1/namespaces", json={"name": f"n{number}"})
        whole = trail(app)
        assert [entry["target"] for entry in whole] == [f"n{number}.*" for number in reversed(range(7))]
        found, query = [], ""
        while True:
            page = app.get(f"/v1/audit?page_size=3{query}").json()
            found += page["entries"]
            if page["next_page_token"] is None:
                break
            query = f"&page_token={page['next_page_token']}"
        assert found == whole
        jobs = [app.post("/v1/jobs", json={"kind": "vacuum_dropped"}).json() for _ in range(2)]
        assert len(jobs) == 2
        other = app.get("/v1/jobs?page_size=1").json()["next_page_token"]
        for token in (other, "x", ""):
            assert read_problem(app.get(f"/v1/audit?page_token={token}")).code == "invalid_page_token"
        assert read_problem(app.get("/v1/audit?page_size=0")).code == "invalid_request"


def test_the_log_has_a_line_for_each_entry(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """JSON with the members of the entry, whether requests are logged or not."""
    with served(tmp_path, log_requests=False) as app:
        app.post("/v1/namespaces", json={"name": "db"})
        (entry,) = trail(app)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "audit"]
    assert {name: line[name] for name in entry} == entry


def test_a_service_that_is_stopped_loses_no_entry(start_server: StartServer, tmp_path: Path) -> None:
    """Also what was answered right before SIGTERM; all workers write to the same trail."""
    server = start_server(warehouse=tmp_path / "warehouse", workers=2)
    for number in range(20):
        api = Api(server.url)  # a connection of its own, so perhaps another worker
        api.call("POST", "/v1/namespaces", {"name": f"n{number}"}, expect=201)
        api.close()
    server.stop()
    server.restart()
    api = Api(server.url)
    entries = api.call("GET", "/v1/audit")["entries"]
    api.close()
    assert sorted(entry["target"] for entry in entries) == sorted(f"n{number}.*" for number in range(20))


class World:
    """A trail over a catalog that can be made to fail, at a time of the test's own."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.catalog: SqlCatalog = open_catalog(str(folder / "catalog.db"))
        self.error: LamellaError | None = None
        self._add = self.catalog.add_audit
        self.catalog.add_audit = self._add_audit  # type: ignore[method-assign]  # it fails when it is told to
        self.metrics = Metrics()
        self.now_ms = 1_700_000_000_000
        self.audit = Audit(
            self.catalog,
            Ids(count(self.now_ms).__next__),
            self.metrics,
            lambda: self.now_ms,
            Settings(warehouse=str(folder), **settings),
            make_log("error"),
        )

    def _add_audit(self, entries: Sequence[AuditEntry]) -> None:
        if self.error is not None:
            raise self.error
        self._add(entries)

    def note(self, operation: str) -> None:
        """One request."""
        self.audit.note(request(), operation, 200)

    @property
    def stored(self) -> list[str]:
        """The operations in the catalog, the oldest first."""
        return [entry.operation for entry in reversed(self.catalog.audit(before_id=None, limit=1_000))]

    def counted(self, outcome: str) -> float:
        """The counter of an outcome."""
        return float(self.metrics.audit_entries.labels(outcome)._value.get())


def request(**parameters: str) -> Request:
    """A request with named parts of its path."""
    scope = {"type": "http", "method": "POST", "path_params": parameters, "client": ("10.0.0.1", 1), REQUEST_ID: "r"}
    return Request(scope)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A trail without entries."""
    world = World(tmp_path)
    yield world
    world.audit.close()
    world.catalog.close()


def test_entries_are_written_by_themselves(world: World) -> None:
    """Soon, without anybody who asks for them."""
    world.note("a")
    give_up = time.monotonic() + 300
    while not world.stored and time.monotonic() < give_up:
        time.sleep(0.01)
    assert world.stored == ["a"]


def test_entries_are_buffered_while_the_catalog_does_not_answer(world: World) -> None:
    """They are written once it does, in their order and each once, also where nobody knows whether it took them."""
    for error in (Unavailable("down"), OutcomeUnknown("who knows")):
        world.error = error
        world.note("a")
        world.audit.write()
        world.note("b")
        world.audit.write()
        assert world.stored == []
        world.error = None
        world._add(world.audit._unstored[:1])
        world.note("c")
        world.audit.write()
        assert world.stored == ["a", "b", "c"]
        assert world.catalog.forget_audit(before_ms=world.now_ms + 1, limit=10) == 3
    assert (world.counted("stored"), world.counted("lost")) == (6, 0)


def test_what_is_buffered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost is counted: the newest that were never looked at, and the oldest of those that were."""
    monkeypatch.setattr("lamella.service.usage.audit._MAX_PENDING", 3)
    world.error = Unavailable("down")
    for name in "abcde":
        world.note(name)
    world.audit.write()
    world.note("f")
    world.audit.write()
    world.error = None
    world.audit.write()
    assert world.stored == ["b", "c", "f"]
    assert (world.counted("stored"), world.counted("lost")) == (3, 3)


def test_old_entries_go(tmp_path: Path) -> None:
    """Once they are older than `audit_retention_s`, when others are written."""
    world = World(tmp_path, audit_retention_s=3_600)
    world.note("a")
    world.audit.write()
    world.now_ms += 3_600_000
    world.note("b")
    world.audit.write()
    assert world.stored == ["a", "b"]
    world.now_ms += 600_001
    world.audit.write()
    assert world.stored == ["b"]
    world.audit.close()
    world.catalog.close()


@pytest.mark.anyio
async def test_a_request_without_an_answer_is_noted_too(world: World) -> None:
    """When the service stops or the client goes away in the middle, the change may have been made."""

    async def cut(_: Request) -> Response:
        raise KeyboardInterrupt

    change = request(namespace="db", table="t")
    set_principal(change, OPEN)
    with pytest.raises(KeyboardInterrupt):
        await world.audit.watched("cut", cut)(change)
    (entry,) = world.audit.page(None, 10, "db.t")
    assert (entry.operation, entry.status, entry.code, entry.client) == ("cut", 499, None, "10.0.0.1")


@pytest.mark.anyio
async def test_who_is_not_known_cannot_fill_the_trail(world: World) -> None:
    """A request of nobody known leaves no entry, whatever it asked for."""

    async def refused(_: Request) -> Response:
        return Response(status_code=401)

    await world.audit.watched("refused", refused)(request(namespace="db", table="t"))
    assert world.audit.page(None, 10, "db.t") == []


@pytest.fixture
def anyio_backend() -> str:
    """What coroutines run on."""
    return "asyncio"


def test_a_request_can_say_what_it_is_about() -> None:
    """Where its path does not; only a name counts."""
    change = request(namespace="db")
    about(change, "no name")
    about(change, "")
    assert "lamella.target" not in change.scope
    about(change, "db.t")
    assert change.scope["lamella.target"] == ("db.t",)
    about(change, "db.t", "no name", "db.u")
    assert change.scope["lamella.target"] == ("db.t", "db.u")
    assert actor_of(change) == "anonymous"
