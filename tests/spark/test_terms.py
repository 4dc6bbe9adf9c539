"""Functions, casts, arithmetic and columns beside columns in Spark's SQL: they prune, and lose no row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.snapshot.errors import EvaluationFailed, FilterNotEvaluable
from spark.lakes import Lakes, LakeTable, assert_same_rows, blocks_read, no_pushdown, plan, setting
from support import generate, generate_terms
from support.arrow_files import arrow_table
from support.oracle import Oracle
from support.spark_sql import sql_of

pytestmark = pytest.mark.spark

BLOCKS = 8
CONDITIONS = [
    "small + 1 > 40",
    "small + 100Y < 0",
    "CAST(x AS INT) = 3",  # overflows without ANSI mode
    "n * 2L > 700000000000",
    "-n = -390",
    "abs(n - 10) < 5",
    "n / 2 > 190",
    "n % 2 = 1 AND n + 0 > 390",
    "d + 1 > 4.95",
    "d * 2 = 7.80",
    "x * 2 < 5.0",
    "year(day) = 2025",
    "month(day) = 2 AND year(day) = 2024",
    "day(day) <= 2 AND day < '2024-02-01'",
    "quarter(ts) = 2",
    "hour(ts) = 3 AND CAST(ts AS DATE) = '2024-03-31'",
    "CAST(ts AS DATE) = DATE '2024-03-31'",
    "to_date(ts) BETWEEN '2024-04-01' AND '2024-04-10'",
    "date_trunc('MONTH', ts) = TIMESTAMP '2024-05-01'",
    "date_trunc('week', ts) < TIMESTAMP '2024-01-09'",
    "trunc(day, 'QUARTER') = DATE '2025-01-01'",
    "date_add(day, 7) < DATE '2024-01-15'",
    "day + 7 > DATE '2025-01-30'",
    "date_sub(day, n) = DATE '2024-01-01' AND n > 380",
    "add_months(day, 1) = DATE '2024-02-29'",
    "last_day(day) = DATE '2024-02-29'",
    "datediff(day, DATE '2024-01-01') > 390",
    "day = to_date(ts) AND day > '2025-01-01'",
    "left(s, 5) = 'row-3'",
    "substring(s, 1, 6) = 'row-39'",
    "upper(s) LIKE 'ROW-39%'",
    "lower(s) = 'row-007'",
    "length(s) = 7 AND s < 'row-020'",
    "coalesce(n, 0) > 395",
    "nvl(d, 0) > 3.95",
    "coalesce(s, 'none') = 'none'",
    "n > later",
    "n < later - 900",
    "n <=> later",
    "small = n",
    "CAST(n AS BIGINT) + 5000000000 > 5000000390",
    "CAST(x AS INT) = 3",
    "CAST(d AS INT) = 3",
    "st.a + 1 = 7",
    "year(st.at) = 2024 AND month(st.at) = 1",
    "NOT (n + 1 > 20)",
    "n + 1 > 390 OR year(day) < 2024",
    "n + 1 IN (5, 395)",
    "hour(wall) = 5 AND wall < TIMESTAMP_NTZ '2024-01-03'",
    "day + INTERVAL 30 DAYS < DATE '2024-02-05'",
    "day - INTERVAL 1 MONTH > DATE '2024-12-20'",
    "day + INTERVAL 5 HOURS < TIMESTAMP '2024-01-03 00:00:00'",
    "ts + INTERVAL '1 2' DAY TO HOUR < TIMESTAMP '2024-01-05 00:00:00'",
    "ts - INTERVAL 1 YEAR > TIMESTAMP '2024-01-20 00:00:00'",
    "wall + INTERVAL 2 MONTHS < TIMESTAMP_NTZ '2024-03-05 00:00:00'",
    "timestampadd(HOUR, 30, ts) < TIMESTAMP '2024-01-05 00:00:00'",
    "day - DATE '2024-01-01' > INTERVAL '390' DAY",
    "ts - TIMESTAMP '2024-01-01 00:00:00' > INTERVAL '390' DAY",
    "TIMESTAMP '2025-02-01 00:00:00' - ts < INTERVAL '5' DAY",
    "timestampdiff(DAY, TIMESTAMP '2024-01-01 00:00:00', ts) > 390",
    "timestampdiff(HOUR, ts, TIMESTAMP '2025-02-01 00:00:00') < 100",
    "CASE WHEN n < 10 THEN 'low' WHEN n < 390 THEN 'middle' ELSE 'high' END = 'low'",
    "CASE WHEN s < 'row-200' THEN later ELSE n END > 395",
    "IF(n > 200, n, 0) > 390",
    "CASE WHEN n IS NULL THEN day > '2025-01-25' ELSE n > 395 END",
    "nullif(n, 5) < 3",
    "nvl2(s, n, -1) > 390",
    "decode(n, 1, 'a', 2, 'b', 'other') IN ('a', 'b')",
    "floor(x) = 3",
    "ceil(d) > 3 AND floor(d) > 2",
    "round(x, 1) < 0.5",
    "round(d, 1) > 3.9",
    "n DIV 100 = 3",
    "n % 1000 > 395",
    "pmod(later, 10000) < 100",
    "n >> 4 = 24",
    "n << 1 > 790",
    "greatest(n, small) > 395",
    "least(later, 1000) < -290",
    "concat(s, '-x') > 'row-390'",
    "s || '!' = 'row-399!'",
    "trim(s) = 'row-399'",
    "date_format(day, 'yyyy-MM') = '2025-01'",
    "date_format(ts, 'yyyyMMddHH') < '2024010500'",
    "unix_date(day) < 19730",
    "unix_seconds(ts) < 1704240000",
    "unix_timestamp(day) < 1704240000",
    "CAST(ts AS BIGINT) < 1704240000",
    "weekofyear(day) = 1 AND day < '2024-02-01'",
    "weekday(day) = 6 AND day > '2025-01-20'",
    "s RLIKE '^row-39'",
    "s RLIKE '^row-0[0-4]'",
    "CAST(day AS STRING) >= '2025-01-25'",
    "CAST(ts AS STRING) < '2024-01-03'",
    "CAST(n AS STRING) = '399'",
    "(n, small) = (399, 99Y)",
    "(later, n) < (-290L, 0)",
    "(n, small) IN ((1, 0Y), (399, 99Y))",
    "st = named_struct('a', 398, 'at', TIMESTAMP '2025-02-02 03:00:00')",
    "(n > 390 AND day > '2025-01-01') IS NULL AND day > '2025-01-20'",
    "(n > 5) = (later > 5) AND n > 395",
    "ilike(s, 'ROW-39%')",
    "s LIKE ANY ('row-01%', '%-399')",
    "s NOT LIKE ANY ('row-0%', 'row-1%')",
    "s NOT LIKE ALL ('row-0%', 'row-1%', 'row-2%')",
    "s LIKE ALL ('row%', '%39_')",
    "NOT (s LIKE ANY ('row-0%', 'row-1%'))",
    "s NOT ILIKE ANY ('ROW-0%', 'ROW-1%')",
    "s NOT RLIKE '^row-[0-2]' AND n > 200",
    "ts + make_interval(0, 0, 0, 3) < TIMESTAMP '2024-01-05 00:00:00'",
    "day - make_interval(1, 1) > DATE '2024-01-01'",
]
#: Not by minimum and maximum: pyarrow's footers do not say that a column has no NaN, which fails in a cast.
NOT_PRUNED = frozenset(
    {
        *("n <=> later", "small = n", "small + 100Y < 0", "CAST(x AS INT) = 3"),
        *("s LIKE ANY ('row-01%', '%-399')", "s LIKE ALL ('row%', '%39_')"),  # by their endings
        *("s NOT LIKE ANY ('row-0%', 'row-1%')", "s NOT ILIKE ANY ('ROW-0%', 'ROW-1%')"),
        "ts + make_interval(0, 0, 0, 3) < TIMESTAMP '2024-01-05 00:00:00'",  # may have months, too
        "day - make_interval(1, 1) > DATE '2024-01-01'",
        *("coalesce(s, 'none') = 'none'", "quarter(ts) = 2", "CAST(n AS STRING) = '399'", "floor(x) = 3"),
    }
)


@pytest.fixture(scope="module")
def rising(lakes: Lakes) -> LakeTable:
    """Eight blocks whose values rise from block to block, a day a row."""
    blocks = []
    for at in range(BLOCKS):
        ids = list(range(at * 50, at * 50 + 50))
        days = [dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in ids]
        walls = [dt.datetime(2024, 1, 1, 5) + dt.timedelta(days=i) for i in ids]  # noqa: DTZ001
        times = [wall.replace(hour=3, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(dt.UTC) for wall in walls]
        columns = {
            "n": pa.array([None if i % 10 == 3 else i for i in ids], pa.int32()),
            "later": pa.array([i + at * 150 - 300 for i in ids], pa.int64()),
            "small": pa.array([i // 4 for i in ids], pa.int8()),
            "x": pa.array([i / 7 for i in ids], pa.float64()),
            "d": pa.array([Decimal(i) / 100 for i in ids], pa.decimal128(10, 2)),
            "s": pa.array([None if i % 10 == 3 else f"row-{i:03}" for i in ids]),
            "day": pa.array(days),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "wall": pa.array(walls, pa.timestamp("us")),
        }
        columns["st"] = pa.StructArray.from_arrays([columns["n"], columns["ts"]], names=["a", "at"])
        blocks.append(pa.table(columns))
    return lakes.of(*blocks)


@pytest.fixture(scope="module")
def truth(spark: SparkSession, rising: LakeTable) -> dict[str, list[int]]:
    """For each condition, the rows of a full scan that match, by the column that is another in each."""
    found = [F.expr(f"sort_array(collect_list(IF({text}, later, NULL)))") for text in CONDITIONS]
    with setting(spark, spark__sql__ansi__enabled="false"), no_pushdown(spark):
        (row,) = rising.full_scan(spark).agg(*found).collect()
    return dict(zip(CONDITIONS, row, strict=True))


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.few(10)
def test_a_function_in_the_where_clause_prunes_and_loses_no_row(
    spark: SparkSession, rising: LakeTable, truth: dict[str, list[int]], condition: str
) -> None:
    """The rows are a full scan's; where minimum and maximum can tell, blocks are left out."""
    with setting(spark, spark__sql__ansi__enabled="false"):
        frame = spark.table(rising.sql).where(condition)
        assert sorted(row.later for row in frame.select("later").collect()) == truth[condition]
        selected, total = blocks_read(frame)
        assert total == BLOCKS
        assert selected < total or condition in NOT_PRUNED, plan(frame)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.few(40)
