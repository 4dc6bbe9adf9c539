"""Blocks with deleted rows, read by Spark: by every way to read, and by everything that reads in order to write."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lamella.client.spark import delete, merge, read, update
from lamella.client.spark.lake import Settings, load_table
from lamella.client.spark.reader import _path_frame
from lamella.snapshot.manifest import Block
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_read, plan
from support.deleted_rows import blocks_of, delete_positions

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = 50
#: Deleted rows by the number of the file.
GONE = {0: [0, 7, 49], 2: [*range(1, 50)]}


@pytest.fixture
def table(lakes: Lakes) -> LakeTable:
    """Four files with ``a`` from 0 to 199, of which two have deleted rows; ``b`` is null in every third."""
    files = []
    for number in range(4):
        values = range(number * ROWS, (number + 1) * ROWS)
        b = pa.array([None if value % 3 == 0 else value % 7 for value in values], pa.int64())
        files.append(pa.table({"a": list(values), "b": b}))
    made = lakes.of(*files)
    handle = lakes.lake.table(made.name)
    first = {min_of(block): location for location, block in blocks_of(handle).items()}
    delete_positions(handle, {first[number * ROWS]: rows for number, rows in GONE.items()})
    return made


def min_of(block: Block) -> int:
    """The smallest value of ``a`` in a block."""
    bound = block.col_stats[1].min
    assert bound is not None
    return int(bound.int64 or 0)


def left() -> list[int]:
    """The values of ``a`` that are left."""
    gone = {number * ROWS + row for number, rows in GONE.items() for row in rows}
    return [value for value in range(4 * ROWS) if value not in gone]


def values(frame: DataFrame) -> list[int]:
    """``a`` of a frame's rows."""
    return sorted(row.a for row in frame.select("a").collect())


def test_the_catalog_leaves_deleted_rows_out(spark: SparkSession, table: LakeTable) -> None:
    """For filters that are proven and others, counts, limits and orders; clean blocks are read by Spark itself."""
    sql = f"{CATALOG}.{table.name}"
    assert values(spark.table(sql)) == left()
    assert spark.table(sql).count() == len(left())
    for where, wanted in (
        ("a < 50", [value for value in left() if value < 50]),
        ("a BETWEEN 5 AND 8", [5, 6, 8]),
        ("b IS NULL AND a < 10", [3, 6, 9]),
        ("b = 3 AND a < 60", [value for value in left() if value < 60 and value % 3 and value % 7 == 3]),
        ("a = 7", []),
    ):
        assert values(spark.sql(f"SELECT a FROM {sql} WHERE {where}")) == wanted, where
    assert len(spark.sql(f"SELECT * FROM {sql} LIMIT 97").collect()) == 97
    assert [row.a for row in spark.sql(f"SELECT a FROM {sql} ORDER BY a LIMIT 3").collect()] == [1, 2, 3]
    dirty = spark.sql(f"SELECT a FROM {sql} WHERE a < 50")
    assert "READ IN PYTHON, files have deleted rows" in plan(dirty)
    clean = spark.sql(f"SELECT a FROM {sql} WHERE a >= 150")
    assert "PYTHON" not in plan(clean)
    assert blocks_read(clean) == (1, 4)
    joined = spark.sql(f"SELECT l.a FROM {sql} l JOIN {sql} r ON l.a = r.a WHERE r.b = 1")
    assert values(joined) == [value for value in left() if value % 3 and value % 7 == 1]


def test_the_other_readers_leave_deleted_rows_out(spark: SparkSession, lakes: Lakes, table: LakeTable) -> None:
    """``read``, the Python data source, and a snapshot before the rows were deleted."""
    assert values(read(spark, table.name, client=lakes.lake)) == left()
    assert values(read(spark, table.name, client=lakes.lake, where="a < 50")) == [v for v in left() if v < 50]
    source = spark.read.format("lamella").option("url", lakes.lake.url).option("table", table.name)
    assert values(source.load()) == left()
    handle = lakes.lake.table(table.name)
    before = list(handle.snapshots())[1].snapshot_id
    then = spark.sql(f"SELECT a FROM {CATALOG}.{table.name} VERSION AS OF '{before}'")
    assert values(then) == list(range(4 * ROWS))


def test_without_a_catalog_clean_blocks_are_read_by_spark_itself(
    spark: SparkSession, lakes: Lakes, table: LakeTable
) -> None:
    """As on Spark Connect: only the blocks with deleted rows are read in Python."""
    loaded = load_table(lakes.lake, table.name, Settings())
    frame = _path_frame(spark, loaded, None)
    assert values(frame) == left()
    assert len(frame.inputFiles()) == 2
    assert values(frame.where("b IS NULL AND a < 160")) == [v for v in left() if v % 3 == 0 and v < 160]
    assert len(_path_frame(spark, loaded, "a < 50").inputFiles()) == 0
    assert values(_path_frame(spark, loaded, "a < 50").where("a < 50")) == [v for v in left() if v < 50]
    assert values(_path_frame(spark, loaded, "a >= 150").where("a >= 150")) == [v for v in left() if v >= 150]


def test_changes_see_only_the_rows_that_are_left(spark: SparkSession, lakes: Lakes, table: LakeTable) -> None:
    """A delete, an update and a merge neither count deleted rows nor bring them back."""
    removed = delete(spark, table.name, "a >= 1 AND a < 3 OR a = 7", client=lakes.lake)
    assert removed.rows == 2
    spark.sql(f"DELETE FROM {CATALOG}.{table.name} WHERE a < 10 AND a > 5")
    wanted = [value for value in left() if value not in (1, 2, 6, 8, 9)]
    assert values(spark.table(f"{CATALOG}.{table.name}")) == wanted
    changed = update(spark, table.name, {"b": "100"}, where="a IN (0, 3, 100, 101)", client=lakes.lake)
    assert changed.rows_updated == 2  # the others are deleted
    source = spark.createDataFrame([(102, 1), (103, 1), (4, 1)], "a bigint, b bigint")
    merged = (
        merge(source, table.name, "t.a = s.a", client=lakes.lake)
        .when_matched_update({"b": "s.b"})
        .when_not_matched_insert({"a": "s.a", "b": "s.b"})
        .execute()
    )
    assert (merged.rows_updated, merged.rows_inserted) == (1, 2)
    assert values(spark.table(f"{CATALOG}.{table.name}")) == sorted([*wanted, 102, 103])


def test_a_profile_of_the_table_counts_rows(lakes: Lakes, table: LakeTable) -> None:
    """The service knows how many rows are left without a scan."""
    answer = lakes.lake.table(table.name).aggregate(["count(*)"], reader_features=["deletes"])
    assert json.loads(json.dumps(answer.records())) == [{"count(*)": len(left())}]
