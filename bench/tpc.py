"""TPC-H and TPC-DS on Spark: tables of Lamella's beside plain Parquet, Delta and Iceberg.

    uv venv build/tpc && uv pip install --python build/tpc/bin/python \\
        duckdb==1.5.5 duckdb-extension-tpch==1.5.5 duckdb-extension-tpcds==1.5.5
    uv venv build/spark42 && uv pip install --python build/spark42/bin/python -e '.[service,spark]' pyspark==4.2.1
    uv venv build/spark41 && uv pip install --python build/spark41/bin/python -e '.[service,spark]' pyspark==4.1.4
    JAVA_HOME=... python bench/tpc.py [--scale 1] [--rounds 3] [--out build/tpc.json] [--docs]

Lamella is measured on the Spark of this environment, Delta and Iceberg each on the newest Spark that it has jars for
(Spark fetches them into ``build/ivy``), one after the other. In each, the same rows are also plain Parquet, sorted in
the same way and cut into as many files. **Times are compared as ratios to these plain tables on the same Spark**,
between which and the others queries take turns. All answers must be equal. ``--unsorted`` adds plain tables in the
order in which the rows were generated.

Blocks are those of tables of more than one block. *needed*: a full scan finds a row in them that the filter and the
join keys of a scan keep. A query *can skip* if it needs fewer than all.

All 22 queries of TPC-H; of TPC-DS those of ``DETERMINED``, as DuckDB has them. ``--check --tpcds 28 32 ...`` prints of
which others Spark's answer is not determined, because rows tie at a ``LIMIT``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyspark
from loopback import Service
from onspark.engines import settings
from onspark.measuring import Clock
from onspark.tpc_queries import Query, blocks, is_determined, measured
from onspark.tpc_report import markdown, merged, picture
from onspark.tpc_tables import DeltaTables, IcebergTables, LamellaTables, PlainTables, Side, made, sources
from page_part import replace_part
from pyspark.sql import SparkSession
from tpc_files import PYTHON, generate

from lamella.client import Lamella
from lamella.client.spark import attach

#: Queries of TPC-DS whose answers at scale 1 were found not to depend on the order of the rows.
DETERMINED: Final = (*range(1, 35), 36, 37, 38, 40, 41, 42)
_DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
#: Which peer is measured on a version of Spark; on others Lamella is.
_PEERS: Final = {"4.2": "delta", "4.1": "iceberg"}


def main() -> None:
    """Measure, print a table, write JSON."""
    given = _options()
    folder = (given.tables / f"{given.scale:g}").absolute()
    queries = [
        Query(benchmark, number, text)
        for benchmark, chosen in (("tpch", given.tpch), ("tpcds", given.tpcds))
        if chosen
        for number, text in generate(folder / "generated" / benchmark, benchmark, given.scale, given.python).items()
        if number in chosen
    ]
    if given.check:
        print(*_undetermined(folder, queries, given), sep="\n")
        return
    if given.alone:
        found = _measured_here(folder, queries, given)
    else:
        found = merged([_measured_by(python) for python in (sys.executable, *given.peers)])
        print(markdown(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    if given.docs:
        replace_part(_DOCS / "performance-figures.md", "python bench/tpc.py --docs", markdown(found))
        (_DOCS / "images" / "performance-tpc.svg").write_text(picture(found), "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--block-rows", type=int, default=150_000, help="of each block and file, at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tpch", type=int, nargs="*", default=range(1, 23), help="numbers of queries")
    parser.add_argument("--tpcds", type=int, nargs="*", default=DETERMINED, help="numbers of queries")
    parser.add_argument("--unsorted", action="store_true", help="also plain tables that are not sorted")
    parser.add_argument(
        "--peers",
        type=Path,
        nargs="*",
        default=[Path("build/spark42/bin/python"), Path("build/spark41/bin/python")],
        help="interpreters of environments with other versions of Spark",
    )
    parser.add_argument("--alone", action="store_true", help="measure on the Spark of this environment only")
    parser.add_argument("--check", action="store_true", help="measure nothing: print which answers are not determined")
    parser.add_argument("--python", type=Path, default=PYTHON, help="with DuckDB and its extensions")
    parser.add_argument("--tables", type=Path, default=Path("build/tpc-tables"), help="kept for the next run")
    parser.add_argument("--ivy", type=Path, default=Path("build/ivy"))
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--docs", action="store_true", help="write the table of docs/performance-figures.md, and its picture"
    )
    return parser.parse_args()


def _measured_by(python: str | Path) -> dict[str, Any]:
    """Return what the interpreter of an environment finds with the same arguments."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(python), *sys.argv, "--alone", "--out", out.name]
        subprocess.run([each for each in command if each != "--docs"], check=True, stdin=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(Path(out.name).read_text())
    return found


def _measured_here(folder: Path, queries: Sequence[Query], given: argparse.Namespace) -> dict[str, Any]:
    """Return the medians of Lamella or a peer and of plain tables, on the Spark of this environment."""
    peer = _PEERS.get(pyspark.__version__.rpartition(".")[0])
    cut = folder / f"blocks-of-{given.block_rows}"
    by_name: dict[str, Callable[[], Side]] = {
        "delta": lambda: DeltaTables(cut),
        "iceberg": IcebergTables,
        "lamella": LamellaTables,
    }
    sides: list[Side] = [PlainTables(cut, is_sorted=True), by_name[peer or "lamella"]()]
    if given.unsorted:
        sides.append(PlainTables(cut, is_sorted=False))
    with _session(cut, given.ivy.absolute(), peer) as (spark, pids):
        tables = [
            source
            for benchmark in sorted({query.benchmark for query in queries})
            for source in sources(spark, folder / "generated" / benchmark, benchmark, given.block_rows)
        ]
        seconds = made(sides, spark, tables, cut / "made.json")
        load = os.getloadavg()[0]
        found = {
            "spark": spark.version,
            "scale": given.scale,
            "block_rows": given.block_rows,
            "rounds": given.rounds,
            "load": round(load, 1),
            "seconds_to_make": seconds,
            "queries": measured(spark, sides, queries, given.rounds, Clock(pids)),
        }
        if peer is None:
            found["blocks"] = {
                name: msgspec.to_builtins(each) for name, each in blocks(spark, sides[1], queries, tables).items()
            }
    return found


@contextmanager
def _session(folder: Path, ivy: Path, peer: str | None) -> Iterator[tuple[SparkSession, list[int]]]:
    """Yield a session, and the processes that work for it. Without a peer, Lamella's service is attached."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as local:
        options = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "6g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": local,
            "spark.sql.warehouse.dir": f"{local}/warehouse",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.sql.ansi.doubleQuotedIdentifiers": "true",  # which the texts of TPC-DS have
            **(settings(folder, ivy, [peer]) if peer is not None else {}),
        }
        builder = SparkSession.builder.master("local[2]").appName("tpc")
        for name, value in options.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        gateway: Any = spark.sparkContext._gateway
        pids = [os.getpid(), gateway.proc.pid]
        if peer is not None:
            yield spark, pids
        else:
            with (
                Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
                Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
            ):
                attach(spark, "lake", lake, mode="catalog")
                yield spark, [*pids, service.pid]
        spark.stop()


def _undetermined(folder: Path, queries: Sequence[Query], given: argparse.Namespace) -> Iterator[str]:
    cut = folder / f"blocks-of-{given.block_rows}"
    sides: list[Side] = [PlainTables(cut, is_sorted=is_sorted) for is_sorted in (True, False)]
    with _session(cut, given.ivy.absolute(), None) as (spark, _):
        for benchmark in sorted({query.benchmark for query in queries}):
            tables = sources(spark, folder / "generated" / benchmark, benchmark, given.block_rows)
            made(sides, spark, tables, cut / "made.json")
        for query in queries:
            if not is_determined(spark, sides, query):
                yield query.name


if __name__ == "__main__":
    main()
