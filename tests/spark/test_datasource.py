"""The Python data source ``lamella``: SQL and frames where there is no JVM at hand."""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader

from lamella.client.rewrite.source import read_rows
from lamella.client.spark.datasource import BlockGroup, LamellaReader
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.errors import InvalidFilter, InvalidRequest, ObjectNotFound, SchemaMismatch
from lamella.snapshot.schema import Column, Schema
from spark.lakes import Lakes, LakeTable, no_pushdown, numbers, setting, sorted_rows

pytestmark = pytest.mark.spark


def through(spark: SparkSession, url: str, name: str, **options: Any) -> DataFrame:
    """The table by ``format("lamella")``."""
    return spark.read.format("lamella").options(url=url, **options).load(name)


@pytest.fixture(scope="module")
def table(lakes: Lakes) -> LakeTable:
    """Five blocks with columns of several types."""
    blocks = []
    for at in range(5):
        ids = range(at * 20, at * 20 + 20)
        blocks.append(
            pa.table(
                {
                    "i": pa.array(ids, pa.int64()),
                    "u": pa.array(ids, pa.uint32()),
                    "x": pa.array([math.nan if i % 7 == 0 else i / 2 for i in ids]),
                    "d": pa.array([Decimal(i) / 4 for i in ids], pa.decimal128(10, 2)),
                    "s": pa.array([f"s{i:03}" if i % 9 else None for i in ids]),
                    "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in ids]),
                    "ts": pa.array([dt.datetime(2024, 10, 27, 0, i % 60, tzinfo=dt.UTC) for i in ids]),
                    "st": pa.array([{"a": i} for i in ids]),
                    "l": pa.array([[str(i)] for i in ids]),
                }
            )
        )
    return lakes.of(*blocks)


CONDITIONS = [
    "i IN (1, 99)",
    "x > 40",
    "d >= 24.5 AND l[0] = '99'",
    "s IS NULL",
    "ts = TIMESTAMP '2024-10-27 02:30:00+02:00'",
    "st.a = 45",
    "true",
]


@pytest.mark.parametrize("conditions", [CONDITIONS[::6], pytest.param(CONDITIONS, marks=pytest.mark.soak)])
def test_one_frame_can_be_filtered_in_many_ways_at_once(
    spark: SparkSession, lake_url: str, table: LakeTable, conditions: Sequence[str]
) -> None:
    """The rows are those of a full scan, also where one query holds the frame many times with other filters.

    With Spark's own push-down for Python data sources they are not: the last filter would decide for all.
    """

    def rows(frame: DataFrame) -> list[str]:
        selected = [frame.where(condition).selectExpr(f'"{condition}" AS condition', "*") for condition in conditions]
        return sorted_rows(functools.reduce(DataFrame.unionAll, selected))

    assert LamellaReader.pushFilters is DataSourceReader.pushFilters
    with setting(spark, spark__sql__python__filterPushdown__enabled="true"):
        frame = through(spark, lake_url, table.name)
        assert frame.schema == spark.table(table.sql).schema
        assert frame.where("i = 5").count() == 1
        assert frame.count() == 100
        got = rows(frame)
    with no_pushdown(spark):
        assert got == rows(table.full_scan(spark))


def test_the_option_prune_leaves_blocks_out(spark: SparkSession, lake_url: str, table: LakeTable) -> None:
    """Only blocks that may hold such rows are read; partitions are groups of them."""
    frame = through(spark, lake_url, table.name, prune="i BETWEEN 25 AND 45")
    assert sorted(row.i for row in frame.where("i BETWEEN 25 AND 45").collect()) == list(range(25, 46))
    assert frame.count() == 40
    schema = json.dumps({"type": "struct", "fields": []})

    def planned(**options: str) -> list[int]:
        groups = LamellaReader({"url": lake_url, "path": table.name, **options}, schema).partitions()
        return [len(group.locations) for group in groups if isinstance(group, BlockGroup)]

    assert planned() == [5]
    assert planned(partitionBytes="1") == [1, 1, 1, 1, 1]
    assert planned(prune="day > DATE '2024-03-31'") == [1]
    assert planned(prune="ts < '2024-10-27 02:10:00'", timeZone="Europe/Berlin") == [2]
    assert planned(prune="upper(s) = 'S001'") == [5]
    assert planned(prune="i = 1000") == []
    assert through(spark, lake_url, table.name, prune="i = 1000").collect() == []
    with pytest.raises(InvalidFilter):
        planned(prune="i = ")


