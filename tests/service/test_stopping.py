"""Starting and stopping: probes, draining, what is running at SIGTERM, and a second one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fixtures_server import STOP_S, ServerProcess, StartServer
from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.composition import Core
from lamella.service.config.settings import Settings
from lamella.service.process import health, lifecycle
from lamella.service.process.lifecycle import Lifecycle
from lamella.service.telemetry.logs import make_log
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.service_api import TableApi, World, read_problem

WORKERS = pytest.mark.parametrize("workers", [1, 2])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail when that takes minutes."""
    give_up = time.monotonic() + 300
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"never: {what}")
        time.sleep(0.01)


def events(server: ServerProcess, event: str) -> list[dict[str, Any]]:
    """The log lines of that kind, but one that is being written."""
    whole = server.log_text().rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if line["event"] == event]


def get(url: str) -> httpx2.Response:
    """One request on a connection of its own."""
    return httpx2.get(url, timeout=60)


class HalfSent:
    """A POST whose headers and half of whose body have arrived."""

    def __init__(self, server: ServerProcess, path: str, body: Any) -> None:
        data = json.dumps(body).encode()
        self._rest = data[len(data) // 2 :]
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + data[: len(data) // 2])

    def answer_to_half(self) -> bytes:
        """Wait until the service closes the connection; what it sent, although it had but half."""
        with self._socket:
            try:
                return self._socket.recv(65536)
            except ConnectionError:
                return b""

    def finish(self) -> tuple[int, Any]:
        """Send the rest; the status and body of the answer, after which the connection is closed."""
        parts = []
        with self._socket:
            self._socket.sendall(self._rest)
            while part := self._socket.recv(65536):
                parts.append(part)
        head, _, body = b"".join(parts).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)


def in_progress(server: ServerProcess, count: int) -> None:
    """Return once so many requests are running, beside the one that asks."""
    line = f"lamella_requests_in_progress {count + 1}.0"
    wait_until(lambda: line in get(f"{server.url}/metrics").text.splitlines(), line)


def all_started(server: ServerProcess, workers: int) -> ServerProcess:
    """Return once every worker serves."""
    wait_until(lambda: len(events(server, "started")) == workers, "every worker has started")
    return server


@contextmanager
def table_of(server: ServerProcess, folder: Path, files: int = 3) -> Iterator[tuple[World, TableApi, list[str]]]:
    """A table without blocks, and files for it."""
    with World(server.url, f"file://{folder}/data", FsspecStore()) as world:
        yield world, world.table(), world.numbers(world.folder(), files)


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the write lock of a SQLite catalog, so that commits wait."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


@WORKERS
@pytest.mark.few(1)
def test_it_says_that_it_is_not_ready_and_goes_on_serving_before_it_stops(
    start_server: StartServer, tmp_path: Path, workers: int
) -> None:
    """After SIGTERM a proxy is told to look elsewhere, while requests that still come are answered, each the last on
    its connection; then the process ends with status 0."""
    server = all_started(start_server(warehouse=tmp_path / "warehouse", workers=workers, drain_s=3), workers)
    with table_of(server, tmp_path) as (_, table, files):
        table.register(*files)
        path = table.path
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: len(events(server, "draining")) == workers, "every worker drains")
    not_ready = get(f"{server.url}/health/ready")
    problem = read_problem(not_ready)
    assert (problem.status, problem.code, problem.details["reason"]) == (503, "unavailable", "draining")
    assert int(not_ready.headers["retry-after"]) >= 1
    assert get(f"{server.url}/health/live").json() == {"status": "live"}
    assert get(f"{server.url}/health/startup").json() == {"status": "started"}
    pruned = httpx2.post(f"{server.url}{path}/prune", json={"filter": "a >= 0"}, timeout=60)
    assert (pruned.status_code, len(pruned.json()["blocks"])) == (200, 3)
    assert pruned.headers["connection"] == "close"
    assert server.process.wait(timeout=STOP_S) == 0
    assert len(events(server, "stopped")) == workers


@WORKERS
def test_what_has_begun_to_arrive_at_sigterm_is_answered(
    start_server: StartServer, tmp_path: Path, workers: int
) -> None:
    """A prune and a commit whose bodies end only after the service stopped listening have their effect and answers."""
    server = all_started(start_server(warehouse=tmp_path / "warehouse", workers=workers), workers)
    with table_of(server, tmp_path, files=4) as (_, table, files):
        table.register(*files[:3])
        prune = HalfSent(server, f"{table.path}/prune", {"filter": "a < 10"})
        commit = HalfSent(server, f"{table.path}/register", {"paths": files[3:]})
        in_progress(server, 2)
    server.process.send_signal(signal.SIGTERM)

    def refuses() -> bool:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refuses, "nobody listens any more")
    status, answer = prune.finish()
    assert (status, len(answer["blocks"])) == (200, 1)
    status, answer = commit.finish()
    assert (status, answer["registered"]) == (200, 1)
    assert server.process.wait(timeout=STOP_S) == 0
    server.restart()
    assert get(f"{server.url}{table.path}").json()["block_count"] == 4


