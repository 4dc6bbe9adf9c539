"""Schema evolution on insert: columns of the rows that the table lacks, and wider types, become columns of the table.

Spark compares the columns, and asks the catalog to alter the table before it resolves the write. The table that
Spark loads next is seen with the changes, and the commit of the rows makes them. So a write that fails leaves the
columns as they are.

Spark does this for ``INSERT WITH SCHEMA EVOLUTION``, and only looks at the statement. For writes with the option
``mergeSchema``, and tables with the property :data:`MERGE_SCHEMA`, the table accepts any columns first; when the write
runs, Spark resolves its query again, as that of such a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from lamella.client.spark.catalyst import kind_of
from lamella.client.spark.ddl import column_of, schema_change
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.statement import elements, running_query
from lamella.snapshot.errors import InvalidRequest, LamellaError, SchemaMismatch
from lamella.snapshot.schema import Schema, parse_type
from lamella.snapshot.schema.evolution import SchemaChange, WidenColumn, evolve
from lamella.snapshot.wire import SchemaUpdate, TableInfo

#: The property of a table by which every write may change its columns.
MERGE_SCHEMA: Final = "write.merge_schema"
#: The option of a write, as Spark's option maps spell it.
OPTION_KEYS: Final = ("mergeSchema", "merge_schema", "merge-schema")

#: The rule of Spark that alters tables for writes.
SCHEMA_EVOLUTION: Final = "ResolveSchemaEvolution"
_LOGICAL: Final = SQL + "catalyst.plans.logical."
_WRITES: Final = ("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic")


#: Returns the changes with which a table is seen.
Update = Callable[[TableInfo], SchemaUpdate | None]


def no_update(_info: TableInfo) -> None:
    """Return no changes."""


class PendingChanges:
    """The schema changes that Spark requested for the statement that the current thread resolves."""

    def __init__(self) -> None:
        self._local = threading.local()

    def put(self, table: str, changes: Sequence[SchemaChange]) -> None:
        """Note the changes for the next time that the table is loaded."""
        self._local.pending = (table, tuple(changes))

    def take(self, gateway: Gateway, table: str) -> Update:
        """Return what makes the changes of the table, once; only for the rule of Spark that requested them."""
        noted: tuple[str, tuple[SchemaChange, ...]] | None = getattr(self._local, "pending", None)
        self._local.pending = None
        if noted is None or noted[0] != table or not gateway.is_called_from(SCHEMA_EVOLUTION):
            return no_update
        changes = noted[1]
        return lambda info: SchemaUpdate(changes=changes, base_schema_id=info.schema.schema_id)


def changes_of(gateway: Gateway, changes: Iterable[Any]) -> list[SchemaChange]:
    """Return Spark's ``TableChange`` objects as schema changes."""
    return [schema_change(gateway, str(change.getClass().getSimpleName()), change) for change in changes]


def is_possible(gateway: Gateway, schema: Schema, change: Any) -> bool:
    """Whether a table can make a change that Spark would like; otherwise Spark casts values to the type of the column.

    Raises:
        InvalidSchema: a new column has a type that a table cannot have.
    """
    kind = str(change.getClass().getSimpleName())
    if kind == "AddColumn":
        column_of(str(change.fieldNames()[-1]), change.dataType(), True)
        return True
    if kind != "UpdateColumnType":
        return False
    try:
        wanted = schema_change(gateway, kind, change)
        return isinstance(wanted, WidenColumn) and not _is_text(wanted) and bool(evolve(schema, [wanted]))
    except LamellaError:
        return False


def _is_text(change: WidenColumn) -> bool:
    """Whether a type is text, of any length: rows do not change how long the text of a column may be."""
    return parse_type(change.type).is_text


def merges_schema(properties: Mapping[str, str], options: Mapping[str, str]) -> bool:
    """Whether a write may change the columns, by its option or else by the table's property; raises InvalidRequest for
    neither true nor false."""
    for key in OPTION_KEYS:
        if key.lower() in options:
            return _truth(key, options[key.lower()])
    return _truth(MERGE_SCHEMA, properties.get(MERGE_SCHEMA, "false"))


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def resolved_again(gateway: Gateway, shown_name: str, table: Any, dataset: Any) -> tuple[Any, Any]:
    """Return the query of a running write as Spark resolves it with schema evolution, and the proxy of the table that
    it is for; both as they are for a ``MERGE``, whose columns are those of the table.

    ``table``: a proxy that does not accept any columns. ``dataset``: the rows of the running write.

    Raises:
        SchemaMismatch: the columns do not fit, with Spark's message.
    """
    from pyspark.errors.exceptions.captured import CapturedException

    write = _running_write(gateway)
    if write is None:
        return dataset, table
    session = gateway.session
    catalog, *namespace, name = shown_name.split(".")
    identifier = gateway.java_class(CONNECTOR + "catalog.Identifier").of(
        gateway.array("java.lang.String", namespace), name
    )
    relation = gateway.java_class(SQL + "execution.datasources.v2.DataSourceV2Relation").create(
        table,
        gateway.some(session.sessionState().catalogManager().catalog(catalog)),
        gateway.some(identifier),
    )
    append = gateway.java_class(_LOGICAL + "AppendData")
    resolve = append.byName if write.isByName() else append.byPosition
    command = resolve(relation, dataset.queryExecution().analyzed(), gateway.scala_map({}), True)
    mode = gateway.java_class(SQL + "execution.CommandExecutionMode").SKIP()
    try:
        analyzed = session.sessionState().executePlan(command, mode).analyzed()
    except CapturedException as error:  # the caller may throw no checked exception
        raise SchemaMismatch(str(error)) from error
    rows = gateway.java_class(SQL + "classic.Dataset").ofRows(session, analyzed.query())
    return rows, gateway.python_object(analyzed.table().table())


def _running_write(gateway: Gateway) -> Any:
    """Return the node of the running statement that writes rows; None: it is a ``MERGE``."""
    execution = running_query(gateway)
    if execution is None:
        raise InvalidRequest("a write that may change the columns needs pinned threads (PYSPARK_PIN_THREAD)")
    pending = [execution.analyzed()]
    while pending:
        node = pending.pop()
        if kind_of(node) in _WRITES:
            return node
        pending += elements(node.children())
    return None
