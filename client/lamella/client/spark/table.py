"""A table of the catalog at one snapshot, for Spark: read, written to, deleted from.

Includes tables made by ``CREATE TABLE AS SELECT``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NoReturn

from lamella.client.spark.constraints import checks_array
from lamella.client.spark.engine import delete
from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.hidden_columns import HiddenColumn, columns_array
from lamella.client.spark.metadata_column import NAME, has_metadata, metadata_type
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.row_ids import id_column
from lamella.client.spark.row_level import RowLevel
from lamella.client.spark.row_level_write import RowLevelWrite
from lamella.client.spark.scan import LakeScanBuilder
from lamella.client.spark.schema_evolution import is_possible, resolved_again
from lamella.client.spark.sql_write import Destination, LakeWriteBuilder, replace_rows
from lamella.client.spark.statement import ReadTable
from lamella.client.write.commit import EVERY_ROW
from lamella.client.write.new_table import drop_unused
from lamella.snapshot.errors import FilterNotEvaluable, InvalidRequest
from lamella.snapshot.schema import Schema, path_parts, quoted
from lamella.snapshot.schema.spark_types import declared_schema
from lamella.snapshot.wire import TableInfo

# Tables created with their first rows: ``CREATE TABLE AS SELECT`` and ``REPLACE TABLE``.
#
# A new table is created empty when Spark begins; its rows are added in one commit, and if that fails the table is
# dropped again, unless another client committed to it in the meantime. An existing table is replaced by one commit,
# which also changes its columns, cluster key and properties; until then it is unchanged.

_CATALOG: Final = CONNECTOR + "catalog."
_CAPABILITIES: Final = (
    *("BATCH_READ", "MICRO_BATCH_READ", "STREAMING_WRITE", "V1_BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER"),
    # Declared so that LakeWriteBuilder can refuse dynamic overwrites and say what to use. All other writes are V1's.
    *("BATCH_WRITE", "OVERWRITE_DYNAMIC"),
    # From Spark 4.3 on: scans of one table with the same filters may be made anew as one with the columns of all.
    "SCAN_MERGING",
)
#: Those that a version of Spark may lack something for.
_HOOKS_OF_CAPABILITIES: Final = {"MICRO_BATCH_READ": "streaming reads", "STREAMING_WRITE": "streaming writes"}


class LakeTableProxy(ReadTable):
    """A table at one snapshot."""

    _once = (
        "name id version schema columns partitioning constraints properties capabilities metadataColumns"
        " canRenameConflictingMetadataColumns"
    )
    _once_for_all = "supportedCustomMetrics reportDriverMetrics"
    _unless = (
        "columns ShowCreateTableExec partitioning ShowCreateTableExec properties ShowCreateTableExec"
        " metadataColumns DescribeTableExec capabilities V2WriteCommand"
    )
    _returned: ClassVar[Mapping[str, type[Proxy]]] = {"newScanBuilder": LakeScanBuilder}

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the object
            _CATALOG + "SupportsRead",
            _CATALOG + "SupportsWrite",
            _CATALOG + "SupportsDeleteV2",
            _CATALOG + "SupportsRowLevelOperations",
            _CATALOG + "SupportsMetadataColumns",
            _CATALOG + "index.SupportsIndex",
        ]

    def __init__(self, destination: Destination, shown_name: str, shape: tuple[Any, Any]) -> None:
        super().__init__(destination.gateway)
        self._destination = destination
        self._table = destination.table
        self._shown_name = shown_name
        self._struct, self._columns = shape

    def _key(self) -> str:
        return f"Lamella {self._shown_name}@{self._table.snapshot_id}"

    def name(self) -> str:
        return self._shown_name

    def id(self) -> str:
        return self._table.table_id

    def version(self) -> str | None:
        return self._table.snapshot_id

    def schema(self) -> Any:
        return self._struct

    def columns(self) -> Any:
        if (declared := self._declared()) is not None and self._is_written_as_sql():
            return shape_of(self._gateway, declared)[1]
        return self._columns

    def _declared(self) -> str | None:
        """Return the schema with required columns as not null, as those of a query never are; None: there are none."""
        shown = self._table.columns.typed
        declared = declared_schema(shown, self._table.schema)
        return None if json.loads(declared) == json.loads(shown) else declared

    def _is_written_as_sql(self) -> bool:
        return self._gateway.is_called_from("ShowCreateTableExec")

    def partitioning(self) -> Any:
        transform = CONNECTOR + "expressions.Transform"
        columns, _ = self._table.cluster_key
        if not columns or not self._is_written_as_sql() or not self._table.has_plain_key:
            return self._gateway.empty_array(transform)
        column = self._gateway.static(CONNECTOR + "expressions.Expressions", "column")
        paths = [path_parts(path) or (path,) for path in columns]
        key = self._gateway.seq([column(".".join(map(quoted, path))) for path in paths])
        cluster_by = self._gateway.java_class(CONNECTOR + "expressions.ClusterByTransform").apply(key)
        return self._gateway.array(transform, [cluster_by])

    def constraints(self) -> Any:
        return checks_array(self._gateway, self._table.schema.checks)

    def properties(self) -> Any:
        table = self._table
        shown = table.declared_properties() if self._is_written_as_sql() else table.shown_properties()
        return self._gateway.java_map(shown)

    def capabilities(self) -> Any:
        return self._capability_set(*_CAPABILITIES)

    def _capability_set(self, *names: str) -> Any:
        gateway = self._gateway

        def made() -> Any:
            known = gateway.java_class(_CATALOG + "TableCapability").values()
            wanted = [name for name in names if _HOOKS_OF_CAPABILITIES.get(name) not in gateway.missing_hooks]
            return gateway.java_set(each for each in known if str(each.name()) in wanted)

        return gateway.shared(f"capabilities {names[-1]}", made)

    def metadataColumns(self) -> Any:
        if self._gateway.is_called_from("DescribeTableExec"):
            return self._gateway.empty_array(_CATALOG + "MetadataColumn")
        return self._hidden_columns

    @property
    def _hidden_columns(self) -> Any:
        gateway, schema = self._gateway, self._table.schema
        return gateway.shared(
            f"hidden columns {id_column(schema)} {has_metadata(schema)}", lambda: _hidden_columns(gateway, schema)
        )

    def canRenameConflictingMetadataColumns(self) -> bool:
        return False

    def newScanBuilder(self, options: Any) -> Any:
        return LakeScanBuilder(self._gateway, self._table, options)

    def newWriteBuilder(self, info: Any) -> Any:
        return LakeWriteBuilder(self._destination, info)

    def newRowLevelOperationBuilder(self, info: Any) -> Any:
        return RowLevel(self._destination, info.command(), RowLevelWrite)

    def canDeleteWhere(self, predicates: Any) -> bool:
        try:
            self._destination.filter_of(predicates)
        except FilterNotEvaluable:
            return False  # Spark finds the rows
        return True

    def deleteWhere(self, predicates: Any, *_options: Any) -> None:
        self._delete(self._destination.filter_of(predicates))

    def truncateTable(self, *_options: Any) -> bool:
        self._delete(EVERY_ROW)
        return True

    def indexExists(self, _name: str) -> bool:
        return False

    def listIndexes(self) -> Any:
        return self._gateway.empty_array(_CATALOG + "index.TableIndex")

    def createIndex(self, name: str, *_arguments: Any) -> NoReturn:
        self._refuse_index("make", "create", name)

    def dropIndex(self, name: str) -> NoReturn:
        self._refuse_index("drop", "drop", name)

    def _refuse_index(self, verb: str, command: str, name: str) -> NoReturn:
        table = self._table.name
        raise InvalidRequest(
            f"SQL cannot {verb} an index of a Lamella table; use `lamella index {command} {table} {name}`"
        )

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def _delete(self, filter: dict[str, Any]) -> None:
        defaults = self._destination.defaults
        delete(
            self._gateway.spark,
            self._table.name,
            filter,
            client=self._destination.lake,
            compression=defaults.compression,
            storage_options=defaults.storage_options,
            scratch=defaults.scratch,
        )


def _hidden_columns(gateway: Gateway, schema: Schema) -> Any:
    columns = [HiddenColumn(gateway, id_column(schema), "long", nullable=True)]
    if has_metadata(schema):
        columns.append(HiddenColumn(gateway, NAME, metadata_type(), nullable=True))
    return columns_array(gateway, *columns)


def shape_of(gateway: Gateway, schema_json: str) -> tuple[Any, Any]:
    """Return the ``StructType`` and ``Column[]`` of a schema in Spark's JSON; takes a few calls per column."""
    struct = gateway.struct_type(schema_json)
    create = gateway.java_class(_CATALOG + "Column").create
    columns = gateway.new_array(_CATALOG + "Column", struct.length())
    for at, field in enumerate(json.loads(schema_json)["fields"]):
        dtype = struct.apply(at).dataType()
        metadata = {key: value for key, value in field["metadata"].items() if key != "comment"}
        extra = json.dumps(metadata) if metadata else None
        columns[at] = create(field["name"], dtype, field["nullable"], field["metadata"].get("comment"), extra)
    return struct, columns


