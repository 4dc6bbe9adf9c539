"""Statistics in Iceberg's terms: what is written is read back by pyiceberg as what it was, and nothing unsound is."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import PrimitiveType

from lamella.snapshot.iceberg.scan_plan import FileStatistics, file_statistics
from lamella.snapshot.iceberg.types import schema_json
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema, parse_type
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.bound import upper_prefix

ROWS = 10


def statistics(kind: str, low: Any = None, high: Any = None, **more: Any) -> FileStatistics:
    """Those of a block of one column, whose bounds are values of it unless ``exact`` says otherwise."""
    dtype = parse_type(kind)
    exact = more.pop("exact", True)
    stats = ColumnStats(
        min=None if low is None else to_bound(dtype, low),
        max=None if high is None else to_bound(dtype, high),
        min_exact=exact and low is not None,
        max_exact=exact and high is not None,
        **{"null_count": 0, **more},
    )
    block = Block(location="file:///a", row_count=ROWS, file_size=1, col_stats={1: stats})
    return file_statistics(block, Schema.assign([Column(name="a", type=kind)]))


def read(kind: str, bound: bytes) -> Any:
    """A bound as pyiceberg reads it."""
    schema = IcebergSchema.model_validate(schema_json(Schema.assign([Column(name="a", type=kind)])))
    of = schema.fields[0].field_type
    assert isinstance(of, PrimitiveType)
    return from_bytes(of, bound)


@pytest.mark.parametrize(
    ("kind", "low", "high", "low_read", "high_read"),
    [
        ("boolean", 0, 1, False, True),
        ("int8", -128, 127, -128, 127),
        ("int32", -(1 << 31), (1 << 31) - 1, -(1 << 31), (1 << 31) - 1),
        ("int64", -(1 << 63), (1 << 63) - 1, -(1 << 63), (1 << 63) - 1),
        ("float32", -1.5, math.inf, -1.5, math.inf),
        ("float64", -math.inf, 0.1, -math.inf, 0.1),
        ("date", -719_162, 20_000, -719_162, 20_000),
        ("timestamp(us)", -1, 1 << 60, -1, 1 << 60),
        ("timestamp_ntz(us)", -5, 7, -5, 7),
        ("time(us)", 0, 86_399_999_999, 0, 86_399_999_999),
        ("decimal(9,2)", -12_345, 99, Decimal("-123.45"), Decimal("0.99")),
        ("decimal(38,0)", 1 - 10**38, 10**38 - 1, Decimal(1 - 10**38), Decimal(10**38 - 1)),
        ("string", b"", "\U0001f600".encode(), "", "\U0001f600"),
        ("binary", b"\0", b"\xff\xff", b"\0", b"\xff\xff"),
        ("fixed(2)", b"ab", b"cd", b"ab", b"cd"),
    ],
)
def test_bounds_are_read_as_they_were(kind: str, low: Any, high: Any, low_read: Any, high_read: Any) -> None:
    """Of every type that has an order, at the ends of its range."""
    found = statistics(kind, low, high)
    assert (read(kind, found.lower_bounds[1]), read(kind, found.upper_bounds[1])) == (low_read, high_read)
    assert (found.value_counts, found.null_value_counts) == ({1: ROWS}, {1: 0})


@given(st.integers(1 - 10**38, 10**38 - 1))
def test_decimals_take_as_few_bytes_as_hold_them(unscaled: int) -> None:
    """Big-endian two's complement, and no byte more: the specification's form, which readers may compare as it is."""
    data = statistics("decimal(38,2)", unscaled, unscaled).lower_bounds[1]
    assert int.from_bytes(data, "big", signed=True) == unscaled
    if len(data) > 1:
        with pytest.raises(OverflowError):
            unscaled.to_bytes(len(data) - 1, "big", signed=True)


@pytest.mark.parametrize("kind", ["int32", "int64", "float64", "date", "timestamp(us)", "decimal(9,2)", "fixed(2)"])
def test_a_bound_that_is_no_value_of_a_row_is_left_out(kind: str) -> None:
    """Spark answers MIN and MAX by bounds of these types."""
    value: Any = b"ab" if kind.startswith("fixed") else 5
    found = statistics(kind, value, value, exact=False)
    assert (found.lower_bounds, found.upper_bounds) == ({}, {})
    assert found.null_value_counts == {1: 0}


def test_a_uuid_has_no_bounds() -> None:
    """Clients order them in two ways."""
    found = statistics("uuid", bytes(16), b"\xff" * 16)
    assert (found.lower_bounds, found.upper_bounds) == ({}, {})


def test_a_column_that_may_hold_nan_has_no_upper_bound() -> None:
    """Spark's NaN is greater than every number, and MAX is NaN where there is one; how many there are is not known."""
    found = statistics("float64", 1.0, 2.0, nan="maybe")
    assert (found.upper_bounds, found.nan_value_counts) == ({}, {})
    assert read("float64", found.lower_bounds[1]) == 1.0
    assert statistics("float64", 1.0, 2.0).nan_value_counts == {1: 0}
    only = statistics("float64", nan="all", null_count=3)
    assert (only.lower_bounds, only.upper_bounds, only.nan_value_counts) == ({}, {}, {1: 7})
    assert statistics("float64", nan="all", null_count=None).nan_value_counts == {}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_bounds_both_zeros(kind: str, zero: float) -> None:
    """Iceberg takes -0.0 for less than 0.0, and no row may be lost by that."""
    found = statistics(kind, zero, zero)
    low, high = (read(kind, bound[1]) for bound in (found.lower_bounds, found.upper_bounds))
    assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)
    assert (low, high) == (0, 0)


