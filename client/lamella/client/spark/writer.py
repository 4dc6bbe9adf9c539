"""Writes a frame as blocks of a table: matches its columns, batches its rows, commits its blocks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from lamella.client.http import Lamella
from lamella.client.rewrite.block_writer import WrittenBlocks
from lamella.client.rewrite.commit import TableState
from lamella.client.rewrite.engine import Progress, ScratchSpace, merge_runs, scratch_space
from lamella.client.rewrite.stages import Sink, SinkResult
from lamella.client.rewrite.target import Target
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.lake import service
from lamella.client.write.commit import EVERY_ROW, RowsCommit
from lamella.client.write.layout import Layout, WriteResult, require_sizes
from lamella.client.write.new_table import table_for
from lamella.snapshot.errors import (
    InvalidRequest,
    SchemaMismatch,
)
from lamella.snapshot.schema import Column, Schema, parse_type, quoted, widens
from lamella.snapshot.schema.arrow import decimals_of
from lamella.snapshot.schema.spark_types import columns_of, spark_schema
from lamella.snapshot.stats.ranges import NARROW_DIGITS
from lamella.snapshot.wire import SchemaUpdate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Spark's default of ``_BYTES``.
_USUAL_BYTES: Final = "67108864b"
_WITHOUT_LIMIT: Final = str(2**31 - 1)
#: Rows per batch that stay below Spark's usual limit if they have at most 16 KiB each; smaller batches are slower.
BATCH_ROWS: Final = 4_000
_WIDEST_BYTES: Final = 16 << 10

_lock = threading.Lock()
_lent: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()


@contextmanager
def batches_limited_by_rows(frame: DataFrame, row_bytes: float | None) -> Iterator[None]:
    """Limit batches by rows instead of bytes, for queries of the frame's session that start inside the block.

    With a limit in bytes Spark 4.3 sums the sizes of all columns after every row, which takes longer than writing the
    row. The limit in bytes stays if the user set one, if rows are known to be wide (``row_bytes``: bytes per row, None:
    unknown), and if the frame itself passes rows to Python, which may be wider than its output; for a frame of Spark
    Connect this is unknown. Concurrent writes of a session share the change; the last one to end reverts it.
    """
    spark = frame.sparkSession
    is_wide = row_bytes is not None and row_bytes > _WIDEST_BYTES
    if is_wide or _may_run_python(frame) or not _begin(spark):
        yield
        return
    try:
        yield
    finally:
        _end(spark)


def _may_run_python(frame: DataFrame) -> bool:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if not isinstance(frame, ClassicFrame):
        return True
    jvm: Any = frame.sparkSession._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    return bool(frame._jdf.queryExecution().analyzed().containsPattern(pattern))


def _begin(spark: SparkSession) -> bool:
    with _lock:
        if spark in _lent:
            count, rows = _lent[spark]
            _lent[spark] = (count + 1, rows)
            return True
        if _limit(spark) != _USUAL_BYTES:
            return False
        rows = str(spark.conf.get(_ROWS))
        spark.conf.set(_BYTES, _WITHOUT_LIMIT)
        if not 0 < int(rows) <= BATCH_ROWS:
            spark.conf.set(_ROWS, str(BATCH_ROWS))
        _lent[spark] = (1, rows)
    return True


def _limit(spark: SparkSession) -> str | None:
    """Return the session's limit in bytes; None for Spark versions that have none."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(_BYTES))
    except PySparkException:
        return None


def _end(spark: SparkSession) -> None:
    with _lock:
        count, rows = _lent.pop(spark)
        if count > 1:
            _lent[spark] = (count - 1, rows)
            return
        with suppress(Exception):  # the session may have ended, which is reported elsewhere
            spark.conf.unset(_BYTES)
            spark.conf.set(_ROWS, rows)


