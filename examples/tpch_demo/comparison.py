"""The demo's queries: each once through Lamella's catalog and once over all files of the same snapshot."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from lamella.client.cli.output import percent, print_table, size_text
from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.snapshot.errors import LamellaError
from tpch_demo.data import LAYOUTS, NAMESPACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """``sql`` has ``{lineitem}`` and ``{orders}`` where the names of the tables go; ``tables`` are those it reads."""

    name: str
    tables: tuple[str, ...]
    sql: str


#: Runs before the first query, unmeasured.
WARM_UP = "SELECT count(*), max(o_orderkey) FROM {orders} WHERE o_orderdate < DATE '1992-01-03'"

#: The query whose share of blocks decides the exit status.
NARROW = "narrow date range"

#: Small answers at every scale. Sums are of decimals, so that an answer does not depend on the order of addition.
QUERIES = (
    Query(
        name=NARROW,
        tables=("lineitem",),
        sql="""
            SELECT l_orderkey, l_linenumber, l_partkey, l_quantity, l_extendedprice, l_shipdate, l_comment
            FROM {lineitem}
            WHERE l_shipdate BETWEEN DATE '1995-03-14' AND DATE '1995-03-16'
        """,
    ),
    Query(
        name="key point",
        tables=("lineitem",),
        sql="SELECT * FROM {lineitem} WHERE l_orderkey = 1 AND l_shipdate = DATE '1996-03-13'",
    ),
    Query(
        name="IN list",
        tables=("lineitem",),
        sql="""
            SELECT l_shipdate, l_shipmode, count(*) AS lines, sum(l_quantity) AS quantity
            FROM {lineitem}
            WHERE l_shipdate IN (DATE '1992-07-04', DATE '1994-02-01', DATE '1996-02-29', DATE '1998-08-03')
            GROUP BY l_shipdate, l_shipmode
        """,
    ),
    Query(
        # Only lineitem is narrowed: order keys say nothing about the dates that orders is clustered by.
        name="join, one side narrow",
        tables=("lineitem", "orders"),
        sql="""
            SELECT o_orderpriority, count(*) AS lines, sum(l_extendedprice * (1 - l_discount)) AS revenue
            FROM {lineitem} JOIN {orders} ON o_orderkey = l_orderkey
            WHERE l_shipdate BETWEEN DATE '1994-05-02' AND DATE '1994-05-04'
            GROUP BY o_orderpriority
        """,
    ),
    Query(
        # Which dates are needed is known only when orders has been read; Spark then prunes lineitem by them.
        name="join, pruned by its keys",
        tables=("lineitem", "orders"),
        sql="""
            SELECT o_orderkey, o_orderdate, count(*) AS shipped_that_day
            FROM {orders} JOIN {lineitem} ON l_shipdate = o_orderdate
            WHERE o_orderkey IN (1, 7, 32, 66)
            GROUP BY o_orderkey, o_orderdate
        """,
    ),
    Query(
        name="count of the newest",
        tables=("lineitem",),
        sql="SELECT count(*) AS lines, max(l_shipdate) AS newest FROM {lineitem} WHERE l_shipdate >= DATE '1998-11-10'",
    ),
)


def have_equal_rows(left: list[Row], right: list[Row]) -> bool:
    """Rows in any order, compared whole. The demo's columns are integers, decimals, dates and text: all exact."""
    return Counter(map(_row_key, left)) == Counter(map(_row_key, right))


def _row_key(row: Row) -> tuple[object, ...]:
    return (*row.__fields__, *row)


def files_read(frame: DataFrame) -> set[str]:
    """The paths that the last action on ``frame`` read through Lamella's catalog, join keys taken into account.

    Asked of the executed plan: ``BatchScanExec.filteredPartitions`` is what its tasks were made of. It is not what
    the service answered, so the two can be told apart.

    Raises:
        LamellaError: the plan holds no scan that can be asked.
    """
    converters = _converters(frame)
    found: set[str] = set()
    scans = 0
    for node in _nodes(_executed_plan(frame), converters):
        if _class(node) != "BatchScanExec":
            continue
        scans += 1
        for group in converters.asJava(node.filteredPartitions()):
            # An Option in some versions of Spark, a Seq in others: both have an iterator.
            for partition in converters.asJava(group.iterator()):
                found.update(_scala_path(file.urlEncodedPath()) for file in partition.files())
    if not scans:
        raise LamellaError("the executed plan holds no scan of the catalog")
    return found


def full_scan_file_count(frame: DataFrame) -> int:
    """How many files the last action on a frame of plain Parquet reads read, by Spark's own metric."""
    nodes = _nodes(_executed_plan(frame), _converters(frame))
    scans = [node for node in nodes if _class(node) == "FileSourceScanExec"]
    return sum(int(scan.metrics().apply("numFiles").value()) for scan in scans)


def _executed_plan(frame: DataFrame) -> Any:
    jdf: Any = frame._jdf
    return jdf.queryExecution().executedPlan()


def _converters(frame: DataFrame) -> Any:
    """Scala's collections as Java's, through the gateway of a classic session."""
    gateway: Any = frame.sparkSession.sparkContext._gateway
    return gateway.jvm.scala.jdk.javaapi.CollectionConverters


