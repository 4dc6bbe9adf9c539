"""An OTLP/HTTP collector on a loopback port, as small as one can be; and the spans that it got."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_TIMEOUT_S = 60


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it arrived; ids in hex, ``parent_id`` empty for the first of a trace."""

    name: str
    kind: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: tuple[str, ...]
    linked: tuple[tuple[str, str], ...]
    failed: bool


class Collector:
    """``url`` is its endpoint; ``bodies`` and ``headers`` are what requests had, ``status`` what they are answered."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                with collector._lock:
                    collector.bodies.append(body)
                    collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(collector.status if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[Exported]:
        """All that arrived so far."""
        with self._lock:
            bodies = list(self.bodies)
        return [span for body in bodies for span in read_spans(body)]

    def wait_for(self, enough: Callable[[list[Exported]], bool], what: str) -> list[Exported]:
        """All that arrived, once that is enough."""
        give_up_s = time.monotonic() + _TIMEOUT_S
        while not enough(found := self.spans()):
            assert time.monotonic() < give_up_s, (
                f"it did not come to: {what}; there are {[span.name for span in found]}"
            )
            time.sleep(0.02)
        return found


def read_spans(body: bytes) -> list[Exported]:
    """The spans in one request to a collector."""
    request = ExportTraceServiceRequest.FromString(body)
    found = []
    for of_resource in request.resource_spans:
        resource = {each.key: _value(each.value) for each in of_resource.resource.attributes}
        for of_scope in of_resource.scope_spans:
            found += [_exported(span, str(resource["service.name"])) for span in of_scope.spans]
    return found


def children_of(spans: list[Exported], parent: Exported) -> list[Exported]:
    """The spans right below one."""
    return [span for span in spans if span.parent_id == parent.span_id]


def below(spans: list[Exported], parent: Exported) -> list[Exported]:
    """All spans below one, however deep."""
    own = children_of(spans, parent)
    return own + [each for child in own for each in below(spans, child)]


def _exported(span: Span, service: str) -> Exported:
    return Exported(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes={each.key: _value(each.value) for each in span.attributes},
        events=tuple(event.name for event in span.events),
        linked=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
