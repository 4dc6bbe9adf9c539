"""``.../schema``: the columns of a table, now and before, and how they change."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import conditional
from lamella.service.access import on_table
from lamella.service.api import IDEMPOTENCY_KEY, IF_NONE_MATCH, Operation, require_json
from lamella.service.catalog import TableRecord
from lamella.service.conditional import entity_tag, snapshot_of
from lamella.service.idempotency import Claim
from lamella.service.json_body import read_json
from lamella.service.pending import Pending
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import schema_info, trusted_manifests
from lamella.snapshot.errors import (
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    NamespaceNotFound,
    OutcomeUnknown,
    SchemaConflict,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import EvolveRequest, SchemaInfo

_EVOLVE = msgspec.json.Decoder(EvolveRequest)


class SchemaRoutes:
    """Look at the schemas of a table; change the one in force."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, request: Request) -> Response:
        def make(record: TableRecord) -> bytes:
            with trusted_manifests():
                return msgspec.json.encode(schema_info(self._services.warehouse.head(record.pointer)))

        return await conditional.respond(
            self._services,
            request,
            lambda record: entity_tag("schema", record.table_id, snapshot_of(record)),
            make,
            at_once=True,
        )

    async def evolve(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: Claim) -> Pending:
            asked = read_json(_EVOLVE, body)
            return self._services.committer.evolve(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path=TABLE + "/schema",
                handler=self.show,
                needs=on_table("read"),
                summary="Look at the columns of a table, now and before",
                tag="Tables",
                description="`schema` is in force; `schemas` were, oldest first. A block's file has the names of the "
                "schema that it was written with: `schema_id` in prune answers.",
                answer_type=SchemaInfo,
                parameters=(IF_NONE_MATCH,),
                errors=(NamespaceNotFound, TableNotFound),
            ),
            Operation(
                method="POST",
                path=TABLE + "/schema",
                handler=self.evolve,
                needs=on_table("write"),
                summary="Change the columns of a table",
                tag="Tables",
                description="Add, drop, rename, widen or move columns, in one new snapshot; no file is written again. "
                "The changes are applied in order, all of them or none. With `base_schema_id` they are made only if "
                "that schema is in force.",
                is_large=True,
                request_type=EvolveRequest,
                answer_type=SchemaInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    InvalidSchema,
                    UnknownColumn,
                    BodyTooLarge,
                    NamespaceNotFound,
                    TableNotFound,
                    SchemaConflict,
                    IdempotencyMismatch,
                    StoreError,
                    Unavailable,
                    OutcomeUnknown,
                ),
            ),
        )
