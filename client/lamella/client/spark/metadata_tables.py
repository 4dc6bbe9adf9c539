"""``lake.db.`t$snapshots` `` and the like: what a table is made of, as rows.

The driver asks the service for them when a query runs, for the snapshot that the query reads.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.client.http.results import python_value
from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.local_rows import LakeStatistics, LocalRows, internal_rows
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.manifest import live_rows

_CATALOG: Final = CONNECTOR + "catalog."
_READ: Final = CONNECTOR + "read."
_TEXTS: Final = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
_LIST: Final = {"type": "array", "elementType": "string", "containsNull": False}

Row = Sequence[Any]


class MetadataTable(msgspec.Struct, frozen=True, eq=False):
    """Columns with Spark's types, and the rows for a table at its snapshot."""

    columns: dict[str, Any]
    rows: Callable[[LakeTable], Iterable[Row]]

    def schema(self) -> str:
        """The schema in Spark's JSON."""
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in self.columns.items()]
        return json.dumps({"type": "struct", "fields": fields})


def _moment(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC)


def _snapshots(table: LakeTable) -> Iterator[Row]:
    for each in table.handle.snapshots(snapshot_id=table.snapshot_id):
        yield (
            each.number,
            each.snapshot_id,
            each.prev_snapshot_id,
            _moment(each.timestamp_ms),
            each.operation,
            each.row_count,
            each.block_count,
            each.segment_count,
            each.file_size_bytes,
            list(each.tags),
        )


def _tags(table: LakeTable) -> Iterator[Row]:
    for each in table.handle.tags():
        yield each.name, each.snapshot_id, _moment(each.created_at_ms), _moment(each.expires_at_ms)


class _Block(msgspec.Struct, frozen=True):
    location: str
    row_count: int
    deleted_row_count: int | None
    file_size_bytes: int
    schema_id: int
    constants: tuple[tuple[str, str | None], ...]


