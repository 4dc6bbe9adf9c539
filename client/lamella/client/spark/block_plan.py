"""The blocks that may hold matching rows, as a frame: the service says which segments are left, and Spark's executors
test the blocks of these.

An executor gets segments, the filter, and the table's schemas and indexes. It reads sidecars and parts of indexes from
the store, with which it tests blocks as the service does (:mod:`lamella.snapshot.warehouse.segment_prune`). It does not
call the service. Where the session has no access to the store, the service gives the whole answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from lamella.client.spark.block_list import BLOCK_COLUMNS, BlockFacts, ConstantTexts, struct_of
from lamella.client.spark.listed_source import ListedSource, listed_frame
from lamella.client.spark.python_blocks import plain_struct, spark_arrow_schema
from lamella.snapshot.errors import InvalidRequest, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.prune.result import SegmentSelection
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.segment_prune import (
    LeftSegment,
    SegmentPrune,
    at_time,
    head_of,
    left_segments,
    selected_blocks,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lamella.client.http.call import Filter
    from lamella.client.spark.gateway import Gateway
    from lamella.client.spark.lake import LakeTable

#: Columns of the frame, with Spark's types: those of ``t$blocks``, and two more.
PLAN_COLUMNS: Final = {**BLOCK_COLUMNS, "segment_id": "string", "verdict": "string"}
#: The column in which a task says why it cannot go on.
_FAILURE: Final = "failure"
_STRUCT: Final = struct_of({**PLAN_COLUMNS, _FAILURE: "string"})
#: Segments (of about a thousand blocks each) in a task at least, and tasks for each core at most.
_MIN_SEGMENTS: Final = 8
_TASKS_A_CORE: Final = 4
#: Rows of a batch, about.
_BATCH_ROWS: Final = 10_000
#: What a process of an executor keeps of indexes, and of the sidecars of a remote store.
_CACHE_BYTES: Final = 128 << 20
_log = logging.getLogger(__name__)


class PlannedSegments(msgspec.Struct, frozen=True, kw_only=True):
    """The segments that are left, as JSON for an option; ``segments_in_task``: how many a task gets."""

    prune: SegmentPrune
    segments_in_task: int
    storage_options: dict[str, dict[str, Any]] = {}

    def tasks(self) -> Iterator[PlannedSegments]:
        """Yield the segments in groups."""
        segments = self.prune.segments
        for start in range(0, len(segments), self.segments_in_task):
            some = segments[start : start + self.segments_in_task]
            yield msgspec.structs.replace(self, prune=msgspec.structs.replace(self.prune, segments=some))

    def rows(self, struct: str) -> Iterator[pa.RecordBatch]:
        """Yield the blocks that may hold a matching row; ``struct``: :data:`_STRUCT`.

        If a segment cannot be read, a row with nothing but the reason comes before the error: the frame raises it
        first, without a traceback of the worker.
        """
        types = spark_arrow_schema(struct)
        schemas = {schema.schema_id: schema for schema in self.prune.head.history}
        waiting: list[pa.RecordBatch] = []
        try:
            manifests = _manifests(msgspec.json.encode(self.storage_options))
            for part in selected_blocks(manifests, self.prune):
                waiting.append(_rows_of(part, self.prune.segments[part.segment], schemas, types))
                if sum(batch.num_rows for batch in waiting) >= _BATCH_ROWS:
                    yield from _together(waiting)
                    waiting = []
        except LamellaError as error:
            failure = f"[lamella.{error.code}] {error.message}"
            yield pa.RecordBatch.from_pylist([{_FAILURE: failure}], schema=types)
            raise  # no answer without these blocks, whatever Spark does with that row
        yield from _together(waiting)


class BlockPlanSource(ListedSource):
    """``format("lamella_block_plan")``: the blocks of the segments that the option lists."""

    FORMAT = "lamella_block_plan"
    LISTED = PlannedSegments


@lru_cache(maxsize=1)
def _manifests(storage_options: bytes) -> Manifests:
    """Return what reads sidecars and indexes; tasks of one process share it."""
    return Manifests(FsspecStore(msgspec.json.decode(storage_options)), _CACHE_BYTES)


def _together(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches()) if batches else []


def _rows_of(
    part: SegmentSelection, segment: LeftSegment, schemas: dict[int, Schema], types: pa.Schema
) -> pa.RecordBatch:
    """Return the rows of blocks of a segment."""
    sidecar, rows, count = part.sidecar, part.rows, len(part.rows)
    row_counts, live = part.numbers("row_count"), sidecar.live_row_counts()[rows]
    written = sidecar.written_with()
    schema_ids = np.full(count, written) if isinstance(written, int) else written[rows]
    columns = {
        "location": sidecar.text_array("location", rows),
        "row_count": row_counts,
        "deleted_row_count": pa.array(row_counts - live, mask=live < 0),
        "file_size_bytes": part.numbers("file_size"),
        "schema_id": schema_ids,
        "constants": [
            list(_texts(constants, schema_id, schemas))
            for constants, schema_id in zip(sidecar.constants(rows), schema_ids.tolist(), strict=True)
        ],
        "segment_id": pa.repeat(segment.segment_id, count),
        "verdict": part.verdicts(),
        _FAILURE: pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([_typed(columns[field.name], field.type) for field in types], schema=types)


def _texts(constants: Any, schema_id: int, schemas: dict[int, Schema]) -> ConstantTexts:
    return BlockFacts("", 0, 0, schema_id, constants, ()).constant_texts(schemas) if constants else ()


def _typed(values: Any, dtype: pa.DataType) -> pa.Array:
    return values.cast(dtype) if isinstance(values, pa.Array) else pa.array(values, dtype)


def block_plan(gateway: Gateway, table: LakeTable, filter: Filter, partitions: int | None) -> DataFrame:
    """Return the blocks of a table at its snapshot that may hold a row for which ``filter`` is true, with
    :data:`PLAN_COLUMNS`; in about ``partitions`` tasks.

    Raises:
        InvalidRequest: a number of partitions below 1, or a filter that is neither text nor a tree.
        LamellaError: the service's error.
    """
    if partitions is not None and partitions < 1:
        raise InvalidRequest(f"partitions must be at least 1, not {partitions}", partitions=partitions)
    if not isinstance(filter, str | bool | dict | None):
        raise InvalidRequest(f"the filter of a plan is SQL text or a JSON tree, not {type(filter).__name__}")
    time_zone = gateway.time_zone()
    fixed = at_time(filter, time_zone=time_zone, now_us=time.time_ns() // 1_000)
    prune = None if table.settings.signed_urls else _prune_of_segments(table, fixed, time_zone)
    if prune is None:
        return _by_service(gateway, table, fixed, time_zone)
    count = len(prune.segments)
    if partitions is None:
        cores = int(gateway.spark.sparkContext.defaultParallelism)
        partitions = max(1, min(count // _MIN_SEGMENTS, _TASKS_A_CORE * cores))
    listed = PlannedSegments(
        prune=prune,
        segments_in_task=max(1, -(-count // partitions)),
        storage_options=table.settings.storage_options,
    )
    failure = F.col(_FAILURE)
    # Spark evaluates no other condition before one that is not deterministic.
    is_row = F.when(failure.isNull(), F.monotonically_increasing_id() >= 0)
    succeeds = is_row.otherwise(F.raise_error(failure).cast("boolean"))
    return listed_frame(gateway.spark, BlockPlanSource, listed, _STRUCT).where(succeeds).drop(_FAILURE)


def _prune_of_segments(table: LakeTable, filter: Any, time_zone: str) -> SegmentPrune | None:
    """Return the segments that are left, as executors need them; None: this process has no access to the store."""
    answer = table.handle.prune(
        filter, snapshot_id=table.snapshot_id, time_zone=time_zone, level="segment", reader_features=FEATURES
    )
    snapshot = table.handle.snapshot(table.snapshot_id)
    manifests = Manifests(FsspecStore(table.settings.storage_options), _CACHE_BYTES)
    try:
        segments = left_segments(manifests, snapshot, answer.segments or ())
    except (StoreError, ObjectNotFound) as error:
        _log.warning("the service plans all of %s: its sidecars cannot be read here: %s", table.key, error.message)
        return None
    return SegmentPrune(head=head_of(snapshot), segments=segments, filter=filter, time_zone=time_zone)


def _by_service(gateway: Gateway, table: LakeTable, filter: Any, time_zone: str) -> DataFrame:
    """Return the same frame from the service's answer; the driver has its rows."""
    answer = table.handle.prune(
        filter, snapshot_id=table.snapshot_id, time_zone=time_zone, shape="ranges", reader_features=FEATURES
    )
    found = table.handle.resolve(answer, reader_features=FEATURES).block_columns
    ranges = answer.block_ranges
    if found is None or ranges is None:
        raise LamellaError(f"the service's answer for {table.key} lists no blocks")
    schemas = {schema.schema_id: schema for schema in table.history}
    count = len(found.location)
    segment_ids = chain.from_iterable(
        repeat(ranges.segment_id[segment], blocks)
        for segment, blocks in zip(ranges.segment, ranges.block_count, strict=True)
    )
    facts = [
        BlockFacts(location, rows, size, ranges.schema_id if older is None else older, constants or {}, deletes or ())
        for location, rows, size, older, constants, deletes in zip(
            found.location,
            found.row_count,
            found.file_size,
            found.schema_id or repeat(None, count),
            found.constants or repeat(None, count),
            found.deletes or repeat(None, count),
            strict=True,
        )
    ]
    columns = {
        "location": found.location,
        "row_count": found.row_count,
        "deleted_row_count": [each.deleted_row_count for each in facts],
        "file_size_bytes": found.file_size,
        "schema_id": [each.schema_id for each in facts],
        "constants": [list(each.constant_texts(schemas)) for each in facts],
        "segment_id": list(segment_ids),
        "verdict": found.verdict,
    }
    struct = struct_of(PLAN_COLUMNS)
    types = spark_arrow_schema(struct)
    rows = pa.table([pa.array(columns[field.name], field.type) for field in types], schema=types)
    return gateway.spark.createDataFrame(rows, plain_struct(struct))