def test_the_service_reads_the_text_of_a_condition_as_spark_does(
    spark: SparkSession, rising: LakeTable, truth: dict[str, list[int]], condition: str
) -> None:
    """By a reader of SQL of its own: no block with a matching row is left out, and a scan that decides rows finds the
    same ones."""
    handle, zone = rising.lake.table(rising.name), str(spark.conf.get("spark.sql.session.timeZone"))
    selected = {block.location for block in handle.prune(condition, time_zone=zone).records()}
    for block in handle.prune(None).records():
        rows = pq.read_table(block.location.removeprefix("file://"), columns=["later"]).column(0).to_pylist()
        assert block.location in selected or not set(rows) & set(truth[condition]), block.location
    try:
        found = handle.scan(condition, time_zone=zone, columns=["later"]).to_arrow()
    except (FilterNotEvaluable, EvaluationFailed):
        return  # a part that is unknown, or a row that ANSI mode refuses to compute
    assert sorted(found.column(0).to_pylist()) == truth[condition]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe", "+05:30", "Asia/Kolkata"])
@pytest.mark.few(3)
def test_a_part_of_a_time_is_that_of_the_sessions_zone(spark: SparkSession, rising: LakeTable, zone: str) -> None:
    """The service is told the session's zone: the same text asks for other blocks elsewhere."""
    with setting(spark, spark__sql__session__timeZone=zone):
        for condition in ("CAST(ts AS DATE) = '2024-03-31'", "hour(ts) < 12", "date_trunc('month', ts) = '2024-05-01'"):
            assert_same_rows(spark, rising, condition)
        assert blocks_read(spark.table(rising.sql).where("date_trunc('month', ts) = '2024-05-01'"))[0] <= 2


