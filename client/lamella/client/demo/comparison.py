"""One query, once through Lamella's catalog and once over all files of the same snapshot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from lamella.client.demo.answers import equal
from lamella.client.demo.load import LAYOUTS, NAMESPACE
from lamella.client.demo.queries import WARM_UP, Query
from lamella.client.demo.results import QueryResult
from lamella.client.demo.scans import files_read, full_scan_file_count
from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.snapshot.errors import LamellaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CATALOG: Final = "lake"
PUSHDOWN: Final = "spark.sql.parquet.filterPushdown"


class TableFiles(msgspec.Struct, frozen=True):
    """A table's blocks at one snapshot: file sizes in bytes, by path."""

    sizes: dict[str, int]


class Comparison:
    """Both ways to the same tables, in one Spark session."""

    def __init__(self, spark: SparkSession, lake: Lamella) -> None:
        self._spark = spark
        self._files = {name: _files(lake, name) for name in LAYOUTS}
        attach(spark, CATALOG, lake)
        for name, files in self._files.items():
            # What a user without Lamella has: the directory's files, all of them.
            spark.read.parquet(*sorted(files.sizes)).createOrReplaceTempView(f"all_{name}")
        self._through_lamella = {name: f"{CATALOG}.{NAMESPACE}.{name}" for name in LAYOUTS}
        self._over_all_files = {name: f"all_{name}" for name in LAYOUTS}

    def warm_up(self) -> None:
        """Run a small query both ways, so that the first one measured does not pay for loading classes."""
        for names in (self._through_lamella, self._over_all_files):
            self._run(WARM_UP.format(**names))

    def run(self, query: Query) -> QueryResult:
        """Both answers, their times, and what was read.

        Raises:
            LamellaError: the plain read did not read every file, so it proves nothing.
        """
        pruned, rows, seconds = self._run(query.sql.format(**self._through_lamella))
        read = files_read(pruned)
        # Off, so that nothing but Spark's own evaluation of each row decides: its push-down is unsound for NaN.
        before = self._spark.conf.get(PUSHDOWN)
        self._spark.conf.set(PUSHDOWN, "false")
        try:
            full, expected, full_seconds = self._run(query.sql.format(**self._over_all_files))
        finally:
            self._spark.conf.set(PUSHDOWN, before or "true")
        sizes = {path: size for name in query.tables for path, size in self._files[name].sizes.items()}
        if full_scan_file_count(full) != len(sizes):
            raise LamellaError(f"{query.name}: the full scan read {full_scan_file_count(full)} of {len(sizes)} files")
        return QueryResult(
            name=query.name,
            equal=equal(rows, expected) and not read - sizes.keys(),
            blocks_read=len(read),
            blocks_total=len(sizes),
            bytes_read=sum(sizes.get(path, 0) for path in read),
            bytes_total=sum(sizes.values()),
            seconds=round(seconds, 3),
            full_scan_seconds=round(full_seconds, 3),
        )

    def _run(self, sql: str) -> tuple[DataFrame, list[Row], float]:
        """The frame, its whole answer, and the seconds from planning to the last row."""
        started = time.perf_counter()
        frame = self._spark.sql(sql)
        rows = frame.collect()
        return frame, rows, time.perf_counter() - started


def _files(lake: Lamella, name: str) -> TableFiles:
    answer = lake.table(f"{NAMESPACE}.{name}").prune()
    return TableFiles({_path(block.location): block.file_size for block in answer.records()})


def _path(location: str) -> str:
    """The path of a ``file://`` location; locations are not percent-encoded."""
    return location.removeprefix("file://")
