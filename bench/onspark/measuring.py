"""Planning time, total time and bytes read of a query.

*Planning* is the same for all: from the text of the query to its physical plan and the inputs of its tasks, that is,
until the last scan of the plan knows its files and how they are spread over tasks. Whatever an engine does for that
counts: listing a folder, reading a log or manifests, jobs of Spark's, requests to a service.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from onspark.blocks import COLUMNS, Question, Shape, questions
from onspark.engines import Engine

_TICKS_PER_S = 100


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a query. Wall-clock and processor milliseconds of driver, tasks and service together."""

    planning_ms: float
    planning_cpu_ms: float
    total_ms: float
    total_cpu_ms: float
    files: int
    bytes_read: int
    rows: list[list[Any]]


class Clock:
    """Wall-clock and processor time of some processes, in milliseconds."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._stats = [Path(f"/proc/{pid}/stat") for pid in pids]

    def now(self) -> tuple[float, float]:
        """Both, since some moment."""
        ticks = 0
        for path in self._stats:
            fields = path.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return time.perf_counter() * 1e3, ticks * 1e3 / _TICKS_PER_S


def timed_query(spark: SparkSession, engine: Engine, question: Question, clock: Clock) -> Sample:
    """Plan a query, and run it as another query with the same text."""
    text = question.sql.format(t=engine.table())
    began = clock.now()
    leaves = _scans(spark, text)
    planned = clock.now()
    files = sum(engine.files(leaf) for leaf in leaves)
    before = _bytes_read(spark)
    begun = clock.now()
    rows = spark.sql(text).collect()
    ended = clock.now()
    return Sample(
        planning_ms=planned[0] - began[0],
        planning_cpu_ms=planned[1] - began[1],
        total_ms=ended[0] - begun[0],
        total_cpu_ms=ended[1] - begun[1],
        files=files,
        bytes_read=_bytes_read(spark) - before,
        rows=sorted(list(row) for row in rows),
    )


def _scans(spark: SparkSession, text: str) -> list[Any]:
    """The scans of the physical plan of a query; each knows its tasks."""
    plan = spark.sql(text)._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.initialPlan()
    leaves = plan.collectLeaves()
    found = [leaves.apply(at) for at in range(leaves.size())]
    for leaf in found:
        rows = leaf.executeColumnar() if leaf.supportsColumnar() else leaf.execute()
        rows.getNumPartitions()
    return found


def _bytes_read(spark: SparkSession) -> int:
    """Return the totals of all tasks so far, from Spark's metrics."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().executorSummary("driver").totalInputBytes())


def measured(
    spark: SparkSession, engines: Sequence[Engine], shape: Shape, rounds: int, clock: Clock, *, selective: bool
) -> dict[str, dict[str, Any]]:
    """Medians by question and engine.

    Engines take turns within a question, each round another one first. A round that is not counted goes before. All
    answers of a question must be equal.
    """
    found: dict[str, dict[str, list[Sample]]] = {}
    floors: dict[str, list[float]] = {}
    for number in range(-1, rounds):
        for question in questions(shape, number):
            if selective and question.reads_all:
                continue
            turn = [*engines[number % len(engines) :], *engines[: number % len(engines)]]
            turn = [engine for engine in turn if number == 0 or question.reads_all or not engine.reads_all]
            samples = {engine.name: timed_query(spark, engine, question, clock) for engine in turn}
            answers = {str(sample.rows) for sample in samples.values()}
            assert len(answers) == 1, (question, {name: sample.rows for name, sample in samples.items()})
            floor = floor_ms(spark, question)
            print(f"round {number}: {question.name}, floor {floor:.0f} ms", file=sys.stderr, flush=True)
            if number >= 0:
                floors.setdefault(question.name, []).append(floor)
                for name, sample in samples.items():
                    found.setdefault(question.name, {}).setdefault(name, []).append(sample)
    return {
        question: {
            "floor": {"planning_ms": round(statistics.median(floors[question]), 1)},
            **{name: _medians(samples) for name, samples in by_engine.items()},
        }
        for question, by_engine in found.items()
    }


def floor_ms(spark: SparkSession, question: Question) -> float:
    """Time Spark's own planning of the query on generated rows: no files, no catalog."""
    made = ", ".join(f"CAST(id AS {kind}) AS `{name}`" for name, kind in COLUMNS.items())
    text = question.sql.format(t=f"(SELECT {made} FROM range(1000000))")
    began = time.perf_counter()
    _scans(spark, text)
    return (time.perf_counter() - began) * 1e3


def _medians(samples: Sequence[Sample]) -> dict[str, Any]:
    names = ("planning_ms", "planning_cpu_ms", "total_ms", "total_cpu_ms", "files", "bytes_read")
    middle = {name: round(statistics.median(getattr(sample, name) for sample in samples), 1) for name in names}
    return {**middle, "best_total_ms": round(min(sample.total_ms for sample in samples), 1), "samples": len(samples)}
