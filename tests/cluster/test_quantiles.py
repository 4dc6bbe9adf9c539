"""Numbers that say where values stand: in order, the same for equal values, and using all bits."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import pickle
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.cluster.curve import Quantiles, quantiles, unpacked
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import parse_type

TEXTS = st.one_of(
    st.text(max_size=12),
    st.text("ab", max_size=3).map(lambda text: "https://example.test/" + text),
    st.sampled_from(["", "\0", "a\0", "a", "é", "\U0001f600"]),
)
#: Arrow type, type, values.
COLUMNS: dict[str, tuple[pa.DataType, str, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), "boolean", st.booleans()),
    "int8": (pa.int8(), "int8", st.integers(-128, 127)),
    "int64": (pa.int64(), "int64", st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)),
    "uint64": (pa.uint64(), "uint64", st.integers(0, (1 << 64) - 1) | st.integers(0, 3)),
    "float64": (pa.float64(), "float64", st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf])),
    "float32": (pa.float32(), "float32", st.floats(width=32)),
    "decimal": (pa.decimal128(9, 2), "decimal(9,2)", st.decimals(-9_999_999, 9_999_999, places=2)),
    "wide": (
        pa.decimal128(38, 0),
        "decimal(38,0)",
        (st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-3, 3) | st.integers(2**64 - 2, 2**64 + 2)).map(Decimal),
    ),
    "string": (pa.string(), "string", TEXTS),
    "large_string": (pa.large_string(), "string", TEXTS),
    "binary": (pa.binary(), "binary", st.binary(max_size=20)),
    "fixed": (pa.binary(3), "fixed(3)", st.binary(min_size=3, max_size=3)),
    "date": (pa.date32(), "date", st.dates()),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        "timestamp(us)",
        st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),  # noqa: DTZ001
    ),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "string", TEXTS),
}


def compared(left: Any, right: Any) -> int:
    """The order of a cluster key: nulls last, NaN greatest, zeros equal, text by its bytes."""
    last = [2 if value is None else int(isinstance(value, float) and math.isnan(value)) for value in (left, right)]
    if any(last):
        return last[0] - last[1]
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return int(left > right) - int(left < right)


@pytest.mark.parametrize("name", list(COLUMNS))
@given(data=st.data(), bits=st.sampled_from([1, 2, 5, 16, 32]))
def test_numbers_are_in_the_order_of_the_values(name: str, data: st.DataObject, bits: int) -> None:
    """Of values that were in the sample or not: equal ones have one number, greater ones no lesser one."""
    arrow, dtype, values = COLUMNS[name]
    sample = data.draw(st.lists(st.none() | values, max_size=40))
    probes = data.draw(st.lists(st.none() | values, max_size=20)) + sample[:10]
    found = quantiles(pa.array(sample, arrow), parse_type(dtype), bits)
    for each in (found, unpacked(found.packed()), pickle.loads(pickle.dumps(found))):  # noqa: S301  # our own
        positions = each.numbers(pa.array([None, *probes], arrow)[1:]).tolist()
        assert all(0 <= position < 1 << bits for position in positions)
        pairs: list[tuple[Any, int]] = list(zip(probes, positions, strict=True))
        pairs.sort(key=lambda pair: cmp_to_key(compared)(pair[0]))
        for (left, low), (right, high) in itertools.pairwise(pairs):
            assert low == high if compared(left, right) == 0 else low <= high
    chunked = pa.chunked_array([pa.array(probes[:3], arrow), pa.array(probes[3:], arrow)])
    assert found.numbers(chunked).tolist() == found.numbers(pa.array(probes, arrow)).tolist()


def shares(found: Quantiles, values: Any) -> np.ndarray[Any, Any]:
    """Numbers as parts of their range."""
    return found.numbers(pa.array(values)) / float(1 << found.bits)


def test_many_values_are_spread_evenly() -> None:
    """Whatever the values are, about as many rows have each of sixteen parts of the numbers."""
    rng = np.random.default_rng(1)
    values = rng.lognormal(0, 4, 200_000)
    found = quantiles(pa.array(values[:50_000]), parse_type("float64"), 16)
    counts = np.histogram(shares(found, values), bins=16, range=(0, 1))[0]
    assert counts.min() > 0.95 * len(values) / 16
    assert counts.max() < 1.05 * len(values) / 16


def test_few_values_use_all_bits_too() -> None:
    """Two values differ in the first bit, four in the first two; a value stands in the middle of its rows."""
    for count in (2, 4):
        values = np.repeat(np.arange(count), 100)
        found = quantiles(pa.array(values), parse_type("int64"), 16)
        assert shares(found, np.arange(count)).tolist() == [(2 * at + 1) / (2 * count) for at in range(count)]
    found = quantiles(pa.array(["x"] * 90 + ["y"] * 10), parse_type("string"), 16)
    assert shares(found, ["x", "y"]).tolist() == pytest.approx([0.45, 0.95], abs=1e-4)


def test_nulls_have_their_part_of_the_numbers() -> None:
    """A column half of nulls has its values in the lower half."""
    column = pa.array([None if at % 2 else at for at in range(1_000)], pa.int64())
    found = quantiles(column, parse_type("int64"), 10)
    positions = found.numbers(column)
    assert positions[1::2].tolist() == [768] * 500
    assert positions[0::2].max() < 512
    assert positions[0::2].tolist() == sorted(positions[0::2].tolist())


def test_values_between_those_of_the_sample_stand_between_them() -> None:
    """Below, between and above the values that were seen."""
    found = quantiles(pa.array([10, 20, 30]), parse_type("int64"), 8)
    positions = found.numbers(pa.array([0, 10, 15, 20, 25, 30, 40])).tolist()
    assert positions == sorted(positions)
    assert len(set(positions)) == 7


def test_an_empty_sample_says_nothing() -> None:
    """Every value and null has one number, and nothing fails."""
    for name, (arrow, dtype, _) in COLUMNS.items():
        found = quantiles(pa.array([], arrow), parse_type(dtype), 4)
        assert found.numbers(pa.nulls(3, arrow)).tolist() == [15] * 3, name
    assert quantiles(pa.chunked_array([], pa.int64()), parse_type("int64"), 4).numbers(pa.array([7])).tolist() == [15]


def test_what_has_no_order_is_refused() -> None:
    """Types without order, arrays of another type, too many bits."""
    with pytest.raises(InvalidRequest, match="no order"):
        quantiles(pa.array([1]), parse_type("variant"), 4)
    with pytest.raises(TypeError, match="does not hold"):
        quantiles(pa.array(["1"]), parse_type("decimal(30,2)"), 4)
    with pytest.raises(ValueError, match="1 to 32 bits"):
        quantiles(pa.array([1]), parse_type("int64"), 33)
