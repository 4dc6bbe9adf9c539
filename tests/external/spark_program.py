"""A program on a Spark with the writer of another table format, run by a test as a process, on a PySpark of its own.

Arguments: "delta" or "iceberg", Ivy's folder, the folder of Iceberg's tables. Each line of standard input is a JSON
object with SQL statements, a table (a folder of Delta's, a name of Iceberg's) and a folder; the program runs the
statements, writes the table's rows into that folder as Parquet, and answers with a line ``done`` or the error.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ICEBERG = {
    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}


def session(kind: str, ivy: str, folder: str) -> SparkSession:
    """One whose tables are of that format."""
    settings = {
        **(DELTA if kind == "delta" else {**ICEBERG, "spark.sql.catalog.ice.warehouse": folder}),
        "spark.jars.ivy": ivy,
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
    kind = sys.argv[1]
    spark = session(*sys.argv[1:4])
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        given = json.loads(line)
        table = f"delta.`{given['table']}`" if kind == "delta" else f"ice.db.{given['table']}"
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
