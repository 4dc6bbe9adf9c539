"""The hidden column ``_metadata`` of tables: the file of a row, and its position there."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lamella.snapshot.schema.evolution import RenameColumn
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_read, numbers, plan, setting
from support.deleted_rows import blocks_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ALL = "_metadata.file_path, _metadata.file_name, _metadata.file_size, _metadata.row_index, _metadata.snapshot_id"
IN_PYTHON = "READ IN PYTHON, with _metadata"
NATIVE = " with _metadata"


def files(table: LakeTable) -> dict[str, tuple[str, int]]:
    """Location and size of each block's file, by its name."""
    found = blocks_of(table.lake.table(table.name))
    return {location.rpartition("/")[2]: (location, block.file_size) for location, block in found.items()}


def test_rows_say_which_file_they_come_from_and_where_in_it_they_are(spark: SparkSession, lakes: Lakes) -> None:
    """All fields, beside all columns of the table, which do not have them."""
    table = lakes.of(*numbers(3))
    assert "_metadata" not in spark.table(table.sql).columns
    assert "_metadata" not in {row.col_name for row in spark.sql(f"DESCRIBE {table.sql}").collect()}
    frame = spark.sql(f"SELECT {ALL}, * FROM {table.sql}")
    assert frame.columns[-3:] == ["a", "b", "s"]
    found = frame.collect()
    assert IN_PYTHON in plan(frame)
    assert sorted(row.a for row in found) == list(range(300))
    by_name = files(table)
    assert {row.file_name for row in found} == set(by_name)
    first = {name: min(row.a for row in found if row.file_name == name) for name in by_name}
    for row in found:
        assert (row.file_path, row.file_size) == by_name[row.file_name]
        assert row.row_index == row.a - first[row.file_name]
        assert row.snapshot_id == table.snapshot_id()


def test_files_alone_are_read_by_sparks_own_reader(spark: SparkSession, lakes: Lakes) -> None:
    """Also from several tasks for one file, whose parts it then says, and in the other order of columns."""
    table = lakes.of(*numbers(3, rows=20_000), row_group_size=2_000, compression="none")
    with setting(spark, spark__sql__files__maxPartitionBytes=str(100 << 10)):
        frame = spark.sql(
            "SELECT _metadata.file_block_start AS at, _metadata.file_block_length AS length, _metadata.file_size,"
            f" _metadata.file_path AS path, a FROM {table.sql}"
        )
        found = frame.collect()
    assert NATIVE in plan(frame)
    assert IN_PYTHON not in plan(frame)
    assert sorted(row.a for row in found) == list(range(60_000))
    by_path = dict(files(table).values())
    for path, size in by_path.items():
        parts = sorted({(row["at"], row.length) for row in found if row.path == path})
        assert len(parts) > 1
        assert all(start + length <= size == row_size for start, length in parts for row_size in (size,))
    counts = spark.sql(f"SELECT _metadata.file_name, count(*) AS n, min(a) AS low FROM {table.sql} GROUP BY 1")
    assert {(row.file_name, row.n, row.low) for row in counts.collect()} == {
        (path.rpartition("/")[2], 20_000, min(row.a for row in found if row.path == path)) for path in by_path
    }