def _nodes(plan: Any, converters: Any) -> Iterator[Any]:
    """The plan's operators, through the stages of adaptive execution; an exchange that is reused was read once."""
    kind = _class(plan)
    if kind == "AdaptiveSparkPlanExec":
        yield from _nodes(plan.executedPlan(), converters)
    elif kind.endswith("QueryStageExec"):
        yield from _nodes(plan.plan(), converters)
    elif kind != "ReusedExchangeExec":
        yield plan
        for child in converters.asJava(plan.children()):
            yield from _nodes(child, converters)


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _scala_path(url: str) -> str:
    return unquote(urlsplit(url).path)


#: The narrow date range may read so much of the blocks.
NARROW_SHARE = 0.05


class QueryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One query. ``blocks_read`` and ``bytes_read`` (file sizes) are of the files that Spark's tasks were given."""

    name: str
    equal: bool
    blocks_read: int
    blocks_total: int
    bytes_read: int
    bytes_total: int
    seconds: float
    full_scan_seconds: float


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All queries, in the order they ran."""

    queries: tuple[QueryResult, ...]

    def failures(self) -> list[str]:
        """What is not as it must be, in sentences."""
        found = [f"{q.name}: the answer differs from that of the full scan" for q in self.queries if not q.equal]
        found += [
            f"{q.name}: {q.blocks_read} of {q.blocks_total} blocks were read, more than {NARROW_SHARE:.0%}"
            for q in self.queries
            if q.name == NARROW and q.blocks_read > NARROW_SHARE * q.blocks_total
        ]
        return found

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        partial = file.with_name(file.name + ".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        os.replace(partial, file)

    def show(self) -> None:
        """Print the table."""
        print_table(
            [
                "query",
                ("blocks read", "right"),
                ("%", "right"),
                ("bytes read", "right"),
                ("%", "right"),
                ("Lamella", "right"),
                ("full scan", "right"),
                "answers",
            ],
            [
                (
                    q.name,
                    f"{q.blocks_read:,} of {q.blocks_total:,}",
                    percent(q.blocks_read, q.blocks_total),
                    f"{size_text(q.bytes_read)} of {size_text(q.bytes_total)}",
                    percent(q.bytes_read, q.bytes_total),
                    f"{q.seconds:.2f} s",
                    f"{q.full_scan_seconds:.2f} s",
                    "equal" if q.equal else "DIFFERENT",
                )
                for q in self.queries
            ],
        )


CATALOG: Final = "lake"
PUSHDOWN: Final = "spark.sql.parquet.filterPushdown"


class TableFiles(msgspec.Struct, frozen=True):
    """A table's blocks at one snapshot: file sizes in bytes, by path."""

    sizes: dict[str, int]


class Comparison:
    """Both ways to the same tables, in one Spark session."""

    def __init__(self, spark: SparkSession, lake: Lamella) -> None:
        self._spark = spark
        self._files = {name: _files(lake, name) for name in LAYOUTS}
        # What the driver would compute by itself says nothing of the files that Spark's tasks read.
        attach(spark, CATALOG, lake, aggregates=False)
        for name, files in self._files.items():
            # What a user without Lamella has: the directory's files, all of them.
            spark.read.parquet(*sorted(files.sizes)).createOrReplaceTempView(f"all_{name}")
        self._through_lamella = {name: f"{CATALOG}.{NAMESPACE}.{name}" for name in LAYOUTS}
        self._over_all_files = {name: f"all_{name}" for name in LAYOUTS}

    def warm_up(self) -> None:
        """Run a small query both ways, so that the first one measured does not pay for loading classes."""
        for names in (self._through_lamella, self._over_all_files):
            self._run(WARM_UP.format(**names))

    def run(self, query: Query) -> QueryResult:
        """Both answers, their times, and what was read.

        Raises:
            LamellaError: the plain read did not read every file, so it proves nothing.
        """
        pruned, rows, seconds = self._run(query.sql.format(**self._through_lamella))
        read = files_read(pruned)
        # Off, so that nothing but Spark's own evaluation of each row decides: its push-down is unsound for NaN.
        before = self._spark.conf.get(PUSHDOWN)
        self._spark.conf.set(PUSHDOWN, "false")
        try:
            full, expected, full_seconds = self._run(query.sql.format(**self._over_all_files))
        finally:
            self._spark.conf.set(PUSHDOWN, before or "true")
        sizes = {path: size for name in query.tables for path, size in self._files[name].sizes.items()}
        if full_scan_file_count(full) != len(sizes):
            raise LamellaError(f"{query.name}: the full scan read {full_scan_file_count(full)} of {len(sizes)} files")
        return QueryResult(
            name=query.name,
            equal=have_equal_rows(rows, expected) and not read - sizes.keys(),
            blocks_read=len(read),
            blocks_total=len(sizes),
            bytes_read=sum(sizes.get(path, 0) for path in read),
            bytes_total=sum(sizes.values()),
            seconds=round(seconds, 3),
            full_scan_seconds=round(full_seconds, 3),
        )

    def _run(self, sql: str) -> tuple[DataFrame, list[Row], float]:
        """The frame, its whole answer, and the seconds from planning to the last row."""
        started = time.perf_counter()
        frame = self._spark.sql(sql)
        rows = frame.collect()
        return frame, rows, time.perf_counter() - started


def _files(lake: Lamella, name: str) -> TableFiles:
    answer = lake.table(f"{NAMESPACE}.{name}").prune()
    return TableFiles({_path(block.location): block.file_size for block in answer.records()})


def _path(location: str) -> str:
    """The path of a ``file://`` location; locations are not percent-encoded."""
    return location.removeprefix("file://")
