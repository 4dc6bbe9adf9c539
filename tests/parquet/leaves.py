"""Leaves of every type by short names, and how their bounds are written and read."""

from __future__ import annotations

import struct
from typing import Any

from lamella.snapshot.schema import parse_type
from lamella.snapshot.stats import ColumnStats, from_bound
from parquet.crafted import BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED, FLOAT, I8, INT32, INT64, element

INT = element("c", INT64)
TEXT = element("c", BYTE_ARRAY, logical={1: {}})
BINARY = element("c", BYTE_ARRAY)
NUMBER = element("c", DOUBLE)
SINGLE = element("c", FLOAT)
HALF = element("c", FIXED, length=2, logical={15: {}})
UINT64 = element("c", INT64, converted=14)
UINT32 = element("c", INT32, logical={10: {1: I8(32), 2: False}})
UINT8 = element("c", INT32, logical={10: {1: I8(8), 2: False}})
TINY = element("c", INT32, converted=15)
DATE = element("c", INT32, logical={6: {}})
MICROS = element("c", INT64, logical={8: {1: True, 2: {2: {}}}})
NANOS = element("c", INT64, logical={8: {1: True, 2: {3: {}}}})
DECIMAL_FIXED = element("c", FIXED, length=4, logical={5: {1: 2, 2: 9}})
DECIMAL_BYTES = element("c", BYTE_ARRAY, logical={5: {1: 2, 2: 9}})
DECIMAL_32 = element("c", INT32, converted=5, scale=2, precision=9)
DECIMAL_64 = element("c", INT64, converted=5, scale=2, precision=18)
UUID = element("c", FIXED, length=16, logical={14: {}})
PLAIN_FIXED = element("c", FIXED, length=6)
FLAG = element("c", BOOLEAN)


def i32(value: int) -> bytes:
    """Little-endian, as bounds hold it; unsigned numbers may be given as such."""
    return (value % (1 << 32)).to_bytes(4, "little")


def i64(value: int) -> bytes:
    """As :func:`i32`."""
    return (value % (1 << 64)).to_bytes(8, "little")


def f64(value: float) -> bytes:
    """A double."""
    return struct.pack("<d", value)


def bounds(stats: ColumnStats, kind: str) -> tuple[Any, Any]:
    """Both bounds as values."""
    dtype = parse_type(kind)
    low = None if stats.min is None else from_bound(dtype, stats.min)
    return low, None if stats.max is None else from_bound(dtype, stats.max)


def nothing_known(stats: ColumnStats) -> bool:
    """No bound, no null count, and a reason."""
    return stats.min is None and stats.max is None and stats.null_count is None and stats.reason is not None
