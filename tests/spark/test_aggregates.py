"""Aggregates that Spark does not compute: from statistics, and from the rows of a few blocks."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.spark import aggregates as known
from lamella.client.spark import attach
from lamella.snapshot.schema import Schema
from spark.lakes import Lakes, LakeTable, fresh, no_pushdown, plan, setting, sorted_rows
from support import generate, generate_terms
from support.arrow_files import arrow_table
from support.oracle import Oracle
from support.spark_sql import sql_of

pytestmark = pytest.mark.spark


def reads_table(frame: DataFrame) -> bool:
    """Whether Spark read the table for an executed query."""
    return "BatchScan" in plan(frame)


def days(blocks: int = 6, rows: int = 50) -> list[pa.Table]:
    """Blocks of one day each, with a running number, a price with some nulls, and a double that is NaN now and then."""
    made = []
    for at in range(blocks):
        numbers = list(range(at * rows, (at + 1) * rows))
        made.append(
            pa.table(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "day": pa.array([dt.date(2024, 1, 1 + at)] * rows),
                    "price": pa.array([None if n % 10 == 0 else Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
                    "x": pa.array([math.nan if n == 7 else n / 3 for n in numbers], pa.float64()),
                    "name": [f"n{n:05}" for n in numbers],
                    "s": pa.array([{"part": n % 5} for n in numbers], pa.struct([("part", pa.int32())])),
                }
            )
        )
    return made


@pytest.fixture(scope="module")
def table(lakes: Lakes) -> LakeTable:
    """Six days."""
    return lakes.of(*days())


def assert_known(spark: SparkSession, table: LakeTable, query: str) -> None:
    """A query about ``{t}`` has the rows of a full scan, and Spark does not read the table for it."""
    assert_same(spark, table, query, is_known=True)


def assert_same(spark: SparkSession, table: LakeTable, query: str, *, is_known: bool) -> None:
    """A query about ``{t}`` has the rows of a full scan; ``is_known``: whether Spark gets them without reading."""
    frame = spark.sql(query.format(t=table.sql))
    found = sorted_rows(frame)
    with no_pushdown(spark):
        table.full_scan(spark).createOrReplaceTempView("whole")
        assert found == sorted_rows(spark.sql(query.format(t="whole"))), query
    assert reads_table(frame) != is_known, query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {t}",
        "SELECT count(*) + 1 AS more, count(price), count(1), count(2), min(id), max(day), max(name) FROM {t}",
        "SELECT sum(id), sum(price), avg(id), avg(price) FROM {t}",
        "SELECT min(s.part), max(s.part), count(s.part) FROM {t} WHERE id >= 0",
        "SELECT day, count(*), sum(id) FROM {t} GROUP BY day",
        "SELECT count(*), day FROM {t} GROUP BY day HAVING count(*) > 3 ORDER BY day LIMIT 2",
        "SELECT count(*), max(id) FROM {t} WHERE day = DATE'2024-01-03'",
        "SELECT (SELECT count(*) FROM {t}) AS a, (SELECT min(id) FROM {t}) AS b",
        "SELECT count(*) FROM {t} WHERE id < 0",
        "SELECT day, max(id) FROM {t} WHERE id < 0 GROUP BY day",
        "SELECT * FROM (SELECT day, count(*) AS c FROM {t} GROUP BY day) JOIN (SELECT count(*) AS all FROM {t})",
        "SELECT max(i) FROM (SELECT id AS i, day FROM {t}) WHERE day > DATE'2024-01-02'",
    ],
)
@pytest.mark.few(7)
def test_statistics_answer(spark: SparkSession, table: LakeTable, query: str) -> None:
    """Where they prove the result, no file is opened."""
    assert_known(spark, table, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {t} WHERE id > 77",
        "SELECT count(price), sum(price), avg(price), min(x), max(name) FROM {t} WHERE id BETWEEN 60 AND 220",
        "SELECT max(x) FROM {t} WHERE id < 90",
        "SELECT day, count(*), max(price) FROM {t} WHERE id BETWEEN 77 AND 188 GROUP BY day",
        "SELECT day, s.part, sum(id) FROM {t} WHERE id < 20 GROUP BY day, s.part",
        "SELECT max(i) FROM (SELECT id AS i FROM {t}) WHERE i < 77 OR i > 205",
        "SELECT * FROM (SELECT count(*) AS c, day FROM {t} WHERE id < 140 GROUP BY day) WHERE c < 50",
        "SELECT count(*) FROM {t} WHERE name LIKE 'n0001%' AND price IS NOT NULL",
        "SELECT count(*) FROM {t} AS a WHERE a.id IN (3, 70, 999)",
        "SELECT count(id), avg(id), max(id), max(ID) FROM {t} WHERE id > 77",
        "SELECT day, count(*) FROM {t} WHERE id > 77 GROUP BY day, day, DAY",
        "SELECT day, day AS again, count(price) FROM {t} WHERE day = DATE'2024-01-03' AND id > 110 GROUP BY day, again",
        "SELECT count(1) FROM {t} WHERE id > 77 HAVING count(1) > 5 ORDER BY 1 LIMIT 1",
        "SELECT * FROM (SELECT day, name, id FROM {t} WHERE id BETWEEN 77 AND 120)"
        " PIVOT (max(id) FOR name IN ('n00080', 'n00101'))",
    ],
)
@pytest.mark.few(5)
def test_rows_of_blocks_that_match_partly_are_read_by_the_driver(
    spark: SparkSession, table: LakeTable, query: str
) -> None:
    """And added to what statistics prove of the others."""
    assert_known(spark, table, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT avg(x), sum(x) FROM {t}",
        "SELECT count(s) FROM {t}",
        "SELECT count(DISTINCT day) FROM {t} WHERE id > 77",
        "SELECT count(*) FILTER (WHERE id < 60) FROM {t}",
        "SELECT max(id + 1) FROM {t} WHERE id < 77",
        "SELECT max(id) FROM (SELECT id + 1 AS id FROM {t} WHERE id < 77)",
        "SELECT max(length(name)), min(id) FROM {t}",
        "SELECT day FROM {t} WHERE id > 77 GROUP BY day",
        "SELECT count(*), id % 2 FROM {t} WHERE id > 77 GROUP BY id % 2",
        "SELECT count(*) FROM {t} a JOIN {t} b USING (id) WHERE a.id < 77",
        "SELECT count(*) FROM (SELECT id FROM {t} WHERE id < 77 UNION ALL SELECT id FROM {t} WHERE id > 200)",
        "SELECT count(*) FROM (SELECT id FROM {t} WHERE id < 77 LIMIT 100000)",
        "SELECT count(*) FROM {t} WHERE id > 77 AND id IN (SELECT max(id) FROM {t} WHERE id < 120)",
        "SELECT count(*) FROM {t} WHERE id & 7 = 3",
        "SELECT DISTINCT count(*) OVER () FROM {t} WHERE id < 77",
        "SELECT count(e) FROM {t} LATERAL VIEW explode(array(1, 2)) AS e WHERE id < 77",
        "SELECT percentile(id, 0.5), max(id) FROM {t} WHERE id < 77",
        "SELECT day, count(*) FROM {t} WHERE id > 77 GROUP BY ROLLUP (day)",
        "SELECT count(*) FROM {t} TABLESAMPLE (100 PERCENT) WHERE id > 77",
        "SELECT count(*), 1 AS one FROM {t} WHERE id > 77 GROUP BY one",
        "WITH x AS (SELECT * FROM {t} WHERE id < 77) SELECT (SELECT count(*) FROM x), (SELECT max(id) FROM x)",
    ],
)
@pytest.mark.few(7)
def test_other_queries_are_left_to_spark(spark: SparkSession, table: LakeTable, query: str) -> None:
    """With all of their conditions."""
    assert_same(spark, table, query, is_known=False)


def test_a_random_condition_is_evaluated_for_each_row(spark: SparkSession, table: LakeTable) -> None:
    """It is not taken for one that all rows of a block meet."""
    counted = spark.sql(f"SELECT count(*) FROM {table.sql} WHERE id > 77 AND rand(5) < 0.5")
    assert 0 < counted.collect()[0][0] < 222
    assert reads_table(counted)
    inner = f"SELECT id, rand(5) AS r FROM {table.sql} WHERE id > 77"
    above = spark.sql(f"SELECT count(*) FROM ({inner}) WHERE r < 0.5")
    assert 0 < above.collect()[0][0] < 222
    assert reads_table(above)


def test_conditions_that_only_spark_evaluates_are_evaluated(spark: SparkSession, table: LakeTable) -> None:
    """Functions of Python, collations, and functions that are not translated; beside one that is pushed down."""
    odd = F.udf(lambda number: number % 2 == 1, "boolean")
    some = spark.table(table.sql).where("id > 77")
    assert some.where(odd("id")).count() == 111
    assert some.select("id", odd("id").alias("odd")).where("odd").agg(F.max("id")).collect()[0][0] == 299
    for condition, count in (
        ("name COLLATE UTF8_LCASE = 'N00080'", 1),
        ("id > 77 AND name COLLATE UTF8_LCASE >= 'N00290'", 10),
        ("id % 2 = 1", 111),
        ("s = named_struct('part', 1)", 44),
        ("day < current_date()", 222),
    ):
        assert some.where(condition).agg(F.count("*")).collect()[0][0] == count, condition


def test_cached_rows_are_aggregated_by_spark(spark: SparkSession, table: LakeTable) -> None:
    """The query looks as if it read the table, but reads the cache."""
    some = spark.table(table.sql).where("id > 77 AND price IS NOT NULL").cache()
    assert some.agg(F.count("*"), F.max("id")).collect()[0][:] == (200, 299)
    assert some.where("id < 120").agg(F.count("*")).collect()[0][0] == len(some.where("id < 120").collect())
    some.unpersist()


def test_the_other_ways_to_run_a_query(spark: SparkSession, table: LakeTable, tmp_path: Path) -> None:
    """Frames, writes and cached frames have the same rows; what is only explained reads nothing."""
    some = spark.table(table.sql).where("id > 77")
    assert some.count() == 222
    assert some.groupBy("day").agg(F.max("id").alias("last")).where("last < 200").count() == 3
    path = str(tmp_path / "written")
    some.agg(F.count("*").alias("c"), F.sum("id").alias("s")).write.parquet(path)
    assert [tuple(row) for row in spark.read.parquet(path).collect()] == [(222, sum(range(78, 300)))]
    cached = some.agg(F.max("id")).cache()
    assert cached.collect()[0][0] == cached.collect()[0][0] == 299
    cached.unpersist()
    explained = some.agg(F.count("*"))
    explained.explain()
    assert explained.collect()[0][0] == 222


def test_many_blocks_that_match_partly_are_left_to_spark(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are better read by executors; so are many rows."""
    assert_known(spark, table, "SELECT count(*) FROM {t} WHERE id > 77")
    monkeypatch.setattr(known, "_MAX_BLOCKS", 0)
    assert_same(spark, table, "SELECT count(*) FROM {t} WHERE id > 77", is_known=False)
    assert_known(spark, table, "SELECT count(*) FROM {t} WHERE id >= 100")
    monkeypatch.setattr(known, "_MAX_BLOCKS", 6)
    monkeypatch.setattr(known, "_MAX_ROWS", 49)
    assert_same(spark, table, "SELECT count(*) FROM {t} WHERE id > 77", is_known=False)