def test_what_says_nothing_is_null_where_its_column_is(spark: SparkSession, lakes: Lakes) -> None:
    """Contains and EndsWith leave out blocks of nulls only."""
    table = lakes.of(pa.table({"s": ["a%b", "c"]}), pa.table({"s": pa.array([None, None], pa.string())}))
    for condition in ("s LIKE '%a%'", "contains(s, '%')", "endswith(s, '_')", "NOT contains(s, 'z')"):
        assert_same_rows(spark, table, condition)
        assert blocks_read(spark.table(table.sql).where(condition)) == (1, 2)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, *range(2, 24)))])
def test_random_terms_through_sql_equal_a_full_scan(spark: SparkSession, lakes: Lakes, seed: int) -> None:
    """Filters of the whole language through the catalog, with ANSI mode and without, in many time zones."""
    rng = Random(seed)
    schema = generate.schema(rng, generate.SPARK_TYPES)
    blocks = [block for block in generate_terms.table(rng, schema, blocks=6) if generate.rows_of(block)]
    table = lakes.of(
        *(arrow_table(schema, block) for block in blocks or [{leaf.name: [None] for leaf in schema.leaves()}])
    )
    zone, ansi = rng.choice(generate_terms.ZONES), seed % 2 == 1
    oracle = Oracle(schema, zone)
    draw = generate_terms.predicates(rng, schema, oracle, blocks)
    rows = [row for block in blocks for row in generate.rows_of(block)]
    sampled = [draw() for _ in range(30)]
    texts = [sql_of(each) for each in sampled if not ansi or not any(oracle.may_fail(each, row) for row in rows)]
    with setting(spark, spark__sql__session__timeZone=zone, spark__sql__ansi__enabled=str(ansi).lower()):
        counts = [F.expr(f"count_if(coalesce({text}, false))") for text in texts]
        with no_pushdown(spark):
            (truth,) = table.full_scan(spark).agg(F.count("*"), *counts).collect()
        for text, expected in zip(texts, truth[1:], strict=True):
            assert spark.table(table.sql).where(text).count() == expected, f"seed {seed}: {text}, {zone}, ANSI {ansi}"
