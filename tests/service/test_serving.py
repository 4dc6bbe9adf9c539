"""The service as a process: workers, stopping, logs, documentation, health."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from fixtures_server import ServerProcess, StartServer
from lamella.service.app import create_app, served
from lamella.service.config.settings import Settings
from lamella.service.process import health
from lamella.service.process.supervisor import listening
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.ports import free_port
from support.service_api import Api, World, read_problem
from support.watched_store import WatchedStore
from support.worker_process import is_alive


def log_lines(server: ServerProcess) -> list[dict[str, Any]]:
    """The log; every line of it must be JSON."""
    return [json.loads(line) for line in server.log_text().splitlines()]


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail when that takes minutes."""
    give_up = time.monotonic() + 300
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail("what the test waits for did not happen")
        time.sleep(0.002)


def test_several_workers_serve_one_catalog(start_server: StartServer, tmp_path: Path) -> None:
    """What one worker commits every other sees at once, and `/metrics` adds all of them up."""
    server = start_server(warehouse=tmp_path / "warehouse", workers=2)
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        files = world.numbers(world.folder(), 6)
        for number, file in enumerate(files, start=1):
            answer = Api(server.url)  # a connection of its own, so perhaps another worker
            assert answer.call("POST", f"{table.path}/register", {"paths": [file]})["registered"] == 1
            counts = set()
            for _ in range(4):
                other = Api(server.url)
                counts.add(other.call("GET", table.path)["block_count"])
                other.close()
            answer.close()
            assert counts == {number}
        metrics = world.api.send("GET", "/metrics").text
        assert re.search(r"^lamella_commits_total 6\.0$", metrics, re.MULTILINE)
        assert re.search(r'^lamella_requests_total\{.*tables/\{table\}",status="200"\} 24\.0$', metrics, re.MULTILINE)
        pids = {line["pid"] for line in log_lines(server) if line["event"] == "started"}
        assert len(pids) == 2
        os.kill(pids.pop(), signal.SIGKILL)
        wait_until(lambda: sum(line["event"] == "started" for line in log_lines(server)) == 3)
        other = Api(server.url)
        assert "lamella_requests_in_progress 1.0" in other.send("GET", "/metrics").text
        other.close()
    assert server.stop() == 0
    assert {line["event"] for line in log_lines(server)} >= {"stopped"}


def test_workers_end_when_their_supervisor_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    """They would go on serving, and hold the port, with nobody who looks after them."""
    server = start_server(warehouse=tmp_path / "warehouse", workers=2)
    wait_until(lambda: sum(line["event"] == "started" for line in log_lines(server)) == 2)
    pids = {line["pid"] for line in log_lines(server) if line["event"] == "started"}
    server.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert sum(line["event"] == "stopped" for line in log_lines(server)) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_metrics_have_the_funnels_of_all_prunes(start_server: StartServer, tmp_path: Path, workers: int) -> None:
    """Each is counted once it was answered, by whatever worker, and by whatever worker one asks."""
    server = start_server(warehouse=tmp_path / "warehouse", workers=workers)
    expected: dict[tuple[str, str], float] = {}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        table.register(*world.numbers(world.folder(), 6))
        for filter in ("a >= 0", "a < 2", "a > 100000", "a >= 0"):
            other = Api(server.url)  # a connection of its own, so perhaps another worker
            report = other.call("POST", f"{table.path}/prune", {"filter": filter})["report"]
            for stage in report["stages"]:
                for name, member in (("considered", "considered"), ("kept", "kept"), ("kept_bytes", "bytes")):
                    key = (name, stage["stage"])
                    expected[key] = expected.get(key, 0) + stage[member]
            text = other.send("GET", "/metrics").text
            other.close()
            counted = re.findall(r'^lamella_prune_(\w+)_total\{stage="(\w+)"\} (\S+)$', text, re.MULTILINE)
            found = {(name, stage): float(value) for name, stage, value in counted if name != "stage_seconds"}
            assert found == expected
            assert {stage for name, stage, _ in counted if name == "stage_seconds"} == {stage for _, stage in expected}