def test_sums_that_overflow_are_left_to_spark(spark: SparkSession, lakes: Lakes) -> None:
    """It fails, or returns what its mode says."""
    table = lakes.of(pa.table({"a": pa.array([2**63 - 1, 1], pa.int64())}))
    query = f"SELECT sum(a) FROM {table.sql}"
    with setting(spark, spark__sql__ansi__enabled="true"), pytest.raises(PySparkException, match="OVERFLOW"):
        spark.sql(query).collect()
    with setting(spark, spark__sql__ansi__enabled="false"):
        assert spark.sql(query).collect()[0][0] == -(2**63)


def test_deleted_rows_do_not_count(spark: SparkSession, lakes: Lakes) -> None:
    """Statistics of a block are of all of its rows."""
    table = lakes.of(*days(3))
    spark.sql(f"DELETE FROM {table.sql} WHERE id IN (0, 70, 149)")
    counted = spark.sql(f"SELECT count(*), min(id), max(id) FROM {table.sql}").collect()
    assert [tuple(row) for row in counted] == [(147, 1, 148)]
    partly = spark.sql(f"SELECT count(*), max(id) FROM {table.sql} WHERE id > 60").collect()
    assert [tuple(row) for row in partly] == [(87, 148)]
    assert spark.sql(f"SELECT count(*) FROM {table.sql} WHERE day = DATE'2024-01-02'").collect()[0][0] == 49


