"""``/v1/config``: what a client may want to know of a service before it asks anything."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY
from lamella.service.api import Operation, json_response
from lamella.service.release import release
from lamella.service.services import Services
from lamella.snapshot.wire import ServiceConfig


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
