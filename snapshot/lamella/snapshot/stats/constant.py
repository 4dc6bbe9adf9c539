"""Constants: the value that every row of a block has in a column that the block's file does not hold.

A constant is kept as a bound is (:class:`~lamella.snapshot.stats.bound.Bound`), but whole: it is never truncated, and
NaN is the text ``{"Float64": "NaN"}``. None is null. Its statistics are bounds of width zero, so every layer decides
filters, counts and aggregates on such a column without a rule of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats.bound import Bound, Value, from_bound, high_bound, low_bound, to_bound
from lamella.snapshot.stats.column import ColumnStats, sum_of_equal, sum_text

#: Constants of a block, by column id.
Constants = Mapping[int, Bound | None]

_NAN: Final = "NaN"
_FLOAT_CODES: Final = {16: "<e", 32: "<f", 64: "<d"}


def to_constant(dtype: DataType, value: Value | None) -> Bound | None:
    """Returns a value of a type, in the domain of its order, as a constant."""
    if value is None:
        return None
    if isinstance(value, float) and math.isnan(value):
        return Bound(float64=_NAN)
    return to_bound(dtype, value)


def from_constant(dtype: DataType, constant: Bound | None) -> Value | None:
    """Returns the value of a constant in a column of a type.

    Raises:
        ManifestError: it is not a value of the type.
    """
    if constant is None:
        return None
    if dtype.order is None:
        raise ManifestError(f"a column of type {dtype} cannot be constant")
    if dtype.is_float and constant.float64 == _NAN:
        return math.nan
    if dtype.is_text and constant.string is None:
        raise ManifestError(f"a constant of type {dtype} is not text: {constant!r}")
    value = from_bound(dtype, constant)
    if isinstance(value, float) and not _is_exact(dtype, value):
        raise ManifestError(f"{value!r} is not a value of type {dtype}")
    if isinstance(value, bytes) and dtype.length not in (0, len(value)):
        raise ManifestError(f"a constant of type {dtype} has {len(value)} bytes")
    return value


def constant_values(constants: Constants, written: Schema) -> dict[int, Value | None]:
    """Returns the values of a block's constants, in the types of the schema that the block was written with; raises as
    :func:`from_constant`."""
    leaves = written.by_id()
    return {
        column_id: from_constant(leaves[column_id].dtype, constant)
        for column_id, constant in constants.items()
        if column_id in leaves
    }


def constant_stats(dtype: DataType, constant: Bound | None, row_count: int) -> ColumnStats:
    """Returns the statistics of a constant column, without bounds if there are no rows; raises as
    :func:`from_constant`."""
    value = from_constant(dtype, constant)
    if value is None or not row_count:
        return ColumnStats(null_count=row_count, distinct_of_values=0, sum=sum_text(dtype, 0), source="constant")
    if isinstance(value, float) and math.isnan(value):
        return ColumnStats(null_count=0, nan="all", distinct_of_values=1, source="constant")
    low, low_exact = low_bound(dtype, value)
    high, high_exact = high_bound(dtype, value)
    return ColumnStats(
        min=low,
        max=high,
        null_count=0,
        min_exact=low_exact,
        max_exact=high_exact,
        distinct_of_values=1,
        sum=sum_of_equal(low, row_count),
        source="constant",
    )


def _is_exact(dtype: DataType, value: float) -> bool:
    code = _FLOAT_CODES[dtype.bits]
    try:
        rounded: float = struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return False
    return rounded == value
