"""The Python data source ``lamella``: reads a table without access to a JVM, also from SQL.

::

    spark.read.format("lamella").option("url", "http://127.0.0.1:8181").load("db.events")

Spark finds it through the module ``pyspark_lamella``. pyarrow reads the blocks, all columns of the schema at a time.
Spark does not prune columns here: give a schema with the columns that you need.

It does NOT implement Spark's filter push-down, on purpose. Spark 4.3 stores the plan of a push-down with the loaded
relation, not with the scan: after ``f.where("a < 10").count()``, ``f.count()`` reads the pruned blocks only, and in
``f.where(...).union(f.where(...))`` the last filter is used for both. Rows are lost silently. To prune blocks, use the
option ``prune``, or :func:`lamella.client.spark.read`, which is preferable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lamella.client.http import Lamella
from lamella.client.http.credential import token_of
from lamella.client.spark.lake import LakeTable, Settings, load_table
from lamella.client.spark.python_blocks import (
    PARTITION_BYTES,
    BlockGroup,
    BlockListOption,
    group_blocks,
    signed_blocks,
    spark_arrow_schema,
)
from lamella.snapshot.errors import InvalidRequest

__all__ = ["PARTITION_BYTES", "BlockGroup", "LamellaDataSource", "LamellaReader", "open_table"]


class LamellaDataSource(DataSource):
    """``format("lamella")``. Options: ``url``; ``table`` (or the path given to ``load``) as ``namespace.table``.

    Without ``url`` the service is that of ``LAMELLA_URL`` in the driver's environment. Only that service gets the token
    of ``LAMELLA_TOKEN`` or ``LAMELLA_TOKEN_FILE``, since the author of an SQL statement can name any URL.

    ``prune``: a condition as SQL text. Blocks without a matching row are skipped; the remaining blocks return all their
    rows, so repeat the condition in the query. ``timeZone``: for times in it (default UTC).

    Other options: ``snapshotId`` or ``timestampMs`` (Unix milliseconds) select the snapshot, ``token`` is the
    service's, ``allowFallback`` reads all blocks when pruning fails, ``partitionBytes`` is the size of partitions,
    ``storageOptions`` are fsspec options by scheme as JSON. ``signedUrls``: read by URLs that the service signs when
    the read is planned, without credentials for the store.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format`` and ``USING``."""
        return "lamella"

    def schema(self) -> StructType:
        """Return the table's columns; raises InvalidSchema when Spark cannot read one of them."""
        with open_table(self.options) as table:
            table.columns.check(column.name for column in table.schema.columns)
        return StructType.fromJson(json.loads(table.columns.readable))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of these columns."""
        made = LamellaReader(dict(self.options), schema.json())
        # Spark now sends this object to executors, which do not call the service.
        self.options = _without_token(self.options)
        return made


class LamellaReader(DataSourceReader):
    """Plans by calling the service, reads with pyarrow. Planning and reading run in different processes."""

    def __init__(self, options: dict[str, str], schema_json: str) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self._schema_json = schema_json

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": _without_token(self._options)}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the blocks to read, in groups of about ``partitionBytes``."""
        with open_table(self._options) as table:
            selection = table.selection(self._options.get("prune"), time_zone=self._options.get("timezone", "UTC"))
            signed = signed_blocks(table, selection)
        limit = int(self._options.get("partitionbytes", PARTITION_BYTES))
        return group_blocks(BlockListOption.of(table, selection), limit, signed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group of blocks. Spark passes None when there is no group."""
        if not isinstance(partition, BlockGroup):
            return
        yield from partition.rows(spark_arrow_schema(self._schema_json))


def _without_token(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.lower() != "token"}


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


@contextmanager
def open_table(options: Any) -> Iterator[LakeTable]:
    """Yield the table that a data source's options name; raises InvalidRequest when they do not name one."""
    given = {str(key).lower(): value for key, value in dict(options).items()}
    own = os.environ.get("LAMELLA_URL")
    url, name = given.get("url") or own, given.get("table") or given.get("path")
    if not url or not name:
        raise InvalidRequest("the data source lamella needs the option url, and table (or a path) as namespace.table")
    timestamp = given.get("timestampms")
    token, token_file = given.get("token"), None
    if token is None and url == own:
        token, token_file = token_of(os.environ)
    with Lamella(url, token=token, token_file=token_file) as lake:
        yield load_table(
            lake,
            name,
            Settings(
                allow_fallback=_is_true(given, "allowfallback"),
                signed_urls=_is_true(given, "signedurls"),
                storage_options=json.loads(given.get("storageoptions", "{}")),
            ),
            snapshot_id=given.get("snapshotid"),
            timestamp_ms=int(timestamp) if timestamp is not None else None,
        )
