"""Invariants between a layer and the one below it, and of statistics and sketches by themselves.

Nothing here merges: a parent is compared with each of its children, so an error of the merging code is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamella.snapshot.errors import LamellaError, ManifestError, StoreError
from lamella.snapshot.manifest import Segment, SegmentRef, Summary, merge_constant_columns
from lamella.snapshot.schema import DataType, Leaf
from lamella.snapshot.sketch import Sketch, estimate
from lamella.snapshot.sketch.hll import united
from lamella.snapshot.sketch.layers import Columns, read_blocks, read_union
from lamella.snapshot.stats import Bound, ColumnStats, from_bound
from lamella.snapshot.stats.bucket import bucket_problem
from lamella.snapshot.stats.column import MAX_INT64, is_all_null, sum_of, sum_problem, sum_text, unknown
from lamella.snapshot.stats.ranges import problem as range_problem
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.reading import Note

#: Counts that are summed from blocks to segments, and further up.
_SUMMED = (
    *("row_count", "block_count", "uncompressed_byte_size", "compressed_byte_size", "index_size"),
    *("by_name_count", "constants_count", "deletes_count"),
)


class Problem(msgspec.Struct, frozen=True):
    """What is wrong: a check's code, a sentence, and optionally the column's id and the child's name."""

    code: str
    message: str
    column_id: int | None = None
    child: str | None = None


class Child(msgspec.Struct, frozen=True):
    """An entry of the layer below: its name, its rows, its statistics in the parent's types."""

    name: str
    row_count: int
    col_stats: Mapping[int, ColumnStats]


def count_problems(parent: Summary, parts: Iterable[Summary], *, of_blocks: bool = False) -> Iterator[Problem]:
    """Yields counts and sizes that are not the sums of those below.

    Which blocks count as perfect depends on the release that wrote them (``of_blocks``: that is not compared).
    """
    below = list(parts)
    for name in _SUMMED if of_blocks else (*_SUMMED, "perfect_block_count"):
        total = min(sum(getattr(part, name) for part in below), MAX_INT64)  # sizes are cut to 64 bits
        if getattr(parent, name) != total:
            yield Problem("layer_counts", f"{name} is {getattr(parent, name)} but the sum below is {total}")
    live = [part.live_row_count for part in below]
    expected = None if None in live else sum(count for count in live if count is not None)
    if parent.live_row_count != expected:
        yield Problem("layer_counts", f"live_row_count is {parent.live_row_count} but the sum below is {expected}")
    columns = merge_constant_columns(below)
    # A parent may state nothing.
    if parent.constant_columns and parent.constant_columns != columns:
        yield Problem("layer_counts", f"constant_columns are {parent.constant_columns} but those below are {columns}")


def stats_problem(leaf: Leaf, stats: ColumnStats, row_count: int, *, has_deletes: bool = False) -> str | None:
    """Returns what is wrong with a column's statistics by themselves, None if nothing is.

    ``has_deletes``: of a layer with deleted rows, whose sums are those of the other rows.
    """
    nulls = stats.null_count
    if nulls is not None and not 0 <= nulls <= row_count:
        return f"the null count is {nulls} for {row_count} rows"
    if stats.nan != "none" and not leaf.dtype.is_float:
        return f"nan is {stats.nan!r} in a column of type {leaf.dtype}"
    if any(count is not None and count < 0 for count in (stats.distinct_of_values, stats.in_memory_size)):
        return "a count is negative"
    if (wrong := bucket_problem(leaf, stats.bucket)) is not None:
        return wrong
    if (wrong := sum_problem(leaf, stats, row_count, has_deletes=has_deletes)) is not None:
        return wrong
    if stats.min is None and stats.max is None:
        return "there are ranges, but no bounds" if stats.ranges else None
    if leaf.dtype.order is None or leaf.repeated:
        return "a column of this kind has no bounds"
    if row_count and (stats.nan == "all" or nulls == row_count):
        return "there are bounds, but the column has no values"
    try:
        low, high = value_of(leaf.dtype, stats.min), value_of(leaf.dtype, stats.max)
        wrong = range_problem(leaf.dtype, stats.ranges, low, high)
    except (ManifestError, ValueError) as error:
        return f"a bound is not of type {leaf.dtype}: {error}"
    if wrong is None and low is not None and high is not None and low > high:
        return "min is greater than max"
    return wrong


