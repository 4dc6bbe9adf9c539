"""``/v1/namespaces/{namespace}/tables``."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import conditional
from lamella.service.access import ASKED, on_namespace, on_table, require, require_sight
from lamella.service.api import (
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
)
from lamella.service.audit import about
from lamella.service.conditional import entity_tag, snapshot_of
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE, TABLES
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    CommitConflict,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    LocationRefused,
    NamespaceNotFound,
    NotParquet,
    ObjectNotFound,
    QuotaExceeded,
    StoreError,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.wire import CreateTable, TableInfo, TableList

_FLAG = {"type": "boolean"}
_CREATE = msgspec.json.Decoder(CreateTable)


class TableRoutes:
    """Create, list, look at and drop tables."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        asked = read_json(_CREATE, body)
        namespace = request.path_params["namespace"]
        about(request, f"{namespace}.{asked.name}")
        if asked.source is not msgspec.UNSET and asked.source.catalog is not None:
            # the service asks that catalog with rights of its own, so it must not do so for whoever wants to look
            require(request, "write")
        tables = self._services.tables
        return await self._services.mutate(request, lambda claim: tables.create_table(namespace, asked, claim), body)

    async def list_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights
        found = await self._services.read(lambda: self._services.catalog.tables(namespace))
        return json_response(TableList(tables=tuple(name for name in found if rights.may("read", namespace, name))))

    async def get_table(self, request: Request) -> Response:
        tables = self._services.tables
        return await conditional.respond(
            self._services,
            request,
            lambda record: entity_tag("table", record.table_id, record.namespace, record.name, snapshot_of(record)),
            lambda record: msgspec.json.encode(tables.info_of(record)),
            at_once=True,
        )

    async def drop_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tables, purge = self._services.tables, truth(request, "purge")
        base = request.query_params.get("base_snapshot_id")
        # As if they were a body: a key that was used without them belongs to another request.
        body = (b"purge" if purge else b"") + (b"" if base is None else b" base " + base.encode())
        return await self._services.mutate(
            request,
            lambda claim: tables.drop_table(namespace, name, claim, purge=purge, base_snapshot_id=base),
            body,
        )

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLES,
                handler=self.create_table,
                needs=on_namespace("write"),
                summary="Create a table",
                tag="Tables",
                description="Its columns are given in `schema`, or read from the Parquet file at `schema_from`. "
                "The table starts with an empty snapshot.",
                is_large=True,
                request_type=CreateTable,
                answer_type=TableInfo,
                status=201,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    LocationRefused,
                    InvalidSchema,
                    UnknownColumn,
                    NotParquet,
                    ObjectNotFound,
                    NamespaceNotFound,
                    AlreadyExists,
                    QuotaExceeded,
                    IdempotencyMismatch,
                    StoreError,
                ),
            ),
            Operation(
                method="GET",
                path=TABLES,
                handler=self.list_tables,
                needs=ASKED,
                summary="List the tables of a namespace",
                tag="Tables",
                answer_type=TableList,
                errors=(NamespaceNotFound,),
            ),
            Operation(
                method="GET",
                path=TABLE,
                handler=self.get_table,
                needs=on_table("read"),
                summary="Look at a table as it stands",
                tag="Tables",
                answer_type=TableInfo,
                parameters=(IF_NONE_MATCH,),
                errors=(NamespaceNotFound, TableNotFound),
            ),
            Operation(
                method="DELETE",
                path=TABLE,
                handler=self.drop_table,
                needs=on_table("maintain"),
                summary="Drop a table",
                tag="Tables",
                description="The table leaves the listing and its name is free again. No file is deleted now. The "
                "table can be undropped for a time (`drop_grace_s`), after which a vacuum may remove what the service "
                "wrote for it; with `purge` the next vacuum may, and the table cannot be undropped. With "
                "`base_snapshot_id` it is dropped only if that is its current snapshot.",
                status=204,
                parameters=(
                    IDEMPOTENCY_KEY,
                    Parameter(name="purge", description="No grace: the table is not coming back.", schema=_FLAG),
                    Parameter(name="base_snapshot_id", description="Only if this is the current snapshot."),
                ),
                errors=(InvalidRequest, NamespaceNotFound, TableNotFound, CommitConflict, IdempotencyMismatch),
            ),
        )
