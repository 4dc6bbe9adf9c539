"""A Spark Connect server whose default catalog is an Iceberg REST catalog, run on the PySpark of a suite's environment.

Reads a JSON object of Spark's settings from standard input, prints a line once it serves, and stops when its standard
input ends.
"""

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Serve."""
    builder = SparkSession.builder.master("local[2]").config("spark.api.mode", "classic")
    for name, value in json.loads(sys.stdin.readline()).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print("serving", flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main()
