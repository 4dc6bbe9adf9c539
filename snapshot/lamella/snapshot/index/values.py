"""Values in sections of a part, in the order of their type: exactly as they were.

Numbers are one array; decimals of more than 18 digits two limbs each, (n, 2): the upper one signed, as its bits; byte
strings one after another, with n + 1 offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import Mask, split_wide
from lamella.snapshot.columnar.zones import is_wide, number_dtype
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index.part import Part
from lamella.snapshot.schema import DataType

_LIMB: Final = 1 << 64
_Array = npt.NDArray[Any]
_Number = TypeVar("_Number", bound=np.generic)


def ascending(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The different numbers, none of them NaN, ascending. Sorting is a hundred times faster than NumPy's ``unique``."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct(dtype: DataType, values: Vector) -> list[Any]:
    """The different values that are neither null nor NaN, ascending; either zero as 0.0."""
    if values.is_bytes:
        found: list[Any] = pc.unique(values.values.filter(pa.array(values.valid))).to_pylist()
        return sorted(found)
    numbers = values.values[values.valid]
    if is_wide(dtype):
        return sorted(set(numbers.tolist()))
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)] + 0.0
    unique: list[Any] = ascending(numbers).tolist()
    return unique


def extent(dtype: DataType, values: Vector) -> tuple[Any, Any] | None:
    """The least and the greatest value that is neither null nor NaN; None when there is none."""
    if values.is_bytes:
        bounds = pc.min_max(values.values.filter(pa.array(values.valid)))
        return None if bounds["min"].as_py() is None else (bounds["min"].as_py(), bounds["max"].as_py())
    numbers = values.values[values.valid]
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)] + 0.0
    if not len(numbers):
        return None
    low, high = numbers.min(), numbers.max()
    return (low, high) if is_wide(dtype) else (low.item(), high.item())


def has_nan(dtype: DataType, values: Vector) -> bool:
    """Whether some value is NaN."""
    return dtype.order == "float" and bool(np.isnan(values.values[values.valid]).any())


def vector(dtype: DataType, values: Sequence[Any]) -> Vector:
    """Values as a vector, none of them null."""
    valid = np.ones(len(values), dtype=bool)
    if dtype.order == "bytes":
        return Vector(pa.array(values, pa.large_binary()), valid)
    kind = np.dtype(object) if is_wide(dtype) else number_dtype(dtype)
    array = np.empty(len(values), dtype=kind)
    array[:] = values
    return Vector(array, valid)


def picked(values: Vector, places: _Array) -> Vector:
    """Some of the values, in that order."""
    valid = values.valid[places]
    if values.is_bytes:
        return Vector(values.values.take(pa.array(places, pa.int64())), valid)
    return Vector(values.values[places], valid)


def stored(name: str, dtype: DataType, values: Sequence[Any]) -> dict[str, _Array]:
    """The sections of values, none of them null."""
    if dtype.order == "bytes":
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return {f"{name}.offsets": offsets, f"{name}.bytes": np.frombuffer(b"".join(values), dtype=np.uint8)}
    if is_wide(dtype):
        limbs = [split_wide(value) for value in values]
        high = np.array([upper for upper, _ in limbs], dtype=np.int64).view(np.uint64)
        return {name: np.stack([high, np.array([lower for _, lower in limbs], dtype=np.uint64)], axis=1)}
    return {name: np.array(values, dtype=number_dtype(dtype))}


def loaded(part: Part, name: str, dtype: DataType) -> Vector:
    """All values of a section, of the type that they were stored with."""
    if dtype.order == "bytes":
        offsets = part.whole(f"{name}.offsets")
        data = part.whole(f"{name}.bytes")
        buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
        array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        return Vector(array, np.ones(len(array), dtype=bool))
    raw = part.whole(name)
    if not is_wide(dtype):
        return Vector(raw, np.ones(len(raw), dtype=bool))
    high, low = raw[:, 0].view(np.int64).tolist(), raw[:, 1].tolist()
    return vector(dtype, [upper * _LIMB + lower for upper, lower in zip(high, low, strict=True)])


def listed(values: Vector) -> list[Any]:
    """The values of a vector as Python's."""
    found: list[Any] = values.values.to_pylist() if values.is_bytes else values.values.tolist()
    return found


def spans_of(offsets: _Array, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Where the entries of some rows lie, neighbouring rows together."""
    found: list[tuple[int, int]] = []
    for first, last in zip(offsets[rows].tolist(), offsets[rows + 1].tolist(), strict=True):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def any_by_row(hits: Mask, offsets: _Array, rows: npt.NDArray[np.int64]) -> Mask:
    """Per row: whether one of its entries is hit; ``hits`` has the entries of these rows, one row after another."""
    counts = (offsets[rows + 1] - offsets[rows]).astype(np.int64)
    totals = np.concatenate([[0], np.cumsum(hits)])
    ends = np.cumsum(counts)
    return np.asarray(totals[ends] > totals[ends - counts])
