"""Conditions with scalar subqueries leave out blocks when the scan is executed, and lose no row."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.lakes import Lakes, LakeTable, assert_same_rows, plan, setting

pytestmark = pytest.mark.spark

BLOCKS = 8


@pytest.fixture(scope="module")
def rising(lakes: Lakes) -> LakeTable:
    """Eight blocks of fifty numbers and texts, which rise from block to block."""
    blocks = []
    for at in range(BLOCKS):
        ids = list(range(at * 50, at * 50 + 50))
        blocks.append(pa.table({"n": pa.array(ids, pa.int64()), "s": [f"row-{i:03}" for i in ids]}))
    return lakes.of(*blocks)


@pytest.fixture(scope="module")
def few(lakes: Lakes) -> LakeTable:
    """Three rows in two blocks."""
    return lakes.of(pa.table({"n": [3, 360], "s": ["a", "row-355"]}), pa.table({"n": [None], "s": ["b"]}, PA))


PA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def read_after_subqueries(frame: DataFrame) -> int | None:
    """The number of blocks that the last execution read, by the text of the plan."""
    frame.collect()
    found = [part for part in plan(frame).split() if part.startswith("subqueries=")]
    return int(found[-1].removeprefix("subqueries=")) if found else None


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    ("condition", "blocks"),
    [
        ("n > (SELECT max(n) FROM {few})", 1),
        ("n >= (SELECT max(n) - 100 FROM {few}) AND n < 300", 1),
        ("n + 5 < (SELECT min(n) FROM {few}) + 10", 1),
        ("s = (SELECT max(s) FROM {few} WHERE n > 5)", 1),
        ("n BETWEEN (SELECT min(n) FROM {few}) AND (SELECT min(n) + 60 FROM {few})", 2),
        ("n > (SELECT max(n) FROM {few} WHERE n > 1000)", 0),  # null
        ("n > (SELECT max(n) FROM {few}) OR s = 'row-001'", 2),
    ],
)
@pytest.mark.few(3)
def test_the_value_of_a_subquery_leaves_out_blocks(
    spark: SparkSession, rising: LakeTable, few: LakeTable, adaptive: str, condition: str, blocks: int
) -> None:
    """The rows are a full scan's; blocks that cannot match the value are not read."""
    text = condition.format(few=few.sql)
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        assert_same_rows(spark, rising, text)
        assert read_after_subqueries(spark.sql(f"SELECT * FROM {rising.sql} WHERE {text}")) == blocks


def test_a_query_that_is_explained_computes_nothing(spark: SparkSession, rising: LakeTable, few: LakeTable) -> None:
    """Partitions are planned only when the query runs."""
    frame = spark.sql(f"SELECT * FROM {rising.sql} WHERE n > (SELECT max(n) FROM {few.sql})")
    assert "after subqueries" not in plan(frame)
    frame._jdf.queryExecution().executedPlan()
    assert "after subqueries" not in plan(frame)


def test_the_same_table_twice_keeps_its_rows(spark: SparkSession, rising: LakeTable, few: LakeTable) -> None:
    """Whatever parts of the plan Spark shares, each finds its own rows."""
    above = f"SELECT n FROM {rising.sql} WHERE n > (SELECT max(n) FROM {few.sql})"
    below = f"SELECT n FROM {rising.sql} WHERE n < (SELECT min(n) FROM {few.sql})"
    for text, count in (
        (f"{above} UNION ALL {below}", 42),
        (f"{above} UNION ALL {above}", 78),
        (f"WITH t AS (SELECT * FROM {rising.sql}) {above.replace(rising.sql, 't')} UNION ALL SELECT n FROM t", 439),
        (f"SELECT * FROM ({above}) a JOIN ({below}) b ON a.n = b.n + 370", 3 - 0),
    ):
        assert spark.sql(text).count() == count, text


def test_a_frame_that_runs_again_sees_new_values(spark: SparkSession, lakes: Lakes, rising: LakeTable) -> None:
    """The blocks of one execution are not those of the next."""
    limits = lakes.of(pa.table({"n": pa.array([390], pa.int64())}))
    text = f"SELECT count(*) FROM {rising.sql} WHERE n > (SELECT min(n) FROM {limits.sql})"
    assert spark.sql(text).collect()[0][0] == 9
    limits.add(pa.table({"n": pa.array([5], pa.int64())}))
    assert spark.sql(text).collect()[0][0] == 394
