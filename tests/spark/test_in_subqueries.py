"""``IN``, ``NOT IN`` and ``EXISTS`` leave out blocks once the subquery's values are known, and lose no row."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.spark import attach
from spark.lakes import CATALOG, Lakes, LakeTable, assert_same_rows, fresh, no_pushdown, plan, setting, sorted_rows
from spark.test_subqueries import read_after_subqueries

pytestmark = pytest.mark.spark

BLOCKS = 8
ROWS = 40
DAY = dt.date(2024, 1, 1)
TYPES = pa.schema(
    [
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("m", pa.decimal128(12, 2)),
        ("f", pa.float64()),
        ("region", pa.string()),
    ]
)


def rows_of(numbers: list[int | None], region: str | None) -> pa.Table:
    """Rows whose values of all types rise with a number; None is a row of nulls."""

    def each(make: Callable[[int], object]) -> list[object]:
        return [None if i is None else make(i) for i in numbers]

    return pa.table(
        {
            "n": numbers,
            "big": numbers,
            "s": each(lambda i: f"row-{i:03}"),
            "d": each(lambda i: DAY + dt.timedelta(days=i)),
            "m": each(lambda i: Decimal(i) / 4),
            "f": each(float),
            "region": [region] * len(numbers),
        },
        TYPES,
    )


@pytest.fixture(scope="module")
def rising(lakes: Lakes) -> LakeTable:
    """Eight blocks of rising values, each of one region; some have a row of nulls, and the last has no other."""
    blocks = [
        rows_of([*range(at * ROWS, at * ROWS + ROWS), *([None] if at % 3 == 1 else [])], f"r{at // 2}")
        for at in range(BLOCKS - 1)
    ]
    return lakes.of(*blocks, rows_of([None, None], None))


@pytest.fixture(scope="module")
def few(lakes: Lakes) -> LakeTable:
    """Two rows with values and one of nulls."""
    return lakes.of(rows_of([3], "r0"), rows_of([205, None], "r2"))


@pytest.fixture(scope="module")
def some(lakes: Lakes) -> LakeTable:
    """Two rows without nulls."""
    return lakes.of(rows_of([3, 205], "r0"))


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    ("condition", "blocks"),
    [
        # The subquery has a null: IN is true or null, and NOT IN is never true.
        ("n IN (SELECT n FROM {few}) OR s = 'row-090'", 3),
        ("big IN (SELECT n FROM {few}) OR s = 'row-090'", 3),
        ("s IN (SELECT s FROM {few}) OR n = 90", 3),
        ("d IN (SELECT d FROM {few}) OR n = 90", 3),
        ("m IN (SELECT m FROM {few}) OR n = 90", 3),
        ("n + 1 IN (SELECT n FROM {few}) OR n = 90", 3),
        ("(n, s) IN (SELECT n, s FROM {few}) OR n = 90", 3),
        ("(n, n + 1) IN (SELECT n, n + 1 FROM {few}) OR n = 90", 3),  # two keys that Spark packs into one
        ("(n NOT IN (SELECT n FROM {few}) AND n < 250) OR n = 90", 1),
        ("(n NOT IN (SELECT n FROM {some}) AND n < 85) OR n = 90", 3),
        ("(region NOT IN (SELECT region FROM {some}) AND n < 100) OR n = 200", 2),
        ("CASE WHEN n IN (SELECT n FROM {few}) THEN n < 9 ELSE n = 90 END", 2),
        ("n IN (SELECT n FROM {few} WHERE n > 1000) OR n = 90", 1),
        ("EXISTS (SELECT 1 FROM {few} x WHERE x.n = {rising}.n) OR n = 90", 3),
        ("EXISTS (SELECT 1 FROM {few} x WHERE x.n = {rising}.n AND x.f > {rising}.f) OR n = 90", 3),
        # By themselves they are semi and anti joins.
        ("n IN (SELECT n FROM {few})", 2),
        ("region NOT IN (SELECT region FROM {some})", 5),
        ("NOT EXISTS (SELECT 1 FROM {some} x WHERE x.region = {rising}.region)", 6),
    ],
)
@pytest.mark.few(4)
def test_the_values_of_a_subquery_leave_out_blocks(
    spark: SparkSession, rising: LakeTable, few: LakeTable, some: LakeTable, adaptive: str, condition: str, blocks: int
) -> None:
    """The rows are a full scan's; blocks without a row for which the condition can be true are not read."""
    text = condition.format(few=few.sql, some=some.sql, rising="t")
    with setting(spark, spark__sql__adaptive__enabled=adaptive):
        through = spark.sql(f"SELECT * FROM {rising.sql} t WHERE {text}")
        assert read_after_subqueries(through) == blocks, plan(through)
        rising.full_scan(spark).createOrReplaceTempView("all_rows")
        with no_pushdown(spark):
            assert sorted_rows(through) == sorted_rows(spark.sql(f"SELECT * FROM all_rows t WHERE {text}"))