def test_conditions_on_the_file_leave_out_blocks(spark: SparkSession, lakes: Lakes) -> None:
    """Before any is read, together with conditions on columns; those on positions are evaluated by Spark."""
    table = lakes.of(*numbers(4))
    by_name = files(table)
    (name, (path, _)) = sorted(by_name.items())[1]
    own = {row.a for row in spark.sql(f"SELECT a FROM {table.sql} WHERE _metadata.file_path = '{path}'").collect()}
    assert len(own) == 100
    for condition, blocks in (
        (f"_metadata.file_path = '{path}'", 1),
        (f"_metadata.file_name IN ('{name}', 'other')", 1),
        (f"_metadata.file_name LIKE '%{name[1:]}' AND _metadata.row_index < 1000", 1),
        (f"_metadata.file_name = '{name}' AND a < 10000", 1),
    ):
        frame = spark.sql(f"SELECT a FROM {table.sql} WHERE {condition}")
        assert {row.a for row in frame.collect()} == own, condition
        assert blocks_read(frame) == (blocks, 4), condition
    assert spark.sql(f"SELECT count(*) FROM {table.sql} WHERE _metadata.file_name = '{name}'").collect()[0][0] == 100
    none = spark.sql(f"SELECT a FROM {table.sql} WHERE _metadata.snapshot_id = 'x'")
    assert none.collect() == []
    assert blocks_read(none) == (0, 4)
    frame = spark.sql(f"SELECT a FROM {table.sql} WHERE _metadata.row_index = 7 AND a < 200")
    assert sorted(row.a for row in frame.collect()) == [7, 107]
    assert blocks_read(frame) == (2, 4)
    both = spark.sql(f"SELECT a FROM {table.sql} WHERE _metadata.file_path = '{path}' OR a = 399")
    assert {row.a for row in both.collect()} == own | {399}


def test_rows_join_by_file_and_position(spark: SparkSession, lakes: Lakes) -> None:
    """With the blocks of the table, and with themselves; limits, orders and aggregates are as ever."""
    table = lakes.of(*numbers(3))
    namespace = table.name.split(".")[0]
    joined = spark.sql(
        f"SELECT t.a, b.row_count FROM {table.sql} t JOIN {CATALOG}.{namespace}.`t$blocks` b"
        " ON t._metadata.file_path = b.location WHERE t.b = 1"
    )
    assert sorted(row.a for row in joined.collect()) == [value for value in range(300) if value % 3 == 1]
    again = spark.sql(
        f"SELECT l.a FROM {table.sql} l JOIN {table.sql} r ON l._metadata.file_path = r._metadata.file_path"
        " AND l._metadata.row_index = r._metadata.row_index AND l.a = r.a"
    )
    assert sorted(row.a for row in again.collect()) == list(range(300))
    last = spark.sql(f"SELECT max(_metadata.row_index), count(_metadata), count(*) FROM {table.sql}").collect()[0]
    assert tuple(last) == (99, 300, 300)
    ordered = spark.sql(f"SELECT a, _metadata.row_index AS i FROM {table.sql} ORDER BY a DESC LIMIT 2").collect()
    assert [tuple(row) for row in ordered] == [(299, 99), (298, 98)]
    frame = spark.table(table.sql).select("a", "_metadata").where("_metadata.row_index = 5")
    assert sorted(row.a for row in frame.collect()) == [5, 105, 205]
    keys = spark.createDataFrame([(3,), (250,)], "k bigint")
    keys.createOrReplaceTempView("keys_of_rows")
    keyed = spark.sql(f"SELECT t.a, t._metadata.row_index FROM {table.sql} t JOIN keys_of_rows ON k = a")
    assert sorted((row.a, row.row_index) for row in keyed.collect()) == [(3, 3), (250, 50)]


def test_deleted_rows_keep_their_positions(spark: SparkSession, lakes: Lakes) -> None:
    """They are left out; the others are where they were. At an older snapshot all are there."""
    table = lakes.of(*numbers(2))
    before = table.snapshot_id()
    spark.sql(f"DELETE FROM {table.sql} WHERE a IN (0, 5, 150)")
    found = spark.sql(f"SELECT a, _metadata.row_index AS i, _metadata.snapshot_id AS s FROM {table.sql}").collect()
    assert sorted((row.a, row.i) for row in found) == [
        (value, value % 100) for value in range(200) if value not in (0, 5, 150)
    ]
    assert {row.s for row in found} == {table.snapshot_id()} != {before}
    past = spark.sql(
        f"SELECT _metadata.row_index AS i, _metadata.snapshot_id AS s FROM {table.sql} VERSION AS OF '{before}'"
    )
    assert {(row.i, row.s) for row in past.collect()} == {(at, before) for at in range(100)}
    names = spark.sql(f"SELECT DISTINCT _metadata.file_name FROM {table.sql} WHERE a < 100").collect()
    assert len(names) == 1