def test_sql_can_use_it_through_a_view(spark: SparkSession, lake_url: str, table: LakeTable) -> None:
    """CREATE TEMPORARY VIEW ... USING lamella needs no Python in the session."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW by_source USING lamella OPTIONS (url '{lake_url}', table '{table.name}')"
    )
    assert spark.sql("SELECT sum(i) FROM by_source WHERE i < 5").collect()[0][0] == 10
    assert spark.sql("SELECT count(*) FROM by_source").collect()[0][0] == 100


def test_a_schema_of_fewer_columns_reads_only_those(spark: SparkSession, lakes: Lakes, lake_url: str) -> None:
    """Columns are chosen by the schema that is given, also past columns that Spark cannot read."""
    table = lakes.of(pa.table({"a": [1, 2], "h": pa.array([1, 2], pa.timestamp("ns"))}))
    with pytest.raises(PySparkException, match="cannot read the type of h"):
        through(spark, lake_url, table.name).collect()
    frame = spark.read.format("lamella").schema("a bigint").options(url=lake_url, table=table.name).load()
    assert sorted(row.a for row in frame.collect()) == [1, 2]


def test_a_snapshot_can_be_pinned(spark: SparkSession, lakes: Lakes, lake_url: str) -> None:
    """By id, or by time."""
    first, second = numbers(2)
    table = lakes.of(first)
    old = table.snapshot_id()
    table.add(second)
    assert through(spark, lake_url, table.name).count() == 200
    assert through(spark, lake_url, table.name, snapshotId=old).count() == 100
    at = max(entry.timestamp_ms for entry in lakes.lake.table(table.name).snapshots() if entry.snapshot_id == old)
    assert through(spark, lake_url, table.name, timestampMs=at).count() == 100


def test_options_that_are_missing_are_named(spark: SparkSession) -> None:
    """Neither a URL nor a table can be guessed."""
    with pytest.raises(PySparkException, match="needs the option url"):
        spark.read.format("lamella").load("db.t").collect()


def test_blocks_are_read_in_the_wanted_types(tmp_path: Any) -> None:
    """Narrower files are widened, missing columns are null, names match without regard to case."""
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"A": pa.array([1, None], pa.int16()), "u": pa.array([2, 3], pa.uint64())}), path)
    fields = [("a", "long"), ("u", "decimal(20,0)"), ("new", "string")]
    wanted = {"fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]}
    target = spark_arrow_schema(json.dumps({"type": "struct", **wanted}))
    table = Schema.assign(
        [Column(name="a", type="int64"), Column(name="u", type="uint64"), Column(name="new", type="string")]
    )
    schemas: dict[str, Any] = {"written": table, "current": table}
    batches = list(read_rows(path, target, {}, **schemas))
    assert pa.Table.from_batches(batches).to_pylist() == [
        {"a": 1, "u": Decimal(2), "new": None},
        {"a": None, "u": Decimal(3), "new": None},
    ]
    with pytest.raises(ObjectNotFound):
        list(read_rows(str(tmp_path / "nothing.parquet"), target, {}, **schemas))
    pq.write_table(pa.table({"a": ["x"]}), path)
    with pytest.raises(SchemaMismatch, match="'a'"):
        list(read_rows(path, target, {}, **schemas))
    dates = Schema.assign([Column(name="d", type="date")])
    for first, is_readable in ((dt.date(1582, 10, 15), True), (dt.date(1582, 10, 14), False)):
        old = pa.table({"d": [first, None]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
        pq.write_table(old, path)
        found = read_rows(path, pa.schema([("d", pa.date32())]), {}, written=dates, current=dates)
        if is_readable:
            assert [row["d"] for batch in found for row in batch.to_pylist()] == [first, None]
        else:
            with pytest.raises(SchemaMismatch, match="old calendar"):
                list(found)
    with pytest.raises(InvalidRequest):
        list(read_rows("ftp://x/y.parquet", target, {}, **schemas))