def test_floats_are_left_alone(spark: SparkSession, rising: LakeTable, few: LakeTable) -> None:
    """Spark compares them after a change of NaN and -0.0, which has no form in a filter."""
    text = f"f IN (SELECT f FROM {few.sql}) OR n = 90"
    frame = spark.sql(f"SELECT * FROM {rising.sql} WHERE {text}")
    assert read_after_subqueries(frame) in (None, BLOCKS)
    assert assert_same_rows(spark, rising, text) == 3


def test_many_values_are_a_range(
    spark: SparkSession, lakes: Lakes, rising: LakeTable, few: LakeTable, some: LakeTable
) -> None:
    """More values than join keys may have leave out the blocks outside of their range, and no others."""
    name = fresh("limited")
    attach(spark, name, lakes.lake, max_join_keys=1)
    limited = rising.sql.replace(f"{CATALOG}.", f"{name}.", 1)
    for text, blocks, count in (
        (f"n IN (SELECT n FROM {few.sql}) OR n = 250", 7, 3),
        (f"n IN (SELECT n + 70 FROM {few.sql}) OR n = 10", 7, 3),
        (f"n IN (SELECT n + 70 FROM {few.sql} WHERE n > 4) OR n = 10", 2, 2),
        (f"(n NOT IN (SELECT n FROM {some.sql}) AND n < 30) OR n = 250", 2, 30),
    ):
        frame = spark.sql(f"SELECT * FROM {limited} WHERE {text}")
        assert frame.count() == count, text
        assert read_after_subqueries(frame) == blocks, text


def test_a_scan_below_a_join_has_the_conditions_above_it(
    spark: SparkSession, rising: LakeTable, few: LakeTable, some: LakeTable
) -> None:
    """Spark evaluates the condition after a join with another table: it holds for each row that is read."""
    frame = spark.sql(
        f"SELECT t.n FROM {rising.sql} t JOIN {some.sql} r ON t.region = r.region AND r.n = 3"
        f" WHERE t.n IN (SELECT n FROM {few.sql}) OR t.n = 70"
    )
    assert sorted(row.n for row in frame.collect()) == [3, 70]


def test_rows_without_a_partner_stay(spark: SparkSession, rising: LakeTable, few: LakeTable) -> None:
    """The side of an outer join that may lack rows is not narrowed by what is above the join."""
    text = (
        f"SELECT count(*) FROM {few.sql} f LEFT JOIN {rising.sql} t ON t.n = f.n"
        f" WHERE f.n IN (SELECT n FROM {few.sql}) OR t.n = 5 OR t.n IS NULL"
    )
    assert spark.sql(text).collect()[0][0] == 3


def condition_of(rng: Random, few: str, some: str, depth: int = 0) -> str:
    """A random condition with subqueries, of columns of ``rising``."""
    draw = rng.random()
    if depth < 3 and draw < 0.55:
        one, other = (condition_of(rng, few, some, depth + 1) for _ in range(2))
        return rng.choice(
            [
                f"({one} OR {other})",
                f"({one} OR {other})",
                f"({one} AND {other})",
                f"NOT ({one})",
                f"CASE WHEN {one} THEN n < {rng.randrange(300)} ELSE {other} END",
            ]
        )
    if draw < 0.7:
        at = rng.randrange(300)
        return rng.choice([f"n = {at}", f"n < {at}", f"s >= 'row-{at:03}'", "n IS NULL", f"region = 'r{at % 4}'"])
    source = rng.choice([few, some, f"{few} WHERE n > {rng.randrange(300)}", f"{few} WHERE n IS NULL"])
    negated = rng.choice(["", "", "NOT "])
    of = rng.choice(
        [
            ("n", "n"),
            ("n + 2", f"n - {rng.randrange(5)}"),
            ("big", "n"),
            ("s", "s"),
            ("d", "d"),
            ("m", "m"),
            ("f", "f"),
            ("region", "region"),
            ("(n, region)", "n, region"),
            ("(s, big)", "s, n"),
        ]
    )
    if rng.random() < 0.2:
        return f"{negated}EXISTS (SELECT 1 FROM {source})"
    return f"{of[0]} {negated}IN (SELECT {of[1]} FROM {source})"


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.few(1)
def test_random_conditions_have_the_rows_of_a_full_scan(
    spark: SparkSession, rising: LakeTable, few: LakeTable, some: LakeTable, seed: int
) -> None:
    """Whatever is known of nulls and values, no row is lost: with and without adaptive execution and hash joins."""
    rng = Random(seed)
    settings = {
        "spark.sql.adaptive.enabled": rng.choice(["true", "false"]),
        "spark.sql.autoBroadcastJoinThreshold": rng.choice(["10MB", "10MB", "-1"]),
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": rng.choice(["true", "false"]),
    }
    with setting(spark, **settings):
        for _ in range(12):
            assert_same_rows(spark, rising, condition_of(rng, few.sql, some.sql))