def test_bounds_that_are_not_exact_prove_no_minimum(spark: SparkSession, lakes: Lakes) -> None:
    """Spark's own files do not say whether a long text was cut; such blocks are read."""
    table = lakes.of(pa.table({"s": ["a" * 100, "b" * 100]}), pa.table({"s": ["c" * 100, None]}))
    assert_known(spark, table, "SELECT min(s), max(s), count(s) FROM {t}")


def test_a_snapshot_of_the_past_is_answered_for_itself(spark: SparkSession, lakes: Lakes) -> None:
    """And a table that has changed is asked again."""
    table = lakes.of(*days(2))
    before = table.snapshot_id()
    assert spark.sql(f"SELECT count(*) FROM {table.sql}").collect()[0][0] == 100
    table.add(*days(1))
    assert spark.sql(f"SELECT count(*) FROM {table.sql}").collect()[0][0] == 150
    past = spark.sql(f"SELECT count(*) FROM {table.sql} VERSION AS OF '{before}'")
    assert past.collect()[0][0] == 100
    assert not reads_table(past)


def test_it_can_be_turned_off(spark: SparkSession, lake: Lamella, table: LakeTable) -> None:
    """Then Spark computes all aggregates."""
    name = fresh("plain")
    attached = attach(spark, name, lake, aggregates=False)
    for condition in ("", "WHERE id > 77"):
        counted = spark.sql(f"SELECT count(*) FROM {name}.{table.name} {condition}")
        assert counted.collect()[0][0] == (222 if condition else 300)
        assert reads_table(counted)
    attached.detach()


