"""Declares routes: a handler from request to response, with its OpenAPI description; and matches requests to routes.

Bodies are decoded and encoded by msgspec only. FastAPI's own decoding and encoding cost more than a prune, so routes
are Starlette's, and :mod:`lamella.service.http.openapi` writes the description from these same values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from lamella.service.access import Authenticator, check_decided, check_permission
from lamella.service.http.admission import Admission
from lamella.service.http.problem import Envelope, problem_response, status_of
from lamella.service.http.streaming import StreamedResponse
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import (
    InvalidRequest,
    LamellaError,
    LimitExceeded,
)
from lamella.snapshot.wire.operation import JSON, Operation, Permission

Handler = Callable[[Request], Awaitable[Response]]

#: Scope member with the template of the matched route.
ROUTE: Final = "lamella.route"
#: Scope member with the request's id.
REQUEST_ID: Final = "lamella.request_id"
#: Scope member with the code of the error in the answer.
CODE: Final = "lamella.code"
#: The id of the snapshot that the request committed.
SNAPSHOT_ID: Final = "lamella.snapshot_id"

_JSON: Final = JSON.encode()


class ServedOperation(msgspec.Struct, frozen=True):
    """An operation with the handler that serves it, and what concerns the service alone."""

    operation: Operation[Any]
    handler: Handler
    #: Who may ask, where a setting says otherwise than the operation.
    other_permission: Permission | None = None
    #: Asked so often that it is found before the routes are tried one by one.
    direct: bool = False
    #: Its handler takes a place by itself, if it needs one: what is answered in a moment waits for none.
    takes_own_slot: bool = False
    #: Answered however busy the process is.
    is_urgent: bool = False
    #: The path with Starlette's convertors, where a parameter has another form in the path than for the handler.
    converted_path: str | None = None

    @property
    def permission(self) -> Permission:
        """Who may ask."""
        return self.operation.permission if self.other_permission is None else self.other_permission

    @property
    def is_admitted(self) -> bool:
        """True when it needs a place among those that are at work, and has a time."""
        return self.permission.scope != "public" and not self.is_urgent


class RouteFactory:
    """Makes Starlette routes of operations; every error of a handler becomes a problem document."""

    def __init__(
        self,
        log: FilteringBoundLogger,
        metrics: Metrics,
        authentication: Authenticator,
        admission: Admission,
        watched: Callable[[str, Handler], Handler],
        envelopes: Sequence[Envelope] = (),
        suggest: Callable[[Request, Exception], Awaitable[None]] | None = None,
    ) -> None:
        """``watched`` wraps the handler of an operation (by its id) so that its requests are in the audit trail.

        ``suggest`` adds near names to an error (:class:`~lamella.service.http.near_names.NearNames`).
        """
        self._log = log
        self._authentication = authentication
        self._admission = admission
        self._metrics = metrics
        self._watched = watched
        self._envelopes = envelopes
        self._suggest = suggest

    def endpoint(self, served: ServedOperation) -> Handler:
        """The handler of one operation: only for those who may, with a problem document for whatever it raises."""
        operation, handler, permission, authentication = (
            served.operation,
            served.handler,
            served.permission,
            self._authentication,
        )
        template, is_for_all = operation.path, permission.scope == "public"
        if served.is_admitted:
            handler = self._admission.admitted(
                handler,
                changes=not operation.is_read,
                has_body=operation.request_type is not None,
                is_large=operation.is_large,
                takes_slot=not served.takes_own_slot,
            )

        async def endpoint(request: Request) -> Response:
            request.scope[ROUTE] = template
            try:
                if is_for_all:
                    return await handler(request)
                check_permission(permission, request, await authentication.admit(request))
                response = await handler(request)
                try:
                    check_decided(permission, request)
                except LamellaError:
                    if isinstance(response, StreamedResponse):
                        response.close()
                    raise
                return response
            except ClientDisconnect:
                raise
            except Exception as error:
                if not is_for_all and self._suggest is not None:
                    await self._suggest(request, error)
                return self.answer(request, error)

        return self._watched(operation.name, endpoint) if operation.is_audited else endpoint

    def route(self, served: ServedOperation) -> Route:
        """The route of one operation."""
        operation = served.operation
        path = served.converted_path or operation.path
        return Route(path, self.endpoint(served), methods=[operation.method], name=operation.name)

    def answer(
        self,
        request: Request,
        error: Exception,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the problem document of an error that a handler raised; unknown errors are logged and not shown."""
        error = self.shown(request, error)
        return problem_response(
            error, instance=request.url.path, status=status, headers=headers, envelopes=self._envelopes
        )

    def shown(self, request: Request, error: Exception) -> LamellaError:
        """Return an error as clients may see it; counts it and logs internal ones."""
        if isinstance(error, RecursionError):
            error = LimitExceeded("the request is nested too deeply", limit="depth")
        if not isinstance(error, LamellaError):
            self._log.error("request failed", exc_info=error, request_id=request.scope.get(REQUEST_ID))
            error = LamellaError("the service failed; its log has the reason", request_id=request.scope.get(REQUEST_ID))
        request.scope[CODE] = error.code
        self._metrics.problems.labels(error.code).inc()
        if status_of(type(error)) >= 500:
            cause = error.__cause__
            self._log.warning(
                "request could not be served",
                code=error.code,
                detail=error.message,
                cause=None if cause is None else f"{type(cause).__name__}: {cause}",
                request_id=request.scope.get(REQUEST_ID),
            )
        return error


