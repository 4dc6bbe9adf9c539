"""Writes that bring columns of their own: the columns and the rows come in one snapshot, or neither does."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, ArithmeticException, SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http.fake_transport import problem_response
from lamella.client.spark import attach
from lamella.snapshot.schema.evolution import AddColumn, RenameColumn
from spark.lakes import CATALOG, Faults, Lakes, fresh
from spark.test_sql_writes import is_commit, new_table, once, operations

pytestmark = pytest.mark.spark


def columns(lakes: Lakes, name: str) -> dict[str, str]:
    """The types of the table's columns by name."""
    return {column.name: column.type for column in lakes.lake.table(name).info().schema.columns}


def rows(spark: SparkSession, name: str) -> list[tuple[object, ...]]:
    """All rows, in the order of ``id``."""
    return [tuple(row) for row in spark.table(f"{CATALOG}.{name}").orderBy("id").collect()]


def test_an_insert_brings_columns_fields_and_wider_types(spark: SparkSession, lakes: Lakes) -> None:
    """Also inside of structs and lists; earlier rows are null there; all of it is one snapshot."""
    name = new_table(spark, lakes, "id INT, s STRUCT<x: INT>, l ARRAY<STRUCT<p: INT>>")
    sql = f"{CATALOG}.{name}"
    spark.sql(f"INSERT INTO {sql} VALUES (1, named_struct('x', 1), array(named_struct('p', 1)))")
    statement = (
        f"INSERT WITH SCHEMA EVOLUTION INTO {sql} BY NAME SELECT 3000000000 AS id, 'q' AS b,"
        " named_struct('y', 'n', 'x', 2L) AS s, array(named_struct('p', 1, 'r', 2)) AS l"
    )
    spark.sql(f"EXPLAIN {statement}").collect()
    assert operations(lakes, name) == ["create", "append"]
    spark.sql(statement)
    assert operations(lakes, name) == ["create", "append", "append"]
    assert rows(spark, name) == [(1, (1, None), [(1, None)], None), (3000000000, (2, "n"), [(1, 2)], "q")]
    assert columns(lakes, name) == {"id": "int64", "s": "struct", "l": "list", "b": "string"}


def test_an_insert_by_position_brings_the_columns_at_its_end(spark: SparkSession, lakes: Lakes) -> None:
    """They have the names of the query."""
    name = new_table(spark, lakes, "id INT")
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {CATALOG}.{name} SELECT 1 AS other, 'q' AS b")
    assert rows(spark, name) == [(1, "q")]
    assert list(columns(lakes, name)) == ["id", "b"]


def test_types_that_cannot_become_the_others_stay(spark: SparkSession, lakes: Lakes) -> None:
    """Values of narrower types are cast; what Spark cannot cast is refused, with the columns as they were."""
    name = new_table(spark, lakes, "id BIGINT, b INT")
    sql = f"{CATALOG}.{name}"
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {sql} BY NAME SELECT CAST(1 AS TINYINT) AS id, 2 AS b")
    with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
        spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {sql} BY NAME SELECT 1 AS id, 'x' AS b, 1 AS c")
    assert columns(lakes, name) == {"id": "int64", "b": "int32"}
    assert rows(spark, name) == [(1, 2)]


def test_a_write_that_fails_leaves_the_columns(spark: SparkSession, lakes: Lakes, faults: Faults) -> None:
    """Whether the query fails or the commit."""
    name = new_table(spark, lakes, "id INT")
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        spark.sql(
            f"INSERT WITH SCHEMA EVOLUTION INTO {CATALOG}.{name} BY NAME SELECT id, 1 DIV id AS b FROM VALUES (0) v(id)"
        )
    catalog = fresh("faulty")
    attach(
        spark, catalog, faults.client(lambda r: problem_response(403, "permission_denied") if is_commit(r) else None)
    )
    with pytest.raises(SparkRuntimeException, match="permission_denied"):
        spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {catalog}.{name} BY NAME SELECT 1 AS id, 2 AS b")
    assert columns(lakes, name) == {"id": "int32"}
    assert operations(lakes, name) == ["create"]
    spark.sql(f"INSERT INTO {CATALOG}.{name} VALUES (5)")
    assert rows(spark, name) == [(5,)]


WRITES: dict[str, Callable[[DataFrame, str], object]] = {
    "writeTo": lambda frame, sql: frame.writeTo(sql).option("mergeSchema", "true").append(),
    "saveAsTable": lambda frame, sql: frame.write.option("merge_schema", True).mode("append").saveAsTable(sql),
    "insertInto": lambda frame, sql: frame.write.option("mergeSchema", True).insertInto(sql),
}


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.few(2)
def test_frames_bring_columns_by_an_option(spark: SparkSession, lakes: Lakes, way: str) -> None:
    """Without it, or when it is off, Spark refuses them."""
    name = new_table(spark, lakes, "id INT, b STRING DEFAULT 'x'")
    sql = f"{CATALOG}.{name}"
    frame = spark.range(1).selectExpr("CAST(7 AS INT) AS id", "'y' AS b", "DATE '2024-01-01' AS d")
    with pytest.raises(AnalysisException):
        frame.writeTo(sql).append()
    with pytest.raises(AnalysisException):
        frame.writeTo(sql).option("mergeSchema", "false").append()
    assert list(columns(lakes, name)) == ["id", "b"]
    WRITES[way](frame, sql)
    assert [row[:2] for row in rows(spark, name)] == [(7, "y")]
    assert columns(lakes, name)["d"] == "date"
    assert operations(lakes, name) == ["create", "append"]


