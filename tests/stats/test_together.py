"""Statistics of many blocks at once: the same as block by block."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.columnar.zones import arrays_of, exact_bits, gather
from lamella.snapshot.schema import DataType
from lamella.snapshot.schema.types import parse_type
from lamella.snapshot.stats import ColumnStats, Nan, from_bound, merge, to_bound
from lamella.snapshot.stats.bound import Value, from_bounds, to_bounds
from lamella.snapshot.stats.column import merge_columns

_Column = tuple[DataType, list[int], list[ColumnStats | None]]

_TYPES = [
    parse_type(text)
    for text in (
        "boolean",
        "int8",
        "int64",
        "uint64",
        "float32",
        "float64",
        "date",
        "time(ms)",
        "timestamp(ns)",
        "timestamp_ntz(us)",
        "decimal(9,2)",
        "decimal(38,4)",
        "string",
        "binary",
    )
]


def values(dtype: DataType) -> st.SearchStrategy[Value]:
    """Values of a type, its ends among them."""
    if dtype.order == "float":
        return st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf])
    if dtype.order == "bytes":
        return st.sampled_from([b"", b"a", b"\xff", "é".encode(), b"b" * 70])
    low, high = dtype.int_range
    return st.sampled_from([low, low + 1, 0, high - 1, high])


@st.composite
def columns(draw: st.DrawFn) -> _Column:
    """A type, and the rows and statistics of a few blocks; in most draws all blocks know as much as each other."""
    dtype = draw(st.sampled_from(_TYPES))
    is_mixed = draw(st.booleans())
    rows: list[int] = []
    stats: list[ColumnStats | None] = []
    for _ in range(draw(st.integers(0, 5))):
        count = draw(st.sampled_from([0, 1, 10])) if is_mixed else 10
        rows.append(count)
        if is_mixed and draw(st.sampled_from([False, False, False, True])):
            stats.append(None)
            continue
        low, high = (
            to_bound(dtype, draw(values(dtype))) if not is_mixed or draw(st.booleans()) else None for _ in range(2)
        )
        kinds: list[Nan] = ["none", "maybe", "all"] if is_mixed else ["none", "maybe"]
        nulls = draw(st.sampled_from([0, 1, count]))
        stats.append(
            ColumnStats(
                min=low,
                max=high,
                null_count=None if draw(st.sampled_from([False, False, True])) else nulls,
                nan=draw(st.sampled_from(kinds)) if dtype.is_float else "none",
                min_exact=draw(st.booleans()),
                max_exact=draw(st.booleans()),
                in_memory_size=draw(st.sampled_from([None, 5])),
                reason=draw(st.sampled_from([None, "why"])) if is_mixed else None,
            )
        )
    return dtype, rows, stats


@given(columns())
def test_a_segments_summary_is_the_merge_of_its_blocks(column: _Column) -> None:
    """Whether the blocks are merged one after the other or member by member."""
    dtype, rows, stats = column
    maps = [{} if each is None else {1: each} for each in stats]
    assert merge_columns({1: dtype}, zip(rows, maps, strict=True)) == {
        1: merge(dtype, list(zip(rows, stats, strict=True)))
    }


@given(st.lists(st.sampled_from([1, 1 << 61, (1 << 63) - 1]), min_size=1, max_size=4))
def test_a_sum_beyond_64_bits_is_unknown(numbers: list[int]) -> None:
    """Manifests store 64 bits, and a sum that is cut would be wrong; bounds stay known."""
    dtype = parse_type("int64")
    bound = to_bound(dtype, 1)
    parts = [(1 << 60, ColumnStats(min=bound, max=bound, null_count=each, in_memory_size=each)) for each in numbers]
    expected = sum(numbers) if sum(numbers) < 1 << 63 else None
    for found in (merge(dtype, parts), merge_columns({1: dtype}, [(rows, {1: each}) for rows, each in parts])[1]):
        assert (found.null_count, found.in_memory_size, found.min) == (expected, expected, bound)


@given(columns())
def test_a_sidecars_arrays_are_those_of_its_blocks(column: _Column) -> None:
    """Lows, highs, flags and null counts, gathered in either way, of few blocks and of more."""
    dtype, few_rows, few_stats = column
    for times in (1, 17):
        rows, stats = [*few_rows] * times, [*few_stats] * times
        entries = list(zip(rows, stats, strict=True))
        lows, highs, flags, nulls = arrays_of(dtype, entries)
        found = gather(dtype, rows, stats)
        assert list(map(repr, found[0])) == list(map(repr, lows))
        assert list(map(repr, found[1])) == list(map(repr, highs))
        assert np.array_equal(found[2], flags | exact_bits(entries))
        assert np.array_equal(found[3], nulls)


@given(st.sampled_from(_TYPES).flatmap(lambda dtype: st.tuples(st.just(dtype), st.lists(values(dtype), max_size=5))))
def test_many_bounds_are_what_each_of_them_is(case: tuple[DataType, list[Value]]) -> None:
    """In both directions."""
    dtype, given_values = case
    bounds = to_bounds(dtype, given_values)
    assert bounds == [to_bound(dtype, value) for value in given_values]
    assert list(map(repr, from_bounds(dtype, bounds))) == [repr(from_bound(dtype, bound)) for bound in bounds]
