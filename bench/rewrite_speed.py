"""Bytes per second of compaction and reclustering, compared with the same work in Spark: reading, sorting, writing.

    JAVA_HOME=... python bench/rewrite_speed.py --scale 1

TPC-H lineitem in small files, in random order. Lamella compacts, or reclusters, locally and on Spark. Spark reads the
same files, coalesces or range-partitions and sorts them, and writes a directory. Each in turn, some rounds: bytes of
the files that are read per second, in the fastest round. Lamella's time includes planning, statistics of every column,
sketches and the commit.
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from index_build import session
from loopback import Service
from pyspark.sql import SparkSession
from tpch_files import generate

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import compact, recluster
from lamella.client.rewrite.engine import Engine, LocalEngine
from lamella.client.spark.engine import SparkEngine

KEY = "l_shipdate"


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--source", type=Path, default=Path("build/tpch"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        files, rows = _files(folder, given.source, given.scale, given.files)
        spark = session(folder)
        spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
        with (
            Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
            Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
            LocalEngine() as local,
        ):
            lake.create_namespace("bench")
            figures = measured(spark, lake, local, files, -(-rows // given.blocks), given, folder)
        spark.stop()
    print(json.dumps(figures, indent=1))
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1))


def _files(folder: Path, source: Path, scale: float, count: int) -> tuple[list[str], int]:
    tables = source / f"{scale:g}"
    generate(tables, scale)
    rows = pq.read_table(tables / "lineitem.parquet")
    plain = [pa.string() if pa.types.is_string_view(field.type) else field.type for field in rows.schema]
    rows = rows.cast(pa.schema(list(zip(rows.schema.names, plain, strict=True))))
    order = np.random.default_rng(1).permutation(rows.num_rows)
    size = -(-rows.num_rows // count)
    data = folder / "data"
    data.mkdir()
    found = []
    for at in range(count):
        path = data / f"{at:05}.parquet"
        pq.write_table(rows.take(pa.array(order[at * size : (at + 1) * size])), path, compression="zstd")
        found.append(str(path))
    return found, rows.num_rows


def measured(
    spark: SparkSession,
    lake: Lamella,
    local: LocalEngine,
    files: list[str],
    block_rows: int,
    given: argparse.Namespace,
    folder: Path,
) -> dict[str, Any]:
    """Megabytes per second, and ratios."""
    size_bytes = sum(Path(file).stat().st_size for file in files)
    numbers = iter(range(1_000))

    def ours(job: Callable[[JobContext], Any], engine: Engine) -> float:
        name = f"bench.t{next(numbers)}"
        lake.create_table(name, schema_from=files[0], cluster_key=[KEY])
        lake.table(name).register(files)
        started = time.perf_counter()
        done = job(JobContext(lake=lake, table=name, engine=engine, sizes=Sizes(block_rows=block_rows)))
        seconds = time.perf_counter() - started
        assert done.blocks_before == len(files), done
        lake.drop_table(name, purge=True)
        return seconds

    def theirs(made: Callable[[], Any]) -> float:
        output = folder / "plain"
        started = time.perf_counter()
        made().write.parquet(str(output))
        seconds = time.perf_counter() - started
        shutil.rmtree(output)
        return seconds

    remote = SparkEngine(spark)
    ways: dict[str, Callable[[], float]] = {
        "compact, Spark": lambda: theirs(
            lambda: spark.read.parquet(*files).coalesce(given.blocks).sortWithinPartitions(KEY)
        ),
        "compact, Lamella": lambda: ours(compact, local),
        "compact, Lamella on Spark": lambda: ours(compact, remote),
        "recluster, Spark": lambda: theirs(
            lambda: spark.read.parquet(*files).repartitionByRange(given.blocks, KEY).sortWithinPartitions(KEY)
        ),
        "recluster, Lamella": lambda: ours(recluster, local),
        "recluster, Lamella on Spark": lambda: ours(recluster, remote),
    }
    best: dict[str, float] = {}
    for _ in range(given.rounds):
        for name, way in ways.items():
            best[name] = min(best.get(name, 1e9), way())
    figures: dict[str, Any] = {name: round(size_bytes / 1e6 / seconds, 1) for name, seconds in best.items()}
    figures["unit"] = "MB of files read per second"
    figures["bytes"] = size_bytes
    for job in ("compact", "recluster"):
        for engine in ("Lamella", "Lamella on Spark"):
            figures[f"ratio, {job}, {engine}"] = round(best[f"{job}, Spark"] / best[f"{job}, {engine}"], 2)
    return figures


if __name__ == "__main__":
    main()
