"""Which snapshot a query reads: now, by version, by time, pinned, cached, and in several threads."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach
from lamella.snapshot.errors import InvalidRequest, SnapshotNotFound
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_read, numbers, plan, setting

pytestmark = pytest.mark.spark


@pytest.fixture
def history(lakes: Lakes) -> tuple[LakeTable, list[str]]:
    """A table of one block, then two, then three; and the ids of its snapshots, the empty one first."""
    first, second, third = numbers(3)
    table = lakes.empty(first.schema)
    ids = [table.snapshot_id()]
    for block in (first, second, third):
        table.add(block)
        ids.append(table.snapshot_id())
    return table, ids


def test_version_as_of_reads_that_snapshot(spark: SparkSession, history: tuple[LakeTable, list[str]]) -> None:
    """Every snapshot of the history can be read, in SQL and by the reader's option, with its own filters."""
    table, ids = history
    for count, snapshot_id in enumerate(ids):
        frame = spark.sql(f"SELECT * FROM {table.sql} VERSION AS OF '{snapshot_id}' WHERE a < 250")
        assert len(frame.collect()) == min(count * 100, 250)
        if count:
            assert blocks_read(frame) == (count, count)
        numbered = spark.sql(f"SELECT count(*) FROM {table.sql} VERSION AS OF {count + 1}")
        assert numbered.collect()[0][0] == count * 100
    assert spark.read.option("versionAsOf", ids[1]).table(table.sql).count() == 100
    joined = spark.sql(
        f"SELECT count(*) FROM {table.sql} VERSION AS OF '{ids[1]}' o RIGHT JOIN {table.sql} n ON o.a = n.a"
        " WHERE o.a IS NULL"
    )
    assert joined.collect()[0][0] == 200


def test_version_as_of_reads_the_snapshot_that_a_tag_names(
    spark: SparkSession, history: tuple[LakeTable, list[str]], lake: Lamella
) -> None:
    """In SQL and by the reader's option; a frame stays with its snapshot when the tag moves on."""
    table, ids = history
    handle = lake.table(table.name)
    handle.tag("v1.0", ids[1])
    query = f"SELECT * FROM {table.sql} VERSION AS OF 'v1.0'"
    frame = spark.sql(query)
    assert spark.read.option("versionAsOf", "v1.0").table(table.sql).count() == len(frame.collect()) == 100
    handle.tag("v1.0", ids[2], move=True)
    assert len(frame.collect()) == 100
    assert spark.sql(query).count() == 200


