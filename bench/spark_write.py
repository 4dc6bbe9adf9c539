"""Write speed of frames, compared with Spark's own writer of the same rows to a plain directory.

    JAVA_HOME=... python bench/spark_write.py --scale 1

TPC-H lineitem, read from Parquet in random order. Each way is run in turn, ``--rounds`` times: rows per second of the
fastest round, and the fewest seconds of the processor (of Spark, its Python workers and the service) in a round; and
the ratios of both to what Spark does for the same purpose: as the rows come, or range-partitioned and sorted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from index_build import session
from loopback import Service
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from speed.clock import family_cpu_s, taken_since
from tpch_files import generate

from lamella.client import Lamella
from lamella.client.spark import write

KEY = "l_shipdate"


def main() -> None:
    """Write, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--source", type=Path, default=Path("build/tpch"))
    given = parser.parse_args()
    source = given.source / f"{given.scale:g}"
    generate(source, given.scale)
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        spark = session(folder)
        shuffled = _shuffled(spark, source)
        with Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service:
            url = f"http://127.0.0.1:{service.port}"
            print(json.dumps(measured(spark, url, shuffled, folder, given.rounds), indent=1))
        spark.stop()


def _shuffled(spark: SparkSession, source: Path) -> Path:
    shuffled = source / "lineitem_shuffled"
    if not shuffled.exists():
        spark.conf.set("spark.sql.shuffle.partitions", "8")
        rows = spark.read.parquet(str(source / "lineitem.parquet"))
        rows.orderBy(F.xxhash64("l_orderkey", "l_linenumber")).write.parquet(str(shuffled))
    return shuffled


def measured(spark: SparkSession, url: str, source: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """Rows per second of each way."""
    spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame = spark.read.parquet(str(source))
    rows = frame.count()
    partitions = max(2, round(rows / 1_000_000))

    def plain(made: DataFrame) -> int:
        output = folder / "plain"
        made.write.mode("overwrite").parquet(str(output))
        return sum(file.stat().st_size for file in output.glob("*.parquet"))

    def ours(name: str, **more: Any) -> int:
        with Lamella(url, timeout_s=600) as lake:
            result = write(frame, f"bench.{name}", client=lake, **more)
            assert result.rows == rows
            return result.size_bytes

    def indexed() -> int:
        with Lamella(url, timeout_s=600) as lake:
            write(frame.limit(10), "bench.indexed", client=lake, cluster_by=[KEY])
            table = lake.table("bench.indexed")
            table.create_index("by_order", "bloom", "l_orderkey")
            table.create_index("by_mode", "value_set", "l_shipmode")
            result = write(frame, "bench.indexed", client=lake)
            lake.drop_table("bench.indexed", purge=True)
            return result.size_bytes

    ways: dict[str, Callable[[], int]] = {
        "spark": lambda: plain(frame),
        "lamella": lambda: ours("plain"),
        "spark, sorted": lambda: plain(frame.repartitionByRange(partitions, KEY).sortWithinPartitions(KEY)),
        "lamella, sorted": lambda: ours("sorted", cluster_by=[KEY]),
        "lamella, sorted, two indexes": indexed,
    }
    write(frame.limit(1_000), "bench.warm", url=url)
    best: dict[str, float] = {}
    cpu: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            started, before = time.perf_counter(), family_cpu_s()
            sizes[name] = way()
            best[name] = min(best.get(name, 1e9), time.perf_counter() - started)
            cpu[name] = min(cpu.get(name, 1e9), taken_since(before))
            with Lamella(url) as lake:
                for table in ("bench.plain", "bench.sorted"):
                    if table.split(".")[1] in lake.tables("bench"):
                        lake.drop_table(table, purge=True)
            shutil.rmtree(folder / "plain", ignore_errors=True)
    figures: dict[str, Any] = {
        name: {
            "seconds": round(seconds, 1),
            "cpu_s": round(cpu[name], 1),
            "rows_per_s": round(rows / seconds),
            "bytes": sizes[name],
        }
        for name, seconds in best.items()
    }
    figures["rows"] = rows
    for name, (own, other) in {
        "ratio": ("lamella", "spark"),
        "ratio, sorted": ("lamella, sorted", "spark, sorted"),
        "ratio, sorted and indexed": ("lamella, sorted, two indexes", "spark, sorted"),
    }.items():
        figures[name] = round(best[other] / best[own], 2)
        figures[f"{name}, processor"] = round(cpu[other] / cpu[own], 2)
    return figures


if __name__ == "__main__":
    main()
