"""Values that are the same for a whole file, in Spark's own Parquet reader: as its partition columns.

Each file of a scan, or each part of it that one task reads, has a row of such values. They travel with the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from lamella.client.spark.gateway import CONNECTOR, DATASOURCES, Gateway
from lamella.client.spark.lake import BlockSelection, hadoop_path
from lamella.client.spark.metadata_column import FilePart

#: In one scan: each part of a file takes some calls.
MAX_FILES: Final = 1_000
_PARTITIONED_FILE: Final = DATASOURCES + "PartitionedFile"


def file_parts(gateway: Gateway, selection: BlockSelection) -> list[tuple[int, FilePart]]:
    """Return the parts of the blocks' files that tasks read, split as Spark splits files for its own scans, each with
    the number of its block."""
    split_bytes = _split_bytes(gateway, selection.sizes)
    return [
        (number, FilePart(location, size_bytes, start, min(split_bytes, size_bytes - start)))
        for number, (location, size_bytes) in enumerate(zip(selection.locations, selection.sizes, strict=True))
        for start in range(0, size_bytes, split_bytes)
    ]


def file_partitions(gateway: Gateway, selection: BlockSelection, parts: Sequence[FilePart], values: Any) -> Any:
    """Return ``InputPartition[]`` of parts of files; ``values``: the ``InternalRow`` of each part."""
    paths = gateway.scala_object("org.apache.spark.paths.SparkPath")
    make = gateway.scala_object(_PARTITIONED_FILE)
    no_hosts = gateway.empty_array("java.lang.String")
    nothing = gateway.scala_map({})
    files = gateway.java_class("java.util.ArrayList")()
    located: dict[str, Any] = {}
    for part, row in zip(parts, values, strict=True):
        path = located.get(part.location)
        if path is None:
            path = located[part.location] = paths.fromPathString(hadoop_path(part.location))
        files.add(make.apply(row, path, part.start, part.length, no_hosts, 0, part.size_bytes, nothing))
    listed = gateway.static("scala.jdk.javaapi.CollectionConverters", "asScala")(files).toSeq()
    split_bytes = _split_bytes(gateway, selection.sizes)
    made = gateway.scala_object(DATASOURCES + "FilePartition").getFilePartitions(gateway.session, listed, split_bytes)
    found = gateway.new_array(CONNECTOR + "read.InputPartition", made.size())
    made.copyToArray(found)
    return found


def with_file_values(gateway: Gateway, factory: Any, fields: Sequence[dict[str, Any]]) -> Any:
    """Return a reader factory of Spark's Parquet scan that adds the values of each file as columns, behind the
    others."""
    return factory.copy(
        factory.sqlConf(),
        factory.broadcastedConf(),
        factory.dataSchema(),
        factory.readDataSchema(),
        gateway.struct_type(json.dumps({"type": "struct", "fields": list(fields)})),
        factory.filters(),
        factory.aggregation(),
        factory.options(),
    )


def internal_rows_of(gateway: Gateway, fields: Sequence[dict[str, Any]], rows: pa.Table) -> Any:
    """Return ``InternalRow[]`` of an Arrow table, made in one call; ``fields``: of Spark's JSON."""
    struct = StructType.fromJson({"type": "struct", "fields": list(fields)})
    return gateway.spark.createDataFrame(rows, struct)._jdf.queryExecution().executedPlan().executeCollect()


def _split_bytes(gateway: Gateway, sizes: Sequence[int]) -> int:
    """Return the most bytes of a file that one task reads, as Spark computes it for its own scans."""
    conf = gateway.session.sessionState().conf()
    open_bytes = int(conf.filesOpenCostInBytes())
    cores = int(gateway.session.leafNodeDefaultParallelism())
    each = sum(size + open_bytes for size in sizes) // max(1, cores)
    return max(1, min(int(conf.filesMaxPartitionBytes()), max(open_bytes, each)))
