"""Comparisons of vectors in the order of their type: NaN is greatest and equals itself, bytes compare unsigned."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask
from lamella.snapshot.expression.bound import BoundOperator
from lamella.snapshot.function.vector import Vector

_BYTES = {
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
    "eq": pc.equal,
}
_NUMBERS = {"lt": operator.lt, "le": operator.le, "eq": operator.eq}
_MIRRORED: dict[BoundOperator, BoundOperator] = {"gt": "lt", "ge": "le"}


def compared(left: Vector, op: BoundOperator, right: Vector | Any) -> Mask:
    """Where ``left op right`` holds; ``right`` is a vector of the same order or one value. Nulls decide nothing."""
    values = right.values if isinstance(right, Vector) else right
    if left.is_bytes:
        other = values if isinstance(right, Vector) else pa.scalar(values, pa.large_binary())
        return _mask(_BYTES[op](left.values, other))
    numbers = left.values
    if not isinstance(right, Vector) and numbers.dtype != object:
        values = numbers.dtype.type(values)  # int64 never meets a double
    if op in _MIRRORED:
        numbers, values, op = values, numbers, _MIRRORED[op]
    found = _NUMBERS[op](numbers, values)
    if left.values.dtype == np.float64:
        first, second = np.isnan(numbers), np.isnan(values)
        found = found | ((first & second) if op == "eq" else (second & ~first) if op == "lt" else second)
    return np.asarray(found).astype(bool)


def member(vector: Vector, values: Sequence[Any], *, has_nan: bool) -> Mask:
    """Where a value is one of these."""
    if vector.is_bytes:
        return _mask(pc.is_in(vector.values, value_set=pa.array(values, pa.large_binary())))
    numbers = vector.values
    if numbers.dtype == object:
        listed = frozenset(values)
        return np.fromiter((number in listed for number in numbers), bool, len(numbers))
    ordered = np.array(values, dtype=numbers.dtype)  # ascending
    at = np.searchsorted(ordered, numbers)
    found = ordered[np.minimum(at, len(ordered) - 1)] == numbers if len(ordered) else np.zeros(len(numbers), dtype=bool)
    return np.asarray(found | np.isnan(numbers) if has_nan else found)


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(bool)
