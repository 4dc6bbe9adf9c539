"""Writing by SQL and by DataFrame writers: the rows that were meant, all of them or none, whoever else writes."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, IllegalArgumentException, SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http.fake_transport import problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.spark import attach
from spark.lakes import CATALOG, Fault, Faults, Lakes, LakeTable, fresh, numbers, setting

pytestmark = pytest.mark.spark

SCHEMA = (
    "a INT NOT NULL, b STRING DEFAULT 'x', c DECIMAL(10,2), d STRUCT<e: INT, f: STRING>,"
    " ts TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 00:00:00', m MAP<STRING, ARRAY<INT>>"
)


def new_table(spark: SparkSession, lakes: Lakes, columns: str = SCHEMA) -> str:
    """An empty table; its name below the catalog."""
    name = f"{fresh('sql')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(f"CREATE TABLE {CATALOG}.{name} ({columns})")
    return name


def operations(lakes: Lakes, name: str) -> list[str]:
    """What made the table's snapshots, the oldest first."""
    return [entry.operation for entry in lakes.lake.table(name).snapshots()][::-1]


def longs(spark: SparkSession, name: str, column: str = "id") -> list[int]:
    """A column of all rows, in order."""
    return sorted(row[0] for row in spark.table(name).select(column).collect())


def attach_with(spark: SparkSession, faults: Faults, fault: Fault) -> str:
    """A catalog of the service with a fault; returns its name."""
    name = fresh("faulty")
    attach(spark, name, faults.client(fault))
    return name


def once(when: Callable[[HttpRequest], bool], then: Callable[[], object]) -> Fault:
    """Something that happens right before the first request of a kind is sent."""
    left = [then]

    def fault(request: HttpRequest) -> None:
        if left and when(request):
            left.pop()()

    return fault


def is_commit(request: HttpRequest) -> bool:
    """True for a request that commits."""
    return request.path.endswith("/commits")


@pytest.fixture(scope="module")
def table_of_two(spark: SparkSession, lakes: Lakes) -> str:
    """A table of two rows, which no test changes."""
    name = new_table(spark, lakes)
    spark.sql(f"INSERT INTO {CATALOG}.{name} (a) VALUES (1), (2)")
    return name


def test_every_way_of_inserting_puts_columns_where_they_belong(spark: SparkSession, lakes: Lakes) -> None:
    """By position, by name, by a list of columns; what is not given has the column's default, or is null."""
    name = new_table(spark, lakes)
    sql = f"{CATALOG}.{name}"
    spark.sql(f"INSERT INTO {sql} (b, a) VALUES ('q', 1)")
    spark.sql(f"INSERT INTO {sql} VALUES (2, DEFAULT, 1.5, named_struct('e', 1, 'f', 'z'), NULL, map('k', array(1)))")
    spark.sql(f"INSERT INTO {sql} BY NAME SELECT named_struct('f', 'y', 'e', 5) AS d, 3 AS A")
    some = spark.range(1).selectExpr("'w' AS b", "CAST(id + 4 AS INT) AS a")
    some.writeTo(sql).append()
    some.withColumn("a", F.lit(5)).write.mode("append").saveAsTable(sql)
    whole = spark.table(sql).where("a = 2").withColumn("a", F.lit(6))
    whole.write.insertInto(sql)
    rows = spark.table(sql).selectExpr("a", "b", "c", "to_json(d)", "to_json(m)", "unix_seconds(ts)").orderBy("a")
    new_year = 1_704_063_600  # in Berlin, where the session is
    two = ("x", "1.50", '{"e":1,"f":"z"}', '{"k":[1]}', None)
    assert [tuple(row) for row in rows.withColumn("c", F.col("c").cast("string")).collect()] == [
        (1, "q", None, None, None, new_year),
        (2, *two),
        (3, "x", None, '{"e":5,"f":"y"}', None, new_year),
        (4, "w", None, None, None, new_year),
        (5, "w", None, None, None, new_year),
        (6, *two),
    ]
    assert operations(lakes, name) == ["create"] + ["append"] * 6


