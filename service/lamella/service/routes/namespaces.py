"""``/v1/namespaces``."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, ASKED, on_namespace, on_server, principal_of, require, require_sight
from lamella.service.api import IDEMPOTENCY_KEY, Operation, json_response, require_json
from lamella.service.audit import about
from lamella.service.json_body import read_json
from lamella.service.quotas import sets_quotas
from lamella.service.routes.paths import NAMESPACE, NAMESPACES
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    IdempotencyMismatch,
    InvalidRequest,
    NamespaceNotEmpty,
    NamespaceNotFound,
    QuotaExceeded,
    Unavailable,
)
from lamella.snapshot.wire import CreateNamespace, NamespaceChange, NamespaceInfo, NamespaceList, NamespaceQuota

_CREATE = msgspec.json.Decoder(CreateNamespace)
_CHANGE = msgspec.json.Decoder(NamespaceChange)


class NamespaceRoutes:
    """Create, list, look at and drop namespaces."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        asked = read_json(_CREATE, body)
        about(request, f"{asked.name}.*")
        if sets_quotas(asked.properties):
            require(request, "admin")
        tables = self._services.tables
        return await self._services.mutate(request, lambda claim: tables.create_namespace(asked, claim), body)

    async def list_namespaces(self, request: Request) -> Response:
        rights = principal_of(request).rights
        found = await self._services.read(self._services.catalog.namespaces)
        return json_response(NamespaceList(namespaces=tuple(each for each in found if rights.sees(each.name))))

    async def get_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        return json_response(await self._services.read(lambda: self._services.catalog.namespace(name)))

    async def change_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        name = request.path_params["namespace"]
        require(request, "maintain", name)
        asked = read_json(_CHANGE, body)
        if sets_quotas((*asked.set, *asked.remove)):
            require(request, "admin")
        tables = self._services.tables
        return await self._services.mutate(request, lambda claim: tables.change_namespace(name, asked, claim), body)

    async def namespace_quota(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        return json_response(await self._services.read(lambda: self._services.tables.namespace_quota(name)))

    async def drop_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        tables = self._services.tables
        return await self._services.mutate(request, lambda claim: tables.drop_namespace(name, claim))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=NAMESPACES,
                handler=self.create_namespace,
                needs=on_server("maintain"),
                summary="Create a namespace",
                tag="Namespaces",
                request_type=CreateNamespace,
                answer_type=NamespaceInfo,
                status=201,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, AlreadyExists, QuotaExceeded, IdempotencyMismatch),
            ),
            Operation(
                method="GET",
                path=NAMESPACES,
                handler=self.list_namespaces,
                needs=ANYBODY,
                summary="List the namespaces",
                tag="Namespaces",
                answer_type=NamespaceList,
            ),
            Operation(
                method="GET",
                path=NAMESPACE,
                handler=self.get_namespace,
                needs=ASKED,
                summary="Look at a namespace",
                tag="Namespaces",
                answer_type=NamespaceInfo,
                errors=(NamespaceNotFound,),
            ),
            Operation(
                method="POST",
                path=NAMESPACE + "/properties",
                handler=self.change_namespace,
                needs=ASKED,
                summary="Set and remove properties of a namespace",
                tag="Namespaces",
                description="Others stay as they are. Quotas (`lamella.quota.*`) are for those with `admin` on the "
                "server, others for those with `maintain` on the namespace.",
                request_type=NamespaceChange,
                answer_type=NamespaceInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, NamespaceNotFound, IdempotencyMismatch, Unavailable),
            ),
            Operation(
                method="GET",
                path=NAMESPACE + "/quota",
                handler=self.namespace_quota,
                needs=on_namespace("read"),
                summary="How much there is in a namespace, and may be",
                tag="Namespaces",
                answer_type=NamespaceQuota,
                errors=(NamespaceNotFound,),
            ),
            Operation(
                method="DELETE",
                path=NAMESPACE,
                handler=self.drop_namespace,
                needs=on_server("maintain"),
                summary="Drop an empty namespace",
                tag="Namespaces",
                status=204,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(NamespaceNotFound, NamespaceNotEmpty, IdempotencyMismatch),
            ),
        )
