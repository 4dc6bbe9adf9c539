"""Streams one table into another until it is killed, or until nothing is left. Started by ``test_stream_kills.py``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from lamella.client.spark import attach


def main(url: str, checkpoint: str, trigger: str) -> None:
    """Print ``started`` when the query runs; ``trigger``: "always" or "now"."""
    builder = SparkSession.builder.master("local[2]").appName("stream").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    attach(spark, "lake", url)
    rows = spark.readStream.option("max_blocks_per_trigger", 3).table("lake.db.source")
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    writer = (
        writer.trigger(availableNow=True) if trigger == "now" else writer.trigger(processingTime="100 milliseconds")
    )
    query = writer.toTable("lake.db.target")
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
