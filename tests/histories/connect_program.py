"""Reads tables on Spark Connect, for ``readers.py``: one process has one kind of session.

Each line of standard input is a JSON list of table names; each answer is one line with the rows of each table, as
``read`` and as the Python data source find them. The argument is the URL of the service.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.spark import read


def rows_of(frames: Sequence[DataFrame]) -> list[list[list[object]]]:
    """The rows of each frame, all of them by one query."""
    named = [frame.select(F.lit(number).alias("number"), "id", "v", "g", "x") for number, frame in enumerate(frames)]
    found: list[list[list[object]]] = [[] for _ in frames]
    for number, i, v, g, x in functools.reduce(DataFrame.unionAll, named).collect():
        found[number].append([i, v, g, None if x is None else repr(x)])
    return found


def main(url: str) -> None:
    """Answer each line."""
    spark = SparkSession.builder.remote("local[1]").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    with Lamella(url) as lake:
        print("ready", flush=True)
        for line in sys.stdin:
            names = json.loads(line)
            by_read = rows_of([read(spark, name, client=lake) for name in names])
            source = [spark.read.format("lamella").option("url", url).load(name) for name in names]
            print(json.dumps([by_read, rows_of(source)]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
