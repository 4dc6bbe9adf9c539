"""Spark makes one scan of several scans of a table, for subqueries that differ only in their aggregates."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.lakes import Lakes, LakeTable, plan, setting
from support.deleted_rows import blocks_of, delete_positions

pytestmark = pytest.mark.spark

_PROPAGATION = "spark.sql.optimizer.mergeSubplans.filterPropagation."


def _all_set(value: str) -> dict[str, str]:
    """Spark's settings for merging subqueries whose filters differ, which are off by default."""
    names = ("dsv2SymmetricFilterPropagation", "symmetricFilterPropagation", "throughJoin")
    return {f"{_PROPAGATION}{name}.enabled": value for name in names}


@pytest.fixture(scope="module")
def table(lakes: Lakes) -> LakeTable:
    """Six blocks of fifty rising numbers, with other columns."""
    return lakes.of(
        *(
            pa.table(
                {
                    "a": pa.array(range(at * 50, at * 50 + 50), pa.int64()),
                    "b": [None if i % 7 == 0 else i % 5 for i in range(50)],
                    "s": [f"{i % 9}" for i in range(50)],
                }
            )
            for at in range(6)
        )
    )


def subqueries(sql: str, conditions: list[str], aggregates: list[str]) -> str:
    """A statement of one row, with a scalar subquery for each pair."""
    return "SELECT " + ", ".join(
        f"(SELECT {aggregate} FROM {sql} WHERE {condition})"
        for condition, aggregate in zip(conditions, aggregates, strict=True)
    )


def test_subqueries_with_one_filter_read_the_table_once(spark: SparkSession, table: LakeTable) -> None:
    """Spark reads the columns of all of them in one scan, of the blocks that the filter selects."""
    text = subqueries(table.sql, ["a BETWEEN 60 AND 130 AND b > 1"] * 3, ["sum(a)", "count(s)", "avg(b)"])
    frame = spark.sql(text)
    table.full_scan(spark).createOrReplaceTempView("merged")
    assert frame.collect() == spark.sql(text.replace(table.sql, "merged")).collect()
    leaves = [line for line in plan(frame).splitlines() if "BatchScan" in line]
    assert len({line.split("blocks=")[0].split("BatchScan")[1] for line in leaves}) == 1
    assert all("blocks=2/6" in line for line in leaves), leaves


def test_scans_whose_filters_spark_no_longer_has_stay_apart(spark: SparkSession, table: LakeTable) -> None:
    """Where every row of the blocks matches, Spark evaluates no filter above the scan: it may not join others to it."""
    conditions = ["a < 100", "a >= 250", "a < 100", "a >= 50 AND a < 100"]
    text = subqueries(table.sql, conditions, ["sum(b)", "sum(b)", "max(s)", "count(DISTINCT s)"])
    expected = [(_sum(range(100)), _sum(range(250, 300)), "8", 9)]
    for enabled in ("true", "false"):
        with setting(spark, **_all_set(enabled)):
            assert [tuple(row) for row in spark.sql(text).collect()] == expected


def _sum(numbers: range) -> int:
    return sum((i % 50) % 5 for i in numbers if (i % 50) % 7)


@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize("has_deletes", [True, False])
@pytest.mark.few(1)
def test_random_subqueries_have_the_answers_of_full_scans(
    spark: SparkSession, lakes: Lakes, table: LakeTable, has_deletes: bool, seed: int
) -> None:
    """With all that Spark can merge switched on, with and without deleted rows."""
    if has_deletes:
        table = lakes.of(
            *(pa.table({"a": range(at * 50, at * 50 + 50), "b": [1] * 50, "s": ["x"] * 50}) for at in range(6))
        )
        handle = lakes.lake.table(table.name)
        delete_positions(handle, {location: [3, 4, 30] for location in list(blocks_of(handle))[:3]})
    rows = spark.table(table.sql).toPandas()
    view = "merged_rows"
    spark.createDataFrame(rows).createOrReplaceTempView(view)
    random = Random(seed)
    for _ in range(6):
        low = [random.randrange(-20, 300) for _ in range(4)]
        conditions = [
            random.choice(
                (f"a >= {n}", f"a < {n}", f"a BETWEEN {n} AND {n + 99}", f"b = 2 OR a > {n}", f"s > '4' AND a < {n}")
            )
            for n in low
        ]
        chosen = [random.choice(("sum(a)", "count(b)", "max(s)", "min(a)", "count(*)", "sum(b)")) for _ in low]
        text = subqueries(table.sql, conditions, chosen)
        with setting(spark, **_all_set("true")):
            found = spark.sql(text).collect()
        assert found == spark.sql(text.replace(table.sql, view)).collect(), text
