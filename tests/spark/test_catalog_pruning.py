"""Filters through SQL: the blocks that are read, and the rows, which must be those of a full scan."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import datetime as dt
import math
import random
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lamella.client.spark import attach, write
from spark.lakes import (
    CATALOG,
    Lakes,
    LakeTable,
    assert_same_rows,
    blocks_read,
    fresh,
    no_pushdown,
    numbers,
    plan,
    setting,
)

pytestmark = pytest.mark.spark

BERLIN_FALLS_BACK = dt.datetime(2024, 10, 27, 1, 0, tzinfo=dt.UTC)  # 03:00 summer time becomes 02:00 winter time


@pytest.fixture(scope="module")
def everything(lakes: Lakes) -> LakeTable:
    """Eight blocks with a column of each kind, values rising from block to block, and some nulls."""
    blocks = []
    for at in range(8):
        ids = list(range(at * 50, at * 50 + 50))
        some = [None if i % 10 == 3 else i for i in ids]
        blocks.append(
            pa.table(
                {
                    "i": pa.array(ids, pa.int64()),
                    "small": pa.array([i % 128 for i in ids], pa.int8()),
                    "u32": pa.array([(1 << 32) - 1 - i for i in ids], pa.uint32()),
                    "u64": pa.array([(1 << 64) - 1 - i for i in ids], pa.uint64()),
                    "n": pa.array(some, pa.int32()),
                    "x": pa.array([float("nan") if i % 17 == 0 else i / 7 for i in ids], pa.float64()),
                    "f": pa.array([i / 10 for i in ids], pa.float32()),
                    "d": pa.array([Decimal(i) / 100 for i in ids], pa.decimal128(20, 2)),
                    "big": pa.array([Decimal(10) ** 30 + i for i in ids], pa.decimal128(38, 0)),
                    "s": pa.array([None if v is None else f"käse-{v:04}" for v in some]),
                    "raw": pa.array([i.to_bytes(4, "big") for i in ids], pa.binary()),
                    "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=i) for i in ids]),
                    "ts": pa.array([BERLIN_FALLS_BACK + dt.timedelta(minutes=i - 200) for i in ids]),
                    "ntz": pa.array([dt.datetime(2024, 10, 27) + dt.timedelta(minutes=i) for i in ids]),  # noqa: DTZ001
                    "ok": pa.array([i >= 200 for i in ids]),
                    "st": pa.array([{"a": i, "in": {"b": f"{i:04}"}} for i in ids]),
                    "l": pa.array([[i, i + 1] for i in ids]),
                    "dotted.name": pa.array(ids, pa.int32()),
                }
            )
        )
    return lakes.of(*blocks)


CONDITIONS = [
    # condition, blocks that may be read at most
    ("i = 120", 1),
    ("120 = i", 1),
    ("i < 50", 1),
    ("i <= 50", 2),
    ("i > 399", 0),
    ("350 <= i", 1),
    ("i BETWEEN 90 AND 110", 2),
    ("i IN (1, 399)", 2),
    ("i IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 399)", 2),
    ("i NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", 8),
    ("i IN (1, NULL, 399)", 2),
    ("i NOT IN (1, NULL)", 8),
    ("NOT (i < 350)", 1),
    ("NOT (i < 350 OR i > 380)", 1),
    ("i < 10 OR i > 390", 2),
    ("(i < 10 AND n > 0) OR day = DATE '2024-12-01'", 2),
    ("i <=> 120", 1),
    ("NOT (i <=> 120)", 8),
    ("i = 120 AND rand(1) < 2", 1),
    ("small = 127", 8),
    ("u32 = 4294967295", 1),
    ("u32 > 4294967200", 2),
    ("u64 = 18446744073709551615", 1),
    ("u64 < 18446744073709551300", 2),
    ("n IS NULL", 8),
    ("n IS NOT NULL AND n < 20", 1),
    ("x > 50", 8),
    ("x < 5", 1),
    ("x = double('NaN')", 8),
    ("isnan(x)", 8),
    ("NOT isnan(x) AND x <= 1", 8),
    ("f = CAST(0.1 AS FLOAT)", 1),
    ("f < CAST(1.5 AS FLOAT)", 1),
    ("d = 1.25", 1),
    ("d >= 3.50 AND d < 3.60", 1),
    ("d IN (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.10, 0.11, 3.99)", 2),
    ("big = 1000000000000000000000000000120", 1),
    ("s = 'käse-0120'", 1),
    ("s LIKE 'käse-000%'", 1),
    ("s LIKE 'käse-00_0'", 2),
    ("startswith(s, 'käse-039')", 1),
    ("s IN ('käse-0001', 'null', 'käse-0002')", 1),
    ("upper(s) = 'KÄSE-0120'", 8),
    ("s COLLATE UNICODE_CI = 'KÄSE-0120'", 8),
    ("CAST(s AS CHAR(20)) = 'käse-0120'", 8),
    ("raw = X'00000078'", 1),
    ("raw IN (X'00000001', X'00000002')", 1),
    ("day = DATE '2024-02-01'", 1),
    ("day >= DATE '2025-01-25'", 1),
    ("ts < TIMESTAMP '2024-10-26 23:00:00Z'", 2),
    ("ntz < TIMESTAMP_NTZ '2024-10-27 00:10:00'", 1),
    ("ok", 4),
    ("NOT ok", 4),
    ("ok = true AND i < 210", 1),
    ("st.a = 120", 1),
    ("st.in.b = '0120'", 1),
    ("st.a IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 399)", 2),
    ("array_contains(l, 120)", 8),
    ("`dotted.name` = 120", 1),
    ("i + 1 = 121", 8),
    ("CAST(i AS STRING) = '120'", 8),
    ("i = n", 8),
    ("i < 10 AND upper(s) LIKE '%5'", 1),
    ("false", 0),
]


@pytest.fixture(scope="module")
def truth(spark: SparkSession, everything: LakeTable) -> dict[str, list[int]]:
    """The ids that each condition selects, all from one scan that nothing is pushed into."""
    everything.full_scan(spark).createOrReplaceTempView("everything")
    # An aggregate cannot filter by chance; the condition that has some is certain all the same.
    certain = [condition.replace("rand(1) < 2", "true") for condition, _ in CONDITIONS]
    chosen = ", ".join(f"sort_array(array_agg(i) FILTER (WHERE {condition}))" for condition in certain)
    # One expression of this size takes longer to compile than to interpret.
    with no_pushdown(spark), setting(spark, spark__sql__codegen__wholeStage="false"):
        row = spark.sql(f"SELECT {chosen} FROM everything").collect()[0]
    return {condition: list(ids) for (condition, _), ids in zip(CONDITIONS, row, strict=True)}


@pytest.mark.parametrize(("condition", "max_blocks"), CONDITIONS, ids=[condition for condition, _ in CONDITIONS])
@pytest.mark.few(24)
def test_a_filter_reads_few_blocks_and_gives_the_rows_of_a_full_scan(
    spark: SparkSession, everything: LakeTable, truth: dict[str, list[int]], condition: str, max_blocks: int
) -> None:
    """Whatever the condition: never a row less, and no more blocks than its statistics need."""
    frame = spark.table(everything.sql).where(condition).select("i")
    assert sorted(row.i for row in frame.collect()) == truth[condition]
    if "Lamella" in plan(frame):  # Spark answers some conditions without a scan
        selected, total = blocks_read(frame)
        assert (selected <= max_blocks, total) == (True, 8), plan(frame)


PARTS: list[tuple[str, list[Any]]] = [
    ("i", [-1, 0, 49, 50, 123, 399, 400]),
    ("n", [0, 3, 51, 377]),
    ("u64", ["18446744073709551615", "18446744073709551300"]),
    ("x", ["0.0D", "-0.0D", "7.0D", "57.0D", "double('NaN')"]),
    ("d", ["0.00", "1.25", "3.99"]),
    ("s", ["'käse-0000'", "'käse-0120'", "'z'", "''"]),
    ("day", ["DATE '2024-01-01'", "DATE '2024-06-01'", "DATE '1500-01-01'"]),
    ("ts", ["TIMESTAMP '2024-10-27 02:30:00+02:00'", "TIMESTAMP '2024-10-27 02:30:00+01:00'"]),
    ("st.a", [0, 150, 399]),
]


def random_condition(rng: random.Random, depth: int = 0) -> str:
    """Comparisons, lists and tests for null of any column, joined and negated at random."""
    if depth < 3 and rng.random() < 0.6:
        left, right = random_condition(rng, depth + 1), random_condition(rng, depth + 1)
        joined = f"({left} {rng.choice(['AND', 'OR'])} {right})"
        return f"NOT {joined}" if rng.random() < 0.3 else joined
    column, values = rng.choice(PARTS)
    kind = rng.random()
    if kind < 0.15:
        return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
    if kind < 0.35:
        chosen = [str(value) for value in rng.sample(values, rng.randint(1, len(values)))]
        nulls = ["NULL"] if rng.random() < 0.2 else []
        return f"{column} {rng.choice(['', 'NOT '])}IN ({', '.join(chosen + nulls)})"
    return f"{column} {rng.choice(['=', '<=>', '<', '<=', '>', '>=', '!='])} {rng.choice(values)}"


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 32))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_conditions_lose_no_row(spark: SparkSession, everything: LakeTable, seed: int) -> None:
    """Forty conditions, each a scan of its own in one query: the rows are those of a scan that skips nothing."""
    rng = random.Random(seed)
    conditions = [random_condition(rng) for _ in range(40)]
    everything.full_scan(spark).createOrReplaceTempView("everything")
    counts = ", ".join(f"count_if(coalesce({condition}, false))" for condition in conditions)
    scans = " UNION ALL ".join(
        f"SELECT {at} AS n, count(*) AS c FROM {everything.sql} WHERE {condition}"
        for at, condition in enumerate(conditions)
    )
    with no_pushdown(spark), setting(spark, spark__sql__codegen__wholeStage="false"):
        truth = list(spark.sql(f"SELECT {counts} FROM everything").collect()[0])
    with setting(spark, spark__sql__codegen__wholeStage="false"):
        found = dict(tuple(row) for row in spark.sql(scans).collect())
    differing = [(condition, found[at], truth[at]) for at, condition in enumerate(conditions) if found[at] != truth[at]]
    assert differing == []


def test_files_of_narrower_types_and_fewer_columns_are_read_as_the_table(spark: SparkSession, lakes: Lakes) -> None:
    """A block may have int32 where the table has int64, and lack columns that were added since."""
    wide = pa.schema([("a", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(20, 4)), ("new", pa.string())])
    narrow = pa.table(
        {
            "a": pa.array([1, 2], pa.int32()),
            "f": pa.array([0.5, float("nan")], pa.float32()),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(6, 2)),
        }
    )
    same = pa.table({"a": [1 << 40], "f": [2.5], "d": [Decimal(7)], "new": ["x"]}, schema=wide)
    table = lakes.empty(wide).add(narrow, same)
    for condition in ("a = 2", "a > 2", "f > 1", "d = 1.5", "new IS NULL", "new = 'x'", "d IS NULL", "f = 0.5"):
        assert assert_same_rows(spark, table, condition) > 0
    assert blocks_read(_ran(spark.table(table.sql).where("new = 'x'"))) == (1, 2)
    assert blocks_read(_ran(spark.table(table.sql).where("d = 1.5"))) == (1, 2)


def _ran(frame: DataFrame) -> DataFrame:
    frame.collect()
    return frame


def test_a_list_of_five_thousand_values_prunes(spark: SparkSession, everything: LakeTable) -> None:
    """Long lists go over exactly, in a few calls rather than one a value."""
    values = [*range(1000, 5998), 3, 399]
    frame = spark.table(everything.sql).where(F.col("i").isin(values))
    assert sorted(row.i for row in frame.collect()) == [3, 399]
    assert blocks_read(frame) == (2, 8)


@pytest.mark.parametrize("offset", ["+02:00", "+01:00"])
def test_a_wall_clock_time_that_comes_twice_is_distinguished(
    spark: SparkSession, everything: LakeTable, offset: str
) -> None:
    """02:30 on the night clocks go back is two instants; text of plans shows one, the filter must not mix them up."""
    condition = f"ts = TIMESTAMP '2024-10-27 02:30:00{offset}'"
    assert assert_same_rows(spark, everything, condition) == 1
    frame = spark.table(everything.sql).where(condition)
    frame.collect()
    assert blocks_read(frame) == (1, 8)


def test_conditions_of_any_depth_and_length_are_accepted(spark: SparkSession, everything: LakeTable) -> None:
    """A chain of thousands of ORs and deep nesting must not fail the query, whatever they prune."""
    chain = " OR ".join(f"i * 2 = {value * 4}" for value in range(600))
    assert spark.table(everything.sql).where(chain).count() == 200
    nested = "i = 7"
    for at in range(60):
        nested = f"({nested} OR s = '{at}') AND n IS NOT NULL"
    assert spark.table(everything.sql).where(nested).count() == 1


def test_only_needed_columns_are_read_by_the_vectorised_reader(spark: SparkSession, everything: LakeTable) -> None:
    """Columns are pruned, also inside structs, and Spark's columnar Parquet reader does the reading."""
    frame = spark.table(everything.sql).where("i < 10").select("s", "st.a")
    frame.collect()
    text = plan(frame)
    assert "ColumnarToRow" in text
    scan = next(line for line in text.splitlines() if "BatchScan" in line)
    assert re.search(r"BatchScan lake\.\S+\[(i|s|st)#\d+L?, (i|s|st)#\d+L?, (i|s|st)#\d+L?\]", scan), scan
    assert frame._jdf.queryExecution().optimizedPlan().schema().simpleString() == "struct<s:string,a:bigint>"


