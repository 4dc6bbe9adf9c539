"""Routes of namespaces, tables, schemas, and of dropped tables."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import (
    principal_of,
    require,
    require_sight,
)
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.catalog.quotas import sets_quotas
from lamella.service.commits.committer import Committer
from lamella.service.history.history import schema_info, trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.http.mutations import Mutations
from lamella.service.http.responses import ConditionalResponses, entity_tag, snapshot_of
from lamella.service.http.routing import (
    ServedOperation,
    json_response,
    require_json,
    truth,
)
from lamella.service.process.threads import Threads
from lamella.service.tables.tables import Tables
from lamella.service.usage.audit import about
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.near_names import require_known_members
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    ROLES,
    CreateNamespace,
    CreateTable,
    EvolveRequest,
    NamespaceChange,
    NamespaceList,
    RenameRequest,
    Role,
    TableList,
    UndropRequest,
)
from lamella.snapshot.wire.operation import JSON
from lamella.snapshot.wire.operations import tables as operations

_CREATE_NAMESPACE = msgspec.json.Decoder(CreateNamespace)
_CHANGE = msgspec.json.Decoder(NamespaceChange)


class NamespaceRoutes:
    """Routes that create, list, return and drop namespaces."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, tables: Tables) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._tables = tables

    async def create_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_CREATE_NAMESPACE, body)
        about(request, f"{payload.name}.*")
        if sets_quotas(payload.properties):
            require(request, "admin")
        tables = self._tables
        return await self._mutations.run(
            request, lambda idempotency_key: tables.create_namespace(payload, idempotency_key), body
        )

    async def list_namespaces(self, request: Request) -> Response:
        rights = principal_of(request).rights
        found = await self._readers.run(self._catalog.namespaces)
        return json_response(NamespaceList(namespaces=tuple(each for each in found if rights.sees(each.name))))

    async def get_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        require_sight(request, name)
        return json_response(await self._readers.run(lambda: self._catalog.namespace(name)))

    async def change_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        name = request.path_params["namespace"]
        require(request, "maintain", name)
        payload = read_json(_CHANGE, body)
        if sets_quotas((*payload.set, *payload.remove)):
            require(request, "admin")
        tables = self._tables
        return await self._mutations.run(
            request, lambda idempotency_key: tables.change_namespace(name, payload, idempotency_key), body
        )

    async def namespace_quota(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        return json_response(await self._readers.run(lambda: self._tables.namespace_quota(name)))

    async def drop_namespace(self, request: Request) -> Response:
        name = request.path_params["namespace"]
        tables = self._tables
        return await self._mutations.run(request, lambda idempotency_key: tables.drop_namespace(name, idempotency_key))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CREATE_NAMESPACE, self.create_namespace),
            ServedOperation(operations.LIST_NAMESPACES, self.list_namespaces),
            ServedOperation(operations.GET_NAMESPACE, self.get_namespace),
            ServedOperation(operations.CHANGE_NAMESPACE, self.change_namespace),
            ServedOperation(operations.NAMESPACE_QUOTA, self.namespace_quota),
            ServedOperation(operations.DROP_NAMESPACE, self.drop_namespace),
        )


_CREATE_TABLE = msgspec.json.Decoder(CreateTable)
_RENAME = msgspec.json.Decoder(RenameRequest)


