"""Routes of namespaces, tables, schemas, and of dropped tables."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import (
    ANYBODY,
    ASKED,
    on_namespace,
    on_server,
    on_table,
    principal_of,
    require,
    require_sight,
)
from lamella.service.catalog import TableRecord
from lamella.service.catalog.quotas import sets_quotas
from lamella.service.history.history import schema_info, trusted_manifests
from lamella.service.http import responses
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.http.responses import entity_tag, snapshot_of
from lamella.service.http.routing import (
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    NAMESPACE,
    NAMESPACES,
    TABLE,
    TABLES,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
)
from lamella.service.services import Services
from lamella.service.usage.audit import about
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    CommitConflict,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidSchema,
    LocationRefused,
    ManifestError,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NotParquet,
    ObjectNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    CreateNamespace,
    CreateTable,
    DroppedList,
    EvolveRequest,
    NamespaceChange,
    NamespaceInfo,
    NamespaceList,
    NamespaceQuota,
    SchemaInfo,
    TableInfo,
    TableList,
    UndropRequest,
)

_CREATE_NAMESPACE = msgspec.json.Decoder(CreateNamespace)
_CHANGE = msgspec.json.Decoder(NamespaceChange)


class NamespaceRoutes:
    """Create, list, look at and drop namespaces."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        asked = read_json(_CREATE_NAMESPACE, body)
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


_FLAG = {"type": "boolean"}
_CREATE_TABLE = msgspec.json.Decoder(CreateTable)


class TableRoutes:
    """Create, list, look at and drop tables."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        asked = read_json(_CREATE_TABLE, body)
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
        return await responses.respond_conditional(
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


_EVOLVE = msgspec.json.Decoder(EvolveRequest)


class SchemaRoutes:
    """Look at the schemas of a table; change the one in force."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, request: Request) -> Response:
        def make(record: TableRecord) -> bytes:
            with trusted_manifests():
                return msgspec.json.encode(schema_info(self._services.warehouse.head(record.pointer)))

        return await responses.respond_conditional(
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

        def work(claim: IdempotencyKey) -> Pending:
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
