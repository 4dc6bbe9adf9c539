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
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from spark.lakes import setting
from support import generate, generate_terms
from support.arrow_files import arrow_table
from support.oracle import UNDECIDED, Oracle
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


def check_spark_files(spark: SparkSession, seed: int, folder: Path, filters: int, *, terms: bool = False) -> int:
    """One random table, written and judged by Spark; returns the number of (block, filter) pairs.

    ``terms``: filters of the whole language in a session of any time zone, judged with ANSI mode and without.
    """
    rng = Random(seed)
    wanted = generate.schema(rng, generate.SPARK_TYPES)
    zone = rng.choice(generate_terms.ZONES) if terms else "UTC"
    make = generate_terms.table if terms else generate.table
    table = make(rng, wanted, blocks=8, rows=6)
    while not any(generate.rows_of(block) for block in table):
        table = make(rng, wanted, blocks=8, rows=6)
    numbered = [
        arrow_table(wanted, block).append_column("_block", pa.array([i] * len(generate.rows_of(block)), pa.int32()))
        for i, block in enumerate(table)
    ]
    timestamps = rng.choice(["INT96", "TIMESTAMP_MICROS"])
    # without the second, an Arrow time without zone becomes one with
    kinds = {"spark.sql.parquet.outputTimestampType": timestamps, "spark.sql.timestampType": "TIMESTAMP_NTZ"}
    with setting(spark, **kinds):
        frame = spark.createDataFrame(pa.concat_tables(numbered).combine_chunks())
        frame.coalesce(1).write.partitionBy("_block").option("parquet.block.row.count.limit", 2).parquet(str(folder))
    paths = sorted(folder.glob("_block=*/*.parquet"))
    by_block = {int(path.parent.name.removeprefix("_block=")): f"file://{path}" for path in paths}
    store = FsspecStore()
    schema = schema_of(read_footer(store, next(iter(by_block.values()))))
    blocks, refused = ingest(store, list(by_block.values()), schema, workers=1)
    assert refused == []
    warehouse = Warehouse(FsspecStore(), "memory://spark", segment_blocks=3)
    empty = warehouse.create(str(seed), schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare(str(seed), schema, blocks), now_ms=2).pointer

    oracle = Oracle(wanted, zone)
    seen = generate.seen_values(wanted, table)
    draw = generate_terms.predicates(rng, wanted, oracle, table)
    predicates = [draw() if terms else generate.predicate(rng, wanted, seen) for _ in range(filters)]
    texts = [sql_of(predicate) for predicate in predicates]
    scan = spark.read.schema(spark.read.parquet(next(iter(by_block.values()))).schema)
    rows = scan.option("recursiveFileLookup", "true").parquet(str(folder))
    verdicts = []
    for text in texts:
        answer = warehouse.prune(pointer, PruneRequest(filter=text, time_zone=zone))
        assert answer.blocks is not None
        verdicts.append({block.location: block.verdict for block in answer.blocks})

    every = [row for number in by_block for row in generate.rows_of(table[number])]
    for ansi in (False, True) if terms else (False,):
        results = [
            {at: [oracle.result(p, row, ansi=ansi) for row in generate.rows_of(table[at])] for at in by_block}
            for p in predicates
        ]
        # with ANSI mode one row that fails would fail them all
        evaluated = [
            i for i, p in enumerate(predicates) if not ansi or not any(oracle.may_fail(p, row) for row in every)
        ]
        with setting(spark, **{"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": str(ansi).lower()}):
            judged = rows.groupBy(F.input_file_name().alias("path")).agg(
                F.count("*"), *(F.expr(f"count_if(coalesce({texts[i]}, false))") for i in evaluated)
            )
            truth = {unquote(row[0].removeprefix("file://")): row[1:] for row in judged.collect()}
        for position, index in enumerate(evaluated):
            for number, location in by_block.items():
                total, *matches = truth[location.removeprefix("file://")]
                found = results[index][number]
                case = f"seed {seed}: {texts[index]} over {table[number]}, {zone}, ANSI {ansi}, {timestamps}"
                if UNDECIDED not in found:
                    assert matches[position] == found.count(True), f"oracle {found}, Spark {matches[position]}, {case}"
                assert location in verdicts[index] or matches[position] == 0, f"left out a match, {case}"
                assert verdicts[index].get(location) != "ALL" or matches[position] == total, f"wrong ALL, {case}"
    return filters * len(by_block)


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.few(2)
def test_blocks_of_spark_are_never_left_out_wrongly(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    """Spark writes, and judges every filter by a full scan: no match is left out, ALL blocks hold nothing else."""
    with setting(spark, **SETTINGS):
        assert check_spark_files(spark, seed, tmp_path / "t", FILTERS) > 0


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.few(2)
def test_spark_agrees_on_the_whole_language(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    """Functions, casts, columns beside columns, in many time zones, with ANSI mode and without: Spark is the judge."""
    with setting(spark, **SETTINGS):
        assert check_spark_files(spark, seed, tmp_path / "t", FILTERS, terms=True) > 0


@pytest.mark.soak
def test_fifty_thousand_pairs_over_spark_files_hold_no_false_skip(spark: SparkSession, tmp_path: Path) -> None:
    """The same at length."""
    pairs = 0
    with setting(spark, **SETTINGS):
        for seed in itertools.count(1_000):
            pairs += check_spark_files(spark, seed, tmp_path / str(seed), 150, terms=seed % 2 == 0)
            if pairs >= 50_000:
                break
    print(f"{pairs} pairs over Spark's files: 0 false skips, 0 wrong ALL")


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.few(60)
def test_sql_text_means_what_the_predicate_means(seed: int) -> None:
    """The SQL that a predicate is written as is read back as a predicate with the same outcome for every row."""
    rng = Random(seed)
    schema = generate.schema(rng, generate.SPARK_TYPES)
    zone = rng.choice(generate_terms.ZONES)
    table = generate_terms.table(rng, schema)
    oracle = Oracle(schema, zone)
    predicate = generate_terms.predicates(rng, schema, oracle, table)()
    again = read_sql(sql_of(predicate), time_zone=zone)
    for block in table:
        for row in generate.rows_of(block):
            for ansi in (False, True):
                same = oracle.result(again, row, ansi=ansi) == oracle.result(predicate, row, ansi=ansi)
                assert same, sql_of(predicate)
