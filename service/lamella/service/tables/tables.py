"""Creates, drops and undrops namespaces and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.catalog.quotas import check_quotas
from lamella.service.history.history import history_entry, table_info, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.tables.names import LocationRules, check_name, require_table
from lamella.snapshot.cluster.extent import block_target_of
from lamella.snapshot.cluster.key import key_texts
from lamella.snapshot.commit.constraints import with_checks
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, LimitExceeded, TableNotFound, Unavailable
from lamella.snapshot.ids import Ids, canonical_id
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.reader_feedback import check_feedback
from lamella.snapshot.schema import Schema
from lamella.snapshot.source import (
    IDENTITY,
    Reader,
    first_columns,
    first_properties,
    inferred_columns,
    location_columns,
    nullable_columns,
    refuse_checks,
    refuse_properties,
    source_of,
    source_properties,
)
from lamella.snapshot.source.path_values import PathValues
from lamella.snapshot.storage import AllowedLocations, Store
from lamella.snapshot.vacuum import check_retention
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    CreateNamespace,
    CreateTable,
    DroppedList,
    DroppedTable,
    NamespaceChange,
    NamespaceInfo,
    NamespaceQuota,
    QuotaUse,
    RenameRequest,
    TableInfo,
    UndropRequest,
)
from lamella.snapshot.wire.limits import MAX_PROPERTIES
from lamella.snapshot.workload.recorded_filters import check_recording

#: How often a change of a namespace's properties is retried if others change them too.
_TRIES: Final = 20


class Tables:
    """Creates and drops namespaces and tables by name."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        ids: Ids,
        clock: Callable[[], int],
        *,
        drop_grace_s: int,
        reader: Reader,
        rules: LocationRules,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._ids = ids
        self._clock = clock
        self.drop_grace_s = drop_grace_s
        self._reader = reader
        self._rules = rules

    def create_namespace(self, request: CreateNamespace, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Create a namespace. Raises InvalidRequest, AlreadyExists, QuotaExceeded."""
        check_quotas(request.properties)
        info = NamespaceInfo(name=check_name("namespace", request.name), properties=request.properties)
        stored_response = idempotency_key.store_as(201, info)
        self._catalog.create_namespace(info, now_ms=self._clock(), remember=stored_response.stored)
        return stored_response

    def change_namespace(self, name: str, request: NamespaceChange, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Set and remove properties.

        Raises:
            InvalidRequest: nothing to do, a property that is both set and removed, or an invalid quota.
            LimitExceeded: more properties than a namespace may have.
            NamespaceNotFound: no such namespace.
            Unavailable: others kept changing it.
        """
        if not (request.set or request.remove):
            raise InvalidRequest("the request sets and removes nothing")
        both = sorted(set(request.set) & set(request.remove))
        if both:
            raise InvalidRequest(f"property {both[0]!r} is both set and removed", property=both[0])
        check_quotas(request.set)
        for _ in range(_TRIES):
            before = self._catalog.namespace(name)
            left = {key: value for key, value in before.properties.items() if key not in request.remove}
            properties = {**left, **request.set}
            if len(properties) > MAX_PROPERTIES:
                text = f"a namespace can have at most {MAX_PROPERTIES} properties"
                raise LimitExceeded(text, limit="properties", maximum=MAX_PROPERTIES)
            after = msgspec.structs.replace(before, properties=properties)
            stored_response = idempotency_key.store_as(200, after)
            if self._catalog.change_namespace(before, after, remember=stored_response.stored):
                return stored_response
        raise Unavailable("the namespace is being changed by others; try again", retry_after_s=1)

    def namespace_quota(self, name: str) -> NamespaceQuota:
        """Return the usage and the quotas of a namespace. Raises NamespaceNotFound."""
        use = self._catalog.namespace_use(name)
        return NamespaceQuota(
            tables=QuotaUse(used=use.tables, maximum=use.quotas.tables),
            blocks=QuotaUse(used=use.blocks, maximum=use.quotas.blocks),
            bytes=QuotaUse(used=use.bytes, maximum=use.quotas.bytes),
        )

    def drop_namespace(self, name: str, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Drop a namespace; dropped tables in it do not prevent that. Raises NamespaceNotFound, NamespaceNotEmpty."""
        stored_response = idempotency_key.store_as(204)
        self._catalog.drop_namespace(name, now_ms=self._clock(), remember=stored_response.stored)
        return stored_response

    def create_table(self, namespace: str, request: CreateTable, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Write the first snapshot, then add the table to the catalog.

        Raises:
            InvalidRequest: the name, both or none of ``schema`` and ``schema_from``, a cluster key without order, or a
                source that cannot be followed.
            LocationRefused: the table may not use the location of ``schema_from``, of the source or of one of its
                files.
            InvalidSchema, UnknownColumn: the columns, or a cluster key that is none of them.
            NotParquet, ObjectNotFound, StoreError: ``schema_from``, or the source.
            NamespaceNotFound, AlreadyExists, QuotaExceeded: the state of the catalog.
        """
        name = check_name("table", request.name)
        check_retention(request.properties)
        refuse_properties(request.properties)
        check_feedback(request.properties)
        check_recording(request.properties)
        block_target_of(request.properties)
        self._refuse_existing(namespace, name)
        schema, properties = self._columns(request, self._rules.of(namespace, None))
        if request.checks is not msgspec.UNSET and request.checks:
            refuse_checks(properties)
            schema = with_checks(schema, request.checks)
        kind: ClusterKind = "linear" if request.cluster_kind is msgspec.UNSET else request.cluster_kind
        if kind != "linear" and not request.cluster_key:
            raise InvalidRequest("cluster_kind without columns: name the columns of the cluster key")
        cluster_key = key_texts(schema, request.cluster_key)
        table_id = str(self._ids.new())
        now_ms = self._clock()
        pointer = self._warehouse.create(
            table_id,
            schema,
            cluster_key=cluster_key,
            cluster_kind=kind,
            properties={**request.properties, **properties},
            now_ms=now_ms,
        )
        record = TableRecord(
            table_id=table_id,
            namespace=namespace,
            name=name,
            location=self._warehouse.table_location(table_id),
            version=1,
            pointer=pointer,
            created_at_ms=now_ms,
        )
        snapshot = self._warehouse.snapshot(pointer)
        stored_response = idempotency_key.store_as(201, table_info(record, snapshot), snapshot_id=pointer.snapshot_id)
        self._catalog.create_table(record, history_entry(1, pointer, snapshot), remember=stored_response.stored)
        return stored_response

    def drop_table(
        self,
        namespace: str,
        name: str,
        idempotency_key: IdempotencyKey,
        *,
        purge: bool = False,
        base_snapshot_id: str | None = None,
    ) -> StoredResponse:
        """Drop a table; files and manifests stay until a vacuum. ``purge``: it cannot be undropped.

        Raises:
            NamespaceNotFound, TableNotFound: no such table.
            CommitConflict: ``base_snapshot_id`` is not the current snapshot; ``snapshot_id`` is.
        """
        require_table(name)
        stored_response = idempotency_key.store_as(204)
        self._catalog.drop_table(
            namespace,
            name,
            now_ms=self._clock(),
            purge=purge,
            base_snapshot_id=None if base_snapshot_id is None else canonical_id(base_snapshot_id) or base_snapshot_id,
            remember=stored_response.stored,
        )
        return stored_response

    def rename_table(
        self, namespace: str, name: str, request: RenameRequest, idempotency_key: IdempotencyKey
    ) -> StoredResponse:
        """Give a table another name, or move it to another namespace. Nothing else changes.

        Raises:
            InvalidRequest: an invalid name, or the name that it has.
            NamespaceNotFound, TableNotFound: no such table, or no such namespace to move it to.
            AlreadyExists: the name is taken.
            QuotaExceeded: the other namespace would exceed a quota.
        """
        require_table(name)
        after = (request.namespace or namespace, check_name("table", request.name))
        if after == (namespace, name):
            raise InvalidRequest(f"the table is called {namespace}.{name} already")
        before = self._catalog.table(namespace, name)
        record = msgspec.structs.replace(before, namespace=after[0], name=after[1])
        stored_response = idempotency_key.store_as(200, self.info_of(record))
        self._catalog.rename_table(before, *after, remember=stored_response.stored)
        return stored_response

    def dropped(self, namespace: str, *, earlier: bool) -> DroppedList:
        """Return the tables that can be undropped, latest drop first. Raises NamespaceNotFound.

        ``earlier``: also of dropped namespaces of that name, which may have been somebody else's.
        """
        return DroppedList(
            tables=tuple(
                DroppedTable(
                    table_id=found.record.table_id,
                    name=found.record.name,
                    location=found.record.location,
                    snapshot_id=found.record.pointer.snapshot_id,
                    dropped_at_ms=found.dropped_at_ms,
                    undrop_before_ms=found.dropped_at_ms + self.drop_grace_s * 1000,
                )
                for found in self._catalog.dropped_tables(namespace, earlier=earlier)
            )
        )

    def undrop(
        self, namespace: str, request: UndropRequest, idempotency_key: IdempotencyKey, *, earlier: bool
    ) -> StoredResponse:
        """Restore a dropped table, with its history and tags. ``earlier`` as in :meth:`dropped`.

        Raises:
            InvalidRequest: both or none of ``table_id`` and ``name``, or an invalid new name.
            NamespaceNotFound, TableNotFound: no such dropped table.
            AlreadyExists: the name is taken.
            QuotaExceeded: it would exceed a quota.
        """
        if (request.table_id is None) == (request.name is None):
            raise InvalidRequest("give exactly one of table_id and name")
        found = next(
            (
                each.record
                for each in self._catalog.dropped_tables(namespace, earlier=earlier)
                if request.name == each.record.name or request.table_id == each.record.table_id
            ),
            None,
        )
        if found is None:
            which = f"named {request.name!r}" if request.table_id is None else f"with the id {request.table_id!r}"
            raise TableNotFound(f"namespace {namespace!r} has no dropped table {which}", namespace=namespace)
        name = found.name if request.as_name is None else check_name("table", request.as_name)
        record = msgspec.structs.replace(found, namespace=namespace, name=name)
        with trusted_manifests():
            stored_response = idempotency_key.store_as(
                200, table_info(record, self._warehouse.snapshot(record.pointer))
            )
        self._catalog.undrop_table(found.table_id, namespace, name, remember=stored_response.stored)
        return stored_response

    def info_of(self, record: TableRecord) -> TableInfo:
        """Return the table as it is."""
        with trusted_manifests():
            return table_info(record, self._warehouse.snapshot(record.pointer))

    def _refuse_existing(self, namespace: str, name: str) -> None:
        # Only to avoid writing a snapshot for a request that is refused; the catalog decides.
        try:
            self._catalog.table(namespace, name)
        except TableNotFound:
            self._catalog.check_table_quota(namespace)
            return
        raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name)

    def _columns(self, request: CreateTable, allowed: AllowedLocations) -> tuple[Schema, dict[str, str]]:
        """Return the first schema of a table, and the properties of its source."""
        source = request.source
        if source is msgspec.UNSET:
            return self._schema(request, allowed), {}
        properties = source_properties(source)
        source = source_of(properties) or source
        if source.kind == "hive":
            # The first refresh brings the partitions.
            if request.schema is None or request.schema_from is not None:
                raise InvalidRequest("the columns of a Hive table are those of its metastore: give schema")
            allowed.require_all_below(source.location or "")
            return Schema.assign(nullable_columns(request.schema)), properties
        state = self._reader.read(source, {}, allowed)
        given = request.schema is not None or request.schema_from is not None
        if state.schemas:
            if given:
                raise InvalidRequest(
                    f"the columns come from the {source.kind} table; do not give schema or schema_from"
                )
            schema = Schema.assign(first_columns(state))
            return schema, {**properties, IDENTITY: str(state.identity), **first_properties(state, schema)}
        if given:
            schema = self._schema(request, allowed)
        elif state.files:
            schema = schema_of(read_footer(self._store, state.files[0].location))
            schema = _with_folders(schema, [file.folders for file in state.files])
        else:
            raise InvalidRequest(f"{source.location} lists no Parquet file to take the columns from: give schema")
        if request.schema is None:
            # The columns of one file: a column that is required there may be null in others.
            schema = Schema.assign(nullable_columns(schema.columns))
        return schema, properties

    def _schema(self, request: CreateTable, allowed: AllowedLocations) -> Schema:
        if (request.schema is None) == (request.schema_from is None):
            raise InvalidRequest("give exactly one of schema and schema_from")
        if request.schema is not None:
            return Schema.assign(request.schema)
        url = str(request.schema_from)
        allowed.require_all_below(url)
        found = self._store.expand(url, plain=True)
        for location in found:
            allowed.require(location)
        schema = schema_of(read_footer(self._store, found[0]))
        if len(found) > 1:
            # The columns of one file: a column that is required there may be null in others.
            schema = Schema.assign(nullable_columns(schema.columns))
        return _with_folders(schema, [location_columns(location) for location in found])


def _with_folders(schema: Schema, folders: Sequence[PathValues]) -> Schema:
    """Return the schema of a file, with the columns that only the names of folders give."""
    more = inferred_columns(folders, [column.name for column in schema.columns])
    return Schema.assign((*schema.columns, *more)) if more else schema
