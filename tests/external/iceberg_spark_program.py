"""A program on a Spark with Iceberg's own writer, run by a test as a process of its own, on a PySpark of its own.

Each line of standard input is a JSON object with SQL statements, a table's name and a folder; the program runs the
statements, writes the table's rows into that folder as Parquet, and answers with a line ``done`` or the error.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def session(ivy: str, warehouse: str) -> SparkSession:
    """One whose catalog ``ice`` keeps tables in folders."""
    settings = {
        "spark.jars.packages": RUNTIME,
        "spark.jars.ivy": ivy,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": warehouse,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Answer each line until there are no more."""
    spark = session(*sys.argv[1:3])
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        given = json.loads(line)
        table = f"ice.db.{given['table']}"
        try:
            for statement in given["statements"]:
                spark.sql(statement.replace("{}", table))
            spark.table(table).write.parquet(given["rows"])
            answer = "done"
        except Exception as error:  # the test looks at it
            answer = f"{type(error).__name__}: {error}"[:2_000].replace("\n", " ")
        print(f"answer {answer}", flush=True)


if __name__ == "__main__":
    main()
