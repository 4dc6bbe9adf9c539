"""Which statistics of a column chunk are believed: hand-made footers, rule by rule."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import Bound, ColumnStats, from_bound
from parquet.crafted import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    I8,
    INT32,
    INT64,
    INT96,
    OPTIONAL,
    REQUIRED,
    block,
    chunk,
    element,
    metadata,
    statistics,
    stats_of,
)

INT = element("c", INT64)
TEXT = element("c", BYTE_ARRAY, logical={1: {}})
BINARY = element("c", BYTE_ARRAY)
NUMBER = element("c", DOUBLE)
SINGLE = element("c", FLOAT)
HALF = element("c", FIXED, length=2, logical={15: {}})
UINT64 = element("c", INT64, converted=14)
UINT32 = element("c", INT32, logical={10: {1: I8(32), 2: False}})
UINT8 = element("c", INT32, logical={10: {1: I8(8), 2: False}})
TINY = element("c", INT32, converted=15)
DATE = element("c", INT32, logical={6: {}})
MICROS = element("c", INT64, logical={8: {1: True, 2: {2: {}}}})
NANOS = element("c", INT64, logical={8: {1: True, 2: {3: {}}}})
DECIMAL_FIXED = element("c", FIXED, length=4, logical={5: {1: 2, 2: 9}})
DECIMAL_BYTES = element("c", BYTE_ARRAY, logical={5: {1: 2, 2: 9}})
DECIMAL_32 = element("c", INT32, converted=5, scale=2, precision=9)
DECIMAL_64 = element("c", INT64, converted=5, scale=2, precision=18)
UUID = element("c", FIXED, length=16, logical={14: {}})
PLAIN_FIXED = element("c", FIXED, length=6)
FLAG = element("c", BOOLEAN)

OLD_JAVA = "parquet-mr version 1.7.0 (build abc)"


def i32(value: int) -> bytes:
    """Little-endian, as bounds hold it; unsigned numbers may be given as such."""
    return (value % (1 << 32)).to_bytes(4, "little")


def i64(value: int) -> bytes:
    """As :func:`i32`."""
    return (value % (1 << 64)).to_bytes(8, "little")


def f64(value: float) -> bytes:
    """A double."""
    return struct.pack("<d", value)


def bounds(stats: ColumnStats, kind: str) -> tuple[Any, Any]:
    """Both bounds as values."""
    dtype = parse_type(kind)
    low = None if stats.min is None else from_bound(dtype, stats.min)
    return low, None if stats.max is None else from_bound(dtype, stats.max)


def nothing_known(stats: ColumnStats) -> bool:
    """No bound, no null count, and a reason."""
    return stats.min is None and stats.max is None and stats.null_count is None and stats.reason is not None


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
    assert stats.reason == "a bound is no value of the type"


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
    assert stats.reason == "the bounds are the wrong way round"


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
        (INT, {}, False),
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


# --- floats (C1 to C5) ---

NAN = math.nan


@pytest.mark.parametrize("order", [{1: {}}, {2: {}}])
@pytest.mark.parametrize(("low", "high"), [(NAN, 1.0), (1.0, NAN), (NAN, NAN), (None, NAN)])
def test_nan_in_a_bound_drops_both(order: dict[int, Any], low: float | None, high: float) -> None:
    """A writer that put NaN there may have compared anything with it (C1)."""
    raw = None if low is None else f64(low)
    stats = stats_of(NUMBER, statistics(raw, f64(high), nulls=0), orders=[order])
    assert (stats.min, stats.max, stats.nan) == (None, None, "maybe")


@pytest.mark.parametrize(
    ("nulls", "nans", "nan"),
    [
        (0, None, "maybe"),  # C2
        (None, None, "maybe"),
        (0, 0, "none"),
        (None, 0, "none"),
        (0, 3, "maybe"),
        (4, 3, "maybe"),
    ],
)
def test_nan_may_be_there_until_its_count_is_zero(nulls: int | None, nans: int | None, nan: str) -> None:
    """Bounds leave NaN out; only nan_count says that there is none."""
    for order in (1, 2):
        stats = stats_of(NUMBER, statistics(f64(1), f64(2), nulls=nulls, nans=nans), orders=[{order: {}}])
        assert stats.nan == nan
        assert bounds(stats, "float64") == (1.0, 2.0)
        assert stats.null_count == nulls


@pytest.mark.parametrize(("nulls", "nans"), [(0, 10), (4, 6), (None, 10)])
@pytest.mark.parametrize("raw", [None, f64(NAN)])
def test_all_nan_is_known_when_the_counts_say_so(nulls: int | None, nans: int, raw: bytes | None) -> None:
    """When every value that is not null is NaN there are no bounds to miss (C4)."""
    stats = stats_of(NUMBER, statistics(raw, raw, nulls=nulls, nans=nans), orders=[{2: {}}])
    assert stats == ColumnStats(null_count=nulls, nan="all", in_memory_size=60)


def test_all_nan_with_a_number_as_bound_is_a_contradiction() -> None:
    """Counts and bounds cannot both be true, so neither is believed."""
    assert nothing_known(stats_of(NUMBER, statistics(f64(1), f64(2), nulls=0, nans=10)))


@pytest.mark.parametrize(("nulls", "nans"), [(0, -1), (0, 11), (5, 6), (None, 11)])
def test_a_nan_count_that_cannot_be_discredits_the_chunk(nulls: int | None, nans: int) -> None:
    """More NaN than values, or less than none."""
    stats = stats_of(NUMBER, statistics(f64(1), f64(2), nulls=nulls, nans=nans))
    assert nothing_known(stats)
    assert stats.nan == "maybe"


def test_a_nan_count_on_another_type_is_no_matter() -> None:
    """Only floats hold NaN."""
    stats = stats_of(INT, statistics(i64(1), i64(2), nulls=0, nans=99))
    assert (stats.nan, bounds(stats, "int64")) == ("none", (1, 2))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (-0.0, -0.0), (-0.0, 0.0)])
@pytest.mark.parametrize("leaf", [NUMBER, HALF])
def test_zero_bounds_cover_both_zeros(leaf: dict[int, Any], low: float, high: float) -> None:
    """A zero may stand for either sign, whatever the file says of exactness (C5)."""
    code = "<d" if leaf is NUMBER else "<e"
    stats = stats_of(leaf, statistics(struct.pack(code, low), struct.pack(code, high), nulls=0, exact=True))
    assert stats.min is not None
    assert stats.max is not None
    assert repr((stats.min.float64, stats.max.float64)) == "(-0.0, 0.0)"
    assert (stats.min_exact, stats.max_exact) == (False, False)


# --- truncation (D4) ---


def test_long_bounds_are_cut_outwards() -> None:
    """A long minimum becomes its prefix, a long maximum a prefix whose last byte has grown; neither is exact."""
    low, high = b"a" * 100, b"b" * 100
    for leaf in (TEXT, BINARY, element("c", FIXED, length=100)):
        stats = stats_of(leaf, statistics(low, high, nulls=0, exact=True))
        kind = {TEXT[1]: "binary"}.get(leaf[1], "fixed(100)")
        assert bounds(stats, "string" if leaf is TEXT else kind) == (b"a" * 64, b"b" * 63 + b"c")
        assert (stats.min_exact, stats.max_exact) == (False, False)


def test_cutting_carries_over_ff() -> None:
    """Bytes that cannot grow are left out, and when none can, the whole maximum stays."""
    carried = stats_of(BINARY, statistics(b"", b"ab" + b"\xff" * 80, nulls=0, exact=True))
    assert bounds(carried, "binary") == (b"", b"ac")
    assert carried.max_exact is False
    whole = stats_of(BINARY, statistics(b"", b"\xff" * 80, nulls=0, exact=True))
    assert bounds(whole, "binary") == (b"", b"\xff" * 80)
    assert whole.max_exact is True


def test_text_cut_inside_a_character_is_kept_as_bytes() -> None:
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


# --- legacy min and max (E1 to E3) ---


@pytest.mark.parametrize("created_by", ["parquet-mr version 1.12.0", OLD_JAVA, None])
@pytest.mark.parametrize("orders", [None, []])
@pytest.mark.parametrize(
    ("leaf", "kind", "low", "high", "expected"),
    [
        (INT, "int64", i64(-1), i64(1), (-1, 1)),
        (TINY, "int8", i32(-1), i32(1), (-1, 1)),
        (FLAG, "boolean", b"\x00", b"\x01", (0, 1)),
        (DATE, "date", i32(-1), i32(1), (-1, 1)),
        (MICROS, "timestamp(us)", i64(-1), i64(1), (-1, 1)),
        (NUMBER, "float64", f64(-1), f64(1), (-1.0, 1.0)),
    ],
)
def test_old_bounds_of_signed_types_are_believed(
    created_by: str | None,
    orders: list[Any] | None,
    leaf: dict[int, Any],
    kind: str,
    low: bytes,
    high: bytes,
    expected: tuple[Any, Any],
) -> None:
    """Signed comparison was right for them all along, from any writer (E1); they are never exact."""
    raw = statistics(nulls=0, old_low=low, old_high=high, exact=True)
    stats = stats_of(leaf, raw, created_by=created_by, orders=orders)
    assert bounds(stats, kind) == expected
    assert (stats.min_exact, stats.max_exact) == (False, False)


def test_old_float_bounds_follow_the_rules_for_nan_and_zero() -> None:
    """C1, C2 and C5 hold for them too."""
    stats = stats_of(NUMBER, statistics(nulls=0, old_low=f64(NAN), old_high=f64(1)))
    assert (stats.min, stats.max, stats.nan) == (None, None, "maybe")
    stats = stats_of(NUMBER, statistics(nulls=0, old_low=f64(0.0), old_high=f64(-0.0)))
    assert repr(stats.min and stats.min.float64) == "-0.0"


@pytest.mark.parametrize(
    ("leaf", "low", "high"),
    [
        (TEXT, b"a", b"b"),
        (BINARY, b"a", b"b"),
        (PLAIN_FIXED, b"aaaaaa", b"bbbbbb"),
        (UUID, bytes(16), b"\x01" * 16),
        (DECIMAL_FIXED, bytes(4), b"\x00\x00\x00\x01"),
        (DECIMAL_BYTES, b"\x00", b"\x01"),
        (DECIMAL_32, i32(0), i32(1)),
        (DECIMAL_64, i64(0), i64(1)),
        (UINT64, i64(0), i64(1)),
        (UINT8, i32(0), i32(1)),
        (HALF, b"\x00\x3c", b"\x00\x40"),
    ],
)
def test_old_bounds_of_other_types_are_not_believed(leaf: dict[int, Any], low: bytes, high: bytes) -> None:
    """They were compared as signed bytes, or as nobody knows (E2)."""
    stats = stats_of(leaf, statistics(nulls=0, old_low=low, old_high=high), created_by="parquet-mr version 1.10.0")
    assert (stats.min, stats.max, stats.null_count) == (None, None, 0)
    assert stats.reason == "old-style bounds, whose order is not known"


@pytest.mark.parametrize(
    ("created_by", "believed"),
    [
        ("parquet-mr version 1.8.0 (build x)", True),
        ("parquet-mr version 1.10.1", True),
        ("fastparquet-python version 2026.9.0 (build 0)", True),
        ("impala version 1.3.0-INTERNAL (build x)", True),
        ("parquet-mr version 1.5.0-cdh5.5.0 (build x)", True),
        ("parquet-mr version 1.5.0-cdh5.12.1", True),
        ("parquet-mr version 1.5.0-cdh5.4.9", False),
        ("parquet-mr version 1.6.0-cdh5.5.0", False),
        ("parquet-mr version 1.7.0", False),
        ("Parquet-MR version 1.7", False),
        ("parquet-mr version 1.8.0rc3", False),
        ("parquet-mr version 1.8.0-SNAPSHOT", False),
        ("parquet-mr", False),
        ("parquet-mr version ", False),
        ("parquet-mr version x.y", False),
        ("Polars", False),
        ("", False),
        (None, False),
    ],
)
def test_old_equal_bounds_depend_on_the_writer(created_by: str | None, believed: bool) -> None:
    """One value is its own bounds in any order (E2), unless the writer is unknown or had PARQUET-251 (E3)."""
    for leaf, raw in ((TEXT, b"x"), (DECIMAL_FIXED, b"\xff\xff\xff\xff"), (PLAIN_FIXED, b"\xff" * 6)):
        stats = stats_of(leaf, statistics(nulls=0, old_low=raw, old_high=raw), created_by=created_by)
        assert (stats.min is not None, stats.max is not None) == (believed, believed)


def test_old_equal_bounds_of_integers_need_no_writer() -> None:
    """PARQUET-251 was about binary buffers."""
    stats = stats_of(UINT64, statistics(nulls=0, old_low=i64(-1), old_high=i64(-1)), created_by=None)
    assert bounds(stats, "uint64") == (2**64 - 1, 2**64 - 1)


def test_a_writer_that_is_denied_is_not_believed_in_new_fields_either() -> None:
    """PARQUET-251 spoils binary bounds wherever they stand; from an unknown writer with column orders they are good."""
    raw = statistics(b"a", b"b", nulls=0)
    assert stats_of(TEXT, raw, created_by=OLD_JAVA).min is None
    assert stats_of(TEXT, raw, created_by=None).min == Bound(string="a")
    assert stats_of(TEXT, raw, created_by="Polars").max == Bound(string="b")
    assert stats_of(INT, statistics(i64(1), i64(2)), created_by=OLD_JAVA).min == Bound(int64=1)


@pytest.mark.parametrize(
    ("created_by", "nulls", "believed"),
    [
        ("parquet-mr version 1.10.0 (build x)", 0, True),
        ("parquet-mr version 1.8.1", 0, False),
        ("parquet-mr version 1.5.0-cdh5.5.0", 0, False),
        ("parquet-mr", 0, False),
        ("parquet-cpp version 1.5.1-SNAPSHOT", 0, False),
        ("parquet-cpp-arrow version 5.0.0", 0, False),
        ("parquet-cpp-arrow version 6.0.0", 0, True),
        ("parquet-cpp-arrow version 6.0.0-SNAPSHOT", 3, False),
        ("Arrow2 - Native Rust implementation of Arrow", 0, False),
        ("Polars", 0, True),
        ("Polars", 3, False),
        ("Polars", 10, False),
        ("something else", 3, True),
        (None, 3, True),
    ],
)
def test_null_counts_depend_on_the_writer(created_by: str | None, nulls: int, believed: bool) -> None:
    """Writers that were seen to count wrongly are not believed; the bounds beside the count are (E6)."""
    raw = statistics(nulls=nulls) if nulls == 10 else statistics(i64(1), i64(2), nulls=nulls)
    stats = stats_of(INT, raw, created_by=created_by)
    assert stats.null_count == (nulls if believed else None)
    assert (stats.min is None) == (nulls == 10)
    required = element("c", INT64, repetition=REQUIRED)
    assert stats_of(required, statistics(i64(1), i64(2)), created_by=created_by).null_count == 0


def test_bounds_of_bytes_from_a_writer_that_cut_them_wrongly() -> None:
    """Only those: its numbers are right (E6)."""
    assert stats_of(TEXT, statistics(b"a", b"b", nulls=0), created_by="hyparquet").max is None
    assert stats_of(INT, statistics(i64(1), i64(2), nulls=0), created_by="hyparquet").max == Bound(int64=2)


def test_old_bounds_are_ignored_beside_new_ones() -> None:
    """Even when only one new bound is there, or its order is not known (E1)."""
    mixed = statistics(i64(5), None, nulls=0, old_low=i64(1), old_high=i64(9))
    assert bounds(stats_of(INT, mixed), "int64") == (5, None)
    assert bounds(stats_of(INT, mixed, orders=None), "int64") == (None, None)


# --- old calendars (B12) ---

SPARK = "org.apache.spark."
SPARK_2 = {f"{SPARK}version": "2.4.8"}
MODERN = {f"{SPARK}version": "4.3.0", f"{SPARK}sql.parquet.row.metadata": "{}"}


@pytest.mark.parametrize(
    ("properties", "old"),
    [
        ({}, False),
        (MODERN, False),
        ({f"{SPARK}version": "10.0.0"}, False),
        (SPARK_2, True),
        ({f"{SPARK}version": "nonsense"}, True),
        ({f"{SPARK}sql.parquet.row.metadata": "{}"}, True),
        ({**MODERN, f"{SPARK}legacyDateTime": ""}, True),
        ({**MODERN, f"{SPARK}legacyINT96": ""}, True),
    ],
)
def test_days_before_the_gregorian_calendar_need_a_modern_writer(properties: dict[str, str], old: bool) -> None:
    """In the old calendar a stored day before 1582-10-15 is another day for its reader."""
    before = stats_of(DATE, statistics(i32(-141_428), i32(-141_427), nulls=0), properties=properties)
    assert bounds(before, "date") == ((None if old else -141_428), -141_427)
    after = stats_of(DATE, statistics(i32(-141_427), i32(5), nulls=0), properties=properties)
    assert bounds(after, "date") == (-141_427, 5)
    both = stats_of(DATE, statistics(i32(-200_000), i32(-150_000), nulls=1), properties=properties)
    assert bounds(both, "date") == ((None, None) if old else (-200_000, -150_000))
    assert both.null_count == 1


def test_instants_before_1900_need_a_modern_writer() -> None:
    """The same for timestamps, in each unit; a maximum just behind the limit is not trusted either."""
    limit = -2_208_988_800
    for leaf, kind, per_second in ((MICROS, "timestamp(us)", 10**6), (NANOS, "timestamp(ns)", 10**9)):
        start = limit * per_second
        stats = stats_of(leaf, statistics(i64(start - 1), i64(start + 5), nulls=0), properties=SPARK_2)
        assert bounds(stats, kind) == (None, None)
        day = 86_400 * per_second
        stats = stats_of(leaf, statistics(i64(start), i64(start + day), nulls=0), properties=SPARK_2)
        assert bounds(stats, kind) == (start, start + day)


# --- nulls (F1 to F5) ---


def test_an_absent_null_count_is_unknown() -> None:
    """It is not zero (F1); a required column has none, whatever stands there."""
    assert stats_of(INT, statistics(i64(1), i64(2))).null_count is None
    assert stats_of(element("c", INT64, repetition=REQUIRED), statistics(i64(1), i64(2))).null_count == 0
    assert stats_of(element("c", INT64, repetition=REQUIRED), None).null_count == 0


@pytest.mark.parametrize(("repetition", "nulls"), [(OPTIONAL, -1), (OPTIONAL, 11), (REQUIRED, 1)])
def test_a_null_count_that_cannot_be_discredits_the_chunk(repetition: int, nulls: int) -> None:
    """Negative, more than the values, or any in a required column (F2)."""
    leaf = element("c", INT64, repetition=repetition)
    assert nothing_known(stats_of(leaf, statistics(i64(1), i64(2), nulls=nulls)))


def test_a_null_count_is_held_against_the_definition_levels() -> None:
    """A histogram that sums up to the values must agree (F3); one that does not is no evidence."""
    good = statistics(i64(1), i64(2), nulls=4)
    assert stats_of(INT, good, meta={16: {3: [4, 6]}}).null_count == 4
    assert nothing_known(stats_of(INT, good, meta={16: {3: [3, 7]}}))
    for useless in ([], [3, 6], [1, 3, 6], [10]):
        assert stats_of(INT, good, meta={16: {3: useless}}).null_count == 4
    assert stats_of(INT, statistics(i64(1), i64(2)), meta={16: {3: [4, 6]}}).null_count is None


def test_all_null_needs_the_count_and_no_bounds() -> None:
    """Every value null: nothing is missing (F4). With a bound beside it, neither is believed."""
    assert stats_of(INT, statistics(nulls=10)) == ColumnStats(null_count=10, in_memory_size=60)
    assert stats_of(NUMBER, statistics(nulls=10)).nan == "none"
    for raw in (statistics(i64(1), i64(2), nulls=10), statistics(nulls=10, old_high=i64(1))):
        assert nothing_known(stats_of(INT, raw))


@pytest.mark.parametrize("raw", [None, {}, statistics(nulls=3), statistics(exact=False)])
def test_missing_bounds_are_not_all_null(raw: dict[int, Any] | None) -> None:
    """Statistics can be turned off, or too long to be written (F5)."""
    stats = stats_of(INT, raw)
    assert (stats.min, stats.max) == (None, None)
    assert stats.null_count == (3 if raw and 3 in raw and raw[3] == 3 else None)
    assert stats.reason == "the footer has no bounds"


def test_values_that_are_not_the_rows_make_a_flat_column_unknown() -> None:
    """A flat column has one value or null for each row (A6)."""
    leaf_chunk = chunk(["c"], INT64, statistics(i64(1), i64(2), nulls=0), num_values=9)
    found, _ = block(metadata([INT], [(10, [leaf_chunk])]))
    assert nothing_known(found.col_stats[1])


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
    assert stats.reason == "decimal(40,2) has no order that can be trusted"


def test_a_bound_beyond_the_tables_type_is_unknown() -> None:
    """Microseconds of the year 300,000 are no nanoseconds of 64 bits: that side is open, the other stays."""
    stats = stats_of(MICROS, statistics(i64(5), i64(2**62), nulls=0), table_type="timestamp(ns)")
    assert bounds(stats, "timestamp(ns)") == (5000, None)
    assert stats.reason is not None


# --- row groups ---


def test_row_groups_are_merged() -> None:
    """Bounds span the row groups, counts add up, exactness follows the bound that won."""
    stats = stats_of(
        INT,
        statistics(i64(5), i64(6), nulls=1, exact=True),
        statistics(i64(1), i64(9), nulls=2, exact=False),
        statistics(i64(7), i64(8), nulls=0, exact=True),
    )
    assert bounds(stats, "int64") == (1, 9)
    assert (stats.null_count, stats.min_exact, stats.max_exact) == (3, False, False)
    assert (stats.in_memory_size, stats.source, stats.reason) == (180, "footer", None)


def test_a_row_group_that_says_nothing_makes_the_column_unknown() -> None:
    """One without statistics may hold anything."""
    stats = stats_of(INT, statistics(i64(5), i64(6), nulls=1), None)
    assert (stats.min, stats.max, stats.null_count) == (None, None, None)
    stats = stats_of(INT, statistics(i64(5), i64(6), nulls=1), statistics(i64(7), None, nulls=1))
    assert (bounds(stats, "int64"), stats.null_count) == ((5, None), 2)


def test_row_groups_without_values_change_no_bound() -> None:
    """All null, all NaN and empty row groups are neutral."""
    stats = stats_of(INT, statistics(i64(5), i64(6), nulls=1), statistics(nulls=10))
    assert (bounds(stats, "int64"), stats.null_count) == ((5, 6), 11)
    stats = stats_of(NUMBER, statistics(f64(5), f64(6), nulls=0, nans=0), statistics(nulls=0, nans=10))
    assert (bounds(stats, "float64"), stats.nan) == ((5.0, 6.0), "maybe")
    empty = (0, [chunk(["c"], INT64, None, num_values=0)])
    full = (10, [chunk(["c"], INT64, statistics(i64(5), i64(6), nulls=1))])
    found, _ = block(metadata([INT], [empty, full, empty]))
    assert bounds(found.col_stats[1], "int64") == (5, 6)
    assert (found.row_count, found.row_group_row_counts) == (10, (0, 10, 0))


def test_a_file_without_rows_is_a_block() -> None:
    """Its columns hold no value and no null."""
    for groups in ([], [(0, [chunk(["c"], INT64, None, num_values=0)])]):
        found, _ = block(metadata([INT], groups))
        assert (found.row_count, found.col_stats[1].null_count, found.col_stats[1].reason) == (0, 0, None)
