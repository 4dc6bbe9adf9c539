"""A client of a Spark Connect server with catalogs of Lamella, run by a test as a process of its own.

It has only PySpark. Reads a JSON object from standard input and prints the answers as one on the last line.
"""

# ruff: noqa: S608 - the SQL has no input from outside

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Run all statements, in order."""
    given = json.load(sys.stdin)
    spark: Any = SparkSession.builder.remote(given["remote"]).getOrCreate()
    namespace, folder = given["namespace"], given["folder"]
    t = f"lake.{namespace}.t"
    found: dict[str, Any] = {}

    def rows(frame: Any) -> list[list[Any]]:
        return sorted([list(row) for row in frame.collect()], key=str)

    def sql(text: str) -> list[list[Any]]:
        return rows(spark.sql(text))

    sql(f"CREATE NAMESPACE lake.{namespace}")
    sql(f"CREATE TABLE {t} (a BIGINT, b INT, s STRING) TBLPROPERTIES ('target_block_rows' = '100')")
    sql(f"INSERT INTO {t} SELECT id, CAST(id % 3 AS INT), 's' || id FROM range(1000)")
    found["count"] = sql(f"SELECT count(*) FROM {t} WHERE a >= 950")
    found["frame"] = spark.table(t).where(F.col("a") < 7).count()
    found["explain"] = spark.sql(f"SELECT * FROM {t} WHERE a < 7")._explain_string()
    sql(f"UPDATE {t} SET s = 'changed' WHERE a = 5")
    sql(f"DELETE FROM {t} WHERE a = 6")
    sql(
        f"MERGE INTO {t} USING (SELECT 5L AS a UNION ALL SELECT 5000L) x ON t.a = x.a"
        " WHEN MATCHED THEN UPDATE SET b = 50 WHEN NOT MATCHED THEN INSERT (a, b, s) VALUES (x.a, 51, 'merged')"
    )
    found["changed"] = sql(f"SELECT * FROM {t} WHERE a IN (5, 6, 5000)")
    spark.range(2000, 2010).selectExpr("id AS a", "1 AS b", "'f' AS s").writeTo(t).append()
    found["appended"] = spark.read.table(t).where("a BETWEEN 2000 AND 2009").count()
    found["snapshots"] = spark.table(f"lake.{namespace}.`t$snapshots`").count()
    number = sql(f"SELECT max(number) FROM lake.{namespace}.`t$snapshots`")[0][0]
    found["changes"] = spark.read.option("startingVersion", number).changes(t).count()
    found["before"] = sql(f"SELECT count(*) FROM {t} VERSION AS OF {number - 1}")
    found["call"] = len(sql(f"CALL lake.system.compact('{t}')"))
    sql(f"CREATE VIEW lake.{namespace}.v AS SELECT a FROM {t} WHERE b = 1")
    found["view"] = sql(f"SELECT count(*) FROM lake.{namespace}.v") == sql(f"SELECT count(*) FROM {t} WHERE b = 1")
    found["subquery"] = sql(f"SELECT count(*) FROM {t} WHERE a > (SELECT max(a) - 3000 FROM {t})")
    sql(f"CREATE TABLE lake.{namespace}.copy (a BIGINT, b INT, s STRING)")
    query = (
        spark.readStream.table(t)
        .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .toTable(f"lake.{namespace}.copy")
    )
    query.awaitTermination(120)
    found["stream"] = sql(f"SELECT count(*), sum(a) FROM lake.{namespace}.copy") == sql(
        f"SELECT count(*), sum(a) FROM {t}"
    )
    found["tables"] = sql(f"SHOW TABLES IN lake.{namespace}")
    found["cached"] = spark.catalog.tableExists(t)
    other: Any = SparkSession.builder.remote(given["remote"]).create()
    found["other session"] = other.sql(f"SELECT count(*) FROM {t}").first()[0]
    errors: dict[str, Callable[[], Any]] = {
        "missing": lambda: sql(f"SELECT * FROM lake.{namespace}.nothing"),
        "column": lambda: sql(f"SELECT nothing FROM {t}"),
        "generated": lambda: sql(f"CREATE TABLE lake.{namespace}.g (a INT, b INT GENERATED ALWAYS AS (a + 1))"),
        "call": lambda: sql(f"CALL lake.system.rollback('{t}', 'no-such-snapshot')"),
    }
    found["errors"] = {name: _message(statement) for name, statement in errors.items()}
    sql(f"DROP VIEW lake.{namespace}.v")
    sql(f"DROP TABLE {t}")
    found["left"] = sql(f"SHOW TABLES IN lake.{namespace}")
    print(json.dumps(found))


def _message(statement: Callable[[], Any]) -> str:
    try:
        statement()
    except PySparkException as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    main()
