"""How a route is declared: a plain handler from request to response, with what OpenAPI says of it; and how a request
finds its route.

Bodies go through msgspec only. FastAPI's own decoding and encoding cost more than a prune does, so routes are
Starlette's, and :mod:`lamella.service.http.openapi` writes the description from these same values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from lamella.service.access import Authenticator, Permission
from lamella.service.http.admission import Admission
from lamella.service.http.problem import problem_response, status_of
from lamella.service.http.streaming import StreamedResponse
from lamella.service.process.deadline import MAX_TIMEOUT_MS
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LamellaError,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)

NAMESPACES: Final = "/v1/namespaces"
NAMESPACE: Final = "/v1/namespaces/{namespace}"
TABLES: Final = "/v1/namespaces/{namespace}/tables"
TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"

#: Of Delta Sharing, whose schemas are namespaces.
SHARES: Final = "/delta-sharing/shares"
SHARE: Final = "/delta-sharing/shares/{share}"
SHARED_SCHEMAS: Final = "/delta-sharing/shares/{share}/schemas"
SHARED_TABLES: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables"
SHARED_TABLE: Final = "/delta-sharing/shares/{share}/schemas/{namespace}/tables/{table}"

#: Of Iceberg's REST catalog.
ICEBERG: Final = "/iceberg/v1"
ICEBERG_NAMESPACES: Final = "/iceberg/v1/namespaces"
ICEBERG_NAMESPACE: Final = "/iceberg/v1/namespaces/{namespace}"
ICEBERG_TABLES: Final = "/iceberg/v1/namespaces/{namespace}/tables"
ICEBERG_TABLE: Final = "/iceberg/v1/namespaces/{namespace}/tables/{table}"


#: Of a question to a snapshot of a table.
OF_A_SNAPSHOT: Final = (
    InvalidRequest,
    NamespaceNotFound,
    TableNotFound,
    SnapshotNotFound,
    SnapshotExpired,
    ManifestError,
    StoreError,
    Unavailable,
)
#: Of a filter, beside those.
OF_A_FILTER: Final = (InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded)


Handler = Callable[[Request], Awaitable[Response]]
Method = Literal["GET", "POST", "PUT", "DELETE"]

#: Scope member that holds the matched route's template.
ROUTE: Final = "lamella.route"
#: Scope member that holds the request's id.
REQUEST_ID: Final = "lamella.request_id"
#: Scope member that holds the code of the error that was answered.
CODE: Final = "lamella.code"

JSON: Final = "application/json"
_JSON: Final = JSON.encode()


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A query or header parameter."""

    name: str
    description: str
    place: Literal["query", "header"] = "query"
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


IDEMPOTENCY_KEY: Final = Parameter(
    name="Idempotency-Key",
    place="header",
    description="Any text of up to 255 printable characters (a version 7 UUID is a good one). The same key with the "
    "same request answers what it answered before, with the header Idempotency-Replayed, and does nothing again.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
)


IF_NONE_MATCH: Final = Parameter(
    name="If-None-Match",
    place="header",
    description="The `ETag` of an answer that the client has. While it holds, the answer is 304 without a body.",
)


TIMEOUT: Final = Parameter(
    name="Lamella-Timeout-Ms",
    place="header",
    description="How long the client waits for the begin of the answer, in milliseconds: the service gives up what "
    "only asks by then, and does not begin a change any more.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. ``request_type`` and ``answer_type`` are msgspec types, None: no body."""

    method: Method
    path: str
    handler: Handler
    #: Who may ask. No operation is without: what nobody thought of would be open to all.
    needs: Permission
    summary: str
    tag: str
    description: str = ""
    request_type: Any = None
    request_media_type: str = JSON
    answer_type: Any = None
    status: int = 200
    media_type: str = JSON
    #: Further forms of the answer, by ``Accept``.
    other_media_types: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[LamellaError], ...] = ()
    #: Asked so often that it is found before the routes are tried one by one.
    direct: bool = False
    #: False for a POST, PUT or DELETE that changes nothing, or is only a sign of life of a reader or worker.
    changes: bool = True
    #: A POST that only asks, as a GET does: it is given up once nobody waits for it.
    is_question: bool = False
    #: Its body may be as large as the service takes; others have a mebibyte.
    is_large: bool = False
    #: Its handler takes a place by itself, if it needs one: what is answered in a moment waits for none.
    takes_own_place: bool = False
    #: Answered however busy the process is.
    is_urgent: bool = False

    @property
    def is_admitted(self) -> bool:
        """True when it needs a place among those that are at work, and has a time."""
        return self.needs.place != "nobody" and not self.is_urgent

    @property
    def is_audited(self) -> bool:
        """True when the audit trail has every request."""
        return self.changes and self.method != "GET"

    @property
    def operation_id(self) -> str:
        """A name for generated clients."""
        return str(getattr(self.handler, "__name__", self.path))


