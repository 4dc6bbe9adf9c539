"""Spark itself as the judge of what conditions mean, row by row: no filter is pushed, each condition is a column."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression import read_filter
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.row_filter import RowFilter
from lamella.snapshot.storage import FsspecStore
from spark.lakes import setting

pytestmark = pytest.mark.spark

_ROWS = 400
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_HOUR_US = 3_600_000_000
#: Instants around which clocks are set: Berlin, New York, Lord Howe (half an hour), Apia (a day is skipped), Sao Paulo
#: and Beirut (at midnight), Tehran in 1978, and the far future.
_EDGES = (
    *("2021-03-28T01:00", "2021-10-31T01:00", "2022-03-13T07:00", "2022-11-06T06:00", "2021-04-03T15:00"),
    *("2021-10-02T15:30", "2011-12-30T10:00", "2018-11-04T03:00", "2018-02-18T02:00", "2023-03-29T22:00"),
    *("1970-01-05T00:00", "1995-12-31T23:00", "2100-02-28T23:00", "2400-07-01T00:00", "9998-10-31T00:30"),
)
_WORDS = (
    *("", "a", "ab", "abc", "aBc", "ABC", "a_c", "a%c", "a\\c", "ab\nc", "äÖß", "ΑΣ", "Σ", "ἈΣΑ", "日本語", "İstanbul"),
    *("\U0001f600b", "abcabc", "ǅ", "ﬁx", " a ", "a\x00b", "zzz"),
)


def _table(rng: Random) -> pa.Table:
    def nullable(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.1 else value for value in values]

    def instants() -> list[int]:
        edges = [
            (dt.datetime.fromisoformat(edge + "+00:00") - _EPOCH) // dt.timedelta(microseconds=1) for edge in _EDGES
        ]
        near = [
            rng.choice(edges) + rng.randint(-50, 50) * _HOUR_US // 4 + rng.choice([0, 0, 1, -1]) for _ in range(_ROWS)
        ]
        return [max(0, value) for value in near]

    ints = [rng.choice([0, 1, -1, 7, 2**31 - 1, -(2**31), rng.randint(-50, 50)]) for _ in range(_ROWS)]
    longs = [rng.choice([0, 1, -1, 2**53 + 1, 2**62, rng.randint(-50, 50)]) for _ in range(_ROWS)]
    doubles = [
        rng.choice([0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), 1e300, rng.random()]) for _ in range(_ROWS)
    ]
    cents = [rng.choice([0, 1, -1, 99999, -99999, rng.randint(-500, 500)]) for _ in range(_ROWS)]
    days = [rng.choice([0, -1, 59, 18_351, 11_016, -25_567, rng.randint(-30_000, 60_000)]) for _ in range(_ROWS)]
    return pa.table(
        {
            "i": pa.array(nullable(ints), pa.int32()),
            "j": pa.array(nullable([rng.randint(-5, 5) for _ in range(_ROWS)]), pa.int16()),
            "l": pa.array(nullable(longs), pa.int64()),
            "x": pa.array(nullable(doubles), pa.float64()),
            "y": pa.array(nullable([rng.uniform(-3, 3) for _ in range(_ROWS)]), pa.float32()),
            "d": pa.array(nullable([None if c is None else round(c / 100, 2) for c in cents]), pa.float64()).cast(
                pa.decimal128(7, 2), safe=False
            ),
            "e": pa.array(nullable(days), pa.int32()).cast(pa.date32()),
            "t": pa.array(nullable(instants()), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "n": pa.array(nullable(instants()), pa.int64()).cast(pa.timestamp("us")),
            "s": pa.array(nullable([rng.choice(_WORDS) for _ in range(_ROWS)])),
            "u": pa.array(nullable([rng.choice(_WORDS) for _ in range(_ROWS)])),
            "b": pa.array(nullable([rng.random() < 0.5 for _ in range(_ROWS)])),
        }
    )


_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
#: Conditions that no row can make fail.
CONDITIONS = (
    *("i = 0", "i <> -1 OR l > 5", "x > 1", "x = -0.0D", "x >= CAST('NaN' AS DOUBLE)", "NOT (x < 2.5)", "isnan(x)"),
    *("x IN (1.5D, -0.0D)", "i NOT IN (1, NULL)", "i <=> NULL", "i <=> 1", "j <=> i", "NOT b", "b IS NULL", "i < l"),
    *("d = 999.99", "d < 0.005", "d > -1.234", "d IN (0.01, -0.01)", "s < 'b'", "s = u", "s <= u", "(i > 3) IS TRUE"),
    *(
        "l + 1 > i",
        "j * 2 - 1 < j",
        "d + d = 0.02",
        "d * d > 1.5",
        "- j > 2",
        "abs(j) = 3",
        "abs(d) > 900",
        "j + d < 1",
    ),
    *("x + y > 1", "x * 2 = 3", "- x < 0", "abs(x) > 1", "d - 0.5 > 1", "i / 4 > 3", "x / 2 < 1"),
    *(
        f"{part}(e) {sign}"
        for part, sign in [("year", "> 1999"), ("quarter", "= 2"), ("month", "= 2"), ("day", "> 28")]
    ),
    *(
        "dayofweek(e) = 1",
        "dayofyear(e) = 60",
        "last_day(e) = DATE'2020-02-29'",
        "add_months(e, 13) > DATE'2001-03-31'",
    ),
    *("e + 30 > DATE'2000-01-01'", "date_sub(e, 1) < DATE'1970-01-01'", "datediff(e, DATE'2000-01-01') > 100"),
    *(f"trunc(e, '{unit}') = e" for unit in ("year", "quarter", "month", "week")),
    *(f"{part}({column}) = 1" for part in ("hour", "minute", "second", "month", "day") for column in ("t", "n")),
    *(f"date_trunc('{unit}', t) = t" for unit in _UNITS),
    *(f"date_trunc('{unit}', t) > TIMESTAMP'2021-10-31 00:30:00Z'" for unit in _UNITS),
    *("to_date(t) = DATE'2021-10-31'", "CAST(t AS DATE) >= DATE'2018-11-04'", "CAST(n AS DATE) = DATE'2021-03-28'"),
    *("CAST(n AS TIMESTAMP) = t", "e < DATE'2000-01-02' OR CAST(e AS TIMESTAMP) > TIMESTAMP'2004-01-01 00:00:00Z'"),
    *("CAST(t AS TIMESTAMP_NTZ) > n", "CAST(n AS TIMESTAMP) < TIMESTAMP'2018-11-04 02:30:00Z'"),
    *("s LIKE 'a%'", "s LIKE '%c'", "s LIKE '%b%'", "s LIKE 'a_c'", "s LIKE '_'", "s LIKE 'a\\\\%c'", "s LIKE '%_b%c'"),
    *("s NOT LIKE '%a%b%'", "s LIKE ''", "s LIKE '%'", "s LIKE 'ab_c'", "s LIKE 'a!%%' ESCAPE '!'", "s LIKE '__'"),
    *("startswith(s, 'ab')", "lower(s) = 'abc'", "upper(s) = 'ABC'", "lower(s) = lower(u)", "upper(s) < upper(u)"),
    *("length(s) = 3", "left(s, 2) = 'ab'", "substring(s, 1, 1) = 'a'"),
    *("lower(s) LIKE '%\u03c3%'", "lower(s) LIKE '%ς'"),
    *(
        "coalesce(i, 3) = 3",
        "coalesce(s, u, 'x') > 'b'",
        "coalesce(x, 0.0D) = 0",
        "i IS NULL AND coalesce(i, 5) IS NULL",
    ),
    *(
        "CAST(j AS BIGINT) = 3",
        "CAST(i AS DOUBLE) > 0.5",
        "CAST(d AS INT) = 1",
        "CAST(b AS INT) = 1",
        "CAST(l AS DOUBLE) > 9",
    ),
    *("CAST(j AS DECIMAL(10,2)) = d", "CAST(y AS DOUBLE) > 0.25", "CAST(d AS DECIMAL(12,4)) < 1.2345"),
    # The first side decides: what would fail behind it is never computed.
    *("i = 0 OR i < 0 OR 10 / i > 1", "i < 1000 AND i > -1000 AND i + 1 > 0", "coalesce(l, l * 10) < 3"),
)
#: Conditions that fail, in ANSI mode, for some row of the table.
FAILING = (
    *("i + 1 > 0", "- i > 0", "abs(i) > 0", "10 / i > 1", "x / y > 0 OR 1 / x > 0", "CAST(x AS INT) > 0", "l * 4 > 0"),
    *("CAST(l AS INT) = 1", "CAST(d AS TINYINT) = 1", "CAST(i AS DECIMAL(5,2)) = 1", "i * 2 > 0 OR i = 0", "x / 0 > 1"),
)
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Beirut", "+05:45")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.few(3)
def test_spark_decides_every_row_the_same(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Truth, falsehood and null of every condition, in time zones whose clocks jump in every way."""
    table = _table(Random(zone))
    decided = _decided(table, tmp_path, zone)
    refused = [condition for condition in CONDITIONS if condition not in decided]
    assert len(refused) <= len(CONDITIONS) // 20, refused
    with setting(spark, spark__sql__session__timeZone=zone):
        answer = _ask(spark, tmp_path, list(decided))
    for condition, column in zip(decided, answer.columns, strict=True):
        wrong = [
            (row, mine, spark_says)
            for row, mine, spark_says in zip(table.to_pylist(), decided[condition], column.to_pylist(), strict=True)
            if mine is not spark_says
        ]
        assert not wrong, f"{condition} in {zone}: {len(wrong)} rows differ, first {wrong[0]}"


