"""Reading tables of which some blocks have deleted rows, beside the same blocks without, in Spark and in Python.

    JAVA_HOME=... python bench/deleted_rows.py [--blocks 40] [--rows 100000] [--rounds 5] [--out build/result.json]

Tables have the same files: none, one, or all of them have 1 % deleted rows, at random. Each table is summed by Spark's
catalog (two scans), by Spark at a named snapshot (one scan, in Python workers) and by the Python scan, in turn; ratios
are of the fastest round to that of the table without deleted rows. "row index": Spark reads the blocks with deleted
rows with the position of each row and the values of each file, but leaves none out; the catalog's ratio to that is what
deleted rows cost.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from index_build import session
from loopback import Service
from pyspark.sql import SparkSession

from lamella.client import Lamella
from lamella.client.spark import attach
from lamella.snapshot.deletes import VectorFile
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.storage import FsspecStore, TableLayout

SHARE: Final = 0.01


def main() -> None:
    """Build the tables, read them, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        files = _write(folder / "data", given.blocks, given.rows)
        spark = session(folder)
        dirty = {"clean": 0, "one": 1, "all": given.blocks}
        with (
            Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
            Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
        ):
            lake.create_namespace("bench")
            for table, count in dirty.items():
                _register(lake, f"bench.{table}", files, count, given.rows)
            figures = measured(spark, lake, list(dirty), given.rounds)
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
            "v": draw.integers(0, 1 << 40, rows),
            "s": pa.array([f"text {value}" for value in draw.integers(0, 10_000, rows)]),
        }
        files.append(str(folder / f"{number:04}.parquet"))
        pq.write_table(pa.table(columns), files[-1], compression="zstd")
    return files


def _register(lake: Lamella, name: str, files: list[str], dirty: int, rows: int) -> None:
    """Register the files, and delete rows of the first ones by vectors in one file."""
    lake.create_table(name, schema_from=files[0])
    table = lake.table(name)
    table.register(files, strict=True)
    if not dirty:
        return
    info = table.info()
    found = [
        block
        for each in table.snapshot(info.snapshot_id).segments
        for block in table.segment(each.segment_id, reader_features=FEATURES).blocks
    ][:dirty]
    draw = np.random.default_rng(2)
    vectors = VectorFile(TableLayout(info.location).deletes(info.snapshot_id))
    changed = []
    for block in found:
        positions = np.sort(draw.choice(rows, round(rows * SHARE), replace=False)).astype(np.int64)
        changed.append(msgspec.structs.replace(block, deletes=(vectors.add(block.location, positions),)))
    FsspecStore().put(vectors.location, vectors.finished())
    table.commit(changed, [block.location for block in found], operation="delete")


def measured(spark: SparkSession, lake: Lamella, tables: list[str], rounds: int) -> dict[str, Any]:
    """Seconds of the fastest round for each table and way, and ratios to the clean table."""
    attach(spark, "lake", lake, aggregates=False)  # the rows are to be read

    def by_spark(name: str, clause: str = "") -> tuple[int, int]:
        row = spark.sql(f"SELECT count(v), sum(v) FROM lake.bench.{name} {clause}").collect()[0]
        return row[0], row[1]

    def at_snapshot(name: str) -> tuple[int, int]:
        return by_spark(name, f"VERSION AS OF '{lake.table(f'bench.{name}').info().snapshot_id}'")

    def in_python(name: str) -> tuple[int, int]:
        values = lake.table(f"bench.{name}").scan(columns=["v"]).to_arrow()["v"]
        return len(values), pc.sum(values).as_py()

    def row_index(name: str) -> tuple[int, int]:
        row = spark.sql(
            f"SELECT count(v), sum(v) FROM lake.bench.`{name}$rows` WHERE _lamella_has_deletes"
            " AND _tmp_metadata_row_index >= 0 AND _lamella_deleted_rows IS NOT NULL"
        ).collect()[0]
        return row[0], row[1]

    ways: dict[str, Callable[[str], tuple[int, int]]] = {
        "catalog": by_spark,
        "one scan": at_snapshot,
        "Python scan": in_python,
    }
    best: dict[tuple[str, str], float] = {}
    indexed = 1e9
    for _ in range(rounds + 1):  # the first warms up
        for table in tables:
            answers = set()
            for way, run in ways.items():
                started = time.perf_counter()
                answers.add(run(table))
                best[way, table] = min(best.get((way, table), 1e9), time.perf_counter() - started)
            assert len(answers) == 1, answers
        started = time.perf_counter()
        row_index(tables[-1])
        indexed = min(indexed, time.perf_counter() - started)
    return {
        "row index": {tables[-1]: {"seconds": round(indexed, 3)}},
        "catalog to row index": round(best["catalog", tables[-1]] / indexed, 2),
    } | {
        way: {
            table: {"seconds": round(best[way, table], 3), "ratio": round(best[way, table] / best[way, "clean"], 2)}
            for table in tables
        }
        for way in ways
    }


if __name__ == "__main__":
    main()
