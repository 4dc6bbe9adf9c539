"""Keys as the bytes that a bloom filter hashes: Parquet's plain encoding of the column's physical type.

======================================== ==========================================================
types                                    bytes
======================================== ==========================================================
int8..int32, uint8..uint32, date,        4, little-endian
time(ms), decimal of up to 9 digits
int64, uint64, time, timestamp,          8, little-endian
decimal of up to 18 digits
wider decimals                           the fewest that hold every value of the precision, big-endian
string, binary, fixed, uuid, ...         as they are, without a length
boolean, float16, float32, float64       no filter: Parquet has none for booleans, and floats have two zeros
======================================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.snapshot.bloom.xxh64 import Hashes, xxh64, xxh64_numbers
from lamella.snapshot.schema import DataType


def key_bytes(dtype: DataType) -> int | None:
    """The width of a key that is a number, 0 for one that is bytes, None when the type has no filter."""
    if dtype.order is None or dtype.name == "boolean" or dtype.is_float:
        return None
    if dtype.order == "bytes":
        return 0
    if dtype.name == "decimal":
        if dtype.precision > 18:
            return 0
        return 4 if dtype.precision <= 9 else 8
    if dtype.is_integer:
        return 4 if dtype.bits <= 32 else 8
    return 4 if dtype.name == "date" or (dtype.name == "time" and dtype.unit == "ms") else 8


def key_hashes(dtype: DataType, keys: Sequence[int | bytes]) -> Hashes:
    """The hashes of keys, values in the type's order (see :mod:`lamella.snapshot.schema.types`)."""
    width = key_bytes(dtype)
    if width is None:
        raise ValueError(f"no bloom filter for {dtype}")
    if width:
        unsigned = [int(key) & ((1 << 8 * width) - 1) for key in keys]
        return xxh64_numbers(np.array(unsigned, dtype=f"u{width}"))
    return np.array([xxh64(_encoded(dtype, key)) for key in keys], dtype=np.uint64)


def _encoded(dtype: DataType, key: int | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    size = ((10**dtype.precision).bit_length() + 1 + 7) // 8
    return key.to_bytes(size, "big", signed=True)