def _all_blocks(table: LakeTable) -> Iterator[_Block]:
    found = table.selection(None)
    without = [None] * len(found.locations)
    schemas = {schema.schema_id: schema for schema in table.history}
    each = zip(
        found.locations,
        found.rows,
        found.sizes,
        found.schema_ids,
        found.constants or without,
        found.deletes or without,
        strict=True,
    )
    for location, rows, size, schema_id, constants, deletes in each:
        leaves = schemas[schema_id].by_id() if constants else {}
        live = live_rows(rows, deletes or ())
        yield _Block(
            location,
            rows,
            None if live is None else rows - live,
            size,
            schema_id,
            tuple(
                (leaves[column].name, _text(python_value(str(leaves[column].dtype), value)))
                for column, value in sorted((constants or {}).items())
            ),
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _blocks(table: LakeTable) -> Iterator[Row]:
    for block in _all_blocks(table):
        yield (
            block.location,
            block.row_count,
            block.deleted_row_count,
            block.file_size_bytes,
            block.schema_id,
            list(block.constants),
        )


def _partitions(table: LakeTable) -> Iterator[Row]:
    found: dict[tuple[tuple[str, str | None], ...], list[int | None]] = {}
    for block in _all_blocks(table):
        totals = found.setdefault(block.constants, [0, 0, 0, 0])
        for at, more in enumerate((1, block.row_count, block.deleted_row_count, block.file_size_bytes)):
            known = totals[at]
            totals[at] = None if known is None or more is None else known + more
    for constants, totals in found.items():
        yield (list(constants), *totals)


def _indexes(table: LakeTable) -> Iterator[Row]:
    for each in table.handle.indexes(snapshot_id=table.snapshot_id):
        coverage = each.coverage
        covered = (None, None) if coverage is None else (coverage.indexed, coverage.blocks)
        yield each.name, each.kind, each.expression, each.parts, each.size_bytes, *covered


def _history(table: LakeTable) -> Iterator[Row]:
    for each in table.lake.audit(table.name):
        yield (
            _moment(each.at_ms),
            each.actor,
            each.operation,
            each.status,
            each.code,
            each.client,
            each.request_id,
        )


#: By what is appended to the name of a table. Names of tables have no such character.
METADATA_TABLES: Final = {
    "$snapshots": MetadataTable(
        {
            "number": "long",
            "snapshot_id": "string",
            "prev_snapshot_id": "string",
            "committed_at": "timestamp",
            "operation": "string",
            "row_count": "long",
            "block_count": "long",
            "segment_count": "long",
            "file_size_bytes": "long",
            "tags": _LIST,
        },
        _snapshots,
    ),
    "$history": MetadataTable(
        {
            "requested_at": "timestamp",
            "actor": "string",
            "operation": "string",
            "status": "integer",
            "code": "string",
            "client": "string",
            "request_id": "string",
        },
        _history,
    ),
    "$tags": MetadataTable(
        {"name": "string", "snapshot_id": "string", "created_at": "timestamp", "expires_at": "timestamp"}, _tags
    ),
    "$blocks": MetadataTable(
        {
            "location": "string",
            "row_count": "long",
            "deleted_row_count": "long",
            "file_size_bytes": "long",
            "schema_id": "integer",
            "constants": _TEXTS,
        },
        _blocks,
    ),
    "$partitions": MetadataTable(
        {
            "constants": _TEXTS,
            "block_count": "long",
            "row_count": "long",
            "deleted_row_count": "long",
            "file_size_bytes": "long",
        },
        _partitions,
    ),
    "$indexes": MetadataTable(
        {
            "name": "string",
            "kind": "string",
            "expression": "string",
            "parts": "long",
            "size_bytes": "long",
            "blocks_covered": "long",
            "blocks_total": "long",
        },
        _indexes,
    ),
}


def split_name(name: str) -> tuple[str, str]:
    """Return the name of a table, and what is appended to it; the latter is empty for the table itself."""
    table, sign, kind = name.rpartition("$")
    kind = kind.lower()
    return (table, sign + kind) if sign and sign + kind in METADATA_TABLES else (name, "")


class MetadataTableProxy(Proxy):
    """One of these tables for Spark."""

    class Java:
        implements = [_CATALOG + "SupportsRead"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, table: LakeTable, shown_name: str, kind: str, shape: tuple[Any, Any]) -> None:
        super().__init__(gateway)
        self._table = table
        self._shown_name = shown_name
        self._kind = kind
        self._struct, self._columns = shape

    def _key(self) -> str:
        return f"Lamella {self._shown_name}@{self._table.snapshot_id}"

    def name(self) -> str:
        return self._shown_name

    def id(self) -> str:
        return self._table.table_id + self._kind

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
        return self._gateway.java_map({})

    def capabilities(self) -> Any:
        return self._gateway.java_set([self._gateway.constant(_CATALOG + "TableCapability", "BATCH_READ")])

    def newScanBuilder(self, _options: Any) -> Any:
        return MetadataScanBuilder(self._gateway, self._table, self._kind)


class MetadataScanBuilder(Proxy):
    """Collects the columns that a query needs."""

    class Java:
        implements = [_READ + "SupportsPushDownRequiredColumns"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, table: LakeTable, kind: str) -> None:
        super().__init__(gateway)
        self._table = table
        self._kind = kind
        self._schema = METADATA_TABLES[kind].schema()

    def pruneColumns(self, required: Any) -> None:
        self._schema = str(required.json())

    def build(self) -> Any:
        return MetadataScan(self._gateway, self._table, self._kind, self._schema)


class MetadataScan(LocalRows):
    """The rows, which are fetched when the query runs."""

    class Java:
        implements = LocalRows.Java.implements

    def __init__(self, gateway: Gateway, table: LakeTable, kind: str, schema: str) -> None:
        super().__init__(gateway, schema, spark_arrow_schema(schema).empty_table())
        self._table = table
        self._kind = kind

    def _key(self) -> str:
        return f"{self._table.key}{self._kind} {self._schema}"

    def description(self) -> str:
        return f"Lamella {self._table.key}{self._kind}"

    def rows(self) -> Any:
        kind = METADATA_TABLES[self._kind]
        target = spark_arrow_schema(kind.schema())
        columns: list[list[Any]] = [list(column) for column in zip(*kind.rows(self._table), strict=True)]
        made = pa.table(
            [pa.array(column, field.type) for column, field in zip(columns or [[]] * len(target), target, strict=True)],
            schema=target,
        )
        wanted = spark_arrow_schema(self._schema)
        return internal_rows(self._gateway, self._schema, made.select(wanted.names))

    def estimateStatistics(self) -> Any:
        rows = self._table.block_count if self._kind == "$blocks" else 1_000
        return LakeStatistics(self._gateway, max(1, 200 * rows), rows)

    def estimateSizeInBytes(self) -> Any:
        return self.estimateStatistics().sizeInBytes()
