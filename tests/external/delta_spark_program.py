"""A program on a Spark with Delta's own writer, run by a test as a process of its own, on a PySpark of its own.

Each line of standard input is a JSON object with SQL statements and a folder; the program runs them, writes the table's
rows into that folder as Parquet, and answers with a line ``done`` or the error.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

RUNTIME = "io.delta:delta-spark_4.1_2.13:4.4.0"


def session(ivy: str) -> SparkSession:
    """One whose tables are Delta's, found by their paths."""
    settings = {
        "spark.jars.packages": RUNTIME,
        "spark.jars.ivy": ivy,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
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
    spark = session(sys.argv[1])
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        given = json.loads(line)
        table = f"delta.`{given['table']}`"
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