def test_what_is_not_known_is_not_said() -> None:
    """No null count is not zero nulls; a column without values has counts and no bounds."""
    assert statistics("int64", 1, 2, null_count=None).null_value_counts == {}
    empty = statistics("int64", null_count=ROWS)
    assert (empty.null_value_counts, empty.lower_bounds, empty.upper_bounds) == ({1: ROWS}, {}, {})
    assert statistics("float64", null_count=ROWS).nan_value_counts == {}


def test_columns_below_lists_and_maps_are_left_out() -> None:
    """They have as many values as their lists are long, and statistics here count rows."""
    element = Column(name="element", type="int64")
    schema = Schema.assign([Column(name="l", type="list", fields=(element,)), Column(name="b", type="int64")])
    stats = {leaf.id: ColumnStats(null_count=0) for leaf in schema.leaves()}
    found = file_statistics(Block(location="file:///a", row_count=1, file_size=1, col_stats=stats), schema)
    assert set(found.value_counts) == set(schema.select(["b"]))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 12))
def test_cut_text_bounds_are_text_that_holds_all_values(values: list[str], length: int) -> None:
    """However a bound was cut, inside a character too: readers decode it, and compare it as text."""
    encoded = sorted(value.encode() for value in values)
    found = statistics("string", encoded[0][:length], upper_prefix(encoded[-1], length), exact=False)
    assert read("string", found.lower_bounds[1]) <= min(values)
    if 1 in found.upper_bounds:
        assert read("string", found.upper_bounds[1]) >= max(values)


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (b"ab\xc4", "ac"),
        ("\ud7ff".encode() + b"\x80", "\ue000"),
        ("a\U0010ffff".encode() + b"\x80", "b"),
        ("\U0010ffff".encode() + b"\x80", None),
        (b"\xff", None),
    ],
)
def test_an_upper_bound_that_is_no_text_grows_to_the_next_one(bound: bytes, text: str | None) -> None:
    """By its last character, but never into the surrogates; where nothing is greater there is none."""
    found = statistics("string", high=bound, exact=False)
    assert found.upper_bounds == ({} if text is None else {1: text.encode()})


def test_narrow_bounds_are_read_by_the_types_of_now() -> None:
    """A manifest outlives a widening: readers take four bytes for a long or a double."""
    assert read("int64", statistics("int32", -5, 5).lower_bounds[1]) == -5
    assert read("float64", statistics("float32", 0.5, 1.0).lower_bounds[1]) == 0.5
    assert statistics("float32", 0.5, 1.0).lower_bounds[1] == struct.pack("<f", 0.5)
