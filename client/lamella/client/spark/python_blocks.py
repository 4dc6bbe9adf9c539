"""Blocks read by pyarrow in Spark's Python workers: for reads whose blocks name their columns in several ways."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lamella.client.rewrite.block_reader import read_rows
from lamella.client.spark.arrow_types import spark_arrow_schema
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Schema

if TYPE_CHECKING:
    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import Kept, LakeTable

#: File bytes of one Spark partition.
PARTITION_BYTES: Final = 64 << 20
_FORMAT: Final = "lamella_blocks"


class BlockGroup(InputPartition):
    """The blocks of one Spark partition: locations, and what tells their columns apart.

    ``written`` are the schemas that the blocks were written with, ``current`` is the table's.
    """

    def __init__(self, locations: Sequence[str], written: Sequence[Schema], current: Schema) -> None:
        super().__init__(None)
        self.locations = tuple(locations)
        self.written = tuple(written)
        self.current = current


def grouped(
    locations: Sequence[str],
    sizes: Sequence[int],
    schema_ids: Sequence[int],
    history: Sequence[Schema],
    partition_bytes: int,
) -> list[BlockGroup]:
    """Blocks in groups of about ``partition_bytes`` of file; ``history`` has the schemas, the current one last."""
    schemas = {schema.schema_id: schema for schema in history}
    groups: list[list[tuple[str, Schema]]] = []
    room = 0
    for location, size_bytes, schema_id in zip(locations, sizes, schema_ids, strict=True):
        if not groups or size_bytes > room:
            groups.append([])
            room = partition_bytes
        groups[-1].append((location, schemas[schema_id]))
        room -= size_bytes
    return [
        BlockGroup([location for location, _ in group], [written for _, written in group], history[-1])
        for group in groups
    ]


class Listed(msgspec.Struct, frozen=True):
    """The blocks of a read, as they travel in an option."""

    locations: list[str]
    sizes: list[int]
    schema_ids: list[int]
    history: tuple[Schema, ...]


class BlocksSource(DataSource):
    """``format("lamella_blocks")``: exactly the blocks that the option ``blocks`` lists. Used by the catalog alone."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return _FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns."""
        return BlocksReader(self.options["blocks"], schema.json())


class BlocksReader(DataSourceReader):
    """Plans from the list, reads by pyarrow. Planning and reading happen in different processes."""

    def __init__(self, listed: str, schema_json: str) -> None:
        self._listed = listed
        self._schema_json = schema_json

    def partitions(self) -> Sequence[InputPartition]:
        """The blocks in groups."""
        listed = msgspec.json.decode(self._listed, type=Listed)
        return grouped(listed.locations, listed.sizes, listed.schema_ids, listed.history, PARTITION_BYTES)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a group of blocks."""
        if not isinstance(partition, BlockGroup):
            return
        target = spark_arrow_schema(self._schema_json)
        for location, written in zip(partition.locations, partition.written, strict=True):
            yield from read_rows(location, target, {}, written=written, current=partition.current)


def python_scan(gateway: Gateway, table: LakeTable, kept: Kept, struct: str) -> Any:
    """Spark's own scan (a JVM object) that reads the kept blocks in Python workers; ``struct``: the columns, as JSON.

    Raises:
        LamellaError: this version of Spark plans it in another way than is known here.
    """
    listed = Listed(kept.locations, kept.sizes, kept.schema_ids, table.history)
    gateway.spark.dataSource.register(BlocksSource)
    frame = (
        gateway.spark.read.format(_FORMAT)
        .schema(StructType.fromJson(json.loads(struct)))
        .option("blocks", msgspec.json.encode(listed).decode())
        .load()
    )
    plan = frame._jdf.queryExecution().optimizedPlan()
    if str(plan.getClass().getSimpleName()) != "DataSourceV2ScanRelation":
        raise LamellaError(
            "blocks of this table name their columns in different ways, which this version of Spark cannot read in one"
            f" scan ({plan.getClass().getSimpleName()}); use lamella.client.spark.read(), or compact the table"
        )
    return plan.scan()
