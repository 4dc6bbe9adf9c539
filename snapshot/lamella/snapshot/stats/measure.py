"""Exact statistics computed from values, while the rows are in memory.

A footer does not contain all of this: how many values are NaN, how many are distinct, whether a bound is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.stats.bound import Value, high_bound, low_bound
from lamella.snapshot.stats.column import MAX_INT64, ColumnStats, Nan, has_sum, sum_text
from lamella.snapshot.stats.ranges import RangeFinder, has_ranges

#: Number of values that decide whether those of a column repeat.
_LOOK: Final = 4096
_NONE: Final[Mapping[int, pa.Array]] = {}
_DIGITS_OF_INT64: Final = 18
_DIGITS_OF_DECIMAL128: Final = 38
_HALF_BITS: Final = 32
_INTEGER_FORM: Final[dict[str, Callable[[DataType], Any]]] = {
    "date": lambda _dtype: pa.int32(),
    "time": lambda dtype: pa.int32() if dtype.unit == "ms" else pa.int64(),
    "timestamp": lambda _dtype: pa.int64(),
    "timestamp_ntz": lambda _dtype: pa.int64(),
}


class Extent(msgspec.Struct, frozen=True):
    """The extent of some values: their number, how many are null and NaN, the minimum and the maximum of the others.

    ``low`` and ``high`` are None if there are no others, or if the type has no order. ``total``: the sum, of integers
    and decimals, in units of the last digit; None: unknown.
    """

    count: int = 0
    null_count: int = 0
    nan_count: int = 0
    low: Value | None = None
    high: Value | None = None
    total: int | None = 0

    @property
    def nan(self) -> Nan:
        """Returns whether values are NaN."""
        if not self.nan_count:
            return "none"
        return "all" if self.nan_count == self.count - self.null_count else "maybe"

    def joined(self, other: Extent) -> Extent:
        """Returns the extent of both together."""
        lows = [value for value in (self.low, other.low) if value is not None]
        highs = [value for value in (self.high, other.high) if value is not None]
        return Extent(
            self.count + other.count,
            self.null_count + other.null_count,
            self.nan_count + other.nan_count,
            min(lows) if lows else None,
            max(highs) if highs else None,
            None if self.total is None or other.total is None else self.total + other.total,
        )


def measure(
    table: pa.Table, schema: Schema, *, distinct: bool = True, distinct_values: Mapping[int, pa.Array] = _NONE
) -> dict[int, ColumnStats]:
    """Returns the statistics of every leaf that is not below a list or map, by column id; ``distinct``: count distinct
    values exactly.

    ``table`` has the schema's columns in its order, in the corresponding Arrow types. ``distinct_values``: those of
    some leaves, as :func:`find_distinct` returns them, so that they need not be found again.
    """
    leaves = [leaf for leaf in schema.leaves() if not leaf.repeated]
    return {
        leaf.id: leaf_stats(
            leaf, leaf_values(table, leaf), distinct=distinct, distinct_values=distinct_values.get(leaf.id)
        )
        for leaf in leaves
    }


def find_distinct(leaf: Leaf, values: pa.ChunkedArray) -> tuple[pa.Array | None, pa.ChunkedArray | None]:
    """Returns the distinct values of a leaf without null, if its values repeat; and text or bytes as dictionary arrays.

    None: a sample does not show that they repeat; or the type has no order, is boolean, or has NaN.
    """
    dtype, count = leaf.dtype, len(values)
    if dtype.order is None or dtype.is_float or dtype.name == "boolean" or not count:
        return None, None
    sample = values.take(pa.array(np.arange(0, count, max(1, count // _LOOK))))
    if len(pc.unique(sample)) * 2 >= len(sample):
        return None, None
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return pc.unique(values).drop_null(), None
    encoded = values.dictionary_encode()
    return encoded.chunk(0).dictionary, encoded


def leaf_values(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """Returns the values of a leaf that is not below a list or map; null where a struct above it is null."""
    values = table.column(leaf.path[0])
    for name in leaf.path[1:]:
        values = pc.struct_field(values, name)
    return values


def leaf_stats(
    leaf: Leaf, values: pa.ChunkedArray, *, distinct: bool = True, distinct_values: pa.Array | None = None
) -> ColumnStats:
    """Returns the statistics of one leaf's values; ``distinct``: count distinct values exactly;
    ``distinct_values``: see :func:`measure`.
    """
    dtype = leaf.dtype
    span = extent(dtype, values, distinct_values)
    finder = RangeFinder(dtype) if has_ranges(dtype) else None
    if finder is not None:
        finder.add(values if distinct_values is None else distinct_values)
    low, low_exact = (None, False) if span.low is None else low_bound(dtype, span.low)
    high, high_exact = (None, False) if span.high is None else high_bound(dtype, span.high)
    return ColumnStats(
        min=low,
        max=high,
        null_count=span.null_count,
        nan=span.nan,
        min_exact=low_exact,
        max_exact=high_exact,
        distinct_of_values=_distinct(dtype, values, span) if distinct else None,
        sum=sum_text(dtype, span.total),
        ranges=() if finder is None else finder.ranges(),
        source="scan",
    )


def extent(dtype: DataType, values: pa.Array | pa.ChunkedArray, distinct_values: pa.Array | None = None) -> Extent:
    """Returns the extent of values of a type, in the type's order. ``distinct_values``: see :func:`measure`."""
    count, nulls = len(values), values.null_count
    if nulls == count or dtype.order is None:
        return Extent(count, nulls, total=0 if nulls == count else None)
    if dtype.is_float:
        return _float_extent(values.cast(pa.float32()) if dtype.bits == 16 else values)
    bounds = pc.min_max(_plain(dtype, values if distinct_values is None else distinct_values))
    low, high = (_value(dtype, bounds[side].as_py()) for side in ("min", "max"))
    total = _total(dtype, values, low, high) if isinstance(low, int) and isinstance(high, int) else None
    return Extent(count, nulls, 0, low, high, total)


