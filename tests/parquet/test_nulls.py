"""Null counts, and what row groups make of each other (rules A6, F1 to F5)."""

from __future__ import annotations

from typing import Any

import pytest

from lamella.snapshot.stats import ColumnStats
from parquet.crafted import INT64, OPTIONAL, REQUIRED, block, chunk, element, metadata, statistics, stats_of
from parquet.leaves import INT, NUMBER, bounds, f64, i64, nothing_known

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


def test_a_null_count_is_checked_against_the_definition_levels() -> None:
    """A histogram that sums up to the values must agree (F3); one that does not is no evidence."""
    good = statistics(i64(1), i64(2), nulls=4)
    assert stats_of(INT, good, meta={16: {3: [4, 6]}}).null_count == 4
    assert nothing_known(stats_of(INT, good, meta={16: {3: [3, 7]}}))
    for useless in ([], [3, 5], [1, 3, 6], [10]):
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