def test_the_plan_says_what_was_selected_and_why(spark: SparkSession, everything: LakeTable) -> None:
    """EXPLAIN names table, snapshot, blocks kept of all, and the filter that was sent."""
    text = spark.sql(f"EXPLAIN SELECT s FROM {everything.sql} WHERE i < 10 AND reverse(s) = 'X'").collect()[0][0]
    expected = f"Lamella {everything.name}@{everything.snapshot_id()} blocks=1/8"
    assert expected in text
    assert "i < 10" in text
    assert "UNKNOWN[(reverse(s) = X)]" in text


def test_an_empty_table_and_an_empty_result_have_their_schema(spark: SparkSession, lakes: Lakes) -> None:
    """No block at all is not an error."""
    table = lakes.empty(numbers(1)[0].schema)
    assert spark.table(table.sql).collect() == []
    assert spark.table(table.sql).agg(F.count("*")).collect()[0][0] == 0
    table.add(*numbers(2))
    assert spark.table(table.sql).where("a = 1000").collect() == []


def test_nan_rows_of_a_file_whose_statistics_leave_nan_out_are_found(spark: SparkSession, lakes: Lakes) -> None:
    """NaN is above every number in Spark; the writer's max is 1.0, and Spark's own skipping would lose the row."""
    table = lakes.of(pa.table({"x": [1.0, float("nan")]}))
    rows = spark.table(table.sql).where("x > 5").collect()
    assert [math.isnan(row.x) for row in rows] == [True]
    for condition in ("x != 1", "NOT (x <= 5)", "x = double('NaN')", "x <=> double('NaN')", "x IN (double('NaN'))"):
        assert assert_same_rows(spark, table, condition) == 1


