"""Statistics of one column in one block, segment or snapshot: how layers merge, and conversion to a later schema.

Everything that is not proven is unknown, and unknown is never read as zero: a missing bound excludes nothing, a missing
null count means that there may be nulls, ``nan`` "maybe" means that there may be NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Final, Literal

import msgspec

from lamella.snapshot.errors import ManifestError
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.column import default_value
from lamella.snapshot.schema.evolution import can_widen
from lamella.snapshot.schema.types import factor
from lamella.snapshot.stats.bound import Bound, Value, decimal_text, from_bound, from_bounds, to_bound
from lamella.snapshot.stats.bucket import Bucket, keeps_bucket

#: The greatest count or size in manifests and requests: sidecars store 64 bits.
MAX_INT64: Final = (1 << 63) - 1
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=MAX_INT64)]
Nan = Literal["none", "maybe", "all"]
Source = Literal["footer", "scan", "merge", "schema", "constant", "partition"]


class ColumnStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Statistics of one column.

    ``min`` and ``max`` enclose every value that is neither null nor NaN; None: unknown on that side. They may be looser
    than the values themselves; ``min_exact`` and ``max_exact`` state that the bound occurs (a zero may occur with
    either sign). ``null_count`` is in rows, None when unknown. ``nan`` "all": every value that is not null is NaN.
    ``ranges``: low and high of each of a few ranges, ascending, that together contain every value from ``min`` to
    ``max``; empty: only those two are known. ``sum``: the exact sum of all values of an integer or decimal column, with
    the digits of its scale, such as ``"12.50"``; None: unknown. ``bucket``: a number of buckets, and the one that has
    every value that is not null (:mod:`lamella.snapshot.stats.bucket`). ``reason`` states why a bound is missing,
    ``source`` where the numbers come from.
    """

    min: Bound | None = None
    max: Bound | None = None
    null_count: Int64 | None = None
    nan: Nan = "none"
    min_exact: bool = False
    max_exact: bool = False
    distinct_of_values: Int64 | None = None
    in_memory_size: Int64 | None = None
    source: Source = "footer"
    reason: str | None = None
    ranges: tuple[Bound, ...] = ()
    sum: str | None = None
    bucket: Bucket | None = None


#: A sum has at most this many digits, like a decimal; a longer one is unknown.
MAX_SUM_DIGITS: Final = 38


def has_sum(dtype: DataType) -> bool:
    """Returns whether columns of a type may have a sum: integers and decimals. A sum of floats depends on the order."""
    return dtype.is_integer or dtype.order == "decimal"


def sum_text(dtype: DataType, value: int | None) -> str | None:
    """Returns a sum, in units of the type's last digit, as statistics have it; None: unknown, or too long."""
    if value is None or not has_sum(dtype) or abs(value) >= 10**MAX_SUM_DIGITS:
        return None
    return decimal_text(value, dtype.scale)


def sum_of_equal(value: Bound, row_count: int) -> str | None:
    """Returns the sum of rows that all have the same value; None: its type has no sums."""
    if value.decimal is not None:
        digits, _, scale = value.decimal
        total = int(digits) * row_count
        return decimal_text(total, scale) if abs(total) < 10**MAX_SUM_DIGITS else None
    number = value.int64 if value.int64 is not None else value.uint64
    return None if number is None else str(number * row_count)


def sum_values(dtype: DataType, texts: Sequence[str]) -> list[int]:
    """Returns sums in units of the type's last digit; raises ManifestError if one is not a sum of the type."""
    lines = "".join([f"{text}\n" for text in texts])
    if not has_sum(dtype) or _sums(dtype.scale).fullmatch(lines) is None:
        raise ManifestError(f"not sums of type {dtype}: {lines[:100]!r}")
    found = list(map(int, lines.replace(".", "").split("\n")[:-1]))
    if len(found) != len(texts):
        raise ManifestError("a sum has several lines")
    return found


