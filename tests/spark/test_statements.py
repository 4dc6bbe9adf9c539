"""Every statement of Spark SQL about tables has an answer, or an error with a code that says what to do instead."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lamella.snapshot.schema import Column
from spark.lakes import CATALOG, Lakes, fresh

pytestmark = pytest.mark.spark

# In the statements, {t} is a table of two columns, {n} a name that is free, {s} their namespace, {c} the catalog.
ANSWERED = (
    "SELECT * FROM {t} CHANGES FROM VERSION 1",
    "SELECT * FROM {t} CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION '1' WITH (deduplicationMode = 'netChanges')",
    "SELECT * FROM {t} CHANGES FROM TIMESTAMP '2024-01-01'",
    "SHOW CREATE TABLE {t}",
    "ALTER TABLE {t} ADD COLUMNS (x1 INT, y1 STRING COMMENT 'c')",
    "ALTER TABLE {t} ADD COLUMN x3 INT DEFAULT 1 + 1",
    "ALTER TABLE {t} ADD COLUMN x4 INT FIRST",
    "ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT",
    "ALTER TABLE {t} ALTER COLUMN a COMMENT 'x'",
    "ALTER TABLE {t} ALTER COLUMN a AFTER b",
    "ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT, b COMMENT 'two'",
    "ALTER TABLE {t} CHANGE COLUMN a a BIGINT",
    "ALTER TABLE {t} CLUSTER BY (a)",
    "DESCRIBE {t}",
    "DESCRIBE EXTENDED {t}",
    "DESCRIBE FORMATTED {t}",
    "DESCRIBE {t} a",
    "DESCRIBE EXTENDED {t} a",
    "DESCRIBE NAMESPACE {s}",
    "SHOW COLUMNS IN {t}",
    "SHOW TBLPROPERTIES {t}",
    "SHOW TBLPROPERTIES {t} ('nope')",
    "SHOW TABLE EXTENDED IN {s} LIKE 't*'",
    "SHOW TABLES IN {s} LIKE 't*'",
    "SHOW NAMESPACES IN lake",
    "SHOW VIEWS IN {s}",
    "DROP VIEW IF EXISTS {s}.v",
    "CREATE VIEW {n} AS SELECT * FROM {t}",
    "CREATE VIEW IF NOT EXISTS {n} AS SELECT * FROM {t}",
    "CREATE OR REPLACE VIEW {n} (x COMMENT 'c', y) COMMENT 'd' TBLPROPERTIES ('k' = 'v') AS SELECT a, b FROM {t}",
    "CREATE VIEW {n} WITH SCHEMA EVOLUTION AS SELECT * FROM {t}",
    "REFRESH TABLE {t}",
    "CACHE TABLE {t}",
    "CACHE LAZY TABLE {t}",
    "UNCACHE TABLE {t}",
    "UNCACHE TABLE IF EXISTS {t}",
    "COMMENT ON TABLE {t} IS 'x'",
    "COMMENT ON TABLE {t} IS NULL",
    "COMMENT ON COLUMN {t}.a IS 'x'",
    "DROP NAMESPACE IF EXISTS {c}.nowhere",
    "DROP TABLE IF EXISTS {n}",
    "INSERT INTO {t} VALUES (1, 2)",
    "INSERT INTO {t} (a) VALUES (1)",
    "INSERT INTO {t} BY NAME SELECT 1 AS b, 2 AS a",
    "INSERT INTO {t} SELECT NULL, NULL",
    "FROM {t} INSERT INTO {t} SELECT a, b INSERT INTO {t} SELECT b, a",
    "DELETE FROM {t} WHERE a = 100",
    "DELETE FROM {t} WHERE a IN (SELECT b FROM {t})",
    "DELETE FROM {t} WHERE CASE WHEN a = 1 THEN true ELSE false END",
    "DELETE FROM {t} WHERE a + 1 = 100 OR isnan(a)",
    "DELETE FROM {t} WHERE EXISTS (SELECT 1)",
    "DELETE FROM {t} WHERE a = (SELECT max(b) FROM {t})",
    "UPDATE {t} SET a = 1",
    "EXPLAIN UPDATE {t} SET a = 1 WHERE b = 2",
    "MERGE INTO {t} x USING {t} y ON x.a = y.a WHEN MATCHED THEN DELETE",
    "MERGE INTO {t} x USING {t} y ON x.a = y.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "MERGE WITH SCHEMA EVOLUTION INTO {t} x USING {t} y ON x.a = y.a WHEN MATCHED THEN UPDATE SET *",
    "SELECT * FROM {t} TIMESTAMP AS OF current_timestamp()",
    "SELECT * FROM {t} FOR SYSTEM_TIME AS OF '2099-01-01'",
    "SELECT * FROM {t} WITH ('x' = 'y')",
    "SELECT * FROM {t} TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM {t} TABLESAMPLE (5 ROWS)",
    "SELECT input_file_name(), a FROM {t}",
    "TABLE {t}",
    "EXPLAIN SELECT * FROM {t}",
    "EXPLAIN EXTENDED INSERT INTO {t} VALUES (1, 2)",
    "EXPLAIN COST SELECT * FROM {t} WHERE a = 1",
    "EXPLAIN CREATE TABLE {n} AS SELECT 1 a",
    "ALTER TABLE {t} DROP COLUMN IF EXISTS nope",
    "ALTER TABLE {t} RENAME TO {c}.{other}",
    "CREATE TABLE {n} LIKE {t}",
    "REPLACE TABLE {t} (z INT)",
    "CREATE OR REPLACE TABLE {t} (z INT)",
    "CREATE OR REPLACE TABLE {t} AS SELECT 1 z",
    "ALTER TABLE {t} ALTER COLUMN a SET DEFAULT 3",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('p')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS ('p')",
    "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT 1 AS b, 2 AS z",
    "CALL {c}.system.compact('{t}')",
    "CALL {c}.system.vacuum(table => '{t}', execute => false)",
    "EXPLAIN CALL {c}.system.compact('{t}')",
    "SHOW PROCEDURES IN {s}",
    "SHOW PROCEDURES FROM {c}",
    "DESCRIBE PROCEDURE {c}.system.compact",
    "COMMENT ON NAMESPACE {s} IS 'x'",
    "ALTER NAMESPACE {s} SET PROPERTIES ('a' = 'b')",
    "ALTER NAMESPACE {s} UNSET PROPERTIES ('a')",
    "CREATE TABLE {n} (a STRING COLLATE UTF8_BINARY, b ARRAY<STRING COLLATE UTF8_BINARY>)",
    "CREATE TABLE {n} (a INT) STORED AS PARQUET",
    "CREATE TABLE {n} (a INT CHECK (a > 0))",
    "CREATE TABLE {n} (a INT, CONSTRAINT c CHECK (a > 0) ENFORCED)",
    "ALTER TABLE {t} ADD CONSTRAINT c CHECK (a > 0)",
    "ALTER TABLE {t} ADD CHECK (a > b AND b IS NOT NULL)",
    "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS c",
    "ALTER TABLE {t} ALTER COLUMN a SET NOT NULL",
)

#: By the code of the error, or what it says where Spark's own error has no code.
REFUSED = {
    "CAST_INVALID_INPUT": ("DELETE FROM {t} WHERE 'x'",),
    "COLUMN_ALREADY_EXISTS": ("CREATE TABLE {n} (a INT, a INT)",),
    "Couldn't find column": (
        "CREATE TABLE {n} (a INT) CLUSTER BY (nope)",
        "REPLACE TABLE {t} PARTITIONED BY (b) AS SELECT 1 a",
    ),
    "FIELD_ALREADY_EXISTS": (
        "ALTER TABLE {t} ADD COLUMN a INT",
        "ALTER TABLE {t} RENAME COLUMN a TO b",
    ),
    "FIELD_NOT_FOUND": ("ALTER TABLE {t} ADD COLUMN x5 INT AFTER nope",),
    "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST": ("INSERT INTO {t} SELECT 'x', 1",),
    "INCOMPATIBLE_DATA_FOR_TABLE.EXTRA_COLUMNS": ("INSERT INTO {t} BY NAME SELECT 1 AS b, 2 AS z",),
    "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS": ("INSERT INTO {t} VALUES (1)",),
    "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS": ("INSERT INTO {t} REPLACE WHERE a = 1 SELECT 1, 2, 3, 4",),
    "INTERNAL_ERROR": ("ANALYZE TABLES IN {s} COMPUTE STATISTICS",),
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": (
        "INSERT INTO {t} REPLACE WHERE rand() > 0.5 SELECT 1, 2",
        "DELETE FROM {t} WHERE rand() > 0.5",
    ),
    "INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED": (
        "ALTER TABLE {t} ADD PARTITION (b = 1)",
        "ALTER TABLE {t} ADD IF NOT EXISTS PARTITION (b = 1)",
        "ALTER TABLE {t} DROP PARTITION (b = 1)",
        "ALTER TABLE {t} PARTITION (b = 1) RENAME TO PARTITION (b = 2)",
        "DESCRIBE {t} PARTITION (b = 1)",
        "SHOW PARTITIONS {t}",
        "TRUNCATE TABLE {t} PARTITION (b = 1)",
    ),
    "INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT": (
        "SELECT * FROM {t} TIMESTAMP AS OF 'x'",
        "SELECT * FROM {t} TIMESTAMP AS OF NULL",
    ),
    "MISSING_CATALOG_ABILITY.CREATE_FUNCTION": ("CREATE FUNCTION {s}.f AS 'x.Y'",),
    "MISSING_CATALOG_ABILITY.DROP_FUNCTION": (
        "DROP FUNCTION {s}.f",
        "DROP FUNCTION IF EXISTS {s}.f",
    ),
    "MISSING_CATALOG_ABILITY.FUNCTIONS": (
        "SHOW FUNCTIONS IN {s}",
        "SHOW USER FUNCTIONS IN {s}",
        "DESCRIBE FUNCTION {s}.f",
        "SELECT {s}.f(1)",
    ),
    "procedures of Lamella are called as": ("CALL {s}.anything()",),
    "there is no procedure": ("CALL {c}.system.nothing()", "DESCRIBE PROCEDURE {c}.system.nothing"),
    "REQUIRED_PARAMETER_NOT_FOUND": ("CALL {c}.system.compact()",),
    "MISSING_CATALOG_ABILITY.REFRESH_FUNCTION": ("REFRESH FUNCTION {s}.f",),
    "MISSING_CATALOG_ABILITY.TABLE_VALUED_FUNCTIONS": ("SELECT * FROM {s}.f(1)",),
    "VIEW_NOT_FOUND": ("DROP VIEW {s}.v",),
    "WRONG_COMMAND_FOR_OBJECT_TYPE": ("DROP VIEW {t}",),
    "EXPECT_VIEW_NOT_TABLE": ("ALTER VIEW {t} AS SELECT 1",),
    "NON_PARTITION_COLUMN": (
        "INSERT INTO {t} PARTITION (b = 1) SELECT 1",
        "INSERT INTO {t} PARTITION (b) SELECT 1, 2",
        "INSERT OVERWRITE {t} PARTITION (b = 1) SELECT 1",
        "INSERT OVERWRITE {t} PARTITION (b) SELECT 1, 2",
    ),
    "NOT_SUPPORTED_CHANGE_COLUMN": ("ALTER TABLE {t} ALTER COLUMN a TYPE TINYINT",),
    "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE": (
        "SHOW CREATE TABLE {t} AS SERDE",
        "ALTER TABLE {t} SET SERDE 'x'",
        "ALTER TABLE {t} SET SERDEPROPERTIES ('a' = 'b')",
        "ALTER TABLE {t} RECOVER PARTITIONS",
        "ANALYZE TABLE {t} COMPUTE STATISTICS",
        "ANALYZE TABLE {t} COMPUTE STATISTICS NOSCAN",
        "ANALYZE TABLE {t} COMPUTE STATISTICS FOR ALL COLUMNS",
        "DESCRIBE TABLE EXTENDED {t} AS JSON",
        "MSCK REPAIR TABLE {t}",
        "MSCK REPAIR TABLE {t} DROP PARTITIONS",
        "REPAIR TABLE {t}",
        "LOAD DATA INPATH '/tmp/x' INTO TABLE {t}",
    ),
    "SCHEMA_NOT_FOUND": (
        "CREATE TABLE {c}.nowhere.t (a INT)",
        "CREATE TABLE {c}.t1 (a INT)",
        "CREATE TABLE {c}.t1 AS SELECT 1 a",
        "DESCRIBE NAMESPACE EXTENDED {c}.nowhere",
        "SHOW TABLES IN {c}.nowhere",
        "SHOW NAMESPACES IN {c}.nowhere",
        "DROP NAMESPACE {c}.nowhere",
    ),
    "TABLE_OR_VIEW_NOT_FOUND": (
        "REPLACE TABLE {n} (z INT)",
        "ALTER TABLE {n} ADD COLUMN x INT",
        "DESCRIBE {n}",
        "SHOW COLUMNS IN {n}",
        "SHOW CREATE TABLE {n}",
        "ALTER VIEW {s}.v AS SELECT 1",
        "ALTER VIEW {s}.v SET TBLPROPERTIES ('a'='b')",
        "ALTER VIEW {s}.v RENAME TO {s}.w",
        "TRUNCATE TABLE {n}",
        "REFRESH TABLE {n}",
        "DROP TABLE {n}",
        "DROP TABLE {c}.t1",
        "INSERT INTO {n} VALUES (1)",
        "DELETE FROM {n}",
        "SELECT * FROM {t}.snapshots",
        "SELECT * FROM {c}.t1",
        "SELECT * FROM {c}.a.b.c.d",
        "SELECT * FROM {n}",
    ),
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": (
        "ALTER TABLE {t} ADD COLUMN nope.x INT",
        "ALTER TABLE {t} RENAME COLUMN nope TO x",
        "ALTER TABLE {t} ALTER COLUMN nope TYPE INT",
        "ALTER TABLE {t} DROP COLUMN nope",
        "ALTER TABLE {t} DROP COLUMNS (x1, y1)",
        "DESCRIBE {t} nope",
        "INSERT INTO {t} (nope) VALUES (1)",
        "UPDATE {t} SET nope = 1",
        "DELETE FROM {t} WHERE s RLIKE 'x'",
        "DELETE FROM {t} WHERE nope = 1",
        "SELECT nope FROM {t}",
    ),
    "UNSUPPORTED_FEATURE.OVERWRITE_BY_SUBQUERY": (
        "INSERT INTO {t} REPLACE WHERE a IN (SELECT a FROM {t}) SELECT 1, 2",
    ),
    "UNSUPPORTED_FEATURE.TABLESAMPLE_SYSTEM": ("SELECT * FROM {t} TABLESAMPLE SYSTEM (10 PERCENT)",),
    "UNSUPPORTED_FEATURE.TABLE_OPERATION": (
        "CREATE TABLE {n} (a BIGINT GENERATED ALWAYS AS IDENTITY)",
        "INSERT INTO {t} REPLACE USING (a) SELECT 1, 2",
        "INSERT INTO {t} REPLACE ON (a = 1) SELECT 1, 2",
    ),
    "must be executed with writeStream.start": (
        "SELECT * FROM STREAM {t}",
        "SELECT * FROM STREAM {t} CHANGES FROM VERSION 1",
    ),
    "UNSUPPORTED_TIME_TYPE": ("CREATE TABLE {n} (v TIME)",),
    "does not support partition for v2 tables": ("ALTER TABLE {t} PARTITION (b = 1) SET LOCATION '/tmp/x'",),
    "lamella.invalid_request": (
        "CREATE TABLE {n} (a INT, PRIMARY KEY (a))",
        "CREATE TABLE {n} (a INT, CONSTRAINT c UNIQUE (a))",
        "CREATE TABLE {n} (a INT, FOREIGN KEY (a) REFERENCES {t} (a))",
        "ALTER TABLE {t} ADD CONSTRAINT c PRIMARY KEY (a)",
        "CREATE TABLE {n} (d DATE) PARTITIONED BY (days(d))",
        "CREATE TABLE {n} (d DATE) PARTITIONED BY (years(d), bucket(4, d))",
        "CREATE TABLE {n} (d DATE) PARTITIONED BY (d)",
        "CREATE TABLE {n} (d STRING) PARTITIONED BY (truncate(2, d))",
        "CREATE TABLE {n} (a INT) CLUSTERED BY (a) SORTED BY (a) INTO 4 BUCKETS",
        "CREATE TABLE {n} PARTITIONED BY (days(d)) AS SELECT DATE'2024-01-01' d",
        "CREATE TABLE {n} (a INT) DEFAULT COLLATION UTF8_LCASE",
        "CREATE TABLE {n} (a INT) USING csv",
        "CREATE EXTERNAL TABLE {n} (a INT) LOCATION '/tmp/x'",
        "ALTER TABLE {t} ALTER COLUMN a DROP NOT NULL",
        "ALTER TABLE {t} ALTER COLUMN a DROP DEFAULT",
        "ALTER TABLE {t} ALTER COLUMN a FIRST",
        "ALTER TABLE {t} SET TBLPROPERTIES ('lamella.snapshot_id' = 'x')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('lamella.cluster_key' = 'x')",
        "ALTER TABLE {t} SET LOCATION '/tmp/x'",
        "ALTER TABLE {t} DEFAULT COLLATION UTF8_LCASE",
        "CREATE INDEX i ON {t} (a)",
        "CREATE INDEX i ON TABLE {t} USING bloom (a) OPTIONS ('x' = 'y')",
        "CREATE NAMESPACE {c}.ns2 LOCATION '/tmp/x'",
        "ALTER NAMESPACE {s} SET LOCATION '/tmp/x'",
        "SELECT * FROM {t} CHANGES FROM VERSION 1 WITH (computeUpdates = 'true')",
        "CREATE TABLE {n} (a INT) STORED AS ORC",
        "CREATE TABLE {n} (a INT) ROW FORMAT SERDE 'x.Y'",
        "CREATE TABLE {n} (a INT) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','",
    ),
    "lamella.invalid_schema": (
        "CREATE TABLE {n} (a INT DEFAULT 7, b STRING COLLATE UTF8_LCASE)",
        "CREATE TABLE {n} (v VARIANT) TBLPROPERTIES ('lamella.variant.shredding' = 'v.a INT')",
        "CREATE TABLE {n} (v VARIANT) TBLPROPERTIES ('lamella.variant.shredding' = 'v:a[0]::int')",
        "CREATE TABLE {n} (a INT, b INT GENERATED ALWAYS AS (a + 1))",
        "CREATE TABLE {n} (v INTERVAL YEAR)",
        "CREATE TABLE {n} (v VOID)",
        "CREATE TABLE {n}",
        "ALTER TABLE {t} ADD COLUMN x2 INT NOT NULL",
        "ALTER TABLE {t} ALTER COLUMN a TYPE STRING",
        "ALTER TABLE {t} DROP CONSTRAINT c",
        "ALTER TABLE {t} REPLACE COLUMNS (z INT)",
    ),
    "lamella.snapshot_not_found": (
        "SELECT * FROM {t} VERSION AS OF 'nope'",
        "SELECT * FROM {t} CHANGES FROM VERSION '1' TO VERSION '2'",
        "SELECT * FROM {t} CHANGES FROM VERSION 'nope'",
        "SELECT * FROM {t} VERSION AS OF 999",
        "SELECT * FROM {t} FOR VERSION AS OF '01a1fd3a-a3bb-7c8a-be00-8c70114c4023'",
        "SELECT * FROM {t} TIMESTAMP AS OF '1999-01-01'",
    ),
    "lamella.unknown_column": ("ALTER TABLE {t} CLUSTER BY (nope)",),
}


@pytest.fixture(scope="module")
def space(lakes: Lakes) -> str:
    """A namespace."""
    name = fresh("statements")
    lakes.lake.create_namespace(name)
    return name


def filled_in(statement: str, lakes: Lakes, space: str) -> str:
    """The statement, with names; its table is made when it has one."""
    table = f"{space}.{fresh('t')}"
    if "{t}" in statement:
        lakes.lake.create_table(table, schema=[Column(name=name, type="int32") for name in "ab"])
    names = {"t": f"{CATALOG}.{table}", "n": f"{CATALOG}.{space}.{fresh('new')}", "s": f"{CATALOG}.{space}"}
    for key, name in {**names, "c": CATALOG, "other": f"{space}.{fresh('other')}"}.items():
        statement = statement.replace("{" + key + "}", name)
    return statement


@pytest.mark.parametrize("statement", ANSWERED)
@pytest.mark.few(48)
def test_a_statement_is_answered(spark: SparkSession, lakes: Lakes, space: str, statement: str) -> None:
    """Without an error."""
    spark.sql(filled_in(statement, lakes, space)).collect()


@pytest.mark.parametrize(
    ("statement", "code"), [(statement, code) for code, statements in REFUSED.items() for statement in statements]
)
@pytest.mark.few(74)
def test_a_statement_is_refused(spark: SparkSession, lakes: Lakes, space: str, statement: str, code: str) -> None:
    """By a typed error with a code, without a traceback of ours, and without leaving a table."""
    text = filled_in(statement, lakes, space)
    before = lakes.lake.tables(space)
    with pytest.raises(Exception, match=re.escape(code)) as refused:
        spark.sql(text).collect()
    assert isinstance(refused.value, PySparkException) == (code != "INTERNAL_ERROR"), refused.type  # of Spark's own
    assert "Traceback" not in str(refused.value)
    assert lakes.lake.tables(space) == before
