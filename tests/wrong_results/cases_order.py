"""Bounds in another order than the type's: unsigned numbers, decimals' bytes, old-style bounds, precision."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from parquet.crafted import BYTE_ARRAY, FIXED, I8, I32, INT32, INT64, INT96
from wrong_results.case import Case, CaseWriter, F, Query, ids, table
from wrong_results.parquet_bytes import Col, Stats, int96, raw, write

_BIG = 2**63 + 5
_BEYOND_DOUBLE = 2**53 + 1


def decimal_bytes(unscaled: int, length: int = 4) -> bytes:
    """Big-endian two's complement."""
    return unscaled.to_bytes(length, "big", signed=True)


def n(value: int) -> bytes:
    """An INT64's bytes."""
    return raw(INT64, value)


def _one(column: Col, **more: Any) -> Any:
    return lambda writer: [write(writer.folder / "a.parquet", ids(len(column.values)), column, **more)]


def _decimals(unscaled: list[int], stats: Stats, *, fixed: bool = True) -> Any:
    values = [decimal_bytes(v) if fixed else _shortest(v) for v in unscaled]
    # Spark 4.3 fails on BYTE_ARRAY decimals of up to 18 digits, whatever their statistics.
    digits = 9 if fixed else 20
    column = Col(
        "d",
        FIXED if fixed else BYTE_ARRAY,
        values,
        logical={5: {1: I32(2), 2: I32(digits)}},
        converted=5,
        scale=2,
        precision=digits,
        length=4 if fixed else None,
        stats=[stats],
    )
    return _one(column)