@cache
def _sums(scale: int) -> re.Pattern[str]:
    digits = rf"\.[0-9]{{{scale}}}" if scale else ""
    return re.compile(rf"(?:-?[0-9]{{1,{MAX_SUM_DIGITS}}}{digits}\n)*")


def sum_of(dtype: DataType, stats: ColumnStats | None) -> int | None:
    """Returns the sum of a column in units of the type's last digit, None if unknown; raises as :func:`sum_values`."""
    return None if stats is None or stats.sum is None else sum_values(dtype, [stats.sum])[0]


def sum_problem(leaf: Leaf, stats: ColumnStats, row_count: int, *, has_deletes: bool = False) -> str | None:
    """Returns what is wrong with a column's sum, None if nothing is.

    ``has_deletes``: the sum is that of rows that are not deleted, and ``row_count`` and nulls those of all.
    """
    if stats.sum is None:
        return None
    if leaf.repeated:
        return "a list or map has several values in a row, so it cannot have a sum"
    try:
        (total,) = sum_values(leaf.dtype, [stats.sum])
        low = None if stats.min is None else from_bound(leaf.dtype, stats.min)
        high = None if stats.max is None else from_bound(leaf.dtype, stats.max)
    except (ManifestError, ValueError) as error:
        return f"the sum or a bound is invalid: {error}"
    if stats.sum != sum_text(leaf.dtype, total):
        return f"{stats.sum!r} is not written as a sum of type {leaf.dtype}"
    max_count = row_count - (stats.null_count or 0)
    min_count = 0 if has_deletes or stats.null_count is None else max_count
    if isinstance(low, int) and total < min(low * min_count, low * max_count):
        return f"the sum {stats.sum} is less than the values can have"
    if isinstance(high, int) and total > max(high * min_count, high * max_count):
        return f"the sum {stats.sum} is more than the values can have"
    return f"the sum is {stats.sum}, but every value is null" if not max_count and total else None


def unknown(dtype: DataType, reason: str) -> ColumnStats:
    """Returns statistics of which nothing is known."""
    return ColumnStats(nan="maybe" if dtype.is_float else "none", reason=reason)


def all_null(row_count: int) -> ColumnStats:
    """Returns the statistics of a column that a file does not have: every row is null."""
    return ColumnStats(null_count=row_count, source="schema")


def is_all_null(stats: ColumnStats, row_count: int) -> bool:
    """Returns whether it is proven that no row has a value (also for zero rows)."""
    return stats.null_count == row_count and stats.min is None and stats.max is None


def with_deleted_rows(stats: ColumnStats, live_row_count: int | None) -> ColumnStats:
    """Returns statistics of rows of which some are deleted, as they hold of the others.

    Bounds still enclose all values, but may belong to deleted rows, except where all rows have one value. The null
    count remains that of all rows: pruning compares it with their number, not with that of the others. The sum is known
    where all rows have one value. ``live_row_count``: the number of the others; None: unknown, perhaps none.
    """
    low, high = stats.min, stats.max
    is_one = low is not None and low == high and stats.min_exact and stats.max_exact
    if live_row_count and low is not None and is_one and stats.null_count == 0 and stats.nan == "none":
        return msgspec.structs.replace(stats, sum=sum_of_equal(low, live_row_count))
    return msgspec.structs.replace(stats, min_exact=False, max_exact=False, sum=None)


