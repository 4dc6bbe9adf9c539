"""Routes of health, metrics and ``/v1/config``."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import release
from lamella.service.access import ANYBODY, NOBODY, on_server
from lamella.service.http.routing import Operation, json_response
from lamella.service.services import Services
from lamella.snapshot.errors import StoreError, Unavailable
from lamella.snapshot.wire import ServiceConfig

_TEXT: Final = "text/plain"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a probe; anything but 200 is a problem document."""

    status: Literal["started", "live", "ready"]


class HealthRoutes:
    """Is the process there; has it started; can it serve; what did it do."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def startup(self, _request: Request) -> Response:
        await self._services.check_started()
        return json_response(Health(status="started"))

    async def live(self, _request: Request) -> Response:
        return json_response(Health(status="live"))

    async def ready(self, _request: Request) -> Response:
        await self._services.check_ready()
        return json_response(Health(status="ready"))

    async def metrics(self, _request: Request) -> Response:
        text = await self._services.probe(self._services.metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path="/health/startup",
                handler=self.startup,
                needs=NOBODY,
                summary="Has the service started",
                tag="Operations",
                description="The catalog has the schema of this release, the warehouse can be reached and lets nobody "
                "replace an object. Once that was so it stays so.",
                answer_type=Health,
                errors=(Unavailable, StoreError),
            ),
            Operation(
                method="GET",
                path="/health/live",
                handler=self.live,
                needs=NOBODY,
                summary="Is the process alive",
                tag="Operations",
                answer_type=Health,
            ),
            Operation(
                method="GET",
                path="/health/ready",
                handler=self.ready,
                needs=NOBODY,
                summary="Can requests be served",
                tag="Operations",
                description="The catalog and the warehouse answer and take writes, and the process is not being "
                "stopped. Both are asked once a second at most, and to write every `ready_write_interval_s` at most, "
                "however many ask this; a part that does not answer within `ready_timeout_s` is a 503.",
                answer_type=Health,
                errors=(Unavailable, StoreError),
            ),
            Operation(
                method="GET",
                path="/metrics",
                handler=self.metrics,
                needs=NOBODY if self._services.settings.public_metrics else on_server("read"),
                summary="Prometheus metrics",
                tag="Operations",
                is_urgent=True,
                media_type=_TEXT,
            ),
        )


class ConfigRoutes:
    """Version and limits."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def config(self, _request: Request) -> Response:
        settings = self._services.settings
        return json_response(
            ServiceConfig(
                version=release(),
                idempotency_ttl_s=settings.idempotency_ttl_s,
                max_body_bytes=settings.max_body_bytes,
                page_size_max=settings.page_size_max,
            )
        )

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path="/v1/config",
                handler=self.config,
                needs=ANYBODY,
                summary="Look at the service's version and limits",
                tag="Operations",
                description="`idempotency_ttl_s` is how long an answer can be replayed by its Idempotency-Key.",
                answer_type=ServiceConfig,
            ),
        )