def test_what_fails_in_spark_fails_here(spark: SparkSession, tmp_path: Path) -> None:
    """A condition that Spark's ANSI mode cannot compute for some row has failed rows here too."""
    table = _table(Random(1))
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    schema = schema_of(read_footer(FsspecStore(), f"file://{path}"))
    for condition in FAILING:
        ours = RowFilter(read_filter(condition), schema)
        columns = {leaf.id: table.column(leaf.name) for leaf in schema.leaves()}
        failed = ours.decide(columns, table.num_rows).failed
        assert failed is not None, condition
        assert failed.any(), condition
        with pytest.raises(PySparkException):
            _ask(spark, tmp_path, [condition])


def _decided(table: pa.Table, folder: Path, zone: str) -> dict[str, list[bool | None]]:
    path = folder / "t.parquet"
    pq.write_table(table, path)
    schema = schema_of(read_footer(FsspecStore(), f"file://{path}"))
    columns = {leaf.id: table.column(leaf.name) for leaf in schema.leaves()}
    found: dict[str, list[bool | None]] = {}
    for condition in CONDITIONS:
        try:
            ours = RowFilter(read_filter(condition, time_zone=zone), schema, time_zone=zone)
        except FilterNotEvaluable:
            continue
        truth = ours.decide(columns, table.num_rows)
        assert truth.failed is None or not truth.failed.any(), f"{condition} in {zone}: {truth.reason}"
        null = np.asarray(truth.null).tolist()
        found[condition] = [None if n else bool(t) for t, n in zip(truth.true.tolist(), null, strict=True)]
    return found


def _ask(spark: SparkSession, folder: Path, conditions: list[str]) -> pa.Table:
    frame = spark.read.parquet(str(folder / "t.parquet"))
    return frame.selectExpr(*(f"({condition}) AS c{at}" for at, condition in enumerate(conditions))).toArrow()
