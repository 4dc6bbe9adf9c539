"""Buckets: of a column whose values all have one hash, modulo a number, as in a file of a partition by ``bucket``.

The hash is that of Iceberg's table specification, appendix B: Murmur3 (x86, 32 bits, seed 0) of the value's bytes.
Integers, dates, times and timestamps are hashed as 64 bits, so a wider integer has the same bucket.
"""

from __future__ import annotations

import struct
from typing import Final

from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.stats.bound import Value

#: Number of buckets and the bucket of a column's values.
Bucket = tuple[int, int]

MAX_BUCKETS: Final = (1 << 31) - 1
_WORD: Final = 0xFFFF_FFFF
_LONG: Final = struct.Struct("<q")


def has_bucket(dtype: DataType) -> bool:
    """Returns whether values of a type have a hash in Iceberg that does not depend on more than the value."""
    if dtype.name in ("time", "timestamp", "timestamp_ntz"):
        return dtype.unit == "us"
    if dtype.is_integer:
        return dtype.order == "int"
    return dtype.order == "decimal" or dtype.name in ("date", "string", "uuid", "fixed", "binary")


def keeps_bucket(source: DataType, target: DataType) -> bool:
    """Returns whether a column that becomes one of a wider type keeps its bucket."""
    if not has_bucket(source) or not has_bucket(target):
        return False
    if source.is_integer and target.is_integer:
        return True
    if source.order == "decimal" and target.order == "decimal":
        return source.scale == target.scale
    return (source.order == "bytes" and target.order == "bytes") or source == target


def bucket_problem(leaf: Leaf, bucket: Bucket | None) -> str | None:
    """Returns what is wrong with the bucket of a column's statistics, None if nothing is."""
    if bucket is None:
        return None
    if leaf.repeated or not has_bucket(leaf.dtype):
        return f"values of type {leaf.dtype} have no bucket"
    count, number = bucket
    if not 1 <= count <= MAX_BUCKETS or not 0 <= number < count:
        return f"there is no bucket {number} of {count}"
    return None


def bucket_of(dtype: DataType, value: Value, count: int) -> int:
    """Returns the bucket of a value, given in the domain of its type's order, of ``count`` buckets."""
    return (_murmur3(_hashed_bytes(dtype, value)) & 0x7FFF_FFFF) % count


def _hashed_bytes(dtype: DataType, value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    number = int(value)
    if dtype.order != "decimal":
        return _LONG.pack(number)
    # The fewest bytes that hold the number and its sign.
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _murmur3(data: bytes) -> int:
    found = 0
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        found ^= _mixed(word)
        found = (found << 13 | found >> 19) & _WORD
        found = (found * 5 + 0xE654_6B64) & _WORD
    if whole < len(data):
        found ^= _mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EB_CA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2_AE35 & _WORD
    return found ^ found >> 16


def _mixed(word: int) -> int:
    word = word * 0xCC9E_2D51 & _WORD
    return (word << 15 | word >> 17) * 0x1B87_3593 & _WORD
