"""The application, and how it is served.

Requests are not authenticated yet. :func:`serve` therefore refuses an address that other machines can reach unless
the settings say ``insecure``; whoever can reach the service can also make it read the files that it can read.
"""

from __future__ import annotations

import gc
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lamella.service.api import Boundary
from lamella.service.catalog import Catalog, open_catalog
from lamella.service.dashboard import dashboard_routes
from lamella.service.logs import RequestLog, library_logging, make_log
from lamella.service.middleware import AccessMiddleware, BodyLimitMiddleware, DirectMiddleware
from lamella.service.openapi import describe
from lamella.service.reference_page import CONTENT_SECURITY_POLICY, reference_page
from lamella.service.release import release
from lamella.service.routes import operations
from lamella.service.services import Services
from lamella.service.settings import ENV_PREFIX, Settings
from lamella.service.worker_metrics import MULTIPROCESS_VARIABLE
from lamella.snapshot.errors import InvalidRequest, NotFound
from lamella.snapshot.ids import Ids, unix_ms
from lamella.snapshot.layout import FsspecStore, Store

_TITLE = "Lamella"
_DESCRIPTION = "A layered snapshot metadata service: which Parquet blocks a query must read, and why."


class _App(FastAPI):
    """FastAPI behind our middlewares, so that the shortest way goes through none of its own."""

    outermost: ASGIApp

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI with all routes."""
        await super().__call__(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.outermost(scope, receive, send)


def create_app(
    settings: Settings,
    *,
    store: Store | None = None,
    catalog: Catalog | None = None,
    ids: Ids | None = None,
    clock: Callable[[], int] | None = None,
) -> FastAPI:
    """An app with everything it needs; two apps in one process share nothing.

    ``clock`` gives Unix milliseconds. The catalog is opened and migrated here, so a wrong address fails at once.

    Raises:
        InvalidRequest: settings that cannot be used.
        UnsupportedFormat: the catalog belongs to a newer release.
        Unavailable: the catalog does not answer.
    """
    clock = clock if clock is not None else unix_ms
    log = make_log(settings.log_level, settings.log_format)
    services = Services(
        settings,
        store=store if store is not None else FsspecStore(settings.store_options),
        catalog=catalog if catalog is not None else _open_catalog(settings),
        ids=ids if ids is not None else Ids(clock),
        clock=clock,
    )
    boundary = Boundary(log, services.metrics, services.audit.watched)
    described = operations(services)
    document = describe(described, title=_TITLE, version=release(), description=_DESCRIPTION)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        log.info("started", version=release(), pid=os.getpid())
        yield
        services.close()
        log.info("stopped", pid=os.getpid())

    app = _App(
        title=_TITLE, version=release(), lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.router.routes[:0] = [boundary.route(operation) for operation in described]
    if settings.dashboard:
        secret = services.catalog.secret("dashboard forms", secrets.token_bytes(32))
        app.router.routes += dashboard_routes(services, boundary, secret)
    app.openapi = lambda: document  # type: ignore[method-assign]  # FastAPI's documented way to replace it
    _add_reference(app, document)
    _add_fallbacks(app, boundary)
    direct = [(operation, boundary.endpoint(operation)) for operation in described if operation.direct]
    app.outermost = AccessMiddleware(
        BodyLimitMiddleware(
            DirectMiddleware(app.framework, targets=direct, failed=boundary.answer),
            limit_bytes=settings.max_body_bytes,
            refuse=boundary.answer,
        ),
        metrics=services.metrics,
        log=RequestLog(log, settings.log_level, settings.log_format) if settings.log_requests else None,
        new_id=Ids(clock).new,
    )
    return app


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; running requests may finish within ``shutdown_grace_s``.

    Raises:
        InvalidRequest: an address that other machines can reach without ``insecure``, or other settings that
            cannot be used.
    """
    if not settings.is_loopback and not settings.insecure:
        raise InvalidRequest(
            f"refusing to listen on {settings.host}: requests are not authenticated yet, so whoever reaches that "
            f"address could read and change every table. Listen on 127.0.0.1, or say --insecure "
            f"({ENV_PREFIX}INSECURE=true) if the network is closed to others",
            host=settings.host,
        )
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "log_config": library_logging(settings.log_level, settings.log_format),
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": settings.shutdown_grace_s,
    }
    if settings.workers == 1:
        uvicorn.run(_settled(create_app(settings)), **options)
        return
    _open_catalog(settings).close()  # migrate once, and fail here rather than in every worker
    os.environ.update(settings.environment())
    with tempfile.TemporaryDirectory(prefix="lamella-metrics-") as folder:
        os.environ.setdefault(MULTIPROCESS_VARIABLE, folder)
        uvicorn.run("lamella.service.app:from_environment", factory=True, workers=settings.workers, **options)


def from_environment() -> FastAPI:
    """The app by the settings in ``LAMELLA_*`` variables; each worker process starts here."""
    return _settled(create_app(Settings()))  # type: ignore[call-arg]  # what it needs comes from the environment


def _settled(app: FastAPI) -> FastAPI:
    """The app, once the garbage collector was told to leave alone all that is there before the first request.

    Modules and routes stay for the life of the process. Going through them takes 150 ms in which nothing is answered.
    """
    gc.collect()
    gc.freeze()
    return app


def _open_catalog(settings: Settings) -> Catalog:
    connections = settings.read_threads + settings.write_threads
    return open_catalog(settings.catalog_url, timeout_s=settings.catalog_timeout_s, connections=connections)


def _add_reference(app: FastAPI, document: dict[str, Any]) -> None:
    page = reference_page(document)

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    app.add_route("/docs", docs, include_in_schema=False)


def _add_fallbacks(app: FastAPI, boundary: Boundary) -> None:
    """Problem documents for what no route of ours answered."""

    async def no_route(request: Request, error: Exception) -> Response:
        path = request.url.path
        if isinstance(error, HTTPException) and error.status_code == 405:
            problem = InvalidRequest(f"{request.method} is not a method of {path}", method=request.method)
            return boundary.answer(request, problem, status=405, headers={"Allow": _allowed(request)})
        return boundary.answer(request, NotFound(f"there is nothing at {path}"))

    async def failed(request: Request, error: Exception) -> Response:
        return boundary.answer(request, error)

    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(Exception, failed)


def _allowed(request: Request) -> str:
    """The methods that the path has, over all routes that serve one of them."""
    methods: set[str] = set()
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods.update(route.methods or ())
    return ", ".join(sorted(methods))
