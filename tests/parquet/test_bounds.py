"""Bounds of every type: how they are read, when they are dropped, cut and converted (rules B1 to B11, D1 to D5)."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from parquet.crafted import BYTE_ARRAY, DOUBLE, FIXED, INT32, INT64, INT96, element, statistics, stats_of
from parquet.leaves import (
    BINARY,
    DATE,
    DECIMAL_32,
    DECIMAL_64,
    DECIMAL_BYTES,
    DECIMAL_FIXED,
    FLAG,
    HALF,
    INT,
    MICROS,
    NANOS,
    NUMBER,
    PLAIN_FIXED,
    SINGLE,
    TEXT,
    TINY,
    UINT8,
    UINT32,
    UINT64,
    UUID,
    bounds,
    f64,
    i32,
    i64,
)

# --- values of every type (B2 to B6) ---


@pytest.mark.parametrize(
    ("leaf", "kind", "low", "high", "expected"),
    [
        (INT, "int64", i64(-(2**63)), i64(2**63 - 1), (-(2**63), 2**63 - 1)),
        (TINY, "int8", i32(-128), i32(127), (-128, 127)),
        (UINT64, "uint64", i64(1), i64(2**63 + 5), (1, 2**63 + 5)),
        (UINT32, "uint32", i32(1), i32(2**31 + 5), (1, 2**31 + 5)),
        (UINT8, "uint8", i32(0), i32(255), (0, 255)),
        (FLAG, "boolean", b"\x00", b"\x01", (0, 1)),
        (DATE, "date", i32(-200_000), i32(20_000), (-200_000, 20_000)),
        (MICROS, "timestamp(us)", i64(-5), i64(7), (-5, 7)),
        (DECIMAL_32, "decimal(9,2)", i32(-5), i32(7), (-5, 7)),
        (DECIMAL_64, "decimal(18,2)", i64(-5), i64(7), (-5, 7)),
        (DECIMAL_FIXED, "decimal(9,2)", b"\xff\xff\xff\xfe", b"\x00\x00\x01\x00", (-2, 256)),
        (DECIMAL_BYTES, "decimal(9,2)", b"\xfe", b"\x01\x00", (-2, 256)),
        (DECIMAL_BYTES, "decimal(9,2)", b"\xff\xff\xff\xff\xff\xff\xfe", b"\x00\x00\x00\x00\x00\x05", (-2, 5)),
        (TEXT, "string", b"a", "ż".encode(), (b"a", "ż".encode())),
        (TEXT, "string", b"", b"\xff", (b"", b"\xff")),
        (BINARY, "binary", b"\x00", b"\x80\x00", (b"\x00", b"\x80\x00")),
        (PLAIN_FIXED, "fixed(6)", b"ab", b"zzzzzz", (b"ab", b"zzzzzz")),
        (UUID, "uuid", bytes(16), b"\xff" * 16, (bytes(16), b"\xff" * 16)),
        (NUMBER, "float64", f64(-1.5), f64(2.5), (-1.5, 2.5)),
        (NUMBER, "float64", f64(-math.inf), f64(math.inf), (-math.inf, math.inf)),
        (SINGLE, "float32", struct.pack("<f", 0.1), struct.pack("<f", 2), (0.10000000149011612, 2.0)),
        (HALF, "float16", struct.pack("<e", -1.5), struct.pack("<e", 2.5), (-1.5, 2.5)),
    ],
)
def test_bounds_are_read_in_the_order_of_their_type(
    leaf: dict[int, Any], kind: str, low: bytes, high: bytes, expected: tuple[Any, Any]
) -> None:
    """Every type's bounds come out as values, exact only when the file says so."""
    for flag in (True, False, None):
        stats = stats_of(leaf, statistics(low, high, nulls=1, exact=flag))
        assert bounds(stats, kind) == expected
        assert (stats.min_exact, stats.max_exact) == (flag is True, flag is True)
        assert stats.null_count == 1
        assert stats.reason is None
        assert stats.source == "footer"


@pytest.mark.parametrize(
    ("leaf", "low", "high"),
    [
        (INT, i32(1), i32(2)),  # width (B2)
        (INT, b"", b""),
        (TINY, i32(-129), i32(1)),  # outside the type
        (UINT8, i32(0), i32(256)),
        (FLAG, b"\x00", b"\x02"),
        (FLAG, b"", b"\x01"),
        (DECIMAL_FIXED, b"\x01", b"\x02"),  # D5
        (DECIMAL_BYTES, b"", b"\x02"),
        (DECIMAL_32, i32(-(10**9)), i32(5)),  # ten digits in decimal(9, 2)
        (DECIMAL_32, b"\x01", b"\x02"),
        (PLAIN_FIXED, b"a", b"zzzzzzz"),  # longer than the type
        (UUID, bytes(15), b"\xff" * 16),
        (HALF, b"\x00", b"\x00\x00"),
        (NUMBER, struct.pack("<f", 1), struct.pack("<f", 2)),
    ],
)
def test_bytes_that_are_no_value_make_both_bounds_unknown(leaf: dict[int, Any], low: bytes, high: bytes) -> None:
    """A bound of the wrong width or outside its type shows that neither can be trusted; the null count stays."""
    stats = stats_of(leaf, statistics(low, high, nulls=2))
    assert (stats.min, stats.max) == (None, None)
    assert stats.null_count == 2
    assert stats.reason == "a bound is not a value of the type"


