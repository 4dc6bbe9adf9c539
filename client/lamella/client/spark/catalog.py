"""The catalog that Spark SQL uses: names, tables, time travel."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec
from cachetools import LRUCache
from py4j.protocol import Py4JJavaError

from lamella.client.http import Lamella
from lamella.client.spark.changelog import KEYS, LakeChangelog
from lamella.client.spark.ddl import TableSpec, alter_table, namespace_changes, namespace_properties
from lamella.client.spark.deleted_rows import ROWS, RowsTable, reads_by_view, rows_schema, view_of
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import LakeTable, Settings, load_table, table_of
from lamella.client.spark.metadata_column import is_named
from lamella.client.spark.metadata_tables import METADATA_TABLES, MetadataTableProxy, split_name
from lamella.client.spark.procedures import NAMESPACE, PROCEDURES, LakeProcedure, procedure_named
from lamella.client.spark.proxy import Proxy, raise_java
from lamella.client.spark.schema_evolution import (
    OPTION_KEYS,
    SCHEMA_EVOLUTION,
    PendingChanges,
    Update,
    changes_of,
    merges_schema,
    no_update,
)
from lamella.client.spark.sql_write import Destination, Pins
from lamella.client.spark.table import CommandTable, EvolvingLakeTable, LakeTableProxy, StagedLakeTable, shape_of
from lamella.client.spark.views import definition_of, stored_view
from lamella.client.write.layout import Layout
from lamella.client.write.new_table import drop_unused
from lamella.snapshot.errors import (
    AlreadyExists,
    InvalidRequest,
    NamespaceNotFound,
    NotFound,
    TableNotFound,
    ViewNotFound,
)
from lamella.snapshot.schema.spark_types import required_schema
from lamella.snapshot.wire import TableInfo

_CATALOG = CONNECTOR + "catalog."
#: What of Spark resolves the tables that a stream reads; on Spark Connect, when the stream starts.
_STREAM_READS = ("DataStreamReader", "handleWriteStreamOperationStart")
_ANALYSIS = SQL + "catalyst.analysis."
_STRING = "java.lang.String"
#: Before the name of a branch of the table that is named by the part before it, as in Iceberg.
_BRANCH = "branch_"
#: Tables that are not made anew while they do not change.
_MAX_KNOWN = 256


class _Known(msgspec.Struct, frozen=True, eq=False):
    """A table as it was when it was last loaded, and its object in the JVM.

    ``time_type``: whether the session had the type; None: the table has no column of it.
    """

    info: TableInfo
    time_type: bool | None
    destination: Destination
    made: Any


class LakeCatalog(Proxy):
    """Implements ``TableCatalog`` and ``SupportsNamespaces`` on a Lamella service."""

    _once_for_all = (
        "defaultNamespace capabilities tableStateOptionKeys changelogStateOptionKeys supportedCustomMetrics"
        " useNullableQuerySchema"
    )
    _once = "name"

    class Java:
        implements = [  # noqa: RUF012
            _CATALOG + "TableCatalog",
            _CATALOG + "StagingTableCatalog",
            _CATALOG + "SupportsNamespaces",
            _CATALOG + "ProcedureCatalog",
        ]

    def __init__(self, gateway: Gateway, name: str, lake: Lamella, settings: Settings, writing: Layout) -> None:
        super().__init__(gateway)
        self._name = name
        self._lake = lake
        self._settings = settings
        self._writing = writing
        self._shapes = lru_cache(maxsize=64)(partial(shape_of, gateway))  # a few calls a column
        self._known: LRUCache[str, _Known] = LRUCache(maxsize=_MAX_KNOWN)
        self._lock = threading.Lock()
        self._pins = Pins(by_thread=gateway.pins_threads)
        self._pending = PendingChanges()
        #: Branches that were found under the name that Spark has for them.
        self._branches: set[str] = set()
        # Which statement a change of columns is for is known by its thread.
        self._evolves = gateway.pins_threads and "schema evolution" not in gateway.missing_hooks

    def _key(self) -> str:
        return f"Lamella catalog {self._name} at {self._lake!r}"

    def initialize(self, _name: str, _options: Any) -> None:
        """Do nothing: Spark calls this for catalogs that it creates itself; this one is already configured."""

    def name(self) -> str:
        return self._name

    def defaultNamespace(self) -> Any:
        return self._gateway.empty_array(_STRING)

    def capabilities(self) -> Any:
        kind = _CATALOG + "TableCatalogCapability"
        # A column that is added may have a default. Generated columns are refused by TableSpec, which says what to use.
        names = ["SUPPORT_COLUMN_DEFAULT_VALUE", "SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS"]
        if "constraints" not in self._gateway.missing_hooks:
            names.append("SUPPORT_TABLE_CONSTRAINT")
        return self._gateway.java_set([self._gateway.constant(kind, name) for name in names])

    def tableStateOptionKeys(self) -> Any:
        return self._gateway.java_set(OPTION_KEYS)

    def changelogStateOptionKeys(self) -> Any:
        return self._gateway.java_set([KEYS])  # Spark passes on no others

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

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

    def createNamespace(self, namespace: Any, metadata: Any) -> None:
        properties = namespace_properties({str(key): str(metadata.get(key)) for key in metadata.keySet()})
        try:
            self._lake.create_namespace(".".join(namespace), properties)
        except AlreadyExists as error:
            exists = self._gateway.java_class(_ANALYSIS + "NamespaceAlreadyExistsException")
            raise_java(exists(self._gateway.array(_STRING, list(namespace))), error)

    def alterNamespace(self, namespace: Any, changes: Any) -> None:
        set_, removed = namespace_changes(changes)
        try:
            self._lake.change_namespace(".".join(namespace), set=set_, remove=removed)
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(namespace)), error)

    def dropNamespace(self, namespace: Any, _cascade: bool) -> bool:
        try:
            self._lake.drop_namespace(".".join(namespace))
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(namespace)), error)
        return True

    def listTables(self, namespace: Any) -> Any:
        return self._gateway.array(_CATALOG + "Identifier", self._identifiers(namespace))

    def listTableSummaries(self, namespace: Any) -> Any:
        summaries = self._gateway.java_class(_CATALOG + "TableSummary")
        listed = [summaries.of(identifier, "EXTERNAL") for identifier in self._identifiers(namespace)]
        return self._gateway.array(_CATALOG + "TableSummary", listed)

    def tableExists(self, identifier: Any) -> bool:
        name = self._table_name(identifier)
        if name is None:
            return False
        try:
            self._lake.table(split_name(name)[0]).info()
        except (TableNotFound, NamespaceNotFound):
            return False
        return True

    def loadTable(self, identifier: Any, *how: Any) -> Any:
        name, is_read_now = self._requested(identifier, how)
        if is_read_now:
            return self._read_now(identifier, name)[1]
        destination = self._destination(identifier, name, *how)
        is_written = _writes(how) and destination.table.schema_update is None
        merges = is_written and merges_schema(destination.table.properties, _options(how))
        return self._proxy(name, destination, merges=merges)

    def _read_now(self, identifier: Any, name: str) -> tuple[Destination, Any]:
        """Return a table as it is now and its object in the JVM.

        While nothing of the table changes these are the same: Spark has asked for most of it already.
        """
        table_name, appended = _parts(name)
        if appended in METADATA_TABLES or self._pins.read(table_name) is not None:
            found = self._destination(identifier, name)
            return found, self._proxy(name, found)
        info = self._table_info(identifier, table_name)
        with self._lock:
            known = self._known.get(name)
        if known is None or known.info != info or known.time_type is not self._time_type_of(info):
            time_type = self._time_type_of(info)
            table = table_of(self._lake, table_name, self._settings, info, time_type=bool(time_type))
            found = self._as_destination(table)
            known = _Known(info, time_type, found, self._proxy(name, found))
            with self._lock:
                self._known[name] = known
        return known.destination, known.made

    def _time_type_of(self, info: TableInfo) -> bool | None:
        """Return whether the session has the type of columns of a table; None: the table has no such column."""
        return self._has_time_type() if any(leaf.dtype.name == "time" for leaf in info.schema.leaves()) else None

    def _proxy(self, name: str, destination: Destination, *, merges: bool = False) -> Any:
        """Return a table for the JVM; ``name``: as Spark asked for it."""
        table = destination.table
        shown = f"{self._name}.{table.name}"
        _, appended = _parts(name)
        if appended in METADATA_TABLES:
            shape = self._shapes(METADATA_TABLES[appended].schema())
            return MetadataTableProxy(self._gateway, table, shown + appended, appended, shape)
        if appended == ROWS:
            return RowsTable(destination, shown, self._shapes(rows_schema(table)))._in_jvm()
        typed = table.columns.typed
        if table.schema_update is not None:  # Spark takes these columns into its plan as they are
            typed = self._gateway.planned_schema(typed)
        shape = self._shapes(typed)
        if self._evolves:
            return EvolvingLakeTable(destination, shown, shape, merges=merges)._in_jvm()
        return LakeTableProxy(destination, shown, shape)._in_jvm()

    def _command_table(self, name: str, destination: Destination) -> Any:
        """Return the table of a command such as ``ALTER TABLE``; ``name``: as Spark asked for it."""
        if _parts(name)[1]:
            return self._proxy(name, destination)
        shown = destination.table.columns.typed
        required = self._shapes(required_schema(shown))[1]
        return CommandTable(destination, f"{self._name}.{destination.table.name}", self._shapes(shown), required)

    def invalidateTable(self, _identifier: Any) -> None:
        """Do nothing: tables are not cached here."""

    def createTable(self, identifier: Any, *what: Any) -> Any:
        self._create(identifier, self._spec(*what))
        return self.loadTable(identifier)

    def createTableLike(self, identifier: Any, info: Any, source: Any) -> Any:
        like = self._gateway.python_object(source)
        spec = self._spec(info)
        self._create(identifier, spec.like(like._table) if isinstance(like, LakeTableProxy) else spec)
        return self.loadTable(identifier)

    def stageCreate(self, identifier: Any, *what: Any) -> Any:
        return self._stage(identifier, self._spec(*what), replaces=False)

    def stageReplace(self, identifier: Any, *what: Any) -> Any:
        return self._stage(identifier, self._spec(*what), replaces=True)

    def stageCreateOrReplace(self, identifier: Any, *what: Any) -> Any:
        return self._stage(identifier, self._spec(*what), replaces=self.tableExists(identifier))

    def useNullableQuerySchema(self) -> bool:
        return True

    def alterTable(self, identifier: Any, changes: Any) -> Any:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        if self._gateway.is_called_from(SCHEMA_EVOLUTION):
            loaded = self.loadTable(identifier)
            self._pending.put(name, changes_of(self._gateway, changes))
            return loaded
        try:
            alter_table(self._gateway, self._lake, name, changes, self._writing)
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)
        return self.loadTable(identifier)

    def dropTable(self, identifier: Any) -> bool:
        return self._drop(identifier, purge=False)

    def purgeTable(self, identifier: Any) -> bool:
        return self._drop(identifier, purge=True)

    def renameTable(self, identifier: Any, new: Any) -> None:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        self._require_whole(name, "renamed")
        try:
            self._lake.rename_table(name, self._new_name(new))
        except AlreadyExists as error:
            raise_java(self._table_exists(new), error)
        except TableNotFound as error:
            raise_java(self._no_such_table(identifier), error)

    def _new_name(self, new: Any) -> str:
        """Return the new name of a table or view."""
        namespace = [str(part) for part in new.namespace()]
        if namespace[0] == self._name and len(namespace) > 1 and not self.namespaceExists(namespace):
            namespace = namespace[1:]  # Spark does not take the catalog off the new name
        return ".".join([*namespace, str(new.name())])

    def loadProcedure(self, identifier: Any) -> Any:
        if [str(part).lower() for part in identifier.namespace()] != [NAMESPACE]:
            raise InvalidRequest(f"procedures of Lamella are called as {self._name}.{NAMESPACE}.<procedure>")
        procedure = procedure_named(str(identifier.name()))
        return LakeProcedure(self._gateway, self._name, self._lake, self._writing, procedure)

    def listProcedures(self, namespace: Any) -> Any:
        of = self._gateway.java_class(_CATALOG + "Identifier").of
        here = [str(part).lower() for part in namespace]
        own = self._gateway.array(_STRING, [NAMESPACE])
        listed = [of(own, procedure.name) for procedure in PROCEDURES] if here in ([], [NAMESPACE]) else []
        return self._gateway.array(_CATALOG + "Identifier", listed)

    def loadChangelog(self, identifier: Any, *how: Any) -> Any:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        try:
            return LakeChangelog.of(self._gateway, self._lake, name, self._settings, how, self._shapes)
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)

    def _destination(self, identifier: Any, name: str, *how: Any, update: Update | None = None) -> Destination:
        """Return a table to read from and write to; ``update``: returns changes with which it is seen."""
        name, appended = _parts(name)
        if appended and _writes(how):
            raise_java(self._no_such_table(identifier))
        snapshot_id, timestamp_ms = _time_travel(how)
        if snapshot_id is None and timestamp_ms is None:
            snapshot_id = self._pins.read(name)
        try:
            table = load_table(
                self._lake,
                name,
                self._settings,
                snapshot_id=snapshot_id,
                timestamp_ms=timestamp_ms,
                time_type=self._has_time_type(),
                update=update or (self._pending.take(self._gateway, name) if _writes(how) else no_update),
            )
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)
        return self._as_destination(table)

    def _as_destination(self, table: LakeTable) -> Destination:
        return Destination(gateway=self._gateway, lake=self._lake, table=table, pins=self._pins, defaults=self._writing)

    def _table_info(self, identifier: Any, name: str) -> TableInfo:
        try:
            return self._lake.table(name).info()
        except (TableNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_table(identifier), error)

    def _has_time_type(self) -> bool:
        return self._gateway.setting("spark.sql.timeType.enabled", "false") == "true"

    def _table_name(self, identifier: Any) -> str | None:
        parts = str(self._gateway.classes.requests.name(identifier)).split("\0")[:-1]
        return self._joined(parts) if len(parts) > 1 else None

    def _joined(self, parts: Sequence[str]) -> str:
        """Return the name of a table, or of a branch: `t.branch_x` is the branch `x` of `t`, if there is one."""
        name = ".".join(parts)
        if len(parts) < 3 or not parts[-1].startswith(_BRANCH):  # a namespace, a table and a branch
            return name
        branch = f"{'.'.join(parts[:-1])}@{parts[-1].removeprefix(_BRANCH)}"
        table = _parts(branch)[0]
        if table not in self._branches:
            try:
                self._lake.table(table).info()
            except (NotFound, InvalidRequest):
                return name
            self._branches.add(table)
        return branch

    def _name_of(self, identifier: Any) -> str:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_table(identifier))
        return name

    def _requested(self, identifier: Any, how: tuple[Any, ...]) -> tuple[str, bool]:
        """Return the name of a table, and whether Spark loads it to read it as it is now, without options."""
        if how and isinstance(how[0], str | int):
            return self._name_of(identifier), False
        context, options = (*how, None, None)[:2]
        *parts, now = str(self._gateway.classes.requests.load(identifier, context, options)).split("\0")
        if len(parts) < 2:
            raise_java(self._no_such_table(identifier))
        return self._joined(parts), now == "now"

    def _spec(self, *what: Any) -> TableSpec:
        """Return the spec from a ``TableInfo``, or from columns, partitions and properties, as Spark before 4.1 passes
        them."""
        columns, partitions, properties = (
            (what[0].columns(), what[0].partitions(), what[0].properties()) if len(what) == 1 else what
        )
        constraints = (
            what[0].constraints() if len(what) == 1 and "constraints" not in self._gateway.missing_hooks else ()
        )
        return TableSpec.of(
            self._gateway,
            columns,
            partitions,
            {str(key): str(properties.get(key)) for key in properties.keySet()},
            constraints,
        )

    def _create(self, identifier: Any, spec: TableSpec) -> TableInfo:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_namespace([]))
        try:
            return spec.create(self._lake, name)
        except AlreadyExists as error:
            raise_java(self._table_exists(identifier), error)
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(identifier.namespace())), error)

    def _stage(self, identifier: Any, spec: TableSpec, *, replaces: bool) -> Any:
        self._require_whole(self._table_name(identifier))
        made = None if replaces else self._create(identifier, spec)
        try:
            name = self._name_of(identifier)
            destination = self._destination(identifier, name, update=spec.update_of if replaces else None)
        except BaseException:
            if made is not None:
                drop_unused(self._lake, made)
            raise
        if made is not None and made.table_id != destination.table.table_id:  # dropped and made again by others
            raise_java(self._table_exists(identifier))
        destination = msgspec.structs.replace(destination, properties=spec.properties if replaces else {})
        name = f"{self._name}.{destination.table.name}"
        return StagedLakeTable(destination, name, self._shapes(destination.table.columns.typed), made=made)

    def _require_whole(self, name: str | None, what: str = "dropped or replaced") -> None:
        """Raise InvalidRequest for the name of a part of a table, such as ``t$blocks``."""
        table, sign, kind = (name or "").rpartition("$")
        if sign and (sign + kind == ROWS or split_name(name or "")[1]):
            raise InvalidRequest(f"{name} is a part of {table}, and cannot be {what} by itself")

    def _drop(self, identifier: Any, *, purge: bool) -> bool:
        name = self._table_name(identifier)
        if name is None:
            return False
        self._require_whole(name)
        try:
            self._lake.drop_table(name, purge=purge)
        except (TableNotFound, NamespaceNotFound):
            return False
        return True

    def _identifiers(self, namespace: Any) -> list[Any]:
        try:
            names = self._lake.tables(".".join(namespace))
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(namespace)), error)
        of = self._gateway.java_class(_CATALOG + "Identifier").of
        return [of(namespace, name) for name in names]

    def _table_exists(self, identifier: Any) -> Any:
        return self._gateway.java_class(_ANALYSIS + "TableAlreadyExistsException")(identifier)

    def _no_such_table(self, identifier: Any) -> Any:
        return self._gateway.java_class(_ANALYSIS + "NoSuchTableException")(identifier)

    def _no_such_namespace(self, namespace: list[str]) -> Any:
        array = self._gateway.array(_STRING, namespace)
        return self._gateway.java_class(_ANALYSIS + "NoSuchNamespaceException")(array)


class LakeRelationCatalog(LakeCatalog):
    """A catalog with views: those that the service stores, and those by which tables with deleted rows are read.

    Spark has this from version 4.2 on.
    """

    class Java:
        implements = [*LakeCatalog.Java.implements, _CATALOG + "RelationCatalog"]  # noqa: RUF012

    def loadRelation(self, identifier: Any, *_options: Any) -> Any:
        name, is_command = self._relation_name(identifier)
        try:
            found, made = self._read_now(identifier, name)
        except Py4JJavaError as error:
            if isinstance(error.__cause__, TableNotFound):
                with suppress(ViewNotFound):
                    return stored_view(self._gateway, self._name, self._lake.view(name), is_read=not is_command)
            raise
        if is_command:
            return self._command_table(name, found)
        is_plain = _parts(name)[1] or not reads_by_view(found.table)
        # A view has no hidden columns.
        if is_plain or not self._is_read() or is_named(self._gateway, found.table.schema):
            return made
        _, columns = self._shapes(self._gateway.planned_schema(found.table.columns.typed))
        return view_of(self._gateway, self._name, found.table, columns)

    def _relation_name(self, identifier: Any) -> tuple[str, bool]:
        """Return the name of a table or view, and whether a command asks for it."""
        *parts, command = str(self._gateway.classes.requests.relation(identifier)).split("\0")
        if len(parts) < 2:
            raise_java(self._no_such_table(identifier))
        return self._joined(parts), command == "command"

    def _is_read(self) -> bool:
        # DESCRIBE and other commands ask for relations too, and are about the table. Spark has no streams of views.
        called_from = self._gateway.is_called_from
        return called_from("tryResolvePersistent") and not any(map(called_from, _STREAM_READS))

    def listRelationSummaries(self, namespace: Any) -> Any:
        summaries = self._gateway.java_class(_CATALOG + "TableSummary")
        listed = [summaries.of(identifier, "EXTERNAL") for identifier in self._identifiers(namespace)]
        listed += [summaries.of(identifier, "VIEW") for identifier in self._views(namespace)]
        return self._gateway.array(_CATALOG + "TableSummary", listed)

    def listViews(self, namespace: Any) -> Any:
        return self._gateway.array(_CATALOG + "Identifier", self._views(namespace))

    def viewExists(self, identifier: Any) -> bool:
        name = self._table_name(identifier)
        if name is None:
            return False
        try:
            self._lake.view(name)
        except (ViewNotFound, NamespaceNotFound):
            return False
        return True

    def loadView(self, identifier: Any) -> Any:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_view(identifier))
        try:
            return stored_view(self._gateway, self._name, self._lake.view(name))
        except (ViewNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_view(identifier), error)

    def invalidateView(self, _identifier: Any) -> None:
        """Do nothing: views are not cached here."""

    def createView(self, identifier: Any, view: Any) -> Any:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_namespace([]))
        try:
            made = self._lake.create_view(name, definition_of(self._name, view))
        except AlreadyExists as error:
            raise_java(self._gateway.java_class(_ANALYSIS + "ViewAlreadyExistsException")(identifier), error)
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(identifier.namespace())), error)
        return stored_view(self._gateway, self._name, made)

    def replaceView(self, identifier: Any, view: Any) -> Any:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_view(identifier))
        try:
            made = self._lake.replace_view(name, definition_of(self._name, view))
        except (ViewNotFound, NamespaceNotFound) as error:
            raise_java(self._no_such_view(identifier), error)
        return stored_view(self._gateway, self._name, made)

    def createOrReplaceView(self, identifier: Any, view: Any) -> Any:
        return self.replaceView(identifier, view) if self.viewExists(identifier) else self.createView(identifier, view)

    def renameView(self, identifier: Any, new: Any) -> None:
        name = self._table_name(identifier)
        if name is None:
            raise_java(self._no_such_view(identifier))
        try:
            self._lake.rename_view(name, self._new_name(new))
        except AlreadyExists as error:
            raise_java(self._gateway.java_class(_ANALYSIS + "ViewAlreadyExistsException")(new), error)
        except ViewNotFound as error:
            raise_java(self._no_such_view(identifier), error)

    def dropView(self, identifier: Any) -> bool:
        name = self._table_name(identifier)
        if name is None:
            return False
        try:
            self._lake.drop_view(name)
        except (ViewNotFound, NamespaceNotFound):
            return False
        return True

    def _views(self, namespace: Any) -> list[Any]:
        try:
            names = self._lake.views(".".join(namespace))
        except NamespaceNotFound as error:
            raise_java(self._no_such_namespace(list(namespace)), error)
        of = self._gateway.java_class(_CATALOG + "Identifier").of
        return [of(namespace, name) for name in names]

    def _no_such_view(self, identifier: Any) -> Any:
        return self._gateway.java_class(_ANALYSIS + "NoSuchViewException")(identifier)


def _parts(name: str) -> tuple[str, str]:
    """Return the name of a table and what Spark appended to it; the latter is empty for the table itself."""
    table, kind = split_name(name)
    return (name.removesuffix(ROWS), ROWS) if not kind and name.endswith(ROWS) else (table, kind)


def _writes(how: tuple[Any, ...]) -> bool:
    """Return whether Spark loads a table to write to it; it passes a set of privileges, or a context with one."""
    if not how or isinstance(how[0], str | int):
        return False
    is_context = how[0].getClass().getSimpleName() == "TableContext"
    return not is_context or not how[0].writePrivileges().isEmpty()


def _options(how: tuple[Any, ...]) -> dict[str, str]:
    """Return the options with which Spark loads a table; their keys are in lower case."""
    given = how[1] if len(how) > 1 else None
    return {} if given is None else {str(key): str(given.get(key)) for key in given.keySet()}


def _time_travel(how: tuple[Any, ...]) -> tuple[str | None, int | None]:
    """Return a snapshot id or Unix milliseconds, from any of the forms that Spark 4.0 to 4.3 pass."""
    if not how:
        return None, None
    first = how[0]
    if isinstance(first, str):
        return first, None
    if isinstance(first, int):
        return None, first // 1000
    if _writes(how):  # Spark refuses the write itself, by the table's capabilities
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
