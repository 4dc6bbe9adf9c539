"""Statistics whose worth depends on who wrote them, and when (rules B12, E1 to E6)."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.stats import Bound
from parquet.crafted import INT64, REQUIRED, element, statistics, stats_of
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
    TEXT,
    TINY,
    UINT8,
    UINT64,
    UUID,
    bounds,
    f64,
    i32,
    i64,
)

OLD_JAVA = "parquet-mr version 1.7.0 (build abc)"


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
    stats = stats_of(NUMBER, statistics(nulls=0, old_low=f64(float("nan")), old_high=f64(1)))
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
    assert stats.reason == "old-style bounds, whose order is unknown"


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


def test_old_equal_bounds_of_half_floats_are_not_believed() -> None:
    """NaN was compared as nobody knows, also with itself."""
    raw = statistics(nulls=0, old_low=b"\x00\x3c", old_high=b"\x00\x3c")
    assert stats_of(HALF, raw, created_by="parquet-mr version 1.14.0").min is None


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
        ("Polars (python) version 2.0.9 (build x)", 3, False),
        ("Polars (python) version 2.0.9 (build x)", 0, True),
        ("Polars (python) version 2.1.0 (build x)", 3, True),
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
