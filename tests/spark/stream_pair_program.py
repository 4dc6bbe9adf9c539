"""Streams two tables into one and merges into it meanwhile, until it is killed or nothing is left. Started by
``test_stream_pair_kills.py``."""

# ruff: noqa: S608 - the SQL of this program has no input from outside

from __future__ import annotations

import random
import sys
import threading

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lamella.client.spark import attach

#: How many ids one merge is about.
WINDOW = 200


def merge(spark: SparkSession, first: int, last: int) -> None:
    """Set ``n`` to twice the ``id`` of the rows from one id to another."""
    spark.sql(
        f"MERGE INTO lake.db.target t USING (SELECT id, id * 2 AS twice FROM range({first}, {last + 1})) s"
        f" ON t.id = s.id AND t.id BETWEEN {first} AND {last} AND t.n IS NULL"
        " WHEN MATCHED THEN UPDATE SET n = s.twice"
    )


def ends(spark: SparkSession) -> tuple[int, int]:
    """The least and the greatest id of the target."""
    low, high = spark.sql("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM lake.db.target").collect()[0]
    return low, high


def merge_always(spark: SparkSession) -> None:
    """Merge one window of ids after the other; others may change the same rows first, or the service may be away."""
    rng = random.Random()
    while True:
        try:
            low, high = ends(spark)
            first = rng.randrange(low, high + 1)
            merge(spark, first, first + WINDOW)
        except PySparkException as error:
            print(f"merge failed: {str(error).splitlines()[0][:200]}", file=sys.stderr, flush=True)


def main(url: str, checkpoint: str, trigger: str) -> None:
    """Print ``started`` when both queries run; ``trigger``: "always" or "now"."""
    builder = SparkSession.builder.master("local[2]").appName("streams").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    attach(spark, "lake", url)
    queries = []
    for name in ("left", "right"):
        rows = spark.readStream.option("max_blocks_per_trigger", 4).table(f"lake.db.{name}")
        writer = rows.writeStream.option("checkpointLocation", f"{checkpoint}/{name}")
        timed = {"availableNow": True} if trigger == "now" else {"processingTime": "100 milliseconds"}
        queries.append(writer.trigger(**timed).toTable("lake.db.target"))
    print("started", flush=True)
    if trigger == "now":
        for query in queries:
            query.awaitTermination()
        merge(spark, *ends(spark))
        return
    threading.Thread(target=merge_always, args=(spark,), daemon=True).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
