"""Commands, workers and the programs of their jobs send traces that belong together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures_server import StartServer
from lamella.client import Lamella, tracing
from lamella.snapshot.schema import Column
from support.collector import Collector, Exported, below, children_of
from support.service_api import parquet_bytes
from support.worker_process import WorkerProcess

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "Zq7secretliteral"


def named(spans: list[Exported], name: str) -> Exported:
    """The only span of that name."""
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, [span.name for span in spans]
    return found[0]


@pytest.fixture
def traced_url(collector: Collector, start_server: StartServer, tmp_path: Path) -> str:
    """A service that sends traces, with table ``db.t``."""
    server = start_server(warehouse=tmp_path / "w", traces="true")
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet_bytes({"a": [1, 2]}))
    with Lamella(server.url, traces=False) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="a", type="int64")])
        lake.table("db.t").register([str(path)])
    collector.wait_for(lambda spans: any(span.name == "commit" for span in spans), "the set-up's own spans")
    return server.url


def test_a_command_is_one_trace_with_what_the_service_did(
    traced_url: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the trace that the environment names, and tells its name and nothing that was typed."""
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    monkeypatch.setenv(tracing.VARIABLE, "true")
    words = ["prune", "db.t", f"{SECRET} = 'x'", "--url", traced_url, "--token", SECRET]
    command = [sys.executable, "-m", "lamella.client.cli"]
    done = subprocess.run([*command, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 1  # there is no such column
    assert subprocess.run([*command, "tables", "list", "db", "--url", traced_url], check=False).returncode == 0

    def both(spans: list[Exported]) -> bool:
        ours = [span.service for span in spans if span.trace_id == GIVEN[3:35] and not span.name.startswith("lamella ")]
        return {"lamella", "lamella-cli"} <= set(ours) and {"lamella prune", "lamella tables"} <= {
            span.name for span in spans
        }

    spans = [span for span in collector.wait_for(both, "spans of both") if span.trace_id == GIVEN[3:35]]
    refused, answered = named(spans, "lamella prune"), named(spans, "lamella tables")
    assert {refused.parent_id, answered.parent_id} == {GIVEN[36:52]}
    assert (refused.failed, answered.failed) == (True, False)
    assert set(refused.attributes) == {"error.type"}
    (call,) = children_of(spans, answered)
    (tried,) = children_of(spans, call)
    assert (tried.kind, tried.service) == ("client", "lamella-cli")
    (request,) = children_of(spans, tried)
    assert (request.kind, request.service) == ("server", "lamella")
    assert SECRET.encode() not in b"".join(collector.bodies)


def test_a_job_is_one_trace_from_the_worker_to_the_store(
    traced_url: str, collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The attempt, the command of its program, what that asks, and what the service does for it; nothing of the
    worker's own questions."""
    monkeypatch.setenv(tracing.VARIABLE, "true")
    with Lamella(traced_url, traces=False) as lake:
        job = lake.jobs.submit("verify", "db.t")
        worker = WorkerProcess(traced_url, tmp_path, "w", "--once")
        assert worker.process.wait(120) == 0, worker.log.read_text()
        assert lake.jobs.get(job.job_id).state == "succeeded"
    spans = collector.wait_for(
        lambda spans: (
            any(span.name == "job verify" for span in spans)
            and any(span.name.endswith("/verify") and span.service == "lamella" for span in spans)
        ),
        "spans of the job",
    )
    attempt = named(spans, "job verify")
    assert (attempt.service, attempt.parent_id, attempt.failed) == ("lamella-worker", "", False)
    assert attempt.attributes == {"lamella.job.id": job.job_id, "lamella.job.attempt": 1}
    (command,) = children_of(spans, attempt)
    assert (command.name, command.service) == ("lamella verify", "lamella-cli")
    served = [span for span in below(spans, command) if span.kind == "server"]
    assert any(span.name.endswith("/verify") for span in served)
    assert {span.trace_id for span in below(spans, attempt)} == {attempt.trace_id}
    assert not any("claim" in span.name and span.service != "lamella" for span in spans)


def test_no_program_goes_on_with_a_trace_that_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without traces of its own a worker hands on nothing but what it was given."""
    monkeypatch.delenv(tracing.VARIABLE, raising=False)
    with tracing.process_traces("x"), tracing.part("y", {}) as span:
        assert span is None
        assert tracing.environment() == {}
    assert "TRACEPARENT" not in os.environ