def positions(spark: SparkSession, table: LakeTable) -> dict[int, tuple[str, int]]:
    """The path and position of each row, by ``a``."""
    found = spark.sql(f"SELECT a, _metadata.file_path AS path, _metadata.row_index AS i FROM {table.sql}").collect()
    return {row.a: (row.path, row.i) for row in found}


def test_rows_are_changed_by_file_and_position(spark: SparkSession, lakes: Lakes) -> None:
    """UPDATE and DELETE find rows by the hidden column, also when rows of the file are deleted already."""
    table = lakes.of(*numbers(3))
    (path, _) = positions(spark, table)[7]
    spark.sql(f"UPDATE {table.sql} SET s = 'seen' WHERE _metadata.file_path = '{path}' AND _metadata.row_index < 3")
    assert {row.a for row in spark.sql(f"SELECT a FROM {table.sql} WHERE s = 'seen'").collect()} == {0, 1, 2}
    source = f"SELECT '{path}' AS path, explode(array(10L, 11L)) AS i"
    with pytest.raises(PySparkException, match=r"\[lamella.invalid_request\] MERGE cannot use _metadata"):
        spark.sql(
            f"MERGE INTO {table.sql} t USING ({source}) s ON t._metadata.file_path = s.path WHEN MATCHED THEN DELETE"
        )
    spark.sql(
        f"DELETE FROM {table.sql} WHERE (_metadata.file_path, _metadata.row_index) IN (SELECT path, i FROM ({source}))"
    )
    left = set(range(300)) - {10, 11}
    assert set(positions(spark, table)) == left
    name = path.rpartition("/")[2]
    spark.sql(f"DELETE FROM {table.sql} WHERE _metadata.file_name = '{name}' AND _metadata.row_index BETWEEN 9 AND 12")
    assert set(positions(spark, table)) == left - {9, 12}
    assert positions(spark, table)[13] == (path, 13)


def test_renamed_and_added_columns_stay_beside_it(spark: SparkSession, lakes: Lakes) -> None:
    """Blocks of several schemas are read with the hidden column too."""
    table = lakes.of(*numbers(1))
    table.lake.table(table.name).evolve([RenameColumn(column=("s",), name="text")])
    spark.sql(f"INSERT INTO {table.sql} VALUES (1000, 1, 'new')")
    for part in ("_metadata.file_name", "_metadata.row_index"):
        found = spark.sql(f"SELECT text, {part} AS x FROM {table.sql} WHERE a IN (7, 1000)").collect()
        assert sorted(row.text for row in found) == ["new", "v000007"]
        assert all(row.x is not None for row in found)


def test_a_column_of_the_name_hides_it(spark: SparkSession, lakes: Lakes) -> None:
    """The table's own column is read, filtered and deleted by as ever."""
    own = pa.table({"a": [1, 2, 3], "_metadata": ["x", "y", "z"]})
    table = lakes.of(own)
    assert [tuple(row) for row in spark.sql(f"SELECT * FROM {table.sql} ORDER BY a").collect()] == [
        (1, "x"),
        (2, "y"),
        (3, "z"),
    ]
    spark.sql(f"DELETE FROM {table.sql} WHERE _metadata = 'y'")
    assert [row.a for row in spark.sql(f"SELECT a FROM {table.sql} WHERE _metadata > 'a' ORDER BY a").collect()] == [
        1,
        3,
    ]
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT _metadata.file_path FROM {table.sql}")
    nested = lakes.of(pa.table({"_metadata": [{"file_path": "mine"}]}))
    assert spark.sql(f"SELECT _metadata.file_path FROM {nested.sql}").collect()[0][0] == "mine"


def test_a_stream_refuses_it(spark: SparkSession, lakes: Lakes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With an error that says so."""
    table = lakes.of(*numbers(1))
    rows = spark.readStream.table(table.sql)
    query = (
        rows.select("_metadata.file_path")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path_factory.mktemp("stream")))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="has no _metadata; read the table as a batch for it") as raised:
        query.awaitTermination()
    assert "Traceback" not in str(raised.value)
