"""Tables with deleted rows in the catalog: clean blocks are read as ever, and of the others the rows that are left.

A table of which some blocks have deleted rows is two scans, so that clean blocks cost nothing more. Spark's
``RelationCatalog`` may answer a read of a table with a view, and this one unites both scans. Each is of the same table
``t$rows`` under one name, so that Spark loads it once for both and they read one snapshot; a hidden column, which no
scan reads, says in the filter of each which blocks it has. The filter of the second scan also leaves out deleted rows,
by two more hidden columns (:mod:`.vector_scan`). Where these cannot be read, Python workers leave the rows out, and the
columns say that none is deleted.

Reads of another snapshot (``VERSION AS OF``) and the tables of statements that write have no view: Spark asks the
catalog for a table there.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.row_ids import unused_name
from lamella.client.spark.scan import LakeScanBuilder
from lamella.client.spark.table import LakeTableProxy
from lamella.client.spark.vector_scan import hidden_fields, live_rows_condition
from lamella.snapshot.schema import Schema, quoted

_CATALOG: Final = CONNECTOR + "catalog."
#: What is appended to the name of a table to read it with its hidden columns. Names of tables have no such character.
ROWS: Final = "$rows"


def deletes_column(schema: Schema) -> str:
    """Return the name of the hidden column, which says whether the block of a row has deleted rows."""
    return unused_name(schema, "_lamella_has_deletes")


class RowsTable(LakeTableProxy):
    """A table whose scans can be limited to blocks with deleted rows, or without."""

    class Java:
        implements = LakeTableProxy.Java.implements

    def _key(self) -> str:
        return f"{super()._key()}{ROWS}"

    def metadataColumns(self) -> Any:
        return self._gateway.empty_array(_CATALOG + "MetadataColumn")

    def newScanBuilder(self, options: Any) -> Any:
        name = deletes_column(self._table.schema)
        return LakeScanBuilder(self._gateway, self._table, options, deletes_column=name)


def rows_schema(table: LakeTable) -> str:
    """Return the schema of ``t$rows`` in Spark's JSON: the hidden columns are behind the others, since Spark asks for
    metadata columns again and again, by a callback for each member of each."""
    shown = json.loads(table.columns.typed)
    name = deletes_column(table.schema)
    hidden = [{"name": name, "type": "boolean", "nullable": False, "metadata": {}}, *hidden_fields(table.schema)]
    return json.dumps({**shown, "fields": [*shown["fields"], *hidden]})


def reads_by_view(table: LakeTable) -> bool:
    """Return whether reads of a table are two scans."""
    return table.has_deletes and not table.settings.signed_urls  # these are read in Python workers anyway


def view_of(gateway: Gateway, catalog: str, table: LakeTable, columns: Any) -> Any:
    """Return the ``View`` by which Spark reads a table; ``columns``: the ``Column[]`` of the table."""
    names = [column.name for column in table.schema.columns]
    shown = ", ".join(map(quoted, names))
    rows = _sql_name(catalog, table.name + ROWS)
    hidden = quoted(deletes_column(table.schema))
    builder = getattr(gateway.java_class(_CATALOG + "View"), "Builder")()  # noqa: B009  # a class inside of a class
    builder = builder.withColumns(columns)
    builder = builder.withQueryText(
        f"SELECT {shown} FROM {rows} WHERE NOT {hidden}"  # noqa: S608
        f" UNION ALL SELECT {shown} FROM {rows} WHERE {_with_deletes(table.schema)}"
    )
    # Spark analyses a view with these settings and otherwise with its defaults.
    settings = {name: str(gateway.spark.conf.get(name, "false")) for name in ("spark.sql.timeType.enabled",)}
    builder = builder.withSqlConfigs(gateway.java_map(settings))
    return builder.withQueryColumnNames(gateway.array("java.lang.String", names)).build()


def table_frame(spark: SparkSession, catalog: str, table: LakeTable) -> DataFrame:
    """Return the rows of a table of a catalog at its snapshot, with deleted rows by the same two scans."""
    reader = spark.read.option("versionAsOf", table.snapshot_id)
    if not reads_by_view(table):
        return reader.table(_sql_name(catalog, table.name))
    rows, hidden = reader.table(_sql_name(catalog, table.name + ROWS)), quoted(deletes_column(table.schema))
    shown = [quoted(column.name) for column in table.schema.columns]
    clean, others = rows.where(f"NOT {hidden}"), rows.where(_with_deletes(table.schema))
    return clean.select(*shown).unionAll(others.select(*shown))


def _with_deletes(schema: Schema) -> str:
    """Return the condition of the second scan."""
    hidden = quoted(deletes_column(schema))
    return f"{hidden} AND {live_rows_condition(schema, quoted)}" if hidden_fields(schema) else hidden


def _sql_name(catalog: str, table: str) -> str:
    return ".".join(map(quoted, (catalog, *table.split("."))))
