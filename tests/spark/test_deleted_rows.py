"""Blocks with deleted rows, read by Spark: by every way to read, and by everything that reads in order to write."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column

from lamella.client.spark import Attached, LamellaSparkWarning, attach, delete, merge, read, update, vector_scan
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import Settings, load_table
from lamella.client.spark.reader import _path_frame
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema.evolution import RenameColumn
from spark.lakes import CATALOG, Lakes, LakeTable, plan
from support.deleted_rows import blocks_of, delete_positions, set_deletes

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
    joined = spark.sql(f"SELECT l.a FROM {sql} l JOIN {sql} r ON l.a = r.a WHERE r.b = 1")
    assert values(joined) == [value for value in left() if value % 3 and value % 7 == 1]


def scans(frame: DataFrame, note: str = "with deletion vectors") -> tuple[int, int]:
    """The blocks that a frame's plan reads as ever, and those that it reads with this note."""
    found = re.findall(r"BatchScan.* blocks=(\d+)/4(.*)", plan(frame))
    assert len(found) == 2, plan(frame)
    noted = sum(int(blocks) for blocks, rest in found if note in rest)
    return sum(int(blocks) for blocks, _ in found) - noted, noted


IN_PYTHON = "READ IN PYTHON, files have deleted rows"


@pytest.mark.parametrize("way", ["SQL", "frame", "attached", "read"])
@pytest.mark.few(2)
def test_spark_itself_reads_blocks_with_deleted_rows_and_without(
    spark: SparkSession, attached: Attached, lakes: Lakes, table: LakeTable, way: str
) -> None:
    """Each kind by a scan of its own, by names of the table, with filters and join keys for both."""
    frame = {
        "SQL": lambda: spark.sql(f"SELECT {table.sql}.a, t.b FROM {table.sql}"),
        "frame": lambda: spark.table(table.sql),
        "attached": lambda: attached.table(table.name),
        "read": lambda: read(spark, table.name, client=lakes.lake),
    }[way]()
    assert values(frame) == left()
    assert scans(frame) == (2, 2)
    for start, stop, blocks in ((0, 50, (0, 1)), (150, 200, (1, 0)), (100, 200, (1, 1))):
        chosen = frame.where(f"a >= {start} AND a < {stop}")
        assert values(chosen) == [value for value in left() if start <= value < stop]
        assert scans(chosen) == blocks
    keys = spark.createDataFrame([(60,), (150,)], "k bigint")
    joined = frame.join(F.broadcast(keys), F.col("a") == F.col("k"))
    assert values(joined) == [60, 150]
    assert len(frame.where("b = 1").limit(7).where("a >= 0").collect()) == 7


def test_deleted_rows_of_many_row_groups_and_pages_are_left_out_by_spark(spark: SparkSession, lakes: Lakes) -> None:
    """Whatever part of a file a task reads, and whatever its filter skips; for all types of columns."""
    count = 40_000
    rows = pa.table(
        {
            "a": list(range(count)),
            "s": [f"text {value % 1000}" for value in range(count)],
            "n": [None if value % 5 == 0 else {"x": value, "l": [value % 3] * (value % 4)} for value in range(count)],
        }
    )
    made = lakes.of(rows, rows.slice(0, 100), row_group_size=7_000, data_page_size=1 << 10, write_page_index=True)
    handle = lakes.lake.table(made.name)
    large, small = sorted(blocks_of(handle).values(), key=lambda block: -block.row_count)
    gone = sorted({*range(0, count, 97), *range(6_990, 7_010), count - 1})
    delete_positions(handle, {large.location: gone, small.location: [0, 99]})
    left = [value for value in range(count) if value not in set(gone)]
    wanted = sorted([*left, *range(1, 99)])
    spark.conf.set("spark.sql.files.maxPartitionBytes", 100_000)
    spark.conf.set("spark.sql.files.openCostInBytes", 1)
    try:
        frame = spark.table(made.sql)
        assert "with deletion vectors" in plan(frame)
        assert "getByte" in plan(frame)
        assert "getbit" not in plan(frame)
        assert frame.rdd.getNumPartitions() > 2
        assert values(frame) == wanted
        tests: dict[str, Callable[[int], bool]] = {
            "a BETWEEN 6995 AND 7050": lambda value: 6995 <= value <= 7050,
            "s = 'text 17'": lambda value: value % 1000 == 17,
            "n IS NULL AND a > 39000": lambda value: value % 5 == 0 and value > 39_000,
            "n.x >= 20000 AND size(n.l) = 3": lambda value: value >= 20_000 and value % 5 > 0 and value % 4 == 3,
        }
        for where, test in tests.items():
            assert values(frame.where(where)) == [value for value in wanted if test(value)], where
        total = spark.sql(f"SELECT count(*), sum(a), count(n) FROM {made.sql}").collect()[0]
        assert tuple(total) == (len(wanted), sum(wanted), sum(value % 5 > 0 for value in wanted))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