def value_of(dtype: DataType, bound: Bound | None) -> Any:
    """Returns a bound's value, None without one; raises ManifestError."""
    return None if bound is None else from_bound(dtype, bound)


def layer_problems(
    types: Mapping[int, DataType], parent: Mapping[int, ColumnStats], children: Sequence[Child]
) -> Iterator[Problem]:
    """Yields where a parent's statistics exclude what a child's do not; a column whose bounds cannot be read is left
    out."""
    if not any(child.row_count for child in children):
        return  # there are no values to make statements about
    for column_id, dtype in types.items():
        above = parent.get(column_id)
        if above is None:
            continue  # the parent states nothing
        try:
            yield from _Column(column_id, dtype, above).problems(children)
        except (ManifestError, ValueError):
            continue  # reported where those statistics are stored


class _Column:
    def __init__(self, column_id: int, dtype: DataType, above: ColumnStats) -> None:
        self._id = column_id
        self._dtype = dtype
        self._above = above
        self._low = value_of(dtype, above.min)
        self._high = value_of(dtype, above.max)
        self._low_attained = self._high_attained = False

    def problems(self, children: Sequence[Child]) -> Iterator[Problem]:
        above = self._above
        nulls: int | None = 0
        total: int | None = 0
        for child in children:
            if not child.row_count:
                continue
            stats = child.col_stats.get(self._id)
            known = None if stats is None else stats.null_count
            nulls = None if nulls is None or known is None else nulls + known
            if above.null_count is not None and known is None:
                yield self._problem("layer_nulls", "the null count is known above but unknown below", child)
            if stats is not None and is_all_null(stats, child.row_count):
                continue
            added = sum_of(self._dtype, stats)
            total = None if total is None or added is None else total + added
            yield from self._nan(child, stats if stats is not None else unknown(self._dtype, "no statistics"))
            if stats is None or stats.nan != "all":
                yield from self._bounds(child, stats)
        if above.null_count is not None and nulls is not None and above.null_count != nulls:
            yield self._problem("layer_nulls", f"the null count is {above.null_count} but the sum below is {nulls}")
        if above.sum is not None and above.sum != sum_text(self._dtype, total):
            yield self._problem("layer_sum", f"the sum is {above.sum} but that below is {sum_text(self._dtype, total)}")
        for side, exact, value, attained in (
            ("min", above.min_exact, self._low, self._low_attained),
            ("max", above.max_exact, self._high, self._high_attained),
        ):
            if exact and value is not None and not attained:
                yield self._problem(
                    "layer_exact", f"{side} is marked as exact, but no entry below has it as an exact bound"
                )

    def _nan(self, child: Child, below: ColumnStats) -> Iterator[Problem]:
        if below.nan != "none" and self._above.nan == "none":
            yield self._problem("layer_nan", f"nan is {below.nan!r} below but excluded above", child)
        if below.nan != "all" and self._above.nan == "all":
            yield self._problem("layer_nan", "every value is NaN above, but not below", child)

    def _bounds(self, child: Child, stats: ColumnStats | None) -> Iterator[Problem]:
        low = None if stats is None else value_of(self._dtype, stats.min)
        high = None if stats is None else value_of(self._dtype, stats.max)
        if stats is not None:
            self._low_attained = self._low_attained or (stats.min_exact and low == self._low)
            self._high_attained = self._high_attained or (stats.max_exact and high == self._high)
        for side, above, below in (("min", self._low, low), ("max", self._high, high)):
            if above is None:
                continue
            if below is None:
                yield self._problem("layer_unknown", f"{side} is known above but unknown below", child)
            elif below < above if side == "min" else below > above:
                yield self._problem("layer_bounds", f"{side} is {below!r} below and {above!r} above", child)

    def _problem(self, code: str, message: str, child: Child | None = None) -> Problem:
        return Problem(code, message, self._id, None if child is None else child.name)


