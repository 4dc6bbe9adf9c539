"""Floats: NaN and the two zeros (rules C1 to C5)."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from lamella.snapshot.stats import ColumnStats
from parquet.crafted import statistics, stats_of
from parquet.leaves import HALF, INT, NUMBER, bounds, f64, i64, nothing_known

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
    """A zero may stand for either sign (C5); that some zero occurs is as exact as the file says."""
    code = "<d" if leaf is NUMBER else "<e"
    stats = stats_of(leaf, statistics(struct.pack(code, low), struct.pack(code, high), nulls=0, exact=True))
    assert stats.min is not None
    assert stats.max is not None
    assert repr((stats.min.float64, stats.max.float64)) == "(-0.0, 0.0)"
    assert (stats.min_exact, stats.max_exact) == (True, True)
