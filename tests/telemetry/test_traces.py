"""Traces of the service: which spans there are, below which, and in whose trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from lamella.client import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.telemetry.otel import OtelTraces
from lamella.service.telemetry.tracing import Traces
from lamella.snapshot.errors import UnknownColumn
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore, Store
from support.app_client import AppClient
from support.loopback import on_loopback
from support.recorded_spans import Recorded, id_of, parent_of, trace_of
from support.service_api import parquet_bytes
from support.watched_store import WatchedStore

PRUNE = "POST /v1/namespaces/{namespace}/tables/{table}/prune"
REGISTER = "POST /v1/namespaces/{namespace}/tables/{table}/register"
TABLE = "/v1/namespaces/db/tables/t"
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def unmapped() -> Store:
    """A store whose files are read, as those of another machine are, and not mapped."""
    return WatchedStore(FsspecStore(), lambda _: None)


@contextmanager
def serving(folder: Path, recorded: Recorded | None) -> Iterator[str]:
    """The address of a service whose spans are recorded; None: that has none."""
    traces = Traces() if recorded is None else OtelTraces(recorded.provider)
    options = Settings(warehouse=str(folder / "warehouse"))
    with on_loopback(create_app(options, store=unmapped(), traces=traces)) as url:
        yield url


def file(folder: Path, name: str, values: list[int]) -> str:
    """A Parquet file of a column ``a``."""
    path = folder / f"{name}.parquet"
    path.write_bytes(parquet_bytes({"a": values}))
    return str(path)


def make_table(url: str, *files: str) -> None:
    """Table ``db.t`` with these files, by a client without traces."""
    with Lamella(url, traces=False) as lake:
        lake.create_namespace("db")
        lake.create_table("db.t", schema=[Column(name="a", type="int64")])
        if files:
            lake.table("db.t").register(list(files))


def is_below(spans: list[ReadableSpan], span: ReadableSpan, above: ReadableSpan) -> bool:
    """Whether one span lies below another one, however deep."""
    by_id = {id_of(each): each for each in spans}
    parent = parent_of(span)
    while parent is not None and parent in by_id:
        if parent == id_of(above):
            return True
        parent = parent_of(by_id[parent])
    return False


def test_one_trace_leads_from_the_client_to_the_store(
    tmp_path: Path, recorded: Recorded, client_spans: Recorded
) -> None:
    """The call, its try, the request, the prune and the reads of the store, each below the one before."""
    with serving(tmp_path, None) as url:
        make_table(url, file(tmp_path, "x", [1, 2]), file(tmp_path, "y", [7, 8]))
    with serving(tmp_path, recorded) as url, Lamella(url) as lake:  # a service that has nothing in memory
        assert lake.table("db.t").prune("a > 5").block_count == 1
        request = recorded.one(PRUNE)
    call, tried = client_spans.one(f"lamella {PRUNE}"), client_spans.one(PRUNE)
    spans = recorded.spans()
    assert {trace_of(span) for span in [call, tried, *spans]} == {trace_of(call)}
    assert (parent_of(call), parent_of(tried), parent_of(request)) == (None, id_of(call), id_of(tried))
    prunes = [span for span in spans if span.name == "prune"]
    assert [parent_of(span) for span in prunes] == [id_of(request)] * len(prunes)
    answered = prunes[-1]
    reads = [span for span in spans if span.name in ("store read", "store read_range")]
    assert reads
    assert all(is_below(spans, read, answered) for read in reads)
    assert any(span.name == "catalog lookup" and parent_of(span) == id_of(request) for span in spans)


def test_a_prune_says_what_its_stages_did(tmp_path: Path, recorded: Recorded, client_spans: Recorded) -> None:
    """As events in their order, with what each looked at and kept; the request has its route, status and id."""
    with serving(tmp_path, recorded) as url:
        make_table(url, file(tmp_path, "x", [1, 2]), file(tmp_path, "y", [7, 8]))
        recorded.clear()
        answer = httpx2.post(url + TABLE + "/prune", json={"filter": "a > 5"})
        request = recorded.one(PRUNE)
    answered = [span for span in recorded.spans() if span.name == "prune"][-1]
    report = answer.json()["report"]
    assert [event.name for event in answered.events] == [stage["stage"] for stage in report["stages"]]
    for event, stage in zip(answered.events, report["stages"], strict=True):
        attributes = dict(event.attributes or {})
        assert (
            attributes["lamella.prune.considered"],
            attributes["lamella.prune.kept"],
            attributes["lamella.prune.kept_bytes"],
        ) == (
            stage["considered"],
            stage["kept"],
            stage["bytes"],
        )
    assert dict(answered.attributes or {})["lamella.prune.blocks"] == 1
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/namespaces/{namespace}/tables/{table}/prune",
        "http.response.status_code": 200,
        "lamella.request_id": answer.headers["x-request-id"],
        "lamella.namespace": "db",
        "lamella.table": "t",
    }
    assert client_spans.names() == []


def test_a_commit_shows_its_phases(tmp_path: Path, recorded: Recorded) -> None:
    """Files are read, it waits for its turn, a snapshot is prepared and swapped in; each with its calls below."""
    with serving(tmp_path, recorded) as url:
        make_table(url)
        recorded.clear()
        body = {"paths": [file(tmp_path, "x", [1]), file(tmp_path, "y", [2])]}
        assert httpx2.post(f"{url}{TABLE}/register", json=body).status_code == 200
        commit, request = recorded.one("commit"), recorded.one(REGISTER)
    spans = recorded.spans()
    by_name = {span.name: span for span in spans}
    for name in ("read files", "commit queue", "commit"):
        assert parent_of(by_name[name]) == id_of(request)
    for name in ("commit prepare", "commit swap"):
        assert parent_of(by_name[name]) == id_of(commit)
        assert dict(by_name[name].attributes or {})["lamella.commit.attempt"] == 1
    puts = [span for span in spans if span.name == "store put"]
    assert puts
    assert {parent_of(span) for span in puts} == {id_of(by_name["commit prepare"])}
    footers = [span for span in spans if span.name == "store read_range"]
    assert {parent_of(span) for span in footers} == {id_of(by_name["read files"])}  # from other threads, too
    assert any(span.name == "catalog commit" and parent_of(span) == id_of(by_name["commit swap"]) for span in spans)


def test_a_commit_that_lost_a_race_shows_each_attempt(tmp_path: Path, recorded: Recorded) -> None:
    """Prepared and swapped in vain, then again."""
    warehouse = str(tmp_path / "warehouse")
    meanwhile: list[str] = []
    with AppClient(create_app(Settings(warehouse=warehouse)), base_url="http://localhost") as other:

        def before_put(location: str) -> None:
            if "/_ss/" in location and meanwhile:
                body = {"paths": [meanwhile.pop()]}
                assert other.post(f"{TABLE}/register", json=body).status_code == 200

        traces = OtelTraces(recorded.provider)
        app = create_app(Settings(warehouse=warehouse), store=WatchedStore(FsspecStore(), before_put), traces=traces)
        with AppClient(app, base_url="http://localhost") as client:
            assert client.post("/v1/namespaces", json={"name": "db"}).status_code == 201
            body: dict[str, Any] = {"name": "t", "schema": [{"name": "a", "type": "int64"}]}
            assert client.post("/v1/namespaces/db/tables", json=body).status_code == 201
            recorded.clear()
            meanwhile.append(file(tmp_path, "theirs", [1]))
            body = {"paths": [file(tmp_path, "ours", [2])]}
            assert client.post(f"{TABLE}/register", json=body).status_code == 200
            recorded.one("commit")
    swaps = [dict(span.attributes or {}) for span in recorded.spans() if span.name == "commit swap"]
    assert [(each["lamella.commit.attempt"], each["lamella.commit.is_current"]) for each in swaps] == [
        (1, False),
        (2, True),
    ]
    assert recorded.names().count("commit prepare") == 2


def test_commits_of_several_requests_are_one_span_that_names_them_all(recorded: Recorded) -> None:
    """It is below the first one that is traced, and linked to the others; requests that are not traced count for
    nothing."""
    traces = OtelTraces(recorded.provider)
    requests = [traces.request("POST", []) for _ in range(3)]
    contexts = []
    for request in requests:
        request.enter()
        contexts.append(traces.here())
        request.leave()
    with traces.for_all([None, *contexts], "commit", {}), traces.span("commit swap"):
        pass
    with traces.for_all([None, None], "commit", {}) as nothing:
        assert nothing is None
    for request in requests:
        request.end("POST /x", {}, error=None)
    commit, swap = recorded.one("commit"), recorded.one("commit swap")
    served = [span for span in recorded.spans() if span.name == "POST /x"]
    assert parent_of(commit) == id_of(served[0])
    assert parent_of(swap) == id_of(commit)
    assert [f"{link.context.span_id:016x}" for link in commit.links] == [id_of(span) for span in served[1:]]


def test_a_trace_that_a_client_gives_is_continued_and_logged(
    tmp_path: Path, recorded: Recorded, capfd: pytest.CaptureFixture[str]
) -> None:
    """The request is below the client's own span, and its log line has the trace's id."""
    with serving(tmp_path, recorded) as url:
        headers = {"traceparent": GIVEN, "tracestate": "vendor=1"}
        assert httpx2.get(f"{url}/v1/namespaces", headers=headers).status_code == 200
        assert httpx2.get(f"{url}/health/live", headers=headers).status_code == 200
        request = recorded.one("GET /v1/namespaces")
    assert (trace_of(request), parent_of(request)) == (GIVEN[3:35], GIVEN[36:52])
    context = request.get_span_context()
    assert context is not None
    assert context.trace_state.get("vendor") == "1"
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"request"' in line]
    assert [line["trace_id"] for line in lines if line["path"] == "/v1/namespaces"] == [GIVEN[3:35]]
    assert {span.name for span in recorded.spans() if parent_of(span) == id_of(request)} == {"catalog select"}
    assert not any("health" in name for name in recorded.names())


HEX = st.text("0123456789abcdef", min_size=1, max_size=40)
NEARLY = st.builds(
    lambda version, trace, span, flags, rest: f"{version}-{trace}-{span}-{flags}{rest}".encode(),
    st.sampled_from(["00", "01", "ff", "0", "000", "0A", "xx"]),
    st.one_of(HEX, st.just("0" * 32), st.just("0af7651916cd43dd8448eb211c80319c")),
    st.one_of(HEX, st.just("0" * 16), st.just("b7ad6b7169203331")),
    st.sampled_from(["00", "01", "1", "0g", ""]),
    st.sampled_from(["", "-", "-more", "x", "\n", "-" + "x" * 600]),
)


def is_valid(value: bytes) -> bool:
    """W3C's rule for a traceparent, read on its own: https://www.w3.org/TR/trace-context/#traceparent-header.

    OpenTelemetry takes an end of line behind it, too, which no header can have.
    """
    found = re.fullmatch(rb"[ \t]*([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*|[ \t]*)\n?", value)
    if found is None or len(value) > 512 or found[1] == b"ff":
        return False
    return set(found[2]) != {48} and set(found[3]) != {48} and not (found[1] == b"00" and found[5].strip())


@given(st.one_of(NEARLY, st.binary(max_size=80), st.just(GIVEN.encode())))
def test_a_trace_that_is_none_is_ignored(value: bytes) -> None:
    """Whatever stands in the header: a trace that it names is kept, and anything else begins a new one."""
    recorded = Recorded()
    traces = OtelTraces(recorded.provider)
    request = traces.request("GET", [(b"host", b"x"), (b"traceparent", value)])
    request.end("GET /x", {}, error=None)
    span = recorded.one("GET /x")
    if is_valid(value):
        assert parent_of(span) is not None
        assert trace_of(span).encode() in value
    else:
        assert parent_of(span) is None
    assert request.trace_id == trace_of(span)


def test_two_traceparents_are_none(recorded: Recorded) -> None:
    """Nobody can tell which one was meant."""
    traces = OtelTraces(recorded.provider)
    given = GIVEN.encode()
    traces.request("GET", [(b"traceparent", given), (b"traceparent", given)]).end("GET /x", {}, error=None)
    assert parent_of(recorded.one("GET /x")) is None


def test_what_is_not_sampled_is_not_recorded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing of it; the log names a trace only if a client gave it, since nobody can find any other."""
    recorded = Recorded(ParentBased(TraceIdRatioBased(0.0)))
    unsampled = GIVEN.removesuffix("01") + "00"
    with serving(tmp_path, recorded) as url:
        make_table(url, file(tmp_path, "x", [1]))
        assert httpx2.post(f"{url}{TABLE}/prune", json={}).status_code == 200
        answer = httpx2.post(f"{url}{TABLE}/prune", json={}, headers={"traceparent": unsampled})
        assert answer.status_code == 200
        assert recorded.names() == []
        answer = httpx2.post(f"{url}{TABLE}/prune", json={}, headers={"traceparent": GIVEN})
        assert trace_of(recorded.one(PRUNE)) == GIVEN[3:35]  # its client samples it
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "/prune" in line]
    assert [line.get("trace_id") for line in lines] == [None, GIVEN[3:35], GIVEN[3:35]]


