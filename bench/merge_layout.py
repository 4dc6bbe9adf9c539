"""What many small merges do to a table's layout: blocks, depth and bytes, before and after.

    JAVA_HOME=... python bench/merge_layout.py [--rows 2000000] [--blocks 40] [--merges 20] [--out build/layout.json]

A table sorted by ``id``. Each merge updates 1 % of its rows, random keys, and inserts a tenth as many rows with new
keys between them: by ``MERGE`` in SQL, by the function ``merge`` and by ``upsert`` without Spark, each on a table of
its own. Then the table is maintained as a policy would: ``purge`` and ``recluster``. Depth: how many blocks one key is
in, on average and at most.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from loopback import Service, written_bytes
from pyspark.sql import SparkSession

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.rewrite import compact, purge, recluster
from lamella.client.rewrite.engine import LocalEngine
from lamella.client.spark import attach, merge

_SHARE: Final = 100
_STEP: Final = 100


def rows_of(ids: Any, seed: int) -> pa.Table:
    """Rows with these ids."""
    draw = np.random.default_rng(seed)
    texts = pa.array([f"text {value}" for value in draw.integers(0, 100_000, len(ids))])
    return pa.table({"id": ids, "v": draw.integers(0, 1 << 40, len(ids)), "s": texts})


def changes(rows: int, turn: int) -> pa.Table:
    """The rows of one merge."""
    draw = np.random.default_rng(100 + turn)
    chosen = np.sort(draw.choice(rows, rows // _SHARE, replace=False)) * _STEP
    new = draw.choice(rows, rows // _SHARE // 10, replace=False) * _STEP + 1 + turn
    return rows_of(np.concatenate([chosen, new]).astype(np.int64), turn)


def layout(table: Table) -> dict[str, Any]:
    """Blocks, rows, bytes and depth now."""
    health = table.clustering(("id",))
    info = next(iter(table.snapshots()))
    return {
        "blocks": info.block_count,
        "rows": table.scan().count(),
        "data_mib": round(info.file_size_bytes / 2**20, 1),
        "average_depth": round(health.depth.average_depth, 2),
        "max_depth": health.depth.max_depth,
    }


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--merges", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def by_sql(table: Table, source: pa.Table) -> None:
        spark.createDataFrame(source).createOrReplaceTempView("source")
        spark.sql(
            f"MERGE INTO lake.{table} t USING source s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def by_function(table: Table, source: pa.Table) -> None:
        found = merge(spark.createDataFrame(source), str(table), "t.id = s.id", client=lake)
        found.when_matched_update().when_not_matched_insert().execute()

    def by_upsert(table: Table, source: pa.Table) -> None:
        table.upsert(source, on=["id"])

    ways: dict[str, Callable[[Table, pa.Table], None]] = {"SQL": by_sql, "merge": by_function, "upsert": by_upsert}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        with (
            Service(work, {"warehouse": f"file://{work}/warehouse"}) as service,
            Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
            LocalEngine(2) as engine,
        ):
            lake.create_namespace("bench")
            attach(spark, "lake", lake)
            every = rows_of(np.arange(given.rows, dtype=np.int64) * _STEP, 0)
            size = {"target_block_rows": str(given.rows // given.blocks)}
            for way, run in ways.items():
                table = lake.table(f"bench.{way.lower()}")
                table.append(every, create=True, cluster_by=["id"], properties=size)
                found: dict[str, Any] = {"before": layout(table)}
                begun, started = written_bytes(work / "warehouse"), time.perf_counter()
                for turn in range(given.merges):
                    run(table, changes(given.rows, turn))
                found["seconds_per_merge"] = round((time.perf_counter() - started) / given.merges, 2)
                merged = written_bytes(work / "warehouse")
                found["mib_per_merge"] = round((merged - begun) / 2**20 / given.merges, 2)
                found["after"] = layout(table)
                context = JobContext(lake=lake, table=str(table), engine=engine)
                for job in (purge, compact, recluster):
                    job(context)
                found["mib_of_maintenance"] = round((written_bytes(work / "warehouse") - merged) / 2**20, 1)
                found["after maintenance"] = layout(table)
                figures[way] = found
                print(way, json.dumps(found), flush=True)
    spark.stop()
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
