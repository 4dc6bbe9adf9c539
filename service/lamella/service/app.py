"""The application: operations, middlewares, and what surrounds them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import anyio
import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lamella.service import release
from lamella.service.catalog import Catalog, open_catalog
from lamella.service.catalog.quotas import Quotas
from lamella.service.composition import Core, operations
from lamella.service.config.check import unsafe_warnings
from lamella.service.config.moved import require_own_tables
from lamella.service.config.settings import Settings
from lamella.service.extensions import register_all
from lamella.service.http.admission import BodyLimitMiddleware
from lamella.service.http.connections import STATE, Connections
from lamella.service.http.middleware import AccessMiddleware, with_spans
from lamella.service.http.near_names import NearNames
from lamella.service.http.openapi import CONTENT_SECURITY_POLICY, describe, front_page, reference_page
from lamella.service.http.routing import DirectMiddleware, RouteFactory
from lamella.service.process.lifecycle import Lifecycle, drain_on_signals
from lamella.service.telemetry.logs import RequestLog, make_log
from lamella.service.telemetry.tracing import Traces
from lamella.snapshot.errors import InvalidRequest, NotFound
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.tracing import open_provider

_SWITCH_S = 0.0005
#: Objects between two collections of young ones, and collections of each generation between two of the next. Nearly all
#: garbage of requests is freed without the collector; by Python's own numbers (700, 10, 10) it looks at everything a
#: few times a second, 10 to 50 ms at a time, while the console is used.
_COLLECTIONS = (2_000, 20, 50)
_TITLE = "Lamella"
#: What the page at ``/`` says of its links.
_LINKS = {
    "docs": "the operations over HTTP",
    "openapi": "the same for programs: an OpenAPI document",
    "health": "whether the service can answer",
}
_DESCRIPTION = "A layered snapshot metadata service: which Parquet blocks a query must read, and why."


class _App(FastAPI):
    """FastAPI behind our middlewares, so that the fastest requests skip FastAPI's own."""

    outermost: ASGIApp
    lifecycle: Lifecycle
    connections: Connections

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI with all routes."""
        await super().__call__(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The client disconnected; not an error worth logging.
        with suppress(ClientDisconnect):
            await self.outermost(scope, receive, send)


def create_app(
    settings: Settings,
    *,
    store: Store | None = None,
    catalog: Catalog | None = None,
    ids: Ids | None = None,
    clock: Callable[[], int] | None = None,
    traces: Traces | None = None,
) -> _App:
    """Create an app with everything it needs; two apps in one process share nothing.

    ``clock`` returns Unix milliseconds. The catalog is opened and migrated here, so a wrong address fails at once.

    Raises:
        InvalidRequest: the settings cannot be used, or the catalog's tables are in another warehouse.
        UnsupportedFormat: the catalog belongs to a newer release.
        Unavailable: the catalog does not answer.
    """
    clock = clock if clock is not None else unix_ms
    log = make_log(settings.log_level, settings.log_format)
    core = Core(
        settings,
        store=store if store is not None else FsspecStore(settings.store_options),
        catalog=catalog if catalog is not None else catalog_of(settings),
        ids=ids if ids is not None else Ids(clock),
        clock=clock,
        traces=traces if traces is not None else open_traces(settings),
    )
    register_all(core)
    envelopes = tuple(envelope for feature in core.features for envelope in feature.envelopes)
    route_factory = RouteFactory(
        log,
        core.metrics,
        core.authentication,
        core.admission,
        core.audit.watched,
        envelopes,
        NearNames(core.catalog, core.readers).suggest,
    )
    described = operations(core)

    def document() -> dict[str, Any]:
        return describe(
            described,
            title=_TITLE,
            version=release(),
            description=_DESCRIPTION,
            maxima={"page_size_max": settings.page_size_max},
            envelopes=envelopes,
        )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        for text in unsafe_warnings(settings):
            log.warning("unsafe", detail=text)
        log.info("started", version=release(), pid=os.getpid())
        await anyio.sleep(0)  # anyio loads most of its modules at the first call: not in the first request
        try:
            async with core.loop_monitor.beating():
                yield {STATE: app.connections}
        finally:
            core.close()
        log.info("stopped", pid=os.getpid())

    app = _App(
        title=_TITLE,
        version=release(),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.lifecycle = core.lifecycle
    app.connections = Connections(settings, core.metrics)
    app.router.routes[:0] = [route_factory.route(served) for served in described]
    for feature in core.features:
        if feature.pages is not None:
            app.router.routes += feature.pages(route_factory)
    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to replace it
    _add_reference(app, document)
    _add_root(app, next((feature.home for feature in core.features if feature.home is not None), None))
    _add_fallbacks(app, route_factory)
    direct = [(each.operation, route_factory.endpoint(each)) for each in described if each.direct]
    inner = BodyLimitMiddleware(
        DirectMiddleware(app.framework, targets=direct, failed=route_factory.answer),
        limit_bytes=settings.max_body_bytes,
        refuse=route_factory.answer,
    )
    app.outermost = AccessMiddleware(
        with_spans(inner, core.traces),
        metrics=core.metrics,
        log=RequestLog(log, settings.log_level, settings.log_format) if settings.log_requests else None,
        new_id=Ids(clock).new_text,
        lifecycle=core.lifecycle,
    )
    return app


def open_traces(settings: Settings) -> Traces:
    """Start tracing if it is enabled. Raises InvalidRequest if traces cannot be sent."""
    if not settings.traces:
        return Traces()
    provider = open_provider("lamella")
    from lamella.service.telemetry.otel import OtelTraces  # here, since its packages are an extra

    return OtelTraces(provider)


def served(settings: Settings, *, is_alone: bool) -> FastAPI:
    """Return the app for a server process: it drains on signals (``is_alone``: see :func:`drain_on_signals`).

    Existing objects are excluded from garbage collection. Modules and routes live as long as the process, and a
    collection over them takes 150 ms in which nothing is answered.
    """
    app = create_app(settings)
    log = make_log(settings.log_level, settings.log_format)
    drain_on_signals(app, app.lifecycle, settings, log, is_alone=is_alone)
    max_connections = app.connections.raise_file_limit()
    if max_connections < settings.connections_max:
        log.warning(
            "fewer connections than settings say",
            maximum=max_connections,
            detail="the system lets us open so few files",
        )
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)
    gc.enable()
    # A thread that tests blocks keeps the interpreter for this long before the event loop runs, in each
    # round of the loop: with the default 5 ms only about a hundred requests a second are answered next to such a
    # thread.
    sys.setswitchinterval(_SWITCH_S)
    return app


def catalog_of(settings: Settings) -> Catalog:
    """Open the catalog of the settings, and migrate it if they say so.

    Raises as :func:`create_app`, and InvalidSettings if its tables are in another warehouse.
    """
    connections = settings.read_threads + settings.write_threads
    catalog = open_catalog(
        settings.catalog_url,
        timeout_s=settings.catalog_timeout_s,
        connections=connections,
        auto_migrate=settings.auto_migrate,
        quotas=Quotas(
            namespaces=settings.quota_namespaces,
            tables=settings.quota_tables,
            blocks=settings.quota_blocks,
            bytes=settings.quota_bytes,
            table_blocks=settings.quota_table_blocks,
            table_leases=settings.quota_table_leases,
        ),
    )
    try:
        require_own_tables(catalog, settings)
    except BaseException:
        catalog.close()
        raise
    return catalog


def _add_reference(app: FastAPI, document: Callable[[], dict[str, Any]]) -> None:
    """The OpenAPI document and its page, each made in a thread when it is first asked for: that takes 0.1 s."""

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(document())

    @cache
    def page() -> str:
        return reference_page(document())

    def openapi(_request: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    def docs(_request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    app.add_route("/openapi.json", openapi, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)


def _add_root(app: FastAPI, home: str | None) -> None:
    """``/`` sends browsers to ``home`` (None: there is no console, so it shows a page), and tells programs where to
    look."""
    links = {"docs": "/docs", "openapi": "/openapi.json", "health": "/health/ready"}
    links |= {} if home is None else {"ui": home}
    body = msgspec.json.encode({"name": _TITLE, "version": release(), **links})

    async def root(request: Request) -> Response:
        headers = {"Vary": "Accept"}
        if "text/html" not in request.headers.get("accept", ""):
            return Response(body, headers=headers, media_type="application/json")
        if home is not None:
            return RedirectResponse(home, status_code=307, headers=headers)
        shown = {_LINKS[name]: address for name, address in links.items()}
        headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return HTMLResponse(front_page(_TITLE, release(), shown), headers=headers)

    app.add_route("/", root, include_in_schema=False)


def _add_fallbacks(app: FastAPI, route_factory: RouteFactory) -> None:
    """Answer requests that no route of ours answered with problem documents."""

    async def no_route(request: Request, error: Exception) -> Response:
        path = request.url.path
        if isinstance(error, HTTPException) and error.status_code == 405:
            problem = InvalidRequest(f"{request.method} is not a method of {path}", method=request.method)
            return route_factory.answer(request, problem, status=405, headers={"Allow": _allowed(request)})
        return route_factory.answer(request, NotFound(f"there is nothing at {path}"))

    async def failed(request: Request, error: Exception) -> Response:
        return Response(None, 499) if isinstance(error, ClientDisconnect) else route_factory.answer(request, error)

    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(Exception, failed)


def _allowed(request: Request) -> str:
    """Return the methods of a path over all routes that serve it."""
    methods: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods.update(route.methods or ())
    return ", ".join(sorted(methods))
