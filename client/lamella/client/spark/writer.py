"""Writing a frame as blocks of a table."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.client.http import Lamella
from lamella.client.spark.arrow_types import arrow_schema
from lamella.client.spark.lake import service
from lamella.client.spark.partition import REPORT, WritePartition
from lamella.client.spark.types import columns_of, spark_schema
from lamella.snapshot.errors import AlreadyExists, InvalidRequest, NamespaceNotFound, SchemaMismatch, TableNotFound
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema, parse_type, widens
from lamella.snapshot.wire import TableInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Arrow bytes of rows that one task should hold; it sorts them in memory.
PARTITION_BYTES: Final = 192 << 20
# Spark's own guesses of a value's width, where its type does not say.
_WIDTHS: Final = {"string": 20, "binary": 100}
_DEFAULT_WIDTH: Final = 8
# How much smaller than Arrow a compressed file usually is; only the number of tasks depends on it.
_COMPRESSION: Final = 3
_BLOCK: Final = msgspec.json.Decoder(Block)


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a write added; ``snapshot_id`` is the snapshot that holds it."""

    blocks: int
    rows: int
    size_bytes: int
    snapshot_id: str


def write(
    frame: DataFrame,
    name: str,
    *,
    url: str | None = None,
    client: Lamella | None = None,
    cluster_by: Sequence[str] | None = None,
    target_block_rows: int = 1_000_000,
    target_block_bytes: int = 128 << 20,
    mode: str = "append",
    create: bool = True,
    properties: Mapping[str, str] | None = None,
    row_count: int | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> WriteResult:
    """Append a frame's rows to ``namespace.table`` as sorted blocks with exact statistics, in one commit.

    Works on classic sessions and on Spark Connect; the executors need ``lamella`` and the warehouse.

    ``url`` or ``client``: the service. ``cluster_by``: columns (dotted paths) that the rows are range-partitioned and
    sorted by; by default the table's cluster key, which a new table takes from here; without any the frame's own
    order stays. A block ends at ``target_block_rows`` rows or about ``target_block_bytes`` bytes of file, and each
    task's rows are cut evenly. ``create``: make the table, and its namespace, when they are not there. ``row_count``:
    about how many rows there are; without it they are counted first, which runs the frame's plan once more.
    ``storage_options``: fsspec options by scheme for the executors, as of ``FsspecStore``.

    A task that is retried, or a commit that fails, leaves files that no snapshot refers to, and nothing else.

    Raises:
        TableNotFound: no such table, and ``create`` is off.
        SchemaMismatch: the frame's columns are not the table's, or a value does not fit.
        InvalidSchema: a type that a table cannot hold, or that cannot be written.
        InvalidRequest: another mode than "append", targets below 1, neither or both of ``url`` and ``client``.
        OutcomeUnknown: the commit may have happened, the table's history will say; another call writes the rows again.
    """
    if mode != "append":
        raise InvalidRequest(f"a table can be appended to, not {mode!r}")
    if target_block_rows < 1 or target_block_bytes < 1:
        raise InvalidRequest("a block has at least one row and one byte")
    with service(url, client) as lake:
        info = _table(lake, name, frame, cluster_by, create, properties or {})
        arrow_schema(info.schema)  # refuses what cannot be written before anything runs
        keys = tuple(info.cluster_key if cluster_by is None else cluster_by)
        key_columns = [_key_column(info.schema, key) for key in keys]
        rows = frame.select(*_aligned(frame, info.schema)).toDF(*_positions(info.schema))
        total = row_count if row_count is not None else rows.count()
        task = WritePartition(
            location=info.location,
            schema=info.schema,
            sort_by=keys,
            block_rows=target_block_rows,
            block_bytes=target_block_bytes,
            compression=compression,
            storage_options={scheme: dict(options) for scheme, options in (storage_options or {}).items()},
        )
        blocks: list[Block] = []
        if total > 0:
            spread = _spread(rows, key_columns, _tasks(rows, total, target_block_rows, target_block_bytes))
            # A lambda, since Spark asks a function for its name, which an object does not have.
            reports = spread.mapInArrow(lambda batches: task(batches), REPORT).collect()
            blocks = [_BLOCK.decode(report["block"]) for report in reports]
        if not blocks:
            return WriteResult(blocks=0, rows=0, size_bytes=0, snapshot_id=info.snapshot_id)
        answer = lake.table(name).commit(added=blocks, operation="append")
        return WriteResult(
            blocks=len(blocks),
            rows=sum(block.row_count for block in blocks),
            size_bytes=sum(block.file_size for block in blocks),
            snapshot_id=answer.snapshot_id,
        )


def _table(
    lake: Lamella,
    name: str,
    frame: DataFrame,
    cluster_by: Sequence[str] | None,
    create: bool,
    properties: Mapping[str, str],
) -> TableInfo:
    handle = lake.table(name)
    try:
        return handle.info()
    except (TableNotFound, NamespaceNotFound):
        if not create:
            raise
    columns = columns_of(frame.schema.json())
    schema = Schema.assign(columns)
    for key in cluster_by or ():
        schema.leaf(key)
    with contextlib.suppress(AlreadyExists):
        lake.create_namespace(handle.namespace)
    try:
        return lake.create_table(name, schema=columns, cluster_key=list(cluster_by or ()), properties=properties)
    except AlreadyExists:  # someone else was first
        return handle.info()


def _aligned(frame: DataFrame, schema: Schema) -> list[Any]:
    """The frame's columns in the table's order, names and types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    given = {column.name.lower(): column for column in columns_of(frame.schema.json())}
    if len(given) != len(frame.columns):
        raise SchemaMismatch("the frame has two columns of one name, without regard to case")
    wanted = {column.name.lower(): column for column in schema.columns}
    missing = [column.name for key, column in wanted.items() if key not in given and column.default is None]
    strange = [column.name for key, column in given.items() if key not in wanted]
    if missing or strange:
        raise SchemaMismatch(
            f"the frame's columns are not the table's: missing {missing}, unknown {strange}",
            columns=[*missing, *strange],
        )
    shown = spark_schema(schema, time_type=True)
    shown.check(wanted)
    types = StructType.fromJson(json.loads(shown.readable))
    selected = []
    for key, column in wanted.items():
        if key not in given:
            default = F.expr(types[column.name].metadata["EXISTS_DEFAULT"])
            selected.append(default.cast(types[column.name].dataType).alias(column.name))
            continue
        if not _fits(given[key], column):
            raise SchemaMismatch(
                f"column {column.name!r} is {_text(given[key])} in the frame and {_text(column)} in the table",
                column=column.name,
            )
        quoted = given[key].name.replace("`", "``")
        selected.append(F.col(f"`{quoted}`").cast(types[column.name].dataType).alias(column.name))
    return selected


def _fits(given: Column, wanted: Column) -> bool:
    """True when every value can be kept; values of narrower types are checked when they are written."""
    if given.fields or wanted.fields:
        same = given.type == wanted.type and len(given.fields) == len(wanted.fields)
        return same and all(
            one.name == other.name and _fits(one, other) for one, other in zip(given.fields, wanted.fields, strict=True)
        )
    if widens(given.dtype, wanted.dtype):
        return True
    # What Spark shows a column of the table as may come back: uint32 as bigint, enum as string, fixed(4) as binary.
    back = json.loads(spark_schema(Schema.assign([wanted]), time_type=True).readable)["fields"]
    return bool(back) and isinstance(back[0]["type"], str) and widens(given.dtype, parse_type(_plain(back[0]["type"])))


def _plain(spark: str) -> str:
    return {"time(6)": "time(us)", "time(9)": "time(ns)"}.get(spark, spark)


def _text(column: Column) -> str:
    return f"{column.type}<{', '.join(_text(part) for part in column.fields)}>" if column.fields else column.type


def _tasks(rows: DataFrame, total: int, block_rows: int, block_bytes: int) -> int:
    """Tasks that keep every core busy and hold their rows in memory, but never so many that blocks become small."""
    row_bytes = sum(_WIDTHS.get(field.dataType.typeName(), _DEFAULT_WIDTH) for field in rows.schema.fields)
    rows_per_block = max(1, min(block_rows, block_bytes * _COMPRESSION // row_bytes))
    most = max(1, total // rows_per_block)
    session = rows.sparkSession
    context = getattr(session, "_sc", None)
    cores = context.defaultParallelism if context is not None else _shuffle_partitions(session)
    return min(most, max(cores, math.ceil(total * row_bytes / PARTITION_BYTES)))


def _shuffle_partitions(session: Any) -> int:
    return int(session.conf.get("spark.sql.shuffle.partitions", "200"))


def _positions(schema: Schema) -> list[str]:
    # On their way to the tasks the columns are named by position: mapInArrow stumbles over dots in names.
    return [f"c{at}" for at in range(len(schema.columns))]


def _key_column(schema: Schema, key: str) -> str:
    """A cluster key (a dotted path) as a column of the frame whose columns are named by position."""
    path = schema.leaf(key).path
    top = [column.name for column in schema.columns].index(path[0])
    return ".".join([f"c{top}", *(f"`{part.replace('`', '``')}`" for part in path[1:])])


def _spread(rows: DataFrame, keys: Sequence[str], tasks: int) -> DataFrame:
    from pyspark.sql import functions as F

    if not keys:
        return rows.coalesce(tasks)
    return rows.repartitionByRange(tasks, *[F.col(key) for key in keys])
