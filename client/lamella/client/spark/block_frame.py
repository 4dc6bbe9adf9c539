"""Blocks of a table as a frame that knows of each row which block it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lamella.client.rewrite.source import Source, source_rows
from lamella.client.rewrite.tables import TableState
from lamella.client.rewrite.target import Target
from lamella.client.spark.arrow_types import spark_arrow_schema
from lamella.snapshot.schema.spark_types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Columns beside the table's: the number of the block among those asked for, and of the row in it.
BLOCK: Final = "__lamella_block"
ROW: Final = "__lamella_row"
_TASK_BYTES: Final = 64 << 20


def block_frame(
    spark: SparkSession,
    state: TableState,
    target: Target,
    sources: Sequence[Source],
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """All rows of some blocks, with :data:`BLOCK` and :data:`ROW`; ``columns``: of these (top-level) only.

    Raises:
        InvalidSchema: a column is of a type that Spark does not have.
    """
    from pyspark.sql.types import LongType, StructType

    schema = state.snapshot.schema
    wanted = [column.name for column in schema.columns if columns is None or column.name in columns]
    shown = spark_schema(schema, time_type=True)
    shown.check(wanted)
    fields = [field for field in json.loads(shown.readable)["fields"] if field["name"] in wanted]
    struct = StructType.fromJson({"type": "struct", "fields": fields}).add(BLOCK, LongType()).add(ROW, LongType())
    arrow = spark_arrow_schema(json.dumps({"type": "struct", "fields": fields}))
    tasks = list(_tasks(sources))
    schemas = {each.schema_id: each for each in target.history}

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = target.store()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for place, source in tasks[number]:
                    row = 0
                    if not wanted:  # the rows are only counted
                        yield _numbered([], [], place, range(source.row_count))
                        continue
                    for rows in source_rows(store, source, schemas, schema, arrow):
                        yield _numbered(rows.columns, wanted, place, range(row, row + rows.num_rows))
                        row += rows.num_rows

    if not tasks:
        return spark.createDataFrame([], struct)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, struct)


def _numbered(columns: Sequence[pa.Array], names: Sequence[str], block: int, rows: range) -> pa.RecordBatch:
    extra = [pa.array([block] * len(rows), pa.int64()), pa.array(rows, pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, *extra], names=[*names, BLOCK, ROW])


def _tasks(sources: Sequence[Source]) -> Iterator[list[tuple[int, Source]]]:
    some: list[tuple[int, Source]] = []
    size_bytes = 0
    for place, source in enumerate(sources):
        if some and size_bytes + source.file_size > _TASK_BYTES:
            yield some
            some, size_bytes = [], 0
        some.append((place, source))
        size_bytes += source.file_size
    if some:
        yield some
