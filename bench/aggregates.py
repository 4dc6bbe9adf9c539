"""Counts in Spark over a table of many blocks: from statistics, by reading, and beside plain Parquet.

    JAVA_HOME=... python bench/aggregates.py [--blocks 10000] [--rows 100] [--rounds 20] [--out build/aggregates.json]

A query counts a range that begins and ends within a block; another one counts by day, of which each block has one. Each
is run in turn on the catalog, on the same catalog with ``aggregates=False``, and on Spark's own Parquet table (whose
files are listed once). Milliseconds are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from index_build import session
from loopback import Service
from pyspark.sql import SparkSession

from lamella.client import Lamella
from lamella.client.spark import attach

QUERIES: Final = {
    "range": "SELECT count(*), min(v), max(v) FROM {t} WHERE id BETWEEN {low} AND {high}",
    "by day": "SELECT day, count(*) FROM {t} WHERE id BETWEEN {low} AND {high} GROUP BY day",
    "all": "SELECT count(*), max(id) FROM {t}",
}


def main() -> None:
    """Write the files, count them, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        files = _write(folder / "data", given.blocks, given.rows)
        spark = session(folder)
        with (
            Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
            Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
        ):
            lake.create_namespace("bench")
            lake.create_table("bench.t", schema_from=files[0])
            lake.table("bench.t").register(files, strict=True)
            attach(spark, "lake", lake)
            attach(spark, "plain", lake, aggregates=False)
            spark.read.parquet(str(folder / "data")).createOrReplaceTempView("parquet")
            figures = measured(spark, given.blocks * given.rows, given.rounds)
        spark.stop()
    text = json.dumps({"blocks": given.blocks, "rows": given.rows, **figures}, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


def _write(folder: Path, blocks: int, rows: int) -> list[str]:
    folder.mkdir()
    draw = np.random.default_rng(1)
    files = []
    for number in range(blocks):
        columns = {
            "id": np.arange(number * rows, (number + 1) * rows),
            "day": np.full(rows, number // 100),
            "v": draw.integers(0, 1 << 40, rows),
        }
        files.append(str(folder / f"{number:05}.parquet"))
        pq.write_table(pa.table(columns), files[-1])
    return files


def measured(spark: SparkSession, rows: int, rounds: int) -> dict[str, Any]:
    """Median milliseconds of each query in each way."""
    draw = np.random.default_rng(2)
    tables = {"statistics": "lake.bench.t", "without": "plain.bench.t", "parquet": "parquet"}
    found: dict[str, Any] = {}
    for name, query in QUERIES.items():
        times: dict[str, list[float]] = {way: [] for way in tables}
        for number in range(rounds + 3):
            low = int(draw.integers(0, rows // 2))
            rows_of = {}
            for way, table in tables.items():
                if way == "parquet" and number > 3:
                    continue  # minutes for nothing
                text = query.format(t=table, low=low, high=low + rows // 3)
                began = time.perf_counter()
                rows_of[way] = sorted(map(tuple, spark.sql(text).collect()))
                if number >= 3:
                    times[way].append(1_000 * (time.perf_counter() - began))
            assert all(each == rows_of["statistics"] for each in rows_of.values()), (text, rows_of)
        found[name] = {way: round(statistics.median(each), 1) for way, each in times.items()}
        print(name, found[name], flush=True)
    return found


if __name__ == "__main__":
    main()
