"""The superset property over blocks that Spark wrote, with Spark's own full scan as the judge of every filter."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.snapshot.expression import read_sql
from lamella.snapshot.layout import FsspecStore
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from spark.lakes import setting
from support import generate
from support.arrow_files import arrow_table
from support.oracle import Oracle
from support.spark_sql import sql_of

pytestmark = pytest.mark.spark

FILTERS = 60
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.filterPushdown": "false",  # an oracle must not prune: Spark's own pushdown loses NaN and -0.0
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}


def check_spark_files(spark: SparkSession, seed: int, folder: Path, filters: int) -> int:
    """One random table, written and judged by Spark; returns the number of (block, filter) pairs."""
    rng = Random(seed)
    wanted = generate.schema(rng, generate.SPARK_TYPES)
    table = generate.table(rng, wanted, blocks=8, rows=6)
    numbered = [
        arrow_table(wanted, block).append_column("_block", pa.array([i] * len(generate.rows_of(block)), pa.int32()))
        for i, block in enumerate(table)
    ]
    timestamps = rng.choice(["INT96", "TIMESTAMP_MICROS"])
    with setting(spark, **{"spark.sql.parquet.outputTimestampType": timestamps}):
        frame = spark.createDataFrame(pa.concat_tables(numbered))
        frame.coalesce(1).write.partitionBy("_block").option("parquet.block.row.count.limit", 2).parquet(str(folder))
    paths = sorted(folder.glob("_block=*/*.parquet"))
    by_block = {int(path.parent.name.removeprefix("_block=")): f"file://{path}" for path in paths}
    if not by_block:
        return 0
    store = FsspecStore()
    schema = schema_of(read_footer(store, next(iter(by_block.values()))))
    blocks, refused = ingest(store, list(by_block.values()), schema, workers=1)
    assert refused == []
    warehouse = Warehouse(FsspecStore(), "memory://spark", segment_blocks=3)
    empty = warehouse.create(str(seed), schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare(str(seed), schema, blocks), now_ms=2).pointer

    seen = generate.seen_values(wanted, table)
    predicates = [generate.predicate(rng, wanted, seen) for _ in range(filters)]
    texts = [sql_of(predicate) for predicate in predicates]
    scan = spark.read.schema(spark.read.parquet(next(iter(by_block.values()))).schema)
    rows = scan.option("recursiveFileLookup", "true").parquet(str(folder))
    judged = rows.groupBy(F.input_file_name().alias("path")).agg(
        F.count("*"), *(F.expr(f"count_if(coalesce({text}, false))") for text in texts)
    )
    truth = {unquote(row[0].removeprefix("file://")): row[1:] for row in judged.collect()}
    oracle = Oracle(wanted)
    for index, (predicate, text) in enumerate(zip(predicates, texts, strict=True)):
        answer = warehouse.prune(pointer, PruneRequest(filter=text, time_zone="UTC"))
        assert answer.blocks is not None
        kept = {block.location: block.verdict for block in answer.blocks}
        for number, location in by_block.items():
            total, *matches = truth[location.removeprefix("file://")]
            case = f"seed {seed}: {text} over {table[number]}, timestamps as {timestamps}"
            expected = sum(oracle.decide(predicate, row) is True for row in generate.rows_of(table[number]))
            assert matches[index] == expected, f"the tests' own oracle differs from Spark, {case}"
            assert location in kept or matches[index] == 0, f"left out a match, {case}"
            assert kept.get(location) != "ALL" or matches[index] == total, f"wrong ALL, {case}"
    return filters * len(by_block)


@pytest.mark.parametrize("seed", range(14))
def test_blocks_of_spark_are_never_left_out_wrongly(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    """Spark writes, and judges every filter by a full scan: no match is left out, ALL blocks hold nothing else."""
    with setting(spark, **SETTINGS):
        assert check_spark_files(spark, seed, tmp_path / "t", FILTERS) > 0


@pytest.mark.soak
def test_fifty_thousand_pairs_over_spark_files_hold_no_false_skip(spark: SparkSession, tmp_path: Path) -> None:
    """The same at length."""
    pairs = 0
    with setting(spark, **SETTINGS):
        for seed in itertools.count(1_000):
            pairs += check_spark_files(spark, seed, tmp_path / str(seed), 150)
            if pairs >= 50_000:
                break
    print(f"{pairs} pairs over Spark's files: 0 false skips, 0 wrong ALL")


@pytest.mark.parametrize("seed", range(200))
def test_sql_text_means_what_the_predicate_means(seed: int) -> None:
    """The SQL that a predicate is written as is read back as a predicate with the same outcome for every row."""
    rng = Random(seed)
    schema = generate.schema(rng, generate.SPARK_TYPES)
    table = generate.table(rng, schema)
    seen = generate.seen_values(schema, table)
    oracle = Oracle(schema)
    predicate = generate.predicate(rng, schema, seen)
    again = read_sql(sql_of(predicate))
    for block in table:
        for row in generate.rows_of(block):
            assert oracle.decide(again, row) == oracle.decide(predicate, row), sql_of(predicate)
