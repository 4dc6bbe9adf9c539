"""Spark Connect: the same rows as on a classic session, with pruning on the client's side."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.spark import read
from spark.lakes import Lakes, LakeTable, fresh, no_pushdown, numbers, setting
from support.spark_environment import connect_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.fixture(scope="module")
def table(lakes: Lakes) -> LakeTable:
    """Five blocks of twenty rows, with columns of several types, and an index over a JSON path."""
    blocks = []
    for at in range(5):
        ids = range(at * 20, at * 20 + 20)
        blocks.append(
            pa.table(
                {
                    "i": pa.array(ids, pa.int64()),
                    "x": pa.array([math.nan if i % 7 == 0 else i / 2 for i in ids]),
                    "d": pa.array([Decimal(i) / 4 for i in ids], pa.decimal128(10, 2)),
                    "s": pa.array([f"s{i:03}" if i % 9 else None for i in ids]),
                    "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in ids]),
                    "ts": pa.array([dt.datetime(2024, 10, 27, 0, i % 60, tzinfo=dt.UTC) for i in ids]),
                    "st": pa.array([{"a": i} for i in ids]),
                    "ok": pa.array([i < 20 for i in ids]),
                    "doc": pa.array([f'{{"k": [{i}, "v"]}}' for i in ids]),
                }
            )
        )
    made = lakes.of(*blocks)
    lakes.lake.table(made.name).create_index("doc_k", "bloom", "get_json_object(doc, '$.k[0]')")
    lakes.lake.table(made.name).refresh_index("doc_k")
    return made


@pytest.fixture(scope="module")
def answers(lakes: Lakes, lake_url: str, table: LakeTable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program on Connect found."""
    strange = lakes.empty(numbers(1)[0].schema).add(
        *numbers(1), names=["k=v/a[1] {b}*?%20#.parquet"], path_columns="ignore"
    )
    given = {
        "url": lake_url,
        "name": table.name,
        "strange": strange.name,
        "nan": lakes.of(pa.table({"x": [1.0, math.nan]})).name,
        "target": f"{fresh('connect')}.t",
    }
    folder = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [sys.executable, PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=connect_environment(),
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return found


@pytest.fixture(scope="module")
def truth(spark: SparkSession, table: LakeTable) -> dict[str, list[int]]:
    """The ids that each condition selects, by one full scan on the classic session."""
    table.full_scan(spark).createOrReplaceTempView("connect_truth")
    names = list(CONDITIONS)
    chosen = ", ".join(f"sort_array(array_agg(i) FILTER (WHERE {condition}))" for condition in names)
    with no_pushdown(spark), setting(spark, spark__sql__codegen__wholeStage="false"):
        row = spark.sql(f"SELECT {chosen} FROM connect_truth").collect()[0]
    return dict(zip(names, map(list, row), strict=True))


def test_both_ways_give_the_rows_of_a_full_scan(answers: dict[str, Any], truth: dict[str, list[int]]) -> None:
    """`read` with a filter and `format("lamella")`, for filters as columns and as text."""
    assert answers["read"] == truth
    assert answers["source"] == truth


def test_columns_of_connect_prune(answers: dict[str, Any]) -> None:
    """Comparisons, lists, ranges, tests for null, dates and times as values or text: few blocks are left."""
    blocks = answers["blocks"]
    assert {text: blocks[text] for text in CONDITIONS if blocks[text] > CONDITIONS[text]} == {}


def test_reading_keeps_its_promises(answers: dict[str, Any]) -> None:
    """Chosen columns, any file name, NaN, no block at all, and an error where a JVM would be needed."""
    assert answers["chosen"] == ["s", "i"]
    assert answers["all"] == 100
    assert answers["strange"] == "v000007"
    assert answers["nan"] == 1
    assert answers["empty"] == []
    assert "Spark Connect" in answers["attach"]


def test_writing_works_on_connect(answers: dict[str, Any]) -> None:
    """The same writer: sorted blocks, one commit."""
    blocks, rows = answers["written"]
    assert rows == 1_000
    assert blocks in (3, 4)  # Spark samples the rows to choose the ranges
    assert answers["written_rows"] == 10


def test_merge_and_update_change_rows(answers: dict[str, Any]) -> None:
    """One row is updated twice and another inserted; its block stays, without the old row."""
    assert answers["merged"] == [1, 1, 1]
    assert answers["updated"] == [1, 1]
    assert answers["changed"] == ["one!", "new"]


def test_read_on_a_classic_session_prunes_following_filters_too(
    spark: SparkSession, lakes: Lakes, table: LakeTable
) -> None:
    """The same call on a classic session gives a frame that asks the service when it runs."""
    frame = read(spark, table.name, where="i < 50", client=lakes.lake).where("i >= 45")
    assert sorted(row.i for row in frame.collect()) == [45, 46, 47, 48, 49]
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    assert int(leaf.metrics().apply("numFiles").value()) == 1
    assert read(spark, table.name, columns=["s"], client=lakes.lake).columns == ["s"]


#: At most so many of the five blocks are kept.
CONDITIONS = {
    "i = 33": 1,
    "i = 34": 1,
    "i IN (1, 99)": 2,
    "i < 10 OR i > 90": 2,
    "i BETWEEN 20 AND 29": 1,
    "NOT (i <= 95)": 1,
    "i <> 5": 5,
    "i <=> 7": 1,
    "x > 40": 5,
    "x = double('NaN')": 5,
    "d = 24.5": 1,
    "s LIKE 's00%'": 1,
    "s IS NULL": 5,
    "s IS NOT NULL AND i < 15": 1,
    "upper(s) = 'S044'": 5,
    "day = DATE '2024-01-21'": 1,
    "day >= DATE '2024-04-01'": 1,
    "ts = TIMESTAMP '2024-10-27 02:30:00+02:00'": 2,
    "ts < '2024-10-27 02:05:00'": 2,
    "st.a = 45": 1,
    "ok": 1,
    "i = 3 AND CAST(s AS CHAR(9)) IS NOT NULL": 1,
    "day < '2024-01-03'": 1,
    "i + 1 = 34": 1,
    "date_add(day, 1) = DATE '2024-01-22'": 1,
    "month(day) = 1 AND i * 2 < 40": 1,
    "left(s, 3) = 's04'": 1,
    "coalesce(st.a, 0) >= 95": 1,
    "CAST(i AS DOUBLE) > x + 50": 1,
    "date_trunc('HOUR', ts) IS NULL": 0,
    "get_json_object(doc, '$.k[0]') = '33'": 1,
}
