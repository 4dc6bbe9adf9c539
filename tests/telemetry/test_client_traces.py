"""Spans of the clients: one for a call and one for each of its tries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from lamella.client import Lamella, tracing
from lamella.client.http import RetryPolicy
from lamella.client.http.call import make_call
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.advice import operations as advice_operations
from lamella.snapshot.errors import OutcomeUnknown, TableNotFound
from lamella.snapshot.wire import operations
from lamella.snapshot.wire.operation import operations_of
from support.both_clients import AsyncRecordingClient, RecordingClient, SyncRecordingClient
from support.recorded_spans import Recorded, id_of, parent_of, trace_of

OK = HttpResponse(status=200, body=b'{"namespaces":[]}')
BUSY = HttpResponse(status=503, body=b"")
GONE = HttpResponse(status=404, body=b'{"type":"x","title":"x","status":404,"detail":"no","code":"table_not_found"}')
CALL = "GET /v1/namespaces"

Answered = HttpResponse | TransportFailure


def by_script(*answers: Answered) -> Callable[[HttpRequest], HttpResponse]:
    """Answers one request after another."""
    left = list(answers)

    def answer(_: HttpRequest) -> HttpResponse:
        found = left.pop(0)
        if isinstance(found, TransportFailure):
            raise found
        return found

    return answer


@pytest.mark.parametrize("kind", [SyncRecordingClient, AsyncRecordingClient])
def test_each_try_is_a_span_below_its_call(kind: Callable[..., RecordingClient], client_spans: Recorded) -> None:
    """With its own id in the request's header, so that the service's span hangs below the try that it answers."""
    failure = TransportFailure("refused", sent=False)
    client = kind(by_script(BUSY, failure, OK), policy=RetryPolicy(base_delay_s=0.0))
    client.run(lambda lake: lake.namespaces())
    call = client_spans.one(f"lamella {CALL}")
    tries = [span for span in client_spans.spans() if span.name == CALL]
    assert [parent_of(span) for span in tries] == [id_of(call)] * 3
    assert [span.kind for span in tries] == [trace.SpanKind.CLIENT] * 3
    attributes = [dict(span.attributes or {}) for span in tries]
    assert [each.get("http.request.resend_count") for each in attributes] == [None, 1, 2]
    assert [each.get("http.response.status_code") for each in attributes] == [503, None, 200]
    assert [each.get("error.type") for each in attributes] == ["503", "not_sent", None]
    assert [request.header("traceparent") for request in client.requests] == [
        f"00-{trace_of(span)}-{id_of(span)}-{flags_of(span):02x}" for span in tries
    ]
    assert call.status.is_unset
    assert attributes[0]["url.template"] == "/v1/namespaces"


def flags_of(span: trace.Span | object) -> int:
    """Of a span that was recorded."""
    context = span.get_span_context()  # type: ignore[union-attr]  # both kinds have one
    assert isinstance(context, SpanContext)
    return int(context.trace_flags)


def test_a_call_that_fails_says_so_by_its_code(client_spans: Recorded) -> None:
    """That of the service's answer, or of what the client made of none."""
    lake = Lamella("http://lake.test", transport=FakeTransport(by_script(GONE)))
    with pytest.raises(TableNotFound):
        lake.table("db.private").info()
    lost = TransportFailure("lost", sent=True)
    lake = Lamella("http://lake.test", transport=FakeTransport(by_script(lost)), policy=RetryPolicy(attempts=1))
    with pytest.raises(OutcomeUnknown):
        lake.create_namespace("private")
    calls = [span for span in client_spans.spans() if span.name.startswith("lamella ")]
    assert [dict(span.attributes or {})["error.type"] for span in calls] == ["table_not_found", "outcome_unknown"]
    assert all("private" not in span.to_json() for span in client_spans.spans())


def test_a_call_goes_on_with_the_callers_trace(client_spans: Recorded) -> None:
    """The call hangs below the span that its caller is in."""
    lake = Lamella("http://lake.test", transport=FakeTransport(by_script(OK)))
    with client_spans.provider.get_tracer("test").start_as_current_span("own work"):
        lake.namespaces()
    assert parent_of(client_spans.one(f"lamella {CALL}")) == id_of(client_spans.one("own work"))


def test_a_trace_is_taken_along_where_nothing_is_recorded(untraced_client: None) -> None:
    """An application may be in a trace without recording any of it: the service still hears which."""
    context = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))
    transport = FakeTransport(by_script(OK, OK))
    lake = Lamella("http://lake.test", transport=transport)
    with trace.use_span(NonRecordingSpan(context)):
        lake.namespaces()
    lake.namespaces()
    assert [request.header("traceparent") for request in transport.requests] == [
        f"00-{0xABC:032x}-{0xDEF:016x}-01",
        None,
    ]
    assert untraced_client is None


def test_a_client_can_be_excluded_from_traces(client_spans: Recorded) -> None:
    """One that asks all day long, such as a worker's, sends no header and makes no span."""
    transport = FakeTransport(by_script(OK))
    Lamella("http://lake.test", transport=transport, traces=False).namespaces()
    assert transport.requests[0].header("traceparent") is None
    assert client_spans.names() == []


def test_paths_are_reported_as_the_service_calls_their_routes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """For every route of the API, with names that look like parts of other routes."""
    folder = tmp_path_factory.mktemp("described")
    app = create_app(Settings(warehouse=str(folder)))
    paths = [path for path in app.openapi()["paths"] if path.startswith("/v1/")]
    assert len(paths) > 60
    described = [*operations.OPERATIONS, *operations_of(advice_operations)]
    assert {each.path for each in described if each.path.startswith("/v1/")} == set(paths)
    for name in ("x", "tables", "namespaces", "jobs", "a%2Fb", "0190-1"):
        for operation in described:
            names: dict[str, Any] = dict.fromkeys(operation.path_parameters, name)
            call = make_call(operation, query={"page_token": name}, **names)
            assert call.template == operation.path
            filled, _, query = call.path.partition("?")
            parts = [name if part.startswith("{") else part for part in operation.path.split("/")]
            assert [unquote(part) for part in filled.split("/")] == parts
            assert parse_qs(query) == {"page_token": [name]}


def test_nothing_is_loaded_where_nobody_traces() -> None:
    """A program that uses the client and has no OpenTelemetry, or cannot have it, notices nothing."""
    program = """
import sys
sys.modules["opentelemetry.sdk"] = None
from lamella.client import Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpResponse
transport = FakeTransport(lambda request: HttpResponse(status=200, body=b'{"namespaces":[]}'))
Lamella("http://lake.test", transport=transport).namespaces()
print([name for name in sys.modules if name.startswith("opentelemetry.")], transport.requests[0].header("traceparent"))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['opentelemetry.sdk'] None"


def test_a_command_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When traces are wanted and cannot be sent."""
    from click.testing import CliRunner

    from lamella.client.cli.app import cli

    monkeypatch.setenv(tracing.VARIABLE, "true")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    done = CliRunner().invoke(cli, ["namespaces", "list"])
    assert done.exit_code == 1
    assert "lamella[telemetry]" in done.output