@WORKERS
def test_a_commit_that_waits_for_the_catalog_is_made_before_the_service_ends(
    start_server: StartServer, tmp_path: Path, workers: int
) -> None:
    """However late its turn comes within the grace, the commit is answered, and is there after a restart."""
    catalog = tmp_path / "catalog.db"
    server = start_server(warehouse=tmp_path / "warehouse", catalog=catalog, workers=workers)
    all_started(server, workers)
    answers: list[httpx2.Response] = []
    with table_of(server, tmp_path) as (_, table, files):
        path = f"{server.url}{table.path}"

        def register() -> None:
            answers.append(httpx2.post(f"{path}/register", json={"paths": files}, timeout=60))

        sent = threading.Thread(target=register)
        with locked(catalog):
            sent.start()
            in_progress(server, 1)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: len(events(server, "draining")) == workers, "every worker drains")
            assert server.process.poll() is None
            assert answers == []
        sent.join()
    assert [(answer.status_code, answer.json()["registered"]) for answer in answers] == [(200, 3)]
    assert server.process.wait(timeout=STOP_S) == 0
    server.restart()
    assert get(path).json()["block_count"] == 3


@WORKERS
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(
    start_server: StartServer, tmp_path: Path, workers: int, second: signal.Signals
) -> None:
    """Whatever is still running: no process is left, and the status tells that a signal ended it."""
    catalog = tmp_path / "catalog.db"
    server = start_server(
        warehouse=tmp_path / "warehouse", catalog=catalog, workers=workers, shutdown_grace_s=600, catalog_timeout_s=600
    )
    all_started(server, workers)
    with table_of(server, tmp_path) as (_, table, files):
        waiting = HalfSent(server, f"{table.path}/register", {"paths": files})
        in_progress(server, 1)
        pids = [line["pid"] for line in events(server, "started")]
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: len(events(server, "draining")) == workers, "every worker drains")
        server.process.send_signal(second)
        assert server.process.wait(timeout=STOP_S) == -second
        assert waiting.answer_to_half() == b""
    assert len(events(server, "stopped")) < workers  # one that had nothing to do may have ended by then
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), "no worker is left")  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_to_the_whole_group_counts_once(tmp_path: Path) -> None:
    """Workers get it twice then, from the system and from the process that looks after them, and finish all the
    same."""
    log = (tmp_path / "log").open("w+b")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"WAREHOUSE": tmp_path / "w", "PORT": port, "WORKERS": 2, "DRAIN_S": 0}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "lamella.service"],
        env={**inherited, **{f"LAMELLA_{name}": str(value) for name, value in settings.items()}},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        server = ServerProcess.__new__(ServerProcess)
        server.port, server.url, server.log = port, f"http://127.0.0.1:{port}", tmp_path / "log"
        server.process = process
        all_started(server.wait_ready(), 2)
        with table_of(server, tmp_path) as (_, table, files):
            commit = HalfSent(server, f"{table.path}/register", {"paths": files})
            in_progress(server, 1)
        os.killpg(process.pid, signal.SIGINT)
        wait_until(lambda: len(events(server, "draining")) == 2, "both workers drain")
        assert commit.finish()[0] == 200
        assert process.wait(timeout=STOP_S) == 0
        assert len(events(server, "stopped")) == 2
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=STOP_S)
        log.close()


def test_what_outlasts_the_grace_does_not_hold_the_service(start_server: StartServer, tmp_path: Path) -> None:
    """A client that never sends the end of its body gets an error, and the process ends with status 0."""
    server = start_server(warehouse=tmp_path / "warehouse", shutdown_grace_s=1)
    with table_of(server, tmp_path) as (_, table, files):
        never = HalfSent(server, f"{table.path}/register", {"paths": files})
        in_progress(server, 1)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=STOP_S) == 0
    assert never.answer_to_half().startswith(b"HTTP/1.1 500")
    assert len(events(server, "stopped")) == 1


def run(program: str) -> subprocess.Popen[str]:
    """A process of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=inherited, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


STUCK = """
import asyncio, contextlib
from fastapi import FastAPI
from lamella.service.process import lifecycle
from lamella.service.process.lifecycle import Lifecycle
from lamella.service.telemetry.logs import make_log
from lamella.service.process.supervisor import listening, run_alone
from lamella.service.config.settings import Settings

