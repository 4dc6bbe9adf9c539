"""Parts of a key with ends that people can read: values as text, bins, labels."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.service.dashboard.key_scale import Bins, bins_of, neighbours, range_text, text_of, value_of
from lamella.snapshot.columnar.zones import keys_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import parse_type
from lamella.snapshot.warehouse.key_axis import KeyAxis, Window

DAY_US = 86_400_000_000
#: Days of the years 1 to 9999, in days and in units of a type.
DAYS = st.integers(-719_162, 2_932_896)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "float64": st.floats(allow_nan=False),
    "float32": st.floats(allow_nan=False, width=32),
    "decimal(10,2)": st.integers(1 - 10**10, 10**10 - 1),
    "decimal(38,0)": st.integers(1 - 10**38, 10**38 - 1),
    "date": DAYS,
    "timestamp(us)": st.integers(-719_162 * DAY_US, 2_932_897 * DAY_US - 1),
    "timestamp_ntz(ms)": st.integers(-719_162 * DAY_US // 1_000, (2_932_897 * DAY_US - 1) // 1_000),
    "time(us)": st.integers(0, DAY_US - 1),
    "string": st.text().map(str.encode),
    "binary": st.binary(max_size=20),
    "uuid": st.uuids().map(lambda found: found.bytes),
    "boolean": st.integers(0, 1),
}


def axis_over(name: str, values: list[Any]) -> KeyAxis:
    """An axis with these points, and a block of each."""
    dtype = parse_type(name)
    points = sorted(set(values))
    positions = np.arange(len(points), dtype=np.int32)
    return KeyAxis(column="c", dtype=dtype, points=keys_of(dtype, points), low=positions, high=positions)


def day(text: str) -> int:
    """Days since the epoch."""
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days


@pytest.mark.parametrize("name", list(VALUES))
@given(data=st.data())
def test_values_are_read_as_they_are_written(name: str, data: st.DataObject) -> None:
    """A link to a part of a key leads to that part."""
    dtype = parse_type(name)
    value = data.draw(VALUES[name])
    text = text_of(dtype, value)
    assert value_of(dtype, text) == value_of(dtype, text, is_upper=True) == value


def test_nanoseconds_are_read_as_microseconds_around_them() -> None:
    """Times are written with nine digits and read with six: a part of the key never loses its ends."""
    dtype = parse_type("timestamp(ns)")
    value = 1_600_000_000_123_456_789
    text = text_of(dtype, value)
    assert text.endswith(".123456789")
    low, high = int(value_of(dtype, text)), int(value_of(dtype, text, is_upper=True))
    assert low <= value <= high
    assert value_of(dtype, "2020-09-13 12:26:40", is_upper=True) == 1_600_000_000_000_000_000


@pytest.mark.parametrize(
    ("name", "text"),
    [("int64", "abc"), ("int64", "1.5"), ("date", "yesterday"), ("float64", "NaN"), ("binary", "xyz"), ("uuid", "1")],
)
def test_what_is_no_value_is_refused(name: str, text: str) -> None:
    """The message names the text."""
    with pytest.raises(InvalidRequest, match="is not a value"):
        value_of(parse_type(name), text)


@pytest.mark.parametrize("name", list(VALUES))
@given(data=st.data(), at_most=st.integers(2, 100), even=st.sampled_from([None, False, True]))
def test_bins_cover_their_part_of_the_key(name: str, data: st.DataObject, at_most: int, even: bool | None) -> None:
    """Edges ascend from the least to the greatest value, there are not too many, each point is in one bin, and a bin is
    less than the whole."""
    axis = axis_over(name, data.draw(st.lists(VALUES[name], min_size=1, max_size=30)))
    whole = axis.whole
    assert whole is not None
    bins = bins_of(axis, whole, at_most, even=even)
    assert 1 <= len(bins) <= at_most
    edges: list[Any] = list(bins.edges)
    assert edges == sorted(edges)
    assert bins.edges[0] == whole.low
    assert bins.highs[-1] == whole.high
    first, last = axis.crossed(bins.edges, np.arange(len(axis)))
    assert first.tolist() == last.tolist()
    for point, number in enumerate(first.tolist()):
        window: Any = bins.window_of(number)
        assert window.low <= axis.value(point) <= window.high
        assert 0.0 <= bins.position(axis.value(point)) <= bins.position(axis.value(point), is_upper=True) <= 1.0
    if len(bins) > 1:
        assert all(bins.window_of(number) != whole for number in range(len(bins)))
    sides = [bins.sides(number) for number in range(len(bins))]
    assert all(start <= end for start, end in sides)
    assert (sides[0][0], sides[-1][1]) == (0.0, 1.0)
    ticks = bins.ticks()
    assert 1 <= len(ticks) <= 12
    assert all(0.0 <= share <= 1.0 and label for share, label in ticks)
    assert [share for share, _ in ticks] == sorted(share for share, _ in ticks)


@pytest.mark.parametrize(
    ("name", "low", "high", "labels"),
    [
        ("date", day("1992-01-04"), day("1998-11-29"), ["1993", "1994", "1995", "1996", "1997", "1998"]),
        ("date", day("2021-01-15"), day("2021-05-15"), ["2021-02", "2021-03", "2021-04", "2021-05"]),
        ("int64", 0, 1_000, ["0", "200", "400", "600", "800", "1,000"]),
        ("decimal(10,2)", 0, 100, ["0.00", "0.20", "0.40", "0.60", "0.80", "1.00"]),
        ("float64", 0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        (
            "timestamp(us)",
            0,
            4 * 3_600_000_000,
            ["1970-01-01 00:00", "1970-01-01 01:00", "1970-01-01 02:00", "1970-01-01 03:00"],
        ),
        ("time(us)", 0, 3_600_000_000, ["00:00", "00:10", "00:20", "00:30", "00:40", "00:50"]),
    ],
)
def test_labels_are_round_values(name: str, low: Any, high: Any, labels: list[str]) -> None:
    """Of dates only the parts that tell them apart."""
    bins = bins_of(axis_over(name, [low, high]), Window(low, high), 90)
    assert not bins.is_even
    assert [label for _, label in bins.ticks()] == labels


def test_texts_differ_by_their_beginnings() -> None:
    """The shortest beginning that is greater than the text before."""
    axis = axis_over("string", [f"customer-{number:04}".encode() for number in range(100)])
    bins = bins_of(axis, Window(b"customer-0000", b"customer-0099"), 10)
    assert bins.is_even
    assert bins.edges[1:4] == (b"customer-001", b"customer-002", b"customer-003")
    assert bins.text(1) == "customer-001 to customer-0019"


def test_a_beginning_never_ends_inside_a_character() -> None:
    """Two characters may share their first byte."""
    axis = axis_over("string", ["é".encode(), "ê".encode()])
    assert bins_of(axis, Window("é".encode(), "ê".encode()), 2).edges[1] == "ê".encode()


def test_values_far_from_the_others_do_not_squeeze_them() -> None:
    """When nearly all bounds are in one place, parts have as many bounds each, unless that is asked otherwise."""
    axis = axis_over("int64", [*range(1_000), 10**15])
    whole = axis.whole
    assert whole is not None
    assert bins_of(axis, whole, 90).is_even
    assert not bins_of(axis, whole, 90, even=False).is_even
    assert not bins_of(axis_over("int64", list(range(1_000))), Window(0, 999), 90).is_even


def test_infinities_and_times_without_a_calendar_have_even_bins() -> None:
    """No round value lies between them."""
    for name, values in (("float64", [-math.inf, 1.0, math.inf]), ("date", [0, 10**9])):
        axis = axis_over(name, values)
        assert axis.whole is not None
        bins = bins_of(axis, axis.whole, 10, even=False)
        assert isinstance(bins, Bins)
        assert bins.is_even


def test_midnights_are_written_as_days() -> None:
    """A range of days reads like one."""
    dtype = parse_type("timestamp(us)")
    assert range_text(dtype, Window(0, DAY_US)) == "1970-01-01 to 1970-01-02"
    assert range_text(dtype, Window(0, 1)) == "1970-01-01 00:00:00 to 1970-01-01 00:00:00.000001"


@given(st.data())
def test_ways_out_of_a_part_lead_elsewhere(data: st.DataObject) -> None:
    """To the whole, to a wider part, and to those before and after, which do not overlap this one."""
    axis = axis_over("int64", data.draw(st.lists(st.integers(-50, 50), min_size=1, max_size=20)))
    low, high = sorted(data.draw(st.tuples(st.integers(-60, 60), st.integers(-60, 60))))
    window = Window(low, high)
    ways: dict[str, Any] = dict(neighbours(axis, window))
    whole: Any = axis.whole
    assert ("Whole key" in ways) == (window != whole)
    for name, part in ways.items():
        if part is None:
            continue
        assert whole.low <= part.low <= part.high <= whole.high
        assert part != window
        if name == "Before":
            assert part.high < low
        if name == "After":
            assert part.low > high