def test_a_request_has_only_so_many_calls(tmp_path: Path, recorded: Recorded) -> None:
    """A registration of many files does not become a trace of thousands of spans; it says how many it left out."""
    files = [file(tmp_path, f"{number:03}", [number]) for number in range(150)]
    with serving(tmp_path, recorded) as url:
        make_table(url)
        recorded.clear()
        assert httpx2.post(f"{url}{TABLE}/register", json={"paths": files}, timeout=60).status_code == 200
        request = recorded.one(REGISTER)
        recorded.one("commit")
    calls = [span for span in recorded.spans() if span.name.startswith(("store ", "catalog "))]
    below_request = [span for span in calls if trace_of(span) == trace_of(request)]
    left_out = dict(request.attributes or {})["lamella.spans_left_out"]
    assert isinstance(left_out, int)
    assert left_out > 0
    assert 256 <= len(below_request) <= 2 * 256  # the commit's own are counted apart


def test_a_mistake_of_the_client_is_reported_by_its_code_alone(
    tmp_path: Path, recorded: Recorded, client_spans: Recorded
) -> None:
    """It is no error of the service, but one of the call; no span has the message."""
    with serving(tmp_path, recorded) as url:
        make_table(url)
        with Lamella(url) as lake, pytest.raises(UnknownColumn):
            lake.table("db.t").prune("secret_column = 1")
        request = recorded.one(PRUNE)
    assert request.status.is_unset
    assert dict(request.attributes or {})["lamella.code"] == "unknown_column"
    call = client_spans.one(f"lamella {PRUNE}")
    assert dict(call.attributes or {})["error.type"] == "unknown_column"
    for span in [*recorded.spans(), *client_spans.spans()]:
        assert "secret" not in span.to_json()
        assert span.status.description is None


def test_a_failure_of_the_service_is_reported_by_its_code_alone(tmp_path: Path, recorded: Recorded) -> None:
    """The request failed, and so did the call of the store; no span has the message."""

    def fail(_: str) -> None:
        raise ZeroDivisionError("secret")

    app = create_app(
        Settings(warehouse=str(tmp_path / "other")),
        store=WatchedStore(FsspecStore(), fail),
        traces=OtelTraces(recorded.provider),
    )
    with AppClient(app, base_url="http://localhost") as client:
        client.post("/v1/namespaces", json={"name": "db"})
        body = {"name": "t", "schema": [{"name": "a", "type": "int64"}]}
        assert client.post("/v1/namespaces/db/tables", json=body).status_code == 500
        request = recorded.one("POST /v1/namespaces/{namespace}/tables")
    assert not request.status.is_ok
    assert not request.status.is_unset
    assert dict(request.attributes or {})["error.type"] == "lamella_error"
    assert [span.name for span in recorded.spans() if "store" in span.name and not span.status.is_unset] == [
        "store put"
    ]
    assert all("secret" not in span.to_json() for span in recorded.spans())
