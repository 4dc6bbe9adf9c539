"""A program on a Spark with `s3a://`, run by a test as a process of its own: the jars must be there before Java starts.

Reads a JSON object from standard input and prints what it found as a JSON object on the last line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import recluster
from lamella.client.spark import attach, write
from lamella.client.spark.engine import SparkEngine

#: PySpark 4.3 has Hadoop 3.5.0, which was built with that version of the AWS SDK.
HADOOP_AWS: Final = "org.apache.hadoop:hadoop-aws:3.5.0"
SDK: Final = tuple(f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3", "s3-transfer-manager", "sts"))
#: All of the SDK in one jar of 686 MB, of which the parts above (19 MB with all that they need) are enough.
BUNDLE: Final = "software.amazon.awssdk:bundle"
ROWS: Final = 20_000


def session(given: dict[str, Any]) -> SparkSession:
    """One that reads a bucket of the server that it is told."""
    settings = {
        "spark.jars.packages": ",".join((HADOOP_AWS, *SDK)),
        "spark.jars.excludes": BUNDLE,
        "spark.jars.ivy": given["ivy"],
        "spark.hadoop.fs.s3a.endpoint": given["options"]["endpoint_url"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": given["options"]["key"],
        "spark.hadoop.fs.s3a.secret.key": given["options"]["secret"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Rows in an order that is not the key's."""
    return spark.range(first, first + count).select(
        ((F.col("id") * 7919) % ROWS).alias("k"), F.concat(F.lit("text "), F.col("id")).alias("t")
    )


def checksum(frame: DataFrame) -> list[int]:
    """Rows, and a number that no lost, doubled or changed row leaves as it is."""
    found = frame.agg(F.count("*"), F.sum(F.xxhash64("k", "t") % 1_000_003)).first()
    assert found is not None
    return list(found)


#: Statements that leave few and many changed rows in blocks; with what they make of a table of SQL's name ``{t}``.
STATEMENTS: Final = {
    "delete": ("DELETE FROM {t} WHERE k % 97 = 5", "SELECT * FROM {t} WHERE k % 97 <> 5"),
    "delete by a filter": (
        "DELETE FROM {t} WHERE k IN (10, 11, 4000, 15000) OR k BETWEEN 7000 AND 7005",
        "SELECT * FROM {t} WHERE k NOT IN (10, 11, 4000, 15000) AND k NOT BETWEEN 7000 AND 7005",
    ),
    "update": (
        "UPDATE {t} SET t = concat('new ', t) WHERE k % 500 = 7",
        "SELECT k, if(k % 500 = 7, concat('new ', t), t) t FROM {t}",
    ),
    "merge": (
        "MERGE INTO {t} USING (SELECT id * 1000 k FROM range(-3, 9)) s ON {t}.k = s.k"
        " WHEN MATCHED AND s.k < 3000 THEN DELETE WHEN MATCHED THEN UPDATE SET t = 'merged'"
        " WHEN NOT MATCHED THEN INSERT (k, t) VALUES (s.k, 'inserted')",
        "SELECT k, if(k % 1000 = 0 AND k < 9000, 'merged', t) t FROM {t} WHERE k % 1000 <> 0 OR k >= 3000"
        " UNION ALL SELECT s.k, 'inserted' FROM (SELECT id * 1000 k FROM range(-3, 9)) s"
        " LEFT ANTI JOIN {t} ON s.k = {t}.k",
    ),
}


def main() -> None:
    """Write, read, add, recluster, compact, change rows; and read again after each."""
    given = json.loads(sys.stdin.read())
    options = {"s3": given["options"]}
    spark = session(given)
    found: dict[str, Any] = {"truth": checksum(rows(spark, 0, ROWS))}
    with Lamella(given["url"], timeout_s=120) as lake:

        def put(first: int, count: int) -> None:
            write(
                rows(spark, first, count),
                "db.t",
                client=lake,
                cluster_by=["k"],
                target_block_rows=1_000,
                storage_options=options,
            )

        half = ROWS // 2
        put(0, half)
        attach(spark, "lake", lake, storage_options=options)
        table = spark.table("lake.db.t")
        few = table.where("k BETWEEN 100 AND 300")
        found["few"] = sorted(row["k"] for row in few.collect())
        found["few, truth"] = sorted(row["k"] for row in rows(spark, 0, half).where("k BETWEEN 100 AND 300").collect())
        blocks = re.search(r"blocks=(\d+)/(\d+)", few._jdf.queryExecution().executedPlan().toString())
        assert blocks is not None
        found["blocks"] = [int(blocks[1]), int(blocks[2])]
        folders = F.split_part(F.input_file_name(), F.lit("/_b/"), F.lit(1)).alias("folder")
        found["folders"] = [row["folder"] for row in table.select(folders).distinct().collect()]
        put(half, half - 100)
        rows(spark, ROWS - 100, 100).createOrReplaceTempView("more")
        spark.sql("INSERT INTO lake.db.t SELECT k, t FROM more")
        found["written"] = checksum(spark.table("lake.db.t"))
        context = JobContext(
            lake=lake,
            table="db.t",
            engine=SparkEngine(spark),
            sizes=Sizes(block_rows=1_000),
            storage_options=options,
            # rows go through scratch space in the bucket
            scratch=given["scratch"],
        )
        found["reclustered"] = recluster(context).blocks_before
        found["after recluster"] = checksum(spark.table("lake.db.t"))
        command = [sys.executable, "-m", "lamella.client.cli", "compact", "--json", "db.t", "--target-rows=5000"]
        more = {"LAMELLA_URL": given["url"], "LAMELLA_STORE_OPTIONS": json.dumps(options)}
        done = subprocess.run(command, env={**os.environ, **more}, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found["compacted"] = json.loads(done.stdout)["blocks_before"]
        found["after compact"] = checksum(spark.table("lake.db.t"))
        attach(spark, "lake", lake, storage_options=options, scratch=given["scratch"])
        truth = rows(spark, 0, ROWS)
        found["statements"], found["with vectors"] = {}, []
        for name, (statement, query) in STATEMENTS.items():
            truth.createOrReplaceTempView("truth")
            truth = spark.sql(query.format(t="truth")).localCheckpoint()
            spark.sql(statement.format(t="lake.db.t"))
            left = spark.table("lake.db.t")
            found["with vectors"].append(
                "with deletion vectors" in left._jdf.queryExecution().executedPlan().toString()
            )
            by_python = lake.table("db.t").scan(storage_options=options).to_arrow()
            found["statements"][name] = [
                checksum(truth),
                checksum(left),
                # one scan, in Python workers
                checksum(spark.read.option("versionAsOf", lake.table("db.t").info().snapshot_id).table("lake.db.t")),
                checksum(spark.createDataFrame(by_python)),
            ]
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
