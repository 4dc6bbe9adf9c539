"""Routes of health, metrics and ``/v1/config``."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import release
from lamella.service.config.settings import Settings
from lamella.service.http.routing import ServedOperation, json_response
from lamella.service.process.readiness import Readiness
from lamella.service.process.threads import Threads
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.wire import Health, ServiceConfig
from lamella.snapshot.wire.operation import PUBLIC
from lamella.snapshot.wire.operations import health as operations


class HealthRoutes:
    """Routes of liveness, startup and readiness probes, and of metrics."""

    def __init__(self, *, probes: Threads, readiness: Readiness, metrics: Metrics, is_public: bool) -> None:
        self._probes = probes
        self._readiness = readiness
        self._metrics = metrics
        self._is_public = is_public

    async def startup(self, _request: Request) -> Response:
        await self._readiness.check_started()
        return json_response(Health(status="started"))

    async def live(self, _request: Request) -> Response:
        return json_response(Health(status="live"))

    async def ready(self, _request: Request) -> Response:
        await self._readiness.check_ready()
        return json_response(Health(status="ready"))

    async def metrics(self, _request: Request) -> Response:
        text = await self._probes.run(self._metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.STARTUP, self.startup),
            ServedOperation(operations.LIVE, self.live),
            ServedOperation(operations.READY, self.ready),
            ServedOperation(
                operations.METRICS,
                self.metrics,
                is_urgent=True,
                other_permission=PUBLIC if self._is_public else None,
            ),
        )


class ConfigRoutes:
    """Routes of version and limits."""

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings

    async def config(self, _request: Request) -> Response:
        settings = self._settings
        return json_response(
            ServiceConfig(
                version=release(),
                idempotency_ttl_s=settings.idempotency_ttl_s,
                max_body_bytes=settings.max_body_bytes,
                page_size_max=settings.page_size_max,
            )
        )

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.CONFIG, self.config),)
