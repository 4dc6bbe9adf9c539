"""Sessions that Spark makes have the catalog of the session that it was everywhere to, if that was wanted."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach
from spark.lakes import Lakes, LakeTable, blocks_read, fresh, numbers

pytestmark = pytest.mark.spark


@pytest.fixture
def everywhere(spark: SparkSession, lake: Lamella) -> Iterator[Attached]:
    """A catalog for new sessions too."""
    made = attach(spark, fresh("all"), lake, new_sessions=True)
    yield made
    made.detach()


@pytest.fixture
def table(lakes: Lakes) -> LakeTable:
    """Five blocks of a hundred rows."""
    return lakes.of(*numbers(5))


def test_new_sessions_have_the_catalog(spark: SparkSession, everywhere: Attached, table: LakeTable) -> None:
    """By SQL and by name; they prune, write, and see the writes of others."""
    sql = f"{everywhere.name}.{table.name}"
    one, two = spark.newSession(), spark.newSession()
    frame = one.sql(f"SELECT a FROM {sql} WHERE a >= 450")
    assert frame.count() == 50
    assert blocks_read(frame) == (1, 5)
    two.sql(f"INSERT INTO {sql} VALUES (1000, 1, 'new')")
    assert one.table(sql).where("a = 1000").count() == 1
    assert two.table(sql).count() == spark.table(sql).count() == 501


def test_the_time_zone_is_that_of_each_session(spark: SparkSession, everywhere: Attached, lakes: Lakes) -> None:
    """A new session has settings of its own."""
    name = lakes.empty(numbers(1)[0].schema).name
    sql = f"{everywhere.name}.{name.partition('.')[0]}.{fresh('zoned')}"
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    other.sql(f"CREATE TABLE {sql} (t TIMESTAMP, d DATE)")
    other.sql(f"INSERT INTO {sql} VALUES (TIMESTAMP '2024-05-01 23:30:00', DATE '2024-05-01')")
    assert other.sql(f"SELECT * FROM {sql} WHERE CAST(t AS DATE) = d").count() == 1
    assert spark.sql(f"SELECT * FROM {sql} WHERE CAST(t AS DATE) = d").count() == 0
    other.sql(f"DROP TABLE {sql}")


def test_a_batch_of_a_stream_has_the_catalog(
    spark: SparkSession, everywhere: Attached, table: LakeTable, tmp_path: Path
) -> None:
    """Each batch of ``foreachBatch`` runs in a copy of the session."""
    sql = f"{everywhere.name}.{table.name}"
    seen: list[int] = []

    def write(batch: DataFrame, _number: int) -> None:
        seen.append(batch.sparkSession.sql(f"SELECT count(*) FROM {sql}").collect()[0][0])
        batch.selectExpr("value + 1000 AS a", "CAST(1 AS BIGINT) AS b", "'s' AS s").writeTo(sql).append()

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    query.stop()
    assert seen[0] == 500
    assert spark.table(sql).where("a >= 1000").count() == 10 * len(seen)


def test_many_sessions_at_once(spark: SparkSession, everywhere: Attached, table: LakeTable) -> None:
    """Each is given the catalog once, however many threads use it first."""
    sql = f"{everywhere.name}.{table.name}"
    sessions = [spark.newSession() for _ in range(6)]
    barrier = threading.Barrier(12)

    def count(session: SparkSession) -> int:
        barrier.wait(30)
        return session.sql(f"SELECT * FROM {sql} WHERE a < 150").count()

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(count, sessions * 2)) == [150] * 12


def test_errors_of_the_parser_stay_what_they_are(spark: SparkSession, everywhere: Attached) -> None:
    """The parser of such a session is Spark's own behind ours."""
    other = spark.newSession()
    with pytest.raises(ParseException):
        other.sql("SELEC 1")
    assert other.sql("SELECT 1 AS one").collect() == [(1,)]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        other.sql(f"SELECT * FROM {everywhere.name}.nowhere.t")


def test_sessions_after_the_end_do_not_have_the_catalog(spark: SparkSession, lake: Lamella, table: LakeTable) -> None:
    """Those that have it keep it."""
    everywhere = attach(spark, fresh("ended"), lake, new_sessions=True)
    sql = f"{everywhere.name}.{table.name}"
    before = spark.newSession()
    assert before.table(sql).count() == 500
    everywhere.detach()
    assert before.table(sql).count() == 500
    with pytest.raises(AnalysisException):
        spark.newSession().table(sql)


def test_by_default_a_session_has_its_own_catalogs(spark: SparkSession, lake: Lamella, table: LakeTable) -> None:
    """A session of somebody else must not act with the key of this one."""
    everywhere = attach(spark, fresh("private"), lake)
    with pytest.raises(AnalysisException):
        spark.newSession().table(f"{everywhere.name}.{table.name}")