class RouteFactory:
    """Makes Starlette routes of operations; whatever a handler raises leaves as a problem document."""

    def __init__(
        self,
        log: FilteringBoundLogger,
        metrics: Metrics,
        gate: Authenticator,
        admission: Admission,
        watched: Callable[[str, Handler], Handler],
    ) -> None:
        """``watched`` makes of an operation's id and handler one whose requests are all in the audit trail."""
        self._log = log
        self._gate = gate
        self._admission = admission
        self._metrics = metrics
        self._watched = watched

    def endpoint(self, operation: Operation) -> Handler:
        """The handler of one operation: only for those who may, with a problem document for whatever it raises."""
        handler, template, needs, gate = operation.handler, operation.path, operation.needs, self._gate
        is_for_all = needs.place == "nobody"
        if operation.is_admitted:
            handler = self._admission.admitted(
                handler,
                changes=not (operation.is_question or operation.method == "GET"),
                has_body=operation.request_type is not None,
                is_large=operation.is_large,
                takes_place=not operation.takes_own_place,
            )

        async def endpoint(request: Request) -> Response:
            request.scope[ROUTE] = template
            try:
                if is_for_all:
                    return await handler(request)
                needs.check(request, await gate.admit(request))
                response = await handler(request)
                try:
                    needs.check_decided(request)
                except LamellaError:
                    if isinstance(response, StreamedResponse):
                        response.close()
                    raise
                return response
            except ClientDisconnect:
                raise
            except Exception as error:
                return self.answer(request, error)

        return self._watched(operation.operation_id, endpoint) if operation.is_audited else endpoint

    def route(self, operation: Operation) -> Route:
        """The route of one operation."""
        name = operation.operation_id
        return Route(operation.path, self.endpoint(operation), methods=[operation.method], name=name)

    def answer(
        self,
        request: Request,
        error: Exception,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """The problem document of anything that a handler raised; what is not ours is logged and not shown."""
        error = self.shown(request, error)
        response = problem_response(error, instance=request.url.path, status=status, headers=headers)
        return response

    def shown(self, request: Request, error: Exception) -> LamellaError:
        """An error as clients may see it, once it was counted and, where it is the service's, logged."""
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
    """A 200 whose headers are bytes already, with its ``content-length`` in front of them; for the hot paths."""

    def __init__(self, body: bytes, raw_headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *raw_headers]


def require_json(request: Request) -> None:
    """Refuse a body that does not say it is JSON: a web page of another origin cannot send one that does unasked."""
    given = next((value for name, value in request.scope["headers"] if name == b"content-type"), b"")
    if given == _JSON:
        return
    kind = given.decode("latin-1").partition(";")[0].strip().lower()
    if kind != JSON:
        raise InvalidRequest(f"send the body as Content-Type: {JSON}, not {kind or 'without one'}")


def json_response(value: object, status: int = 200) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def whole_number(request: Request, name: str, default: int, lowest: int, highest: int) -> int:
    """A query parameter that is a number; raises InvalidRequest when it is none or outside its range."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and lowest <= int(text) <= highest):
        raise InvalidRequest(f"{name} is a number from {lowest} to {highest}, not {text!r}", parameter=name)
    return int(text)


def truth(request: Request, name: str) -> bool:
    """A query parameter that is ``true`` or ``false`` (when it is not given); raises InvalidRequest for another."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, not {text!r}", parameter=name)
    return text == "true"


class _Target(msgspec.Struct, frozen=True):
    fixed: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]
    handler: Handler


class DirectMiddleware:
    """Hands requests for ``targets`` to their handlers, and all others on to ``app``, which has the same routes.

    ``targets``: operations, each with its handler, which must answer every error itself. ``failed`` is told of an
    answer that could not be sent to its end, whose error then goes on to the server, which cuts the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        targets: Iterable[tuple[Operation, Handler]],
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
        """Where the request goes, with the named parts of its path in the scope."""
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