def test_zeros_of_both_signs_are_equal_behind_dictionaries(spark: SparkSession, lakes: Lakes) -> None:
    """-0.0 and 0.0 compare equal in Spark and differ in a Parquet dictionary."""
    zeros = pa.table({"x": pa.array([0.0, -0.0] * 50), "i": list(range(100))})
    table = lakes.of(zeros, use_dictionary=True)
    for condition in ("x = 0.0D", "x = -0.0D", "x <= -0.0D", "x >= 0.0D", "x IN (-0.0D)"):
        assert assert_same_rows(spark, table, condition) == 100


def test_float_filters_stay_out_of_sparks_own_skipping_and_others_go_in(
    spark: SparkSession, everything: LakeTable
) -> None:
    """Sound filters reach the Parquet reader, those on FLOAT and DOUBLE never do."""
    frame = spark.table(everything.sql).where("i < 10 AND x > 5 AND f > 1 AND s > 'a'")
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    reader = scan.readerFactory()
    pushed = [str(item) for item in reader.filters()]
    assert any("LessThan(i,10)" in item for item in pushed)
    assert not [item for item in pushed if re.search(r"\((x|f)[,)]", item)]


def test_column_indexes_are_used_only_where_they_are_trusted(
    spark: SparkSession, lakes: Lakes, everything: LakeTable
) -> None:
    """A wrong column index loses rows: it is used for blocks of Lamella's own jobs, or when the user says so."""

    def used(name: str) -> bool:
        frame = spark.table(name).where("i < 10")
        scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
        conf = scan.readerFactory().broadcastedConf().value().value()
        assert conf.get("parquet.filter.stats.enabled") is None
        return str(conf.get("parquet.filter.columnindex.enabled")) != "false"

    assert not used(everything.sql)
    own = f"{fresh('own')}.t"
    write(spark.range(100).withColumnRenamed("id", "i"), own, client=lakes.lake)
    assert used(f"{CATALOG}.{own}")
    lakes.lake.table(own).register([str(_copy(lakes.lake.table(own).prune().locations[0]))])
    assert not used(f"{CATALOG}.{own}")
    attach(spark, "trusting", lakes.lake, page_index=True)
    assert used(f"trusting.{everything.name}")
    attach(spark, "doubting", lakes.lake, page_index=False)
    assert not used(f"doubting.{own}")


