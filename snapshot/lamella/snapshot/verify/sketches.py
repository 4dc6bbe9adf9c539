"""Sketches of distinct values: that they can be read, and that the counts are theirs.

Sketches are estimates that no answer depends on; an object that is gone only means that counts end there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamella.snapshot.errors import LamellaError, ManifestError, StoreError
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Segment, SegmentRef, Summary
from lamella.snapshot.sketch import Sketch, estimate
from lamella.snapshot.sketch.hll import united
from lamella.snapshot.sketch.objects import Columns, read_blocks, read_union
from lamella.snapshot.verify.checks import found
from lamella.snapshot.verify.reading import Note


def check_segment_sketches(store: Store, layout: TableLayout, ref: SegmentRef, segment: Segment, note: Note) -> None:
    """The sketches of a segment and its blocks, if its summary counts distinct values."""
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
    """The sketches of a group or snapshot against those of its segments; what a segment lacks is said of the segment.

    A snapshot may have no object of its own (after a change of schema, for one): then it has its segments'.
    ``is_whole``: its own object is about all of its segments, and no others.
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
    except StoreError as error:  # it may have been there when its segment was looked at
        note(found("unreachable", error.message, at=location))
        return None
    except LamellaError:
        return None


def _union(store: Store, location: str, note: Note, segment_id: str) -> Columns | None:
    try:
        found_there = read_union(store, location)
    except LamellaError as error:
        note(found("unreachable", error.message, at=location, segment_id=segment_id))
        return None
    if found_there is None:
        message = "distinct values are counted, and their sketches are missing or cannot be read"
        note(found("sketch_unreadable", message, at=location, segment_id=segment_id))
    return found_there


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
                    message = f"column #{column_id} has {count} distinct values, by its sketches {estimate(sketch)}"
                    note(found("sketch_differs", message, at=location, segment_id=segment_id))
                    break
        except ManifestError as error:
            note(found("sketch_unreadable", error.message, at=location, segment_id=segment_id))


def _near(one: int, other: int) -> bool:
    return abs(one - other) <= max(1, other // 50)  # a union of unions may round otherwise
