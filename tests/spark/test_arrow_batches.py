"""The session's settings while a frame is written: changed for the time being, and never somebody's own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from lamella.client.spark.arrow_batches import BATCH_ROWS, few_rows_at_a_time

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
        with few_rows_at_a_time(session, None):
            assert settings(session) == (str(2**31 - 1), str(BATCH_ROWS))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert settings(session) == before


def test_the_last_of_several_writes_takes_the_settings_back(session: SparkSession) -> None:
    """In whatever order they end."""
    before = settings(session)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(few_rows_at_a_time(session, 100.0))
        inside = settings(session)
        second.enter_context(few_rows_at_a_time(session, None))
        first.close()
        assert settings(session) == inside != before
        second.close()
        assert settings(session) == before


def test_what_someone_set_stays_and_so_do_bounds_for_wide_rows(session: SparkSession) -> None:
    """A limit of bytes that is not Spark's usual one, fewer rows, and rows that are known to be wide."""
    before = settings(session)
    with few_rows_at_a_time(session, 1e6):
        assert settings(session) == before
    session.conf.set(ROWS, "17")
    with few_rows_at_a_time(session, 10.0):
        assert settings(session) == (str(2**31 - 1), "17")
    session.conf.set(BYTES, "1m")
    before = settings(session)
    with few_rows_at_a_time(session, 10.0):
        assert settings(session) == before
