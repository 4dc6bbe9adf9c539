"""Routes of vacuum, leases, verification, and the health of tables."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.catalog import Catalog, current_table
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.maintenance.leases import Leases
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.maintenance.verification import Verifications
from lamella.service.process.threads import Threads
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    RenewRequest,
    TableHealth,
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
    """Routes that clean up, show the health of tables, and create, renew, list and end leases."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        maintainers: Threads,
        leases: Leases,
        vacuum: Vacuum,
        healths: TableHealths,
    ) -> None:
        self._healths = healths
        self._catalog = catalog
        self._readers = readers
        self._maintainers = maintainers
        self._leases = leases
        self._vacuum = vacuum

    async def vacuum(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_VACUUM, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> VacuumAnswer:
            return self._vacuum.vacuum(self._catalog.table(namespace, name), payload)

        return json_response(await self._maintainers.run(work))

    async def vacuum_dropped(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_VACUUM, await request.body())
        return json_response(await self._maintainers.run(lambda: self._vacuum.purge_dropped(payload)))

    async def table_health(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> TableHealth:
            return self._healths.show(current_table(self._catalog, namespace, name))

        return json_response(await self._readers.run(work))

    async def take_lease(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_LEASE, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> LeaseInfo:
            return self._leases.take(self._catalog.table(namespace, name), payload)

        return json_response(await self._readers.run(work), 201)

    async def list_leases(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> LeaseList:
            return self._leases.list(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    async def renew_lease(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_RENEW, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        lease_id = request.path_params["lease_id"]

        def work() -> LeaseInfo:
            return self._leases.renew(self._catalog.table(namespace, name), lease_id, payload)

        return json_response(await self._readers.run(work))

    async def release_lease(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        lease_id = request.path_params["lease_id"]

        def work() -> None:
            self._leases.release(self._catalog.table(namespace, name), lease_id)

        await self._readers.run(work)
        return Response(status_code=204)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.VACUUM, self.vacuum),
            ServedOperation(operations.VACUUM_DROPPED, self.vacuum_dropped),
            ServedOperation(operations.TABLE_HEALTH, self.table_health),
            ServedOperation(operations.TAKE_LEASE, self.take_lease),
            ServedOperation(operations.LIST_LEASES, self.list_leases),
            ServedOperation(operations.RENEW_LEASE, self.renew_lease),
            ServedOperation(operations.RELEASE_LEASE, self.release_lease),
        )


_REQUEST = msgspec.json.Decoder(VerifyRequest)
#: Concurrent verifications in a process; others wait, so that they do not use up the prunes' threads.
_AT_ONCE: Final = 2


class VerifyRoutes:
    """Routes that verify a table, part by part."""

    def __init__(self, *, catalog: Catalog, readers: Threads, verifications: Verifications) -> None:
        self._catalog = catalog
        self._readers = readers
        self._verifications = verifications
        self._threads = Threads(_AT_ONCE)

    async def verify(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        payload = await self._readers.run(lambda: read_json(_REQUEST, body))
        if payload.repair:
            require(request, "maintain", namespace, name)

        def work() -> VerifyAnswer:
            return self._verifications.verify(self._catalog.table(namespace, name), payload)

        return json_response(await self._threads.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.VERIFY, self.verify),)
