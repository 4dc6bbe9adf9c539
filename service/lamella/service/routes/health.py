"""``/health/live``, ``/health/ready`` and ``/metrics``: for what runs and watches the service."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.api import Operation, json_response
from lamella.service.services import Services
from lamella.snapshot.errors import StoreError, Unavailable

_TEXT: Final = "text/plain"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``/health/live`` and ``/health/ready``; anything but 200 is a problem document."""

    status: Literal["live", "ready"]


class HealthRoutes:
    """Is the process there; can it serve; what did it do."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def live(self, _request: Request) -> Response:
        return json_response(Health(status="live"))

    async def ready(self, _request: Request) -> Response:
        await self._services.read(self._services.check_ready)
        return json_response(Health(status="ready"))

    async def metrics(self, _request: Request) -> Response:
        text = await self._services.read(self._services.metrics.text)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path="/health/live",
                handler=self.live,
                summary="Is the process alive",
                tag="Operations",
                answer_type=Health,
            ),
            Operation(
                method="GET",
                path="/health/ready",
                handler=self.ready,
                summary="Can requests be served",
                tag="Operations",
                description="The catalog answers, and the warehouse can be reached.",
                answer_type=Health,
                errors=(Unavailable, StoreError),
            ),
            Operation(
                method="GET",
                path="/metrics",
                handler=self.metrics,
                summary="Prometheus metrics",
                tag="Operations",
                media_type=_TEXT,
            ),
        )
