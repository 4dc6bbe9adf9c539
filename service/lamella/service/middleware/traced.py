"""Spans of requests."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamella.service.api import CODE, REQUEST_ID, ROUTE
from lamella.service.middleware.access import METHODS, TRACE_ID
from lamella.service.probes import PATHS
from lamella.service.tracing import Traces, Value


def traced(app: ASGIApp, traces: Traces) -> ASGIApp:
    """The application with spans of its requests; the same one where traces are off."""
    return TraceMiddleware(app, traces) if traces.is_on else app


class TraceMiddleware:
    """A span for each request, in the trace that its ``traceparent`` names, if it does."""

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
