"""Tasks on Spark's executors, through ``mapInArrow``; on classic sessions and on Spark Connect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from lamella.client.rewrite.engine import call
from lamella.client.rewrite.stages import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT: Final = "number long, result binary"
#: Tasks of one Spark job, for each that Spark runs at once; results come job by job.
_WAVES: Final = 8


class SparkEngine:
    """An :class:`~lamella.client.rewrite.engine.Engine`. ``is_near``: the executors are in the driver's own process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    def is_near(self) -> bool:
        """True in Spark's local mode."""
        master = self._spark.conf.get("spark.master", "")
        return bool(master) and str(master).startswith("local") and "cluster" not in str(master)

    @cached_property
    def parallelism(self) -> int:
        """How many tasks Spark runs at once, as its own ranges are cut; on Connect nothing else tells."""
        from pyspark.sql.functions import spark_partition_id

        return max(1, self._spark.range(0, 1 << 16).select(spark_partition_id()).distinct().count())

    def run(self, stage: Stage, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As of :class:`~lamella.client.rewrite.engine.Engine`; Spark retries tasks, and runs them twice if it likes.

        Raises:
            PythonException (pyspark): a task failed, so often that Spark gave up.
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
