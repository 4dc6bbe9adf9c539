"""Queries of TPC-H and TPC-DS: planning and total time, answers compared, and which blocks they read and need.

*Planning* is from the text of a query to its physical plan; *total* goes on to the last row of the answer.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onspark.measuring import Clock
from onspark.tpc_tables import Side, Source

_KINDS: Final = ("planning_ms", "planning_cpu_ms", "total_ms", "total_cpu_ms")
#: What is between a filter and the scan below it.
_THROUGH: Final = ("WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec")
_TOLERANCE: Final = 1e-9


class Query(msgspec.Struct, frozen=True):
    """A query of a benchmark."""

    benchmark: str
    number: int
    text: str

    @property
    def name(self) -> str:
        """As in the results."""
        return f"{self.benchmark} {self.number}"


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of tables of more than one block, summed over the scans of a query.

    ``needed``: they hold a row that the filter and the join keys of the scan keep. ``read``: also after join keys.
    """

    needed: int
    read: int
    total: int


def measured(
    spark: SparkSession, sides: Sequence[Side], queries: Sequence[Query], rounds: int, clock: Clock
) -> dict[str, dict[str, dict[str, float]]]:
    """Return medians by query and side.

    Sides take turns within a query, each round another one first. A round that is not counted goes before; in it, the
    answers of all sides must be equal.
    """
    samples: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for number in range(-1, rounds):
        for query in queries:
            answers: dict[str, Sequence[tuple[Any, ...]]] = {}
            for side in [*sides[number % len(sides) :], *sides[: number % len(sides)]]:
                spark.sql(f"USE {side.database(query.benchmark)}")
                began = clock.now()
                frame = spark.sql(query.text)
                frame._jdf.queryExecution().executedPlan()
                planned = clock.now()
                answers[side.name] = frame.collect()
                ended = clock.now()
                if number >= 0:
                    times = [*_between(began, planned), *_between(began, ended)]
                    samples.setdefault((query.name, side.name), []).append(tuple(times))
            if number < 0:
                compare(query, answers)
        print(f"round {number} is done", file=sys.stderr, flush=True)
    spark.sql("USE spark_catalog.default")
    return {
        query.name: {
            side.name: {
                kind: round(statistics.median(sample[at] for sample in samples[query.name, side.name]), 1)
                for at, kind in enumerate(_KINDS)
            }
            for side in sides
        }
        for query in queries
    }


def _between(began: tuple[float, float], ended: tuple[float, float]) -> tuple[float, float]:
    return ended[0] - began[0], ended[1] - began[1]


