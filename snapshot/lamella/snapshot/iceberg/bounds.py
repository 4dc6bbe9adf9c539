"""A block's statistics as Iceberg's: counts and bounds by field id, and only what every reader of them may believe.

Readers skip files by bounds, and Spark answers MIN and MAX from them as if they were values of rows, but for text and
bytes. So a bound of any other type is given only when it is such a value. Iceberg compares numbers as if there were no
NaN, and tells -0.0 from 0.0; Spark's rows do neither.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import Value, from_bound
from lamella.snapshot.stats.column import is_all_null

_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: Whose bounds are no claim that a row has them.
_CUT: Final = ("binary", "bson")
_SURROGATES: Final = (0xD800, 0xE000)
_LAST: Final = 0x10FFFF


class FileStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest says of a file's columns, by field id. ``value_counts`` include nulls and NaN."""

    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def file_statistics(block: Block, schema: Schema, columns: Collection[int] | None = None) -> FileStatistics:
    """The statistics of a block that was written with ``schema``; only of the ``columns`` with these ids (None: all).

    Columns below lists and maps are left out: they have other numbers of values than the block has rows.

    Raises:
        ManifestError: a bound is not of the column's type.
    """
    found = FileStatistics(value_counts={}, null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={})
    rows = block.row_count
    for leaf in schema.leaves():
        stats = block.col_stats.get(leaf.id)
        if stats is None or leaf.repeated or (columns is not None and leaf.id not in columns):
            continue
        found.value_counts[leaf.id] = rows
        if stats.null_count is not None:
            found.null_value_counts[leaf.id] = stats.null_count
        if is_all_null(stats, rows):
            continue
        if leaf.dtype.is_float:
            nans = _nans(stats, rows)
            if nans is not None:
                found.nan_value_counts[leaf.id] = nans
        low, high = _bounds(leaf.dtype, stats)
        if low is not None:
            found.lower_bounds[leaf.id] = low
        if high is not None:
            found.upper_bounds[leaf.id] = high
    return found


def _nans(stats: ColumnStats, rows: int) -> int | None:
    if stats.nan == "none":
        return 0
    if stats.nan == "all" and stats.null_count is not None:
        return rows - stats.null_count
    return None


def _bounds(dtype: DataType, stats: ColumnStats) -> tuple[bytes | None, bytes | None]:
    if dtype.is_text or dtype.name in _CUT:
        low = None if stats.min is None else _bytes(from_bound(dtype, stats.min))
        high = None if stats.max is None else _bytes(from_bound(dtype, stats.max))
        if dtype.is_text:
            # Readers decode them, and fail at a character that is cut.
            low, high = None if low is None else _head(low), _text_above(high)
        return low, high
    encode = _encoder(dtype)
    if encode is None:
        return None, None
    low = encode(from_bound(dtype, stats.min), -1) if stats.min is not None and stats.min_exact else None
    # To Spark NaN is greater than all numbers, so no number is a greatest value beside it.
    has_greatest = stats.max is not None and stats.max_exact and (not dtype.is_float or stats.nan == "none")
    high = encode(from_bound(dtype, stats.max), 1) if stats.max is not None and has_greatest else None
    return low, high


def _encoder(dtype: DataType) -> Callable[[Value, int], bytes | None] | None:
    """Writes a value as Iceberg does, ``side`` -1 as a lower and 1 as an upper bound; None: there is no one order."""
    name = dtype.name
    if name == "boolean":
        return lambda value, _: b"\1" if value else b"\0"
    if name == "date" or (dtype.is_integer and name != "int64"):
        return lambda value, _: _INT.pack(int(value))
    if name == "int64":
        return lambda value, _: _LONG.pack(int(value))
    if name in ("time", "timestamp", "timestamp_ntz"):
        return (lambda value, _: _LONG.pack(int(value))) if dtype.unit == "us" else None
    if name == "float32":
        return lambda value, side: _FLOAT.pack(_signed_zero(float(value), side))
    if name == "float64":
        return lambda value, side: _DOUBLE.pack(_signed_zero(float(value), side))
    if name == "decimal":
        return lambda value, _: _unscaled(int(value))
    if name == "fixed":
        return lambda value, _: _bytes(value)
    return None  # a uuid among them: clients order them in two ways


def _signed_zero(value: float, side: int) -> float:
    """A zero as the one that no other zero lies beyond: to Iceberg -0.0 is less than 0.0, to a row they are equal."""
    return value if value else side * 0.0


def _unscaled(value: int) -> bytes:
    """Two's complement, the first byte first, in as few bytes as hold it."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(size, "big", signed=True)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"not bytes: {value!r}")
    return value


def _text_above(bound: bytes | None) -> bytes | None:
    """An upper bound that is text and not less; None where there is none."""
    if bound is None:
        return None
    head = _head(bound)
    if head == bound:
        return bound
    text = head.decode()
    while text:
        text, last = text[:-1], ord(text[-1])
        if last < _LAST:
            after = last + 1
            return (text + chr(_SURROGATES[1] if after == _SURROGATES[0] else after)).encode()
    return None


def _head(bound: bytes) -> bytes:
    """What stands before the first byte that is not text."""
    try:
        bound.decode("utf-8")
    except UnicodeDecodeError as error:
        return bound[: error.start]
    return bound
