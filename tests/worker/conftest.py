"""A service that knows a pretended kind of job, its workers, and their ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.snapshot.schema import Column
from support.job_kinds import install_pretend
from support.worker_process import Ledger, WorkerProcess, until

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def service(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service for all tests of a file; jobs that fail are due again at once."""
    folder = tmp_path_factory.mktemp("worker")
    kinds = folder / "kinds"
    kinds.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in install_pretend(kinds).items():
            patch.setenv(name, value)
        settings = {"warehouse": folder / "warehouse", "job_retry_s": 0.1, "log_requests": False}
        server = start_shared(pytestconfig, folder, settings)
        with Lamella(server.url) as lake:
            lake.create_namespace("db")
        yield server
        server.stop()


@pytest.fixture
def lake(service: ServerProcess) -> Iterator[Lamella]:
    """A client, the tables `db.a` and `db.b` as if there had never been others, and nothing in the queue."""
    with Lamella(service.url) as lake:
        for job in list(lake.jobs.list(states=["queued"])):
            lake.jobs.cancel(job.job_id)
        until(lambda: not list(lake.jobs.list(states=["running"])), "nothing runs")
        for name in ("a", "b"):
            if name in lake.tables("db"):
                lake.drop_table(f"db.{name}")
            lake.create_table(f"db.{name}", schema=[Column(name="x", type="int64")])
        yield lake


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """What pretended jobs do."""
    return Ledger(tmp_path / "ledger.jsonl")


@pytest.fixture
def start_worker(service: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartWorker]:
    """Starts workers; they are stopped after the test, and a failure's report has their logs."""
    started: list[WorkerProcess] = []

    def start(name: str = "w", *options: str, lease_s: int = 5) -> WorkerProcess:
        started.append(WorkerProcess(service.url, tmp_path, name, *options, lease_s=lease_s))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()
        request.node.add_report_section("teardown", worker.log.name, worker.log.read_text("utf-8"))