def test_a_running_request_is_finished_before_the_service_stops(start_server: StartServer, tmp_path: Path) -> None:
    """SIGTERM in the middle of a registration: its answer arrives, and the blocks are there after a restart."""
    server = start_server(warehouse=tmp_path / "warehouse")
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        files = world.numbers(world.folder(), 300)
    answers: list[httpx2.Response] = []

    def register() -> None:
        answers.append(httpx2.post(f"{server.url}{table.path}/register", json={"paths": files}, timeout=300))

    sent = threading.Thread(target=register)
    sent.start()
    watching = Api(server.url)
    wait_until(
        lambda: "lamella_requests_in_progress 2.0" in watching.send("GET", "/metrics").text or not sent.is_alive()
    )
    watching.close()
    server.stop()
    sent.join()
    assert [answer.status_code for answer in answers] == [200]
    server.restart()
    after = Api(server.url)
    assert after.call("GET", table.path)["block_count"] == 300
    after.close()


def test_requests_carry_an_id_into_the_answer_and_the_log(server: ServerProcess) -> None:
    """The client's own id when it is sensible, else a new one; never one that could break a log or header."""
    api = Api(server.url)
    given = api.http.get("/v1/namespaces", headers={"X-Request-Id": "from-the-client.1"})
    assert given.headers["x-request-id"] == "from-the-client.1"
    made = [
        api.http.get("/v1/namespaces", headers=h).headers["x-request-id"] for h in ({}, {"X-Request-Id": "a b" * 99})
    ]
    assert all(re.fullmatch(r"[0-9a-f-]{36}", request_id) for request_id in made)
    api.close()
    server.stop()
    logged = [line["request_id"] for line in log_lines(server) if line["event"] == "request"]
    assert logged == ["from-the-client.1", *made]


def test_logs_hold_no_literal_of_a_filter_and_no_body(server: ServerProcess, tmp_path: Path) -> None:
    """Neither of filters that were answered nor of those that were refused, nor from a failure's traceback."""
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        table.register(*world.numbers(world.folder(), 2))
        filters = ("s = 'very private'", "s = 'very private' AND AND", "a = 'very private'", "very_private = 1")
        for filter in (*filters, "comment = 'very private'", "set = 'very private'", "show very_private"):
            world.api.send("POST", f"{table.path}/prune", {"filter": filter})
        world.api.send("POST", "/v1/namespaces", {"name": "very private"})
        world.api.send("GET", f"{table.path}/snapshots?page_token=very+private")
    server.stop()
    assert len([line for line in log_lines(server) if line["event"] == "request"]) >= 12
    assert "private" not in server.log_text()


def test_a_worker_keeps_what_it_starts_with_out_of_garbage_collections(
    tmp_path: Path,
) -> None:
    """Modules and routes are not gone through again and again while requests wait."""
    before = gc.get_freeze_count()
    try:
        app = served(Settings(warehouse=str(tmp_path / "w")), is_alone=False)
        assert gc.get_freeze_count() > before + len(app.routes)
    finally:
        gc.unfreeze()
    with AppClient(app) as client:
        assert client.get("/health/live").json() == {"status": "live"}


def test_a_mistake_of_ours_is_a_500_that_shows_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The problem document has the request's id and no more; the log has the rest under it."""

    def fail(_: str) -> None:
        raise ZeroDivisionError("internal secret")

    settings = Settings(warehouse=str(tmp_path / "w"))
    with AppClient(create_app(settings, store=WatchedStore(FsspecStore(), fail))) as client:
        client.post("/v1/namespaces", json={"name": "db"})
        body = {"name": "t", "schema": [{"name": "a", "type": "int64"}]}
        response = client.post("/v1/namespaces/db/tables", json=body)
        problem = read_problem(response)
        assert (problem.status, problem.code) == (500, "lamella_error")
        assert problem.details == {"request_id": response.headers["x-request-id"]}
        assert "secret" not in response.text
        assert client.get("/v1/namespaces/db/tables").json() == {"tables": []}
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    failure = next(line for line in lines if line["event"] == "request failed")
    assert "internal secret" in failure["exception"]
    assert failure["request_id"] == response.headers["x-request-id"]


def test_the_service_is_ready_only_while_the_store_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not ready is a problem document with the reason; alive it is all the same."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    warehouse = tmp_path / "w"
    settings = Settings(warehouse=str(warehouse), catalog=str(tmp_path / "c.db"))
    with AppClient(create_app(settings)) as client:
        for _ in range(2):
            assert client.get("/health/ready").json() == {"status": "ready"}
        warehouse.rename(tmp_path / "away")
        warehouse.write_text("a file where the folder was")
        problem = read_problem(client.get("/health/ready"))
        assert (problem.status, problem.code) == (502, "store_error")
        assert client.get("/health/live").json() == {"status": "live"}
        warehouse.unlink()
        (tmp_path / "away").rename(warehouse)
        assert client.get("/health/ready").status_code == 200


