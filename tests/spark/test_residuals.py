"""Spark as the judge of residuals: what Lamella leaves of a filter is true for the same rows of a block."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lamella.snapshot.errors import LamellaError
from lamella.snapshot.expression import read_filter, sql_of
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneAnswer, PrunedBlock, PruneRequest

pytestmark = pytest.mark.spark

_ZONE = "Europe/Berlin"
_ROWS, _BLOCKS = 24, 4
_BATCH = 50
_FILTERS = 100
_MANY_FILTERS = 300  # in `make soak`

#: Whole numbers and decimals in every form that Spark reads.
_NUMBERS = (
    *("0", "1", "-1", "3", "- 3", "1L", "3l", "-2L", "1S", "-3S", "1Y", "-128Y", "-32768S", "1BD", "-1.50BD", "1e2BD"),
    *("1E-3BD", "0.333333", "1.50", ".5", "2.", "-0.0", "2147483648", "-2147483648", "-9223372036854775808L"),
    *(
        "9223372036854775807",
        "-9223372036854775808",
        "100000000000000000000",
        "(2)",
        "-(1)",
        "+1",
        "(1 + 1)",
        "(3L - 1)",
    ),
    *("(1.5 + 1)", "(2Y * 3)", "CAST(1 AS BIGINT)", "CAST(2 AS TINYINT)", "-CAST(1 AS SMALLINT)", "1::bigint"),
    *("CAST(1.5 AS DECIMAL(10,4))", "CAST(1 AS DECIMAL(30,0))", "CAST('2' AS DECIMAL(5,1))", "bigint(3)"),
)
_DOUBLES = (
    *("1.5D", "1e2", "-1E-3", "1D", "2.5F", "1f", "-0.0D", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"),
    *("double('-Infinity')", "CAST('NaN' AS FLOAT)", "CAST(1.5 AS DOUBLE)", "0.1F", "CAST(0.1 AS FLOAT)"),
)
_INTEGRAL = ("i", "l", "s", "y", "`a.b`", "g.a")
_DECIMAL = ("w", "v", "c")
_FLOAT = ("x", "f")
_DAYS = ("DATE '2020-02-29'", "DATE'1999-12-31'", "'2020-03-01'", "date '2020-02-01' + INTERVAL '1' MONTH", "d")
_DAYS_COMPUTED = (
    *("to_date(t)", "d + INTERVAL '1' DAY", "d - INTERVAL 2 DAYS", "last_day(d)", "date_add(d, 3)", "add_months(d, 1)"),
    *("trunc(d, 'month')", "CAST(n AS DATE)", "d + 1", "make_date(2020, 2, 1)"),
)
_TIMES = (
    *("TIMESTAMP '2020-02-29 12:00:00'", "TIMESTAMP '2020-02-29 12:00:00.5Z'", "TIMESTAMP_LTZ'2020-03-01 00:00:00'"),
    *(
        "TIMESTAMP '2020-03-01 00:00:00 America/New_York'",
        "'2020-03-01 01:02:03'",
        "TIMESTAMP_NTZ '2020-02-29 12:00:00'",
    ),
    *(
        "t",
        "n",
        "date_trunc('DAY', t)",
        "t + INTERVAL '1' HOUR",
        "t - INTERVAL '1 02:03:04' DAY TO SECOND",
        "DATE'2020-03-01'",
    ),
)
_TEXTS = (
    *(
        "'a'",
        "'it\\'s'",
        '"b"',
        "'a\\\\b'",
        "'\\n'",
        "'\\u00e4'",
        "r'a\\b'",
        "''",
        "'ä'",
        "'a\\%c'",
        "'a\\_c'",
        "'\\''",
    ),
    *("'tab\\there'", "'\\101'", "'x' || 'y'"),
)
_PATTERNS = (
    *(
        "LIKE 'a%'",
        "LIKE 'a\\\\%c'",
        "LIKE 'a!%%' ESCAPE '!'",
        "LIKE '%\\'%'",
        "LIKE '_'",
        "NOT LIKE '%b'",
        "RLIKE '^a'",
    ),
    *("LIKE 'a\\\\\\\\b'", "LIKE '%ä%'"),
)
_SIGNS = ("<", "<=", "=", "==", "<>", "!=", ">", ">=", "<=>")


class _Filters:
    """Random filters as a person writes them."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._kinds: tuple[Callable[[], str], ...] = (
            *(self._numbers, self._numbers, self._numbers, self._listed, self._between, self._moments, self._days),
            *(self._words, self._others),
        )

    def draw(self, depth: int = 2) -> str:
        rng = self._rng
        if depth and rng.random() < 0.45:
            one, other = self.draw(depth - 1), self.draw(depth - 1)
            forms = (
                f"({one}) AND ({other})",
                f"{one} and {other}",
                f"({one}) OR {other}",
                f"NOT ({one})",
                f"NOT {one}",
                f"({one}) IS TRUE",
                f"({one}) IS NOT FALSE",
                f"({one}) IS NULL",
                f"({one}) IS NOT NULL OR {other}",
                f"CASE WHEN {one} AND {other} THEN b ELSE {one} END",
                f"if({one}, {other}, b)",
            )
            return rng.choice(forms)
        return rng.choice(self._kinds)()

    def _pick(self, *given: str) -> str:
        return self._rng.choice(given)

    def _term(self) -> str:
        rng = self._rng
        column = rng.choice((*_INTEGRAL, *_DECIMAL, *_DECIMAL, *_FLOAT))
        number = rng.choice(_NUMBERS if rng.random() < 0.8 else _DOUBLES)
        forms = (
            *(column, column, f"{column} * {number}", f"{column} + {number}", f"{number} - {column}", f"{column} / 3L"),
            *(f"{column} / {number}", f"(- {column})", f"abs({column})", f"coalesce({column}, {number})"),
            *(f"CAST({column} AS DOUBLE)", f"round({column}, 1)", f"greatest({column}, {number})", f"{column} % 3S"),
            *(f"{column} * ({number})", f"nullif({column}, {number})", f"if(b, {column}, {number})", f"{column} * c"),
        )
        return rng.choice(forms)

    def _numbers(self) -> str:
        numbers = _NUMBERS if self._rng.random() < 0.75 else _DOUBLES
        other = self._rng.choice((*numbers, self._term()))
        sides = [self._term(), other]
        if self._rng.random() < 0.3:
            sides.reverse()
        return f"{sides[0]} {self._pick(*_SIGNS)} {sides[1]}"

    def _listed(self) -> str:
        some = self._rng.sample(_NUMBERS if self._rng.random() < 0.8 else _DOUBLES, self._rng.randint(1, 3))
        values = ", ".join([*some, "NULL"] if self._rng.random() < 0.2 else some)
        return f"{self._term()} {self._pick('IN', 'NOT IN')} ({values})"

    def _between(self) -> str:
        low, high = self._pick(*_NUMBERS), self._pick(*_NUMBERS)
        return f"{self._term()} {self._pick('BETWEEN', 'NOT BETWEEN')} {low} AND {high}"

    def _moments(self) -> str:
        return f"{self._pick('t', 'n', *_TIMES)} {self._pick(*_SIGNS)} {self._pick(*_TIMES)}"

    def _days(self) -> str:
        one = self._pick("d", "d", *_DAYS_COMPUTED)
        return self._pick(
            f"{one} {self._pick(*_SIGNS)} {self._pick(*_DAYS)}",
            f"{one} IN ({self._pick(*_DAYS[:3])}, {self._pick(*_DAYS[:3])})",
            f"year({one}) = 2020",
            f"month(d) IN (2, 3L) AND datediff({one}, DATE '2020-02-01') > 1S",
        )

    def _words(self) -> str:
        return self._pick(
            f"u {self._pick(*_SIGNS)} {self._pick(*_TEXTS)}",
            f"u {self._pick(*_PATTERNS)}",
            f"u IN ({self._pick(*_TEXTS)}, {self._pick(*_TEXTS)})",
            f"startswith(u, {self._pick(*_TEXTS)})",
            f"lower(u) = {self._pick(*_TEXTS)} -- a comment\n",
            f"substring(u, 1, 1) = {self._pick(*_TEXTS)}",
            f"coalesce(u, {self._pick(*_TEXTS)}) < 'b'",
        )

    def _others(self) -> str:
        return self._pick(
            *("b", "NOT b", "b = true", "b <=> NULL", "b IS NULL", "isnan(x)", "isnull(i)", "TRUE", "NULL"),
            *("r = X'01'", "r < X'0A0b'", "r >= X''", "r IN (X'01', X'FF')", "TIME '12:00:00' < TIME '13:00:00'"),
            *("hour(t) = 12", "EXTRACT(YEAR FROM d) = 2020", "length(u) > 1Y", "u IS NOT NULL"),
            *("w * 1L < 0", "c / 3L = 0.333333", "v = CAST(1 AS BIGINT)", "v IN (1L)", "v = 1L"),
        )


