"""How many rows go from Spark to Python at a time while a frame is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
def few_rows_at_a_time(spark: SparkSession, row_bytes: float | None) -> Iterator[None]:
    """Batches bounded by rows instead of by bytes, for queries of the session that start inside.

    With its limit of bytes Spark 4.3 adds up the sizes of all columns after every row, which takes longer than to write
    the row. The session's own limit stays where someone set one, and for rows that are known to be wide
    (``row_bytes``: bytes of a row, None: not known). Writes in several threads of a session share the change; the last
    one to end takes it back.
    """
    if not _begin(spark, row_bytes):
        yield
        return
    try:
        yield
    finally:
        _end(spark)


def _begin(spark: SparkSession, row_bytes: float | None) -> bool:
    if row_bytes is not None and row_bytes > _WIDEST_BYTES:
        return False
    with _lock:
        if spark in _lent:
            count, rows = _lent[spark]
            _lent[spark] = (count + 1, rows)
            return True
        if _limit(spark) != _USUAL_BYTES:
            return False
        rows = str(spark.conf.get(_ROWS))
        _lent[spark] = (1, rows)
        spark.conf.set(_BYTES, _WITHOUT_LIMIT)
        if not 0 < int(rows) <= BATCH_ROWS:
            spark.conf.set(_ROWS, str(BATCH_ROWS))
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