@pytest.mark.postgres
def test_the_service_is_ready_only_while_the_catalog_answers(
    tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database lets nobody in: 503 for readiness and for requests. Afterwards all is well again."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    name = postgres_database.rpartition("/")[2]
    admin = sa.create_engine(f"{postgres_database.rpartition('/')[0]}/postgres", isolation_level="AUTOCOMMIT")
    settings = Settings(warehouse=str(tmp_path / "w"), catalog=postgres_database, catalog_timeout_s=5)
    with AppClient(create_app(settings)) as client, admin.connect() as connection:
        assert client.get("/health/ready").status_code == 200
        connection.execute(sa.text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'))
        cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name"
        connection.execute(sa.text(cut), {"name": name})
        for response in (
            client.get("/health/ready"),
            client.get("/v1/namespaces"),
            client.post("/v1/namespaces", json={"name": "db"}, headers={"Idempotency-Key": "k"}),
        ):
            assert (read_problem(response).status, read_problem(response).code) == (503, "unavailable")
            assert "retry-after" in response.headers
        assert client.get("/health/live").status_code == 200
        connection.execute(sa.text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'))
        assert client.get("/health/ready").status_code == 200
        assert client.get("/v1/namespaces").json() == {"namespaces": []}
    admin.dispose()


def openapi(local: World) -> dict[str, Any]:
    """The description of the API."""
    return dict(local.api.call("GET", "/openapi.json"))


def references(node: Any) -> list[str]:
    """Every reference inside a document."""
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def test_the_api_describes_itself_wholly(local: World) -> None:
    """Every route is in the OpenAPI document, with its bodies, parameters and errors, and every reference resolves."""
    document = openapi(local)
    operations = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert len(operations) == 163
    assert ("post", "/v1/namespaces/{namespace}/tables/{table}/prune") in operations
    schemas = document["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in references(document)} <= set(schemas)
    assert {"PruneRequest", "PruneAnswer", "Problem", "Block", "Snapshot", "Segment", "TableInfo"} <= set(schemas)
    ids = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(set(ids)) == len(ids)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            named = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)
            assert operation["summary"]
            assert "default" in operation["responses"]
            questions = (
                "/prune",
                "/prune/batch",
                "/diff",
                "/aggregate",
                "/advice",
                "/what-if",
                "/why-not",
                "/candidates",
                "/auto",
                "/sample",
                "/current-snapshots",
            )
            asks = path.endswith(questions)
            asks = asks or path.endswith(("/plan", "/blocks"))
            again = ("/verify", "/arrivals", "{table}/vacuum", "/vacuum-dropped", "/feedback", "/recorded")
            repeatable = (
                path.endswith(again) or "/leases" in path or path.startswith(("/v1/jobs/", "/v1/keys", "/v1/grants"))
            )
            repeatable = repeatable or path.endswith(("/auto/start", "/auto/{action_id}"))  # by the runner's id
            repeatable = repeatable or (method == "put" and path.endswith(("/schedules/{schedule}", "/policy")))
            # Most of what other protocols ask changes nothing, and has headers of theirs.
            is_foreign = path.startswith(("/iceberg", "/delta-sharing"))
            changes = path.startswith("/iceberg") and not path.endswith(
                ("/plan", "/{plan_id}", "/tasks", "/metrics", "/sign", "/oauth/tokens")
            )
            mutates = method in ("delete", "post", "put") and not asks and not repeatable
            mutates = mutates and (changes or not is_foreign)
            headers = [p["name"] for p in operation.get("parameters", []) if p["in"] == "header"]
            theirs = ("delta-sharing-capabilities", "X-Iceberg-Access-Delegation") if is_foreign else ()
            known = ("If-None-Match", "Lamella-Timeout-Ms", *theirs)
            assert [name for name in headers if name not in known] == (["Idempotency-Key"] if mutates else [])
            assert ("If-None-Match" in headers) == ("304" in operation["responses"])


def test_the_reference_page_needs_nothing_from_elsewhere(local: World) -> None:
    """`/docs` shows every operation, runs no script and names no other host."""
    response = local.api.send("GET", "/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "<script" not in response.text
    outside_of_examples = re.sub(r"<pre>.*?</pre>", "", response.text, flags=re.DOTALL)
    assert re.findall(r"(?:https?:)?//[\w.]+", outside_of_examples) == []
    for path in openapi(local)["paths"]:
        assert path in response.text
    style = response.text.partition("<style>")[2].partition("</style>")[0]
    anchors = set(re.findall(r'id="([^"]+)"', response.text))
    assert style
    assert set(re.findall(r'href="#([^"]+)"', response.text)) <= anchors


def test_metrics_count_by_route_and_not_by_path(local: World) -> None:
    """Names and unknown paths do not become labels."""
    table = local.table()
    local.api.send("GET", table.path)
    local.api.send("GET", "/no/such/path")
    local.api.send("BREW", "/v1/namespaces")
    text = local.api.send("GET", "/metrics").text
    assert table.namespace not in text
    assert "/no/such/path" not in text
    assert "BREW" not in text
    assert 'route="/v1/namespaces/{namespace}/tables/{table}",status="200"' in text
    assert 'lamella_requests_total{method="GET",route="unmatched",status="404"}' in text


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """The service as a command that should end by itself."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    return subprocess.run(
        [sys.executable, "-m", "lamella.service"],
        env={**inherited, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("environment", "status", "text"),
    [
        ({}, 2, "LAMELLA_WAREHOUSE: the setting warehouse is missing (Folder of all tables"),
        ({"LAMELLA_WAREHOUSE": "/w", "LAMELLA_PORT": "http"}, 2, "LAMELLA_PORT"),
        ({"LAMELLA_WAREHOUSE": "/w", "LAMELLA_HOST": "0.0.0.0"}, 1, "--insecure"),  # noqa: S104  # must be refused
        ({"LAMELLA_WAREHOUSE": "s3://b/w"}, 1, "LAMELLA_CATALOG"),
        ({"LAMELLA_WAREHOUSE": "/w", "LAMELLA_CATALOG": "mysql://h/d"}, 1, "mysql"),
    ],
)
@pytest.mark.few(2)
def test_settings_that_cannot_be_used_are_explained_in_a_line(
    environment: dict[str, str], status: int, text: str
) -> None:
    """The process ends at once, with the setting's name and no traceback."""
    done = run(**environment)
    assert (done.returncode, text in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.few(1)
def test_a_port_that_is_in_use_is_reported_before_anything_is_started(tmp_path: Path, workers: str) -> None:
    """One line, a status, nothing on standard output, no catalog, and no log that says that something started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(LAMELLA_WAREHOUSE=str(tmp_path / "w"), LAMELLA_PORT=port, LAMELLA_WORKERS=workers)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"cannot listen on 127.0.0.1, port {port}: another program uses that port")
    assert "--port or LAMELLA_PORT" in line
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"LAMELLA_HOST": "192.0.2.1", "LAMELLA_INSECURE": "true"}, "this machine does not have that address"),
        ({"LAMELLA_HOST": "no such host", "LAMELLA_INSECURE": "true"}, "no address of that name is known"),
        (
            {"LAMELLA_TLS_CERT_FILE": "/no/cert.pem", "LAMELLA_TLS_KEY_FILE": "/no/key.pem"},
            "/no/cert.pem cannot be read",
        ),
    ],
)
@pytest.mark.few(1)
def test_what_nobody_can_serve_at_is_reported_before_anything_is_started(
    tmp_path: Path, environment: dict[str, str], said: str
) -> None:
    """As for a port in use."""
    done = run(LAMELLA_WAREHOUSE=str(tmp_path / "w"), LAMELLA_PORT=str(free_port()), **environment)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert said in line
    assert not (tmp_path / "w").exists()


def test_a_name_of_several_addresses_is_served_at_each() -> None:
    """As before there were sockets to hand over; they are given back."""
    port = free_port()
    families = {each[0] for each in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
    with listening("localhost", port) as (sockets,):
        assert {each.family for each in sockets} == families
        assert {each.getsockname()[1] for each in sockets} == {port}
    assert all(each.fileno() == -1 for each in sockets)


def test_a_service_that_is_stopped_ends_well(server: ServerProcess) -> None:
    """After draining it ends with status 0, and has said so."""
    assert server.stop() == 0
    assert [line["event"] for line in log_lines(server)].count("stopped") == 1
