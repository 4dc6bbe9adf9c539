"""Values as keys of the filters that Lamella builds itself.

One hash for all types that a column can be widened to: a filter over ``int32`` answers for the same column as
``int64``. Integers, booleans, dates, times and decimals of up to 18 digits are hashed as eight bytes, wider decimals as
sixteen, floats as doubles with either zero as +0.0, text and bytes as they are. NaN has no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lamella.snapshot.bloom.xxh64 import Hashes, xxh64_numbers
from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.index.values import ascending
from lamella.snapshot.schema import DataType
from lamella.snapshot.stats.bound import Value


def has_keys(dtype: DataType) -> bool:
    """Whether values of a type have keys: all that can be compared, but for booleans, of which there are two."""
    return dtype.order is not None and dtype.name != "boolean"


def vector_keys(dtype: DataType, values: Vector) -> Hashes:
    """The distinct keys of some rows; nulls and NaN have none."""
    if values.is_bytes:
        distinct = pc.unique(values.values.filter(pa.array(values.valid)))
        return text_keys(distinct.to_pylist())
    numbers = values.values[values.valid]
    if is_wide(dtype):
        return _wide_keys(sorted(set(numbers.tolist())))
    if dtype.order == "float":
        numbers = numbers[~np.isnan(numbers)]
    return number_keys(ascending(numbers))


def value_keys(dtype: DataType, values: Sequence[Value]) -> Hashes:
    """The keys of values of a type, one each."""
    if dtype.order == "bytes":
        return text_keys([value for value in values if isinstance(value, bytes)])
    if is_wide(dtype):
        return _wide_keys([int(value) for value in values])
    if dtype.order == "float":
        return number_keys(np.array(values, dtype=np.float64))
    return number_keys(np.array(values, dtype=np.uint64 if dtype.order == "uint" else np.int64))


def text_keys(texts: Sequence[bytes]) -> Hashes:
    """The keys of byte strings."""
    return np.array([xxhash.xxh64_intdigest(text) for text in texts], dtype=np.uint64)


def number_keys(numbers: npt.NDArray[Any]) -> Hashes:
    """The keys of int64, uint64 or float64 numbers, none of them NaN."""
    if numbers.dtype == np.float64:
        numbers = numbers + 0.0  # -0.0 becomes 0.0
    return xxh64_numbers(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).view("<u8"))


def _wide_keys(numbers: Sequence[int]) -> Hashes:
    return text_keys([number.to_bytes(16, "little", signed=True) for number in numbers])