def test_values_are_cast_as_spark_casts_them(spark: SparkSession, lakes: Lakes) -> None:
    """Text of limited length comes as it is there, times are those of the session, decimals are rounded as always."""
    name = new_table(spark, lakes, "v STRING, c STRING, ts TIMESTAMP, n TIMESTAMP_NTZ, day DATE, d DECIMAL(5,1)")
    native = fresh("native")
    spark.sql(f"CREATE TABLE default.{native} (v VARCHAR(5), c CHAR(4)) USING parquet")
    spark.sql(f"INSERT INTO default.{native} VALUES ('ab', 'ab')")
    spark.sql(
        f"INSERT INTO {CATALOG}.{name} SELECT v, c, TIMESTAMP '2024-10-27 02:30:00+01:00',"
        f" TIMESTAMP_NTZ '2024-10-27 02:30:00', TIMESTAMP '2024-07-01 00:30:00', 1.25 FROM default.{native}"
    )
    spark.sql(f"DROP TABLE default.{native}")
    seen = spark.table(f"{CATALOG}.{name}").selectExpr(
        "v", "c", "unix_seconds(ts)", "CAST(n AS STRING)", "CAST(day AS STRING)", "CAST(d AS STRING)"
    )
    expected = ("ab", "ab  ", 1_729_992_600, "2024-10-27 02:30:00", "2024-07-01", "1.3")
    assert [tuple(row) for row in seen.collect()] == [expected]


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("INTO {} VALUES ('one', 'a', NULL, NULL, NULL, NULL)", AnalysisException, "Cannot safely cast"),
        ("INTO {} VALUES (3000000000, 'a', NULL, NULL, NULL, NULL)", Exception, "CAST_OVERFLOW"),
        ("INTO {} VALUES (1, 2)", AnalysisException, "not enough data columns"),
        ("INTO {} BY NAME SELECT 1 AS a, 2 AS z", AnalysisException, "extra columns `z`"),
        ("INTO {} (b) VALUES ('a')", SparkRuntimeException, r"\[lamella.schema_mismatch\] column 'a' is required"),
        ("OVERWRITE {} (b) VALUES ('a')", SparkRuntimeException, r"\[lamella.schema_mismatch\] column 'a' is required"),
        ("INTO {} REPLACE WHERE a % 2 = 0 SELECT * FROM {}", SparkRuntimeException, r"cannot decide \(a % 2\) = 0"),
        ("INTO {} REPLACE WHERE b RLIKE 'x' SELECT * FROM {}", AnalysisException, "RLIKE"),
        ("INTO {} REPLACE WHERE a = 1 SELECT * FROM {}", SparkRuntimeException, "cannot replace a part of it"),
        ("OVERWRITE {} PARTITION (a = 1) VALUES ('x')", AnalysisException, "NON_PARTITION_COLUMN"),
    ],
)
@pytest.mark.few(3)
def test_what_cannot_be_written_changes_nothing(
    spark: SparkSession, lakes: Lakes, table_of_two: str, what: str, error: type[Exception], says: str
) -> None:
    """The statement fails with a reason, and the table stays at its snapshot."""
    before = lakes.lake.table(table_of_two).info()
    with pytest.raises(error, match=says):
        spark.sql("INSERT " + what.format(*[f"{CATALOG}.{table_of_two}"] * 2))
    assert lakes.lake.table(table_of_two).info() == before


