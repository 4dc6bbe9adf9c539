"""A program on Spark Connect, run by a test as a process of its own: one process has one kind of session.

Reads a JSON object from standard input and prints the answers as a JSON object on the last line.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
import sys
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.spark import attach, merge, read, update, write
from lamella.client.spark.connect_columns import ColumnWalker
from lamella.snapshot.errors import InvalidRequest


def conditions() -> dict[str, Column | str]:
    """Filters in the forms that a program has them; the key is the same in SQL."""
    c = F.col
    clocks_back = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    return {
        "i = 33": c("i") == 33,
        "i = 34": F.lit(34) == c("i"),
        "i IN (1, 99)": c("i").isin(1, 99),
        "i < 10 OR i > 90": (c("i") < 10) | (c("i") > 90),
        "i BETWEEN 20 AND 29": c("i").between(20, 29),
        "NOT (i <= 95)": ~(c("i") <= 95),
        "i <> 5": c("i") != 5,
        "i <=> 7": c("i").eqNullSafe(7),
        "x > 40": c("x") > 40,
        "x = double('NaN')": c("x") == math.nan,
        "d = 24.5": c("d") == Decimal("24.5"),
        "s LIKE 's00%'": c("s").startswith("s00"),
        "s IS NULL": c("s").isNull(),
        "s IS NOT NULL AND i < 15": c("s").isNotNull() & (c("i") < 15),
        "upper(s) = 'S044'": F.upper(c("s")) == "S044",
        "day = DATE '2024-01-21'": c("day") == dt.date(2024, 1, 21),
        "day >= DATE '2024-04-01'": c("day") >= "2024-04-01",
        "ts = TIMESTAMP '2024-10-27 02:30:00+02:00'": c("ts") == clocks_back,
        "ts < '2024-10-27 02:05:00'": c("ts") < "2024-10-27 02:05:00",
        "st.a = 45": c("st.a") == 45,
        "ok": c("ok"),
        "i = 3 AND CAST(s AS CHAR(9)) IS NOT NULL": "i = 3 AND CAST(s AS CHAR(9)) IS NOT NULL",
        "day < '2024-01-03'": "day < '2024-01-03'",
        "i + 1 = 34": c("i") + 1 == 34,
        "date_add(day, 1) = DATE '2024-01-22'": F.date_add(c("day"), 1) == dt.date(2024, 1, 22),
        "month(day) = 1 AND i * 2 < 40": (F.month("day") == 1) & (c("i") * 2 < 40),
        "left(s, 3) = 's04'": F.left(c("s"), F.lit(3)) == "s04",
        "coalesce(st.a, 0) >= 95": F.coalesce(c("st.a"), F.lit(0)) >= 95,
        "CAST(i AS DOUBLE) > x + 50": c("i").cast("double") > c("x") + 50,
        "date_trunc('HOUR', ts) IS NULL": F.date_trunc("HOUR", c("ts")).isNull(),
        "get_json_object(doc, '$.k[0]') = '33'": F.get_json_object(c("doc"), "$['k'][0]") == "33",
    }


def ids(frames: dict[str, DataFrame]) -> dict[str, list[int]]:
    """The ids of each frame's rows, sorted; all of them in one query."""
    named = [frame.select(F.lit(text).alias("text"), "i") for text, frame in frames.items()]
    found: dict[str, list[int]] = {text: [] for text in frames}
    for row in functools.reduce(DataFrame.unionAll, named).collect():
        found[row.text].append(row.i)
    return {text: sorted(values) for text, values in found.items()}


def main() -> None:
    """Ask everything once through Lamella, and once of all files."""
    given: dict[str, Any] = json.load(sys.stdin)
    name, url = given["name"], given["url"]
    lake = Lamella(url)
    spark = (
        SparkSession.builder.remote("local[1]")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    answers: dict[str, Any] = {"blocks": {}}
    by_read = {}
    schema = lake.table(name).info().schema
    for text, where in conditions().items():
        by_read[text] = read(spark, name, where=where, client=lake)
        tree = where if isinstance(where, str) else ColumnWalker(schema).tree(where._expr)
        answers["blocks"][text] = len(lake.table(name).prune(tree, time_zone="Europe/Berlin").locations)
    answers["read"] = ids(by_read)
    source = spark.read.format("lamella").option("url", url).load(name)
    answers["source"] = ids({text: source.where(where) for text, where in conditions().items()})
    answers["chosen"] = read(spark, name, where=F.col("i") < 2, columns=["s", "i"], client=lake).columns
    answers["all"] = read(spark, name, url=url).count()
    answers["strange"] = read(spark, given["strange"], where="a = 7", client=lake).collect()[0].s
    answers["nan"] = read(spark, given["nan"], where=F.col("x") > 5, client=lake).count()
    answers["empty"] = read(spark, name, where=F.col("i") == -1, client=lake).collect()
    written = write(
        spark.range(1_000).select((F.col("id") * 37 % 1009).alias("k"), F.col("id").cast("string").alias("v")),
        given["target"],
        client=lake,
        cluster_by=["k"],
        target_block_rows=300,
    )
    answers["written"] = [written.blocks, written.rows]
    answers["written_rows"] = read(spark, given["target"], where=F.col("k") < 10, client=lake).count()
    source = spark.createDataFrame([(37, "one"), (5_000, "new")], "k bigint, v string")
    merged = merge(source, given["target"], "t.k = s.k", client=lake).when_matched_update().when_not_matched_insert()
    done = merged.execute()
    answers["merged"] = [done.rows_updated, done.rows_inserted, done.blocks_with_vectors]
    done = update(spark, given["target"], {"v": "concat(v, '!')"}, "k >= 37 AND k <= 37", client=lake)
    answers["updated"] = [done.rows_updated, done.tries]
    answers["changed"] = [
        row.v for row in read(spark, given["target"], where="k IN (37, 5000)", client=lake).sort("k").collect()
    ]
    try:
        attach(spark, "lake", lake)
    except InvalidRequest as error:
        answers["attach"] = error.message
    spark.stop()
    lake.close()
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
