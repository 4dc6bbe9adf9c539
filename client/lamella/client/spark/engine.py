"""Jobs on Spark: tasks on its executors (classic sessions and Spark Connect), the session of a job, and ``delete``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.delete import DeleteResult, delete_rows
from lamella.client.rewrite.engine import call
from lamella.client.rewrite.stages import Stage
from lamella.client.spark.lake import service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_RESULT: Final = "number long, result binary"
#: Tasks of one Spark job per task that Spark runs at once; results arrive job by job.
_WAVES: Final = 8


class SparkEngine:
    """An :class:`~lamella.client.rewrite.engine.Engine`. ``is_near``: the executors run in the driver's own process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def is_near(self) -> bool:
        """Whether Spark is in local mode."""
        master = self._spark.conf.get("spark.master", "")
        return bool(master) and str(master).startswith("local") and "cluster" not in str(master)

    @cached_property
    def parallelism(self) -> int:
        """Number of tasks that Spark runs at once. On Connect nothing shows it but how Spark partitions ranges."""
        from pyspark.sql.functions import spark_partition_id

        if getattr(self._spark, "_jsparkSession", None) is not None:
            return max(1, self._spark.sparkContext.defaultParallelism)
        return max(1, self._spark.range(0, 1 << 16).select(spark_partition_id()).distinct().count())

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`~lamella.client.rewrite.engine.Engine`; Spark retries tasks and may run them twice.

        Raises:
            PythonException (pyspark): a task failed as often as Spark allows.
        """
        size = self.parallelism * _WAVES
        for start in range(0, len(tasks), size):
            for number, result in self._some(
                stage, [msgspec.json.encode(task) for task in tasks[start : start + size]]
            ):
                yield start + number, msgspec.json.decode(result, type=stage.result_type)

    def _some(self, stage: Stage, tasks: list[bytes]) -> list[tuple[int, bytes]]:
        def done(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = call(stage, tasks[number])
                    yield pa.record_batch(
                        [pa.array([number], pa.int64()), pa.array([result], pa.binary())], names=["number", "result"]
                    )

        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return [(row["number"], bytes(row["result"])) for row in numbers.mapInArrow(done, _RESULT).collect()]


#: Set by ``spark-submit`` for the Python programs that it starts.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Whether ``spark-submit`` started this process, so that a cluster is available."""
    return _SUBMITTED in os.environ


@contextmanager
def job_session(name: str) -> Iterator[SparkSession]:
    """Yield a session as ``spark-submit`` configured it, or a local one; it is stopped when the block ends."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"lamella {name}")
    if not is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = (
            builder.master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.log.level", "WARN")
        )
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def delete(
    spark: SparkSession,
    name: str,
    where: str | Mapping[str, Any],
    *,
    url: str | None = None,
    client: Lamella | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
) -> DeleteResult:
    """Delete the rows of ``namespace.table`` that match ``where`` (SQL text or a JSON tree), in one commit.

    Blocks whose rows all match are removed without being read; only blocks that may match partly are read. Rows that
    others add in the meantime stay. Times without a zone in ``where`` are in the session's. The other arguments are
    those of :func:`lamella.client.spark.write`.

    Raises:
        FilterNotEvaluable: a part of ``where`` cannot be decided row by row; the error names it. Nothing was done.
        EvaluationFailed: a value needed by the filter cannot be computed for some row.
        InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, NamespaceNotFound.
        CommitConflict: other writers committed first on every attempt; nothing was done.
        OutcomeUnknown: the commit may have happened.
    """
    with service(url, client) as lake:
        context = JobContext(
            lake=lake,
            table=name,
            engine=SparkEngine(spark),
            storage_options=storage_options or {},
            scratch=scratch,
            compression=compression,
        )
        return delete_rows(context, where, time_zone=str(spark.conf.get("spark.sql.session.timeZone", "UTC")))