def test_frames_that_cannot_be_written_change_nothing(spark: SparkSession, lakes: Lakes) -> None:
    """Partitions that there are none of, options that nobody knows, casts that would lose something."""
    name = new_table(spark, lakes, "id BIGINT")
    sql, frame = f"{CATALOG}.{name}", spark.range(3)
    tries: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (frame.writeTo(sql).overwritePartitions, SparkRuntimeException, "REPLACE WHERE condition"),
        (
            frame.writeTo(sql).option("overwriteSchema", "true").append,
            SparkRuntimeException,
            "unknown option 'overwriteschema'",
        ),
        (frame.writeTo(sql).option("target-block-rows", "0").append, SparkRuntimeException, "at least one row"),
        (frame.select(F.struct("id").alias("id")).writeTo(sql).append, AnalysisException, "Cannot safely cast"),
    ]
    for write, error, says in tries:
        with pytest.raises(error, match=says):
            write()
    dynamic = setting(spark, spark__sql__sources__partitionOverwriteMode="dynamic")
    with dynamic, pytest.raises(SparkRuntimeException, match=r"writeTo\(...\).overwrite\(condition\)"):
        spark.sql(f"INSERT OVERWRITE {sql} VALUES (1)")
    assert operations(lakes, name) == ["create"]


def test_partition_by_is_refused_and_says_what_to_use(spark: SparkSession, lakes: Lakes) -> None:
    """``partitionBy`` names ``CLUSTER BY``, and changes nothing."""
    name = new_table(spark, lakes, "id BIGINT")
    sql, frame = f"{CATALOG}.{name}", spark.range(3)
    for mode in ("append", "overwrite", "error", "ignore"):
        with pytest.raises(SparkRuntimeException, match=r"use CLUSTER BY \(...\) instead of id"):
            frame.write.partitionBy("id").mode(mode).saveAsTable(f"{sql}_new")
    with pytest.raises(SparkRuntimeException, match=r"use CLUSTER BY"):
        frame.write.partitionBy("id").mode("overwrite").saveAsTable(sql)
    with pytest.raises(IllegalArgumentException, match="do not match the existing table's"):
        frame.write.partitionBy("id").mode("append").saveAsTable(sql)
    with pytest.raises(AnalysisException, match="cannot contain the non-partition column"):
        spark.sql(f"INSERT OVERWRITE {sql} PARTITION (id = 1) SELECT 1")
    assert operations(lakes, name) == ["create"]
    assert not spark.catalog.tableExists(f"{sql}_new")


def test_the_query_runs_once(spark: SparkSession, lakes: Lakes) -> None:
    """A function that counts its calls is called once for each row."""
    name = new_table(spark, lakes, "id BIGINT")
    calls = spark.sparkContext.accumulator(0)

    def counted(value: int) -> int:
        calls.add(1)
        return value

    spark.range(50).select(F.udf(counted, "long", useArrow=False)("id").alias("id")).writeTo(
        f"{CATALOG}.{name}"
    ).append()
    assert calls.value == 50
    assert longs(spark, f"{CATALOG}.{name}") == list(range(50))


def test_overwrites_replace_rows_in_one_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """All rows, or those for which a condition is true; others stay, those for which it is null too."""
    name = new_table(spark, lakes, "id BIGINT, s STRING")
    sql = f"{CATALOG}.{name}"
    spark.sql(f"INSERT OVERWRITE {sql} SELECT id, if(id % 2 = 0, 's', NULL) FROM range(6)")
    spark.sql(f"INSERT INTO {sql} REPLACE WHERE s = 's' AND id < 4 VALUES (20, 's'), (21, 't')")
    assert longs(spark, sql) == [1, 3, 4, 5, 20, 21]
    frame = spark.range(1).selectExpr("id + 30 AS id", "'u' AS s")
    frame.writeTo(sql).option("target_block_rows", 10).overwrite(F.col("id").isin(20, 21) | (F.col("id") < 3))
    assert longs(spark, sql) == [3, 4, 5, 30]
    spark.sql(f"INSERT OVERWRITE {sql} SELECT id + 100, s FROM {sql} WHERE id < 5")
    assert longs(spark, sql) == [103, 104]
    frame.limit(0).write.mode("overwrite").insertInto(sql)
    assert longs(spark, sql) == []
    assert operations(lakes, name) == ["create"] + ["overwrite"] * 5