class CommandTable(LakeTableProxy):
    """The table of a command such as ``ALTER TABLE`` or ``DESCRIBE``; it is not read or written to.

    Spark refuses ``ALTER COLUMN ... SET NOT NULL`` itself if the column is nullable, as all columns of a query are. So
    when it resolves the names in the command, which is its first call, all columns are required.
    """

    def __init__(self, destination: Destination, shown_name: str, shape: tuple[Any, Any], required: Any) -> None:
        """``required``: ``Column[]`` of the same columns, all of them required."""
        super().__init__(destination, shown_name, shape)
        self._required = required
        self._is_resolved = False

    def columns(self) -> Any:
        if self._is_resolved:
            return super().columns()
        self._is_resolved = True
        return self._required


class EvolvingLakeTable(LakeTableProxy):
    """A table whose columns a write may change. Spark has this from version 4.3 on."""

    class Java:
        implements = [*LakeTableProxy.Java.implements, _CATALOG + "SupportsSchemaEvolution"]  # noqa: RUF012

    def __init__(
        self, destination: Destination, shown_name: str, shape: tuple[Any, Any], *, merges: bool = False
    ) -> None:
        """``merges``: the write that the table is loaded for may change the columns, whatever Spark knows."""
        super().__init__(destination, shown_name, shape)
        self._merges = merges
        self._shape = shape

    def _key(self) -> str:
        changed = "" if self._table.schema_update is None else f" schema {self._table.schema.schema_id}"
        return f"{super()._key()}{changed}{' merging' * self._merges}"

    def version(self) -> str | None:
        # Spark would load a table with a version again before it runs the query, and miss the changes of its columns.
        return super().version() if self._table.schema_update is None else None

    def capabilities(self) -> Any:
        # UPDATE and MERGE always need the table's own columns.
        if self._merges and self._gateway.is_called_from("V2WriteCommand"):
            return self._capability_set(*_CAPABILITIES, "AUTOMATIC_SCHEMA_EVOLUTION", "ACCEPT_ANY_SCHEMA")
        return self._capability_set(*_CAPABILITIES, "AUTOMATIC_SCHEMA_EVOLUTION")

    def supportsColumnChange(self, change: Any) -> bool:
        return is_possible(self._gateway, self._table.schema, change)

    def newWriteBuilder(self, info: Any) -> Any:
        return LakeWriteBuilder(self._destination, info, self._resolved_again if self._merges else None)

    def _resolved_again(self, dataset: Any) -> tuple[Any, Destination]:
        """Return the rows of a running write as Spark resolves them with schema evolution, and where they go."""
        strict = EvolvingLakeTable(self._destination, self._shown_name, self._shape)
        rows, found = resolved_again(self._gateway, self._shown_name, strict, dataset)
        return rows, found._destination


class StagedLakeTable(LakeTableProxy):
    """``made``: the table as created; None: it existed before, and is seen with its new definition."""

    class Java:
        implements = [*LakeTableProxy.Java.implements, _CATALOG + "StagedTable"]  # noqa: RUF012

    def __init__(
        self, destination: Destination, shown_name: str, shape: tuple[Any, Any], *, made: TableInfo | None
    ) -> None:
        super().__init__(destination, shown_name, shape)
        self._made = made
        self._written_before = destination.pins.written(self._table.name)

    def commitStagedChanges(self) -> None:
        to = self._destination
        if self._made is None and to.pins.written(self._table.name) == self._written_before:
            replace_rows(to)  # the statement has no query to write
        handle = to.lake.table(self._table.name)
        now = handle.info().properties if to.properties else {}
        unset = {key: text for key, text in to.properties.items() if now.get(key) != text}
        if unset:  # an empty table was replaced by no rows, which needs no commit
            handle.commit(operation="alter", properties=unset)

    def abortStagedChanges(self) -> None:
        if self._made is not None:
            drop_unused(self._destination.lake, self._made)