def test_pushdown_switched_off_changes_nothing(spark: SparkSession, everything: LakeTable) -> None:
    """Blocks are pruned by the service, whatever Spark's reader may use for itself."""
    with no_pushdown(spark):
        frame = spark.table(everything.sql).where("i = 120")
        assert len(frame.collect()) == 1
        assert blocks_read(frame) == (1, 8)


def test_a_case_sensitive_session_reads_the_same(spark: SparkSession, everything: LakeTable) -> None:
    """Names reach the service as the table spells them."""
    with setting(spark, spark__sql__caseSensitive="true"):
        assert_same_rows(spark, everything, "i = 120")
    frame = spark.table(everything.sql).where("I = 120")
    assert len(frame.collect()) == 1
    assert blocks_read(frame) == (1, 8)


def test_columns_that_spark_cannot_read_do_not_spoil_the_others(spark: SparkSession, lakes: Lakes) -> None:
    """They are described and named in the error; a query that does not touch them works."""
    half = pa.array([1.0, 2.0], pa.float32()).cast(pa.float16())
    nanos = pa.array([1, 2], pa.timestamp("ns", "UTC"))
    table = lakes.of(pa.table({"a": [1, 2], "h": half, "t": nanos}), version="2.6")
    described = {row["col_name"]: row["comment"] for row in spark.sql(f"DESCRIBE {table.sql}").collect()}
    assert "float16" in described["h"]
    assert spark.table(table.sql).where("a > 1").select("a").collect()[0].a == 2
    assert spark.table(table.sql).count() == 2
    with pytest.raises(SparkRuntimeException, match=r"h \(float16\), t \(timestamp\(ns\)\)"):
        spark.table(table.sql).collect()


