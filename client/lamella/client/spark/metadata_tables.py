"""``lake.db.`t$snapshots` `` and the like: what a table is made of, as rows.

The driver asks the service for them when a query runs, for the snapshot that the query reads. It makes only the columns
that the query uses, and only of rows that may meet its conditions, before anything is sent to Spark. Of a table of many
blocks, Spark's workers make the rows of ``t$blocks`` (:mod:`.block_list`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from lamella.client.spark.block_list import (
    BLOCK_COLUMNS,
    ConstantTexts,
    block_columns,
    block_list_scan,
    facts_of_blocks,
    filter_schema,
    parts_of_blocks,
    segments_of,
    struct_of,
)
from lamella.client.spark.gateway import CONNECTOR, SQL, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.local_filter import LazyColumns, LocalFilter
from lamella.client.spark.local_rows import LocalRows, internal_rows, statistics
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.spark.scan import filter_text, shortened

_CATALOG: Final = CONNECTOR + "catalog."
_READ: Final = CONNECTOR + "read."
_LIST: Final = {"type": "array", "elementType": "string", "containsNull": False}

Row = Sequence[Any]


class MetadataTable(msgspec.Struct, frozen=True, eq=False):
    """Columns with Spark's types, and what returns the rows of a table at its snapshot."""

    columns: dict[str, Any]
    rows: Callable[[LakeTable], LazyColumns]

    def schema(self) -> str:
        """The schema in Spark's JSON."""
        return struct_of(self.columns)


def _of_records(records: Iterable[Any], **columns: Callable[[Any], Any]) -> LazyColumns:
    """Return a row for each record; ``columns``: what returns the value of each column."""
    found = list(records)

    def values(column: Callable[[Any], Any]) -> Callable[[Sequence[int]], list[Any]]:
        return lambda numbers: [column(found[number]) for number in numbers]

    return LazyColumns(len(found), {name: values(column) for name, column in columns.items()})


def _moment(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC)


def _snapshots(table: LakeTable) -> LazyColumns:
    return _of_records(
        table.handle.snapshots(snapshot_id=table.snapshot_id),
        number=lambda each: each.number,
        snapshot_id=lambda each: each.snapshot_id,
        prev_snapshot_id=lambda each: each.prev_snapshot_id,
        committed_at=lambda each: _moment(each.timestamp_ms),
        operation=lambda each: each.operation,
        row_count=lambda each: each.row_count,
        block_count=lambda each: each.block_count,
        segment_count=lambda each: each.segment_count,
        file_size_bytes=lambda each: each.file_size_bytes,
        tags=lambda each: list(each.tags),
    )


def _tags(table: LakeTable) -> LazyColumns:
    return _of_records(
        table.handle.tags(),
        name=lambda each: each.name,
        snapshot_id=lambda each: each.snapshot_id,
        created_at=lambda each: _moment(each.created_at_ms),
        expires_at=lambda each: _moment(each.expires_at_ms),
    )


def _blocks(table: LakeTable) -> LazyColumns:
    return block_columns(facts_of_blocks(table), table.history)


def _segments(table: LakeTable) -> LazyColumns:
    return _of_records(
        segments_of(table),
        segment_id=lambda each: each.segment_id,
        location=lambda each: each.location,
        block_count=lambda each: each.block_count,
        row_count=lambda each: each.row_count,
        file_size_bytes=lambda each: each.file_size_bytes,
    )


def _partitions(table: LakeTable) -> LazyColumns:
    schemas = {schema.schema_id: schema for schema in table.history}
    found: dict[ConstantTexts, list[int | None]] = {}
    for block in chain.from_iterable(parts_of_blocks(table)):
        totals = found.setdefault(block.constant_texts(schemas), [0, 0, 0, 0])
        for at, more in enumerate((1, block.row_count, block.deleted_row_count, block.file_size)):
            known = totals[at]
            totals[at] = None if known is None or more is None else known + more
    return _of_records(
        found.items(),
        constants=lambda each: list(each[0]),
        block_count=lambda each: each[1][0],
        row_count=lambda each: each[1][1],
        deleted_row_count=lambda each: each[1][2],
        file_size_bytes=lambda each: each[1][3],
    )