def test_a_statement_reads_one_snapshot_of_the_table_it_writes_to(
    spark: SparkSession, lakes: Lakes, faults: Faults
) -> None:
    """Rows that another writer adds while it runs are neither read nor lost."""
    table = lakes.of(pa.table({"id": [0, 1, 2]}))

    def is_read(request: HttpRequest) -> bool:
        return request.path.endswith("/prune")

    race = once(is_read, lambda: table.add(pa.table({"id": [1000]})))
    name = f"{attach_with(spark, faults, race)}.{table.name}"
    spark.sql(
        f"INSERT INTO {name} SELECT x.id + 100 + y.n FROM {name} x CROSS JOIN (SELECT count(*) AS n FROM {name}) y"
    )
    assert longs(spark, table.sql) == [0, 1, 2, 103, 104, 105, 1000]


def test_an_overwrite_takes_away_no_row_that_it_has_not_seen(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """When rows come between its reading and its commit, it fails; one that reads other tables leaves them alone."""
    table = lakes.of(pa.table({"id": [0, 1, 2]}))
    race = once(is_commit, lambda: table.add(pa.table({"id": [1000]})))
    name = f"{attach_with(spark, faults, race)}.{table.name}"
    with pytest.raises(SparkRuntimeException, match=r"lamella\.new_matches"):
        spark.sql(f"INSERT OVERWRITE {name} SELECT id + 1 FROM {name}")
    assert longs(spark, table.sql) == [0, 1, 2, 1000]
    race = once(is_commit, lambda: table.add(pa.table({"id": [2000]})))
    name = f"{attach_with(spark, faults, race)}.{table.name}"
    spark.sql(f"INSERT OVERWRITE {name} SELECT id FROM range(2)")
    assert longs(spark, table.sql) == [0, 1, 2000]


@pytest.mark.parametrize("cache", ["table", "frame"])
def test_an_overwrite_from_sparks_cache_takes_away_no_row_that_is_not_in_it(
    spark: SparkSession, lakes: Lakes, cache: str
) -> None:
    """What was cached stays as it was, so newer rows would be gone."""
    table = lakes.of(pa.table({"id": [0, 1, 2]}))
    frame = spark.table(table.sql)
    try:
        if cache == "table":
            spark.sql(f"CACHE TABLE {table.sql}")
        else:
            assert frame.cache().count() == 3
        table.add(pa.table({"id": [1000]}))
        with pytest.raises(SparkRuntimeException, match="from Spark's cache"):
            frame.write.mode("overwrite").insertInto(table.sql)
    finally:
        spark.catalog.clearCache()
    assert longs(spark, table.sql) == [0, 1, 2, 1000]
    frame.write.mode("overwrite").insertInto(table.sql)
    assert longs(spark, table.sql) == [0, 1, 2, 1000]


def test_rows_of_an_earlier_snapshot_can_be_put_back(spark: SparkSession, lakes: Lakes) -> None:
    """Who names a snapshot means that one, and replaces what there is now."""
    table = lakes.of(*numbers(1, rows=3))
    before = table.snapshot_id()
    spark.sql(f"DELETE FROM {table.sql} WHERE a < 2")
    assert longs(spark, table.sql, "a") == [2]
    spark.sql(f"INSERT OVERWRITE {table.sql} SELECT * FROM {table.sql} VERSION AS OF '{before}'")
    assert longs(spark, table.sql, "a") == [0, 1, 2]


def test_errors_of_the_service_reach_the_user_and_end_the_statement(
    spark: SparkSession, lakes: Lakes, faults: Faults
) -> None:
    """A refusal by its message and code; even an exit of the driver's own cannot hang the statement."""
    table = lakes.of(pa.table({"id": [0]}))

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return problem_response(503, "unavailable", "not now") if is_commit(request) else None

    def leave(request: HttpRequest) -> HttpResponse | None:
        if is_commit(request):
            raise SystemExit(3)
        return None

    with pytest.raises(SparkRuntimeException, match=r"\[lamella\.unavailable\] not now"):
        spark.sql(f"INSERT INTO {attach_with(spark, faults, refuse)}.{table.name} VALUES (1)")
    with pytest.raises(Exception, match="SystemExit in a callback of Spark"):
        spark.sql(f"INSERT INTO {attach_with(spark, faults, leave)}.{table.name} VALUES (1)")
    spark.sql(f"INSERT INTO {table.sql} VALUES (2)")
    assert longs(spark, table.sql) == [0, 2]


def test_threads_write_beside_each_other(spark: SparkSession, lakes: Lakes) -> None:
    """Statements of several threads, on one table, are all done; each reads the table as it began with it."""
    table = lakes.of(pa.table({"id": [0]}))
    failed: list[Exception] = []

    def insert(number: int) -> None:
        try:
            spark.sql(f"INSERT INTO {table.sql} SELECT id + {number} FROM {table.sql} WHERE id = 0")
        except Exception as error:
            failed.append(error)

    threads = [InheritableThread(target=insert, args=(number,)) for number in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert longs(spark, table.sql) == [0, 10, 20, 30]


def test_explain_says_what_a_write_would_do(spark: SparkSession, lakes: Lakes) -> None:
    """Without doing it."""
    table: LakeTable = lakes.of(pa.table({"id": [0]}))

    def shown(statement: str) -> str:
        frame: DataFrame = spark.sql("EXPLAIN INSERT " + statement)
        return str(frame.head())

    assert f"Lamella {table.name} append" in shown(f"INTO {table.sql} VALUES (1)")
    assert f"Lamella {table.name} overwrite" in shown(f"OVERWRITE {table.sql} VALUES (1)")
    assert f"Lamella {table.name} replace [id = 3]" in shown(f"INTO {table.sql} REPLACE WHERE id = 3 VALUES (1)")
    assert longs(spark, table.sql) == [0]


def test_the_block_size_of_the_table_counts_for_every_write_and_an_option_wins(
    spark: SparkSession, lakes: Lakes
) -> None:
    """INSERT, DataFrame writers, MERGE, UPDATE, DELETE and compaction make blocks of at most that many rows."""
    name = new_table(spark, lakes, "id INT, v INT")
    sql, handle = f"{CATALOG}.{name}", lakes.lake.table(name)
    spark.sql(
        f"ALTER TABLE {sql} SET TBLPROPERTIES ('target_block_rows' = '10', 'write.delete.mode' = 'copy-on-write',"
        " 'write.delete.max_deleted_share' = '0')"
    )

    def sizes() -> list[int]:
        return sorted(block.row_count for block in handle.prune(reader_features=["deletes"]).records())

    spark.sql(f"INSERT INTO {sql} SELECT CAST(id AS INT), 0 FROM range(30)")
    assert (max(sizes()) <= 10, sum(sizes())) == (True, 30)
    frame = spark.range(100, 140).selectExpr("CAST(id AS INT) AS id", "0 AS v")
    frame.writeTo(sql).append()
    assert (max(sizes()) <= 10, sum(sizes())) == (True, 70)
    spark.sql(f"UPDATE {sql} SET v = 1")
    assert max(sizes()) <= 10
    source = "(SELECT CAST(id AS INT) AS id FROM range(20, 60)) s ON t.id = s.id"
    spark.sql(
        f"MERGE INTO {sql} t USING {source} WHEN MATCHED THEN UPDATE SET v = 2"
        " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 3)"
    )
    spark.sql(f"DELETE FROM {sql} WHERE id % 2 = 0")
    assert (max(sizes()) <= 10, sum(sizes())) == (True, 50)
    spark.sql(f"CALL {CATALOG}.system.compact('{name}')").collect()
    assert (max(sizes()) <= 10, len(sizes())) == (True, 5)
    frame.writeTo(sql).option("target_block_rows", "25").overwrite(F.lit(True))
    assert sizes() == [20, 20]
    spark.sql(f"INSERT OVERWRITE {sql} SELECT CAST(id AS INT), 0 FROM range(15)")
    assert max(sizes()) <= 10
