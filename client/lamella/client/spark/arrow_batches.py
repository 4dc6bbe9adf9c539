"""How many rows go from Spark to Python at a time while a frame is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: What Spark says of ``_BYTES`` unless it was told otherwise.
_USUAL_BYTES: Final = "67108864b"
_WITHOUT_LIMIT: Final = str(2**31 - 1)
#: So many rows take no more than Spark's usual limit as long as they have 16 KiB each; fewer take longer to handle.
BATCH_ROWS: Final = 4_000
_WIDEST_BYTES: Final = 16 << 10

_lock = threading.Lock()
_lent: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()


@contextmanager
def few_rows_at_a_time(frame: DataFrame, row_bytes: float | None) -> Iterator[None]:
    """Batches bounded by rows instead of by bytes, for queries of the frame's session that start inside.

    With its limit of bytes Spark 4.3 adds up the sizes of all columns after every row, which takes longer than to write
    the row. The limit stays where someone set one of their own, where rows are known to be wide (``row_bytes``: bytes
    of a row, None: not known), and where the frame itself hands rows to Python, which may be wider than what comes out;
    of a frame of Spark Connect it is not known whether it does. Writes in several threads of a session share the
    change; the last one to end takes it back.
    """
    spark = frame.sparkSession
    is_wide = row_bytes is not None and row_bytes > _WIDEST_BYTES
    if is_wide or _may_run_python(frame) or not _begin(spark):
        yield
        return
    try:
        yield
    finally:
        _end(spark)


def _may_run_python(frame: DataFrame) -> bool:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    if not isinstance(frame, ClassicFrame):
        return True
    jvm: Any = frame.sparkSession._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    return bool(frame._jdf.queryExecution().analyzed().containsPattern(pattern))


def _begin(spark: SparkSession) -> bool:
    with _lock:
        if spark in _lent:
            count, rows = _lent[spark]
            _lent[spark] = (count + 1, rows)
            return True
        if _limit(spark) != _USUAL_BYTES:
            return False
        rows = str(spark.conf.get(_ROWS))
        spark.conf.set(_BYTES, _WITHOUT_LIMIT)
        if not 0 < int(rows) <= BATCH_ROWS:
            spark.conf.set(_ROWS, str(BATCH_ROWS))
        _lent[spark] = (1, rows)
    return True


def _limit(spark: SparkSession) -> str | None:
    """The session's limit of bytes; None where Spark is so old that it has none."""
    from pyspark.errors import PySparkException

    try:
        return str(spark.conf.get(_BYTES))
    except PySparkException:
        return None


def _end(spark: SparkSession) -> None:
    with _lock:
        count, rows = _lent.pop(spark)
        if count > 1:
            _lent[spark] = (count - 1, rows)
            return
        with suppress(Exception):  # the session may be gone, which is told where it matters
            spark.conf.unset(_BYTES)
            spark.conf.set(_ROWS, rows)