def _indexes(table: LakeTable) -> LazyColumns:
    return _of_records(
        table.handle.indexes(snapshot_id=table.snapshot_id),
        name=lambda each: each.name,
        kind=lambda each: each.kind,
        expression=lambda each: each.expression,
        parts=lambda each: each.parts,
        size_bytes=lambda each: each.size_bytes,
        blocks_covered=lambda each: None if each.coverage is None else each.coverage.indexed,
        blocks_total=lambda each: None if each.coverage is None else each.coverage.blocks,
    )


def _history(table: LakeTable) -> LazyColumns:
    return _of_records(
        table.lake.audit(table.name),
        requested_at=lambda each: _moment(each.at_ms),
        actor=lambda each: each.actor,
        operation=lambda each: each.operation,
        status=lambda each: each.status,
        code=lambda each: each.code,
        client=lambda each: each.client,
        request_id=lambda each: each.request_id,
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
    "$blocks": MetadataTable(BLOCK_COLUMNS, _blocks),
    "$segments": MetadataTable(
        {
            "segment_id": "string",
            "location": "string",
            "block_count": "long",
            "row_count": "long",
            "file_size_bytes": "long",
        },
        _segments,
    ),
    "$partitions": MetadataTable(
        {
            "constants": BLOCK_COLUMNS["constants"],
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
    """Collects the columns that a query needs, and its conditions, which Spark evaluates again."""

    class Java:
        implements = [  # noqa: RUF012
            SQL + "internal.connector.SupportsPushDownCatalystFilters",
            _READ + "SupportsPushDownRequiredColumns",
        ]

    def __init__(self, gateway: Gateway, table: LakeTable, kind: str) -> None:
        super().__init__(gateway)
        self._table = table
        self._kind = kind
        self._schema = METADATA_TABLES[kind].schema()
        self._conditions = LocalFilter(filter_schema(METADATA_TABLES[kind].columns))

    def pushFilters(self, filters: Any) -> Any:
        for at in range(filters.size()):
            self._conditions.push(filters.apply(at), self._gateway.time_zone())
        return filters

    def pushedFilters(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:
        self._schema = str(required.json())

    def build(self) -> Any:
        if self._kind == "$blocks":
            by_workers = block_list_scan(self._gateway, self._table, self._schema, self._conditions)
            if by_workers is not None:
                return by_workers
        return MetadataScan(self._gateway, self._table, self._kind, self._schema, self._conditions)


class MetadataScan(LocalRows):
    """The rows, which are fetched when the query runs."""

    class Java:
        implements = LocalRows.Java.implements

    def __init__(self, gateway: Gateway, table: LakeTable, kind: str, schema: str, conditions: LocalFilter) -> None:
        super().__init__(gateway, schema, spark_arrow_schema(schema).empty_table())
        self._table = table
        self._kind = kind
        self._conditions = conditions

    def _key(self) -> str:
        conditions = msgspec.json.encode(self._conditions.conditions).decode()
        return f"{self._table.key}{self._kind} {self._schema} {conditions}"

    def description(self) -> str:
        parts = [f"Lamella {self._table.key}{self._kind}"]
        if self._conditions.conditions:
            texts = [filter_text(condition.tree) for condition in self._conditions.conditions]
            parts.append(f"filter=[{shortened(' AND '.join(texts))}]")
        return " ".join(parts)

    def rows(self) -> Any:
        kind = METADATA_TABLES[self._kind]
        found = kind.rows(self._table)
        names = [field["name"] for field in json.loads(self._schema)["fields"]]
        made = found.table(spark_arrow_schema(kind.schema()), names, self._conditions)
        return internal_rows(self._gateway, self._schema, made)

    def estimateStatistics(self) -> Any:
        rows = self._table.block_count if self._kind == "$blocks" else 1_000
        return statistics(self._gateway, max(1, 200 * rows), rows)

    def estimateSizeInBytes(self) -> Any:
        return self.estimateStatistics().sizeInBytes()
