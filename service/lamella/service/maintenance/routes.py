"""Routes of vacuum, leases and verification."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.maintenance.verification import Verifications
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.service.usage.feedback import FeedbackCheck
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    RenewRequest,
    VacuumAnswer,
    VacuumRequest,
    VerifyAnswer,
    VerifyRequest,
)
from lamella.snapshot.wire.operations import maintenance as operations

_VACUUM: Final = msgspec.json.Decoder(VacuumRequest)
_LEASE: Final = msgspec.json.Decoder(LeaseRequest)
_RENEW: Final = msgspec.json.Decoder(RenewRequest)


class MaintenanceRoutes:
    """Clean up; take, renew, list and end leases."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def vacuum(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_VACUUM, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> VacuumAnswer:
            return self._services.vacuum.vacuum(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._services.maintain(work))

    async def vacuum_dropped(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_VACUUM, await request.body())
        return json_response(await self._services.maintain(lambda: self._services.vacuum.purge_dropped(asked)))

    async def take_lease(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_LEASE, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> LeaseInfo:
            return self._services.leases.take(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._services.read(work), 201)

    async def list_leases(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> LeaseList:
            return self._services.leases.list(self._services.catalog.table(namespace, name))

        return json_response(await self._services.read(work))

    async def renew_lease(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_RENEW, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        lease_id = request.path_params["lease_id"]

        def work() -> LeaseInfo:
            return self._services.leases.renew(self._services.catalog.table(namespace, name), lease_id, asked)

        return json_response(await self._services.read(work))

    async def release_lease(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        lease_id = request.path_params["lease_id"]

        def work() -> None:
            self._services.leases.release(self._services.catalog.table(namespace, name), lease_id)

        await self._services.read(work)
        return Response(status_code=204)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.VACUUM, self.vacuum),
            ServedOperation(operations.VACUUM_DROPPED, self.vacuum_dropped),
            ServedOperation(operations.TAKE_LEASE, self.take_lease),
            ServedOperation(operations.LIST_LEASES, self.list_leases),
            ServedOperation(operations.RENEW_LEASE, self.renew_lease),
            ServedOperation(operations.RELEASE_LEASE, self.release_lease),
        )


_REQUEST = msgspec.json.Decoder(VerifyRequest)
#: Verifications at work at once in a process; others wait, so that they do not take the prunes' threads.
_AT_ONCE: Final = 2


class VerifyRoutes:
    """Verify a table, part by part."""

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self._verifications = Verifications(
            services.catalog,
            services.history,
            services.store,
            settings.warehouse_url,
            tokens=services.page_tokens,
            page_sidecars=settings.page_sidecars,
            workers=settings.ingest_threads,
            feedback=FeedbackCheck(services.feedback, services.warehouse, services.store),
        )
        self._threads = Threads(_AT_ONCE)

    async def verify(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        asked = await self._services.read(lambda: read_json(_REQUEST, body))
        if asked.repair:
            require(request, "maintain", namespace, name)

        def work() -> VerifyAnswer:
            return self._verifications.verify(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._threads.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.VERIFY, self.verify),)
