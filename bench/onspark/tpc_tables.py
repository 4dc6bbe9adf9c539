"""The tables of TPC-H and TPC-DS, as plain Parquet, in Lamella, Delta and Iceberg: the same rows in the same order.

Tables that are larger than a block have a cluster key: of facts the day, of others the key. Lamella sorts by it because
of ``CLUSTER BY``; the others get rows that Spark has sorted, a file for each range. All files are compressed by zstd.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from pyspark.sql import DataFrame, SparkSession

#: The columns by which tables are sorted; of others it is the first.
_DAYS: Final = {
    "lineitem": "l_shipdate",
    "orders": "o_orderdate",
    "store_sales": "ss_sold_date_sk",
    "store_returns": "sr_returned_date_sk",
    "catalog_sales": "cs_sold_date_sk",
    "catalog_returns": "cr_returned_date_sk",
    "web_sales": "ws_sold_date_sk",
    "web_returns": "wr_returned_date_sk",
    "inventory": "inv_date_sk",
}


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was generated. ``key``: the column by which it is sorted."""

    benchmark: str
    name: str
    path: Path
    key: str
    rows: int
    block_rows: int

    @property
    def files(self) -> int:
        """How many blocks it fills."""
        return -(-self.rows // self.block_rows)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return its rows, in the order in which they were generated."""
        return spark.read.parquet(str(self.path)).coalesce(1)

    def sorted_frame(self, spark: SparkSession) -> DataFrame:
        """Return its rows in as many partitions as it has blocks, sorted."""
        frame = spark.read.parquet(str(self.path))
        parts = frame.repartitionByRange(self.files, self.key) if self.files > 1 else frame.coalesce(1)
        return parts.sortWithinPartitions(self.key)


def sources(spark: SparkSession, folder: Path, benchmark: str, block_rows: int) -> list[Source]:
    """Return the tables of a benchmark, from its files."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        frame = spark.read.parquet(str(path))
        key = _DAYS.get(path.stem, frame.columns[0])
        rows = frame.count()
        found.append(Source(benchmark=benchmark, name=path.stem, path=path, key=key, rows=rows, block_rows=block_rows))
    return found


class Side(Protocol):
    """One kind of tables. ``name``: as in the results."""

    name: str

    def make(self, spark: SparkSession, source: Source) -> None:
        """Write a table."""

    def open(self, spark: SparkSession, source: Source) -> None:
        """Let this session read a table that was made."""

    def database(self, benchmark: str) -> str:
        """Return what queries ``USE``."""


class PlainTables:
    """Parquet files that Spark wrote, as tables of the session's own catalog."""

    def __init__(self, folder: Path, *, is_sorted: bool) -> None:
        self.name = "plain, sorted" if is_sorted else "plain"
        self._is_sorted = is_sorted
        self._folder = folder / ("plain-sorted" if is_sorted else "plain")

    def make(self, spark: SparkSession, source: Source) -> None:
        frame = source.sorted_frame(spark) if self._is_sorted else source.frame(spark)
        writer = frame.write.mode("overwrite")
        if not self._is_sorted:
            writer = writer.option("maxRecordsPerFile", source.block_rows)
        writer.parquet(self._location(source))

    def open(self, spark: SparkSession, source: Source) -> None:
        database = self.database(source.benchmark)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        spark.sql(f"CREATE TABLE {database}.{source.name} USING parquet LOCATION '{self._location(source)}'")

    def database(self, benchmark: str) -> str:
        return f"spark_catalog.{self._folder.name.replace('-', '_')}_{benchmark}"

    def _location(self, source: Source) -> str:
        return f"file://{self._folder}/{source.benchmark}/{source.name}"


class DeltaTables:
    """Delta tables of sorted rows, read by their names in the session's catalog."""

    name = "delta"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "delta"

    def make(self, spark: SparkSession, source: Source) -> None:
        location = f"{self._folder}/{source.benchmark}/{source.name}"
        source.sorted_frame(spark).write.format("delta").mode("overwrite").save(location)

    def open(self, spark: SparkSession, source: Source) -> None:
        database = self.database(source.benchmark)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        location = f"file://{self._folder}/{source.benchmark}/{source.name}"
        spark.sql(f"CREATE TABLE {database}.{source.name} USING delta LOCATION '{location}'")

    def database(self, benchmark: str) -> str:
        return f"spark_catalog.delta_{benchmark}"


class IcebergTables:
    """Iceberg tables of sorted rows, in a Hadoop catalog."""

    name = "iceberg"

    def make(self, spark: SparkSession, source: Source) -> None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.database(source.benchmark)}")
        writer = source.sorted_frame(spark).writeTo(f"{self.database(source.benchmark)}.{source.name}")
        # Iceberg would else distribute and sort the rows again.
        writer.using("iceberg").tableProperty("write.distribution-mode", "none").createOrReplace()

    def open(self, spark: SparkSession, source: Source) -> None:
        pass

    def database(self, benchmark: str) -> str:
        return f"ice.{benchmark}"


class LamellaTables:
    """Tables made by ``writeTo(...).clusterBy(...)``, in the attached catalog ``lake``."""

    name = "lamella"

    def make(self, spark: SparkSession, source: Source) -> None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.database(source.benchmark)}")
        frame = spark.read.parquet(str(source.path))
        writer = frame.writeTo(f"{self.database(source.benchmark)}.{source.name}")
        writer = writer.clusterBy(source.key).option("target_block_rows", source.block_rows)
        writer.createOrReplace()

    def open(self, spark: SparkSession, source: Source) -> None:
        pass

    def database(self, benchmark: str) -> str:
        return f"lake.{benchmark}"


def made(sides: Sequence[Side], spark: SparkSession, tables: Sequence[Source], note: Path) -> dict[str, Any]:
    """Make what an earlier run has not made, and open all. Returns the seconds it took, by side."""
    found: dict[str, dict[str, float]] = json.loads(note.read_text()) if note.exists() else {}
    for side in sides:
        for source in tables:
            table = f"{source.benchmark}.{source.name}"
            if table not in found.setdefault(side.name, {}):
                print(f"{side.name}: making {table}", file=sys.stderr, flush=True)
                began = time.perf_counter()
                side.make(spark, source)
                found[side.name][table] = round(time.perf_counter() - began, 2)
                note.write_text(json.dumps(found))
            side.open(spark, source)
    return {side.name: round(sum(found[side.name][f"{s.benchmark}.{s.name}"] for s in tables), 1) for side in sides}
