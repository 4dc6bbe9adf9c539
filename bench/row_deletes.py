"""Deleting a few rows of every block: by deletion vectors, beside rewriting the blocks, and beside Delta and Iceberg.

    python bench/row_deletes.py [--scale 1] [--blocks 10000] [--rows 1000] [--out build/row_deletes.json]
    JAVA_HOME=... build/spark41/bin/python bench/row_deletes.py --peers [--scale 1]
    JAVA_HOME=... python bench/row_deletes.py --spark [--scale 1]

Two tables: lineitem of TPC-H in blocks of 150,000 rows, and many small blocks. Of each 0.01 % and 1 % of the rows are
deleted, spread over all blocks, each time on a fresh copy of the table: by vectors (``merge-on-read``) and by rewriting
(``copy-on-write``). Seconds and written bytes, and the ratios of the two. After 1 % the table is read in Python as a
whole, and compared with the clean one.

``--peers`` (in an environment as ``spark_peers.py`` describes, of Spark 4.1 or 4.2) does the same statements on Spark,
on tables of the same files, with Delta's deletion vectors and, on 4.1, Iceberg's (format version 3), and reads a column
before and after. ``--spark`` does that for Lamella alone, on the Spark of this environment. From 4.2 on, Spark's own
reader leaves the deleted rows out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loopback import Service, written_bytes
from tpch_files import generate

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import delete_rows
from lamella.client.rewrite.engine import LocalEngine
from lamella.snapshot.delete_policy import DeleteMode

_LINEITEM_BLOCK: Final = 150_000
_KEYS: Final = 10_000
_SHARES: Final = (0.0001, 0.01)
_REGISTERED_AT_ONCE: Final = 2_000
_ROUNDS: Final = 5


class Data:
    """The files of one table, and a condition that a share of its rows fulfils, at random places."""

    def __init__(self, name: str, folder: Path, column: str, keys: int) -> None:
        self.name, self.folder, self.column = name, folder, column
        self._keys = np.random.default_rng(7).permutation(keys) + 1

    @property
    def files(self) -> list[str]:
        """The paths of its files."""
        return sorted(str(path) for path in self.folder.glob("*.parquet"))

    def where(self, share: float) -> str:
        """The condition."""
        chosen = self._keys[: max(1, round(share * len(self._keys)))]
        return f"{self.column} IN ({', '.join(map(str, sorted(chosen.tolist())))})"


def lineitem(folder: Path, scale: float) -> Data:
    """TPC-H's lineitem, in its own order, cut into blocks."""
    parts = folder / f"lineitem-{scale:g}"
    if not parts.exists():
        made = folder / f"tpch-{scale:g}"
        generate(made, scale)
        rows = pq.read_table(made / "lineitem.parquet")
        parts.mkdir(parents=True)
        for at in range(0, rows.num_rows, _LINEITEM_BLOCK):
            pq.write_table(rows.slice(at, _LINEITEM_BLOCK), parts / f"{at:012}.parquet", compression="zstd")
    return Data("lineitem", parts, "l_partkey", max(1, round(200_000 * scale)))


def small_blocks(folder: Path, blocks: int, rows: int) -> Data:
    """Many small files."""
    parts = folder / f"small-{blocks}x{rows}"
    if not parts.exists():
        parts.mkdir(parents=True)
        draw = np.random.default_rng(1)
        for at in range(blocks):
            columns = {
                "id": np.arange(at * rows, (at + 1) * rows),
                "k": draw.integers(1, _KEYS + 1, rows),
                "v": draw.integers(0, 1 << 40, rows),
                "s": pa.array([f"text {value}" for value in draw.integers(0, 10_000, rows)]),
            }
            pq.write_table(pa.table(columns), parts / f"{at:06}.parquet", compression="zstd")
    return Data("small blocks", parts, "k", _KEYS)


@contextmanager
def measured(folder: Path, into: dict[str, Any]) -> Iterator[None]:
    """Measure seconds and bytes written below a folder."""
    before, started = written_bytes(folder), time.perf_counter()
    yield
    into["seconds"] = round(time.perf_counter() - started, 3)
    into["written_bytes"] = written_bytes(folder) - before


def registered(lake: Lamella, name: str, data: Data) -> None:
    """Make a table of the files."""
    lake.create_table(name, schema_from=data.files[0])
    for at in range(0, len(data.files), _REGISTERED_AT_ONCE):
        lake.table(name).register(data.files[at : at + _REGISTERED_AT_ONCE], strict=True)


