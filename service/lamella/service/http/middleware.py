"""ASGI middleware: request ids, request metrics, the request log, and request spans."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamella.service.http.routing import CODE, REQUEST_ID, ROUTE
from lamella.service.process.health import PATHS
from lamella.service.process.lifecycle import Lifecycle
from lamella.service.telemetry.logs import RequestLog
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import Traces, Value

#: Scope member with the id of the request's trace, if it is recorded.
TRACE_ID: Final = "lamella.trace_id"

_HEADER: Final = b"x-request-id"
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class AccessMiddleware:
    """Gives each request an id (the client's ``X-Request-Id`` if it is valid) and sends it in the answer.

    Counts and times requests by their route's template, never by path, so that the number of series is bounded. ``log``
    None: no log lines. While the process is stopping, answers tell clients to close the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        log: RequestLog | None,
        new_id: Callable[[], str],
        lifecycle: Lifecycle,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._log = log
        self._new_id = new_id
        # Looking up a metric by its labels costs more than counting; routes and statuses are few.
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or self._new_id()
        scope[REQUEST_ID] = request_id
        status = 0
        sent_bytes = 0

        async def observed(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (_HEADER, request_id.encode()),
                    *self._lifecycle.headers,
                ]
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        started_s = time.perf_counter()
        self._metrics.in_progress.inc()
        try:
            await self._app(scope, receive, observed)
        finally:
            elapsed_s = time.perf_counter() - started_s
            self._metrics.in_progress.dec()
            route = scope.get(ROUTE, "unmatched")
            method = scope["method"] if scope["method"] in METHODS else "other"
            # No status: the client disconnected before the answer, which other servers log as 499.
            key = (method, route, status or 499)
            counted = self._counted.get(key)
            if counted is None:
                counted = self._counted[key] = self._metrics_of(*key)
            counted[0].inc()
            counted[1].observe(elapsed_s)
            if self._log is not None and route not in PATHS:  # probes would fill the log
                self._log.write(
                    method=method,
                    path=scope["path"],
                    status=status or 499,
                    ms=round(elapsed_s * 1000, 3),
                    size_bytes=sent_bytes,
                    request_id=request_id,
                    trace_id=scope.get(TRACE_ID),
                )

    def _metrics_of(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return (
            self._metrics.requests.labels(method, route, str(status)),
            self._metrics.request_seconds.labels(method, route),
        )


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _HEADER:
            return value.decode() if _GIVEN_ID.fullmatch(value) else None
    return None


def with_spans(app: ASGIApp, traces: Traces) -> ASGIApp:
    """Return the application with spans of its requests, or unchanged if traces are off."""
    return TraceMiddleware(app, traces) if traces.is_on else app


class TraceMiddleware:
    """Makes a span for each request, in the trace of its ``traceparent``, if it has one."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = None
        if scope["type"] == "http" and scope["path"] not in PATHS:
            begun = self._traces.request(scope["method"], scope["headers"])
        if begun is None:
            await self._app(scope, receive, send)
            return
        if begun.trace_id is not None:
            scope[TRACE_ID] = begun.trace_id
        if not begun.is_recorded:
            await self._app(scope, receive, send)
            return
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        error: str | None = None
        begun.enter()
        try:
            await self._app(scope, receive, observed)
        except BaseException as failed:
            error = type(failed).__name__
            raise
        finally:
            begun.leave()
            attributes = _described(scope, status or 499)
            if error is None and status >= 500:
                error = scope.get(CODE, str(status))
            begun.end(f"{attributes['http.request.method']} {attributes['http.route']}", attributes, error=error)


def _described(scope: Scope, status: int) -> dict[str, Value]:
    route = scope.get(ROUTE, "unmatched")
    found: dict[str, Value] = {
        "http.request.method": scope["method"] if scope["method"] in METHODS else "_OTHER",
        "http.route": route,
        "http.response.status_code": status,
        "lamella.request_id": scope[REQUEST_ID],
    }
    if CODE in scope:
        found["lamella.code"] = scope[CODE]
    for name in ("namespace", "table"):
        value = scope.get("path_params", {}).get(name)
        if value is not None:
            found[f"lamella.{name}"] = value
    return found
