"""The way that is left when a version of Spark lacks what a catalog needs: a relation with a file index of ours."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.spark import Attached, LamellaSparkWarning, attach, attachment
from lamella.snapshot.errors import InvalidSchema, LamellaError
from spark.lakes import Lakes, fresh, no_pushdown, numbers, plan, sorted_rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def views(spark: SparkSession, lake: Lamella) -> Attached:
    """The service attached in this mode on purpose."""
    return attach(spark, "views", lake, mode="views")


def test_a_missing_internal_is_noticed_before_any_query(
    spark: SparkSession, lake: Lamella, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe turns a class that is gone into the other mode, with a warning that says what is gone."""

    monkeypatch.setattr(attachment, "_REQUIRED", ("org.apache.spark.sql.connector.read.NoSuchThing",))
    with pytest.warns(LamellaSparkWarning, match="NoSuchThing"):
        attached = attach(spark, fresh("older"), lake)
    assert attached.mode == "views"
    assert attached.table(lakes.of(*numbers(1)).name).count() == 100
    with pytest.raises(LamellaError, match="NoSuchThing"):
        attach(spark, fresh("older"), lake, mode="catalog")


def test_the_catalog_mode_is_what_this_spark_gets(spark: SparkSession, lake: Lamella) -> None:
    """With the Spark that the tests run, the probe finds everything."""
    assert attach(spark, fresh("current"), lake).reason is None


def test_filters_prune_and_rows_are_those_of_a_full_scan(spark: SparkSession, views: Attached, lakes: Lakes) -> None:
    """The frame asks the service when it runs; files read are in Spark's own metrics."""
    table = lakes.of(*numbers(5))
    conditions = {"a BETWEEN 120 AND 130": 1, "b = 1 AND a > 450": 1, "s LIKE 'v0001%'": 1, "b = 0": 5}
    for condition, max_files in conditions.items():
        frame = views.table(table.name).where(condition)
        through = sorted_rows(frame)
        with no_pushdown(spark):
            assert through == sorted_rows(table.full_scan(spark).where(condition))
        assert _files_read(frame) <= max_files


def test_partition_filters_cannot_exist(views: Attached, lakes: Lakes) -> None:
    """Spark does not check filters on partition columns again, so the index must have none."""
    table = lakes.of(*numbers(2))
    frame = views.table(table.name).where("upper(s) = 'V000150' AND a > 0")
    relation = frame._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0).relation()
    assert relation.partitionSchema().isEmpty()
    assert [row.a for row in frame.collect()] == [150]


def test_nan_and_zeros_are_not_lost(spark: SparkSession, views: Attached, lakes: Lakes) -> None:
    """The relation's options switch off the reader's own skipping where a table has floats."""
    table = lakes.of(pa.table({"x": [1.0, float("nan"), -0.0]}))
    frame = views.table(table.name)
    assert [math.isnan(row.x) for row in frame.where("x > 5").collect()] == [True]
    assert frame.where("x = 0.0D").count() == 1
    assert spark.conf.get("spark.sql.parquet.filterPushdown") == "true"


def test_a_frame_stays_at_its_snapshot(views: Attached, lakes: Lakes) -> None:
    """The index pins the snapshot at which the frame was made; an older one can be asked for."""
    first, second = numbers(2)
    table = lakes.of(first)
    old = table.snapshot_id()
    frame = views.table(table.name)
    table.add(second)
    assert frame.count() == 100
    assert views.table(table.name).count() == 200
    assert views.table(table.name, snapshot_id=old).count() == 100


def test_a_view_makes_the_table_known_to_sql(spark: SparkSession, views: Attached, lakes: Lakes) -> None:
    """Views are made one by one, by name; the catalog itself is not there."""
    table = lakes.of(*numbers(2))
    name = views.view(table.name)
    assert name == f"views_{table.name.replace('.', '_')}"
    assert spark.sql(f"SELECT max(a) FROM {name} WHERE a < 50").collect()[0][0] == 49
    assert views.view(table.name, "mine", columns=["b"]) == "mine"
    assert spark.table("mine").columns == ["b"]
    with pytest.raises(AnalysisException):
        spark.table(f"views.{table.name}").collect()


def test_joins_and_aggregates_over_the_relation_are_right(views: Attached, lakes: Lakes) -> None:
    """Two uses of one table in a query are two scans or one, never a mixture."""
    table = lakes.of(*numbers(4))
    low = views.table(table.name).where("a < 200").groupBy("b").agg(F.count("*").alias("n"))
    high = views.table(table.name).where("a >= 300").groupBy("b").agg(F.count("*").alias("m"))
    row = low.join(high, "b").agg(F.sum("n"), F.sum("m")).collect()[0]
    assert tuple(row) == (200, 100)
    assert views.table(table.name).inputFiles()[0].startswith("file:///")


def test_unreadable_columns_must_be_left_out_by_name(views: Attached, lakes: Lakes) -> None:
    """Here the columns that a query touches are not known beforehand."""
    table = lakes.of(pa.table({"a": [1, 2], "t": pa.array([1, 2], pa.timestamp("ns"))}))
    with pytest.raises(InvalidSchema, match=r"t \(timestamp_ntz\(ns\)\)"):
        views.table(table.name)
    assert views.table(table.name, columns=["a"]).count() == 2


def _files_read(frame) -> int:  # type: ignore[no-untyped-def]  # py4j objects have no types
    executed = frame._jdf.queryExecution().executedPlan()
    assert "FileScan parquet" in plan(frame)
    leaf = executed.collectLeaves().apply(0)
    return int(leaf.metrics().apply("numFiles").value())
