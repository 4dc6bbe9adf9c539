"""Namespaces and tables by SQL: what is made is what was asked for, and what cannot be had is refused."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.http.fake_transport import problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.spark import attach, write
from lamella.snapshot.errors import TableNotFound
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import AddColumn
from spark.lakes import CATALOG, Faults, Lakes, fresh
from spark.test_sql_writes import is_commit, once

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def space(spark: SparkSession, lakes: Lakes) -> str:
    """A namespace, made by SQL."""
    name = fresh("space")
    spark.sql(f"CREATE NAMESPACE {CATALOG}.{name} COMMENT 'ours' WITH DBPROPERTIES (a = 'b')")
    assert name in [each.name for each in lakes.lake.namespaces()]
    return name


def shown(spark: SparkSession, table: str) -> dict[str, str]:
    """What SHOW TBLPROPERTIES shows."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def values(spark: SparkSession, table: str) -> list[int]:
    """The first column of all rows, in order."""
    return sorted(row[0] for row in spark.table(table).collect())


def test_namespaces_come_and_go(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """With their properties; one that is there, or holds tables, is reported as usual."""
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE NAMESPACE EXTENDED {CATALOG}.{space}").collect()}
    assert (described["Comment"], described["Properties"]) == ("ours", "((a,b))")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{space}")
    with pytest.raises(AnalysisException, match="SCHEMA_ALREADY_EXISTS"):
        spark.sql(f"CREATE NAMESPACE {CATALOG}.{space}")
    with pytest.raises(SparkRuntimeException, match="the service decides where a table is"):
        spark.sql(f"CREATE NAMESPACE {CATALOG}.{fresh('away')} LOCATION '/tmp/away'")
    other = f"{CATALOG}.{fresh('space')}"
    spark.sql(f"CREATE NAMESPACE {other}")
    spark.sql(f"CREATE TABLE {other}.t (a INT)")
    for cascade in ("", "CASCADE"):
        with pytest.raises(SparkRuntimeException, match="holds 1 table"):
            spark.sql(f"DROP NAMESPACE {other} {cascade}")
    spark.sql(f"DROP TABLE {other}.t")
    spark.sql(f"DROP NAMESPACE {other}")
    spark.sql(f"DROP NAMESPACE IF EXISTS {other}")
    assert other.split(".")[1] not in [each.name for each in lakes.lake.namespaces()]


def test_a_table_is_made_as_it_is_described(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """Columns with types, defaults and comments, the cluster key with its kind, properties."""
    name = f"{space}.{fresh('t')}"
    spark.sql(
        f"CREATE TABLE {CATALOG}.{name} (a INT NOT NULL COMMENT 'key', b STRING DEFAULT 'x', c DATE DEFAULT"
        " DATE '2024-01-01', d STRUCT<e: INT, f: ARRAY<STRING>>) USING lamella CLUSTER BY (a, d.e)"
        " TBLPROPERTIES ('lamella.cluster_kind' = 'Hilbert', 'p' = 'q') COMMENT 'a table'"
    )
    info = lakes.lake.table(name).info()
    assert [(c.name, c.type, c.nullable, c.default, c.doc) for c in info.schema.columns] == [
        ("a", "int32", False, None, "key"),
        ("b", "string", True, "x", None),
        ("c", "date", True, "2024-01-01", None),
        ("d", "struct", True, None, None),
    ]
    assert (info.cluster_key, info.cluster_kind) == (("a", "d.e"), "hilbert")
    assert info.properties == {"p": "q", "comment": "a table"}
    assert shown(spark, f"{CATALOG}.{name}") == {
        "p": "q",
        "lamella.cluster_key": "a, d.e",
        "lamella.cluster_kind": "hilbert",
        "lamella.snapshot_id": info.snapshot_id,
    }
    spark.sql(f"CREATE TABLE IF NOT EXISTS {CATALOG}.{name} (other INT)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql(f"CREATE TABLE {CATALOG}.{name} (other INT)")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql(f"CREATE TABLE {CATALOG}.nowhere.t (a INT)")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("(a INT) PARTITIONED BY (a)", r"no partitions: use CLUSTER BY \(\.\.\.\) instead of a"),
        ("(a INT) CLUSTERED BY (a) INTO 4 BUCKETS", "no partitions"),
        ("(a INT, l ARRAY<CHAR(70000)>)", "at most 65535"),
        ("(a INT, b INT GENERATED ALWAYS AS (a * 2))", r"CONSTRAINT `b` CHECK \(`b` <=> \(a \* 2\)\)"),
        ("(a INT, i BIGINT GENERATED ALWAYS AS IDENTITY)", "(?i)identity column"),
        ("(a INT) LOCATION '/tmp/x'", "the service decides where a table is"),
        ("(a INT) USING orc", "made of Parquet files, not of orc"),
        ("(a INT) OPTIONS (x 'y')", "no options: x"),
        ("(a DATE DEFAULT current_date())", r"the default current_date\(\) is not a constant"),
        ("(a DOUBLE DEFAULT rand())", "constant|deterministic"),
        ("(a INT) TBLPROPERTIES ('lamella.cluster_kind' = 'zorder')", "add CLUSTER BY"),
        ("(a INT) CLUSTER BY (a) TBLPROPERTIES ('lamella.cluster_kind' = 'x')", "one of linear, zorder, hilbert"),
        ("(a INT) CLUSTER BY (a) TBLPROPERTIES ('lamella.cluster_key' = 'a')", "not by both"),
        ("(a INT) TBLPROPERTIES ('lamella.cluster_key' = 'a % 4')", "do not follow the order of one column"),
        ("(a INTERVAL DAY)", "which a table cannot hold"),
        ("(m MAP<STRING, INT>) CLUSTER BY (m)", "'m' is nested"),
        ("(a INT) TBLPROPERTIES ('lamella.retention.max_age' = 'x')", "lamella.retention.max_age"),
    ],
)
def test_tables_that_cannot_be_are_refused(spark: SparkSession, lakes: Lakes, space: str, what: str, says: str) -> None:
    """With a reason, and nothing is made."""
    name = fresh("t")
    with pytest.raises((SparkRuntimeException, AnalysisException), match=says):
        spark.sql(f"CREATE TABLE {CATALOG}.{space}.{name} {what}")
    assert name not in lakes.lake.tables(space)


def test_a_table_is_altered_by_properties_and_cluster_key(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """Properties are set and removed, the key and its kind can be others."""
    name = f"{space}.{fresh('t')}"
    table = f"{CATALOG}.{name}"
    spark.sql(f"CREATE TABLE {table} (a INT, b INT)")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('p' = 'q', 'lamella.retention.max_age' = '2h')")
    spark.sql(f"ALTER TABLE {table} CLUSTER BY (b, a)")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('lamella.cluster_kind' = 'zorder')")
    spark.sql(f"COMMENT ON TABLE {table} IS 'numbers'")
    info = lakes.lake.table(name).info()
    assert info.properties == {"p": "q", "lamella.retention.max_age": "2h", "comment": "numbers"}
    assert (info.cluster_key, info.cluster_kind) == (("b", "a"), "zorder")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('lamella.cluster_kind')")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ('lamella.retention.max_age', 'nothing')")
    info = lakes.lake.table(name).info()
    assert info.properties == {"p": "q", "comment": "numbers"}
    assert (info.cluster_key, info.cluster_kind) == (("b", "a"), "linear")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('nothing')")
    assert lakes.lake.table(name).info() == info
    spark.sql(f"ALTER TABLE {table} CLUSTER BY NONE")
    info = lakes.lake.table(name).info()
    assert (info.cluster_key, info.cluster_kind) == ((), "linear")
    refused = {
        "UNSET TBLPROPERTIES ('lamella.snapshot_id')": "it is shown and not set",
        "UNSET TBLPROPERTIES ('lamella.cluster_kind', 'p')": "separate statement",
        "SET TBLPROPERTIES ('lamella.cluster_kind' = 'x')": "one of linear",
        "SET TBLPROPERTIES ('lamella.cluster_kind' = 'zorder')": "name the columns",
        "SET TBLPROPERTIES ('lamella.cluster_kind' = 'zorder', 'p' = 'r')": "separate statement",
        "SET TBLPROPERTIES ('lamella.retention.max_age' = 'x')": "lamella.retention.max_age",
        "ADD COLUMN c DATE DEFAULT current_date()": "not a constant",
    }
    for change, says in refused.items():
        with pytest.raises(SparkRuntimeException, match=says):
            spark.sql(f"ALTER TABLE {table} {change}")
    assert lakes.lake.table(name).info() == info


def test_a_dropped_table_can_come_back_unless_it_was_purged(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """DROP TABLE keeps it for a time, DROP TABLE ... PURGE does not."""
    name = f"{space}.{fresh('t')}"
    spark.sql(f"CREATE TABLE {CATALOG}.{name} AS SELECT id FROM range(3)")
    spark.sql(f"DROP TABLE {CATALOG}.{name}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"DROP TABLE {CATALOG}.{name}")
    spark.sql(f"DROP TABLE IF EXISTS {CATALOG}.{name}")
    lakes.lake.undrop_table(name)
    assert values(spark, f"{CATALOG}.{name}") == [0, 1, 2]
    spark.sql(f"DROP TABLE {CATALOG}.{name} PURGE")
    with pytest.raises(TableNotFound):
        lakes.lake.undrop_table(name)


def test_a_table_is_made_of_a_query(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """By SQL and by frames, clustered or not; without rows it is empty."""
    names = [f"{CATALOG}.{space}.{fresh('t')}" for _ in range(4)]
    spark.sql(f"CREATE TABLE {names[0]} CLUSTER BY (id) TBLPROPERTIES (p = 'q') AS SELECT id FROM range(4)")
    spark.range(4).writeTo(names[1]).clusterBy("id").tableProperty("lamella.cluster_kind", "zorder").create()
    spark.range(4).write.saveAsTable(names[2])
    spark.sql(f"CREATE TABLE {names[3]} AS SELECT id FROM range(0)")
    infos = [lakes.lake.table(name.removeprefix(f"{CATALOG}.")).info() for name in names]
    assert [(info.cluster_key, info.cluster_kind, info.row_count) for info in infos] == [
        (("id",), "linear", 4),
        (("id",), "zorder", 4),
        ((), "linear", 4),
        ((), "linear", 0),
    ]
    assert infos[0].properties == {"p": "q"}
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.range(3).writeTo(names[1]).create()


def test_a_query_that_fails_leaves_no_table(spark: SparkSession, lakes: Lakes, faults: Faults, space: str) -> None:
    """Neither when a row cannot be computed nor when the commit is refused; one that was there stays as it was."""
    name = fresh("t")
    failing = "SELECT if(id > 1, raise_error('boom'), id) AS id FROM range(3)"
    with pytest.raises(SparkRuntimeException, match="boom"):
        spark.sql(f"CREATE TABLE {CATALOG}.{space}.{name} AS {failing}")
    assert name not in lakes.lake.tables(space)
    other = fresh("faulty")

    def drop_at_the_commit(request: HttpRequest) -> None:
        if request.path.endswith("/commits"):
            lakes.lake.drop_table(f"{space}.{name}")
            lakes.lake.create_table(f"{space}.{name}", schema=[Column(name="theirs", type="int64")])

    attach(spark, other, faults.client(drop_at_the_commit))
    with pytest.raises(SparkRuntimeException):
        spark.sql(f"CREATE TABLE {other}.{space}.{name} AS SELECT id FROM range(3)")
    assert [column.name for column in lakes.lake.table(f"{space}.{name}").info().schema.columns] == ["theirs"]
    spark.sql(f"INSERT INTO {CATALOG}.{space}.{name} VALUES (7)")
    with pytest.raises(SparkRuntimeException, match="boom"):
        spark.sql(f"CREATE OR REPLACE TABLE {CATALOG}.{space}.{name} AS {failing.replace('AS id', 'AS theirs')}")
    assert values(spark, f"{CATALOG}.{space}.{name}") == [7]


def test_a_failed_statement_does_not_drop_what_others_committed(
    spark: SparkSession, lakes: Lakes, faults: Faults, space: str
) -> None:
    """What others committed to the new table before the statement failed is not its own to drop."""
    name, other = f"{space}.{fresh('t')}", fresh("faulty")

    def commit_first(request: HttpRequest) -> HttpResponse | None:
        if request.path.endswith("/commits"):
            lakes.lake.table(name).commit(operation="alter", properties={"theirs": "yes"})
            return problem_response(503, "unavailable", "not now")
        return None

    attach(spark, other, faults.client(commit_first))
    with pytest.raises(SparkRuntimeException, match="not now"):
        spark.sql(f"CREATE TABLE {other}.{name} AS SELECT id FROM range(3)")
    assert lakes.lake.table(name).info().properties == {"theirs": "yes"}


@pytest.mark.parametrize(
    "what",
    [
        "(a INT)",
        "(a STRING, b ARRAY<STRING>, c MAP<STRING, STRUCT<d: STRING>>)",
        "(a INT NOT NULL, s STRUCT<b: INT NOT NULL, c: STRUCT<d: STRING NOT NULL>> NOT NULL)",
        "(a STRING DEFAULT 'it\\'s', b BINARY DEFAULT X'00ff', c DECIMAL(10, 2) DEFAULT 1.25, d DOUBLE DEFAULT -0.5,"
        " e DATE DEFAULT DATE '2024-01-01', f TIMESTAMP DEFAULT TIMESTAMP '2024-07-01 12:00:00.123456',"
        " g TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ '2024-01-01 00:00:00', h BOOLEAN DEFAULT true, i TINYINT DEFAULT -1)",
        "(`a b` INT COMMENT 'it\\'s', `c``d` INT, `e.f` INT) CLUSTER BY (`e.f`, `a b`, `c``d`)"
        " COMMENT 'a \\\\ \\'table\\'' TBLPROPERTIES ('p' = 'q\\'s', 'lamella.cluster_kind' = 'hilbert')",
        "(a INT, s STRUCT<b: INT, c: INT>) CLUSTER BY (s.b, a)",
    ],
)
def test_the_definition_that_is_shown_makes_an_equal_table(
    spark: SparkSession, lakes: Lakes, space: str, what: str
) -> None:
    """SHOW CREATE TABLE prints a statement that runs, without the snapshot; queries still take columns for nullable."""
    name, copy = fresh("t"), fresh("copy")
    spark.sql(f"CREATE TABLE {CATALOG}.{space}.{name} {what}")
    ((text,),) = spark.sql(f"SHOW CREATE TABLE {CATALOG}.{space}.{name}").collect()
    assert "lamella.snapshot_id" not in text
    spark.sql(text.replace(f".{name} (", f".{copy} ("))
    infos = [lakes.lake.table(f"{space}.{each}").info() for each in (name, copy)]
    made, copied = [(info.schema, info.cluster_key, info.cluster_kind, info.properties) for info in infos]
    assert copied == made, text
    assert all(field.nullable for field in spark.table(f"{CATALOG}.{space}.{name}").schema.fields)


def test_namespaces_are_altered(spark: SparkSession, lakes: Lakes) -> None:
    """Their properties are set and removed, and their comment."""
    other = fresh("space")
    spark.sql(f"CREATE NAMESPACE {CATALOG}.{other} WITH DBPROPERTIES (a = 'b', c = 'd')")
    spark.sql(f"ALTER NAMESPACE {CATALOG}.{other} SET PROPERTIES (c = 'e')")
    spark.sql(f"ALTER NAMESPACE {CATALOG}.{other} UNSET PROPERTIES (a)")
    spark.sql(f"COMMENT ON NAMESPACE {CATALOG}.{other} IS 'ours'")
    (info,) = [each for each in lakes.lake.namespaces() if each.name == other]
    assert info.properties == {"c": "e", "comment": "ours"}


def test_a_table_is_replaced_in_one_snapshot_by_one_of_the_same_columns(
    spark: SparkSession, lakes: Lakes, space: str
) -> None:
    """It keeps its id and its history, and a query may read it."""
    name = f"{space}.{fresh('t')}"
    table = f"{CATALOG}.{name}"
    spark.range(4).writeTo(table).createOrReplace()
    table_id = lakes.lake.table(name).info().table_id
    spark.sql(f"CREATE OR REPLACE TABLE {table} TBLPROPERTIES (p = 'q') AS SELECT id + 10 AS id FROM {table}")
    assert values(spark, table) == [10, 11, 12, 13]
    ways: list[Callable[[], object]] = [
        spark.range(2).writeTo(table).replace,
        lambda: spark.range(2).write.mode("overwrite").saveAsTable(table),
    ]
    for replace in ways:
        replace()
        assert values(spark, table) == [0, 1]
    spark.sql(f"CREATE OR REPLACE TABLE {table} (id BIGINT)")
    info = lakes.lake.table(name).info()
    assert (info.row_count, info.table_id, info.properties) == (0, table_id, {"p": "q"})
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.range(2).writeTo(f"{table}x").replace()


def test_a_table_is_replaced_by_one_of_other_columns_in_one_snapshot(
    spark: SparkSession, lakes: Lakes, space: str
) -> None:
    """Columns, cluster key, properties and rows change together; it keeps its id, its tags and earlier snapshots."""
    name = f"{space}.{fresh('t')}"
    table, handle = f"{CATALOG}.{name}", lakes.lake.table(name)
    spark.sql(f"CREATE TABLE {table} (id INT, s STRING NOT NULL) CLUSTER BY (s) TBLPROPERTIES (p = '1')")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'y'), (3, 'z')")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    before = handle.info()
    handle.tag("before")
    spark.sql(
        f"CREATE OR REPLACE TABLE {table} CLUSTER BY (n) TBLPROPERTIES (q = '2')"
        f" AS SELECT id, CAST(id AS STRING) AS s, id * 2.5D AS n, array(s) AS l FROM {table}"
    )
    info = handle.info()
    assert [each.operation for each in handle.snapshots()][:2] == ["overwrite", "delete"]
    assert (info.table_id, info.properties, info.cluster_key) == (before.table_id, {"p": "1", "q": "2"}, ("n",))
    assert [tuple(row) for row in spark.table(table).orderBy("id").collect()] == [
        (1, "1", 2.5, ["x"]),
        (3, "3", 7.5, ["z"]),
    ]
    assert spark.sql(f"SELECT * FROM {table} VERSION AS OF 'before' ORDER BY id").collect() == [(1, "x"), (3, "z")]
    assert spark.table(table).where("n > 5").collect() == [(3, "3", 7.5, ["z"])]
    spark.sql(f"INSERT INTO {table} VALUES (4, NULL, 1, NULL)")
    spark.range(2).select(F.col("id").cast("int")).write.mode("overwrite").saveAsTable(table)
    assert values(spark, table) == [0, 1]
    assert handle.info().cluster_key == ()
    spark.sql(f"CREATE OR REPLACE TABLE {table} (id INT, k INT NOT NULL DEFAULT 5) CLUSTER BY (k)")
    spark.sql(f"INSERT INTO {table} (id) VALUES (7)")
    assert spark.table(table).collect() == [(7, 5)]
    spark.table(table).writeTo(table).clusterBy("id").createOrReplace()
    assert (handle.info().cluster_key, spark.table(table).collect()) == (("id",), [(7, 5)])
    handle.rollback("before")
    assert spark.table(table).orderBy("id").collect() == [(1, "x"), (3, "z")]


def test_a_replacement_that_fails_leaves_the_table(
    spark: SparkSession, lakes: Lakes, faults: Faults, space: str
) -> None:
    """Whether its query fails, the commit, or others changed the columns; rows that others add meanwhile go."""
    name = f"{space}.{fresh('t')}"
    table, handle = f"{CATALOG}.{name}", lakes.lake.table(name)
    spark.sql(f"CREATE TABLE {table} (id INT)")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    before = handle.info()
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        spark.sql(f"CREATE OR REPLACE TABLE {table} AS SELECT 1 DIV (id - 1) AS other FROM {table}")
    assert handle.info() == before
    session = fresh("session")
    attach(spark, session, faults.client(once(is_commit, lambda: handle.evolve([AddColumn(name="c", type="int")]))))
    with pytest.raises(SparkRuntimeException, match="schema_conflict"):
        spark.sql(f"CREATE OR REPLACE TABLE {session}.{name} AS SELECT 'x' AS other")
    assert [column.name for column in handle.info().schema.columns] == ["id", "c"]
    attach(spark, session, faults.client(once(is_commit, lambda: handle.append({"id": [2], "c": [3]}))))
    spark.sql(f"CREATE OR REPLACE TABLE {session}.{name} AS SELECT 'x' AS other")
    assert spark.table(table).collect() == [("x",)]


def test_a_table_is_renamed_and_moved(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """With or without the catalog in the new name; a name that is taken is Spark's own error."""
    other = fresh("other")
    lakes.lake.create_namespace(other)
    spark.sql(f"CREATE TABLE {CATALOG}.{space}.a (id INT)")
    spark.sql(f"INSERT INTO {CATALOG}.{space}.a VALUES (1)")
    table_id = lakes.lake.table(f"{space}.a").info().table_id
    spark.sql(f"ALTER TABLE {CATALOG}.{space}.a RENAME TO {CATALOG}.{space}.b")
    spark.sql(f"ALTER TABLE {CATALOG}.{space}.b RENAME TO c")
    spark.sql(f"ALTER TABLE {CATALOG}.{space}.c RENAME TO {other}.d")
    assert lakes.lake.table(f"{other}.d").info().table_id == table_id
    assert spark.table(f"{CATALOG}.{other}.d").collect() == [(1,)]
    spark.sql(f"CREATE TABLE {CATALOG}.{space}.a (id INT)")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql(f"ALTER TABLE {CATALOG}.{other}.d RENAME TO {space}.a")
    with pytest.raises(SparkRuntimeException, match="namespace_not_found"):
        spark.sql(f"ALTER TABLE {CATALOG}.{other}.d RENAME TO {CATALOG}.nowhere.a")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"ALTER TABLE {CATALOG}.{space}.b RENAME TO e")
    with pytest.raises(SparkRuntimeException, match="cannot be renamed by itself"):
        spark.sql(f"ALTER TABLE {CATALOG}.{other}.`d$blocks` RENAME TO e")


def test_defaults_of_new_rows_change_and_rows_stay(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """For every writer; rows that exist, and files without the column, keep the value that they have."""
    name = f"{space}.{fresh('t')}"
    table = f"{CATALOG}.{name}"
    handle = lakes.lake.table(name)
    spark.sql(f"CREATE TABLE {table} (id INT, n INT)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1)")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN b STRING DEFAULT 'old'")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN b SET DEFAULT 'new'")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN n SET DEFAULT 1 + 1")
    spark.sql(f"INSERT INTO {table} (id) VALUES (2)")
    spark.sql(f"INSERT INTO {table} VALUES (3, DEFAULT, DEFAULT)")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 4 AS k) s ON t.id = s.k WHEN NOT MATCHED THEN INSERT (id) VALUES (k)"
    )
    spark.sql(f"UPDATE {table} SET n = DEFAULT WHERE id = 1")
    handle.append({"id": [5]})
    handle.upsert([{"id": 6}], on=["id"])
    write(spark.range(7, 8).selectExpr("CAST(id AS INT) AS id"), name, client=lakes.lake)
    rows = [tuple(row) for row in spark.table(table).orderBy("id").collect()]
    assert rows == [(1, 2, "old"), *((number, 2, "new") for number in range(2, 8))]
    assert handle.scan("id = 1").to_arrow()["b"].to_pylist() == ["old"]
    assert "DEFAULT 'new'" in str(spark.sql(f"SHOW CREATE TABLE {table}").head())
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN b DROP DEFAULT")
    spark.sql(f"INSERT INTO {table} (id) VALUES (8)")
    assert spark.table(table).where("id = 8").collect() == [(8, 2, None)]
    handle.append({"id": [9]})
    assert spark.table(table).where("id = 9").collect() == [(9, 2, None)]
    for change in ("n SET DEFAULT rand()", "n SET DEFAULT 'x'", "missing SET DEFAULT 1"):
        with pytest.raises((SparkRuntimeException, AnalysisException)):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {change}")
    assert spark.table(table).where("id = 1").collect() == [(1, 2, "old")]


def test_a_table_is_made_like_another(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """With its columns, cluster key and layout, and no rows; other properties are its own. A view will do as well."""
    source, like = f"{space}.{fresh('t')}", f"{space}.{fresh('t')}"
    spark.sql(
        f"CREATE TABLE {CATALOG}.{source}"
        " (a INT NOT NULL COMMENT 'x', gone INT, b STRING DEFAULT 'q', s STRUCT<y: INT>)"
        " CLUSTER BY (b, a) TBLPROPERTIES ('target_block_rows' = '100', 'write.bloom_filters' = 'a', 'p' = '1',"
        " 'lamella.cluster_kind' = 'zorder')"
    )
    spark.sql(f"ALTER TABLE {CATALOG}.{source} DROP COLUMN gone")
    spark.sql(f"INSERT INTO {CATALOG}.{source} VALUES (1, 'x', NULL), (2, 'y', NULL)")
    spark.sql(f"DELETE FROM {CATALOG}.{source} WHERE a = 1")
    spark.sql(f"CREATE TABLE {CATALOG}.{like} LIKE {CATALOG}.{source} TBLPROPERTIES ('o' = '2')")
    info = lakes.lake.table(like).info()
    assert info.row_count == 0
    assert [(c.id, c.name, c.type, c.nullable, c.default, c.doc) for c in info.schema.columns] == [
        (1, "a", "int32", False, None, "x"),
        (2, "b", "string", True, "q", None),
        (3, "s", "struct", True, None, None),
    ]
    assert (info.cluster_key, info.cluster_kind) == (("b", "a"), "zorder")
    assert info.properties == {"target_block_rows": "100", "write.bloom_filters": "a", "o": "2"}
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql(f"CREATE TABLE {CATALOG}.{like} LIKE {CATALOG}.{source}")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {CATALOG}.{like} LIKE {CATALOG}.{source}")
    assert lakes.lake.table(like).info() == info
    spark.range(1).selectExpr("1 AS k", "'c' AS z").createOrReplaceTempView("to_copy")
    spark.sql(f"CREATE TABLE {CATALOG}.{like}2 LIKE to_copy")
    assert [(c.name, c.type) for c in lakes.lake.table(f"{like}2").info().schema.columns] == [
        ("k", "int32"),
        ("z", "string"),
    ]


def test_a_property_gives_a_cluster_key_of_expressions(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """When the table is made and later; the definition that is shown has it, and rows are found through it."""
    name, copy = fresh("t"), fresh("copy")
    table = f"{CATALOG}.{space}.{name}"
    spark.sql(
        f"CREATE TABLE {table} (at TIMESTAMP, user STRING)"
        " TBLPROPERTIES ('lamella.cluster_key' = 'date_trunc(\\'DAY\\', at), left(user, 2)')"
    )
    handle = lakes.lake.table(f"{space}.{name}")
    key = ("date_trunc('DAY', at)", "left(user, 2)")
    assert (handle.info().cluster_key, handle.info().cluster_kind) == (key, "linear")
    ((text,),) = spark.sql(f"SHOW CREATE TABLE {table}").collect()
    spark.sql(text.replace(f".{name} (", f".{copy} ("))
    assert lakes.lake.table(f"{space}.{copy}").info().cluster_key == key
    spark.sql(
        f"INSERT INTO {table} SELECT timestamp_seconds(1700000000 + id * 3600), concat('u', id % 90)"
        " FROM range(0, 500, 1, 4)"
    )
    assert spark.sql(f"SELECT * FROM {table} WHERE user = 'u7' AND at < TIMESTAMP '2023-11-20 00:00:00'").count() == 2
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN at TO moment")
    assert handle.info().cluster_key[0] == "date_trunc('DAY', moment)"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('lamella.cluster_key' = 'user, date(moment)')")
    assert handle.info().cluster_key == ("user", "CAST(moment AS date)")
    spark.sql(f"CALL {CATALOG}.system.recluster(table => '{space}.{name}')")
    assert spark.table(table).count() == 500
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('lamella.cluster_key')")
    assert handle.info().cluster_key == ()


def test_the_definition_shown_after_changes_makes_an_equal_table(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """After schema changes, new defaults, properties that went, columns that came with rows, and a replacement."""

    def definition(name: str) -> object:
        info = lakes.lake.table(f"{space}.{name}").info()
        columns = [
            (c.name, c.type, c.nullable, c.default_of_new_rows, c.doc, len(c.fields)) for c in info.schema.columns
        ]
        return columns, info.cluster_key, info.cluster_kind, info.properties

    def check(name: str) -> None:
        copy = fresh("copy")
        ((text,),) = spark.sql(f"SHOW CREATE TABLE {CATALOG}.{space}.{name}").collect()
        spark.sql(text.replace(f".{name} (", f".{copy} ("))
        assert definition(copy) == definition(name), text

    name = fresh("t")
    table = f"{CATALOG}.{space}.{name}"
    spark.sql(
        f"CREATE TABLE {table} (a INT NOT NULL COMMENT 'it''s', b STRING DEFAULT 'x', c STRUCT<d: DATE>) CLUSTER BY (a)"
        " TBLPROPERTIES ('p' = '1', 'target_block_rows' = '10', 'lamella.cluster_kind' = 'zorder')"
    )
    spark.sql(f"ALTER TABLE {table} ADD COLUMN (e DECIMAL(4, 1) DEFAULT 1.5, f TIMESTAMP)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN e SET DEFAULT 2.5")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN f SET DEFAULT TIMESTAMP '2024-07-01 12:00:00'")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN b DROP DEFAULT")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('p')")
    check(name)
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 1 AS a, 2 AS g, named_struct('h', 1) AS i")
    spark.sql(f"ALTER TABLE {table} RENAME TO {name}r")
    check(f"{name}r")
    spark.sql(f"CREATE TABLE {table} LIKE {table}r")
    check(name)
    spark.sql(
        f"CREATE OR REPLACE TABLE {table} (k BIGINT DEFAULT -7 COMMENT 'key', `l.m` BINARY) CLUSTER BY (`l.m`, k)"
    )
    check(name)
