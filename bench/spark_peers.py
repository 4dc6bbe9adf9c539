"""Lamella on Spark compared with a plain folder of Parquet files, Delta and Iceberg: planning, total time, bytes read.

    uv venv build/spark41 && uv pip install --python build/spark41/bin/python -e '.[service,spark]' pyspark==4.1.4
    JAVA_HOME=... build/spark41/bin/python bench/spark_peers.py --out build/spark_peers.json

All tables are made of the same files, and are read by one session with the same settings. It is of Spark 4.1, the
newest that Delta and Iceberg both have jars for; those (130 MB) are fetched by Spark into ``build/ivy``. Answers are
compared. ``--rounds`` with other literals each; medians are printed, and ratios of one run. Engines that open every
file whatever is asked are asked once, but for the question that reads everything. *floor*: what Spark takes to plan the
same query over rows that it makes up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from loopback import Service
from onspark.blocks import Shape, write_files
from onspark.engines import DeltaTable, Engine, IcebergTable, LamellaTable, PlainFolder, made, settings
from onspark.measuring import Clock, measured
from pyspark.sql import SparkSession

_PEERS: Final = ("parquet", "iceberg", "delta")


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500, help="of each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", default=_PEERS, choices=_PEERS, help="fewer, for more files")
    parser.add_argument("--selective", action="store_true", help="leave out what reads everything")
    parser.add_argument("--tables", type=Path, default=Path("build/spark_peers"), help="kept for the next run")
    parser.add_argument("--ivy", type=Path, default=Path("build/ivy"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    shape = Shape(given.files, given.rows)
    folder = given.tables.absolute() / f"{shape.files}x{shape.rows}"
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        if not (folder / "made.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            write_files(folder / "files", shape)
        spark = _session(folder, Path(name), given.ivy.absolute())
        with Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service:
            by_peer: dict[str, list[Engine]] = {
                "parquet": [PlainFolder(is_listed_once=False), PlainFolder(is_listed_once=True)],
                "iceberg": [IcebergTable()],
                "delta": [DeltaTable()],
            }
            engines: list[Engine] = [LamellaTable(f"http://127.0.0.1:{service.port}")]
            engines += [engine for peer in given.peers for engine in by_peer[peer]]
            making = made(engines, spark, folder / "files")
            gateway: Any = spark.sparkContext._gateway
            clock = Clock([os.getpid(), gateway.proc.pid, service.pid])
            figures = measured(spark, engines, shape, given.rounds, clock, selective=given.selective)
        found = {
            "spark": spark.version,
            "files": shape.files,
            "rows": shape.total,
            "load": os.getloadavg()[0],
            "seconds_to_make": making,
            "questions": figures,
            "ratios": {name: _ratios(by_engine, given.peers) for name, by_engine in figures.items()},
        }
        spark.stop()
    print(_markdown(found))
    print(json.dumps({name: value for name, value in found.items() if name != "questions"}, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))


def _session(folder: Path, local: Path, ivy: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.liveUpdate.period", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(local))
    )
    for name, value in settings(folder, ivy).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def _ratios(by_engine: dict[str, dict[str, Any]], peers: Sequence[str]) -> dict[str, float]:
    """Return the ratio of the fastest peer's time to Lamella's; for planning also beyond Spark's own time."""
    ours = by_engine["lamella"]
    names = ("planning_ms", "planning_cpu_ms", "total_ms", "total_cpu_ms")
    best = {name: min(by_engine[peer][name] for peer in peers) for name in names}
    floor = by_engine["floor"]["planning_ms"]
    beyond = (best["planning_ms"] - floor) / max(ours["planning_ms"] - floor, 1)
    return {
        **{name: round(best[name] / max(ours[name], 1), 2) for name in names},
        "planning_ms, beyond the floor": round(beyond, 2),
    }


def _markdown(found: dict[str, Any]) -> str:
    engines = list(found["seconds_to_make"])
    lines = [
        "| query | floor | " + " | ".join(engines) + " | planning, best peer / Lamella | beyond the floor | total |",
        "| --- | " + "--: | " * (len(engines) + 4),
    ]
    for question, by_engine in found["questions"].items():
        cells = []
        for engine in engines:
            each = by_engine[engine]
            kib = each["bytes_read"] / 1024
            cells.append(f"{each['planning_ms']:,.0f} / {each['total_ms']:,.0f}; {each['files']:,.0f}, {kib:,.0f}")
        ratios = found["ratios"][question]
        cells.insert(0, f"{by_engine['floor']['planning_ms']:,.0f}")
        cells += [str(ratios[name]) for name in ("planning_ms", "planning_ms, beyond the floor", "total_ms")]
        lines.append(f"| {question} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