def _total(dtype: DataType, values: pa.Array | pa.ChunkedArray, low: int, high: int) -> int | None:
    """Returns the exact sum of values between two bounds; Arrow's own sum overflows silently."""
    if not has_sum(dtype):
        return None
    max_total = max(-low, high) * len(values)
    if dtype.name == "decimal":
        if max_total >= 10**_DIGITS_OF_DECIMAL128:
            return None
        total = _value(dtype, pc.sum(values).as_py())
        return total if isinstance(total, int) else None
    if max_total <= MAX_INT64:
        return int(pc.sum(values).as_py())
    # The low half of 64 bits is never negative, and the high half has the sign.
    high_half = pc.shift_right(values, pa.scalar(_HALF_BITS, values.type))
    low_half = pc.bit_wise_and(values, pa.scalar((1 << _HALF_BITS) - 1, values.type))
    return (int(pc.sum(high_half).as_py()) << _HALF_BITS) + int(pc.sum(low_half).as_py())


def _float_extent(values: pa.Array | pa.ChunkedArray) -> Extent:
    is_nan = pc.is_nan(values)
    nans = int(pc.sum(is_nan).as_py() or 0)
    present = len(values) - values.null_count
    if nans == present:
        return Extent(len(values), values.null_count, nans, total=None)
    bounds = pc.min_max(values.filter(pc.invert(is_nan)) if nans else values)
    return Extent(
        len(values), values.null_count, nans, float(bounds["min"].as_py()), float(bounds["max"].as_py()), None
    )


def _plain(dtype: DataType, values: Any) -> Any:
    form = _INTEGER_FORM.get(dtype.name)
    return values.cast(form(dtype)) if form is not None else values


def _distinct(dtype: DataType, values: pa.ChunkedArray, span: Extent) -> int | None:
    """Returns the number of distinct values, NaN is one; None for variants, which are not compared.

    Sorting numbers is several times faster than Arrow's hashing.
    """
    if span.null_count == span.count:
        return 0
    if dtype.name == "variant":
        return None
    if dtype.order is None or dtype.name == "boolean" or dtype.order == "bytes":
        return int(pc.count_distinct(values, mode="only_valid").as_py())
    if span.low is None:
        return 1  # NaN
    present = values.drop_null()
    if span.nan_count:
        present = present.filter(pc.invert(pc.is_nan(present)))
    if dtype.name == "decimal":
        if dtype.precision > _DIGITS_OF_INT64:
            return int(pc.count_distinct(present).as_py())
        # Two words per value, the low one first; this few digits fit into the low one.
        words = [_words(chunk) for chunk in present.chunks]
    else:
        words = [chunk.to_numpy(zero_copy_only=False) for chunk in _plain(dtype, present).chunks]
    ordered = np.sort(np.concatenate(words))
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1 + (span.nan_count > 0)


def _words(chunk: pa.Decimal128Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    values = np.frombuffer(chunk.buffers()[1], dtype=np.int64)
    return values[2 * chunk.offset : 2 * (chunk.offset + len(chunk)) : 2]


def _value(dtype: DataType, value: Any) -> Value:
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"not a number: {value}")
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + dtype.scale)
        return -unscaled if sign else unscaled
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytes):
        return value
    return int(value)
