"""Statistics from values: what a writer knows while it still holds the rows, exactly.

A footer cannot say as much: how many NaN there are, how many values are distinct, whether a bound is a value.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.parquet.trust import MAX_BOUND_BYTES, upper_prefix
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.stats import Bound, ColumnStats, to_bound
from lamella.snapshot.stats.bound import Value

_DIGITS_OF_INT64: Final = 18
_INTEGER_FORM: Final[dict[str, Callable[[DataType], Any]]] = {
    "date": lambda _dtype: pa.int32(),
    "time": lambda dtype: pa.int32() if dtype.unit == "ms" else pa.int64(),
    "timestamp": lambda _dtype: pa.int64(),
    "timestamp_ntz": lambda _dtype: pa.int64(),
}


def measure(table: pa.Table, schema: Schema) -> dict[int, ColumnStats]:
    """The statistics of every leaf that is not below a list or map, by column id.

    ``table`` has the schema's columns in its order (see :func:`lamella.client.spark.arrow_types.arrow_schema`).
    """
    found = {}
    for leaf in schema.leaves():
        if not leaf.repeated:
            values = table.column(leaf.path[0])
            for name in leaf.path[1:]:
                values = pc.struct_field(values, name)  # null where the struct is
            found[leaf.id] = leaf_stats(leaf, values)
    return found


def leaf_stats(leaf: Leaf, values: pa.ChunkedArray) -> ColumnStats:
    """The statistics of one leaf's values."""
    dtype = leaf.dtype
    nulls = values.null_count
    if nulls == len(values) or dtype.order is None:
        distinct = 0 if nulls == len(values) else int(pc.count_distinct(values, mode="only_valid").as_py())
        return ColumnStats(null_count=nulls, distinct_of_values=distinct, source="scan")
    if dtype.is_float:
        return _float_stats(dtype, values)
    form = _INTEGER_FORM.get(dtype.name)
    plain = values.cast(form(dtype)) if form is not None else values
    bounds = pc.min_max(plain)
    low, high = (_value(dtype, bounds[side].as_py()) for side in ("min", "max"))
    lower, low_exact, upper, high_exact = _bounds(dtype, low, high)
    return ColumnStats(
        min=lower,
        max=upper,
        null_count=nulls,
        min_exact=low_exact,
        max_exact=high_exact,
        distinct_of_values=_distinct(dtype, plain),
        source="scan",
    )


def _float_stats(dtype: DataType, values: pa.ChunkedArray) -> ColumnStats:
    is_nan = pc.is_nan(values)
    nans = int(pc.sum(is_nan).as_py() or 0)
    if nans == len(values) - values.null_count:
        return ColumnStats(null_count=values.null_count, nan="all", distinct_of_values=1, source="scan")
    numbers = values.filter(pc.invert(is_nan)) if nans else values
    bounds = pc.min_max(numbers)
    low, high = float(bounds["min"].as_py()), float(bounds["max"].as_py())
    # Zero has two encodings that compare equal: the bounds take in both.
    return ColumnStats(
        min=to_bound(dtype, low if low else -0.0),
        max=to_bound(dtype, high if high else 0.0),
        null_count=values.null_count,
        nan="maybe" if nans else "none",
        min_exact=low != 0,
        max_exact=high != 0,
        distinct_of_values=_distinct(dtype, numbers) + (nans > 0),
        source="scan",
    )


def _distinct(dtype: DataType, values: pa.ChunkedArray) -> int:
    """How many different values there are. Sorting numbers is several times faster than Arrow's hashing of them."""
    if dtype.name == "boolean" or dtype.order == "bytes":
        return int(pc.count_distinct(values, mode="only_valid").as_py())
    present = values.drop_null()
    if dtype.name == "decimal":
        if dtype.precision > _DIGITS_OF_INT64:
            return int(pc.count_distinct(present).as_py())
        # Two words a value, the low one first; so few digits fit into the low one.
        words = [_words(chunk) for chunk in present.chunks]
    else:
        words = [chunk.to_numpy(zero_copy_only=False) for chunk in present.chunks]
    ordered = np.sort(np.concatenate(words))
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


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


def _bounds(dtype: DataType, low: Value, high: Value) -> tuple[Bound, bool, Bound, bool]:
    if not isinstance(low, bytes) or not isinstance(high, bytes):
        return to_bound(dtype, low), True, to_bound(dtype, high), True
    cut_low = low[:MAX_BOUND_BYTES]
    cut_high = high if len(high) <= MAX_BOUND_BYTES else upper_prefix(high, MAX_BOUND_BYTES)
    return to_bound(dtype, cut_low), cut_low == low, to_bound(dtype, cut_high), cut_high == high