@contextlib.asynccontextmanager
async def lifespan(_app):
    print("started", flush=True)
    yield
    await asyncio.Event().wait()

lifecycle.CLOSING_S = 0.2
app = FastAPI(lifespan=lifespan)
settings = Settings(warehouse="/w", drain_s=0, shutdown_grace_s=0)
lifecycle.drain_on_signals(app, Lifecycle(), settings, make_log(), is_alone=True)
with listening("127.0.0.1", 0) as sockets:
    run_alone(app, {}, sockets[0])
"""


def test_an_end_that_is_stuck_is_cut_short() -> None:
    """When what is left to do after the grace never ends, the process does, with status 1, and says so."""
    process = run(STUCK)
    assert process.stdout is not None
    while "started" not in (line := process.stdout.readline()):
        assert line, "it ended"
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=STOP_S)
    assert process.returncode == 1
    assert "did not stop in time" in output


def test_a_service_whose_workers_cannot_start_ends_with_a_status() -> None:
    """Whoever started it learns of it, instead of a service without workers."""
    program = """
from lamella.service.process.supervisor import listening, run_workers
with listening("127.0.0.1", 0, 2) as sockets:
    run_workers(dict.fromkeys, {}, sockets)
"""
    process = run(program)
    output, _ = process.communicate(timeout=STOP_S)
    assert process.returncode == 3, output


def test_it_has_started_once_the_store_was_seen_to_replace_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first look it has not; afterwards it has, whatever becomes of the store, which readiness tells."""
    monkeypatch.setattr(health, "RESULT_TTL_S", 0.0)
    warehouse = tmp_path / "w"
    warehouse.write_text("a file where the folder should be")
    with AppClient(create_app(Settings(warehouse=str(warehouse), catalog=str(tmp_path / "c.db")))) as client:
        problem = read_problem(client.get("/health/startup"))
        assert (problem.status, problem.code) == (502, "store_error")
        warehouse.unlink()
        assert client.get("/health/startup").json() == {"status": "started"}
        assert (warehouse / "_lamella_v1.json").exists()
        warehouse.rename(tmp_path / "away")
        warehouse.write_text("a file again")
        assert client.get("/health/startup").json() == {"status": "started"}
        assert client.get("/health/ready").status_code == 502


def test_two_apps_of_a_process_are_stopped_each_for_itself(tmp_path: Path) -> None:
    """One that drains says so; the other is ready as before."""
    apps = [create_app(Settings(warehouse=str(tmp_path / name))) for name in ("a", "b")]
    with AppClient(apps[0]) as one, AppClient(apps[1]) as other:
        apps[0].lifecycle.drain()
        assert one.get("/health/ready").status_code == 503
        assert one.get("/health/live").headers["connection"] == "close"
        assert other.get("/health/ready").status_code == 200
        assert "connection" not in other.get("/health/live").headers


def test_a_service_ends_though_nobody_can_watch_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no thread left for that; the server is told to stop in any case."""

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stopped: list[int] = []

    async def drain() -> None:
        settings = Settings(warehouse=str(tmp_path), drain_s=0)
        draining = lifecycle._Drain(Lifecycle(), settings, make_log("error"), is_alone=True)
        draining.servers[signal.SIGTERM] = lambda number, _: stopped.append(number)
        monkeypatch.setattr(threading.Thread, "start", cannot)
        draining(signal.SIGTERM, None)
        await asyncio.sleep(0.1)

    asyncio.run(drain())
    assert stopped == [signal.SIGTERM]


def test_what_cannot_be_ended_does_not_keep_the_rest_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits that wait are finished, and connections given back, also when another part fails on the way."""
    settings = Settings(warehouse=str(tmp_path))
    catalog = open_catalog(settings.catalog_url)
    core = Core(settings, store=FsspecStore(), catalog=catalog, ids=Ids(), clock=unix_ms)
    ended: list[str] = []

    def ends(name: str, error: Exception | None = None) -> Callable[[], None]:
        def end() -> None:
            ended.append(name)
            if error is not None:
                raise error

        return end

    parts = ("committer", "healths", "recorder", "prune_rates", "audit", "traces")
    core.when_closing(ends("page", ValueError("a page")))
    for name in parts:
        error = OSError(name) if name == "recorder" else None
        monkeypatch.setattr(getattr(core, name), "close", ends(name, error))
    with pytest.raises(OSError, match="recorder"):
        core.close()
    assert ended == ["page", *parts]
    assert catalog.connections[0] == 0
