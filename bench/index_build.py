"""Build speed of skip indexes: by Spark, compared with writing the same rows, and by the service alone.

    JAVA_HOME=... python bench/index_build.py --rows 4000000 --blocks 64

One local Spark session and one service on the same machine. For each index: rows per second of the build on executors
and of a refresh by the service, of write and build together, and how large it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from loopback import Service
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client import Lamella
from lamella.client.spark import build_index, write

#: Kind, expression and options of each index that is built.
INDEXES: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("bloom", "user_id", {"false_positives": 0.01}),
    ("value_set", "status", {}),
    ("ngram", "note", {}),
    ("keys", "user_id", {}),
    ("bloom", "lower(note)", {"false_positives": 0.01}),
)


def session(folder: Path) -> SparkSession:
    """Two executor threads, as the machine has cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def main() -> None:
    """Write, build, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--blocks", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        spark = session(folder)
        with Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service:
            figures = measured(spark, f"http://127.0.0.1:{service.port}", given.rows, given.blocks)
        spark.stop()
    print(json.dumps(figures, indent=1))


def measured(spark: SparkSession, url: str, rows: int, blocks: int) -> dict[str, Any]:
    """All figures."""
    frame = spark.range(rows).select(
        F.col("id"),
        (F.xxhash64("id") % rows).alias("user_id"),
        F.format_string("status %d", F.col("id") % 17).alias("status"),
        F.concat(F.lit("Note "), F.hex(F.xxhash64("id")), F.lit(" of "), F.hex(F.xxhash64("id", F.lit(1)))).alias(
            "note"
        ),
    )
    warm = write(frame.limit(1_000), "bench.warm", url=url)
    assert warm.rows == 1_000  # Spark and its workers are up
    started = time.perf_counter()
    written = write(frame, "bench.t", url=url, target_block_rows=-(-rows // blocks))
    write_s = time.perf_counter() - started
    figures: dict[str, Any] = {
        "rows": rows,
        "blocks": written.blocks,
        "data_bytes": written.size_bytes,
        "write_rows_per_s": round(rows / write_s),
        "indexes": [],
    }
    with Lamella(url, timeout_s=600) as lake:
        table = lake.table("bench.t")
        for number, (kind, expression, options) in enumerate(INDEXES):
            name = f"i{number}"
            table.create_index(name, kind, expression, options=options)
            started = time.perf_counter()
            built = build_index(spark, lake, "bench.t", name)
            build_s = time.perf_counter() - started
            info = table.index(name)
            table.create_index(name + "s", kind, expression, options=options)
            started = time.perf_counter()
            refreshed = table.refresh_index(name + "s", max_ms=60_000)
            refresh_s = time.perf_counter() - started
            assert refreshed.indexed == built.indexed == written.blocks
            figures["indexes"].append(
                {
                    "kind": kind,
                    "expression": expression,
                    "indexed": built.indexed,
                    "spark_rows_per_s": round(rows / build_s),
                    "service_rows_per_s": round(rows / refresh_s),
                    "write_and_build_rows_per_s": round(rows / (write_s + build_s)),
                    "bytes_per_row": round(info.size_bytes / rows, 3),
                    "share_of_data": round(info.size_bytes / written.size_bytes, 4),
                }
            )
    return figures


if __name__ == "__main__":
    main()
