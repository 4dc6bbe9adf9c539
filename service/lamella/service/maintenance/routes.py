"""Routes of vacuum, leases and verification."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_server, on_table, require
from lamella.service.http.admission import read_json
from lamella.service.http.routing import TABLE, Operation, json_response, require_json
from lamella.service.maintenance.verification import Verifications
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.service.usage.feedback import FeedbackCheck
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    LeaseNotFound,
    ManifestError,
    NamespaceNotFound,
    QuotaExceeded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
)
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

_VACUUM: Final = msgspec.json.Decoder(VacuumRequest)
_LEASE: Final = msgspec.json.Decoder(LeaseRequest)
_RENEW: Final = msgspec.json.Decoder(RenewRequest)
_LEASES: Final = TABLE + "/leases"
_ONE_LEASE: Final = TABLE + "/leases/{lease_id}"


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

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        failures = (ManifestError, StoreError, Unavailable)
        return (
            Operation(
                method="POST",
                path=TABLE + "/vacuum",
                handler=self.vacuum,
                needs=on_table("maintain"),
                summary="Clean up a table, part by part",
                tag="Maintenance",
                description="Snapshots that retention does not keep expire, and objects in the table's folder that no "
                "snapshot needs are deleted, if they are old enough. Without `execute` it is only said what would be "
                "done. Each answer is a part; go on with its `next_page_token`. Repeating a part does no harm.",
                request_type=VacuumRequest,
                answer_type=VacuumAnswer,
                errors=(InvalidRequest, InvalidPageToken, *missing, *failures),
            ),
            Operation(
                method="POST",
                path="/v1/vacuum-dropped",
                handler=self.vacuum_dropped,
                needs=on_server("maintain"),
                summary="Purge dropped tables whose grace is over",
                tag="Maintenance",
                description="Deletes what is in the folders of tables that were dropped longer than `drop_grace_s` "
                "ago, and forgets them. Without `execute` it is only said what would be done. While "
                "`next_page_token` is there, send the same request again.",
                request_type=VacuumRequest,
                answer_type=VacuumAnswer,
                errors=(InvalidRequest, *failures),
            ),
            Operation(
                method="POST",
                path=_LEASES,
                handler=self.take_lease,
                needs=on_table("read"),
                summary="Hold a snapshot while it is read",
                tag="Maintenance",
                description="The snapshot does not expire until the lease ends: by itself after `ttl_s` seconds, "
                "unless it is renewed, or when it is released.",
                request_type=LeaseRequest,
                answer_type=LeaseInfo,
                status=201,
                errors=(InvalidRequest, *missing, SnapshotNotFound, SnapshotExpired, QuotaExceeded, Unavailable),
            ),
            Operation(
                method="GET",
                path=_LEASES,
                handler=self.list_leases,
                needs=on_table("maintain"),
                summary="List the leases of a table",
                tag="Maintenance",
                answer_type=LeaseList,
                errors=missing,
            ),
            Operation(
                method="POST",
                path=_ONE_LEASE,
                handler=self.renew_lease,
                needs=on_table("read"),
                changes=False,
                summary="Renew a lease",
                tag="Maintenance",
                request_type=RenewRequest,
                answer_type=LeaseInfo,
                errors=(InvalidRequest, *missing, LeaseNotFound, Unavailable),
            ),
            Operation(
                method="DELETE",
                path=_ONE_LEASE,
                handler=self.release_lease,
                needs=on_table("read"),
                summary="Release a lease",
                tag="Maintenance",
                description="One that is not there is no error.",
                status=204,
                errors=(*missing, Unavailable),
            ),
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

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/verify",
                handler=self.verify,
                needs=on_table("read"),
                summary="Verify a table, and repair what is derived",
                tag="Maintenance",
                description="Holds manifests, sidecars, layers, the blocks' files and their footers against each "
                "other, and with `deep` the values of some blocks too. Each answer is a part of the work; ask again "
                "with `next_page_token` until there is none. With `repair` sidecars and page sidecars are written "
                "again where they are damaged; manifests and blocks never are.",
                request_type=VerifyRequest,
                answer_type=VerifyAnswer,
                errors=(
                    InvalidRequest,
                    InvalidPageToken,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    StoreError,
                ),
            ),
        )