def test_merged_subqueries_have_their_own_aggregates(spark: SparkSession, table: LakeTable) -> None:
    """Spark may read a table once for several of them."""
    query = (
        f"SELECT (SELECT count(*) FROM {table.sql} WHERE id > 77), (SELECT max(price) FROM {table.sql} WHERE id > 120),"
        f" (SELECT sum(id) FROM {table.sql})"
    )
    assert [tuple(row) for row in spark.sql(query).collect()] == [(222, Decimal("74.75"), sum(range(300)))]


def random_query(rng: Random, schema: Schema, condition: str) -> str:
    """A query with random aggregates of a random part of a table."""
    leaves = schema.leaves()
    calls = ["count(*)"]
    for _ in range(rng.randint(1, 3)):
        leaf = rng.choice(leaves)
        functions = ["count", "min", "max"]
        if leaf.dtype.is_integer or leaf.dtype.name == "decimal":
            functions += ["avg", "sum"] if leaf.dtype.precision <= 18 and leaf.dtype.name != "int64" else []
        calls.append(f"{rng.choice(functions)}({leaf.name})")
    keys = [leaf.name for leaf in rng.sample(leaves, rng.choice([0, 0, 1]))]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *calls])} FROM {{t}} WHERE {condition}{by}"


def check_random(spark: SparkSession, lakes: Lakes, seed: int, queries: int) -> int:
    """Compare random aggregates with those of a full scan; returns how many Spark did not compute."""
    rng = Random(seed)
    schema = generate.schema(rng, generate.SPARK_TYPES)
    blocks = [block for block in generate_terms.table(rng, schema, blocks=5) if generate.rows_of(block)]
    table = lakes.of(
        *(arrow_table(schema, block) for block in blocks or [{leaf.name: [None] for leaf in schema.leaves()}])
    )
    zone, ansi = rng.choice(generate_terms.ZONES), seed % 2 == 1
    oracle = Oracle(schema, zone)
    draw = generate_terms.predicates(rng, schema, oracle, blocks)
    rows = [row for block in blocks for row in generate.rows_of(block)]
    answered = 0
    with setting(spark, spark__sql__session__timeZone=zone, spark__sql__ansi__enabled=str(ansi).lower()):
        for _ in range(queries):
            predicate = draw()
            if ansi and any(oracle.may_fail(predicate, row) for row in rows):
                continue
            query = random_query(rng, schema, "true" if rng.random() < 0.2 else sql_of(predicate))
            frame = spark.sql(query.format(t=table.sql))
            found = rows_of(frame)
            answered += not reads_table(frame)
            with no_pushdown(spark):
                table.full_scan(spark).createOrReplaceTempView("whole")
                assert found == rows_of(spark.sql(query.format(t="whole"))), f"seed {seed}: {query}, {zone}, {ansi}"
    return answered