def test_times_of_day_are_read_where_the_session_reads_them(spark: SparkSession, lakes: Lakes) -> None:
    """TIME is off in Spark 4.3 unless it is switched on."""
    table = lakes.of(pa.table({"a": [1, 2], "t": pa.array([1_000_000, 2_000_000], pa.time64("us"))}))
    with pytest.raises(SparkRuntimeException, match=r"t \(time\(us\)\)"):
        spark.table(table.sql).collect()
    with setting(spark, spark__sql__timeType__enabled="true"):
        assert spark.table(table.sql).where("t > TIME '00:00:01'").collect() == [Row(a=2, t=dt.time(0, 0, 2))]


def test_the_file_of_a_row_can_be_selected(spark: SparkSession, lakes: Lakes) -> None:
    """input_file_name() names the block."""
    table = lakes.of(*numbers(3))
    files = spark.table(table.sql).where("a < 150").select(F.input_file_name()).distinct().collect()
    assert sorted(row[0] for row in files) == sorted(f"file://{path}" for path in table.paths[:2])


def test_statistics_after_pruning_let_spark_broadcast_the_small_side(spark: SparkSession, lakes: Lakes) -> None:
    """A filter that leaves one block of many makes the side small enough for a broadcast, without a hint."""
    wide = lakes.of(*numbers(20, rows=2000))
    size = lakes.lake.table(wide.name).info().file_size_bytes
    query = f"SELECT count(*) FROM {wide.sql} l JOIN {wide.sql} r ON l.a = r.a"
    with setting(
        spark,
        spark__sql__adaptive__enabled="false",
        spark__sql__autoBroadcastJoinThreshold=size // 6,
        spark__sql__optimizer__dynamicPartitionPruning__enabled="false",
    ):
        narrow = spark.sql(f"{query} WHERE r.b >= 0 AND r.a + 0 < 100 AND r.a < 100")
        assert narrow.collect()[0][0] == 100
        assert "BroadcastHashJoin" in plan(narrow)
        both = spark.sql(query)
        assert both.collect()[0][0] == 40_000
        assert "SortMergeJoin" in plan(both)


def test_row_counts_reach_the_optimizer(spark: SparkSession, lakes: Lakes) -> None:
    """The rows of the kept blocks are part of the statistics."""
    table = lakes.of(*numbers(4))
    with setting(spark, spark__sql__cbo__enabled="true"):
        spark.createDataFrame([(1,)], "a int")  # statistics go by the settings of the active session, which this is now
        frame = spark.table(table.sql).where("a < 100")
        scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0)
        assert int(str(scan.stats().rowCount().get())) == 100


def _copy(location: str) -> Path:
    """A copy of a block outside of its table's folder."""
    source = Path(location.removeprefix("file://"))
    return Path(shutil.copy(source, source.parent.parent / "copy.parquet"))
