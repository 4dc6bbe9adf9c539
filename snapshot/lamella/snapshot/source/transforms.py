"""Bounds of columns that follow from the partition of an Iceberg file, for files without statistics.

A partition value is the result of a transform of the source column, the same for all rows of the file (Iceberg's table
specification, "Partition Transforms"). So the column's values are in the range that the transform maps to this value.
Timestamps of Spark (INT96) and files written without statistics have no other bounds. ``bucket`` maps a value to a
hash, which excludes values of other hashes (:mod:`lamella.snapshot.stats.bucket`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import DataType, Schema
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.bound import MAX_BOUND_BYTES, Value, from_bound
from lamella.snapshot.stats.bucket import MAX_BUCKETS, Bucket, has_bucket
from lamella.snapshot.stats.column import is_all_null

#: A transform as text, with the partition value.
Transformed = tuple[str, Any]

_TRUNCATE: Final = re.compile(r"truncate\[([1-9][0-9]{0,9})\]")
_BUCKET: Final = re.compile(r"bucket\[([1-9][0-9]{0,9})\]")
_TIMES: Final = ("year", "month", "day", "hour")
_EPOCH: Final = dt.date(1970, 1, 1)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_MONTHS: Final = 12


def with_partition_bounds(
    block: Block, transformed: Mapping[int, Iterable[Transformed]], paths: Mapping[int, tuple[str, ...]], schema: Schema
) -> Block:
    """Returns the block with bounds that its file's partition proves, where its statistics have none.

    ``transformed``: by the source's field id; ``paths``: of the columns of ``schema``, with which the file was written,
    by field id. Values that cannot be meant, or contradict the file's statistics, change nothing.
    """
    if not block.row_count:
        return block
    leaves = {leaf.path: leaf for leaf in schema.leaves()}
    changed = {}
    for number, each in transformed.items():
        leaf = leaves.get(paths.get(number, ()))
        if leaf is None or leaf.repeated:
            continue
        stats = block.col_stats.get(leaf.id)
        for transform, value in each:
            if stats is not None:
                stats = _narrowed(leaf.dtype, stats, transform, value, block.row_count)
        if stats is not None and stats is not block.col_stats[leaf.id]:
            changed[leaf.id] = stats
    return msgspec.structs.replace(block, col_stats={**block.col_stats, **changed}) if changed else block


def _narrowed(dtype: DataType, stats: ColumnStats, transform: str, value: Any, row_count: int) -> ColumnStats:
    if is_all_null(stats, row_count) or not _maps_nulls_only_to_null(transform):
        return stats
    if value is None:
        if stats.min is not None or stats.max is not None or stats.null_count not in (None, row_count):
            return stats
        return ColumnStats(null_count=row_count, source="partition")
    bucket = _bucket(dtype, transform, value)
    if bucket is not None and stats.bucket is None and stats.null_count in (None, 0):
        source = stats.source if stats.null_count == 0 else "partition"
        return msgspec.structs.replace(stats, null_count=0, bucket=bucket, source=source)
    low, high = transform_range(dtype, transform, value)
    known_low = None if stats.min is None else from_bound(dtype, stats.min)
    known_high = None if stats.max is None else from_bound(dtype, stats.max)
    low = low if known_low is None else known_low
    high = high if known_high is None else known_high
    if stats.null_count not in (None, 0) or (low is not None and high is not None and low > high):  # type: ignore[operator]
        return stats
    if known_low == low and known_high == high and stats.null_count == 0:
        return stats
    return msgspec.structs.replace(
        stats,
        min=to_bound(dtype, low) if known_low is None and low is not None else stats.min,
        max=to_bound(dtype, high) if known_high is None and high is not None else stats.max,
        null_count=0,
        source="partition",
        reason=None if low is not None and high is not None else stats.reason,
    )


def _bucket(dtype: DataType, transform: str, value: Any) -> Bucket | None:
    match = _BUCKET.fullmatch(transform)
    if match is None or not has_bucket(dtype) or not isinstance(value, int) or isinstance(value, bool):
        return None
    count = int(match[1])
    return (count, value) if count <= MAX_BUCKETS and 0 <= value < count else None


def _maps_nulls_only_to_null(transform: str) -> bool:
    """Returns whether it is one of the specification's transforms, all of which do so but `void`."""
    known = transform == "identity" or transform in _TIMES
    return known or bool(_TRUNCATE.fullmatch(transform) or _BUCKET.fullmatch(transform))


