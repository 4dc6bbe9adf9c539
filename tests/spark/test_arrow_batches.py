"""The session's settings while a frame is written: changed for the time being, and never somebody's own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.spark.writer import BATCH_ROWS, batches_limited_by_rows

pytestmark = pytest.mark.spark

BYTES, ROWS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """One of its own, with Spark's usual settings."""
    own = spark.newSession()
    own.conf.unset(BYTES)
    own.conf.unset(ROWS)
    return own


def settings(session: SparkSession) -> tuple[str, str]:
    """Both as they are now."""
    return str(session.conf.get(BYTES)), str(session.conf.get(ROWS))


def test_batches_are_bounded_by_rows_and_the_settings_come_back(session: SparkSession) -> None:
    """Also when what is done inside fails."""
    before = settings(session)

    def fail() -> None:
        with batches_limited_by_rows(session.range(3), None):
            assert settings(session) == (str(2**31 - 1), str(BATCH_ROWS))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert settings(session) == before


def test_the_last_of_several_writes_takes_the_settings_back(session: SparkSession) -> None:
    """In whatever order they end."""
    before = settings(session)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(batches_limited_by_rows(session.range(3), 100.0))
        inside = settings(session)
        second.enter_context(batches_limited_by_rows(session.range(3), None))
        first.close()
        assert settings(session) == inside != before
        second.close()
        assert settings(session) == before


def test_what_someone_set_stays_and_so_do_bounds_for_wide_rows(session: SparkSession) -> None:
    """A limit of bytes that is not Spark's usual one, fewer rows, and rows that are known to be wide."""
    before = settings(session)
    with batches_limited_by_rows(session.range(3), 1e6):
        assert settings(session) == before
    session.conf.set(ROWS, "17")
    with batches_limited_by_rows(session.range(3), 10.0):
        assert settings(session) == (str(2**31 - 1), "17")
    session.conf.set(BYTES, "1m")
    before = settings(session)
    with batches_limited_by_rows(session.range(3), 10.0):
        assert settings(session) == before


def test_bounds_stay_for_frames_that_hand_rows_to_python_themselves(session: SparkSession) -> None:
    """Rows on their way into a function may be wider than what comes out: wherever in the plan it stands."""
    before = settings(session)
    plain = session.range(3)
    by_value = plain.select(F.udf(lambda value: value, "long")("id").alias("id"))
    by_batch = plain.mapInArrow(lambda batches: batches, "id long")
    in_subquery = plain.where(plain.id.isin(by_value.agg(F.max("id")).scalar()))
    for frame in (by_value, by_batch, by_value.join(plain, "id").where("id > 1"), in_subquery):
        with batches_limited_by_rows(frame, None):
            assert settings(session) == before
    with batches_limited_by_rows(plain.join(plain, "id"), None):
        assert settings(session) != before