def merge(dtype: DataType, parts: Iterable[tuple[int, ColumnStats | None]]) -> ColumnStats:
    """Merges the statistics of several children, given as ``(row_count, stats)``; None: the child has no statistics of
    the column.

    The result's bounds enclose those of the children. A child that may have values and lacks a bound makes that side
    unknown; children that are all null, all NaN or empty do not. A sum of counts is known only if each count is known,
    and the sum fits 64 bits.
    """
    low = high = None
    low_known = high_known = True
    low_exact = high_exact = True
    nulls: int | None = 0
    size: int | None = 0
    total: int | None = 0
    nan_seen = finite_seen = False
    reason = None
    for row_count, child in parts:
        if row_count == 0:
            continue
        stats = child if child is not None else unknown(dtype, "no statistics in a child")
        nulls = None if nulls is None or stats.null_count is None else nulls + stats.null_count
        size = None if size is None or stats.in_memory_size is None else size + stats.in_memory_size
        if is_all_null(stats, row_count):
            continue
        known = sum_of(dtype, stats)
        total = None if total is None or known is None else total + known
        nan_seen = nan_seen or stats.nan != "none"
        if stats.nan == "all":
            continue
        finite_seen = True
        reason = reason or stats.reason
        if stats.min is None:
            low_known = False
        elif low_known:
            value = from_bound(dtype, stats.min)
            if low is None or value < low:  # type: ignore[operator]  # one order per type
                low, low_exact = value, stats.min_exact
            elif value == low:
                low_exact = low_exact or stats.min_exact
        if stats.max is None:
            high_known = False
        elif high_known:
            value = from_bound(dtype, stats.max)
            if high is None or value > high:  # type: ignore[operator]  # one order per type
                high, high_exact = value, stats.max_exact
            elif value == high:
                high_exact = high_exact or stats.max_exact
    if not nan_seen:
        nan: Nan = "none"
    else:
        nan = "maybe" if finite_seen else "all"
    has_low, has_high = low_known and low is not None, high_known and high is not None
    return ColumnStats(
        min=to_bound(dtype, low) if has_low and low is not None else None,
        max=to_bound(dtype, high) if has_high and high is not None else None,
        null_count=_fitting(nulls),
        nan=nan,
        min_exact=has_low and low_exact,
        max_exact=has_high and high_exact,
        in_memory_size=_fitting(size),
        sum=sum_text(dtype, total) if finite_seen else None,
        source="merge",
        reason=None if low_known and high_known else reason or "a child's bound is unknown",
    )


def merge_columns(
    types: Mapping[int, DataType], children: Iterable[tuple[int, Mapping[int, ColumnStats]]]
) -> dict[int, ColumnStats]:
    """Merges every column of ``types`` over ``(row_count, {column id: stats})`` children."""
    counts: list[int] = []
    maps: list[Mapping[int, ColumnStats]] = []
    for row_count, stats in children:
        counts.append(row_count)
        maps.append(stats)
    merged = {}
    for column_id, dtype in types.items():
        merged[column_id] = merge_column(dtype, counts, [stats.get(column_id) for stats in maps])
    return merged


def merge_column(dtype: DataType, counts: Sequence[int], parts: Sequence[ColumnStats | None]) -> ColumnStats:
    """Merges like :func:`merge`; ``counts``: the rows of each child."""
    return _merge_plain(dtype, counts, parts) or merge(dtype, zip(counts, parts, strict=True))


def _merge_plain(dtype: DataType, counts: Sequence[int], parts: Sequence[ColumnStats | None]) -> ColumnStats | None:
    """Merges like :func:`merge`, member by member, if every child has rows, values and both bounds; otherwise None."""
    if not counts or 0 in counts or dtype.order is None:
        return None
    stats = [each for each in parts if each is not None]
    lows = [each.min for each in stats if each.min is not None]
    highs = [each.max for each in stats if each.max is not None]
    nan = {each.nan for each in stats}
    if not len(lows) == len(highs) == len(parts) or "all" in nan:
        return None
    low_values, high_values = from_bounds(dtype, lows), from_bounds(dtype, highs)
    low, high = min(low_values), max(high_values)
    nulls = [each.null_count for each in stats if each.null_count is not None]
    sizes = [each.in_memory_size for each in stats if each.in_memory_size is not None]
    sums = [each.sum for each in stats if each.sum is not None]
    return ColumnStats(
        min=to_bound(dtype, low),
        max=to_bound(dtype, high),
        null_count=_fitting(sum(nulls)) if len(nulls) == len(parts) else None,
        nan="maybe" if "maybe" in nan else "none",
        min_exact=any(each.min_exact for each, value in zip(stats, low_values, strict=True) if value == low),
        max_exact=any(each.max_exact for each, value in zip(stats, high_values, strict=True) if value == high),
        in_memory_size=_fitting(sum(sizes)) if len(sizes) == len(parts) else None,
        sum=sum_text(dtype, sum(sum_values(dtype, sums))) if sums and len(sums) == len(parts) else None,
        source="merge",
    )