def ordered_value(dtype: DataType, value: Any) -> Value | None:
    """Returns a value as Iceberg's metadata has it in the domain of its type's order.

    Raises:
        InvalidRequest: it is not a value of the type.
    """
    if value is None or isinstance(value, int | float | bytes):
        return int(value) if isinstance(value, bool) else value
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Decimal):
        scaled = value.scaleb(dtype.scale, Context(prec=100))
        if scaled == int(scaled):
            return int(scaled)
    raise InvalidRequest(f"{value!r} is not a partition value of type {dtype}")


def transform_range(dtype: DataType, transform: str, value: Any) -> tuple[Value | None, Value | None]:
    """Returns the minimum and the maximum of the values that a transform maps to ``value``; None: not known."""
    try:
        low, high = _range(dtype, transform, value)
    except InvalidRequest:
        return None, None
    return low if _is_bound(dtype, low) else None, high if _is_bound(dtype, high) else None


def _is_bound(dtype: DataType, value: Value | None) -> bool:
    """Returns whether a value may be a bound of a type: one of its values, and not too long."""
    if isinstance(value, bytes):
        return dtype.order == "bytes" and len(value) <= MAX_BOUND_BYTES
    if dtype.order in (None, "bytes", "float") or not isinstance(value, int):
        return False
    low, high = dtype.int_range
    return bool(low <= value <= high)


def _range(dtype: DataType, transform: str, value: Any) -> tuple[Value | None, Value | None]:
    if transform == "identity":
        found = ordered_value(dtype, value)
        return found, found
    width = _TRUNCATE.fullmatch(transform)
    if width is not None:
        return _of_truncate(dtype, int(width[1]), value)
    if transform not in _TIMES or dtype.name not in ("date", "timestamp", "timestamp_ntz"):
        return None, None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = (value - _EPOCH).days
    if not isinstance(value, int) or isinstance(value, bool):
        return None, None
    # Iceberg's first writers rounded times before 1970 up instead of down, so a value up to 0 may stand for the one
    # before it, too.
    start_s, end_s = _start_s(transform, value - 1 if value <= 0 else value), _start_s(transform, value + 1)
    per_unit = 1 if dtype.name == "date" else PER_SECOND[dtype.unit]
    divisor = _DAY_S if dtype.name == "date" else 1
    if dtype.name == "date" and transform == "hour":
        return None, None
    return (
        None if start_s is None else start_s * per_unit // divisor,
        None if end_s is None else end_s * per_unit // divisor - 1,
    )


def _start_s(transform: str, value: int) -> int | None:
    """Returns the first second of a year, month, day or hour, counted from 1970; None: outside of Python's range."""
    if transform == "hour":
        return value * _HOUR_S
    if transform == "day":
        return value * _DAY_S
    year, month = (value, 0) if transform == "year" else divmod(value, _MONTHS)
    try:
        return (dt.date(_EPOCH.year + year, month + 1, 1).toordinal() - _EPOCH_DAY) * _DAY_S
    except (ValueError, OverflowError):
        return None


def _of_truncate(dtype: DataType, width: int, value: Any) -> tuple[Value | None, Value | None]:
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        low, high = dtype.int_range
        # A result below the type's range wraps around in Java, and is then no multiple of the width.
        return (value, min(high, value + width - 1)) if low <= value <= high and value % width == 0 else (None, None)
    if dtype.name == "decimal" and isinstance(value, Decimal):
        scaled = value.scaleb(dtype.scale, Context(prec=100))
        unscaled = int(scaled)
        if unscaled != scaled or unscaled % width:
            return None, None
        low, high = dtype.int_range
        return max(low, unscaled), min(high, unscaled + width - 1)
    if dtype.is_text and isinstance(value, str):
        prefix = value.encode()
        # A shorter text is the whole value, whether its length is in code points or in UTF-16 units.
        is_whole = len(value.encode("utf-16-le")) // 2 < width
    elif dtype.name == "binary" and isinstance(value, bytes):
        prefix, is_whole = value, len(value) < width
    else:
        return None, None
    return prefix, prefix if is_whole else _after(prefix)


def _after(prefix: bytes) -> bytes | None:
    """Returns bytes that are greater than all that begin with ``prefix``; None if there are none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
