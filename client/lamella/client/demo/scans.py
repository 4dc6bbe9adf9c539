"""What a query really read: the files in the partitions that Spark's scans handed to its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lamella.snapshot.errors import LamellaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
                found.update(_path(file.urlEncodedPath()) for file in partition.files())
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


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)