def by_lamella(lake: Lamella, warehouse: Path, data: Data, engine: LocalEngine) -> dict[str, Any]:
    """Delete by vectors and by rewriting; read what is left."""
    found: dict[str, Any] = {"blocks": len(data.files)}
    modes: tuple[DeleteMode, ...] = ("merge-on-read", "copy-on-write")
    for share in _SHARES:
        of_share: dict[str, Any] = {}
        for mode in modes:
            name = f"bench.{data.name.replace(' ', '_')}_{mode.replace('-', '_')}_{round(share * 10_000)}"
            registered(lake, name, data)
            into: dict[str, Any] = {}
            with measured(warehouse, into):
                done = delete_rows(JobContext(lake=lake, table=name, engine=engine), data.where(share), mode=mode)
            of_share[mode] = {**into, "rows": done.rows, "vectors": done.vectors, "rewritten": done.rewritten}
        one, other = (of_share[mode] for mode in modes)
        assert one["rows"] == other["rows"]
        of_share["times faster"] = round(other["seconds"] / one["seconds"], 1)
        of_share["share of bytes"] = round(one["written_bytes"] / other["written_bytes"], 5)
        found[f"{share:.2%}"] = of_share
    clean = f"bench.{data.name.replace(' ', '_')}_clean"
    registered(lake, clean, data)
    dirty = f"bench.{data.name.replace(' ', '_')}_merge_on_read_100"
    best = dict.fromkeys((clean, dirty), 1000000000.0)
    for _ in range(_ROUNDS):
        for name in best:
            started = time.perf_counter()
            lake.table(name).scan().to_arrow()
            best[name] = min(best[name], time.perf_counter() - started)
    found["read in Python"] = {
        "clean": round(best[clean], 3),
        "1 % deleted": round(best[dirty], 3),
        "ratio": round(best[dirty] / best[clean], 2),
    }
    return found


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000, help="of each small block")
    parser.add_argument("--peers", action="store_true", help="on Spark, beside Delta and Iceberg")
    parser.add_argument("--spark", action="store_true", help="on Spark, alone: with a version that has no peers' jars")
    parser.add_argument("--data", type=Path, default=Path("build/row_deletes"), help="files, kept for the next run")
    parser.add_argument("--ivy", type=Path, default=Path("build/ivy"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = given.data.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    tables = [lineitem(folder, given.scale)]
    if given.blocks:
        tables.append(small_blocks(folder, given.blocks, given.rows))
    with tempfile.TemporaryDirectory(prefix="lamella-bench-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        with Service(work, {"warehouse": f"file://{work}/warehouse"}) as service:
            url = f"http://127.0.0.1:{service.port}"
            with Lamella(url, timeout_s=1_200) as lake:
                lake.create_namespace("bench")
                if given.peers or given.spark:
                    figures = {
                        data.name: on_spark(lake, url, work, data, given.ivy.absolute(), peers=given.peers)
                        for data in tables
                    }
                else:
                    with LocalEngine(2) as engine:
                        figures = {data.name: by_lamella(lake, work / "warehouse", data, engine) for data in tables}
    text = json.dumps(figures, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


def on_spark(lake: Lamella, url: str, work: Path, data: Data, ivy: Path, *, peers: bool) -> dict[str, Any]:
    """The same statements on Spark; ``peers``: also on tables of the same files, each engine with its vectors."""
    from onspark.engines import jars_here, settings
    from pyspark.sql import SparkSession

    from lamella.client.spark import attach

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(work / "local"),
        **(settings(work, ivy) if peers else {}),
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    slug = data.name.replace(" ", "_")
    registered(lake, f"bench.{slug}", data)
    lake.table(f"bench.{slug}").commit(operation="alter", properties={"write.delete.mode": "merge-on-read"})
    attach(spark, "lake", url, aggregates=False)  # the rows are to be read
    engines = {"lamella": (f"lake.bench.{slug}", work / "warehouse")}
    if peers and "delta" in jars_here():
        copy = work / f"delta-{slug}"
        shutil.copytree(data.folder, copy)
        spark.sql(f"CONVERT TO DELTA parquet.`file://{copy}`")
        spark.sql(f"ALTER TABLE delta.`file://{copy}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        engines["delta"] = (f"delta.`file://{copy}`", copy)
    if peers and "iceberg" in jars_here():
        fields = spark.read.parquet(data.files[0]).schema
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
        spark.sql(
            f"CREATE TABLE ice.bench.{slug} ({columns}) USING iceberg TBLPROPERTIES"
            " ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        spark.sql(
            f"CALL ice.system.add_files(table => 'bench.{slug}', source_table => '`parquet`.`file://{data.folder}`')"
        )
        engines["iceberg"] = (f"ice.bench.{slug}", work / "iceberg")
    found: dict[str, Any] = {"spark": spark.version, "blocks": len(data.files)}
    sums = f"SELECT count(*), sum(hash({data.column})) FROM "

    def fastest(run: Callable[[str], Any]) -> dict[str, float]:
        best = dict.fromkeys(engines, 1e9)
        for _ in range(_ROUNDS + 1):
            answers = set()
            for name, (table, _) in engines.items():
                started = time.perf_counter()
                answers.add(tuple(run(table)))
                best[name] = min(best[name], time.perf_counter() - started)
            assert len(answers) == 1, answers
        return {name: round(seconds, 3) for name, seconds in best.items()}

    def read(table: str) -> Any:
        return spark.sql(sums + table).collect()[0]

    found["read clean"] = fastest(read)
    for share in _SHARES:
        of_share: dict[str, Any] = {}
        for name, (table, folder) in engines.items():
            of_share[name] = {}
            with measured(folder, of_share[name]):
                spark.sql(f"DELETE FROM {table} WHERE {data.where(share)}")
        found[f"delete {share:.2%}"] = of_share
    found["read after"] = fastest(read)
    found["ratios"] = {name: round(found["read after"][name] / found["read clean"][name], 2) for name in engines}
    spark.stop()
    return found


if __name__ == "__main__":
    main()
