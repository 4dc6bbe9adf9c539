"""Joins: the keys of the small side prune the blocks of the large one, over HTTP again, while the query runs."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.client.spark.gateway import Gateway
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_after_join, fresh, no_pushdown, plan, sorted_rows

pytestmark = pytest.mark.spark

MIDNIGHT = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)  # the day clocks go forward in Berlin


@pytest.fixture(scope="module")
def facts(lakes: Lakes) -> LakeTable:
    """Twelve blocks of rows with keys of several types, all rising with ``i``."""
    blocks = []
    for at in range(12):
        ids = list(range(at * 40, at * 40 + 40))
        blocks.append(
            pa.table(
                {
                    "i": pa.array(ids, pa.int64()),
                    "small": pa.array([i % 100 for i in ids], pa.int16()),
                    "u32": pa.array([i + 4_000_000_000 for i in ids], pa.uint32()),
                    "day": pa.array([dt.date(1500, 1, 1) + dt.timedelta(days=i * 500) for i in ids]),
                    "ts": pa.array([MIDNIGHT + dt.timedelta(minutes=i) for i in ids]),
                    "ntz": pa.array([dt.datetime(2024, 3, 31) + dt.timedelta(minutes=i) for i in ids]),  # noqa: DTZ001
                    "d": pa.array([Decimal(i - 200) / 1000 for i in ids], pa.decimal128(25, 3)),
                    "s": pa.array([f"k;'\"é-{i:05}" for i in ids]),
                    "x": pa.array([float(i) for i in ids]),
                    "raw": pa.array([i.to_bytes(2, "big") for i in ids], pa.binary()),
                }
            )
        )
    return lakes.of(*blocks)


def joined(spark: SparkSession, facts: LakeTable, key: str, catalog: str = CATALOG) -> DataFrame:
    """The facts joined with three of their own rows, which a filter that blocks know nothing of picks out."""
    name = facts.name
    return spark.sql(
        f"SELECT f.i FROM {catalog}.{name} f JOIN (SELECT /*+ BROADCAST */ {key} AS k FROM {catalog}.{name}"
        f" WHERE reverse(cast(i AS string)) IN ('7', '11', '004')) d ON f.{key} = d.k"
    )


@pytest.mark.parametrize(
    ("key", "block_count"),
    [("i", 2), ("u32", 2), ("day", 2), ("ts", 2), ("ntz", 2), ("d", 2), ("s", 2), ("small", 5)],
)
@pytest.mark.few(4)
def test_keys_of_a_join_prune_the_other_side(spark: SparkSession, facts: LakeTable, key: str, block_count: int) -> None:
    """Only the blocks that can hold one of the keys are read, for every type that can be sent exactly."""
    frame = joined(spark, facts, key)
    through = sorted_rows(frame)
    facts.full_scan(spark).createOrReplaceTempView("facts")
    with no_pushdown(spark):
        truth = sorted_rows(
            spark.sql(
                f"SELECT f.i FROM facts f JOIN (SELECT {key} AS k FROM facts WHERE i IN (7, 11, 400)) d"
                f" ON f.{key} = d.k"
            )
        )
    assert through == truth
    assert blocks_after_join(frame) == block_count, plan(frame)


@pytest.mark.parametrize("key", ["x", "raw"])
def test_keys_that_cannot_be_sent_exactly_are_not_used(spark: SparkSession, facts: LakeTable, key: str) -> None:
    """Floats (NaN, zeros of both signs) and binary keys prune nothing, and lose nothing."""
    frame = joined(spark, facts, key)
    assert sorted(row.i for row in frame.collect()) == [7, 11, 400]
    assert blocks_after_join(frame) is None


def test_too_many_keys_are_sent_as_their_range(spark: SparkSession, facts: LakeTable, lake: Lamella) -> None:
    """Beyond the limit the smallest and the largest key stand for all."""
    name = fresh("few")
    attach(spark, name, lake, max_join_keys=2)
    frame = spark.sql(
        f"SELECT f.i FROM {name}.{facts.name} f JOIN (SELECT i AS k FROM {name}.{facts.name}"
        " WHERE cast(i AS string) IN ('45', '46', '47')) d ON f.i = d.k"
    )
    assert sorted(row.i for row in frame.collect()) == [45, 46, 47]
    assert blocks_after_join(frame) == 1


def test_an_empty_small_side_reads_nothing(spark: SparkSession, facts: LakeTable) -> None:
    """No key, no block."""
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f JOIN (SELECT i AS k FROM {facts.sql} WHERE upper(s) = 'NONE') d ON f.i = d.k"
    )
    assert frame.collect() == []
    assert blocks_after_join(frame) in (0, None)  # adaptive execution may drop the scan altogether


def test_null_keys_join_nothing_and_break_nothing(spark: SparkSession, lakes: Lakes, facts: LakeTable) -> None:
    """A null among the keys is left out of the list."""
    small = lakes.of(pa.table({"k": pa.array([None, 100, None], pa.int64()), "tag": ["x", "x", "x"]}))
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f JOIN {small.sql} d ON f.i = d.k AND upper(d.tag) = 'X' AND d.tag = 'x'"
    )
    assert [row.i for row in frame.collect()] == [100]
    assert blocks_after_join(frame) == 1


def test_two_joins_narrow_one_scan_together(spark: SparkSession, facts: LakeTable) -> None:
    """Keys of several joins all hold."""
    frame = spark.sql(
        f"SELECT f.i FROM {facts.sql} f"
        f" JOIN (SELECT i AS k FROM {facts.sql} WHERE cast(i AS string) IN ('10', '50', '90')) d ON f.i = d.k"
        f" JOIN (SELECT day AS k FROM {facts.sql} WHERE cast(i AS string) IN ('50', '400')) e ON f.day = e.k"
    )
    assert [row.i for row in frame.collect()] == [50]
    assert blocks_after_join(frame) == 1


def test_executions_of_one_scan_do_not_see_each_others_keys(spark: SparkSession, facts: LakeTable) -> None:
    """Spark hands the keys to an object that several executions may share; each must get its own blocks only."""
    frame = joined(spark, facts, "i")
    scan = _narrowed_scan(frame)
    everything = len(scan.toBatch().planInputPartitions())
    frame.collect()
    assert len(scan.toBatch().planInputPartitions()) == everything
    predicates = _in_predicate(spark, "i", [3])
    scan.filter(predicates)
    narrowed = scan.toBatch()
    after = scan.toBatch()
    assert len(_files(narrowed)) == 1
    assert len(_files(after)) == 12
    assert not narrowed.equals(after)


def test_without_pinned_threads_no_keys_are_taken(
    spark: SparkSession, facts: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PYSPARK_PIN_THREAD=false callbacks cannot tell executions apart: joins prune nothing, and lose nothing."""
    assert Gateway(spark).pins_threads
    monkeypatch.setattr(Gateway, "pins_threads", False)
    frame = joined(spark, facts, "i")
    assert sorted(row.i for row in frame.collect()) == [7, 11, 400]
    assert blocks_after_join(frame) is None


def _narrowed_scan(frame: DataFrame):  # type: ignore[no-untyped-def]  # py4j objects have no types
    leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    for at in range(leaves.size()):
        if "RuntimeFilters: [dynamicpruning" in leaves.apply(at).toString():
            return leaves.apply(at).scan()
    raise AssertionError("no scan with join keys")


def _in_predicate(spark: SparkSession, column: str, values: list[int]):  # type: ignore[no-untyped-def]
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    connector = spark._jvm.org.apache.spark.sql.connector.expressions  # type: ignore[union-attr]
    children = gateway.new_array(connector.Expression, len(values) + 1)
    children[0] = connector.Expressions.column(column)
    for at, value in enumerate(values):
        children[at + 1] = connector.Expressions.literal(value)
    predicates = gateway.new_array(connector.filter.Predicate, 1)
    predicates[0] = connector.filter.Predicate("IN", children)
    return predicates


def _files(batch) -> set[str]:  # type: ignore[no-untyped-def]
    found = set()
    for partition in batch.planInputPartitions():
        for file in partition.files():
            found.add(file.filePath().toString())
    return found
