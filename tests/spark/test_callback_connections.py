"""Queries leave no threads, sockets or other descriptors behind, neither in this process nor in the JVM."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.client.spark.gateway import Gateway
from spark.lakes import CATALOG, Lakes, LakeTable, numbers

pytestmark = pytest.mark.spark

#: Threads and descriptors that may come and go, whatever runs: the connections that stay open until there are more.
SLACK = 24
#: Java's name of a thread that serves a connection. Spark's pools, which let threads end after a minute, have others.
CONNECTION_THREAD = "Thread-"

Count = Callable[[], dict[str, int]]


@pytest.fixture(scope="module")
def table(lakes: Lakes) -> LakeTable:
    """Three blocks."""
    return lakes.of(*numbers(3))


@pytest.fixture
def count(spark: SparkSession) -> Count:
    """Counts open descriptors and threads of both processes, in Java those that serve connections."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = Path("/proc") / str(gateway.proc.pid)

    def counted() -> dict[str, int]:
        gc.collect()
        names = [_text(task / "comm") for task in (java / "task").iterdir()]
        return {
            "threads here": threading.active_count(),
            "descriptors here": len(os.listdir("/proc/self/fd")),
            "threads in Java": sum(name.startswith(CONNECTION_THREAD) for name in names),
            "descriptors in Java": len(os.listdir(java / "fd")),
        }

    return counted


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread has ended
        return ""


def queries(spark: SparkSession, table: LakeTable) -> list[str]:
    """With a shuffle, a sort-merge join, a broadcast join whose keys prune, and subqueries."""
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    return [
        f"SELECT count(*) FROM {table.sql} WHERE a > 7",
        f"SELECT /*+ MERGE(y) */ x.b, count(*) FROM {table.sql} x JOIN {table.sql} y USING (a) GROUP BY x.b ORDER BY 1",
        f"SELECT /*+ BROADCAST(y) */ count(*) FROM {table.sql} x JOIN {table.sql} y USING (a) WHERE y.b = 1",
        f"SELECT s FROM {table.sql} WHERE a = (SELECT max(a) FROM {table.sql}) AND b IN (SELECT b FROM {table.sql})",
    ]


def assert_flat(count: Count, run: Callable[[int], object], *, warm_up: int, times: int) -> None:
    """After a warm-up, runs leave no more than the slack behind."""
    for at in range(warm_up):
        run(at)
    before = count()
    for at in range(times):
        run(at)
    after = count()
    grown = {name: after[name] - before[name] for name in before}
    assert all(more <= SLACK for more in grown.values()), (grown, before, after)


@pytest.mark.parametrize("times", [12, pytest.param(32, marks=pytest.mark.soak)])
def test_queries_with_exchanges_leave_no_connections(
    spark: SparkSession, table: LakeTable, count: Count, times: int
) -> None:
    """Spark gives each of them new threads, several for a query, each of which calls back."""
    texts = queries(spark, table)
    assert_flat(count, lambda at: spark.sql(texts[at % len(texts)]).collect(), warm_up=4, times=times)


@pytest.mark.soak
def test_thousands_of_queries_leave_no_connections(spark: SparkSession, table: LakeTable, count: Count) -> None:
    """More of them than a process may have open descriptors, as a rule."""
    texts = queries(spark, table)
    assert_flat(count, lambda at: spark.sql(texts[at % len(texts)]).collect(), warm_up=50, times=2_500)


@pytest.mark.soak
def test_sessions_leave_no_connections(spark: SparkSession, lake: Lamella, table: LakeTable, count: Count) -> None:
    """All sessions of a process share what calls back."""

    def run(_at: int) -> None:
        other = spark.newSession()
        attached = attach(other, CATALOG, lake)
        other.sql(f"SELECT b, count(*) FROM {table.sql} GROUP BY b").collect()
        attached.detach()

    assert_flat(count, run, warm_up=4, times=32)


def test_long_answers_to_callbacks_are_sent_without_a_delay(spark: SparkSession, table: LakeTable) -> None:
    """The JVM sends all parts of an answer at once, on each connection that it has opened."""
    for text in queries(spark, table):
        spark.sql(text).collect()
    sockets = Gateway(spark).classes.threads.sockets()
    assert sockets.size()
    assert all(sockets.get(at).getTcpNoDelay() for at in range(sockets.size()))


@pytest.mark.soak
def test_threads_that_ran_queries_leave_no_connections(spark: SparkSession, table: LakeTable, count: Count) -> None:
    """A thread of this process has a connection of its own, which goes when the thread ends."""

    def run(_at: int) -> None:
        thread = threading.Thread(target=lambda: spark.sql(f"SELECT b FROM {table.sql} WHERE a = 1").collect())
        thread.start()
        thread.join()

    assert_flat(count, run, warm_up=4, times=32)


@pytest.mark.parametrize("times", [16, pytest.param(32, marks=pytest.mark.soak)])
def test_connections_in_use_stay_open(spark: SparkSession, lakes: Lakes, table: LakeTable, times: int) -> None:
    """Queries and writes that run at the same time, on threads on both sides, all succeed with the right answer."""
    texts = queries(spark, table)
    wanted = [sorted(map(str, spark.sql(text).collect())) for text in texts]
    copies = [lakes.empty(numbers(1)[0].schema) for _ in range(2)]

    def run(at: int) -> bool:
        if at % 8 == 7:
            spark.sql(f"INSERT INTO {copies[at // 8 % 2].sql} SELECT * FROM {table.sql} WHERE a < 10").collect()
            return True
        return sorted(map(str, spark.sql(texts[at % 4]).collect())) == wanted[at % 4]

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, range(times)))
    assert [spark.table(copy.sql).count() for copy in copies] == [times // 16 * 10] * 2
