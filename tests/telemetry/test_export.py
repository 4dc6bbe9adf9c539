"""Processes that send their spans: to a collector, as the standard variables say, and nothing that is private."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.service.app import open_traces
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage import FsspecStore
from support.collector import Collector, Exported
from support.ports import free_port
from support.service_api import World

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NAMESPACES = "GET /v1/namespaces"
SECRET = "Zq7secretliteral"
TOKEN = "lam_Zq7secrettoken.Zq7secrettoken"

Variables = Callable[..., None]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    """Sets variables of OpenTelemetry for processes that are started from now on."""

    def set_all(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"OTEL_{name}", value)

    return set_all


def ask(server: ServerProcess, **headers: str) -> None:
    """One request."""
    assert httpx2.get(f"{server.url}/v1/namespaces", headers=headers).status_code == 200


def has(*names: str) -> Callable[[list[Exported]], bool]:
    """Whether there are spans of all these names."""
    return lambda spans: set(names) <= {span.name for span in spans}


def test_the_standard_variables_say_where_to_and_how(
    collector: Collector, start_server: StartServer, variables: Variables, tmp_path: Path
) -> None:
    """Endpoint, headers, compression, the service's name and its resource."""
    variables(
        EXPORTER_OTLP_HEADERS="api-key=own,x-tenant=1",
        EXPORTER_OTLP_COMPRESSION="gzip",
        SERVICE_NAME="lake-of-mine",
        RESOURCE_ATTRIBUTES="deployment.environment.name=test",
    )
    server = start_server(warehouse=tmp_path / "w", traces="true")
    ask(server, traceparent=GIVEN)
    spans = collector.wait_for(has(NAMESPACES, "catalog select"), "a request's spans")
    request = next(span for span in spans if span.name == NAMESPACES)
    assert (request.service, request.kind) == ("lake-of-mine", "server")
    assert (request.trace_id, request.parent_id) == (GIVEN[3:35], GIVEN[36:52])
    assert b"deployment.environment.name" in collector.bodies[0]
    sent = collector.headers[0]
    assert (sent["api-key"], sent["x-tenant"], sent["content-encoding"]) == ("own", "1", "gzip")
    assert sent["content-type"] == "application/x-protobuf"


def test_each_worker_sends_its_own(collector: Collector, start_server: StartServer, tmp_path: Path) -> None:
    """With several processes, too, and the name that is used when nobody gives one."""
    server = start_server(warehouse=tmp_path / "w", traces="true", workers=2)
    for _ in range(8):
        ask(server)
    spans = collector.wait_for(
        lambda spans: sum(span.name == NAMESPACES for span in spans) >= 8, "the spans of eight requests"
    )
    assert {span.service for span in spans} == {"lamella"}
    assert len({span.trace_id for span in spans if span.name == NAMESPACES}) == 8


def test_the_sampler_of_the_variables_is_the_one_that_counts(
    collector: Collector, start_server: StartServer, variables: Variables, tmp_path: Path
) -> None:
    """None but those that their clients sample."""
    variables(TRACES_SAMPLER="parentbased_traceidratio", TRACES_SAMPLER_ARG="0")
    server = start_server(warehouse=tmp_path / "w", traces="true")
    for _ in range(5):
        ask(server)
    ask(server, traceparent=GIVEN)
    server.stop()
    spans = collector.wait_for(has(NAMESPACES), "the span that was sampled")
    assert {span.trace_id for span in spans} == {GIVEN[3:35]}


@pytest.mark.parametrize("status", [None, 500])
@pytest.mark.few(1)
def test_a_collector_that_does_not_take_them_holds_up_nobody(
    collector: Collector, start_server: StartServer, variables: Variables, tmp_path: Path, status: int | None
) -> None:
    """One that is not there, or fails: requests are answered, and the service ends when it is told to."""
    if status is None:
        variables(EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    else:
        collector.status = status
    server = start_server(warehouse=tmp_path / "w", traces="true")
    for _ in range(3):
        ask(server)
    assert server.stop() == 0
    assert "Traceback" not in server.log_text()


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
    ],
)
def test_what_cannot_be_done_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, text: str
) -> None:
    """Another exporter or protocol; and nothing of it matters while traces are off."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidRequest, match=text):
        open_traces(Settings(warehouse="/w", traces=True))
    assert not open_traces(Settings(warehouse="/w")).is_on


def test_spans_may_be_made_and_sent_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """``OTEL_TRACES_EXPORTER=none``: for whoever only wants the ids in the log."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    traces = open_traces(Settings(warehouse="/w", traces=True))
    assert traces.is_on
    traces.close()


def test_nothing_private_is_in_what_is_sent(collector: Collector, start_server: StartServer, tmp_path: Path) -> None:
    """No literal of a filter, no place of a file, no key or token, no query: neither of what was answered nor of what
    was refused. Everything that the collector got is searched."""
    server = start_server(warehouse=tmp_path / "w", traces="true")
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        world.api.http.headers["Authorization"] = f"Bearer {TOKEN}"
        table = world.table()
        data = world.put(f"{world.root}/s={SECRET}/x.parquet", a=[1, 2], s=[SECRET, "b"])
        table.register(data, path_columns="ignore")
        for body in bodies():
            for path in ("prune", "aggregate", "why-not", "commits", "register", "advice", "rollback"):
                world.api.send("POST", f"{table.path}/{path}", body)
            world.api.send("POST", f"{table.path}/prune/batch", {"filters": [body["filter"]]})
        for path in (f"{table.path}/snapshots?page_token={SECRET}", f"{table.path}?{SECRET}={SECRET}", f"/{SECRET}"):
            world.api.send("GET", path)
        world.api.http.get("/v1/namespaces", headers={"X-Other": SECRET, "Cookie": f"a={SECRET}"})
    server.stop()
    spans = collector.wait_for(lambda spans: len(spans) > 100, "the spans of many requests")
    routes = {span.name for span in spans}
    assert any(name.endswith("/prune") for name in routes)
    assert any(name.endswith("/aggregate") for name in routes)
    everything = b"".join(collector.bodies)
    for hidden in (SECRET, TOKEN, SECRET.lower(), "s%3D" + SECRET):
        assert hidden.encode() not in everything
    assert b"data/" not in everything


def bodies() -> list[dict[str, Any]]:
    """Requests that are right for one route and wrong for others, all with the secret in their filter."""
    tree = {"type": "eq", "term": "s", "value": SECRET}
    filters: list[Any] = [
        f"s = '{SECRET}'",
        f"a = '{SECRET}'",
        f"{SECRET} = 1",
        f"s = '{SECRET}' AND AND",
        f"s IN ('{SECRET}', 'x') OR s LIKE '{SECRET}%'",
        tree,
        {"type": SECRET},
    ]
    rests: list[dict[str, Any]] = [
        {},
        {"explain": True},
        {"level": "page"},
        {"aggregates": ["count(*)", f"min({SECRET})"]},
        {"paths": [f"/{SECRET}/*.parquet"]},
        {"columns": [SECRET]},
    ]
    found = [{"filter": filter, **rest} for filter, rest in itertools.product(filters, rests)]
    json.dumps(found)
    return found
