"""Views for Iceberg clients: the same views that Spark has through Lamella's catalog.

What a client commits is stored with the view in the catalog, where the compare-and-set of the view decides which of two
changes comes first; each commit also writes a metadata file, which can be registered again. When Spark replaces a view,
its metadata is made anew: the id stays, and the one version gets a higher number than any before.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import actor_of, require, require_sight
from lamella.service.catalog import Catalog, IcebergView, StoredView, plain_definition
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse, answered
from lamella.service.http.mutations import Mutations, Work
from lamella.service.http.page_token import PageTokens
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.iceberg.routes import levels_of, name_of, page_of
from lamella.service.iceberg.writes import run, run_rename
from lamella.service.process.threads import Threads
from lamella.service.tables.names import LocationRules, check_name, require_own
from lamella.service.tables.views import Views
from lamella.service.usage.audit import about
from lamella.snapshot.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    ManifestError,
    NamespaceNotFound,
    NotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    ViewNotFound,
)
from lamella.snapshot.iceberg import operations
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.iceberg.view_definition import definition_of_metadata, metadata_of_definition
from lamella.snapshot.iceberg.view_metadata import (
    changed_view,
    check_view_metadata,
    check_view_requirements,
    new_view,
)
from lamella.snapshot.iceberg.wire import (
    CommitIcebergView,
    CreateIcebergView,
    IcebergIdentifier,
    IcebergTables,
    LoadedView,
    RegisterIcebergView,
    RenameIcebergTable,
)
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import Store, normal
from lamella.snapshot.vacuum import foreign_table
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import RenameRequest, ViewDefinition, ViewInfo

#: How often a commit is tried if other changes of the view come first.
_TRIES: Final = 20
#: Metadata is stored in a row of the catalog, so it has a limit.
MAX_METADATA_BYTES: Final = 4 << 20
_METADATA_FOLDER: Final = "write.metadata.path"
#: Changes of views at once in a process, and how many requests wait; one more is refused.
_AT_ONCE: Final = 4
_WAITING: Final = 256


class HostedViews:
    """Creates, loads and changes views for Iceberg clients. Every method blocks."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        rules: LocationRules,
        ids: Ids,
        clock: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._rules = rules
        self._ids = ids
        self._clock = clock

    def load(self, namespace: str, name: str) -> LoadedView:
        """Return a view. Raises NamespaceNotFound, ViewNotFound; NotExpressible: Iceberg has no type for a column."""
        return self._loaded(self._catalog.view(namespace, name))

    def create(self, namespace: str, request: CreateIcebergView, key: IdempotencyKey, *, owner: str) -> StoredResponse:
        """Add a view.

        Raises:
            InvalidRequest: the name, schema, version or location.
            LocationRefused: the location is not allowed.
            NamespaceNotFound, AlreadyExists: the state of the catalog.
        """
        name, view_id = self._new(namespace, request.name)
        metadata = new_view(
            request.schema,
            request.view_version,
            properties=request.properties,
            location=request.location or self._warehouse.table_location(view_id),
            view_uuid=view_id,
            now_ms=self._clock(),
        )
        return self._add(namespace, name, view_id, metadata, owner, key)

    def register(
        self, namespace: str, request: RegisterIcebergView, key: IdempotencyKey, *, owner: str
    ) -> StoredResponse:
        """Add a view by its metadata file, with another id.

        Raises as :meth:`create`; ObjectNotFound, StoreError, ManifestError: the file cannot be read.
        """
        name, view_id = self._new(namespace, request.name)
        location = normal(request.metadata_location)
        self._rules.of(namespace, None).require(location)
        try:
            metadata = msgspec.json.decode(self._store.read(location), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ManifestError(f"{location} is not the metadata of a view", location=location) from error
        check_view_metadata(metadata)
        metadata = {"properties": {}, **metadata, "view-uuid": view_id}
        if foreign_table(self._warehouse, view_id, f"{normal(metadata['location'])}/") is not None:
            metadata["location"] = self._warehouse.table_location(view_id)  # no two views share a folder of ours
        return self._add(namespace, name, view_id, metadata, owner, key)

    def commit(self, namespace: str, name: str, request: CommitIcebergView, key: IdempotencyKey) -> StoredResponse:
        """Commit a client's updates.

        Raises:
            InvalidRequest: an update or a requirement.
            CommitRequirementFailed: the view is no longer as the client requires.
            LocationRefused: the view may not use a location.
            NamespaceNotFound, ViewNotFound: the state of the catalog.
            NotExpressible: Iceberg has no type for a column.
            StoreError, Unavailable: nothing was committed.
        """
        for _ in range(_TRIES):
            before = self._catalog.view(namespace, name)
            shown = self._loaded(before)
            check_view_requirements(request.requirements, shown.metadata)
            metadata = changed_view(shown.metadata, request.updates, now_ms=self._clock())
            if metadata is None:
                return answered(self._catalog, key, shown)
            if metadata["location"] != shown.metadata["location"]:
                self._check_location(namespace, before.view_id, metadata["location"])
            known = before.definition
            after = msgspec.structs.replace(
                before,
                definition=definition_of_metadata(metadata, plain_definition(known)),
                version=before.version + 1,
                updated_at_ms=max(self._clock(), before.updated_at_ms),
            )
            offset = known.version_offset if isinstance(known, StoredView) else 0
            after, answer = self._written(after, metadata, offset)
            stored = key.store_as(200, answer)
            if self._catalog.replace_view(before, after, remember=stored.stored):
                return stored
            self._discard(answer.metadata_location)
        raise Unavailable("the view is being changed by others; try again", retry_after_s=1)

    # Parts of the above.

    def _new(self, namespace: str, name: str) -> tuple[str, str]:
        """Return the name and the id of a new view. Raises InvalidRequest, NamespaceNotFound, AlreadyExists."""
        check_name("view", name)
        with suppress(ViewNotFound):
            self._catalog.view(namespace, name)
            raise AlreadyExists(f"view '{namespace}.{name}' exists", namespace=namespace, view=name)
        with suppress(TableNotFound):
            self._catalog.table(namespace, name)
            raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name)
        return name, str(self._ids.new())

    def _add(
        self, namespace: str, name: str, view_id: str, metadata: Json, owner: str, key: IdempotencyKey
    ) -> StoredResponse:
        self._check_location(namespace, view_id, metadata["location"])
        now_ms = self._clock()
        view = ViewInfo(
            view_id=view_id,
            namespace=namespace,
            name=name,
            definition=definition_of_metadata(metadata, None),
            owner=owner,
            version=1,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        view, answer = self._written(view, metadata, 0)
        stored = key.store_as(200, answer)
        try:
            self._catalog.create_view(view, remember=stored.stored)
        except (Conflict, NotFound):
            self._discard(answer.metadata_location)
            raise
        return stored

    def _loaded(self, view: ViewInfo) -> LoadedView:
        definition = view.definition
        if isinstance(definition, StoredView) and definition.iceberg is not None:
            stored = definition.iceberg
            return LoadedView(metadata_location=stored.metadata_location, metadata=stored.metadata, config={})
        offset = definition.version_offset if isinstance(definition, StoredView) else 0
        location = self._warehouse.table_location(view.view_id)
        number = view.version + offset
        return LoadedView(
            # clients compare it, and do not open it
            metadata_location=f"{location}/metadata/{number:05d}-{view.view_id}.metadata.json",
            metadata=metadata_of_definition(view, version_id=number, location=location),
            config={},
        )

    def _check_location(self, namespace: str, view_id: str, location: str) -> None:
        """Raise LocationRefused, or InvalidRequest, if a view may not have its files there."""
        found = normal(location).rstrip("/")
        self._rules.of(namespace, view_id).require_all_below(found)
        require_own(self._warehouse, view_id, f"{found}/")

    def _written(self, view: ViewInfo, metadata: Json, offset: int) -> tuple[ViewInfo, LoadedView]:
        """Write the metadata file; return the view with it, and the answer. Raises InvalidRequest, LocationRefused."""
        data = msgspec.json.encode(metadata)
        if len(data) > MAX_METADATA_BYTES:
            raise InvalidRequest(f"the metadata of a view has at most {MAX_METADATA_BYTES} bytes, not {len(data)}")
        folder = metadata["properties"].get(_METADATA_FOLDER) or f"{metadata['location']}/metadata"
        # clients find the folder in it as they wrote it
        location = f"{folder.rstrip('/')}/{view.version:05d}-{uuid.uuid4()}.metadata.json"
        self._rules.of(view.namespace, view.view_id).require(normal(location))
        require_own(self._warehouse, view.view_id, normal(location))
        self._store.put(normal(location), data)
        fields = {name: getattr(view.definition, name) for name in ViewDefinition.__struct_fields__}
        stored = StoredView(
            **fields, iceberg=IcebergView(metadata_location=location, metadata=metadata), version_offset=offset
        )
        answer = LoadedView(metadata_location=location, metadata=metadata, config={})
        return msgspec.structs.replace(view, definition=stored), answer

    def _discard(self, location: str) -> None:
        """Delete a metadata file that did not become current."""
        with suppress(StoreError):
            self._store.delete(normal(location))


_CREATE: Final = msgspec.json.Decoder(CreateIcebergView)
_REGISTER: Final = msgspec.json.Decoder(RegisterIcebergView)
_COMMIT: Final = msgspec.json.Decoder(CommitIcebergView)
_RENAME: Final = msgspec.json.Decoder(RenameIcebergTable)


class IcebergViewRoutes:
    """Routes of views. ``views`` renames and drops them, as for Lamella's own clients."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        mutations: Mutations,
        page_tokens: PageTokens,
        views: Views,
        hosted: HostedViews,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._page_tokens = page_tokens
        self._views = views
        self._hosted = hosted
        self._threads = Threads(_AT_ONCE, max_waiting=_WAITING, what="changes of Iceberg views")

    async def iceberg_views(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        rights = require_sight(request, namespace).rights

        def listed() -> list[str]:
            try:
                return self._catalog.views(namespace)
            except NamespaceNotFound:
                inside = (each.name for each in self._catalog.namespaces() if each.name.startswith(f"{namespace}."))
                if not any(map(rights.sees, inside)):
                    raise
                return []  # only namespaces are in it

        found = await self._readers.run(listed)
        page, token = page_of(request, rights.readable(namespace, found), self._page_tokens, namespace)
        identifiers = tuple(IcebergIdentifier(namespace=levels_of(namespace), name=name) for name in page)
        return json_response(IcebergTables(identifiers=identifiers, next_page_token=token))

    async def load_iceberg_view(self, request: Request) -> Response:
        namespace, name = _named(request)
        if request.method == "HEAD":
            await self._readers.run(lambda: self._catalog.view(namespace, name))
            return Response(None, 204)
        return json_response(await self._readers.run(lambda: self._hosted.load(namespace, name)))

    async def create_iceberg_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, views, owner = request.path_params["namespace"], self._hosted, actor_of(request)
        payload = read_json(_CREATE, body)
        about(request, f"{namespace}.{payload.name}")
        return await self._changed(request, lambda key: views.create(namespace, payload, key, owner=owner), body)

    async def register_iceberg_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, views, owner = request.path_params["namespace"], self._hosted, actor_of(request)
        payload = read_json(_REGISTER, body)
        about(request, f"{namespace}.{payload.name}")
        return await self._changed(request, lambda key: views.register(namespace, payload, key, owner=owner), body)

    async def commit_iceberg_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        (namespace, name), views = _named(request), self._hosted
        payload = read_json(_COMMIT, body)
        return await self._changed(request, lambda key: views.commit(namespace, name, payload, key), body)

    async def drop_iceberg_view(self, request: Request) -> Response:
        (namespace, name), views = _named(request), self._views
        return await run(self._mutations, request, lambda key: views.drop(namespace, name, key))

    async def rename_iceberg_view(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload, views = read_json(_RENAME, body), self._views
        namespace, name = name_of(payload.source.namespace), payload.source.name
        require_sight(request, namespace)
        require(request, "maintain", namespace, view=name)
        to = name_of(payload.destination.namespace)
        require(request, "write", to)
        about(request, f"{namespace}.{name}")
        wanted = RenameRequest(name=payload.destination.name, namespace=to)

        def work(key: IdempotencyKey) -> StoredResponse:
            return views.rename(namespace, name, wanted, key)

        return await run_rename(self._mutations, request, work, body, f"{namespace}.{name}")

    async def _changed(self, request: Request, work: Work, body: bytes) -> Response:
        return await run(self._mutations, request, work, body, threads=self._threads)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.ICEBERG_VIEWS, self.iceberg_views),
            ServedOperation(operations.LOAD_ICEBERG_VIEW, self.load_iceberg_view),
            ServedOperation(operations.CREATE_ICEBERG_VIEW, self.create_iceberg_view),
            ServedOperation(operations.REGISTER_ICEBERG_VIEW, self.register_iceberg_view),
            ServedOperation(operations.COMMIT_ICEBERG_VIEW, self.commit_iceberg_view),
            ServedOperation(operations.DROP_ICEBERG_VIEW, self.drop_iceberg_view),
            ServedOperation(operations.RENAME_ICEBERG_VIEW, self.rename_iceberg_view),
        )


def _named(request: Request) -> tuple[str, str]:
    """Return the namespace and the view of the path."""
    return request.path_params["namespace"], request.path_params["view"]
