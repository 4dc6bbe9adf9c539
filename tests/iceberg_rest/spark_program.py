"""A program on a Spark with Iceberg's runtime, run by a test as a process of its own, on a PySpark of its own.

Reads a JSON object from standard input and prints what it found as a JSON object on the last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
#: For S3.
AWS_BUNDLE = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"


def session(given: dict[str, Any]) -> SparkSession:
    """One whose catalog ``ice`` is the service; ``settings`` are more of them."""
    settings = {
        "spark.jars.packages": f"{RUNTIME},{AWS_BUNDLE}" if given.get("with_s3") else RUNTIME,
        "spark.jars.ivy": given["ivy"],
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "rest",
        "spark.sql.catalog.ice.uri": given["uri"],
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        # What is compared with is a scan of whole files.
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.parquet.aggregatePushdown": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        **given.get("settings", {}),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answered(spark: SparkSession, query: str) -> Any:
    """The rows of a query as lists of texts, or what it raised."""
    try:
        return [[None if cell is None else str(cell) for cell in row] for row in spark.sql(query).collect()]
    except Exception as error:  # the test looks at it
        return {"error": f"{type(error).__name__}: {error}"[:2_000]}


def main() -> None:
    """Ask each question, and the same of the files."""
    given = json.loads(sys.stdin.read())
    spark = session(given)
    spark.sparkContext.setLogLevel("OFF")
    for name, files in given["files"].items():
        spark.read.parquet(*files).createOrReplaceTempView(name)
    found = [answered(spark, query) for query in given["queries"]]
    print()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
