"""Routes with which Iceberg clients change namespaces and tables."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require, require_sight
from lamella.service.catalog import Catalog
from lamella.service.catalog.quotas import sets_quotas
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered
from lamella.service.http.mutations import Mutations, Work
from lamella.service.http.problem import error_in
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.iceberg.hosted import HostedTables
from lamella.service.iceberg.routes import IcebergCatalogRoutes, levels_of, name_of
from lamella.service.iceberg.storage_access import Access, Caller, StorageAccess
from lamella.service.process.threads import Threads
from lamella.service.tables.tables import Tables
from lamella.service.usage.audit import about
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, NamespaceNotEmpty, PropertyConflict
from lamella.snapshot.iceberg import operations
from lamella.snapshot.iceberg.wire import (
    CommitIcebergTable,
    CommitIcebergTransaction,
    CommittedIcebergTable,
    CreateIcebergNamespace,
    CreateIcebergTable,
    IcebergNamespace,
    IcebergPointer,
    LoadedTable,
    RegisterIcebergTable,
    RenameIcebergTable,
    UpdatedIcebergNamespace,
    UpdateIcebergNamespace,
)
from lamella.snapshot.wire import CreateNamespace, NamespaceChange, NamespaceInfo, RenameRequest

_CREATE_NAMESPACE: Final = msgspec.json.Decoder(CreateIcebergNamespace)
_UPDATE_NAMESPACE: Final = msgspec.json.Decoder(UpdateIcebergNamespace)
_CREATE_TABLE: Final = msgspec.json.Decoder(CreateIcebergTable)
_REGISTER: Final = msgspec.json.Decoder(RegisterIcebergTable)
_COMMIT: Final = msgspec.json.Decoder(CommitIcebergTable)
_TRANSACTION: Final = msgspec.json.Decoder(CommitIcebergTransaction)
_RENAME: Final = msgspec.json.Decoder(RenameIcebergTable)
#: Commits of Iceberg clients at once in a process, and how many requests wait; one more is refused.
_AT_ONCE: Final = 4
_WAITING: Final = 256


class IcebergNamespaceRoutes:
    """Routes that create, change and drop namespaces."""

    def __init__(self, *, catalog: Catalog, mutations: Mutations, tables: Tables) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._tables = tables

    async def create_iceberg_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = read_json(_CREATE_NAMESPACE, body)
        name, tables = name_of(payload.namespace), self._tables
        about(request, f"{name}.*")
        if sets_quotas(payload.properties):
            require(request, "admin")
        wanted = CreateNamespace(name=name, properties=payload.properties)
        done = await run(self._mutations, request, lambda key: tables.create_namespace(wanted, key), body)
        made = msgspec.json.decode(done.body, type=NamespaceInfo)
        return json_response(IcebergNamespace(namespace=levels_of(made.name), properties=dict(made.properties)))

    async def update_iceberg_namespace(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        name, tables = request.path_params["namespace"], self._tables
        require(request, "maintain", name)
        payload = read_json(_UPDATE_NAMESPACE, body)
        both = sorted(set(payload.removals) & set(payload.updates))
        if both:
            raise PropertyConflict(f"property {both[0]!r} is both set and removed", property=both[0])
        if sets_quotas((*payload.updates, *payload.removals)):
            require(request, "admin")

        def work(key: IdempotencyKey) -> StoredResponse:
            known = self._catalog.namespace(name).properties
            change = NamespaceChange(set=payload.updates, remove=payload.removals)
            if payload.updates or payload.removals:
                tables.change_namespace(name, change, IdempotencyKey(None, key.scope, key.request_sha256, key.now_ms))
            removed = tuple(each for each in payload.removals if each in known)
            missing = tuple(each for each in payload.removals if each not in known)
            updated = UpdatedIcebergNamespace(updated=tuple(payload.updates), removed=removed, missing=missing)
            return answered(self._catalog, key, updated)

        return await run(self._mutations, request, work, body)

    async def drop_iceberg_namespace(self, request: Request) -> Response:
        name, tables = request.path_params["namespace"], self._tables

        def work(key: IdempotencyKey) -> StoredResponse:
            inside = [each.name for each in self._catalog.namespaces() if each.name.startswith(f"{name}.")]
            if inside:
                raise NamespaceNotEmpty(f"Namespace {name} is not empty: it has namespace {inside[0]}", namespace=name)
            return tables.drop_namespace(name, key)

        return await run(self._mutations, request, work)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CREATE_ICEBERG_NAMESPACE, self.create_iceberg_namespace),
            ServedOperation(operations.UPDATE_ICEBERG_NAMESPACE, self.update_iceberg_namespace),
            ServedOperation(operations.DROP_ICEBERG_NAMESPACE, self.drop_iceberg_namespace),
        )


class IcebergTableRoutes:
    """Routes that create, change, rename and drop tables. ``shown`` makes the answers."""

    def __init__(
        self,
        *,
        mutations: Mutations,
        readers: Threads,
        tables: Tables,
        hosted: HostedTables,
        access: StorageAccess,
        shown: IcebergCatalogRoutes,
    ) -> None:
        self._mutations = mutations
        self._readers = readers
        self._tables = tables
        self._hosted = hosted
        self._access = access
        self._shown = shown
        self._threads = Threads(_AT_ONCE, max_waiting=_WAITING, what="commits of Iceberg clients")

    async def create_iceberg_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, tables = request.path_params["namespace"], self._hosted
        payload = read_json(_CREATE_TABLE, body)
        about(request, f"{namespace}.{payload.name}")
        caller = Caller.of(request, namespace, payload.name)
        if payload.stage_create:

            def stage() -> LoadedTable:
                table_id, metadata = tables.staged(namespace, payload)
                access = self._access.to(caller, table_id, lambda: metadata, is_staged=True)
                return self._shown.loaded(None, metadata, access)

            return self._shown.answer(await self._readers.run(stage), Access())
        return await self._loaded(request, caller, lambda key: tables.create(namespace, payload, key), body)

    async def register_iceberg_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, tables = request.path_params["namespace"], self._hosted
        payload = read_json(_REGISTER, body)
        about(request, f"{namespace}.{payload.name}")
        caller = Caller.of(request, namespace, payload.name)
        return await self._loaded(request, caller, lambda key: tables.register(namespace, payload, key), body)

    async def commit_iceberg_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tables, payload = self._hosted, read_json(_COMMIT, body)

        def work(key: IdempotencyKey) -> StoredResponse | Pending:
            return tables.commit(namespace, name, payload, key)

        done = await run(self._mutations, request, work, body, threads=self._threads)
        location, metadata = await self._metadata(done)
        response = json_response(CommittedIcebergTable(metadata_location=location, metadata=metadata))
        response.headers["ETag"] = self._shown.tag(location, Access())
        return response

    async def drop_iceberg_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tables, purge = self._tables, _is_true(request, "purgeRequested")
        return await run(
            self._mutations,
            request,
            lambda key: tables.drop_table(namespace, name, key, purge=purge),
            b"purge" if purge else b"",
        )

    async def rename_iceberg_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload, tables = read_json(_RENAME, body), self._tables
        namespace, name = name_of(payload.source.namespace), payload.source.name
        require_sight(request, namespace)
        require(request, "maintain", namespace, name)
        to = name_of(payload.destination.namespace)
        require(request, "write", to)
        about(request, f"{namespace}.{name}")
        wanted = RenameRequest(name=payload.destination.name, namespace=to)

        def work(key: IdempotencyKey) -> StoredResponse:
            return tables.rename_table(namespace, name, wanted, key)

        return await run_rename(self._mutations, request, work, body, f"{namespace}.{name}")

    async def commit_iceberg_transaction(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload, hosted = read_json(_TRANSACTION, body), self._hosted
        changes = []
        for change in payload.table_changes:
            if change.identifier is None:
                raise InvalidRequest("each change of a transaction names its table: identifier")
            namespace, name = name_of(change.identifier.namespace), change.identifier.name
            require(request, "write", namespace, name)
            changes.append((namespace, name, change))
        about(request, *(f"{namespace}.{name}" for namespace, name, _ in changes))
        await run(self._mutations, request, lambda key: hosted.commit_all(changes, key), body, threads=self._threads)
        return Response(None, 204)

    async def _loaded(self, request: Request, caller: Caller, work: Work, body: bytes) -> Response:
        done = await run(self._mutations, request, work, body, threads=self._threads)
        location, metadata = await self._metadata(done)
        access = await self._readers.run(lambda: self._access.to_created(caller, metadata, location))
        return self._shown.answer(self._shown.loaded(location, metadata, access), access)

    async def _metadata(self, done: Response) -> tuple[str, dict[str, Any]]:
        """Return the metadata file that a commit stored as its answer, and its content."""
        location = msgspec.json.decode(done.body, type=IcebergPointer).metadata_location
        return location, await self._readers.run(lambda: self._hosted.metadata(location))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CREATE_ICEBERG_TABLE, self.create_iceberg_table),
            ServedOperation(operations.REGISTER_ICEBERG_TABLE, self.register_iceberg_table),
            ServedOperation(operations.COMMIT_ICEBERG_TABLE, self.commit_iceberg_table),
            ServedOperation(operations.DROP_ICEBERG_TABLE, self.drop_iceberg_table),
            ServedOperation(operations.COMMIT_ICEBERG_TRANSACTION, self.commit_iceberg_transaction),
            ServedOperation(operations.RENAME_ICEBERG_TABLE, self.rename_iceberg_table),
        )


def _is_true(request: Request, name: str) -> bool:
    """Return a boolean query parameter; pyiceberg writes it as Python does. Raises InvalidRequest."""
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} must be true or false, not {text!r}", parameter=name)
    return text == "true"


async def run(
    mutations: Mutations, request: Request, work: Work, body: bytes = b"", *, threads: Threads | None = None
) -> Response:
    """Run a mutation. Raises the error of a stored answer again, for it is stored in Lamella's form."""
    done = await mutations.run(request, work, body, threads=threads)
    if done.status_code >= 400:
        raise error_in(bytes(done.body))
    return done


async def run_rename(mutations: Mutations, request: Request, work: Work, body: bytes, source: str) -> Response:
    """Run a rename of ``source``. Raises AlreadyExists with that name, which Iceberg's text about it has."""
    try:
        await run(mutations, request, work, body)
    except AlreadyExists as error:
        raise AlreadyExists(error.message, **{**error.details, "renamed": source}) from error
    return Response(None, 204)
