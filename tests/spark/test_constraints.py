"""Constraints in Spark: every way of writing refuses rows that violate one, and statements add only what is true."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.spark import append_batches, merge, update, write
from lamella.snapshot.errors import CheckViolation, LamellaError
from lamella.snapshot.schema.evolution import SetNullable
from spark.lakes import CATALOG, Faults, Lakes, fresh
from spark.test_sql_writes import attach_with, is_commit, once

pytestmark = pytest.mark.spark

#: What errors of violating rows say: Spark's own conditions, and our codes.
_REFUSED = (
    "CHECK_CONSTRAINT_VIOLATION",
    "NOT_NULL_ASSERT_VIOLATION",
    "lamella.check_violation",
    "lamella.schema_mismatch",
    "constraint 'positive' CHECK",
    "is required and has nulls",
)
#: Statements that write a row `{bad}` into a table with rows a = 1 and 2.
STATEMENTS = (
    "INSERT INTO {t} SELECT {bad}",
    "INSERT INTO {t} BY NAME SELECT {bad}",
    "INSERT OVERWRITE {t} SELECT {bad}",
    "INSERT INTO {t} REPLACE WHERE a = 1 SELECT {bad}",
    "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT {bad}, 1 AS z",
    "MERGE INTO {t} t USING (SELECT {bad}) b ON t.a = 1 WHEN MATCHED THEN UPDATE SET *",
    "MERGE INTO {t} t USING (SELECT {bad}, 1 AS k) b ON t.a = b.k WHEN MATCHED THEN UPDATE SET a = b.a, s = b.s",
    "MERGE INTO {t} t USING (SELECT {bad}) b ON false WHEN NOT MATCHED THEN INSERT (a, s) VALUES (b.a, b.s)",
    "MERGE INTO {t} t USING (SELECT {bad}, 1 AS k) b ON t.a = b.k WHEN MATCHED THEN DELETE"
    " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = -t.a, s = NULL",
)
BAD = {
    "a check": "-1 AS a, named_struct('x', 1) AS s",
    "a required column": "CAST(NULL AS INT) AS a, named_struct('x', 1) AS s",
    "a required field": "3 AS a, named_struct('x', CAST(NULL AS INT)) AS s",
}


def new_table(spark: SparkSession, lakes: Lakes) -> str:
    """A table of two rows with all kinds of constraints; its name below the catalog."""
    name = f"{fresh('constraints')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(
        f"CREATE TABLE {CATALOG}.{name} (a INT NOT NULL, s STRUCT<x: INT NOT NULL>, CONSTRAINT positive CHECK (a > 0))"
    )
    spark.sql(f"INSERT INTO {CATALOG}.{name} VALUES (1, NULL), (2, named_struct('x', 2))")
    return name


def refuses(lakes: Lakes, name: str, does: Callable[[], object]) -> None:
    """Assert that something fails because of a constraint, and changes nothing."""
    before = lakes.lake.table(name).info()
    with pytest.raises((PySparkException, LamellaError)) as failed:
        does()
    text = f"{getattr(failed.value, 'code', '')} {failed.value}"
    assert any(each in text for each in _REFUSED), text
    assert lakes.lake.table(name).info() == before


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.few(1)
def test_every_statement_refuses_a_violating_row(spark: SparkSession, lakes: Lakes, bad: str) -> None:
    """Whether Spark finds it or the writer of blocks, nothing is committed."""
    name = new_table(spark, lakes)
    for statement in STATEMENTS:
        if "NOT MATCHED BY SOURCE" in statement and bad != BAD["a check"]:
            continue  # its rows are computed from those of the table
        refuses(lakes, name, partial(spark.sql, statement.format(t=f"{CATALOG}.{name}", bad=bad)))


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.few(1)
def test_every_writer_of_frames_refuses_a_violating_row(
    spark: SparkSession, lakes: Lakes, tmp_path: Path, bad: str
) -> None:
    """DataFrame writers, streams, and the functions of this package."""
    name = new_table(spark, lakes)
    table = f"{CATALOG}.{name}"
    frame = spark.sql(f"SELECT {bad}")
    column = "s" if "'x', CAST" in bad else "a"
    value = "named_struct('x', CAST(NULL AS INT))" if column == "s" else "-1" if "-1" in bad else "CAST(NULL AS INT)"
    for does in (
        lambda: frame.writeTo(table).append(),
        lambda: frame.writeTo(table).option("mergeSchema", "true").append(),
        lambda: frame.writeTo(table).overwrite(F.lit(True)),
        lambda: frame.write.insertInto(table),
        lambda: frame.write.insertInto(table, overwrite=True),
        lambda: frame.write.mode("append").saveAsTable(table),
        lambda: write(frame, name, client=lakes.lake),
        lambda: write(frame, name, client=lakes.lake, mode="overwrite"),
        lambda: update(spark, name, {column: value}, "a = 1", client=lakes.lake),
        lambda: merge(frame, name, "false", client=lakes.lake).when_not_matched_insert().execute(),
        lambda: merge(frame, name, "t.a = 1", client=lakes.lake).when_matched_update().execute(),
        lambda: append_batches(name, sink="s", client=lakes.lake)(frame, 0),
    ):
        refuses(lakes, name, does)
    source = tmp_path / "rows"
    frame.write.parquet(str(source))
    refuses(lakes, name, lambda: stream(spark, frame, source, table, tmp_path / "checkpoint"))


def stream(spark: SparkSession, frame: DataFrame, source: Path, table: str, checkpoint: Path) -> None:
    """Stream a folder of rows into a table."""
    query = (
        spark.readStream.schema(frame.schema)
        .parquet(str(source))
        .writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()


def test_rows_that_satisfy_all_constraints_are_written(spark: SparkSession, lakes: Lakes) -> None:
    """A null struct has no fields, so none of them is missing."""
    name = new_table(spark, lakes)
    table = f"{CATALOG}.{name}"
    spark.sql(f"INSERT INTO {table} VALUES (3, NULL)")
    spark.sql(f"UPDATE {table} SET s = NULL WHERE a = 2")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 3 AS a) s ON t.a = s.a"
        " WHEN MATCHED THEN UPDATE SET s = named_struct('x', 9)"
    )
    write(spark.sql("SELECT 4 AS a, CAST(NULL AS STRUCT<x: INT>) AS s"), name, client=lakes.lake)
    spark.sql(f"CALL {CATALOG}.system.compact('{name}')")
    assert [tuple(row) for row in spark.sql(f"SELECT a, s.x FROM {table} ORDER BY a").collect()] == [
        (1, None),
        (2, None),
        (3, 9),
        (4, None),
    ]


def test_statements_add_and_drop_constraints(spark: SparkSession, lakes: Lakes) -> None:
    """Only those that all rows satisfy and that can be checked; others say why."""
    name = new_table(spark, lakes)
    table = f"{CATALOG}.{name}"
    for statement, condition in (
        ("ADD CONSTRAINT big CHECK (a > 1)", "NEW_CHECK_CONSTRAINT_VIOLATION"),
        ("ADD CONSTRAINT r CHECK (CAST(a AS STRING) RLIKE '^(1|2)+$')", "lamella.filter_not_evaluable"),
        ("ADD CONSTRAINT n CHECK (s.x IS NOT NULL)", "NEW_CHECK_CONSTRAINT_VIOLATION"),
        ("ADD CONSTRAINT positive CHECK (a > -1)", "already a constraint 'positive'"),
        ("ADD CONSTRAINT p PRIMARY KEY (a)", "is a PRIMARY KEY, which nothing enforces"),
        ("ADD CONSTRAINT u UNIQUE (a)", "is a UNIQUE"),
        ("DROP CONSTRAINT nope", "no constraint 'nope'"),
        ("RENAME COLUMN a TO b", "used by the constraint 'positive'"),
        ("ALTER COLUMN s SET NOT NULL", "lamella.not_proven"),
    ):
        with pytest.raises(PySparkException, match=condition):
            spark.sql(f"ALTER TABLE {table} {statement}")
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (a < 10)")
    spark.sql(f"ALTER TABLE {table} ADD CHECK (s.x <> 5)")
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS nope")
    refuses(lakes, name, lambda: spark.sql(f"INSERT INTO {table} VALUES (11, NULL)"))
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT small")
    spark.sql(f"INSERT INTO {table} VALUES (11, NULL)")
    spark.sql(f"UPDATE {table} SET s = named_struct('x', 0)")
    spark.sql(f"CALL {CATALOG}.system.purge('{name}', min_deleted_share => 0.001)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN s SET NOT NULL")
    refuses(lakes, name, lambda: spark.sql(f"INSERT INTO {table} VALUES (12, NULL)"))
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN s DROP NOT NULL")
    spark.sql(f"INSERT INTO {table} VALUES (12, NULL)")


def test_definitions_carry_constraints(spark: SparkSession, lakes: Lakes) -> None:
    """SHOW CREATE TABLE, LIKE and CREATE OR REPLACE TABLE; one that cannot be checked creates nothing."""
    name = new_table(spark, lakes)
    table = f"{CATALOG}.{name}"
    shown = str(spark.sql(f"SHOW CREATE TABLE {table}").collect()[0][0])
    assert "CONSTRAINT positive CHECK (a > 0)" in shown
    spark.sql(shown.replace(table, f"{table}_again"))
    spark.sql(f"CREATE TABLE {table}_like LIKE {table}")
    for copy in ("again", "like"):
        refuses(lakes, f"{name}_{copy}", partial(spark.sql, f"INSERT INTO {table}_{copy} VALUES (0, NULL)"))
    for condition, code in (
        ("a RLIKE '^(1|2)+$'", "filter_not_evaluable"),
        ("now() > TIMESTAMP '2020-01-01 00:00:00'", "invalid_filter"),
    ):
        with pytest.raises(PySparkException, match=rf"lamella\.{code}"):
            spark.sql(f"CREATE TABLE {table}_bad (a STRING, CHECK ({condition}))")
    assert not spark.catalog.tableExists(f"{table}_bad")
    spark.sql(f"CREATE OR REPLACE TABLE {table} (a INT, CONSTRAINT small CHECK (a < 3))")
    refuses(lakes, name, lambda: spark.sql(f"INSERT INTO {table} VALUES (3)"))
    spark.sql(f"INSERT INTO {table} VALUES (0)")
    spark.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT 7 AS a")
    assert lakes.lake.table(name).info().schema.checks == ()


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO {t} SELECT -1, NULL", "INSERT OVERWRITE {t} SELECT -1, NULL", "UPDATE {t} SET a = -1 WHERE a = 1"],
)
def test_a_constraint_that_others_add_meanwhile_holds(
    spark: SparkSession, lakes: Lakes, faults: Faults, statement: str
) -> None:
    """The statement wrote its rows before; it is refused, and says to run it again."""
    name = new_table(spark, lakes)
    handle = lakes.lake.table(name)
    handle.drop_check("positive")
    catalog = attach_with(spark, faults, once(is_commit, lambda: handle.add_check("positive", "a > 0")))
    with pytest.raises(PySparkException, match=r"schema_conflict|again"):
        spark.sql(statement.format(t=f"{catalog}.{name}"))
    assert sorted(row["a"] for row in handle.scan().to_arrow().to_pylist()) == [1, 2]


def test_a_column_that_others_require_meanwhile_gets_no_nulls(
    spark: SparkSession, lakes: Lakes, faults: Faults
) -> None:
    """The same of NOT NULL."""
    name = new_table(spark, lakes)
    handle = lakes.lake.table(name)
    handle.delete("a = 1", mode="copy-on-write")
    require = SetNullable(column="s", nullable=False)
    catalog = attach_with(spark, faults, once(is_commit, lambda: handle.evolve([require])))
    with pytest.raises(PySparkException, match="schema_conflict"):
        spark.sql(f"INSERT INTO {catalog}.{name} VALUES (5, NULL)")
    assert handle.info().row_count == 1


def test_a_constraint_replaces_a_generated_column(spark: SparkSession, lakes: Lakes) -> None:
    """The one that the error names: every writer refuses another value than that of the expression."""
    namespace = fresh("generated")
    lakes.lake.create_namespace(namespace)
    table = f"{CATALOG}.{namespace}.t"
    with pytest.raises(PySparkException, match="tables have no such columns") as refused:
        spark.sql(f"CREATE TABLE {table} (id INT, b INT GENERATED ALWAYS AS (id * 2))")
    constraint = re.search(r"CONSTRAINT .*\)\)", str(refused.value))
    assert constraint is not None
    spark.sql(f"CREATE TABLE {table} (id INT, b INT, {constraint[0]})")
    spark.sql(f"INSERT INTO {table} SELECT id, id * 2 FROM (SELECT 3 AS id UNION ALL SELECT NULL)")
    handle = lakes.lake.table(f"{namespace}.t")
    handle.append([{"id": 4, "b": 8}])
    for row in ({"id": 5, "b": 11}, {"id": 5, "b": None}, {"id": None, "b": 1}):
        with pytest.raises(CheckViolation):
            handle.append([row])
    with pytest.raises(PySparkException, match="CHECK_CONSTRAINT_VIOLATION"):
        spark.sql(f"UPDATE {table} SET id = 7 WHERE id = 4")
    spark.sql(f"UPDATE {table} SET id = 7, b = 14 WHERE id = 4")
    rows = handle.scan().to_arrow().to_pylist()
    assert sorted((row["id"] or 0, row["b"]) for row in rows) == [(0, None), (3, 6), (7, 14)]
