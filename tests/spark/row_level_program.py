"""Changes rows while tasks fail, or run twice. Started by ``test_row_level_tasks.py``, with a session of its own."""

# ruff: noqa: S608 - the SQL of this program has no input from outside

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from lamella.client import Lamella
from lamella.client.spark import attach

#: The row of which writing fails.
FAILS_AT = 1900
#: Spark starts attempts beside others on clusters only.
IS_CLUSTER = sys.argv[2].startswith("spark:")
#: Where attempts leave marks.
MARKS = sys.argv[4]


def attempt() -> int:
    """The number of the attempt that runs."""
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def fails_at_first(value: int) -> str:
    """Fail in the first attempt of a task, when most rows are written already."""
    if value == FAILS_AT and attempt() == 0:
        raise ValueError("the first attempt fails")
    return f"n{value}"


def fails_always(value: int) -> str:
    """Fail in each attempt, when most rows are written already."""
    if value == FAILS_AT:
        raise ValueError("each attempt fails")
    return f"n{value}"


def stalls_at_first(value: int) -> str:
    """Stall in the first attempt, when most rows are written already; Spark starts another attempt beside it."""
    if value == FAILS_AT and IS_CLUSTER:
        Path(MARKS, f"attempt-{attempt()}").touch()
        time.sleep(0 if attempt() else 20)
    return f"n{value}"


def main(url: str, master: str, scratch: str) -> None:
    """Print what was found, as JSON."""
    builder = SparkSession.builder.master(master).appName("rows")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.task.duration.threshold": "2s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with Lamella(url) as lake:
        attach(spark, "lake", lake, scratch=scratch)
        for function in (fails_at_first, fails_always, stalls_at_first):
            spark.udf.register(function.__name__, function, StringType())
        lake.create_namespace("tasks")
        found: dict[str, object] = {}
        for name in ("fails_at_first", "fails_always", "stalls_at_first"):
            table = f"tasks.{name}"
            spark.sql(f"CREATE TABLE lake.{table} (id BIGINT, v STRING) CLUSTER BY (id)")
            spark.sql(f"INSERT INTO lake.{table} SELECT id, concat('v', id) FROM range(2000)")
            before = lake.table(table).info().snapshot_id
            try:
                spark.sql(f"UPDATE lake.{table} SET v = {name}(id) WHERE id >= 1000")
                error = None
            except PySparkException as failed:
                error = str(failed)
            rows = spark.sql(
                f"SELECT count(*), count(DISTINCT id), min(id), max(id), count_if(v = concat('n', id)),"
                f" count_if(v = concat('v', id)) FROM lake.{table}"
            ).collect()[0]
            found[name] = {
                "error": error,
                "rows": list(rows),
                "is_unchanged": lake.table(table).info().snapshot_id == before,
            }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4])