def align_columns(frame: DataFrame, schema: Schema) -> DataFrame:
    """Return the frame with the table's columns in its order, named by position: mapInArrow fails on dots in names.

    Raises:
        SchemaMismatch: columns without a default are missing, or columns are unknown or have types that do not fit.
    """
    return frame.select(*_align_column(frame, schema)).toDF(*[f"c{at}" for at in range(len(schema.columns))])


def matched_columns(given: Sequence[Column], schema: Schema) -> list[tuple[Column, Column | None]]:
    """Return the table's columns in its order, each with the column of a frame that has its values; None: it gets its
    default.

    Raises:
        SchemaMismatch: columns without a default are missing, or columns are unknown or have types that do not fit.
    """
    by_name = {column.name.lower(): column for column in given}
    if len(by_name) != len(given):
        raise SchemaMismatch("the frame has two columns of one name, without regard to case")
    wanted = {column.name.lower(): column for column in schema.columns}
    missing = [
        column.name for key, column in wanted.items() if key not in by_name and column.default_of_new_rows is None
    ]
    strange = [column.name for key, column in by_name.items() if key not in wanted]
    if missing or strange:
        raise SchemaMismatch(
            f"the frame's columns are not the table's: missing {missing}, unknown {strange}",
            columns=[*missing, *strange],
        )
    spark_schema(schema, time_type=True).check(wanted)
    for key, column in wanted.items():
        if key in by_name and not _fits(by_name[key], column):
            raise SchemaMismatch(
                f"column {column.name!r} is {_text(by_name[key])} in the frame and {_text(column)} in the table",
                column=column.name,
            )
    return [(column, by_name.get(key)) for key, column in wanted.items()]


def _align_column(frame: DataFrame, schema: Schema) -> list[Any]:
    """Return the frame's columns in the table's order, names and types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    matched = matched_columns(columns_of(frame.schema.json()), schema)
    types = StructType.fromJson(json.loads(spark_schema(schema, time_type=True).readable))
    selected = []
    for column, given in matched:
        values = F.expr(types[column.name].metadata["CURRENT_DEFAULT"]) if given is None else F.col(quoted(given.name))
        selected.append(values.cast(types[column.name].dataType).alias(column.name))
    return selected


def decimals_unscaled(frame: DataFrame, schema: Schema) -> tuple[DataFrame, dict[int, pa.DataType]]:
    """Return an aligned frame with decimals of few digits as integers, in units of their last digit; and the types of
    these columns, by position.

    On the way to Python, Spark makes two objects and an array of bytes of a decimal, and nothing of an integer. Frames
    of Spark Connect keep their decimals, since the function exists on classic sessions only.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    decimals = {
        at: pa.decimal128(column.dtype.precision, column.dtype.scale)
        for at, column in enumerate(schema.columns)
        if column.dtype.name == "decimal" and column.dtype.precision <= NARROW_DIGITS
    }
    if not decimals or not isinstance(frame, ClassicFrame):
        return frame, {}
    from py4j.protocol import Py4JError
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = frame.sparkSession._jvm
    try:
        utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
        unscaled = jvm.org.apache.spark.sql.catalyst.expressions.UnscaledValue
        columns = [
            ClassicColumn(utils.column(unscaled(utils.expression(F.col(name)._jc)))).alias(name)
            if at in decimals
            else F.col(name)
            for at, name in enumerate(frame.columns)
        ]
    except (Py4JError, TypeError):  # another version of Spark
        return frame, {}
    return frame.select(*columns), decimals


