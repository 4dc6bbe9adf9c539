"""Planning the queries of TPC-H by Lamella's catalog, compared with plain tables of the same Parquet files.

    JAVA_HOME=... python bench/planning.py [--scale 0.1] [--rounds 7] [--only 3 5 8] [--out build/planning.json]

Planning is from the text of a query to its physical plan. The tables have 8 blocks each at most. Both sides take turns;
medians of the wall clock and processor time of driver, JVM and service together, without the first rounds, in which the
JVM compiles. ``tpc_files.py`` makes tables and queries, and says how to set it up. *calls*: callbacks of the JVM to
Python, calls of Python to the JVM, and requests to the service, in the last round. An INSERT of one row is measured
too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from loopback import Service
from onspark.measuring import Clock
from pyspark.sql import SparkSession
from tpc_files import PYTHON, generate

from lamella.client import Lamella
from lamella.client.http.transport import PooledTransport
from lamella.client.spark import attach

_BLOCKS: Final = 8
_WARM_UP: Final = 2
_SIDES: Final = {"plain": "spark_catalog.plain", "lamella": "lake.tpch"}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of queries")
    parser.add_argument("--files", type=Path, help="tables and queries, made if missing")
    parser.add_argument("--python", type=Path, default=PYTHON, help="with DuckDB and its extension")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    files = given.files or Path(f"build/planning-{given.scale:g}")
    queries = generate(files, "tpch", given.scale, given.python)
    chosen = {number: text for number, text in queries.items() if given.only is None or number in given.only}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        spark = _session(folder)
        with (
            Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
            Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
        ):
            lake.create_namespace("tpch")
            attach(spark, "lake", lake, mode="catalog")
            _load(spark, files)
            gateway: Any = spark.sparkContext._gateway
            clock = Clock([os.getpid(), gateway.proc.pid, service.pid])
            found = {"queries": _queries(spark, chosen, given.rounds, clock), "insert": _inserts(spark, 20)}
        spark.stop()
    _print(found)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def _session(folder: Path) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "plain"),
    }
    builder = SparkSession.builder.master("local[2]").appName("planning")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _load(spark: SparkSession, files: Path) -> None:
    """Make each table twice, with the same number of files."""
    spark.sql("CREATE DATABASE plain")
    for path in sorted(files.glob("*.parquet")):
        frame, table = spark.read.parquet(str(path)), path.stem
        frame.repartition(_BLOCKS).write.saveAsTable(f"spark_catalog.plain.{table}", format="parquet")
        rows = max(1_000, -(-frame.count() // _BLOCKS))
        frame.writeTo(f"lake.tpch.{table}").option("target_block_rows", rows).create()


def _queries(spark: SparkSession, queries: dict[int, str], rounds: int, clock: Clock) -> dict[int, dict[str, Any]]:
    times: dict[tuple[int, str], list[tuple[float, float]]] = {}
    calls: dict[int, Counter[str]] = {}
    for number in range(_WARM_UP + rounds):
        for query, text in queries.items():
            for side in sorted(_SIDES, reverse=bool(number % 2)):
                spark.sql(f"USE {_SIDES[side]}")
                is_last = number == _WARM_UP + rounds - 1 and side == "lamella"
                began = clock.now()
                _plan(spark, text)
                ended = clock.now()
                if number >= _WARM_UP:
                    times.setdefault((query, side), []).append((ended[0] - began[0], ended[1] - began[1]))
                if is_last:
                    with _counted() as counts:
                        _plan(spark, text)
                    calls[query] = counts
    spark.sql("USE spark_catalog.default")
    found: dict[int, dict[str, Any]] = {}
    for query in queries:
        sides = {
            side: {
                "wall_ms": round(statistics.median(wall for wall, _ in times[query, side]), 1),
                "cpu_ms": round(statistics.mean(cpu for _, cpu in times[query, side]), 1),
            }
            for side in _SIDES
        }
        found[query] = {**sides, "calls": calls[query]}
    return found


def _plan(spark: SparkSession, text: str) -> None:
    spark.sql(text)._jdf.queryExecution().executedPlan()


def _inserts(spark: SparkSession, times: int) -> dict[str, float]:
    """Return the wall-clock milliseconds of inserts of one row, the first half of which is not counted."""
    spark.sql("CREATE TABLE lake.tpch.small (id BIGINT, name STRING)")
    clock, found = Clock([]), []
    for number in range(times):
        began = clock.now()
        spark.sql(f"INSERT INTO lake.tpch.small VALUES ({number}, 'x')")
        found.append(clock.now()[0] - began[0])
    warm = found[times // 2 :]
    return {"median_ms": round(statistics.median(warm), 1), "best_ms": round(min(warm), 1)}


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count what goes between Spark, Python and the service meanwhile."""
    from py4j.clientserver import ClientServerConnection, JavaClient

    counts: Counter[str] = Counter()

    def counting(name: str, method: Any) -> Any:
        def call(owner: Any, first: Any, *arguments: Any, **named: Any) -> Any:
            # Python releases objects of the JVM whenever it collects garbage.
            counts[name] += not (name == "jvm" and first.startswith("m"))
            return method(owner, first, *arguments, **named)

        return call

    methods = (
        (ClientServerConnection, "_call_proxy", "callbacks"),
        (JavaClient, "send_command", "jvm"),
        (PooledTransport, "send", "requests"),
    )
    before = [getattr(owner, member) for owner, member, _ in methods]
    for (owner, member, name), method in zip(methods, before, strict=True):
        setattr(owner, member, counting(name, method))
    try:
        yield counts
    finally:
        for (owner, member, _), method in zip(methods, before, strict=True):
            setattr(owner, member, method)


def _print(found: dict[str, Any]) -> None:
    print("query   plain   lamella   ratio   cpu ratio   callbacks   JVM calls   requests")
    totals: Counter[str] = Counter()
    for query, each in found["queries"].items():
        plain, ours, calls = each["plain"], each["lamella"], each["calls"]
        for side in _SIDES:
            totals[f"{side} wall"] += each[side]["wall_ms"]
            totals[f"{side} cpu"] += each[side]["cpu_ms"]
        wall, cpu = (ours[kind] / max(1, plain[kind]) for kind in ("wall_ms", "cpu_ms"))
        counts = f"{calls['callbacks']:11} {calls['jvm']:11} {calls['requests']:10}"
        print(f"{query:5} {plain['wall_ms']:7.1f} {ours['wall_ms']:9.1f} {wall:7.2f} {cpu:11.2f} {counts}")
    wall, cpu = (totals[f"lamella {kind}"] / totals[f"plain {kind}"] for kind in ("wall", "cpu"))
    print(f"  all {totals['plain wall']:7.0f} {totals['lamella wall']:9.0f} {wall:7.2f} {cpu:11.2f}")
    print(f"INSERT of a row: {found['insert']}")


if __name__ == "__main__":
    main()
