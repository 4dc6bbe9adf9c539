"""What a column chunk's statistics prove, one chunk at a time.

Everything that is not proven is left unknown, with the reason. A contradiction within a chunk's statistics (an
impossible null count, bounds where every value is null, ...) discredits all of them.
"""

from __future__ import annotations

import msgspec

from lamella.snapshot.parquet.columns import PlannedColumn
from lamella.snapshot.parquet.footer import Chunk
from lamella.snapshot.parquet.thrift import Fields
from lamella.snapshot.parquet.writer import Writer
from lamella.snapshot.stats import ColumnStats, Nan, to_bound
from lamella.snapshot.stats.bound import MAX_BOUND_BYTES, Value, upper_prefix


class Origin(msgspec.Struct, frozen=True):
    """Properties of a whole file: its writer, and whether old dates are in the legacy calendar and mean other days."""

    writer: Writer
    legacy_calendar: bool


def chunk_stats(column: PlannedColumn, chunk: Chunk, num_rows: int, order: int, origin: Origin) -> ColumnStats:
    """Returns the statistics of one chunk with rows; ``order`` is the leaf's column order, 0 if there is none."""
    size = None if chunk.encrypted or column.opaque else chunk.uncompressed_size
    problem = discredited(column, chunk, num_rows, origin)
    if problem is not None:
        return ColumnStats(nan="maybe" if column.dtype.is_float else "none", in_memory_size=size, reason=problem)
    raw = chunk.statistics or {}
    values = chunk.num_values
    nulls = null_count(column, chunk, origin)
    if nulls == values:
        return ColumnStats(null_count=nulls, in_memory_size=size)  # all values are null, so no bounds are missing
    nan: Nan = "none"
    if column.is_float:
        nans = nan_count(chunk, origin)
        if nans is None:
            nan = "maybe"  # without a NaN count there may be NaN
        elif nans:
            nan = "maybe"
            if nans == values - (nulls or 0):  # all values are NaN; an unknown null count can only be zero here
                return ColumnStats(null_count=nulls, nan="all", in_memory_size=size)
    low, high, exact, reason = _bounds(column, raw, order, origin)
    low, low_exact = lower_bound(column, low, exact and raw.get(8) is True)
    high, high_exact = upper_bound(column, high, exact and raw.get(7) is True)
    lower = None if low is None else to_bound(column.dtype, low)
    upper = None if high is None else to_bound(column.dtype, high)
    if reason is None and (lower is None or upper is None):
        reason = "a bound is missing, or outside the table's type"
    return ColumnStats(
        min=lower,
        max=upper,
        null_count=nulls,
        nan=nan,
        min_exact=low_exact,
        max_exact=high_exact,
        in_memory_size=size,
        reason=reason,
    )


def discredited(column: PlannedColumn, chunk: Chunk, num_rows: int, origin: Origin) -> str | None:
    """Returns why no statistics of a chunk are trusted, None if there is no such reason."""
    if chunk.encrypted:
        return "the column is encrypted"
    if not column.counts_nulls:
        return column.no_order or "opaque"
    if column.repeated:
        return "inside a list or map"
    raw = chunk.statistics or {}
    values = chunk.num_values
    if values != num_rows:
        return "the number of values differs from the number of rows"
    nulls = raw.get(3)
    if nulls is not None and (not 0 <= nulls <= values or (nulls and not column.max_def)):
        return "the null count is impossible"
    levels = chunk.definition_levels
    if len(levels) == column.max_def + 1 and sum(levels) == values and nulls not in (None, values - levels[-1]):
        return "the null count contradicts the definition levels"
    nulls = null_count(column, chunk, origin)
    if nulls == values and not raw.keys().isdisjoint((1, 2, 5, 6)):
        return "there are bounds although every value is null"
    nans = nan_count(chunk, origin) if column.is_float and nulls != values else None
    if nans is not None:
        rest = values - (nulls or 0)
        if not 0 <= nans <= rest:
            return "the NaN count is impossible"
        if nans and nans == rest and _has_number(column, raw):
            return "there are bounds although every value is NaN"
    return None


def null_count(column: PlannedColumn, chunk: Chunk, origin: Origin) -> int | None:
    """Returns the null count of a chunk, None if it is unknown or the writer's counts are not trusted."""
    if not column.max_def:
        return 0  # a required column
    nulls: int | None = (chunk.statistics or {}).get(3)
    denied = origin.writer.denied
    if denied and nulls is not None and ("null count" in denied or (nulls and "null count above zero" in denied)):
        return None
    return nulls


