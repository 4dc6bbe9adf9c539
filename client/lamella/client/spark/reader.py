"""Reads a table with a filter given in advance; works on classic sessions and on Spark Connect."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from lamella.client.http import Lamella
from lamella.client.spark.block_scan import relation_frame
from lamella.client.spark.connect_columns import ColumnWalker
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import (
    BlockSelection,
    LakeTable,
    Settings,
    client_of,
    layouts,
    load_table,
    plain_options,
    refuse_hidden,
    service,
    unix_ms,
)
from lamella.client.spark.parquet_pushdown import reader_options, refuse_case_sensitive, unambiguous_columns
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB: Final = re.compile(r"([\\*?\[\]{}])")


def read(
    spark: SparkSession,
    name: str,
    *,
    where: Column | str | None = None,
    url: str | None = None,
    client: Lamella | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: str | None = None,
    timestamp: dt.datetime | int | None = None,
    allow_fallback: bool = False,
    page_index: bool | None = None,
    signed_urls: bool = False,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> DataFrame:
    """Return ``namespace.table`` as a frame that reads only the blocks that may match ``where``.

    ``where`` is also applied to the frame, so the rows are exact. It is a column expression or SQL text. On Spark
    Connect only ``where`` prunes, since the blocks are selected by this call; filters added to the frame later do not.
    On a classic session they do.

    ``url`` or ``client``: the service. ``columns``: only these; required when the table has a column that Spark cannot
    read. ``snapshot_id`` or ``timestamp`` (aware datetime or Unix milliseconds): the state to read. ``allow_fallback``,
    ``page_index``, ``signed_urls``, ``storage_options``: see :func:`lamella.client.spark.attach`.

    Raises:
        TableNotFound, NamespaceNotFound, SnapshotNotFound.
        InvalidFilter: SQL text that the service cannot parse.
        InvalidSchema: a column that Spark cannot read.
    """
    if (url is None) == (client is None):
        raise InvalidRequest("give either the service's url or a client")
    settings = Settings(
        allow_fallback=allow_fallback,
        page_index=page_index,
        signed_urls=signed_urls,
        storage_options=plain_options(storage_options),
    )
    time_type = spark.conf.get("spark.sql.timeType.enabled", "false") == "true"

    def load(lake: Lamella) -> LakeTable:
        at_ms = unix_ms(timestamp)
        table = load_table(lake, name, settings, snapshot_id=snapshot_id, timestamp_ms=at_ms, time_type=time_type)
        table.columns.check(column.name for column in table.schema.columns if columns is None)
        table.columns.check(columns or ())
        return table

    if getattr(spark, "_jsparkSession", None) is not None:
        # The frame calls the service each time it runs, so the client must live as long as the frame.
        lake = client_of(client if client is not None else str(url))
        try:
            table = load(lake)
        except LamellaError:
            if client is None:
                lake.close()
            raise
        if table.is_plain(columns) and not signed_urls:
            frame = relation_frame(Gateway(spark), table, columns)
        else:
            frame = _catalog_frame(spark, lake, table, columns)
    else:
        with service(url, client) as lake:
            frame = _path_frame(spark, load(lake), where)
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*map(quoted, columns))


def _path_frame(spark: SparkSession, table: LakeTable, where: Column | str | None) -> DataFrame:
    """Return a frame over the selected files, given one by one; Spark's own reader reads all that it can."""
    refuse_case_sensitive(spark)
    time_zone = str(spark.conf.get("spark.sql.session.timeZone", "UTC"))
    candidate_columns = unambiguous_columns(table.schema)
    selection = table.selection(
        _filter(table, where), time_zone=time_zone, reader_columns=candidate_columns, spark_checks=True
    )
    count = len(selection.locations)
    constants, deletes = selection.constants or [None] * count, selection.deletes or [None] * count
    plain = [
        number for number in range(count) if not (table.settings.signed_urls or constants[number] or deletes[number])
    ]
    if len(plain) == count:
        return _native_frame(spark, table, selection)
    from lamella.client.spark.python_blocks import blocks_frame

    others = sorted(set(range(count)).difference(plain))
    frame = blocks_frame(spark, table, selection.part(others), table.columns.readable)
    return frame.unionAll(_native_frame(spark, table, selection.part(plain))) if plain else frame


def _native_frame(spark: SparkSession, table: LakeTable, selection: BlockSelection) -> DataFrame:
    """Return a frame of Spark's own reader over blocks whose files have all columns and no deleted rows."""
    from pyspark.sql.types import StructType

    readable = json.loads(table.columns.readable)
    schema = StructType.fromJson(readable)
    refuse_hidden(selection.locations)
    paths = [_GLOB.sub(r"\\\1", path) for path, _ in selection.files()]
    if not paths:
        return spark.createDataFrame([], schema)
    # Without recursiveFileLookup, a folder named "day=2024-01-01" would become a column.
    options = reader_options(table.schema, page_index=table.trusts_page_index(selection), believed=selection.believed)
    options["recursiveFileLookup"] = "true"
    frames = []
    for layout, schema_ids in layouts(readable, table.history, selection.schema_ids).items():
        chosen = [path for path, schema_id in zip(paths, selection.schema_ids, strict=True) if schema_id in schema_ids]
        found = spark.read.schema(StructType.fromJson(json.loads(layout))).options(**options).parquet(*chosen)
        frames.append(_under(found, schema))
    return reduce(lambda one, other: one.unionAll(other), frames)


def _under(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the frame with the names of ``schema``, whose columns it has in the same order; also fields of structs."""
    from pyspark.sql import functions as F

    columns = [
        F.col(quoted(name)).cast(field.dataType).alias(field.name)
        for name, field in zip(frame.columns, schema.fields, strict=True)
    ]
    return frame.select(*columns) if frame.schema.jsonValue() != schema.jsonValue() else frame


def _catalog_frame(spark: SparkSession, lake: Lamella, table: LakeTable, columns: Sequence[str] | None) -> DataFrame:
    """Return the table through a catalog, which can read blocks whose columns have earlier names."""
    from lamella.client.spark.attachment import attach

    settings = table.settings
    attached = attach(
        spark,
        f"lamella_read_{crc32(lake.url.encode()):x}{'_signed' if settings.signed_urls else ''}",
        lake,
        allow_fallback=settings.allow_fallback,
        page_index=settings.page_index,
        signed_urls=settings.signed_urls,
        storage_options=settings.storage_options,
        mode="catalog",
    )
    return attached.table(table.name, snapshot_id=table.snapshot_id, columns=columns)


def _filter(table: LakeTable, where: Column | str | None) -> Mapping[str, Any] | str | None:
    if where is None or isinstance(where, str):
        return where
    expression = getattr(where, "_expr", None)
    if expression is None:
        raise InvalidRequest("the filter is a column of a classic session; this is a Spark Connect session")
    return ColumnWalker(table.schema).tree(expression)
