"""What a column chunk's statistics prove: the rules B1 to F5 of the notes on Parquet statistics, one chunk at a time.

Everything that is not proven is left unknown, with the reason. A contradiction within a chunk's statistics (a null
count that cannot be, bounds where every value is null, ...) discredits all of them.
"""

from __future__ import annotations

import msgspec

from lamella.snapshot.parquet.metadata import Chunk
from lamella.snapshot.parquet.plan import PlannedColumn
from lamella.snapshot.parquet.thrift import Fields
from lamella.snapshot.parquet.writer import Writer
from lamella.snapshot.stats import Bound, ColumnStats, Nan, to_bound
from lamella.snapshot.stats.bound import Value

#: Longer bounds of bytes are cut (rule D4).
MAX_BOUND_BYTES = 64


class Origin(msgspec.Struct, frozen=True):
    """What holds for a whole file: its writer, and whether old dates mean other days (rule B12)."""

    writer: Writer
    legacy_calendar: bool


def chunk_stats(column: PlannedColumn, chunk: Chunk, num_rows: int, order: int, origin: Origin) -> ColumnStats:
    """The statistics of one chunk that hold rows; ``order`` is the leaf's column order, 0 when there is none."""
    raw = chunk.statistics or {}
    values = chunk.num_values
    if chunk.encrypted:
        return _nothing(column, None, "the column is encrypted")
    if column.opaque:
        return _nothing(column, None, column.no_order or "opaque")
    size = chunk.uncompressed_size
    if column.repeated:
        return _nothing(column, size, "below a list or map")  # G10
    if values != num_rows:
        return _nothing(column, size, "the number of values differs from the number of rows")  # A6
    denied = origin.writer.denied
    nulls = raw.get(3)
    if nulls is not None and (not 0 <= nulls <= values or (nulls and not column.max_def)):
        return _nothing(column, size, "the null count cannot be true")  # F2
    levels = chunk.definition_levels
    if len(levels) == column.max_def + 1 and sum(levels) == values and nulls not in (None, values - levels[-1]):
        return _nothing(column, size, "the null count contradicts the definition levels")  # F3
    if not column.max_def:
        nulls = 0  # a required column
    elif denied and nulls is not None and ("null count" in denied or (nulls and "null count above zero" in denied)):
        nulls = None  # E6
    has_bounds = not raw.keys().isdisjoint((1, 2, 5, 6))
    if nulls == values:
        if has_bounds:
            return _nothing(column, size, "bounds stand where every value is null")
        return ColumnStats(null_count=nulls, in_memory_size=size)  # F4
    nan: Nan = "none"
    if column.is_float:
        nans = None if "NaN count" in denied else raw.get(9)
        rest = values - (nulls or 0)
        if nans is None:
            nan = "maybe"  # C2
        elif not 0 <= nans <= rest:
            return _nothing(column, size, "the NaN count cannot be true")
        elif nans:
            nan = "maybe"
            if nans == rest:  # C4; an unknown null count can only be zero here
                if _has_number(column, raw):
                    return _nothing(column, size, "bounds stand where every value is NaN")
                return ColumnStats(null_count=nulls, nan="all", in_memory_size=size)
    low, high, exact, reason = _bounds(column, raw, order, origin)
    lower, low_exact = _lower(column, low, exact and raw.get(8) is True)
    upper, high_exact = _upper(column, high, exact and raw.get(7) is True)
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


def _nothing(column: PlannedColumn, size: int | None, reason: str) -> ColumnStats:
    return ColumnStats(nan="maybe" if column.dtype.is_float else "none", in_memory_size=size, reason=reason)


_Bounds = tuple[Value | None, Value | None, bool, str | None]


