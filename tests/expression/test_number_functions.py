"""What the bounds of a block say of a number function holds for each of its rows, at the ends of each type."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.snapshot.columnar import zones_of
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NAN, MAY_NUMBER, Zones, is_wide, number_dtype
from lamella.snapshot.function import numeric
from lamella.snapshot.function.base import Vector
from lamella.snapshot.prune.top_k import value_at
from lamella.snapshot.schema import parse_type
from lamella.snapshot.schema.types import DataType
from lamella.snapshot.stats import ColumnStats, to_bound

INT8, INT32, INT64, UINT32, UINT64 = map(parse_type, ("int8", "int32", "int64", "uint32", "uint64"))
NARROW, LONG, SENTINEL, WIDE = map(parse_type, ("decimal(9,2)", "decimal(18,0)", "decimal(20,0)", "decimal(38,10)"))
SINGLE, DOUBLE = map(parse_type, ("float32", "float64"))
SIGNED = (INT8, INT32, INT64)
DECIMALS = (NARROW, LONG, SENTINEL, WIDE)

#: Each function with the types of its arguments.
FUNCTIONS: dict[str, tuple[Any, tuple[DataType, ...]]] = {
    **{f"-{dtype}": (numeric.Negative(dtype), (dtype,)) for dtype in (*SIGNED, *DECIMALS, SINGLE, DOUBLE)},
    **{f"abs({dtype})": (numeric.Absolute(dtype), (dtype,)) for dtype in (*SIGNED, *DECIMALS, SINGLE, DOUBLE)},
    **{
        f"{operation} of {dtype}": (numeric.Integers(operation, dtype), (dtype, dtype))
        for operation in ("add", "subtract", "multiply")
        for dtype in SIGNED
    },
    **{
        f"{operation} of {DOUBLE}": (numeric.Doubles(operation, DOUBLE), (DOUBLE, DOUBLE))
        for operation in ("add", "subtract", "multiply", "divide")
    },
    **{
        f"{source} as {target}": (numeric.Whole(target, divisor=10**source.scale), (source,))
        for source in (*SIGNED, UINT32, UINT64, *DECIMALS)
        for target in SIGNED
    },
    **{
        f"{source} as {target}": (numeric.Whole(target, factor=10 ** (target.scale - source.scale)), (source,))
        for source in (*SIGNED, UINT64, *DECIMALS)
        for target in DECIMALS
        if target.scale >= source.scale
    },
    **{f"{dtype} as {DOUBLE}": (numeric.ToDouble(DOUBLE), (dtype,)) for dtype in (*SIGNED, UINT32, UINT64, SINGLE)},
    **{f"{DOUBLE} as {dtype}": (numeric.ToInteger(dtype), (DOUBLE,)) for dtype in SIGNED},
}
_ENDS = [sign * (1 << bits) + step for sign in (1, -1) for bits in (7, 31, 53, 61, 62, 63) for step in (-1, 0, 1)]
_FLOATS = [0.0, -0.0, 1.5, -1.5, 127.5, 5e-324, 1e308, -1e308, 9e18, 2.0**63, -(2.0**63), float("inf"), float("-inf")]


def values_of(dtype: DataType) -> st.SearchStrategy[Any]:
    """Values at and beside the ends of types, and others."""
    if dtype.order == "float":
        with np.errstate(over="ignore"):
            numbers = [value for value in _FLOATS if dtype == DOUBLE or float(np.float32(value)) == value]
        return st.sampled_from([*numbers, float("nan")]) | st.integers(-1000, 1000).map(float)
    low, high = dtype.int_range
    ends = [value for value in (low, low + 1, high, high - 1, 0, *_ENDS) if low <= value <= high]
    return st.sampled_from(ends) | st.integers(low, high) | st.integers(max(low, -1000), min(high, 1000))


def zones_with(dtype: DataType, values: list[Any]) -> Zones:
    """The statistics of a block with these values."""
    numbers = [value for value in values if value == value]
    if not numbers:
        return zones_of(dtype, [(len(values), ColumnStats(null_count=0, nan="all"))])
    low, high = to_bound(dtype, min(numbers)), to_bound(dtype, max(numbers))
    nan: Literal["none", "maybe"] = "maybe" if len(numbers) < len(values) else "none"
    return zones_of(dtype, [(len(values), ColumnStats(min=low, max=high, null_count=0, nan=nan))])


def vector_of(dtype: DataType, values: list[Any]) -> Vector:
    """The values as rows."""
    array = np.empty(len(values), dtype=object if is_wide(dtype) else number_dtype(dtype))
    array[:] = values
    return Vector(array, np.ones(len(values), dtype=bool))


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=100)
@given(data=st.data())
def test_no_row_has_a_result_outside_of_the_bounds(name: str, data: st.DataObject) -> None:
    """A result that Spark computes is within the bounds; a row for which it fails is announced."""
    function, dtypes = FUNCTIONS[name]
    count = data.draw(st.integers(1, 3))
    columns = [data.draw(st.lists(values_of(dtype), min_size=count, max_size=count)) for dtype in dtypes]
    zones = function.zones(*map(zones_with, dtypes, columns))
    rows = function.rows(*map(vector_of, dtypes, columns))
    flags, may_fail = int(zones.flags[0]), zones.fails is not None and bool(zones.fails[0])
    for at in range(count):
        if rows.failed is not None and rows.failed[at]:
            assert may_fail
        elif rows.valid[at] and not may_fail:
            value = rows.values[at]
            if value != value:
                assert flags & MAY_NAN
                continue
            assert flags & MAY_NUMBER
            assert not flags & LOW_KNOWN or value_at(zones.low, 0) <= value
            assert not flags & HIGH_KNOWN or value_at(zones.high, 0) >= value
