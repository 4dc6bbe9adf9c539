"""The Python data source ``lamella``: what Spark Connect and SQL use where there is no JVM at hand.

::

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.read.format("lamella").option("url", "http://127.0.0.1:8181").load("db.events").where("a > 5")

Spark finds it by itself through the module ``pyspark_lamella``. Blocks are pruned by what Spark hands over (simple
comparisons that are joined by AND) and read by pyarrow, whole rows at a time; Spark evaluates every filter again.
Spark offers no column pruning here: give a schema with the columns that you need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from lamella.client.http import Lamella
from lamella.client.spark.arrow_types import spark_arrow_schema
from lamella.client.spark.block_reader import read_rows
from lamella.client.spark.catalyst import find_leaf
from lamella.client.spark.lake import LakeTable, Settings, load_table
from lamella.client.spark.literal import Inexpressible, python_literal, unknown
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Schema

#: File bytes of one Spark partition, unless the option ``partitionBytes`` says otherwise.
PARTITION_BYTES: Final = 64 << 20
_COMPARISONS: Final[dict[type, str]] = {
    EqualTo: "eq",
    EqualNullSafe: "eq-null-safe",
    LessThan: "lt",
    LessThanOrEqual: "lt-eq",
    GreaterThan: "gt",
    GreaterThanOrEqual: "gt-eq",
    StringStartsWith: "starts-with",
}


class LamellaDataSource(DataSource):
    """``format("lamella")``. Options: ``url``; ``table`` (or the path given to ``load``) as ``namespace.table``.

    Further: ``snapshotId`` or ``timestampMs`` (Unix milliseconds) pin the table, ``token`` is the service's,
    ``allowFallback`` reads all blocks when pruning fails, ``partitionBytes`` sizes the partitions, ``storageOptions``
    are fsspec options by scheme as JSON.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format`` and ``USING``."""
        return "lamella"

    def schema(self) -> StructType:
        """The table's columns; raises InvalidSchema when one of them cannot be read."""
        with open_table(self.options) as table:
            table.columns.check(column.name for column in table.schema.columns)
        return StructType.fromJson(json.loads(table.columns.readable))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns."""
        return LamellaReader(dict(self.options), schema.json())


class BlockGroup(InputPartition):
    """The blocks of one Spark partition: locations and file sizes."""

    def __init__(self, locations: Sequence[str]) -> None:
        super().__init__(None)
        self.locations = tuple(locations)


class LamellaReader(DataSourceReader):
    """Plans by asking the service, reads by pyarrow. Planning and reading happen in different processes."""

    def __init__(self, options: dict[str, str], schema_json: str) -> None:
        self._options = options
        self._schema_json = schema_json
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters for pruning, and give all of them back to be evaluated."""
        self._filters = list(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The blocks that the filters leave, in groups of about ``partitionBytes``."""
        with open_table(self._options) as table:
            trees = [filter_tree(f, table.schema) for f in self._filters]
            kept = table.kept({"type": "and", "children": trees} if trees else None)
        limit = int(self._options.get("partitionbytes", PARTITION_BYTES))
        groups: list[list[str]] = []
        room = 0
        for location, size_bytes in zip(kept.locations, kept.sizes, strict=True):
            if not groups or size_bytes > room:
                groups.append([])
                room = limit
            groups[-1].append(location)
            room -= size_bytes
        return [BlockGroup(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a group of blocks. Spark passes None when there is none."""
        if not isinstance(partition, BlockGroup):
            return
        target = spark_arrow_schema(self._schema_json)
        storage = json.loads(self._options.get("storageoptions", "{}"))
        for location in partition.locations:
            yield from read_rows(location, target, storage)


@contextmanager
def open_table(options: Any) -> Iterator[LakeTable]:
    """The table that a data source's options name; raises InvalidRequest when they do not."""
    given = {str(key).lower(): value for key, value in dict(options).items()}
    url, name = given.get("url"), given.get("table") or given.get("path")
    if not url or not name:
        raise InvalidRequest("the data source lamella needs the option url, and table (or a path) as namespace.table")
    timestamp = given.get("timestampms")
    with Lamella(url, token=given.get("token")) as lake:
        yield load_table(
            lake,
            name,
            Settings(allow_fallback=given.get("allowfallback", "false").lower() == "true"),
            snapshot_id=given.get("snapshotid"),
            timestamp_ms=int(timestamp) if timestamp is not None else None,
        )


def filter_tree(pushed: Filter, schema: Schema) -> dict[str, Any]:
    """A filter of Spark's Python data source API as a filter tree."""
    if isinstance(pushed, Not):
        return {"type": "not", "child": filter_tree(pushed.child, schema)}
    try:
        attribute = getattr(pushed, "attribute", None)
        if attribute is None:
            raise Inexpressible("a filter of unknown form")
        leaf = find_leaf(schema, list(attribute))
        if isinstance(pushed, IsNull | IsNotNull):
            return {"type": "is-null" if isinstance(pushed, IsNull) else "not-null", "term": leaf.name}
        if isinstance(pushed, In):
            values = [python_literal(leaf.dtype, value) for value in pushed.value]
            return {"type": "in", "term": leaf.name, "values": values}
        operator = _COMPARISONS.get(type(pushed))
        if operator is None:
            raise Inexpressible("a filter of unknown form")
        value = python_literal(leaf.dtype, getattr(pushed, "value", None))
        return {"type": operator, "term": leaf.name, "value": value}
    except Inexpressible as reason:
        return unknown(str(pushed), str(reason))