def nan_count(chunk: Chunk, origin: Origin) -> int | None:
    """Returns the NaN count of a float chunk, None if it is unknown or not trusted."""
    nans: int | None = None if "NaN count" in origin.writer.denied else (chunk.statistics or {}).get(9)
    return nans


_Bounds = tuple[Value | None, Value | None, bool, str | None]


def _bounds(column: PlannedColumn, raw: Fields, order: int, origin: Origin) -> _Bounds:
    """Returns both bounds in the file's own type, whether the exactness flags apply to them, and why one is missing."""
    decode = column.decode
    if decode is None:
        return None, None, False, column.no_order
    raw_low, raw_high = raw.get(6), raw.get(5)
    current = raw_low is not None or raw_high is not None
    if not current:
        raw_low, raw_high = raw.get(2), raw.get(1)
        if raw_low is None and raw_high is None:
            return None, None, False, "the footer has no bounds"
    reason = _distrust(column, order, origin.writer, current, raw_low == raw_high)
    if reason is not None:
        return None, None, False, reason
    low = decode(raw_low) if raw_low is not None else None
    high = decode(raw_high) if raw_high is not None else None
    if (low is None and raw_low is not None) or (high is None and raw_high is not None):
        return None, None, False, "a bound is not a value of the type"
    if low != low or high != high:  # NaN
        return None, None, False, "a bound is NaN"
    if low is not None and high is not None and low > high:  # type: ignore[operator]  # one order per type
        return None, None, False, "the minimum is greater than the maximum"
    limits = column.gregorian_from
    if limits is not None and origin.legacy_calendar:  # bounds before the change of the calendar mean other days
        if low is not None and low < limits[0]:  # type: ignore[operator]  # integers
            low, reason = None, "dates or times of the Julian calendar"
        if high is not None and high < limits[1]:  # type: ignore[operator]  # integers
            high, reason = None, "dates or times of the Julian calendar"
    return low, high, current, reason


def _distrust(column: PlannedColumn, order: int, writer: Writer, current: bool, equal: bool) -> str | None:
    """Returns why bounds are not trusted whatever their values are, or None."""
    denied = writer.denied.get("bounds")
    if denied is None and column.is_binary:
        denied = writer.denied.get("binary bounds")
    if denied is not None:
        return denied
    if current:
        return None if order in column.orders else "the column's order is unknown"
    if column.signed:
        return None  # signed comparison is the right order for this type
    if not equal or column.is_float:
        return "old-style bounds, whose order is unknown"
    return None if writer.known or not column.is_binary else "old-style bounds of an unknown writer"


def _has_number(column: PlannedColumn, raw: Fields) -> bool:
    """Returns whether a float chunk has a bound that is not NaN."""
    decode = column.decode
    if decode is None:
        return False
    found = (decode(raw[field]) for field in (1, 2, 5, 6) if field in raw)
    return any(value == value for value in found)  # NaN


def lower_bound(column: PlannedColumn, value: Value | None, exact: bool = False) -> tuple[Value | None, bool]:
    """Converts a lower bound in the file's type to the table's; also returns whether it is still a value that
    occurs."""
    if value is None:
        return None, False
    if column.convert is not None:
        converted = column.convert[0](value)
        if converted is None:
            return None, False
        value, exact = converted[0], exact and converted[1]
    if column.is_float:
        if value == 0:
            return -0.0, exact  # 0.0 may stand for either zero
    elif column.is_bytes and isinstance(value, bytes) and len(value) > MAX_BOUND_BYTES:
        return value[:MAX_BOUND_BYTES], False
    return value, exact


def upper_bound(column: PlannedColumn, value: Value | None, exact: bool = False) -> tuple[Value | None, bool]:
    """Converts an upper bound in the file's type to the table's; also returns whether it is still a value that
    occurs."""
    if value is None:
        return None, False
    if column.convert is not None:
        converted = column.convert[1](value)
        if converted is None:
            return None, False
        value, exact = converted[0], exact and converted[1]
    if column.is_float:
        if value == 0:
            return 0.0, exact
    elif column.is_bytes and isinstance(value, bytes) and len(value) > MAX_BOUND_BYTES:
        cut = upper_prefix(value, MAX_BOUND_BYTES)
        return cut, exact and cut == value
    return value, exact