@pytest.mark.parametrize("fast", [False, True])
def test_only_rows_that_are_known_to_be_deleted_are_left_out(spark: SparkSession, lakes: Lakes, fast: bool) -> None:
    """A row behind the end of a file's bits stays, and so do all rows of a file without; in SQL and in Spark's code."""
    table = load_table(lakes.lake, lakes.of(pa.table({"a": [1]})).name, Settings())
    condition: Any = vector_scan.live_rows_condition(table.schema, "`{}`".format)
    index, bits = (field["name"] for field in vector_scan.hidden_fields(table.schema))
    draw = random.Random(7)
    rows: list[tuple[int | None, bytes | None]] = [(3, None), (None, b"\xff"), (None, None), (0, b""), (8, b"\xff")]
    left = list(rows)
    for count in (1, 7, 8, 9, 64, 250):
        marks = [draw.random() < 0.5 for _ in range(count)]
        value = vector_scan.bits_of(np.flatnonzero(marks), count)
        rows += [(at, value) for at in range(count + 70)]
        left += [(at, value) for at in range(count + 70) if at >= count or not marks[at]]
    texts = pa.array([value for _, value in rows], pa.binary()).view(pa.string())
    frame = spark.createDataFrame(pa.table({index: pa.array([at for at, _ in rows], pa.int64()), bits: texts}))
    if fast:
        gateway = Gateway(spark)
        found = frame.where(condition)._jdf.queryExecution().analyzed().condition()
        made = vector_scan.fast_condition(gateway, table.schema, found)
        assert "getByte" in str(made.toString())
        condition = Column(gateway.static("org.apache.spark.sql.classic.ExpressionUtils", "column")(made))
    shown = frame.where(condition).selectExpr(index, f"CAST({bits} AS BINARY)").collect()
    assert Counter((at, None if value is None else bytes(value)) for at, value in shown) == Counter(left)