def _fitting(total: int | None) -> int | None:
    return None if total is None or total > MAX_INT64 else total


# Statistics of one schema of a table in terms of a later one.
#
# A renamed or moved column keeps its id, and so its statistics. The bounds of a widened column are converted, exactly.
# A column that is newer than the schema is in no file of it: every row is null, or has the column's default. This is
# proven only because ids are assigned in ascending order and never reused; a column that the schema could have had, but
# that has no statistics, stays unknown.


def seen_with(
    written: Schema, wanted: Schema, row_count: int, stats: Mapping[int, ColumnStats]
) -> Mapping[int, ColumnStats]:
    """Returns ``stats`` of rows that were written under one schema, with the columns and types of another."""
    if written.schema_id == wanted.schema_id:
        return stats
    before = written.by_id()
    found: dict[int, ColumnStats] = {}
    for leaf in wanted.leaves_with_statistics():
        old = before.get(leaf.id)
        if old is None:
            if is_younger(leaf.id, written) and not leaf.shredded:  # its values are in older variants too
                found[leaf.id] = absent(leaf, row_count)
        elif (given := stats.get(leaf.id)) is not None:
            found[leaf.id] = widened(given, old.dtype, leaf.dtype)
    return found


def is_younger(column_id: int, schema: Schema) -> bool:
    """Returns whether a column was added after that schema, which proves that no file written under it has the
    column."""
    return column_id > schema.last_column_id and column_id not in schema.by_id()


def absent(leaf: Leaf, row_count: int) -> ColumnStats:
    """Returns the statistics of a column that a file does not have."""
    if leaf.repeated:
        return unknown(leaf.dtype, "not in the file")
    if leaf.default is None:
        return all_null(row_count)
    bound = to_bound(leaf.dtype, default_value(leaf.dtype, leaf.default))
    total = sum_of_equal(bound, row_count)
    return ColumnStats(min=bound, max=bound, null_count=0, min_exact=True, max_exact=True, sum=total, source="schema")


def widened(stats: ColumnStats, source: DataType, target: DataType) -> ColumnStats:
    """Returns the statistics of a column of type ``source`` after it became one of type ``target``."""
    if source == target:
        return stats
    if not can_widen(source, target):
        return unknown(target, f"statistics of type {source} cannot be used for {target}")
    low, high = (_converted(bound, source, target) for bound in (stats.min, stats.max))
    lost = (low is None) != (stats.min is None) or (high is None) != (stats.max is None)
    return msgspec.structs.replace(
        stats,
        min=low,
        max=high,
        ranges=(),
        min_exact=stats.min_exact and low is not None,
        max_exact=stats.max_exact and high is not None,
        sum=_converted_sum(stats, source, target),
        bucket=stats.bucket if keeps_bucket(source, target) else None,
        reason=f"a bound of type {source} is outside the range of {target}" if lost else stats.reason,
    )


def _converted_sum(stats: ColumnStats, source: DataType, target: DataType) -> str | None:
    known = sum_of(source, stats) if has_sum(target) else None
    return None if known is None else sum_text(target, known * factor(source, target))


def _converted(bound: Bound | None, source: DataType, target: DataType) -> Bound | None:
    if bound is None or source.order is None or target.order is None:
        return None
    value: Value = from_bound(source, bound)
    if target.is_float:
        value = float(value)  # exact: integers have at most 32 bits
    elif isinstance(value, int):
        value *= factor(source, target)
        low, high = target.int_range
        if not low <= value <= high:
            return None
    return to_bound(target, value)