def _table(rng: Random, block: int) -> pa.Table:
    def some(values: list[Any]) -> list[Any]:
        return [None if rng.random() < 0.15 else rng.choice(values) for _ in range(_ROWS)]

    def decimals(*texts: str) -> list[Decimal]:
        return [Decimal(text) for text in texts]

    start = dt.datetime(2020, 2, 27 + block % 3, 23, 0)  # noqa: DTZ001  # both kinds of columns are made of it
    moments = [start + dt.timedelta(hours=rng.randint(0, 80), microseconds=rng.choice([0, 500_000])) for _ in range(8)]
    low = (0, -3, 1, 0)[block]
    small = [low, low + 1, low + 2, 3, 1]
    big = decimals("-0.0000000001", "0.0000000003", "1.0000000000", "-5.25", "1234567890123456789012345678.0000000001")
    fine = decimals("1", "1.00000000000000000001", "0.99999999999999999999", "-3", "123456789012345678.5")
    return pa.table(
        {
            "k": pa.array([block] * _ROWS, pa.int32()),
            "i": pa.array(some(small), pa.int32()),
            "l": pa.array(some([*small, 2**31] if block == 3 else small), pa.int64()),
            "s": pa.array(some([*small, -32767]), pa.int16()),
            "y": pa.array(some([*small, -120]), pa.int8()),
            "w": pa.array(some(big), pa.decimal128(38, 10)),
            "v": pa.array(some(fine), pa.decimal128(38, 20)),
            "c": pa.array(some(decimals("1.00", "0.99", "-1.50", "1.01", "99999.99", "3.00")), pa.decimal128(7, 2)),
            "x": pa.array(some([0.0, -0.0, 1.5, 100.0, float("nan"), float("inf"), 0.1]), pa.float64()),
            "f": pa.array(some([0.0, 2.5, 1.0, float("nan"), -1.5, 0.1]), pa.float32()),
            "d": pa.array([None if m is None else m.date() for m in some(moments)], pa.date32()),
            "t": pa.array(some(moments), pa.timestamp("us", "UTC")),
            "n": pa.array(some(moments), pa.timestamp("us")),
            "u": pa.array(
                some(["a", "it's", "b", "a\\b", "\n", "ä", "", "a%c", "a_c", "A", "abc", "xy", "tab\there", "'"])
            ),
            "b": pa.array(some([True, False]), pa.bool_()),
            "r": pa.array(some([b"\x01", b"", b"\x0a\x0b", b"\xff"]), pa.binary()),
            "a.b": pa.array(some(small), pa.int32()),
            "g": pa.array([{"a": value} for value in some(small)], pa.struct([("a", pa.int64())])),
        }
    )


