"""Bloom filters that Spark writes into its files answer for every type that it makes them of."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lamella.snapshot.index import kinds
from lamella.snapshot.index.file_filters import read_filters
from lamella.snapshot.index.kind import FileBuilder
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.footer import Footer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from support import generate, index_cases
from support.arrow_files import arrow_table
from support.index_cases import claimed, equal, opened, probe

pytestmark = pytest.mark.spark

STORE = FsspecStore()
TYPES = [name for name in generate.SPARK_TYPES if name != "boolean"]
COLUMNS = [Column(name=f"c{at}", type=name) for at, name in enumerate(TYPES)]
SCHEMA = Schema.assign(COLUMNS)


def written_by_spark(spark: SparkSession, folder: Path, cells: generate.Block, *, legacy: bool) -> Footer:
    """Rows as a file of Spark's with a filter for each column; dictionaries, which take their place, are off."""
    pq.write_table(arrow_table(SCHEMA, cells), folder / "given.parquet", store_decimal_as_integer=False)
    frame = spark.read.parquet(f"file://{folder / 'given.parquet'}")
    writer = frame.coalesce(1).write.option("parquet.enable.dictionary", "false")
    for column in COLUMNS:
        writer = writer.option(f"parquet.bloom.filter.enabled#{column.name}", "true")
        writer = writer.option(f"parquet.bloom.filter.expected.ndv#{column.name}", "200")
    settings = {
        "spark.sql.parquet.writeLegacyFormat": str(legacy).lower(),
        "spark.sql.parquet.outputTimestampType": "INT96" if legacy else "TIMESTAMP_MICROS",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        writer.parquet(f"file://{folder / 'written'}")
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
    (path,) = (folder / "written").glob("*.parquet")
    return read_footer(STORE, f"file://{path}")


@pytest.mark.parametrize("legacy", [False, True])
def test_filters_of_spark_answer_for_every_type(legacy: bool, spark: SparkSession, tmp_path: Path) -> None:
    """Every value of a file is found by Spark's own filters, and few others; decimals in both of Spark's forms."""
    rng = Random(11)
    inside: generate.Block = {}
    outside: generate.Block = {}
    for column in COLUMNS:
        dtype = generate.dtype_of(column.type)
        sampled = list(dict.fromkeys(index_cases.spread_value(rng, dtype) for _ in range(2000)))
        # Spark reads no days before the Gregorian calendar as they are, and zeros have a test of their own.
        usable = [value for value in sampled if value == value and (dtype.name != "date" or abs(value) < 100_000)]
        inside[column.name], outside[column.name] = usable[:100], usable[100:200]
        inside[column.name] += [inside[column.name][0]] * (101 - len(inside[column.name])) + [None]
    count = min(map(len, inside.values()))
    footer = written_by_spark(spark, tmp_path, {name: cells[-count:] for name, cells in inside.items()}, legacy=legacy)
    kind, answered = kinds()["bloom"], 0
    for at, column in enumerate(COLUMNS):
        dtype = generate.dtype_of(column.type)
        options = kind.options(dtype, {})
        builder = kind.builder(dtype, options)
        assert isinstance(builder, FileBuilder)
        reason = builder.add_file(STORE, footer, at)
        if legacy and column.type == "timestamp(us)":
            assert reason == "filters of timestamp(us) stored as INT96 are not supported"
            continue
        assert reason is None, f"{column.type}: {reason}"
        sections, facts = builder.sections()
        of = probe(opened("bloom", dtype, options, sections, facts, 1).part)
        for value in inside[column.name][-count:]:
            assert value is None or claimed(of, equal(dtype, value), [0]).true.all(), f"{value} of {column.type}"
        wrong = sum(int(claimed(of, equal(dtype, value), [0]).true[0]) for value in outside[column.name])
        assert wrong <= 10, column.type
        answered += 1
    assert answered == len(TYPES) - legacy


def test_zeros_of_spark_are_found_whatever_their_sign(spark: SparkSession, tmp_path: Path) -> None:
    """Spark hashes -0.0 as it is; a query for 0.0 finds the file all the same, and NaN is not looked up."""
    for name in ("float32", "float64"):
        dtype = generate.dtype_of(name)
        folder = tmp_path / name
        folder.mkdir()
        cells: generate.Block = {column.name: [None, None] for column in COLUMNS}
        cells[f"c{TYPES.index(name)}"] = [-0.0, float("nan")]
        footer = written_by_spark(spark, folder, cells, legacy=False)
        assert not isinstance(read_filters(STORE, footer, TYPES.index(name)), str)
        kind = kinds()["bloom"]
        builder = kind.builder(dtype, kind.options(dtype, {}))
        assert isinstance(builder, FileBuilder)
        assert builder.add_file(STORE, footer, TYPES.index(name)) is None
        of = probe(opened("bloom", dtype, kind.options(dtype, {}), *builder.sections(), 1).part)
        assert claimed(of, equal(dtype, 0.0), [0]).true.all()
        assert not claimed(of, equal(dtype, 5.0), [0]).true.any()
        assert claimed(of, equal(dtype, float("nan")), [0]).true.all()
