"""A program on a Spark with a Hive Metastore, run by a test as a process.

Arguments: the metastore's address and its warehouse. Each line of standard input is a JSON object with SQL statements,
a table to read with the folder that its rows are written to as Parquet, and a table with filters; the program answers
with a line ``done`` and the values of ``Id`` that match each filter, or with the error.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def session(uri: str, warehouse: str) -> SparkSession:
    """One whose catalog is the metastore."""
    settings = {
        "spark.hadoop.hive.metastore.uris": uri,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.sql.warehouse.dir": warehouse,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[2]").enableHiveSupport()
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    """Answer each line until there are no more."""
    spark = session(*sys.argv[1:3])
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        given = json.loads(line)
        try:
            for statement in given["statements"]:
                spark.sql(statement)
            if given["read"] is not None:
                table, rows = given["read"]
                spark.catalog.refreshTable(table)
                spark.table(table).coalesce(1).write.parquet(rows)
            found = [
                sorted(row.Id for row in spark.table(table).where(text).select("Id").collect())
                for table, texts in given["filters"]
                for text in texts
            ]
            answer = f"done {json.dumps(found)}"
        except Exception as error:  # the test looks at it
            answer = f"{type(error).__name__}: {error}"[:2_000].replace("\n", " ")
        print(f"answer {answer}", flush=True)


if __name__ == "__main__":
    main()