def test_a_property_allows_it_for_every_insert(spark: SparkSession, lakes: Lakes) -> None:
    """An option of one write wins; UPDATE, DELETE and MERGE work as ever; wrong columns are refused."""
    name = new_table(spark, lakes, "id INT, b INT DEFAULT 5")
    sql = f"{CATALOG}.{name}"
    spark.sql(f"ALTER TABLE {sql} SET TBLPROPERTIES ('write.merge_schema' = 'true')")
    spark.sql(f"INSERT INTO {sql} BY NAME SELECT 1 AS id, 2 AS b, 3 AS c")
    spark.sql(f"INSERT INTO {sql} (id) VALUES (2)")
    spark.sql(f"INSERT INTO {sql} VALUES (3, DEFAULT, 4)")
    with pytest.raises(SparkRuntimeException, match="NOT_ENOUGH_DATA_COLUMNS"):
        spark.sql(f"INSERT INTO {sql} SELECT 9")
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT 4 AS id, 1 AS d FROM {sql}").writeTo(sql).option("mergeSchema", "false").append()
    assert rows(spark, name) == [(1, 2, 3), (2, 5, None), (3, 5, 4)]
    spark.range(1).selectExpr("4 AS id", "1 AS b", "2 AS d").writeTo(sql).overwrite(F.col("id") == 3)
    spark.sql(f"UPDATE {sql} SET b = 0 WHERE id IN (SELECT 1)")
    source = "(SELECT 9 AS id, 8 AS b)"
    spark.sql(f"MERGE INTO {sql} t USING {source} s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, b) VALUES (id, b)")
    spark.sql(f"DELETE FROM {sql} WHERE id IN (SELECT 2)")
    assert rows(spark, name) == [(1, 0, 3, None), (4, 1, None, 2), (9, 8, None, None)]
    spark.sql(f"INSERT OVERWRITE {sql} BY NAME SELECT 1 AS id, 7 AS e")
    assert rows(spark, name) == [(1, 5, None, None, 7)]


def test_a_merge_brings_columns(spark: SparkSession, lakes: Lakes) -> None:
    """Changed rows have them, and rows that are only inserted; deleted rows of earlier snapshots stay deleted."""
    name = new_table(spark, lakes, "id INT, v INT")
    sql = f"{CATALOG}.{name}"
    spark.sql(f"INSERT INTO {sql} SELECT CAST(id AS INT), 1 FROM range(1, 6)")
    spark.sql(f"DELETE FROM {sql} WHERE id = 5")
    begin = f"MERGE WITH SCHEMA EVOLUTION INTO {sql} t USING"
    spark.sql(
        f"{begin} (SELECT * FROM VALUES (2, 20L, 'b'), (7, 70L, 'c') s(id, v, w)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark, name) == [(1, 1, None), (2, 20, "b"), (3, 1, None), (4, 1, None), (7, 70, "c")]
    assert columns(lakes, name)["v"] == "int64"
    spark.sql(f"{begin} (SELECT 8 AS id, 9 AS n) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert rows(spark, name)[-1] == (8, None, None, 9)
    with pytest.raises(ArithmeticException):
        spark.sql(
            f"{begin} (SELECT id, 1 DIV (id - 8) AS late FROM VALUES (8) s(id)) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET *"
        )
    assert list(columns(lakes, name)) == ["id", "v", "w", "n"]
    assert operations(lakes, name) == ["create", "append", "delete", "merge", "append"]


@pytest.mark.parametrize("is_same", [True, False])
def test_two_sessions_that_change_the_columns_at_once(
    spark: SparkSession, lakes: Lakes, faults: Faults, is_same: bool
) -> None:
    """The same column is added once; after another change nothing is done, and the statement can run again."""
    name = new_table(spark, lakes, "id INT, old INT")
    handle = lakes.lake.table(name)
    change = AddColumn(name="b", type="int") if is_same else RenameColumn(column="old", name="new")
    catalog = fresh("late")
    attach(spark, catalog, faults.client(once(is_commit, lambda: handle.evolve([change]))))
    statement = f"INSERT WITH SCHEMA EVOLUTION INTO {catalog}.{name} BY NAME SELECT 1 AS id, 2 AS b"
    if is_same:
        spark.sql(statement)
    else:
        with pytest.raises(SparkRuntimeException, match="schema_conflict"):
            spark.sql(statement)
        assert list(columns(lakes, name)) == ["id", "new"]
        spark.sql(statement)
    assert sorted(columns(lakes, name)) == sorted(["id", "old" if is_same else "new", "b"])
    assert spark.table(f"{CATALOG}.{name}").select("id", "b").collect() == [(1, 2)]
