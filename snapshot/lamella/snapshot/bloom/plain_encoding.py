"""Encodes values as the bytes that a Bloom filter hashes: the plain encoding of the file's physical type."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import xxhash

from lamella.snapshot.bloom.split_block import Hashes, xxh64, xxh64_numbers
from lamella.snapshot.schema import DataType, parse_type
from lamella.snapshot.stats.bound import Value

# Keys as the bytes that a bloom filter hashes: Parquet's plain encoding of the column's physical type.
#
# ======================================== ==========================================================
# types                                    bytes
# ======================================== ==========================================================
# int8..int32, uint8..uint32, date,        4, little-endian
# time(ms), decimal of up to 9 digits
# int64, uint64, time, timestamp,          8, little-endian
# decimal of up to 18 digits
# wider decimals                           the fewest that hold every value of the precision, big-endian
# string, binary, fixed, uuid, ...         as they are, without a length
# boolean, float16, float32, float64       no filter: Parquet has none for booleans, and floats have two zeros
# ======================================== ==========================================================


def key_bytes(dtype: DataType) -> int | None:
    """Returns the width of a numeric key, 0 for a key of bytes, None if the type has no filter."""
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
    """Returns the hashes of keys, which are values in the type's order (see :mod:`lamella.snapshot.schema.types`)."""
    width = key_bytes(dtype)
    if width is None:
        raise ValueError(f"bloom filters do not support {dtype}")
    if width:
        unsigned = [int(key) & ((1 << 8 * width) - 1) for key in keys]
        return xxh64_numbers(np.array(unsigned, dtype=f"u{width}"))
    return np.array([xxh64(_encoded(dtype, key)) for key in keys], dtype=np.uint64)


def _encoded(dtype: DataType, key: int | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    size = ((10**dtype.precision).bit_length() + 1 + 7) // 8
    return key.to_bytes(size, "big", signed=True)


# Values as Parquet's own filters have them: in the plain encoding of the file's physical type.
#
# A *domain* says how: the file's type, its physical type and its length, as in
# ``decimal(9,2)/FIXED_LEN_BYTE_ARRAY/4``.
#
# ================================================= ========= ==========================================================
# values                                            physical  bytes
# ================================================= ========= ==========================================================
# integers, dates, times, timestamps, decimals      INT32     4, little-endian; short and unsigned ones have 32 bits too
# the same                                          INT64     8, little-endian
# decimals                                          FIXED     as long as the column's type says, big-endian
# floats                                            FLOAT,    4, 8 or 2, little-endian; a zero is looked for as +0.0 and
#                                                   DOUBLE,   as -0.0, since writers hash it as it was
#                                                   FIXED
# texts and bytes                                   both      as they are
# ================================================= ========= ==========================================================
#
# Others have no domain: booleans (no writer makes filters of them), timestamps as INT96, and decimals as BYTE_ARRAY,
# whose values may be written with any number of leading bytes, each hashed differently.

_WIDTHS: Final = {"INT32": 4, "INT64": 8}
_FLOATS: Final = {("float32", "FLOAT"): "<f", ("float64", "DOUBLE"): "<d", ("float16", "FIXED_LEN_BYTE_ARRAY"): "<e"}
_BYTES: Final = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def domain_of(dtype: DataType, physical: str, length: int) -> str | None:
    """Returns how a file's filter hashes values of a type with this physical type; None if that is unknown."""
    if dtype.name == "boolean" or dtype.order is None:
        return None
    if dtype.is_float:
        known = (dtype.name, physical) in _FLOATS
    elif dtype.order == "bytes":
        known = physical in _BYTES
    else:
        known = physical in _WIDTHS or (dtype.order == "decimal" and physical == "FIXED_LEN_BYTE_ARRAY" and length > 0)
    return f"{dtype}/{physical}/{length}" if known else None


def type_of(domain: str) -> DataType:
    """Returns the file's type of a domain; raises InvalidSchema for an invalid domain."""
    return parse_type(domain.partition("/")[0])


def hashes_in(domain: str, values: Sequence[Value]) -> Hashes:
    """Returns the hashes of values of a domain's type, none of them NaN; a float zero gives two hashes."""
    dtype = type_of(domain)
    _, physical, length = domain.split("/")
    code = _FLOATS.get((dtype.name, physical))
    if code is not None:
        signed = [each for value in values for each in ((0.0, -0.0) if value == 0 else (float(value),))]
        return _hashed([struct.pack(code, value) for value in signed])
    if dtype.order == "bytes":
        return _hashed([value for value in values if isinstance(value, bytes)])
    width = _WIDTHS.get(physical)
    if width is None:
        size = int(length)
        return _hashed([int(value).to_bytes(size, "big", signed=True) for value in values if _fits(int(value), size)])
    unsigned = [int(value) & ((1 << 8 * width) - 1) for value in values]
    return xxh64_numbers(np.array(unsigned, dtype=f"<u{width}"))


def _fits(value: int, size: int) -> bool:
    return -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1


def _hashed(encoded: Sequence[bytes]) -> Hashes:
    return np.array([xxhash.xxh64_intdigest(each) for each in encoded], dtype=np.uint64)
