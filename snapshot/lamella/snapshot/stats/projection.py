"""Statistics of one schema of a table in terms of a later one.

A renamed or moved column keeps its id, and so its statistics. A widened one has its bounds converted, exactly. A
column that is younger than the schema is in no file of it: every row is null, or has the column's default. That is a
proof only because ids are given in order and never again; a column that the schema could have had, but that has no
statistics, stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.default import default_value
from lamella.snapshot.schema.evolution import can_widen
from lamella.snapshot.schema.types import PER_SECOND
from lamella.snapshot.stats.bound import Bound, Value, from_bound, to_bound
from lamella.snapshot.stats.column import ColumnStats, all_null, unknown


def seen_with(
    written: Schema, wanted: Schema, row_count: int, stats: Mapping[int, ColumnStats]
) -> Mapping[int, ColumnStats]:
    """``stats`` of rows that were written under one schema, by the columns and types of another."""
    if written.schema_id == wanted.schema_id:
        return stats
    before = written.by_id()
    found: dict[int, ColumnStats] = {}
    for leaf in wanted.leaves():
        old = before.get(leaf.id)
        if old is None:
            if is_younger(leaf.id, written):
                found[leaf.id] = absent(leaf, row_count)
        elif (given := stats.get(leaf.id)) is not None:
            found[leaf.id] = widened(given, old.dtype, leaf.dtype)
    return found


def is_younger(column_id: int, schema: Schema) -> bool:
    """True when a column was added after that schema, which proves that no file written under it has the column."""
    return column_id > schema.last_column_id and column_id not in schema.by_id()


def absent(leaf: Leaf, row_count: int) -> ColumnStats:
    """The statistics of a column that a file does not have."""
    if leaf.repeated:
        return unknown(leaf.dtype, "not in the file")
    if leaf.default is None:
        return all_null(row_count)
    bound = to_bound(leaf.dtype, default_value(leaf.dtype, leaf.default))
    return ColumnStats(min=bound, max=bound, null_count=0, min_exact=True, max_exact=True, source="schema")


def widened(stats: ColumnStats, source: DataType, target: DataType) -> ColumnStats:
    """The statistics of a column of type ``source`` after it became one of type ``target``."""
    if source == target:
        return stats
    if not can_widen(source, target):
        return unknown(target, f"statistics of type {source} say nothing of {target}")
    low, high = (_converted(bound, source, target) for bound in (stats.min, stats.max))
    lost = (low is None) != (stats.min is None) or (high is None) != (stats.max is None)
    return msgspec.structs.replace(
        stats,
        min=low,
        max=high,
        ranges=(),
        min_exact=stats.min_exact and low is not None,
        max_exact=stats.max_exact and high is not None,
        reason=f"a bound of type {source} is outside the range of {target}" if lost else stats.reason,
    )


def factor(source: DataType, target: DataType) -> int:
    """What a value of ``source`` is multiplied by to be one of ``target``, in their orders' domains."""
    if source.name == "decimal":
        return int(10 ** (target.scale - source.scale))
    if source.name in ("time", "timestamp", "timestamp_ntz"):
        return PER_SECOND[target.unit] // PER_SECOND[source.unit]
    return 1


def _converted(bound: Bound | None, source: DataType, target: DataType) -> Bound | None:
    if bound is None or source.order is None or target.order is None:
        return None
    value: Value = from_bound(source, bound)
    if isinstance(value, int):
        value *= factor(source, target)
        low, high = target.int_range
        if not low <= value <= high:
            return None
    return to_bound(target, value)