class PreparedResponse(Response):
    """A 200 whose headers are already bytes, with ``content-length`` first; for the hot paths."""

    def __init__(self, body: bytes, raw_headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *raw_headers]


def require_json(request: Request) -> None:
    """Require a JSON content type: a web page of another origin cannot send one without a CORS preflight."""
    given = next((value for name, value in request.scope["headers"] if name == b"content-type"), b"")
    if given == _JSON:
        return
    kind = given.decode("latin-1").partition(";")[0].strip().lower()
    if kind != JSON:
        raise InvalidRequest(f"send the body as Content-Type: {JSON}, not {kind or 'without one'}")


def json_response(value: object, status: int = 200) -> Response:
    """Return a value as a JSON response."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def whole_number(request: Request, name: str, default: int, lowest: int, highest: int) -> int:
    """Return an integer query parameter. Raises InvalidRequest if it is not an integer in its range."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and lowest <= int(text) <= highest):
        raise InvalidRequest(f"{name} must be a number from {lowest} to {highest}, not {text!r}", parameter=name)
    return int(text)


def truth(request: Request, name: str) -> bool:
    """Return a boolean query parameter, by default false. Raises InvalidRequest unless ``true`` or ``false``."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}", parameter=name)
    return text == "true"


def reader_features(request: Request) -> tuple[str, ...]:
    """Return what the reader supports: names separated by commas; the parameter can be repeated."""
    texts = request.query_params.getlist("reader_features")
    return tuple(name for text in texts for part in text.split(",") if (name := part.strip()))


class _Target(msgspec.Struct, frozen=True):
    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    handler: Handler


class DirectMiddleware:
    """Calls the handlers of ``targets`` directly, and passes all other requests to ``app``, which has the same routes.

    ``targets``: operations with their handlers, which must answer every error themselves. ``failed`` is called when an
    answer could not be sent completely; then the error goes on to the server, which closes the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        targets: Iterable[tuple[Operation[Any], Handler]],
        failed: Callable[[Request, Exception], object],
    ) -> None:
        self._app = app
        self._failed = failed
        self._targets: dict[tuple[str, int, str], _Target] = {}
        for operation, handler in targets:
            parts = operation.path.split("/")
            fixed = tuple((i, part) for i, part in enumerate(parts) if not part.startswith("{"))
            named = tuple((i, part[1:-1]) for i, part in enumerate(parts) if part.startswith("{"))
            self._targets[operation.method, len(parts), parts[-1]] = _Target(fixed, named, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = self._target(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        if target is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await target.handler(request)
            await response(scope, receive, send)
        except ClientDisconnect:
            raise
        except Exception as error:
            self._failed(request, error)
            raise

    def _target(self, scope: Scope) -> _Target | None:
        """Return the target of a request, and put the parts of its path into the scope."""
        parts = scope["path"].split("/")
        target = self._targets.get((scope["method"], len(parts), parts[-1]))
        if target is None:
            return None
        for i, part in target.fixed:
            if parts[i] != part:
                return None
        given = {name: parts[i] for i, name in target.named}
        if not all(given.values()):
            return None
        scope["path_params"] = given
        return target
