"""Creating and dropping namespaces and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.idempotency import Claim, Sealed
from lamella.service.naming import check_name
from lamella.service.state import history_entry, table_info, trusted_manifests
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, TableNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import CreateNamespace, CreateTable, NamespaceInfo, TableInfo


class Tables:
    """What the catalog holds, made and dropped by name."""

    def __init__(
        self, catalog: Catalog, warehouse: Warehouse, store: Store, ids: Ids, clock: Callable[[], int]
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._ids = ids
        self._clock = clock

    def create_namespace(self, request: CreateNamespace, claim: Claim) -> Sealed:
        """Raises InvalidRequest, AlreadyExists."""
        info = NamespaceInfo(name=check_name("namespace", request.name), properties=request.properties)
        sealed = claim.seal(201, info)
        self._catalog.create_namespace(info, now_ms=self._clock(), remember=sealed.stored)
        return sealed

    def drop_namespace(self, name: str, claim: Claim) -> Sealed:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""
        sealed = claim.seal(204)
        self._catalog.drop_namespace(name, now_ms=self._clock(), remember=sealed.stored)
        return sealed

    def create_table(self, namespace: str, request: CreateTable, claim: Claim) -> Sealed:
        """Write the first snapshot, then let the catalog know the table.

        Raises:
            InvalidRequest: the name, both or none of ``schema`` and ``schema_from``, or a cluster key without order.
            InvalidSchema, UnknownColumn: the columns, or a cluster key that is none of them.
            NotParquet, ObjectNotFound: ``schema_from``.
            NamespaceNotFound, AlreadyExists: what is there.
        """
        name = check_name("table", request.name)
        self._refuse_taken(namespace, name)
        schema = self._schema(request)
        cluster_key = cluster_columns(schema, request.cluster_key)
        table_id = str(self._ids.new())
        now_ms = self._clock()
        pointer = self._warehouse.create(
            table_id, schema, cluster_key=cluster_key, properties=request.properties, now_ms=now_ms
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
        sealed = claim.seal(201, table_info(record, snapshot))
        self._catalog.create_table(record, history_entry(1, pointer, snapshot), remember=sealed.stored)
        return sealed

    def drop_table(self, namespace: str, name: str, claim: Claim) -> Sealed:
        """Raises NamespaceNotFound, TableNotFound. Files and manifests stay."""
        sealed = claim.seal(204)
        self._catalog.drop_table(namespace, name, now_ms=self._clock(), remember=sealed.stored)
        return sealed

    def info(self, namespace: str, name: str) -> TableInfo:
        """Raises NamespaceNotFound, TableNotFound."""
        record = self._catalog.table(namespace, name)
        with trusted_manifests():
            return table_info(record, self._warehouse.snapshot(record.pointer))

    def _refuse_taken(self, namespace: str, name: str) -> None:
        # Only so that a name that is taken writes no snapshot first: the catalog decides when two ask at once.
        try:
            self._catalog.table(namespace, name)
        except TableNotFound:
            return
        raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name)

    def _schema(self, request: CreateTable) -> Schema:
        if (request.schema is None) == (request.schema_from is None):
            raise InvalidRequest("give exactly one of schema and schema_from")
        if request.schema is not None:
            return Schema.assign(request.schema)
        url = str(request.schema_from)
        found = self._store.expand(url)
        if len(found) != 1:
            raise InvalidRequest(f"schema_from names {len(found)} files; name one of them", schema_from=url)
        return schema_of(read_footer(self._store, found[0]))


def cluster_columns(schema: Schema, cluster_key: Sequence[str]) -> tuple[str, ...]:
    """The columns of a cluster key, spelled as in the schema.

    Raises:
        UnknownColumn: not a column that holds values.
        InvalidRequest: named twice, without an order, or inside a list or map.
    """
    leaves = [schema.leaf(path) for path in cluster_key]
    for leaf in leaves:
        if leaf.dtype.order is None or leaf.repeated:
            raise InvalidRequest(f"rows cannot be ordered by column {leaf.name!r} ({leaf.dtype})", column=leaf.name)
    names = tuple(leaf.name for leaf in leaves)
    if len(set(names)) != len(names):
        raise InvalidRequest("a column stands twice in cluster_key", cluster_key=list(names))
    return names
