"""Blocks with deleted rows in Spark's own vectorised Parquet reader.

That reader can say the position of each row in its file (the column :data:`ROW_INDEX`), and add values that are the
same for a whole file. So each file gets a byte for each of its rows, 1 for a deleted one, and Spark leaves out the rows
whose byte is 1: a look-up in an array, in generated code. The bytes travel with the tasks, so this is for a limited
number of blocks; beyond that, Python workers read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, Gateway
from lamella.client.spark.lake import BlockSelection, LakeTable, hadoop_path
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.client.spark.row_ids import unused_name
from lamella.snapshot.deletes import Vectors, deleted_rows
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore

#: Spark's name for the position of a row in its file.
ROW_INDEX: Final = "_tmp_metadata_row_index"
#: Limits of one scan: the bytes are sent from the driver, and each part of a file takes some calls.
_MAX_BYTES: Final = 128 << 20
_MAX_FILES: Final = 1_000
_PARTITIONED_FILE: Final = DATASOURCES + "PartitionedFile"


def deleted_column(schema: Schema) -> str:
    """Return the name of the hidden column that has a byte for each row of the file."""
    return unused_name(schema, "_lamella_deleted_rows")


def hidden_fields(schema: Schema) -> list[dict[str, Any]]:
    """Return the hidden columns that say which rows of a file are deleted, as fields of Spark's JSON; none, if the
    table has a column of Spark's name."""
    if any(column.name.lower() == ROW_INDEX for column in schema.columns):
        return []
    return [_field(ROW_INDEX, "long"), _field(deleted_column(schema), "binary")]


def live_rows_condition(schema: Schema, quote: Callable[[str], str]) -> str:
    """Return SQL that is true for rows that are not deleted, by the hidden columns. A row that these say nothing about
    stays."""
    return f"NOT substring({quote(deleted_column(schema))}, CAST({quote(ROW_INDEX)} AS INT) + 1, 1) <=> X'01'"


def row_bytes(selection: BlockSelection) -> list[bytes] | None:
    """Return a byte for each row of each selected block, 1 for a deleted one.

    None: they would be too many, or the driver cannot read the vectors.
    """
    if len(selection.locations) > _MAX_FILES or sum(selection.rows) > _MAX_BYTES:
        return None
    store = FsspecStore()
    try:
        vectors = Vectors(store, (entry for entries in selection.deletes for entry in entries or ()))
        found = []
        for count, entries in zip(selection.rows, selection.deletes, strict=True):
            marks = np.zeros(count, dtype=np.uint8)
            marks[deleted_rows(vectors, entries or (), count)] = 1
            found.append(marks.tobytes())
    except LamellaError:
        return None  # workers may have access, and report what is wrong
    return found


def file_partitions(gateway: Gateway, table: LakeTable, selection: BlockSelection, marks: Sequence[bytes]) -> Any:
    """Return ``InputPartition[]`` of the blocks' files, each with its bytes as the value of a partition column."""
    values = _rows(gateway, deleted_column(table.schema), marks)
    paths = gateway.scala_object("org.apache.spark.paths.SparkPath")
    make = gateway.scala_object(_PARTITIONED_FILE)
    no_hosts = gateway.empty_array("java.lang.String")
    nothing = gateway.scala_map({})
    split_bytes = _split_bytes(gateway, selection.sizes)
    files = gateway.java_class("java.util.ArrayList")()
    for at, (location, size_bytes) in enumerate(zip(selection.locations, selection.sizes, strict=True)):
        path = paths.fromPathString(hadoop_path(location))
        for start in range(0, size_bytes, split_bytes):
            length = min(split_bytes, size_bytes - start)
            files.add(make.apply(values[at], path, start, length, no_hosts, 0, size_bytes, nothing))
    listed = gateway.static("scala.jdk.javaapi.CollectionConverters", "asScala")(files).toSeq()
    parts = gateway.scala_object(DATASOURCES + "FilePartition").getFilePartitions(gateway.session, listed, split_bytes)
    found = gateway.new_array(CONNECTOR + "read.InputPartition", parts.size())
    parts.copyToArray(found)
    return found


def with_row_bytes(gateway: Gateway, factory: Any, schema: Schema) -> Any:
    """Return a reader factory of Spark's Parquet scan that adds the bytes of each file as a column."""
    partition = json.dumps({"type": "struct", "fields": [_field(deleted_column(schema), "binary")]})
    return factory.copy(
        factory.sqlConf(),
        factory.broadcastedConf(),
        factory.dataSchema(),
        factory.readDataSchema(),
        gateway.struct_type(partition),
        factory.filters(),
        factory.aggregation(),
        factory.options(),
    )


def _field(name: str, dtype: str) -> dict[str, Any]:
    return {"name": name, "type": dtype, "nullable": True, "metadata": {}}


def _rows(gateway: Gateway, name: str, marks: Sequence[bytes]) -> Any:
    """Return ``InternalRow[]`` with the bytes of each file, made in one call."""
    struct = json.dumps({"type": "struct", "fields": [_field(name, "binary")]})
    table = pa.table([pa.array(marks, pa.binary())], schema=spark_arrow_schema(struct))
    frame = gateway.spark.createDataFrame(table, StructType.fromJson(json.loads(struct)))
    return frame._jdf.queryExecution().executedPlan().executeCollect()


def _split_bytes(gateway: Gateway, sizes: Sequence[int]) -> int:
    """Return the most bytes of a file that one task reads, as Spark computes it for its own scans."""
    conf = gateway.session.sessionState().conf()
    open_bytes = int(conf.filesOpenCostInBytes())
    cores = int(gateway.session.leafNodeDefaultParallelism())
    each = sum(size + open_bytes for size in sizes) // max(1, cores)
    return max(1, min(int(conf.filesMaxPartitionBytes()), max(open_bytes, each)))