def _bounds(column: PlannedColumn, raw: Fields, order: int, origin: Origin) -> _Bounds:
    """Both bounds in the file's own type, whether the exactness flags are about them, and why one is missing."""
    decode = column.decode
    if decode is None:
        return None, None, False, column.no_order
    raw_low, raw_high = raw.get(6), raw.get(5)
    current = raw_low is not None or raw_high is not None
    if not current:
        raw_low, raw_high = raw.get(2), raw.get(1)
        if raw_low is None and raw_high is None:
            return None, None, False, "the footer has no bounds"  # F5
    reason = _distrust(column, order, origin.writer, current, raw_low == raw_high)
    if reason is not None:
        return None, None, False, reason
    low = decode(raw_low) if raw_low is not None else None
    high = decode(raw_high) if raw_high is not None else None
    if (low is None and raw_low is not None) or (high is None and raw_high is not None):
        return None, None, False, "a bound is no value of the type"
    if low != low or high != high:  # NaN
        return None, None, False, "a bound is NaN"  # C1
    if low is not None and high is not None and low > high:  # type: ignore[operator]  # one order per type
        return None, None, False, "the bounds are the wrong way round"  # B9
    limits = column.gregorian_from
    if limits is not None and origin.legacy_calendar:  # B12
        if low is not None and low < limits[0]:  # type: ignore[operator]  # integers
            low, reason = None, "days or instants of the old calendar"
        if high is not None and high < limits[1]:  # type: ignore[operator]  # integers
            high, reason = None, "days or instants of the old calendar"
    return low, high, current, reason


def _distrust(column: PlannedColumn, order: int, writer: Writer, current: bool, equal: bool) -> str | None:
    """Why bounds are not believed whatever they say, or None."""
    denied = writer.denied.get("bounds")
    if denied is None and column.is_binary:
        denied = writer.denied.get("binary bounds")
    if denied is not None:
        return denied  # E3, E6
    if current:
        return None if order in column.orders else "the column's order is not known"  # B1
    if column.signed:
        return None  # E1
    if not equal or column.is_float:
        return "old-style bounds, whose order is not known"  # E2
    return None if writer.known or not column.is_binary else "old-style bounds of an unknown writer"  # E3


def _has_number(column: PlannedColumn, raw: Fields) -> bool:
    """True when a float chunk has a bound that is not NaN."""
    decode = column.decode
    if decode is None:
        return False
    found = (decode(raw[field]) for field in (1, 2, 5, 6) if field in raw)
    return any(value == value for value in found)  # NaN


def _lower(column: PlannedColumn, value: Value | None, exact: bool) -> tuple[Bound | None, bool]:
    if value is None:
        return None, False
    if column.convert is not None:
        converted = column.convert[0](value)
        if converted is None:
            return None, False
        value, exact = converted[0], exact and converted[1]
    if column.is_float:
        if value == 0:
            return to_bound(column.dtype, -0.0), False  # C5: 0.0 may stand for either zero
    elif column.is_bytes and isinstance(value, bytes) and len(value) > MAX_BOUND_BYTES:
        return to_bound(column.dtype, value[:MAX_BOUND_BYTES]), False
    return to_bound(column.dtype, value), exact


def _upper(column: PlannedColumn, value: Value | None, exact: bool) -> tuple[Bound | None, bool]:
    if value is None:
        return None, False
    if column.convert is not None:
        converted = column.convert[1](value)
        if converted is None:
            return None, False
        value, exact = converted[0], exact and converted[1]
    if column.is_float:
        if value == 0:
            return to_bound(column.dtype, 0.0), False
    elif column.is_bytes and isinstance(value, bytes) and len(value) > MAX_BOUND_BYTES:
        cut = upper_prefix(value, MAX_BOUND_BYTES)
        return to_bound(column.dtype, cut), exact and cut == value
    return to_bound(column.dtype, value), exact


def upper_prefix(value: bytes, length: int) -> bytes:
    """The least bytes of at most ``length`` that are not less than any text starting with ``value[:length]``.

    The last byte that can grow grows by one; where none can (all FF) the whole value stays (rule D4).
    """
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else value
