"""Views that the service stores: CREATE VIEW in an attached catalog, and reading them."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import attach
from lamella.snapshot.errors import ViewNotFound
from spark.lakes import CATALOG, Lakes, LakeTable, blocks_read, fresh, numbers

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def table(lakes: Lakes) -> LakeTable:
    """Three blocks of 100 rows."""
    return lakes.of(*numbers(3))


def space(table: LakeTable) -> str:
    """The namespace of a table in SQL."""
    return table.sql.rpartition(".")[0]


def test_a_view_is_read_like_a_table(spark: SparkSession, table: LakeTable) -> None:
    """From SQL and as a frame, with pruning through it, joined, and under other names for its columns."""
    view = f"{space(table)}.small"
    spark.sql(
        f"CREATE VIEW {view} (number COMMENT 'counts on', text) COMMENT 'the first ones'"
        f" TBLPROPERTIES ('team' = 'one') AS SELECT a, s FROM {table.sql} WHERE a < 150"
    )
    assert spark.table(view).columns == ["number", "text"]
    frame = spark.sql(f"SELECT number FROM {view} WHERE number >= 120")
    assert sorted(row.number for row in frame.collect()) == list(range(120, 150))
    assert blocks_read(frame) == (1, 3)
    assert spark.table(view).count() == 150
    joined = spark.sql(f"SELECT v.text FROM {view} v JOIN {table.sql} t ON v.number = t.a WHERE t.b = 1")
    assert joined.count() == 50
    stored = table.lake.view(view.removeprefix(f"{CATALOG}."))
    assert stored.definition.comment == "the first ones"
    assert stored.definition.properties["team"] == "one"
    assert stored.definition.sql.startswith("SELECT a, s FROM")


def test_views_are_listed_and_described(spark: SparkSession, table: LakeTable) -> None:
    """Apart from tables, and with the statement that makes them."""
    view = f"{space(table)}.v"
    spark.sql(f"CREATE VIEW {view} COMMENT 'evens' AS SELECT a AS even FROM {table.sql} WHERE a % 2 = 0")
    assert [row.viewName for row in spark.sql(f"SHOW VIEWS IN {space(table)}").collect()] == ["v"]
    assert table.lake.tables(table.name.rpartition(".")[0]) == ("t",)
    described = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE {view}").collect()}
    assert described["even"] == "bigint"
    extended = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE EXTENDED {view}").collect()}
    assert "evens" in extended.values()
    text = spark.sql(f"SHOW CREATE TABLE {view}").collect()[0][0]
    spark.sql(f"DROP VIEW {view}")
    spark.sql(text)
    assert spark.table(view).count() == 150


def test_views_are_replaced_altered_renamed_and_dropped(spark: SparkSession, table: LakeTable) -> None:
    """Each statement changes the stored view at once, for every session."""
    view, other = f"{space(table)}.v", f"{space(table)}.w"
    spark.sql(f"CREATE VIEW {view} AS SELECT a FROM {table.sql}")
    spark.sql(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT 1 AS one")
    assert spark.table(view).columns == ["a"]
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql(f"CREATE VIEW {view} AS SELECT 1 AS one")
    spark.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT a, b FROM {table.sql} WHERE a < 10")
    assert spark.table(view).count() == 10
    spark.sql(f"ALTER VIEW {view} AS SELECT b FROM {table.sql} WHERE a < 5")
    assert (spark.table(view).columns, spark.table(view).count()) == (["b"], 5)
    spark.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('team' = 'two', 'x' = 'y')")
    spark.sql(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('x')")
    info = table.lake.view(view.removeprefix(f"{CATALOG}."))
    assert (info.definition.properties.get("team"), "x" in info.definition.properties) == ("two", False)
    assert info.version == 5
    spark.sql(f"ALTER VIEW {view} RENAME TO {other}")
    assert spark.table(other).count() == 5
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table(view)
    spark.sql(f"DROP VIEW {other}")
    spark.sql(f"DROP VIEW IF EXISTS {other}")
    with pytest.raises(ViewNotFound):
        table.lake.view(other.removeprefix(f"{CATALOG}."))


def test_a_table_and_a_view_do_not_share_a_name(spark: SparkSession, table: LakeTable) -> None:
    """Whichever comes second is refused, and commands for one do not touch the other."""
    view = f"{space(table)}.v"
    spark.sql(f"CREATE VIEW {view} AS SELECT a FROM {table.sql}")
    for statement in (
        f"CREATE TABLE {view} (x INT)",
        f"CREATE TABLE {view} AS SELECT 1 AS x",
        f"CREATE VIEW {table.sql} AS SELECT 1 AS x",
        f"CREATE OR REPLACE VIEW {table.sql} AS SELECT 1 AS x",
        f"ALTER TABLE {table.sql} RENAME TO {view}",
        f"ALTER VIEW {view} RENAME TO {table.sql}",
        f"DROP TABLE {view}",
        f"DROP VIEW {table.sql}",
        f"INSERT INTO {view} VALUES (1)",
        f"DELETE FROM {view}",
    ):
        with pytest.raises(PySparkException) as raised:
            spark.sql(statement)
        assert "Traceback" not in str(raised.value), statement
    assert spark.table(view).count() == spark.table(table.sql).count() == 300
    table.lake.drop_table(table.name)
    with pytest.raises(PySparkException, match="namespace_not_empty"):
        spark.sql(f"DROP NAMESPACE {space(table)}")


def test_names_in_a_view_are_looked_up_where_it_was_made(spark: SparkSession, lake: Lamella, table: LakeTable) -> None:
    """Also by a session that has attached the service under another name."""
    view = f"{space(table)}.v"
    before = spark.sql("SELECT current_catalog() c, current_schema() s").collect()[0]
    spark.sql(f"USE {space(table)}")
    try:
        spark.sql("CREATE VIEW v AS SELECT a FROM t WHERE a < 7")
        spark.sql("CREATE VIEW over AS SELECT max(a) AS top FROM v")
    finally:
        spark.sql(f"USE {before.c}.{before.s}")
    assert spark.table(view).count() == 7
    name = fresh("elsewhere")
    attached = attach(spark, name, lake)
    try:
        inner = view.removeprefix(f"{CATALOG}.")
        assert spark.table(f"{name}.{inner}").count() == 7
        assert spark.sql(f"SELECT top FROM {name}.{inner.rpartition('.')[0]}.over").collect()[0].top == 6
    finally:
        attached.detach()


def test_a_view_sees_deleted_rows_and_new_columns_as_queries_do(spark: SparkSession, table: LakeTable) -> None:
    """It is the query, run at the current snapshot."""
    view = f"{space(table)}.v"
    spark.sql(f"CREATE VIEW {view} AS SELECT * FROM {table.sql} WHERE a < 10")
    spark.sql(f"DELETE FROM {table.sql} WHERE a = 3")
    assert sorted(row.a for row in spark.table(view).collect()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMN more INT")
    assert spark.table(view).columns == ["a", "b", "s"]
    spark.sql(f"ALTER TABLE {table.sql} DROP COLUMN s")
    with pytest.raises(AnalysisException) as raised:
        spark.table(view)
    assert "Traceback" not in str(raised.value)
