"""Write the rows of Delta tables as Delta on Spark reads them; run on a PySpark of its own.

Each line of standard input is a JSON object with the folder of a table and one for its rows. The answer is a line
``answer done``, or the error.
"""

import json
import sys

from pyspark.sql import SparkSession

RUNTIME = "io.delta:delta-spark_4.1_2.13:4.4.0"


def main() -> None:
    """Answer each line until there are no more."""
    settings = {
        "spark.jars.packages": RUNTIME,
        "spark.jars.ivy": sys.argv[1],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        given = json.loads(line)
        try:
            spark.read.format("delta").load(given["table"]).write.parquet(given["rows"])
            answer = "done"
        except Exception as error:  # the caller looks at it
            answer = f"{type(error).__name__}: {error}"[:2_000].replace("\n", " ")
        print(f"answer {answer}", flush=True)


if __name__ == "__main__":
    main()