def rows_of(frame: DataFrame) -> list[str]:
    """The rows in an order of their own; zeros have no sign."""
    return sorted(repr([_plain(cell) for cell in row]) for row in frame.collect())


def _plain(cell: Any) -> Any:
    return cell + 0.0 if isinstance(cell, float) else cell


def test_every_type_keeps_its_values(spark: SparkSession, lakes: Lakes) -> None:
    """In one row, and in more than are set cell by cell."""
    moment = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, dt.UTC)
    columns = {
        "flag": pa.array([True, None]),
        "i8": pa.array([-128, None], pa.int8()),
        "i16": pa.array([-32768, 5], pa.int16()),
        "i32": pa.array([2**31 - 1, 5], pa.int32()),
        "i64": pa.array([-(2**63), 5], pa.int64()),
        "u32": pa.array([2**32 - 1, 5], pa.uint32()),
        "u64": pa.array([2**64 - 1, 5], pa.uint64()),
        "f32": pa.array([0.1, math.nan], pa.float32()),
        "f64": pa.array([-1.5, 1e300], pa.float64()),
        "money": pa.array([Decimal("-0.01"), Decimal("99.99")], pa.decimal128(4, 2)),
        "long_money": pa.array([Decimal("9" * 30 + ".1"), None], pa.decimal128(38, 1)),
        "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        "at": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "wall": pa.array([moment, None], pa.timestamp("us")),
        "text": ["Zürich", "日本"],
        "bytes": pa.array([b"\x00\xff", b""], pa.binary()),
        "nothing": pa.array([None, None], pa.string()),
    }
    table = lakes.of(pa.table(columns))
    for name in columns:
        assert_known(spark, table, f"SELECT min({name}), max({name}), count({name}) FROM {{t}}")
    every = ", ".join(f"min({name}), max({name})" for name in columns)
    assert_known(spark, table, f"SELECT {every} FROM {{t}}")


def test_types_that_spark_lacks_are_not_compared(spark: SparkSession, lakes: Lakes) -> None:
    """Their values are counted, if Spark may name the column at all; other aggregates fail as a scan does."""
    wide = pa.array([Decimal("1.5"), None], pa.decimal256(50, 1))
    table = lakes.of(pa.table({"a": [1, 2], "wide": wide, "ns": pa.array([1, None], pa.timestamp("ns"))}))
    counted = spark.sql(f"SELECT count(*), max(a), count(wide), count(ns) FROM {table.sql}")
    assert [tuple(row) for row in counted.collect()] == [(2, 2, 1, 1)]
    for name in ("wide", "ns"):
        with pytest.raises(PySparkException) as raised:
            spark.sql(f"SELECT max({name}) FROM {table.sql}").collect()
        assert "KeyError" not in str(raised.value)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 102))])
@pytest.mark.few(1)
def test_random_aggregates_are_those_of_a_full_scan(spark: SparkSession, lakes: Lakes, seed: int) -> None:
    """Over random types, conditions, groups and files."""
    assert check_random(spark, lakes, seed, queries=15) > 0