def _shortest(value: int) -> bytes:
    return decimal_bytes(value, (value.bit_length() + 8) // 8)


def _bloom_by_duckdb(writer: CaseWriter) -> list[str]:
    path = writer.folder / "a.parquet"
    given = table(u=pa.array([1, 200, 200, 7] * 50, pa.uint8()), s=pa.array(["a", "bc", "bc", "d"] * 50))
    with duckdb.connect() as connection:
        connection.register("given", given)
        connection.execute(f"COPY given TO '{path}' (FORMAT parquet)")  # a path of our own
    return [str(path)]


def _two_widths(writer: CaseWriter) -> list[str]:
    narrow = table(a=pa.array([1, 7], pa.int32()), d=pa.array([Decimal("1.5"), Decimal("7.5")], pa.decimal128(5, 1)))
    wide = pa.table(
        {
            "id": [2, 3],
            "a": pa.array([7, 1 << 40], pa.int64()),
            "d": pa.array([Decimal("7.500"), Decimal("1000.125")], pa.decimal128(10, 3)),
        }
    )
    return [writer.arrow(narrow, "narrow.parquet"), writer.arrow(wide, "wide.parquet")]


def _bloom_of_groups(writer: CaseWriter) -> list[str]:
    given = table(a=pa.array([0, 2, 4, 6, 1, 3, 5, 6], pa.int64()))
    options = {"a": {"ndv": 10, "fpp": 0.001}}
    return [writer.arrow(given, row_group_size=4, use_dictionary=False, bloom_filter_options=options)]


def _int96(day: int, second: int) -> bytes:
    """The old form of a timestamp; ``day`` since 1970."""
    return int96(day + 2_440_588, second * 10**9)


_DECIMAL_ROWS = [Decimal(v) / 100 for v in (100, 200, 300, 2400)]
_WIDE = pa.decimal128(20, 0)
_WIDEST = Decimal(-(10**38) + 1)
_NEXT = Decimal(-(10**38) + 2)

CASES = (
    Case(
        id="unsigned-bounds-signed",
        title="UINT_64 above 2^63 with bounds in signed order",
        source="polars#16683 #15323, ClickHouse#118376, datafusion#10604, Trino#27274",
        rows={"u": [1, _BIG, 7]},
        make=_one(Col("u", INT64, [1, _BIG, 7], converted=14, stats=[Stats(n(_BIG), n(7), nulls=0)])),
        queries=(
            Query(f"u = {_BIG}", lambda r: r["u"] == _BIG, F("u") == pa.scalar(_BIG, pa.uint64())),
            Query("u > 100", lambda r: r["u"] > 100, F("u") > 100),
            Query("u < 5", lambda r: r["u"] < 5, F("u") < 5),
        ),
    ),
    Case(
        id="unsigned-bounds-old",
        title="UINT_32 above 2^31 with old-style (signed) bounds",
        source="arrow#46391, polars#15323",
        rows={"u": [1, 2**31 + 5, 7]},
        make=_one(
            Col(
                "u",
                INT32,
                [1, 2**31 + 5, 7],
                logical={10: {1: I8(32), 2: False}},
                converted=13,
                stats=[Stats(nulls=0, old_low=raw(INT32, 2**31 + 5), old_high=raw(INT32, 7))],
            )
        ),
        queries=(
            Query("u = 2147483653", lambda r: r["u"] == 2**31 + 5, F("u") == 2**31 + 5),
            Query("u > 100", lambda r: r["u"] > 100, F("u") > 100),
        ),
    ),
    Case(
        id="decimal-fixed-old-bounds",
        title="a FIXED decimal with old-style bounds in the order of signed bytes",
        source="datafusion#24525 #8309, PARQUET-686; parquet-testing fixed_length_decimal",
        rows={"d": _DECIMAL_ROWS},
        make=_decimals([100, 200, 300, 2400], Stats(nulls=0, old_low=decimal_bytes(200), old_high=decimal_bytes(2400))),
        queries=(
            Query("d = 1.00", lambda r: r["d"] == 1, F("d") == Decimal("1.00")),
            Query("d < 2.00", lambda r: r["d"] < 2, F("d") < Decimal("2.00")),
        ),
    ),
    Case(
        id="decimal-negative-unsigned",
        title="a FIXED decimal with bounds in the order of unsigned bytes: -0.02 is taken for the greatest",
        source="iceberg#125, parquet-go#592, StarRocks#69207",
        rows={"d": [Decimal("-0.02"), Decimal("1.00"), Decimal("5.00")]},
        make=_decimals([-2, 100, 500], Stats(decimal_bytes(100), decimal_bytes(-2), nulls=0)),
        queries=(
            Query("d = 5.00", lambda r: r["d"] == 5, F("d") == Decimal("5.00")),
            Query("d < 0", lambda r: r["d"] < 0, F("d") < 0),
        ),
    ),
    Case(
        id="decimal-bytes-of-lengths",
        title="BYTE_ARRAY decimals of different lengths, with honest bounds",
        source="arrow-rs#10861, pg_lake#431",
        rows={"d": [Decimal("-0.02"), Decimal("2.56"), Decimal("0.05")]},
        make=_decimals([-2, 256, 5], Stats(_shortest(-2), _shortest(256), nulls=0), fixed=False),
        queries=(
            Query("d = 0.05", lambda r: r["d"] == Decimal("0.05"), F("d") == Decimal("0.05")),
            Query("d > 2", lambda r: r["d"] > 2, F("d") > 2),
            Query("d < 0", lambda r: r["d"] < 0, F("d") < 0),
        ),
    ),
    Case(
        id="decimal-beyond-double",
        title="decimals that differ only beyond 2^53",
        source="Delta Lake's source note (statistics in JSON), hudi#19467",
        rows={"d": [Decimal(_BEYOND_DOUBLE - 1), Decimal(_BEYOND_DOUBLE)]},
        make=lambda writer: [
            writer.arrow(
                pa.table({"id": [at], "d": pa.array([Decimal(_BEYOND_DOUBLE - 1 + at)], _WIDE)}), f"{at}.parquet"
            )
            for at in range(2)
        ],
        queries=(
            Query(
                f"d = {_BEYOND_DOUBLE}",
                lambda r: r["d"] == _BEYOND_DOUBLE,
                F("d") == pa.scalar(Decimal(_BEYOND_DOUBLE), _WIDE),
            ),
            Query(
                f"d > {_BEYOND_DOUBLE - 1}",
                lambda r: r["d"] > _BEYOND_DOUBLE - 1,
                F("d") > pa.scalar(Decimal(_BEYOND_DOUBLE - 1), _WIDE),
            ),
        ),
    ),
    Case(
        id="decimal-widest",
        title="the least decimal(38,0): as a double it is -1e38",
        source="Delta Lake's source note",
        rows={"d": [_WIDEST, _NEXT]},
        make=lambda writer: [writer.arrow(table(d=pa.array([_WIDEST, _NEXT], pa.decimal128(38, 0))))],
        queries=(
            Query(f"d = {_WIDEST}", lambda r: r["d"] == _WIDEST, F("d") == pa.scalar(_WIDEST, pa.decimal128(38, 0))),
            Query(f"d > {_WIDEST}", lambda r: r["d"] > _WIDEST, F("d") > pa.scalar(_WIDEST, pa.decimal128(38, 0))),
        ),
    ),
    Case(
        id="bigint-beyond-double",
        title="64-bit integers that differ only beyond 2^53",
        source="engines that compare statistics as doubles",
        rows={"a": [_BEYOND_DOUBLE - 1, _BEYOND_DOUBLE]},
        make=lambda writer: [writer.arrow(table(a=pa.array([_BEYOND_DOUBLE - 1, _BEYOND_DOUBLE], pa.int64())))],
        queries=(
            Query(f"a = {_BEYOND_DOUBLE}", lambda r: r["a"] == _BEYOND_DOUBLE, F("a") == _BEYOND_DOUBLE),
            Query(f"a > {_BEYOND_DOUBLE - 1}", lambda r: r["a"] >= _BEYOND_DOUBLE, F("a") > _BEYOND_DOUBLE - 1),
        ),
    ),
    Case(
        id="column-orders-absent",
        title="min_value and max_value without column_orders, in a locale's order",
        source="datafusion#10586, PARQUET-1065",
        rows={"s": ["a", "B", "c"]},
        make=_one(
            Col(
                "s",
                BYTE_ARRAY,
                ["a", "B", "c"],
                logical={1: {}},
                converted=0,
                stats=[Stats(b"a", b"c", nulls=0)],
            ),
            orders=False,
        ),
        queries=(
            Query("s = 'B'", lambda r: r["s"] == "B", F("s") == "B"),
            Query("s < 'a'", lambda r: r["s"] < "a", F("s") < "a"),
        ),
    ),
    Case(
        id="column-order-unknown",
        title="a column order that no reader knows yet",
        source="apache/parquet-format: readers must ignore bounds under an unknown order",
        rows={"a": [1, 9]},
        make=_one(Col("a", INT64, [1, 9], stats=[Stats(n(3), n(4), nulls=0)], order={9: {}})),
        queries=(
            Query("a = 9", lambda r: r["a"] == 9, F("a") == 9),
            Query("a < 2", lambda r: r["a"] < 2, F("a") < 2),
        ),
    ),
    Case(
        id="int96-bytewise",
        title="INT96 timestamps with bounds in the order of their bytes",
        source="PARQUET-1065, Trino#5083, Doris#35041, arrow-rs#7686, cudf#10438",
        rows={"t": ["2020-01-01 12:00:00", "2020-01-02 00:00:00"]},
        make=_one(
            Col(
                "t",
                INT96,
                [_int96(18262, 12 * 3600), _int96(18263, 0)],
                stats=[Stats(_int96(18263, 0), _int96(18262, 0), nulls=0)],
            )
        ),
        queries=(
            Query(
                "t = TIMESTAMP '2020-01-01 12:00:00Z'",
                lambda r: r["t"] == "2020-01-01 12:00:00",
                None,
                "t = TIMESTAMP '2020-01-01 12:00:00'",
            ),
            Query(
                "t > TIMESTAMP '2020-01-01 18:00:00Z'",
                lambda r: r["t"] > "2020-01-01 18:00:00",
                None,
                "t > TIMESTAMP '2020-01-01 18:00:00'",
            ),
        ),
    ),
    Case(
        id="binary-bounds-of-another-group",
        title="parquet-mr before 1.8: binary bounds of another row group",
        source="PARQUET-251 (Trino#1798, Presto#4732)",
        rows={"s": ["mm", "nn"]},
        make=_one(
            Col(
                "s",
                BYTE_ARRAY,
                ["mm", "nn"],
                logical={1: {}},
                converted=0,
                stats=[Stats(nulls=0, old_low=b"aa", old_high=b"aa")],
            ),
            created_by="parquet-mr version 1.6.0 (build abcd)",
        ),
        queries=(Query("s = 'nn'", lambda r: r["s"] == "nn", F("s") == "nn"),),
    ),
    Case(
        id="text-old-bounds-signed",
        title="old-style bounds of text in the order of signed bytes",
        source="PARQUET-686, datafusion#8309",
        rows={"s": ["a", "z", "é"]},
        make=_one(
            Col(
                "s",
                BYTE_ARRAY,
                ["a", "z", "é"],
                logical={1: {}},
                converted=0,
                stats=[Stats(nulls=0, old_low="é".encode(), old_high=b"z")],
            )
        ),
        queries=(
            Query("s = 'é'", lambda r: r["s"] == "é", F("s") == "é"),
            Query("s > 'zz'", lambda r: r["s"] > "zz", F("s") > "zz"),
            Query("s = 'a'", lambda r: r["s"] == "a", F("s") == "a"),
        ),
    ),
    Case(
        id="widened-types",
        title="files of int32 and decimal(5,1) in a table of bigint and decimal(10,3)",
        source="Trino#30544, Paimon#8801, elastic#153523",
        rows={"a": [1, 7, 7, 1 << 40], "d": [Decimal(v) for v in ("1.5", "7.5", "7.5", "1000.125")]},
        make=_two_widths,
        schema=pa.schema([("id", pa.int64()), ("a", pa.int64()), ("d", pa.decimal128(10, 3))]),
        queries=(
            Query("a = 7", lambda r: r["a"] == 7, F("a") == 7),
            Query("a > 1099511627775", lambda r: r["a"] >= 1 << 40, F("a") > (1 << 40) - 1),
            Query("d = 7.500", lambda r: r["d"] == Decimal("7.5"), F("d") == Decimal("7.500")),
            Query("d > 1000.1", lambda r: r["d"] > 1000, F("d") > Decimal("1000.1")),
        ),
    ),
    Case(
        id="bloom-of-narrow-types",
        title="bloom filters of a UINT_8 and a text column, as DuckDB writes them",
        source="datafusion#22994 #9779, duckdb#23829, hudi#19467",
        rows={"u": [1, 200, 200, 7] * 50, "s": ["a", "bc", "bc", "d"] * 50},
        make=_bloom_by_duckdb,
        queries=(
            Query("u = 200", lambda r: r["u"] == 200, F("u") == 200),
            Query("s = 'bc'", lambda r: r["s"] == "bc", F("s") == "bc"),
            Query("u = 7 AND s = 'd'", lambda r: r["u"] == 7, (F("u") == 7) & (F("s") == "d")),
        ),
    ),
    Case(
        id="bloom-of-another-group",
        title="a bloom filter per row group: one's answer is not another's",
        source="doris#65489, ClickHouse#121077, starrocks#69898",
        rows={"a": [0, 2, 4, 6, 1, 3, 5, 6]},
        make=_bloom_of_groups,
        queries=(
            Query("a = 3", lambda r: r["a"] == 3, F("a") == 3),
            Query("a = 4 OR a = 5", lambda r: r["a"] in (4, 5), (F("a") == 4) | (F("a") == 5)),
            Query("a IN (2, 3)", lambda r: r["a"] in (2, 3), F("a").isin([2, 3])),
        ),
    ),
)