def decimals_scaled(batch: pa.RecordBatch, decimals: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    """Return a batch with the decimals that integers stand for; ``decimals``: see :func:`decimals_unscaled`."""
    if not decimals:
        return batch
    arrays = [
        decimals_of(values, decimals[at]) if at in decimals else values for at, values in enumerate(batch.columns)
    ]
    return pa.record_batch(arrays, names=batch.schema.names)


def _fits(given: Column, wanted: Column) -> bool:
    """Whether every value can be stored; values of narrower types are checked when they are written."""
    if given.dtype.is_nested or wanted.dtype.is_nested:
        same = given.type == wanted.type and len(given.fields) == len(wanted.fields)
        return same and all(
            one.name == other.name and _fits(one, other) for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    if widens(given.dtype, wanted.dtype):
        return True
    # Types under which Spark shows a table's column are accepted: uint32 as bigint, enum as string, fixed(4) as binary.
    back = json.loads(spark_schema(Schema.assign([wanted]), time_type=True).readable)["fields"]
    return bool(back) and isinstance(back[0]["type"], str) and widens(given.dtype, parse_type(_plain(back[0]["type"])))


def _plain(spark: str) -> str:
    return {"time(6)": "time(us)", "time(9)": "time(ns)"}.get(spark, spark)


def _text(column: Column) -> str:
    if not column.dtype.is_nested:
        return column.type
    return f"{column.type}<{', '.join(_text(part) for part in column.fields)}>"


_SUNK: Final = "sunk binary"


def write(
    frame: DataFrame,
    name: str,
    *,
    url: str | None = None,
    client: Lamella | None = None,
    cluster_by: Sequence[str] | None = None,
    target_block_rows: int | None = None,
    target_block_bytes: int | None = None,
    mode: Literal["append", "overwrite"] = "append",
    where: str | None = None,
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    compression: str = "zstd",
    indexes: bool = True,
    set_properties: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
    progress: Progress | None = None,
) -> WriteResult:
    """Write a frame's rows to ``namespace.table`` as sorted blocks with exact statistics, in one commit.

    Works on classic sessions and on Spark Connect; driver and executors need ``lamella`` and access to the warehouse.
    The frame's plan runs once.

    ``url`` or ``client``: the service. ``cluster_by``: columns (dotted paths) to sort by; by default the table's
    cluster key, and a new table gets this one; without any the frame's order is kept. A block ends at
    ``target_block_rows`` rows or about ``target_block_bytes`` bytes of file, and rows are split evenly; None: the
    table's properties of these names, otherwise a million rows or 128 MiB. ``create``: create the table and its
    namespace when they do not exist. ``indexes``: also write entries of the table's skip indexes for the new blocks.
    ``storage_options``: fsspec options by scheme for driver and executors, as of ``FsspecStore``. ``scratch``: a folder
    (URL) that all executors can reach, for intermediate sorted rows; by default a temporary one in Spark's local mode,
    otherwise one beside the table's blocks. ``progress`` is called with the number of rows in finished blocks, and the
    total.

    ``mode`` "overwrite": the same commit removes all rows that the table has by then, or those for which ``where``
    (SQL, in the session's time zone) is true. What others commit in the meantime stays. A frame that reads the same
    table may miss rows that others add in the meantime, which the overwrite then removes: ``INSERT OVERWRITE`` prevents
    that.

    ``set_properties``: table properties set by the commit; without rows there is no commit. ``idempotency_key``: of an
    append's commit; of several writes with one key, one is committed.

    A retried task or a failed commit leaves only files that no snapshot refers to: a table that was created for the
    frame is dropped again, unless it has changed in the meantime.

    Raises:
        TableNotFound: no such table, and ``create`` is off.
        SchemaMismatch: the frame's columns are not the table's, or a value does not fit.
        InvalidSchema: a type that a table cannot have, or that cannot be written.
        InvalidRequest: an unknown mode, targets below 1, neither or both of ``url`` and ``client``, arguments of the
            other mode.
        FilterNotEvaluable, InvalidFilter: ``where`` cannot be decided row by row.
        IdempotencyMismatch: the key was used for another commit; nothing was done.
        CommitConflict: other writers replaced the same blocks on every attempt; nothing was done.
        OutcomeUnknown: the commit may have happened, see the table's history; another call writes the rows again.
    """
    rows_commit = _rows_commit(frame, mode, where, set_properties, idempotency_key)
    require_sizes(target_block_rows, target_block_bytes)
    with service(url, client) as lake:
        layout = Layout(
            keys=None if cluster_by is None else tuple(cluster_by),
            block_rows=target_block_rows,
            block_bytes=target_block_bytes,
            compression=compression,
            indexes=indexes,
            storage_options=storage_options or {},
            scratch=scratch,
        )
        with table_for(lake, name, lambda: columns_of(frame.schema.json()), cluster_by, properties, create=create):
            return write_into(lake, name, frame, rows_commit, layout, progress)


def write_into(
    lake: Lamella,
    name: str,
    frame: DataFrame,
    rows_commit: RowsCommit,
    layout: Layout,
    progress: Progress | None = None,
    *,
    schema_update: SchemaUpdate | None = None,
) -> WriteResult:
    """Same as :func:`write`, into an existing table; the commit makes the changes of ``schema_update`` too."""
    state = TableState.read(lake, name).with_update(schema_update)
    # Errors of what cannot be written or decided are raised before anything runs.
    target = layout.target_of(state)
    rows_commit.check(target.schema)
    engine = SparkEngine(frame.sparkSession)
    with scratch_space(target, is_near=engine.is_near, folder=layout.scratch) as space:
        summary = state.snapshot.summary
        row_bytes = summary.uncompressed_byte_size / summary.row_count if summary.row_count else None
        written = write_rows(frame, engine, target, space, progress, row_bytes=row_bytes)
        committed = rows_commit.apply(lake, engine, state, target, written, scratch=layout.scratch)
    blocks = [block for each in written for block in each.blocks]
    return WriteResult(
        blocks=len(blocks),
        rows=sum(block.row_count for block in blocks),
        size_bytes=sum(block.file_size for block in blocks),
        snapshot_id=committed.snapshot_id,
        rows_removed=committed.rows_removed,
        committed=committed.committed,
    )


def write_rows(
    frame: DataFrame,
    engine: SparkEngine,
    target: Target,
    space: ScratchSpace,
    progress: Progress | None = None,
    *,
    row_bytes: float | None = None,
) -> list[WrittenBlocks]:
    """Write a frame's rows as blocks that are in no snapshot yet. ``row_bytes``: bytes per row of the table so far."""
    sink = Sink(target=target, scratch=space.scratch)
    aligned, unscaled = decimals_unscaled(align_columns(frame, target.schema), target.schema)

    def drained(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sunk = sink.drain(decimals_scaled(batch, unscaled) for batch in batches)
        yield pa.record_batch([pa.array([msgspec.json.encode(sunk)], pa.binary())], names=["sunk"])

    with batches_limited_by_rows(frame, row_bytes):
        rows = aligned.mapInArrow(drained, _SUNK).collect()
    sunk = [msgspec.json.decode(bytes(row["sunk"]), type=SinkResult) for row in rows]
    runs = [run for each in sunk for run in each.runs]
    space.used(runs, [each.written for each in sunk])
    return [*(each.written for each in sunk), *merge_runs(engine, target, space, runs, progress)]


def _rows_commit(
    frame: DataFrame,
    mode: str,
    where: str | None,
    set_properties: Mapping[str, str] | None,
    idempotency_key: str | None,
) -> RowsCommit:
    properties = dict(set_properties or {})
    if mode == "append":
        if where is not None:
            raise InvalidRequest("where says which rows an overwrite replaces; an append replaces none")
        return RowsCommit(properties=properties, idempotency_key=idempotency_key)
    if mode != "overwrite":
        raise InvalidRequest(f"a table can be appended to or overwritten, not {mode!r}")
    if idempotency_key is not None:
        raise InvalidRequest("an overwrite takes no idempotency key: done again, it does the same")
    time_zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone", "UTC"))
    return RowsCommit(replaces=EVERY_ROW if where is None else where, time_zone=time_zone, properties=properties)