@pytest.mark.parametrize(
    ("leaf", "low", "high"),
    [
        (INT, i64(2), i64(1)),
        (UINT64, i64(2**63), i64(1)),  # signed bounds of an unsigned column
        (DECIMAL_FIXED, b"\x00\x00\x00\x01", b"\xff\xff\xff\xff"),  # unsigned order of a decimal
        (TEXT, b"\xc3\xa9", b"z"),  # signed bytes
        (NUMBER, f64(2), f64(1)),
    ],
)
def test_bounds_the_wrong_way_round_are_dropped(leaf: dict[int, Any], low: bytes, high: bytes) -> None:
    """A minimum above the maximum means that both follow another order (B9)."""
    stats = stats_of(leaf, statistics(low, high, nulls=0))
    assert (stats.min, stats.max) == (None, None)
    assert stats.reason == "the minimum is greater than the maximum"


def test_a_single_bound_is_a_bound() -> None:
    """Unknown is per side."""
    stats = stats_of(INT, statistics(i64(5), None, nulls=0))
    assert bounds(stats, "int64") == (5, None)
    assert stats.reason is not None
    stats = stats_of(TEXT, statistics(None, b"x", nulls=0, exact=True))
    assert bounds(stats, "string") == (None, b"x")
    assert (stats.min_exact, stats.max_exact) == (False, True)


# --- column orders (B1, B7, B8) ---


@pytest.mark.parametrize(
    ("leaf", "order", "believed"),
    [
        (INT, {1: {}}, True),
        (INT, {2: {}}, False),  # IEEE 754 total order is for floats
        (INT, {3: {}}, False),
        (INT, {9: {}}, False),  # an order of the future
        (INT, {1: {}, 2: {}}, False),
        (NUMBER, {1: {}}, True),
        (NUMBER, {2: {}}, True),
        (NUMBER, {3: {}}, False),
        (HALF, {2: {}}, True),
        (TEXT, {2: {}}, False),
    ],
)
def test_bounds_need_a_column_order_that_is_known_for_the_type(
    leaf: dict[int, Any], order: dict[int, Any], believed: bool
) -> None:
    """min_value and max_value mean nothing without it (B1)."""
    raw = {INT64: i64(0), DOUBLE: f64(1.0), FIXED: b"\x00\x01", BYTE_ARRAY: b"x"}[leaf[1]]
    stats = stats_of(leaf, statistics(raw, raw, nulls=0), orders=[order])
    assert (stats.min is not None, stats.max is not None) == (believed, believed)
    assert stats.null_count == 0


@pytest.mark.parametrize("orders", [None, [{1: {}}] * 2])
def test_bounds_need_one_column_order_for_each_leaf(orders: list[dict[int, Any]] | None) -> None:
    """A list that is missing, or of another length, orders nothing."""
    stats = stats_of(INT, statistics(i64(1), i64(2), nulls=0), orders=orders)
    assert (stats.min, stats.max, stats.null_count) == (None, None, 0)


@pytest.mark.parametrize(
    ("leaf", "order"),
    [
        (element("c", INT96), {1: {}}),
        (element("c", INT96), {3: {}}),
        (element("c", FIXED, length=12, converted=21), {1: {}}),  # INTERVAL
        (element("c", BYTE_ARRAY, logical={17: {}}), {1: {}}),  # GEOMETRY
        (element("c", BYTE_ARRAY, logical={18: {}}), {1: {}}),  # GEOGRAPHY
        (element("c", BYTE_ARRAY, logical={99: {}}), {1: {}}),
        (element("c", INT64, logical={}), {1: {}}),
        (element("c", INT32, logical={11: {}}), {1: {}}),  # NULL
    ],
)
def test_types_without_an_order_have_no_bounds(leaf: dict[int, Any], order: dict[int, Any]) -> None:
    """INT96, intervals, shapes and types that are not known have none (B7, B8), but their null count counts."""
    stats = stats_of(leaf, statistics(bytes(12), bytes(12), nulls=3), orders=[order])
    assert (stats.min, stats.max, stats.null_count) == (None, None, 3)
    assert stats.reason is not None
    assert "order" in stats.reason


# --- truncation (D4) ---


