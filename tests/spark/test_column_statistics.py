"""What Spark's cost-based optimiser knows of the columns of a table."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http.transport import HttpRequest, TransportFailure
from lamella.client.spark import attach
from spark.lakes import Faults, Lakes, LakeTable, fresh, numbers, plan, setting

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def table(spark: SparkSession, lakes: Lakes) -> LakeTable:
    """10,000 rows that Spark wrote, so that distinct values are counted; ``k`` has 1,000 values, in all blocks."""
    made = lakes.empty(pa.schema([("id", pa.int64()), ("k", pa.int32()), ("s", pa.string())]))
    spark.sql(f"INSERT INTO {made.sql} SELECT id, id % 1000, repeat('x', 20) FROM range(10000)")
    return made


@pytest.fixture
def cbo(spark: SparkSession) -> Iterator[None]:
    """Spark uses statistics of columns."""
    with setting(spark, spark__sql__cbo__enabled="true"):
        yield


def known(frame: DataFrame) -> dict[str, Any]:
    """Spark's statistics of the columns of a frame's optimised plan, by name."""
    stats = frame._jdf.queryExecution().optimizedPlan().stats().attributeStats()
    found = stats.toSeq()
    pairs = [found.apply(at) for at in range(found.size())]
    return {str(pair._1().name()): pair._2() for pair in pairs}


def row_count(frame: DataFrame) -> int | None:
    """Spark's estimate of the rows of a frame."""
    estimate = frame._jdf.queryExecution().optimizedPlan().stats().rowCount()
    return int(str(estimate.get())) if estimate.isDefined() else None


@pytest.mark.usefixtures("cbo")
def test_conditions_are_estimated_by_the_values_of_columns(spark: SparkSession, table: LakeTable) -> None:
    """Counts of distinct values for equality, bounds for ranges; EXPLAIN COST shows the estimate."""
    assert row_count(spark.table(table.sql)) == 10_000
    equal = spark.sql(f"SELECT * FROM {table.sql} WHERE k = 7")
    assert 5 <= (row_count(equal) or 0) <= 20
    below = spark.sql(f"SELECT * FROM {table.sql} WHERE k < 250")
    assert 2_000 <= (row_count(below) or 0) <= 3_000
    text = spark.sql(f"EXPLAIN COST SELECT * FROM {table.sql} WHERE k = 7").collect()[0][0]
    estimates = re.findall(r"Filter .*Statistics\(sizeInBytes=[^,]*, rowCount=([0-9.]+)", text)
    assert estimates, text
    assert float(estimates[0]) < 20
    assert len(equal.collect()) == 10


def test_a_side_that_a_condition_makes_small_is_broadcast(spark: SparkSession, table: LakeTable) -> None:
    """By the estimate; without it Spark takes the size of all blocks that may match."""
    query = f"SELECT count(*) FROM {table.sql} a JOIN {table.sql} b ON a.id = b.id WHERE b.k = 7"
    with setting(spark, spark__sql__autoBroadcastJoinThreshold="1000", spark__sql__adaptive__enabled="false"):
        without = spark.sql(query)
        assert "SortMergeJoin" in plan(without)
        with setting(spark, spark__sql__cbo__enabled="true"):
            informed = spark.sql(query)
            assert "BroadcastHashJoin" in plan(informed)
            assert informed.collect() == without.collect() == [(10,)]


@pytest.mark.usefixtures("cbo")
def test_columns_of_every_type_are_described(spark: SparkSession, lakes: Lakes) -> None:
    """Bounds in Spark's own types, also where two tables are united; text has counts only."""
    rows = pa.table(
        {
            "b8": pa.array([1, 5, None], pa.int8()),
            "b16": pa.array([-300, 5, 7], pa.int16()),
            "b32": pa.array([1, 2, 3], pa.int32()),
            "b64": pa.array([1, 2, 3], pa.int64()),
            "f": pa.array([0.5, 1.5, 2.5], pa.float64()),
            "d": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(10, 2)),
            "day": pa.array([dt.date(2024, 1, 1), dt.date(2024, 5, 1), None], pa.date32()),
            "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", tz="UTC")),
            "yes": pa.array([True, False, True]),
            "s": pa.array(["a", "b", "b"]),
        }
    )
    table = lakes.empty(rows.schema)
    path = table.folder / "all.parquet"
    pq.write_table(rows, path)
    table.lake.table(table.name).register([str(path)], strict=True, verify=True)
    found = known(spark.table(table.sql))
    assert set(found) == set(rows.column_names)
    bounds = {name: (str(each.min().get()), str(each.max().get())) for name, each in found.items() if name != "s"}
    assert bounds["b8"] == ("1", "5")
    assert bounds["b16"] == ("-300", "7")
    assert bounds["f"] == ("0.5", "2.5")
    assert bounds["d"] == ("1.50", "2.25")
    assert bounds["day"] == ("19723", "19844")
    assert bounds["at"] == ("1704067200000000", "1704067200000000")
    assert bounds["yes"] == ("False", "True")
    assert not found["s"].min().isDefined()
    assert {name: int(str(each.nullCount().get())) for name, each in found.items()} == {
        **dict.fromkeys(rows.column_names, 0),
        **dict.fromkeys(("b8", "d", "day"), 1),
    }
    assert int(str(found["s"].distinctCount().get())) == 2
    united = spark.table(table.sql).unionAll(spark.table(table.sql))
    assert known(united)["b16"].min().isDefined()
    assert united.count() == 6


@pytest.mark.usefixtures("cbo")
def test_what_is_not_known_is_left_out(spark: SparkSession, lakes: Lakes) -> None:
    """Files that were registered by their footers have no counts of distinct values, and Spark does without."""
    table = lakes.of(*numbers(2))
    found = known(spark.table(table.sql))
    assert found["a"].min().isDefined()
    assert not found["a"].distinctCount().isDefined()
    assert spark.sql(f"SELECT count(*) FROM {table.sql} WHERE b = 1").collect()[0][0] == 67
    spark.sql(f"DELETE FROM {table.sql} WHERE a = 0")
    assert spark.sql(f"SELECT count(*) FROM {table.sql} WHERE b = 0 AND a < 10").collect()[0][0] == 3


def test_only_the_cost_based_optimiser_costs_a_request(spark: SparkSession, table: LakeTable, faults: Faults) -> None:
    """One for a table of a query, and none without it; if the service refuses it, Spark plans without."""
    requested: list[str] = []
    refused: list[bool] = []

    def watch(request: HttpRequest) -> Any:
        if "/snapshots/" in request.path:
            requested.append(request.path)
            if refused:
                return TransportFailure("refused", sent=False)
        return None

    name = fresh("watched")
    attached = attach(spark, name, faults.client(watch))
    try:
        query = f"SELECT count(s) FROM {name}.{table.name} JOIN range(10000) r ON k = r.id WHERE k = 7 AND s <> ''"
        assert spark.sql(query).collect()[0][0] == 10
        assert requested == []
        with setting(spark, spark__sql__cbo__enabled="true"):
            assert spark.sql(query).collect()[0][0] == 10
            assert len(requested) == 1
            refused.append(True)
            assert spark.sql(query).collect()[0][0] == 10
    finally:
        attached.detach()
