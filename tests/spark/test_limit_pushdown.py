"""LIMIT and ORDER BY ... LIMIT through SQL: few blocks are read, and the rows are those of a full scan."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.lakes import Lakes, LakeTable, blocks_read, no_pushdown, numbers, plan

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def counted(lakes: Lakes) -> LakeTable:
    """Ten blocks of 100 rows; ``a`` and ``s`` rise from block to block, ``u`` is unique and scattered, with nulls."""
    rng = Random(7)
    scattered = rng.sample(range(10**6), 1000)
    blocks = numbers(10, u=lambda v: None if v % 250 == 3 else scattered[v])
    return lakes.of(*blocks)


def test_a_limit_without_a_filter_reads_one_block(spark: SparkSession, counted: LakeTable) -> None:
    """Any rows will do, so one block that has enough is all that is planned."""
    frame = spark.sql(f"SELECT a, s FROM {counted.sql} LIMIT 7")
    assert len(frame.collect()) == 7
    assert blocks_read(frame) == (1, 10)


def test_a_limit_behind_a_filter_that_blocks_prove_reads_one_block(spark: SparkSession, counted: LakeTable) -> None:
    """Whole blocks match, so Spark is told that nothing is left to filter, and the limit comes down."""
    frame = spark.sql(f"SELECT a FROM {counted.sql} WHERE a >= 300 AND a < 800 LIMIT 150")
    rows = [row.a for row in frame.collect()]
    assert len(set(rows)) == 150
    assert all(300 <= a < 800 for a in rows)
    assert blocks_read(frame) == (2, 10)
    assert "limit=150" in plan(frame)


def test_a_limit_behind_a_filter_that_is_still_open_reads_what_the_filter_needs(
    spark: SparkSession, counted: LakeTable
) -> None:
    """A block that matches in part keeps the filter with Spark, and the limit above it."""
    frame = spark.sql(f"SELECT a FROM {counted.sql} WHERE a >= 350 AND a < 800 LIMIT 150")
    assert len({row.a for row in frame.collect()}) == 150
    assert blocks_read(frame) == (5, 10)
    assert "verdicts=[ALL:4 SOME:1]" in plan(frame)
    assert "residual=[" in plan(frame)
    assert "limit=" not in plan(frame)


ORDERS = [
    ("a", 5, 1),
    ("a DESC", 5, 1),
    ("a DESC NULLS FIRST, s", 250, 3),
    ("s DESC", 100, 1),
    ("s", 101, 2),
    ("u", 3, 10),  # nulls come first: three rows, in three blocks of ten
    ("u DESC", 3, 10),
    ("a + 1", 3, 10),
    ("a, s DESC", 1000, 10),
    ("b, a", 4, 10),
]


@pytest.mark.parametrize(
    ("order", "limit", "max_blocks"), ORDERS, ids=[f"{order} {limit}" for order, limit, _ in ORDERS]
)
@pytest.mark.few(4)
def test_the_first_rows_of_an_order_are_those_of_a_full_scan(
    spark: SparkSession, counted: LakeTable, order: str, limit: int, max_blocks: int
) -> None:
    """Whatever the order, the same rows in the same order, from no more blocks than can hold them."""
    text = f"ORDER BY {order}, a LIMIT {limit}" if order.startswith("u") else f"ORDER BY {order} LIMIT {limit}"
    frame = spark.sql(f"SELECT a, s, u FROM {counted.sql} {text}")
    through = frame.collect()
    counted.full_scan(spark).createOrReplaceTempView("counted")
    with no_pushdown(spark):
        truth = spark.sql(f"SELECT a, s, u FROM counted {text}").collect()
    assert through == truth
    selected, total = blocks_read(frame)
    assert (selected <= max_blocks, total) == (True, 10), plan(frame)


def test_an_order_behind_a_proven_filter_reads_only_its_first_blocks(spark: SparkSession, counted: LakeTable) -> None:
    """The filter leaves five whole blocks, the order one of them."""
    frame = spark.sql(f"SELECT a FROM {counted.sql} WHERE a >= 300 AND a < 800 ORDER BY a DESC LIMIT 3")
    assert [row.a for row in frame.collect()] == [799, 798, 797]
    assert blocks_read(frame) == (1, 10)


def test_a_filter_that_is_resolved_gives_the_rows_of_its_blocks(spark: SparkSession, counted: LakeTable) -> None:
    """No Filter stands above the scan, in a count, a join and a union as well."""
    where = "a >= 300 AND a < 800"
    frame = spark.sql(f"SELECT a FROM {counted.sql} WHERE {where}")
    assert sorted(row.a for row in frame.collect()) == list(range(300, 800))
    assert "Filter" not in plan(frame).replace("RuntimeFilter", "")
    assert spark.sql(f"SELECT count(*) AS c FROM {counted.sql} WHERE {where}").collect()[0].c == 500
    union = f"SELECT a FROM {counted.sql} WHERE {where} UNION ALL SELECT a FROM {counted.sql} WHERE a < 100"
    assert sorted(row.a for row in spark.sql(union).collect()) == [*range(100), *range(300, 800)]
    joined = f"""
        SELECT l.a FROM {counted.sql} l JOIN (SELECT a FROM {counted.sql} WHERE a IN (5, 310, 999)) r ON l.a = r.a
        WHERE l.a >= 300 AND l.a < 800"""
    assert [row.a for row in spark.sql(joined).collect()] == [310]


def test_a_limit_inside_a_join_is_a_limit_before_the_join(
    spark: SparkSession, lakes: Lakes, counted: LakeTable
) -> None:
    """Join keys never reach a scan that a limit was pushed into: the first rows are chosen before they are joined."""
    small = lakes.of(pa.table({"k": [995, 996, 5]}))
    text = f"""
        SELECT f.a FROM (SELECT a FROM {counted.sql} ORDER BY a LIMIT 10) f
        JOIN {small.sql} d ON f.a = d.k WHERE d.k > 0"""
    assert [row.a for row in spark.sql(text).collect()] == [5]


def test_a_new_snapshot_between_planning_and_running_changes_nothing(spark: SparkSession, lakes: Lakes) -> None:
    """A frame that was planned reads its own snapshot, also when Spark filters nothing and stops early."""
    table = lakes.of(*numbers(4))
    frame = spark.sql(f"SELECT a FROM {table.sql} WHERE a < 200")
    frame.explain()
    table.add(pa.table({"a": [-1, 150], "b": [0, 0], "s": ["x", "y"]}))
    assert sorted(row.a for row in frame.collect()) == list(range(200))
    again = spark.sql(f"SELECT a FROM {table.sql} WHERE a < 200")
    assert sorted(row.a for row in again.collect()) == [-1, *range(150), 150, *range(150, 200)]