def test_timestamp_as_of_reads_the_snapshot_in_force_then(
    spark: SparkSession, history: tuple[LakeTable, list[str]], lake: Lamella
) -> None:
    """A time selects the last snapshot made until then; text is in the session's time zone."""
    table, _ = history
    entries = sorted(lake.table(table.name).snapshots(), key=lambda entry: entry.timestamp_ms)
    for entry in entries:
        at = dt.datetime.fromtimestamp(entry.timestamp_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
        count = spark.sql(f"SELECT count(*) FROM {table.sql} TIMESTAMP AS OF '{at}'").collect()[0][0]
        assert count == entry.row_count
        assert spark.read.option("timestampAsOf", at).table(table.sql).count() == entry.row_count
    assert spark.sql(f"SELECT count(*) FROM {table.sql} TIMESTAMP AS OF '2099-01-01'").collect()[0][0] == 300


def test_a_snapshot_that_never_was_is_an_error(spark: SparkSession, history: tuple[LakeTable, list[str]]) -> None:
    """Unknown ids and times before the table existed are refused with the service's message."""
    table, _ = history
    unknown = "01900000-0000-7000-8000-000000000000"
    for clause in (f"VERSION AS OF '{unknown}'", "VERSION AS OF 'yesterday'", "TIMESTAMP AS OF '1999-01-01'"):
        with pytest.raises(SparkRuntimeException, match=r"lamella\.snapshot_not_found"):
            spark.sql(f"SELECT * FROM {table.sql} {clause}").collect()


def test_a_frame_reads_the_snapshot_of_its_first_execution(spark: SparkSession, lakes: Lakes) -> None:
    """Spark loads the table again when a frame first runs, and the same plan stays with what it found then."""
    first, second, third = numbers(3)
    table = lakes.of(first)
    frame = spark.table(table.sql).select("a")
    table.add(second)
    assert len(frame.collect()) == 200
    table.add(third)
    assert len(frame.collect()) == 200
    assert frame.count() == 300  # another plan


def test_a_version_pins_a_frame_for_good(spark: SparkSession, attached: Attached, lakes: Lakes) -> None:
    """VERSION AS OF, and `table` of the attached service, stay at their snapshot whatever is committed."""
    first, second = numbers(2)
    table = lakes.of(first)
    by_version = spark.read.option("versionAsOf", table.snapshot_id()).table(table.sql)
    by_handle = attached.table(table.name)
    table.add(second)
    assert (by_version.count(), by_handle.count()) == (100, 100)
    assert attached.table(table.name).count() == 200
    now = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    assert attached.table(table.name, timestamp=now, columns=["s"]).columns == ["s"]
    with pytest.raises(InvalidRequest, match="time zone"):
        attached.table(table.name, timestamp=dt.datetime(2024, 1, 1))  # noqa: DTZ001  # the point of the test
    with pytest.raises(SnapshotNotFound):
        attached.table(table.name, timestamp=dt.datetime(1999, 1, 1, tzinfo=dt.UTC))


def test_both_sides_of_a_join_read_one_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """Commits between planning and running do not tear a query apart."""
    first, second = numbers(2)
    table = lakes.of(first)
    frame = spark.sql(f"SELECT count(*) FROM {table.sql} l FULL JOIN {table.sql} r ON l.a = r.a AND l.a >= 0")
    table.add(second)
    assert frame.collect()[0][0] == 200


def test_a_cached_frame_answers_its_own_snapshot_only(spark: SparkSession, lakes: Lakes) -> None:
    """A cache entry belongs to a snapshot: after a commit the new one is read, and the old stays cached."""
    first, second = numbers(2)
    table = lakes.of(first)
    pinned = f"SELECT * FROM {table.sql} VERSION AS OF '{table.snapshot_id()}'"
    cached = spark.sql(pinned).cache()
    try:
        assert cached.count() == 100
        assert "InMemoryTableScan" in plan(spark.sql(pinned).where("a < 10"))
        table.add(second)
        fresh = spark.table(table.sql)
        assert fresh.count() == 200
        assert "InMemoryTableScan" not in plan(fresh.where("a < 10"))
        assert spark.sql(pinned).count() == 100
    finally:
        cached.unpersist()


def test_equal_scans_are_exchanged_once_and_different_ones_are_not(spark: SparkSession, lakes: Lakes) -> None:
    """Spark reuses an exchange for a scan of the same blocks; one that keeps other blocks has its own."""
    table = lakes.of(*numbers(6))

    def sides(left: str, right: str) -> tuple[int, str]:
        one = f"SELECT b, count(*) AS n FROM {table.sql} WHERE {left} GROUP BY b"
        other = f"SELECT b, count(*) AS n FROM {table.sql} WHERE {right} GROUP BY b"
        frame = spark.sql(f"SELECT sum(l.n), sum(r.n) FROM ({one}) l JOIN ({other}) r ON l.b = r.b")
        row = frame.collect()[0]
        return row[0] + row[1], plan(frame)

    with setting(
        spark,
        spark__sql__adaptive__enabled="false",
        spark__sql__autoBroadcastJoinThreshold="-1",
        spark__sql__optimizer__dynamicPartitionPruning__enabled="false",
    ):
        total, text = sides("a < 200", "a < 200")
        assert total == 400
        assert "ReusedExchange" in text
        total, text = sides("a < 200", "a >= 400 AND a < 500")
        assert total == 300
        assert "ReusedExchange" not in text


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.few(1)
def test_queries_of_many_shapes_are_right(spark: SparkSession, lakes: Lakes, adaptive: str) -> None:
    """Unions, subqueries, windows, CTEs, samples and limits, with adaptive execution on and off."""
    table = lakes.of(*numbers(5))
    t = table.sql
    expected = {
        f"SELECT count(*) FROM (SELECT a FROM {t} WHERE a < 10 UNION ALL SELECT a FROM {t} WHERE a >= 490)": 20,
        f"SELECT count(*) FROM {t} WHERE a IN (SELECT a FROM {t} WHERE b = 0 AND a < 30)": 10,
        f"SELECT count(*) FROM {t} WHERE a = (SELECT max(a) FROM {t})": 1,
        f"SELECT count(*) FROM {t} o WHERE NOT EXISTS (SELECT 1 FROM {t} i WHERE i.a = o.a AND i.a < 400)": 100,
        f"WITH c AS (SELECT a, b FROM {t} WHERE a < 100) SELECT count(*) FROM c l JOIN c r ON l.a = r.a": 100,
        f"SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY b ORDER BY a) AS n FROM {t})": 167,
        f"SELECT count(*) FROM (SELECT a FROM {t} WHERE a > 450 LIMIT 7)": 7,
        f"SELECT count(*) FROM {t} TABLESAMPLE (100 PERCENT)": 500,
        f"SELECT count(DISTINCT b) FROM {t} WHERE a >= 100": 3,
        f"SELECT count(*) FROM {t} WHERE a < 50 AND s LIKE 'v00004%'": 10,
    }
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        assert {query: spark.sql(query).collect()[0][0] for query in expected} == expected


def test_sessions_in_many_threads_get_their_own_answers(spark: SparkSession, lakes: Lakes, lake: Lamella) -> None:
    """Callbacks of concurrent queries do not mix."""
    table = lakes.of(*numbers(8))

    def ask(at: int) -> list[int]:
        session = spark.newSession()
        attach(session, CATALOG, lake)
        low = at * 100
        rows = session.sql(
            f"SELECT min(l.a), max(r.a), count(*) FROM {table.sql} l JOIN {table.sql} r ON l.a = r.a"
            f" WHERE l.a >= {low} AND r.a < {low + 100}"
        ).collect()
        return list(rows[0])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert answers == [[at * 100, at * 100 + 99, 100] for at in range(8)]