class TableRoutes:
    """Routes that create, list, return and drop tables."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        mutations: Mutations,
        conditional: ConditionalResponses,
        tables: Tables,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._conditional = conditional
        self._tables = tables

    async def create_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_CREATE_TABLE, body)
        require_known_members(_CREATE_TABLE.type, body)
        namespace = request.path_params["namespace"]
        about(request, f"{namespace}.{payload.name}")
        if payload.source is not msgspec.UNSET and payload.source.catalog is not None:
            # the service calls that catalog with its own rights, so it must not do so for everyone
            require(request, "write")
        tables = self._tables
        return await self._mutations.run(
            request, lambda idempotency_key: tables.create_table(namespace, payload, idempotency_key), body
        )

    async def list_tables(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights

        def listed() -> bytes:
            return msgspec.json.encode(TableList(tables=rights.readable(namespace, self._catalog.tables(namespace))))

        return Response(await self._readers.run(listed), media_type=JSON)

    async def get_table(self, request: Request) -> Response:
        tables = self._tables
        role = _role_of(request)
        if role is not None:
            require(request, role, request.path_params["namespace"], request.path_params["table"])
        return await self._conditional.respond(
            request,
            lambda record: entity_tag("table", record.table_id, record.namespace, record.name, snapshot_of(record)),
            lambda record: msgspec.json.encode(tables.info_of(record)),
            at_once=True,
        )

    async def drop_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tables, purge = self._tables, truth(request, "purge")
        base = request.query_params.get("base_snapshot_id")
        # Hashed like a body: a key that was used with other parameters belongs to another request.
        body = (b"purge" if purge else b"") + (b"" if base is None else b" base " + base.encode())
        return await self._mutations.run(
            request,
            lambda idempotency_key: tables.drop_table(
                namespace, name, idempotency_key, purge=purge, base_snapshot_id=base
            ),
            body,
        )

    async def rename_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        require(request, "maintain", namespace, name)
        payload = read_json(_RENAME, body)
        require(request, "write", payload.namespace or namespace)
        tables = self._tables
        return await self._mutations.run(
            request, lambda idempotency_key: tables.rename_table(namespace, name, payload, idempotency_key), body
        )

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CREATE_TABLE, self.create_table),
            ServedOperation(operations.LIST_TABLES, self.list_tables),
            ServedOperation(operations.GET_TABLE, self.get_table),
            ServedOperation(operations.RENAME_TABLE, self.rename_table),
            ServedOperation(operations.DROP_TABLE, self.drop_table),
        )


def _role_of(request: Request) -> Role | None:
    """Return the role that the caller must have for its next steps, if the request names one; raises InvalidRequest."""
    role = request.query_params.get("role")
    if role is not None and role not in ROLES:
        raise InvalidRequest(f"role is one of {', '.join(ROLES)}, not {role!r}", parameter="role")
    return role


_EVOLVE = msgspec.json.Decoder(EvolveRequest)


class SchemaRoutes:
    """Routes that return the schemas of a table and change the current one."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        mutations: Mutations,
        conditional: ConditionalResponses,
        warehouse: Warehouse,
        committer: Committer,
    ) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._conditional = conditional
        self._warehouse = warehouse
        self._committer = committer

    async def show(self, request: Request) -> Response:
        def make(record: TableRecord) -> bytes:
            with trusted_manifests():
                return msgspec.json.encode(schema_info(self._warehouse.head(record.pointer)))

        return await self._conditional.respond(
            request,
            lambda record: entity_tag("schema", record.table_id, snapshot_of(record)),
            make,
            at_once=True,
        )

    async def evolve(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> Pending:
            payload = read_json(_EVOLVE, body)
            require_known_members(_EVOLVE.type, body)
            return self._committer.evolve(self._catalog.table(namespace, name), payload, idempotency_key)

        return await self._mutations.run(request, work, body)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.SHOW_SCHEMA, self.show),
            ServedOperation(operations.EVOLVE_SCHEMA, self.evolve),
        )


_UNDROP: Final = msgspec.json.Decoder(UndropRequest)


class DroppedRoutes:
    """Routes that list dropped tables and undrop one."""

    def __init__(self, *, readers: Threads, mutations: Mutations, tables: Tables) -> None:
        self._readers = readers
        self._mutations = mutations
        self._tables = tables

    async def list_dropped(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        earlier = principal_of(request).rights.may("maintain")
        return json_response(await self._readers.run(lambda: self._tables.dropped(namespace, earlier=earlier)))

    async def undrop_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_UNDROP, body)
        namespace = request.path_params["namespace"]
        about(request, f"{namespace}.{payload.as_name or payload.name or ''}")
        tables = self._tables
        earlier = principal_of(request).rights.may("maintain")
        return await self._mutations.run(
            request, lambda idempotency_key: tables.undrop(namespace, payload, idempotency_key, earlier=earlier), body
        )

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_DROPPED, self.list_dropped),
            ServedOperation(operations.UNDROP_TABLE, self.undrop_table),
        )
