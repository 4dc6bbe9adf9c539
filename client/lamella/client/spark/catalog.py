"""The catalog that Spark SQL sees: names, tables, time travel."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from lamella.client.http import Lamella
from lamella.client.spark.ddl import schema_changes
from lamella.client.spark.failure import raise_java
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import LakeTable, Settings, load_table
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.scan import LakeScanBuilder
from lamella.snapshot.errors import InvalidRequest, NamespaceNotFound, TableNotFound

_CATALOG = CONNECTOR + "catalog."
_ANALYSIS = SQL + "catalyst.analysis."
_STRING = "java.lang.String"


class LakeCatalog(Proxy):
    """``TableCatalog`` and ``SupportsNamespaces`` over a Lamella service; of tables, the columns can be altered."""

    class Java:
        implements = [_CATALOG + "TableCatalog", _CATALOG + "SupportsNamespaces"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, name: str, lake: Lamella, settings: Settings) -> None:
        super().__init__(gateway)
        self._name = name
        self._lake = lake
        self._settings = settings
        self._shapes = lru_cache(maxsize=64)(self._shape)

    def _key(self) -> str:
        return f"Lamella catalog {self._name} at {self._lake!r}"

    def initialize(self, _name: str, _options: Any) -> None:
        """Spark calls this for catalogs that it makes itself; this one is complete."""

    def name(self) -> str:
        return self._name

    def defaultNamespace(self) -> Any:
        return self._gateway.empty_array(_STRING)

    def capabilities(self) -> Any:
        # A column that is added may have a default.
        return self._gateway.java_set(
            [self._gateway.constant(_CATALOG + "TableCatalogCapability", "SUPPORT_COLUMN_DEFAULT_VALUE")]
        )

    def tableStateOptionKeys(self) -> Any:
        return self._gateway.java_set()

    def changelogStateOptionKeys(self) -> Any:
        return self._gateway.java_set()

    def listNamespaces(self, *parent: Any) -> Any:
        below = [str(part) for part in parent[0]] if parent else []
        names = [info.name.split(".") for info in self._lake.namespaces()]
        if below and below not in [name[: len(below)] for name in names]:
            raise_java(self._no_such_namespace(below))
        shown = [name for name in names if name[: len(below)] == below and len(name) > len(below)]
        arrays = self._gateway.new_array_of_arrays(_STRING, len(shown))
        for at, name in enumerate(shown):
            arrays[at] = self._gateway.array(_STRING, name)
        return arrays

    def namespaceExists(self, namespace: Any) -> bool:
        wanted = ".".join(namespace)
        return any(info.name == wanted or info.name.startswith(wanted + ".") for info in self._lake.namespaces())

    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        wanted = ".".join(namespace)
        for info in self._lake.namespaces():
            if info.name == wanted:
                return self._gateway.java_map(dict(info.properties))
        raise_java(self._no_such_namespace(list(namespace)))

    def createNamespace(self, *_arguments: Any) -> None:
        self._refuse("create namespaces")

    def alterNamespace(self, *_arguments: Any) -> None:
        self._refuse("alter namespaces")

    def dropNamespace(self, *_arguments: Any) -> None:
        self._refuse("drop namespaces")

    def listTables(self, namespace: Any) -> Any:
        return self._gateway.array(_CATALOG + "Identifier", self._identifiers(namespace))

    def listTableSummaries(self, namespace: Any) -> Any:
        summaries = self._gateway.java_class(_CATALOG + "TableSummary")
        listed = [summaries.of(identifier, "EXTERNAL") for identifier in self._identifiers(namespace)]
        return self._gateway.array(_CATALOG + "TableSummary", listed)

    def tableExists(self, identifier: Any) -> bool:
        name = _table_name(identifier)
        if name is None:
            return False
        try:
            self._lake.table(name).info()
        except (TableNotFound, NamespaceNotFound):
            return False
        return True

    def loadTable(self, identifier: Any, *how: Any) -> Any:
        name = _table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        snapshot_id, timestamp_ms = _time_travel(how)
        time_type = self._gateway.spark.conf.get("spark.sql.timeType.enabled", "false") == "true"
        try:
            table = load_table(
                self._lake,
                name,
                self._settings,
                snapshot_id=snapshot_id,
                timestamp_ms=timestamp_ms,
                time_type=time_type,
            )
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)
        return LakeTableProxy(self._gateway, f"{self._name}.{name}", table, self._shapes(table.columns.shown))

    def invalidateTable(self, _identifier: Any) -> None:
        """Nothing is cached here."""

    def createTable(self, *_arguments: Any) -> Any:
        self._refuse("create tables; use lamella.client.spark.write(df, 'namespace.table')")

    def createTableLike(self, *_arguments: Any) -> Any:
        self._refuse("create tables; use lamella.client.spark.write(df, 'namespace.table')")

    def useNullableQuerySchema(self) -> bool:
        return True

    def alterTable(self, identifier: Any, changes: Any) -> Any:
        name = _table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        try:
            self._lake.table(name).evolve(schema_changes(self._gateway, changes))
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)
        return self.loadTable(identifier)

    def dropTable(self, _identifier: Any) -> bool:
        self._refuse("drop tables; use Lamella(...).drop_table('namespace.table')")
        return False

    def purgeTable(self, _identifier: Any) -> bool:
        self._refuse("purge tables")
        return False

    def renameTable(self, *_arguments: Any) -> None:
        self._refuse("rename tables")

    def _identifiers(self, namespace: Any) -> list[Any]:
        try:
            names = self._lake.tables(".".join(namespace))
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(namespace)), error)
        of = self._gateway.java_class(_CATALOG + "Identifier").of
        return [of(namespace, name) for name in names]

    def _no_such_table(self, identifier: Any) -> Any:
        return self._gateway.java_class(_ANALYSIS + "NoSuchTableException")(identifier)

    def _no_such_namespace(self, namespace: list[str]) -> Any:
        array = self._gateway.array(_STRING, namespace)
        return self._gateway.java_class(_ANALYSIS + "NoSuchNamespaceException")(array)

    def _refuse(self, what: str) -> None:
        text = f"Lamella's Spark catalog cannot {what}"
        raise_java(self._gateway.java_class("java.lang.UnsupportedOperationException")(text))

    def _shape(self, shown: str) -> tuple[Any, Any]:
        """The ``StructType`` and ``Column[]`` of a schema; a few calls a column, so they are kept."""
        struct = self._gateway.struct_type(shown)
        create = self._gateway.java_class(_CATALOG + "Column").create
        columns = self._gateway.new_array(_CATALOG + "Column", struct.length())
        for at, field in enumerate(json.loads(shown)["fields"]):
            dtype = struct.apply(at).dataType()
            metadata = {key: value for key, value in field["metadata"].items() if key != "comment"}
            extra = json.dumps(metadata) if metadata else None
            columns[at] = create(field["name"], dtype, True, field["metadata"].get("comment"), extra)
        return struct, columns


class LakeTableProxy(Proxy):
    """A table at one snapshot."""

    class Java:
        implements = [_CATALOG + "SupportsRead"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, shown_name: str, table: LakeTable, shape: tuple[Any, Any]) -> None:
        super().__init__(gateway)
        self._shown_name = shown_name
        self._table = table
        self._struct, self._columns = shape

    def _key(self) -> str:
        return f"Lamella {self._shown_name}@{self._table.snapshot_id}"

    def name(self) -> str:
        return self._shown_name

    def id(self) -> None:
        return None

    def version(self) -> str:
        return self._table.snapshot_id

    def schema(self) -> Any:
        return self._struct

    def columns(self) -> Any:
        return self._columns

    def partitioning(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.Transform")

    def constraints(self) -> Any:
        return self._gateway.empty_array(_CATALOG + "constraints.Constraint")

    def properties(self) -> Any:
        return self._gateway.java_map({**self._table.properties, "lamella.snapshot_id": self._table.snapshot_id})

    def capabilities(self) -> Any:
        return self._gateway.java_set([self._gateway.constant(_CATALOG + "TableCapability", "BATCH_READ")])

    def newScanBuilder(self, options: Any) -> Any:
        return LakeScanBuilder(self._gateway, self._table, options)


def _table_name(identifier: Any) -> str | None:
    namespace = list(identifier.namespace())
    return ".".join([*namespace, str(identifier.name())]) if namespace else None


def _time_travel(how: tuple[Any, ...]) -> tuple[str | None, int | None]:
    """Snapshot id or Unix milliseconds, from the forms in which Spark 4.0 to 4.3 hands them over."""
    if not how:
        return None, None
    first = how[0]
    if isinstance(first, str):
        return first, None
    if isinstance(first, int):
        return None, first // 1000
    kind = first.getClass().getSimpleName()
    if kind != "TableContext":  # write privileges: Spark refuses the write itself, by the table's capabilities
        return None, None
    travel = first.timeTravel()
    if not travel.isPresent():
        return None, None
    target = travel.get()
    kind = target.getClass().getSimpleName()
    if kind == "AsOfVersion":
        return str(target.version()), None
    if kind == "AsOfTimestamp":
        return None, int(target.micros()) // 1000
    raise InvalidRequest(f"unknown kind of time travel: {kind}")