def test_long_bounds_are_cut_outwards() -> None:
    """A long minimum becomes its prefix, a long maximum a prefix whose last byte has grown; neither is exact."""
    low, high = b"a" * 100, b"b" * 100
    wide = element("c", FIXED, length=100)
    for leaf, kind in ((TEXT, "string"), (BINARY, "binary"), (wide, "fixed(100)")):
        stats = stats_of(leaf, statistics(low, high, nulls=0, exact=True))
        assert bounds(stats, kind) == (b"a" * 64, b"b" * 63 + b"c")
        assert (stats.min_exact, stats.max_exact) == (False, False)


def test_cutting_carries_over_ff() -> None:
    """Bytes that cannot grow are left out, and when none can, the whole maximum stays."""
    carried = stats_of(BINARY, statistics(b"", b"ab" + b"\xff" * 80, nulls=0, exact=True))
    assert bounds(carried, "binary") == (b"", b"ac")
    assert carried.max_exact is False
    whole = stats_of(BINARY, statistics(b"", b"\xff" * 80, nulls=0, exact=True))
    assert bounds(whole, "binary") == (b"", b"\xff" * 80)
    assert whole.max_exact is True


def test_text_cut_inside_a_character_is_stored_as_bytes() -> None:
    """A cut bound need not be UTF-8; it is still a bound of text."""
    stats = stats_of(TEXT, statistics(b"x" + "é".encode() * 50, b"y" + "é".encode() * 50, nulls=0))
    assert stats.min is not None
    assert stats.min.bytes is not None
    assert bounds(stats, "string") == ((b"x" + "é".encode() * 50)[:64], (b"y" + "é".encode() * 50)[:63] + b"\xc4")


def test_short_bounds_stay_whole() -> None:
    """64 bytes are not cut."""
    stats = stats_of(BINARY, statistics(b"a" * 64, b"b" * 64, nulls=0, exact=True))
    assert bounds(stats, "binary") == (b"a" * 64, b"b" * 64)
    assert (stats.min_exact, stats.max_exact) == (True, True)


# --- the table's type (B10) ---


@pytest.mark.parametrize(
    ("leaf", "table_type", "low", "high", "expected", "exact"),
    [
        (TINY, "int64", i32(-1), i32(1), (-1, 1), True),
        (UINT8, "int16", i32(0), i32(255), (0, 255), True),
        (UINT32, "uint64", i32(0), i32(2**32 - 1), (0, 2**32 - 1), True),
        (SINGLE, "float64", struct.pack("<f", 0.5), struct.pack("<f", 1.5), (0.5, 1.5), True),
        (DECIMAL_32, "decimal(20,5)", i32(-1), i32(7), (-1000, 7000), True),
        (DECIMAL_FIXED, "decimal(38,2)", b"\xff" * 4, b"\x00\x00\x00\x07", (-1, 7), True),
        (NANOS, "timestamp(us)", i64(-1501), i64(1501), (-2, 2), False),
        (NANOS, "timestamp(us)", i64(-2000), i64(3000), (-2, 3), True),
        (NANOS, "timestamp(ms)", i64(-1), i64(1), (-1, 1), False),
        (MICROS, "timestamp(ns)", i64(-1), i64(1), (-1000, 1000), True),
        (element("c", INT32, converted=7), "time(us)", i32(1), i32(2), (1000, 2000), True),
        (TEXT, "enum", b"a", b"b", (b"a", b"b"), True),
        (UUID, "binary", bytes(16), b"\x01" * 16, (bytes(16), b"\x01" * 16), True),
    ],
)
def test_bounds_are_given_in_the_tables_type(
    leaf: dict[int, Any], table_type: str, low: bytes, high: bytes, expected: tuple[Any, Any], exact: bool
) -> None:
    """Widened exactly, or rounded outwards and then no longer exact."""
    stats = stats_of(leaf, statistics(low, high, nulls=0, exact=True), table_type=table_type)
    assert bounds(stats, table_type) == expected
    assert (stats.min_exact, stats.max_exact) == (exact, exact)


def test_a_table_type_without_an_order_has_no_bounds() -> None:
    """A decimal of more than 38 digits is not compared, so neither are the bounds of a file that fits it."""
    stats = stats_of(DECIMAL_32, statistics(i32(1), i32(2), nulls=0), table_type="decimal(40,2)")
    assert (stats.min, stats.max, stats.null_count) == (None, None, 0)
    assert stats.reason == "decimal(40,2) has no reliable order"


def test_a_bound_beyond_the_tables_type_is_unknown() -> None:
    """Microseconds of the year 300,000 are no nanoseconds of 64 bits: that side is open, the other stays."""
    stats = stats_of(MICROS, statistics(i64(5), i64(2**62), nulls=0), table_type="timestamp(ns)")
    assert bounds(stats, "timestamp(ns)") == (5000, None)
    assert stats.reason is not None
