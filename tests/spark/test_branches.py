"""Branches in Spark SQL: read and written as `table.branch_name`, published by procedures."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lamella.client.spark import Attached
from spark.lakes import CATALOG

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: SparkSession, attached: Attached) -> str:
    """A table with the rows 1 to 3 and the branch `audit`; its name in SQL."""
    assert attached.mode == "catalog", attached.reason
    name = f"{CATALOG}.db.branched"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
    spark.sql(f"CREATE TABLE {name} (x BIGINT, y STRING)")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    made = spark.sql(f"CALL {CATALOG}.system.create_branch(table => 'db.branched', branch => 'audit')").collect()
    assert (made[0].branch, made[0].number) == ("audit", 2)
    return name


def rows(spark: SparkSession, source: str) -> list[tuple[int, str]]:
    """The sorted rows of a table."""
    return sorted(tuple(row) for row in spark.sql(f"SELECT x, y FROM {source}").collect())


def test_statements_write_a_branch_and_leave_the_table_alone(spark: SparkSession, table: str) -> None:
    """INSERT, DELETE, UPDATE and MERGE; also where deleted rows get vectors, and by the DataFrame's writer."""
    branch = f"{table}.branch_audit"
    spark.sql(f"INSERT INTO {branch} VALUES (4, 'd')")
    spark.sql(f"DELETE FROM {branch} WHERE x = 1")
    spark.sql(f"UPDATE {branch} SET y = 'z' WHERE x = 2")
    spark.sql(
        f"MERGE INTO {branch} t USING (SELECT 3L AS x, 'm' AS y UNION ALL SELECT 9L, 'n') s ON t.x = s.x"
        " WHEN MATCHED THEN UPDATE SET t.y = s.y WHEN NOT MATCHED THEN INSERT *"
    )
    spark.createDataFrame([(10, "o")], "x BIGINT, y STRING").writeTo(branch).append()
    assert rows(spark, branch) == [(2, "z"), (3, "m"), (4, "d"), (9, "n"), (10, "o")]
    assert rows(spark, f"{table} VERSION AS OF 'audit'") == rows(spark, branch)
    assert rows(spark, table) == [(1, "a"), (2, "b"), (3, "c")]
    assert spark.sql(f"SELECT count(*) FROM {branch} WHERE x > 3 AND y < 'o'").collect()[0][0] == 2
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql(f"CALL {CATALOG}.system.create_branch(table => 'db.branched', branch => 'vectors')")
    spark.sql(f"DELETE FROM {table}.branch_vectors WHERE x = 3")
    assert rows(spark, f"{table}.branch_vectors") == [(1, "a"), (2, "b")]
    assert rows(spark, table) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_branch_is_checked_and_then_published(spark: SparkSession, table: str) -> None:
    """Write, audit, publish: readers of the table see all of it at once."""
    branch = f"{table}.branch_audit"
    spark.sql(f"INSERT INTO {branch} SELECT id + 10, 'new' FROM range(5)")
    spark.sql(f"DELETE FROM {branch} WHERE x = 12")
    assert spark.sql(f"SELECT count(*) FROM {branch} WHERE y IS NULL").collect()[0][0] == 0
    done = spark.sql(f"CALL {CATALOG}.system.fast_forward(table => '{table}', to => 'audit')").collect()
    assert (done[0].branch, done[0].snapshots) == ("main", 2)
    assert [x for x, _ in rows(spark, table)] == [1, 2, 3, 10, 11, 13, 14]
    spark.sql(f"CALL {CATALOG}.system.drop_branch(table => 'db.branched', branch => 'audit')")
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT * FROM {branch}").collect()


def test_a_statement_reads_the_table_and_writes_its_branch(spark: SparkSession, table: str) -> None:
    """They are two tables for it, each at a snapshot of its own."""
    branch = f"{table}.branch_audit"
    spark.sql(f"INSERT INTO {branch} VALUES (4, 'd')")
    spark.sql(f"INSERT INTO {table} VALUES (9, 'i')")
    spark.sql(
        f"MERGE INTO {branch} t USING {table} s ON t.x = s.x WHEN MATCHED THEN UPDATE SET y = upper(s.y)"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(spark, branch) == [(1, "A"), (2, "B"), (3, "C"), (4, "d"), (9, "i")]
    spark.sql(f"DELETE FROM {branch} WHERE x NOT IN (SELECT x FROM {table})")
    assert [x for x, _ in rows(spark, branch)] == [1, 2, 3, 9]
    spark.sql(f"INSERT OVERWRITE {branch} SELECT x, y FROM {table} WHERE x > 2")
    assert rows(spark, branch) == [(3, "c"), (9, "i")]
    assert rows(spark, table) == [(1, "a"), (2, "b"), (3, "c"), (9, "i")]


def test_one_commit_of_a_branch_is_taken_over(spark: SparkSession, table: str) -> None:
    """By the id of its snapshot, or the name of the branch for its last one."""
    branch = f"{table}.branch_audit"
    spark.sql(f"INSERT INTO {branch} VALUES (4, 'd')")
    spark.sql(f"INSERT INTO {branch} VALUES (5, 'e')")
    spark.sql(f"INSERT INTO {table} VALUES (9, 'i')")
    done = spark.sql(f"CALL {CATALOG}.system.cherry_pick(table => 'db.branched', snapshot => 'audit')").collect()
    assert (done[0].branch, done[0].added, done[0].removed) == ("main", 1, 0)
    assert [x for x, _ in rows(spark, table)] == [1, 2, 3, 5, 9]


def test_what_is_about_a_branch_is_shown_under_its_name(spark: SparkSession, table: str) -> None:
    """Metadata tables; a name that is no branch is a table of a namespace, if there is one."""
    branch = f"{table}.branch_audit"
    spark.sql(f"INSERT INTO {branch} VALUES (4, 'd')")
    numbers = spark.sql(f"SELECT number FROM {table}.`branch_audit$snapshots` ORDER BY number").collect()
    assert [row.number for row in numbers] == [1, 2, 3]
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT * FROM {table}.branch_other").collect()
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table}")
    spark.sql(f"CREATE OR REPLACE TABLE {table}.branch_real (x BIGINT, y STRING)")
    assert rows(spark, f"{table}.branch_real") == []
    spark.sql(f"DROP TABLE {table}.branch_real")