def test_subqueries_that_spark_merges_leave_deleted_rows_out(spark: SparkSession, table: LakeTable) -> None:
    """Spark 4.3 may read a table once for several subqueries, by a scan that it makes anew of other filters."""
    names = [row[0] for row in spark.sql("SET -v").collect() if ".mergeSubplans.filterPropagation" in row[0]]
    before = {name: spark.conf.get(name) for name in names}
    queries = {
        "sum(a)": ("a < 50", sum(value for value in left() if value < 50)),
        "count(a)": ("a < 50", sum(value < 50 for value in left())),
        "count(*)": ("a >= 100", sum(value >= 100 for value in left())),
        "max(a)": ("a < 53", max(value for value in left() if value < 53)),
        "min(a)": ("true", min(left())),
    }
    text = ", ".join(f"(SELECT {made} FROM {table.sql} WHERE {where})" for made, (where, _) in queries.items())
    try:
        for flag in ("false", "true"):
            for name in names:
                spark.conf.set(name, flag)
            assert list(spark.sql(f"SELECT {text}").collect()[0]) == [wanted for _, wanted in queries.values()]
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def test_spark_evaluates_the_condition_itself_where_it_cannot_be_replaced(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a later version of Spark whose classes differ: slower, and said in the log."""
    monkeypatch.setattr(vector_scan, "_EXPRESSIONS", "org.apache.spark.sql.none.")
    frame = spark.table(table.sql).where("a < 150")
    assert values(frame) == [value for value in left() if value < 150]
    assert "getbit" in plan(frame)
    assert "deleted rows are found slowly" in caplog.text


def test_blocks_that_sparks_reader_cannot_mark_are_read_in_python(
    spark: SparkSession, table: LakeTable, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many of them, columns under other names, and values that are not in the files."""
    monkeypatch.setattr(vector_scan, "MAX_FILES", 1)
    frame = spark.table(table.sql)
    assert scans(frame, IN_PYTHON) == (2, 2)
    assert values(frame) == left()
    assert values(frame.where("a < 50 AND b = 1")) == [
        value for value in left() if value < 50 and value % 3 and value % 7 == 1
    ]
    monkeypatch.undo()
    lakes.lake.table(table.name).evolve([RenameColumn(column="b", name="c")])
    renamed = spark.table(table.sql)
    assert scans(renamed, IN_PYTHON) == (2, 2)
    assert values(renamed.where("c = 1")) == [value for value in left() if value % 3 and value % 7 == 1]
    assert scans(renamed.select("a")) == (2, 2)


def test_a_frame_of_a_table_reads_the_same_snapshot_by_both_scans(spark: SparkSession, lakes: Lakes) -> None:
    """That of its first execution, as for a table without deleted rows, whatever had deleted rows before."""
    table = lakes.of(pa.table({"a": [1, 2, 3]}), pa.table({"a": [4, 5, 6]}))
    handle = lakes.lake.table(table.name)
    first, second = (location for _, location in sorted((min_of(b), at) for at, b in blocks_of(handle).items()))
    before = spark.table(table.sql)
    delete_positions(handle, {first: [0]})
    assert values(before) == [2, 3, 4, 5, 6]
    frame, counted = spark.table(table.sql), spark.table(table.sql)
    delete_positions(handle, {first: [0, 1], second: [2]})
    table.add(pa.table({"a": [7]}))
    assert sorted(row.a for row in frame.collect()) == [3, 4, 5, 7]
    set_deletes(handle, {first: (), second: ()})
    assert counted.count() == 7
    assert sorted(row.a for row in frame.collect()) == [3, 4, 5, 7]  # the plan of its first execution
    assert values(frame.where("a > 0")) == [1, 2, 3, 4, 5, 6, 7]


def test_statements_are_about_the_table_and_not_about_a_view(spark: SparkSession, table: LakeTable) -> None:
    """Descriptions, lists, writes, copies, the cache and temporary views, as for any other table."""
    namespace, sql = f"{CATALOG}.{table.name.split('.')[0]}", table.sql

    def rows(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(statement).collect()]

    assert rows(f"DESCRIBE {sql}") == [("a", "bigint", None), ("b", "bigint", None)]
    assert rows(f"SHOW CREATE TABLE {sql}")[0][0].startswith(f"CREATE TABLE {sql}")
    assert [row[1] for row in rows(f"SHOW TABLES IN {namespace}")] == ["t"]
    assert rows(f"SHOW VIEWS IN {namespace}") == []
    assert spark.catalog.tableExists(sql)
    assert [column.name for column in spark.catalog.listColumns(sql)] == ["a", "b"]
    spark.sql(f"CREATE TABLE {namespace}.copy AS SELECT * FROM {sql}")
    assert values(spark.table(f"{namespace}.copy")) == left()
    spark.sql(f"CACHE TABLE {sql}")
    spark.sql(f"INSERT INTO {sql} SELECT a + 1000, b FROM {sql} WHERE a < 3")
    wanted = [*left(), 1001, 1002]
    assert values(spark.table(sql)) == wanted
    spark.sql(f"UNCACHE TABLE {sql}")
    spark.table(sql).createOrReplaceTempView("of_deleted")
    assert values(spark.sql("SELECT a FROM of_deleted WHERE a > 190")) == [*range(191, 200), 1001, 1002]
    for statement, error in (
        (f"DROP VIEW {namespace}.v", "VIEW_NOT_FOUND"),
        (f"DROP VIEW {sql}", "WRONG_COMMAND_FOR_OBJECT_TYPE"),
        (f"INSERT INTO {namespace}.`t$rows` VALUES (1, 2)", "TABLE_OR_VIEW_NOT_FOUND"),
        (f"SELECT _lamella_has_deletes FROM {sql}", "UNRESOLVED_COLUMN"),
        (f"SELECT _lamella_has_deletes FROM {namespace}.`t$rows`", "can only be a condition of its own"),
        (f"SELECT a FROM {namespace}.`t$rows` WHERE _lamella_has_deletes OR a = 1", "condition of its own"),
    ):
        with pytest.raises(PySparkException, match=error):
            pytest.fail(f"{statement}: {spark.sql(statement).collect()}")
    spark.sql(f"TRUNCATE TABLE {sql}")
    assert spark.table(sql).count() == 0


def test_without_views_a_table_with_deleted_rows_is_one_scan(
    spark: SparkSession, lakes: Lakes, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Spark has no ``RelationCatalog``, and at a named snapshot."""

    has_class = Gateway.has_class
    monkeypatch.setattr(
        Gateway, "has_class", lambda self, name: "RelationCatalog" not in name and has_class(self, name)
    )
    with pytest.warns(LamellaSparkWarning, match="there are no stored views"):
        other = attach(spark, "without_views", lakes.lake)
    try:
        assert other.mode == "catalog"
        for frame in (
            spark.table(f"without_views.{table.name}"),
            spark.sql(f"SELECT * FROM {table.sql} VERSION AS OF '{table.snapshot_id()}'"),
        ):
            assert values(frame) == left()
            assert plan(frame.where("a > 0")).count("BatchScan") == 1
    finally:
        other.detach()


def test_a_column_of_the_hidden_columns_name_stays_its_own(spark: SparkSession, lakes: Lakes) -> None:
    """The hidden column takes another name then."""
    table = lakes.of(pa.table({"a": [1, 2, 3], "_Lamella_has_deletes": [True, False, None]}), pa.table({"a": [4]}))
    handle = lakes.lake.table(table.name)
    first = next(location for location, block in blocks_of(handle).items() if min_of(block) == 1)
    delete_positions(handle, {first: [0]})
    found = sorted(spark.table(table.sql).collect())
    assert [tuple(row) for row in found] == [(2, False), (3, None), (4, None)]
    assert values(spark.sql(f"SELECT a FROM {table.sql} WHERE NOT _lamella_has_deletes")) == [2]


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