def _left(answer: PruneAnswer, block: PrunedBlock | None) -> str:
    """What is left of the filter in a block; nothing matches in one that is not in the answer."""
    if block is None:
        return "false"
    assert answer.residuals is not None
    assert block.residual is not None
    return answer.residuals[block.residual].sql


def _runs(frame: DataFrame, conditions: list[str]) -> list[list[bool | None] | None]:
    """What conditions are in each row; None for one that fails."""
    try:
        rows = frame.selectExpr(*conditions).collect()
    except PySparkException:
        if len(conditions) == 1:
            return [None]
        half = len(conditions) // 2
        return [*_runs(frame, conditions[:half]), *_runs(frame, conditions[half:])]
    return [list(column) for column in zip(*rows, strict=True)]


def _batches(rng: Random, count: int) -> Iterator[list[str]]:
    filters = _Filters(rng)
    sampled = list(dict.fromkeys(filters.draw() for _ in range(count)))
    for first in range(0, len(sampled), _BATCH):
        yield sampled[first : first + _BATCH]


@pytest.mark.parametrize("count", [_FILTERS, pytest.param(_MANY_FILTERS, marks=pytest.mark.soak)])
def test_a_residual_means_to_spark_what_the_filter_means(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """Row by row, over filters with every form of literal: as a whole, and as each block's statistics leave it."""
    rng = Random(17)
    for block in range(_BLOCKS):
        pq.write_table(_table(rng, block), tmp_path / f"{block}.parquet")
    store = FsspecStore()
    locations = [f"file://{tmp_path}/{block}.parquet" for block in range(_BLOCKS)]
    schema = schema_of(read_footer(store, locations[0]))
    blocks, refused = ingest(store, locations, schema, workers=1)
    assert not refused
    warehouse = Warehouse(FsspecStore(), "memory://residuals", segment_blocks=2)
    empty = warehouse.create("residuals", schema, now_ms=1)
    pointer = warehouse.commit(empty, added=warehouse.prepare("residuals", schema, blocks), now_ms=2).pointer
    # Of a local relation Spark makes the answers while it plans, without a job or compiled code.
    frame = spark.createDataFrame(
        pa.concat_tables([pq.read_table(location.removeprefix("file://")) for location in locations])
    )
    compared = decided = 0
    for batch in _batches(rng, count):
        truths = dict(zip(batch, _runs(frame, batch), strict=True))
        able = [text for text, truth in truths.items() if truth is not None]
        checks: list[tuple[str, str, range]] = []
        for text in able:
            try:
                predicate = read_filter(text, time_zone=_ZONE)
                answer = warehouse.prune(pointer, PruneRequest(filter=text, residuals=True, time_zone=_ZONE))
            except LamellaError as error:
                pytest.fail(f"Spark runs what Lamella refuses: {text}: {error}")
            checks.append((text, sql_of(predicate), range(0)))
            selected = {locations.index(each.location): each for each in answer.blocks or ()}
            for block in range(_BLOCKS):
                left = _left(answer, selected.get(block))
                decided += left in ("true", "false")
                checks.append((text, left, range(block * _ROWS, block * _ROWS + _ROWS)))
        compared += len(able)
        spelled = list(dict.fromkeys(left for _, left, _ in checks))
        answers = dict(zip(spelled, _runs(frame, spelled), strict=True))
        for text, left, rows in checks:
            truth, rest = truths[text], answers[left]
            assert truth is not None
            assert rest is not None, f"{text} became {left}, which fails"
            if not rows:
                assert truth == rest, f"{text} became {left}"
            for row in rows:
                assert (truth[row] is True) == (rest[row] is True), f"{text} became {left}: row {row}"
    assert compared > count // 3
    assert decided > compared // 4