# Sketches of distinct values: checks that they can be read, and that the counts match them.
#
# Sketches are estimates that no answer depends on; a missing object only means that counts end there.


def check_segment_sketches(store: Store, layout: TableLayout, ref: SegmentRef, segment: Segment, note: Note) -> None:
    """Check the sketches of a segment and its blocks, if its summary counts distinct values."""
    counts = _counts(segment.summary)
    if not counts:
        return
    location = layout.sketches(ref.segment_id)
    union = _union(store, location, note, ref.segment_id)
    if union is None:
        return
    blocks = read_blocks(store, location)
    parts = [blocks.get(block.location, {}) for block in segment.blocks if block.row_count]
    _compare(counts, union, parts, location, note, ref.segment_id)


def check_layer_sketches(
    store: Store,
    layout: TableLayout,
    owner_id: str,
    summary: Summary,
    segments: Iterable[SegmentRef],
    note: Note,
    *,
    is_whole: bool = True,
) -> None:
    """Check the sketches of a group or snapshot against those of its segments; what a segment lacks is reported of the
    segment.

    A snapshot may have no object of its own (for example after a schema change): then its segments' are used.
    ``is_whole``: its own object covers exactly its segments.
    """
    counts = _counts(summary)
    if not counts:
        return
    parts: list[Columns] = []
    for ref in segments:
        if ref.summary.row_count:
            part = _read(store, layout.sketches(ref.segment_id), note)
            if part is None:
                return
            parts.append(part)
    location = layout.sketches(owner_id)
    _compare(counts, _read(store, location, note) if is_whole else None, parts, location, note, None)


def _counts(summary: Summary) -> dict[int, int]:
    return {
        column_id: stats.distinct_of_values
        for column_id, stats in summary.col_stats.items()
        if stats.distinct_of_values is not None
    }


def _read(store: Store, location: str, note: Note) -> Columns | None:
    try:
        return read_union(store, location)
    except StoreError as error:  # it may have existed when its segment was checked
        note(found("unreachable", error.message, at=location))
        return None
    except LamellaError:
        return None


def _union(store: Store, location: str, note: Note, segment_id: str) -> Columns | None:
    try:
        exists_below = read_union(store, location)
    except LamellaError as error:
        note(found("unreachable", error.message, at=location, segment_id=segment_id))
        return None
    if exists_below is None:
        message = "distinct values are recorded, but their sketches are missing or cannot be read"
        note(found("sketch_unreadable", message, at=location, segment_id=segment_id))
    return exists_below


def _compare(
    counts: Mapping[int, int],
    union: Columns | None,
    parts: Sequence[Mapping[int, Sketch]],
    location: str,
    note: Note,
    segment_id: str | None,
) -> None:
    for column_id, count in counts.items():
        below = [part[column_id] for part in parts if column_id in part]
        try:
            whole = united(below) if parts and len(below) == len(parts) else None
            own = None if union is None else union.get(column_id)
            for sketch in (own, whole):
                if sketch is not None and not _near(estimate(sketch), count):
                    message = (
                        f"column #{column_id} has {count} distinct values, but its sketches estimate {estimate(sketch)}"
                    )
                    note(found("sketch_differs", message, at=location, segment_id=segment_id))
                    break
        except ManifestError as error:
            note(found("sketch_unreadable", error.message, at=location, segment_id=segment_id))


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= max(1, other // 50)  # a union of unions may round differently