def compare(query: Query, answers: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
    """Raise AssertionError unless all are the same rows in any order, floats within a tolerance."""
    (first, expected), *others = ((name, sorted(rows, key=_order)) for name, rows in answers.items())
    for name, rows in others:
        assert len(rows) == len(expected), (query.name, first, len(expected), name, len(rows))
        for row, other in zip(rows, expected, strict=True):
            assert all(map(_is_same, row, other)), (query.name, name, row, first, other)


def _order(row: tuple[Any, ...]) -> str:
    return str([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def is_determined(spark: SparkSession, sides: Sequence[Side], query: Query) -> bool:
    """Whether plain tables with the same rows in another order give the same answer: no tie at a ``LIMIT``."""
    answers = {}
    for side in sides:
        spark.sql(f"USE {side.database(query.benchmark)}")
        answers[side.name] = spark.sql(query.text).collect()
    try:
        compare(query, answers)
    except AssertionError:
        return False
    return True


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A scan of Lamella's in a plan that has run. ``condition``: of the filter above it, an object of the JVM."""

    table: str
    read: int
    total: int
    pushed: str
    condition: Any
    node: Any


def blocks(spark: SparkSession, side: Side, queries: Sequence[Query], tables: Sequence[Source]) -> dict[str, Blocks]:
    """Run each query once, and count the blocks that its scans read, and those that they need, by full scans."""
    files = {
        f"{table.benchmark}.{table.name}": spark.table(f"{side.database(table.benchmark)}.{table.name}")
        for table in tables
    }
    found = {}
    for query in queries:
        spark.sql(f"USE {side.database(query.benchmark)}")
        frame = spark.sql(query.text)
        frame.collect()
        scans = [scan for scan in _scans(frame._jdf.queryExecution().executedPlan(), None) if scan.total > 1]
        found[query.name] = Blocks(
            needed=sum(_needed(spark, scan, files[scan.table]) for scan in scans),
            read=sum(scan.read for scan in scans),
            total=sum(scan.total for scan in scans),
        )
        print(f"{query.name}: {found[query.name]}", file=sys.stderr, flush=True)
    return found


def _scans(node: Any, condition: Any) -> Iterator[Scan]:
    """Yield the scans of a physical plan that has run, also of its subqueries; reused ones once."""
    kind = node.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan(), None)
    elif kind.endswith("QueryStageExec"):
        yield from _scans(node.plan(), None)
    elif kind == "BatchScanExec":
        text = node.scan().description()
        counts = re.match(r"Lamella (\S+)@\S+ blocks=(\d+)/(\d+)", text)
        if counts is not None:
            left = [int(number) for number in re.findall(r" after (?:join keys|subqueries)=(\d+)", text)]
            pushed = re.search(r" filter=\[(.*?)\](?: verdicts=| limit=|$)", text)
            yield Scan(
                table=counts[1],
                read=min([int(counts[2]), *left]),
                total=int(counts[3]),
                pushed="" if pushed is None else pushed[1],
                condition=condition,
                node=node,
            )
    elif not kind.startswith("Reused"):
        below = node.condition() if kind == "FilterExec" else condition if kind in _THROUGH else None
        for child in _each(node.children()):
            yield from _scans(child, below)
    if not kind.startswith("Reused"):
        for subquery in _each(node.subqueries()):
            yield from _scans(subquery, None)


def _needed(spark: SparkSession, scan: Scan, table: DataFrame) -> int:
    """Return how many files of ``table`` have a row that the scan's filter and join keys keep."""
    rows = table.withColumn("_file", F.col("_metadata.file_path"))
    if scan.condition is not None:
        for part in _conjuncts(scan.condition):
            rows = rows.where(part)
    elif scan.pushed:
        # Spark has no filter left to evaluate: every row of the blocks that the filter selects matches.
        try:
            rows = rows.where(scan.pushed)
        except PySparkException:
            return scan.read
    for name, keys in _join_keys(spark, scan.node):
        kind = dict(rows.dtypes)[name]
        of_keys = spark.createDataFrame([(key,) for key in keys], "_key string").select(_typed(kind).alias("_key"))
        rows = rows.join(F.broadcast(of_keys), rows[name] == of_keys["_key"], "left_semi")
    return rows.select("_file").distinct().count()


def _typed(kind: str) -> Any:
    return F.date_from_unix_date(F.col("_key").cast("int")) if kind == "date" else F.col("_key").cast(kind)


def _conjuncts(condition: Any) -> Iterator[str]:
    """Yield the SQL of each, without the tables' names; conditions with subqueries are left out."""
    if condition.getClass().getSimpleName() == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
        return
    text = condition.sql()
    if "subquery" in text.lower():
        return
    for column in _each(condition.references().toSeq()):
        text = text.replace(column.sql(), f"`{column.name()}`")
    yield text


def _join_keys(spark: SparkSession, node: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns whose join keys a scan got, and the keys, as text."""
    jvm: Any = spark._jvm
    for expression in _each(node.runtimeFilters()):
        inner = expression.child()
        if inner.getClass().getSimpleName() != "InSubqueryExec":
            continue
        values = inner.values()
        if values.isDefined():
            text = jvm.java.util.Arrays.toString(values.get())[1:-1]
            keys = [each for each in text.split(", ") if each and each != "null"]
            yield inner.child().name(), keys


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]
