"""``/v1/namespaces/{namespace}/dropped`` and ``.../undrop``: tables that were dropped, and their way back."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_namespace, principal_of
from lamella.service.api import IDEMPOTENCY_KEY, Operation, json_response, require_json
from lamella.service.audit import about
from lamella.service.json_body import read_json
from lamella.service.routes.paths import NAMESPACE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    ManifestError,
    NamespaceNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    StoreError,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import DroppedList, TableInfo, UndropRequest

_UNDROP: Final = msgspec.json.Decoder(UndropRequest)


class DroppedRoutes:
    """List dropped tables, bring one back."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_dropped(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        earlier = principal_of(request).rights.may("maintain")
        return json_response(
            await self._services.read(lambda: self._services.tables.dropped(namespace, earlier=earlier))
        )

    async def undrop_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        asked = read_json(_UNDROP, body)
        namespace = request.path_params["namespace"]
        about(request, f"{namespace}.{asked.as_name or asked.name or ''}")
        tables = self._services.tables
        earlier = principal_of(request).rights.may("maintain")
        return await self._services.mutate(
            request, lambda claim: tables.undrop(namespace, asked, claim, earlier=earlier), body
        )

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path=NAMESPACE + "/dropped",
                handler=self.list_dropped,
                needs=on_namespace("maintain"),
                summary="List the dropped tables of a namespace",
                tag="Tables",
                description="Those that can be undropped, newest drop first; also of an earlier namespace of that "
                "name.",
                answer_type=DroppedList,
                errors=(NamespaceNotFound,),
            ),
            Operation(
                method="POST",
                path=NAMESPACE + "/undrop",
                handler=self.undrop_table,
                needs=on_namespace("maintain"),
                summary="Bring a dropped table back",
                tag="Tables",
                description="With its id, history and tags, under its old name or the one in `as`. By `name` it is the "
                "last one dropped of that name.",
                request_type=UndropRequest,
                answer_type=TableInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    BodyTooLarge,
                    NamespaceNotFound,
                    TableNotFound,
                    AlreadyExists,
                    QuotaExceeded,
                    IdempotencyMismatch,
                    ManifestError,
                    StoreError,
                    Unavailable,
                    OutcomeUnknown,
                ),
            ),
        )
