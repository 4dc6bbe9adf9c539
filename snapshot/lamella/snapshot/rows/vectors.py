"""Arrow columns as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.zones import is_wide
from lamella.snapshot.function.vector import Vector
from lamella.snapshot.schema import DataType

_LIMB = 1 << 64


def vector_of(column: pa.Array | pa.ChunkedArray, dtype: DataType) -> Vector:
    """A column of ``dtype`` (of whatever Arrow type stands for that) as a vector.

    Values that have no order are left out: all that is known of them is which are null.

    Raises:
        TypeError: the Arrow type does not hold such values.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if dtype.order is None:
        return Vector(np.zeros(len(array), dtype=np.int64), valid)
    if dtype.order == "bytes":
        return Vector(_filled(array, b"").cast(pa.large_binary()), valid)
    if dtype.order == "decimal":
        return Vector(_unscaled(array, dtype), valid)
    return Vector(_numbers(array, dtype), valid)


def _filled(array: Any, value: Any) -> Any:
    if not array.null_count:
        return array
    if pa.types.is_fixed_size_binary(array.type):
        value = b"\0" * array.type.byte_width
    return pc.fill_null(array, pa.scalar(value, array.type))


def _numbers(array: Any, dtype: DataType) -> Any:
    if dtype.order == "float":
        return _filled(array, 0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    if dtype.order == "uint":
        return _filled(array.cast(pa.uint64()), 0).to_numpy(zero_copy_only=False)
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return _filled(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def decimal_limbs(array: Any, dtype: DataType) -> tuple[Any, Any]:
    """The unscaled integers of decimals as signed high and unsigned low limbs; arbitrary where the array is null.

    Raises:
        TypeError: the array does not hold decimals of the type's scale.
    """
    if not pa.types.is_decimal(array.type) or array.type.scale != dtype.scale:
        raise TypeError(f"{array.type} does not hold values of {dtype}")
    # Arrow keeps them as little-endian two's complement.
    array = _filled(array.cast(pa.decimal128(min(38, max(array.type.precision, dtype.precision)), dtype.scale)), 0)
    words = np.frombuffer(array.buffers()[1], dtype="<u8")[2 * array.offset : 2 * (array.offset + len(array))]
    return words[1::2].astype(np.int64), words[0::2]


def _unscaled(array: Any, dtype: DataType) -> Any:
    """The unscaled integers of decimals."""
    high, low = decimal_limbs(array, dtype)
    if not is_wide(dtype):
        return low.astype(np.int64)
    return np.array([int(h) * _LIMB + int(lo) for h, lo in zip(high, low, strict=True)], dtype=object)
