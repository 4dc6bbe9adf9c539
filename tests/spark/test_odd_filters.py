"""Whatever Spark itself lets through: no filter that it pushes fails a query, and none loses a row."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lamella.client import Lamella
from lamella.client.http.fake_transport import problem_response
from lamella.client.http.transport import HttpRequest, HttpResponse
from lamella.client.spark import attach, read
from lamella.client.spark.lake import Settings, load_table
from lamella.client.spark.reader import _path_frame
from lamella.snapshot.errors import FilterTypeMismatch
from spark.lakes import Faults, Lakes, LakeTable, fresh, no_pushdown, plan, setting

pytestmark = pytest.mark.spark

FILTERS = 9
COLUMNS = ("flag", "i8", "i16", "i32", "i64", "f32", "f64", "dec", "wide", "s", "bin", "day", "ts", "ntz", "st.a")
#: Constants of every form; few of them fit a given column.
CONSTANTS = (
    *("NULL", "true", "0", "1", "7Y", "300S", "99999999999L", "1.5", "2.50BD", "1e3", "-0.0D", "CAST('NaN' AS DOUBLE)"),
    *("''", "'7'", "' 7 '", "'1e3'", "'x'", "'true'", "'2024-02-03'", "'2026-13-45'", "'2024-02-03 04:05:06+01:00'"),
    *("X'37'", "X''", "DATE '2024-02-03'", "TIMESTAMP '2024-02-03 04:05:06'", "TIMESTAMP_NTZ '2024-02-03 04:05:06'"),
    *("INTERVAL '1' DAY", "current_date()", "12345678901234567890123456789.5BD", "CAST(7 AS DECIMAL(38,0))"),
)
COMPARED = ("=", "<", "<=", ">", ">=", "<>", "<=>")


def rows(block: int) -> pa.Table:
    """Eight rows, the last one all null; values lie apart from block to block."""
    numbers = [block * 7 + at for at in range(7)]
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(days=n, hours=n) for n in numbers]  # noqa: DTZ001  # wall clock
    columns = {
        "flag": pa.array([n % 2 == 0 if block % 2 else True for n in numbers] + [None]),
        "i8": pa.array([*numbers, None], pa.int8()),
        "i16": pa.array([*(n * 100 for n in numbers), None], pa.int16()),
        "i32": pa.array([*numbers, None], pa.int32()),
        "i64": pa.array([*(n * 10**10 for n in numbers), None], pa.int64()),
        "f32": pa.array([*(n / 2 for n in numbers), None], pa.float32()),
        "f64": pa.array([*(float("nan") if n % 11 == 5 else n / 4 for n in numbers), None], pa.float64()),
        "dec": pa.array([*(Decimal(n) / 2 for n in numbers), None], pa.decimal128(10, 2)),
        "wide": pa.array([*(Decimal(n) for n in numbers), None], pa.decimal128(38, 20)),
        "s": pa.array([*(str(n) for n in numbers), None]),
        "bin": pa.array([*(str(n).encode() for n in numbers), None], pa.binary()),
        "day": pa.array([*(moment.date() for moment in moments), None]),
        "ts": pa.array([*moments, None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([*moments, None], pa.timestamp("us")),
        "st": pa.array([*({"a": n} for n in numbers), None], pa.struct([("a", pa.int32())])),
    }
    return pa.table(columns)


def operand(rng: Random) -> str:
    """A column, a constant, or something made of them."""
    match rng.randrange(9):
        case 0 | 1 | 2:
            return rng.choice(COLUMNS)
        case 3 | 4 | 5:
            return rng.choice(CONSTANTS)
        case 6:
            kind = rng.choice(
                ("INT", "TINYINT", "STRING", "DOUBLE", "DATE", "TIMESTAMP", "BOOLEAN", "DECIMAL(5,1)", "BINARY")
            )
            return f"CAST({rng.choice(COLUMNS)} AS {kind})"
        case 7:
            return f"({rng.choice(COLUMNS)} {rng.choice('+-*/%')} {rng.choice((*COLUMNS, *CONSTANTS))})"
        case _:
            function = rng.choice(
                (
                    "coalesce({0}, {1})",
                    "upper({0})",
                    "year({0})",
                    "abs({0})",
                    "substring({0}, 1, 1)",
                    "concat({0}, {1})",
                )
            )
            return function.format(rng.choice(COLUMNS), rng.choice((*COLUMNS, *CONSTANTS)))


def condition(rng: Random, depth: int = 2) -> str:
    """A predicate, which may have types that do not go together."""
    match rng.randrange(12) if depth else rng.randrange(10):
        case 0:
            return f"{operand(rng)} IN ({', '.join(operand(rng) for _ in range(rng.randint(1, 3)))})"
        case 1:
            return f"{operand(rng)} BETWEEN {operand(rng)} AND {operand(rng)}"
        case 2:
            return f"({operand(rng)}) IS {rng.choice(('NULL', 'NOT NULL'))}"
        case 3:
            return f"{rng.choice(COLUMNS)} {rng.choice(('LIKE', 'NOT LIKE', 'RLIKE'))} {rng.choice(CONSTANTS)}"
        case 10:
            return f"({condition(rng, depth - 1)} {rng.choice(('AND', 'OR'))} {condition(rng, depth - 1)})"
        case 11:
            return f"NOT ({condition(rng, depth - 1)})"
        case _:
            return f"{operand(rng)} {rng.choice(COMPARED)} {operand(rng)}"


def accepted(scan: DataFrame, rng: Random) -> Iterator[str]:
    """Conditions that Spark analyses, and nothing of which its optimizer knows beforehand."""
    while True:
        text = condition(rng)
        try:
            scan.where(text)
        except PySparkException:
            continue
        yield text


def counted(frame: DataFrame) -> int | None:
    """How many rows there are; None: Spark fails on a value, as with an overflow."""
    try:
        return frame.count()
    except (PySparkException, Py4JError) as error:
        if "lamella" in str(error).lower():
            raise
        return None


@pytest.fixture(scope="module")
def odd(lakes: Lakes) -> LakeTable:
    """Six blocks of columns of every type."""
    return lakes.of(*(rows(block) for block in range(6)))


def check(spark: SparkSession, lake: Lamella, odd: LakeTable, ansi: str, seed: int, filters: int) -> int:
    """Compare generated filters with the full scan; returns how many could be."""
    rng = Random(seed)
    compared = 0
    with setting(spark, **{"spark.sql.ansi.enabled": ansi}), no_pushdown(spark):
        scan = odd.full_scan(spark).cache()
        table = spark.table(odd.sql)
        for number, text in enumerate(itertools.islice(accepted(scan, rng), filters)):
            expected = counted(scan.where(text))
            if expected is None:
                continue
            compared += 1
            assert counted(table.where(text)) == expected, text
            if number % 3 == 0:
                assert counted(read(spark, odd.name, client=lake, where=text)) == expected, text
                assert (
                    counted(_path_frame(spark, load_table(lake, odd.name, Settings()), text).where(text)) == expected
                ), text
        scan.unpersist()
    return compared


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.few(1)
def test_no_filter_that_spark_accepts_fails_or_loses_a_row(
    spark: SparkSession, lake: Lamella, odd: LakeTable, ansi: str
) -> None:
    """Through the catalog and through ``read``, on Connect as well: as many rows as the full scan has."""
    assert check(spark, lake, odd, ansi, 7, FILTERS) > FILTERS // 3


@pytest.mark.soak
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_none_of_many_filters_fails_or_loses_a_row(
    spark: SparkSession, lake: Lamella, odd: LakeTable, ansi: str
) -> None:
    """The same for hundreds."""
    for seed in range(10):
        check(spark, lake, odd, ansi, seed, 50)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "filter_type_mismatch"), (400, "invalid_filter"), (400, "limit_exceeded"), (413, "body_too_large")],
)
def test_a_pushed_filter_that_the_service_refuses_keeps_all_blocks(
    spark: SparkSession, odd: LakeTable, faults: Faults, status: int, code: str
) -> None:
    """Spark has checked its types already; the plan says why nothing is skipped, and no row is lost."""

    def refuse(request: HttpRequest) -> HttpResponse | None:
        filtered = request.path.endswith("/prune") and b'"filter":{' in request.body
        return problem_response(status, code, "an odd filter") if filtered else None

    name = fresh("odd")
    attach(spark, name, faults.client(refuse))
    frame = spark.table(f"{name}.{odd.name}").where("i32 < 3")
    assert frame.count() == 3
    assert "ALL BLOCKS, pruning failed: an odd filter" in plan(spark.table(f"{name}.{odd.name}").where("i32 < 3"))


def test_text_for_connect_may_have_types_that_only_spark_takes(
    spark: SparkSession, lake: Lamella, odd: LakeTable
) -> None:
    """Without ANSI mode Spark compares a flag with 1; elsewhere, where Spark does not check it, that is an error."""
    with setting(spark, **{"spark.sql.ansi.enabled": "false"}):
        table = load_table(lake, odd.name, Settings())
        for text in ("flag = 1", "day = '2026-13-45'"):
            expected = odd.full_scan(spark).where(text).count()
            assert _path_frame(spark, table, text).where(text).count() == expected
            with pytest.raises(FilterTypeMismatch):
                table.selection(text)
