"""Constants beside columns: the constant that stands for a value has the position of that value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.expression.coerce import Point, coerce, literal_of
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.types import PER_SECOND, parse_type

ZONES = ("UTC", "Europe/Berlin", "America/New_York")
KINDS = {
    "tinyint": "integer",
    "bigint": "integer",
    "decimal(9,2)": "decimal",
    "decimal(18,0)": "decimal",
    "decimal(38,38)": "decimal",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp(ms)": "timestamp",
    "timestamp(ns)": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "timestamp_ntz(ns)": "timestamp_ntz",
}


@pytest.mark.parametrize("name", KINDS)
@given(value=st.one_of(st.integers(-3, 3), st.integers(-(10**6), 10**6)), zone=st.sampled_from(ZONES))
def test_the_constant_of_a_value_is_at_its_position(name: str, value: int, zone: str) -> None:
    """For every type of whole numbers, dates and times, in every time zone; its kind is that of the type."""
    dtype = parse_type(name)
    if name == "tinyint":
        value %= 128
    if name.endswith("(ns)"):
        value *= PER_SECOND["ns"] // PER_SECOND["us"]  # constants have microseconds
    literal = literal_of(dtype, value)
    assert literal is not None
    assert literal.kind == KINDS[name]
    leaf = Schema.assign([Column(name="c", type=name)]).leaf("c")
    assert coerce(literal, leaf, zone) == Point(value)


@pytest.mark.parametrize("name", ["timestamp(ns)", "timestamp_ntz(ns)"])
def test_a_moment_between_two_microseconds_has_no_constant(name: str) -> None:
    """The nearest one would select other rows."""
    assert literal_of(parse_type(name), 1_700_000_000_123_456_789) is None


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("boolean", 0, "boolean"),
        ("boolean", 1, "boolean"),
        ("double", -0.5, "double"),
        ("float", 0.25, "double"),
        ("string", b"\xc3\xa4", "string"),
        ("binary", b"\xff\x00", "binary"),
    ],
)
def test_the_constant_of_another_value_is_at_its_position_too(name: str, value: float | bytes, kind: str) -> None:
    """For booleans, floats, texts and bytes."""
    literal = literal_of(parse_type(name), value)
    assert literal is not None
    assert literal.kind == kind
    leaf = Schema.assign([Column(name="c", type=name)]).leaf("c")
    assert coerce(literal, leaf, "UTC") == Point(value)
