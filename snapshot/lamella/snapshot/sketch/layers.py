"""Sketches through the layers: a block's arrive with it, a segment's, group's and snapshot's are unions of those below.

A column's count is known above only where every part with rows has a sketch of it; after a removal the union is made
again from what is left, so counts shrink. A table without sketches costs nothing: no object is looked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec
from cachetools import LRUCache

from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block, GroupRef, SegmentRef, Snapshot, Summary
from lamella.snapshot.sketch.hll import Sketch, estimate, united
from lamella.snapshot.sketch.objects import Columns, encode, read_blocks, read_union
from lamella.snapshot.sketch.spool import SketchSpool

_UNIONS_CACHED = 1024


class SketchLayers:
    """The sketch objects of a warehouse's tables. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unions: LRUCache[str, Columns] = LRUCache(_UNIONS_CACHED)
        self._lock = threading.Lock()

    def of_segment(self, layout: TableLayout, segment_id: str, summary: Summary, blocks: Sequence[Block]) -> Summary:
        """Write a new segment's sketches, if its blocks have any; the summary with the counts that are known."""
        sketched = {block.location: dict(block.sketches) for block in blocks if block.sketches}
        if not sketched:
            return summary
        union = _united([block.sketches for block in blocks if block.row_count])
        self._write(layout.sketches(segment_id), union, sketched)
        return counted(summary, union)

    def restored(self, layout: TableLayout, ref: SegmentRef, blocks: Sequence[Block]) -> list[Block]:
        """Blocks as they were read from a segment's manifest, with their sketches."""
        if all(stats.distinct_of_values is None for block in blocks for stats in block.col_stats.values()):
            return list(blocks)
        found = read_blocks(self._store, layout.sketches(ref.segment_id))
        return [msgspec.structs.replace(block, sketches=found.get(block.location, {})) for block in blocks]

    def spool(self, layout: TableLayout) -> SketchSpool:
        """For sketches that go with blocks of many segments into others."""
        return SketchSpool(self._store, layout)

    def of_group(self, layout: TableLayout, group_id: str, summary: Summary, segments: Sequence[SegmentRef]) -> Summary:
        """Write a new group's union, if its segments are counted; the summary with the counts that are known."""
        filled = [ref for ref in segments if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return summary
        union = _united([self._read(layout.sketches(ref.segment_id)) or {} for ref in filled])
        self._write(layout.sketches(group_id), union, {})
        return counted(summary, union)

    def of_rest(self, layout: TableLayout, group: GroupRef, left: Sequence[SegmentRef]) -> GroupRef:
        """A group of which only the segments ``left`` are still in the table, with the counts that are known."""
        filled = [ref for ref in left if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return group
        union = _united([self._read(layout.sketches(ref.segment_id)) or {} for ref in filled])
        with self._lock:  # no object: it is made again from the segments' when it is needed and no longer held
            self._unions[_rest_key(layout, group)] = union
        return msgspec.structs.replace(group, summary=counted(group.summary, union))

    def of_snapshot(
        self,
        layout: TableLayout,
        base: Snapshot,
        following: Snapshot,
        *,
        appended: Sequence[SegmentRef] | None,
        segments_of: Callable[[GroupRef], Sequence[SegmentRef]],
    ) -> Snapshot:
        """Write the sketches of the snapshot that follows ``base``, if its segments have any, and count.

        ``appended``: what came to the blocks of ``base``, None when something was removed. ``segments_of``: the
        segments of a group that are in the table.
        """
        parts_of: list[SegmentRef | GroupRef] = [*following.groups, *following.segments]
        filled = [ref for ref in parts_of if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return following
        below = (
            self._read(layout.sketches(base.snapshot_id)) if appended is not None and base.summary.row_count else None
        )
        if appended is not None and below is not None:
            news = [ref for ref in appended if ref.summary.row_count]
            parts = [below, *(self._read(layout.sketches(ref.segment_id)) or {} for ref in news)]
        else:
            parts = [self._part(layout, ref, segments_of) for ref in filled]
        union = _united(parts)
        self._write(layout.sketches(following.snapshot_id), union, {})
        return msgspec.structs.replace(following, summary=counted(following.summary, union))

    def _part(
        self,
        layout: TableLayout,
        ref: SegmentRef | GroupRef,
        segments_of: Callable[[GroupRef], Sequence[SegmentRef]],
    ) -> Columns:
        if isinstance(ref, SegmentRef):
            return self._read(layout.sketches(ref.segment_id)) or {}
        if not ref.dropped:
            return self._read(layout.sketches(ref.group_id)) or {}
        with self._lock:
            found = self._unions.get(_rest_key(layout, ref))
        if found is None:
            left = [each for each in segments_of(ref) if each.summary.row_count]
            found = _united([self._read(layout.sketches(each.segment_id)) or {} for each in left])
        return found

    def _read(self, location: str) -> Columns | None:
        with self._lock:
            found = self._unions.get(location)
        if found is None:
            found = read_union(self._store, location)
            if found is not None:
                with self._lock:
                    self._unions[location] = found
        return found

    def _write(self, location: str, union: Columns, blocks: Mapping[str, Columns]) -> None:
        self._store.put(location, encode(union, blocks))
        with self._lock:
            self._unions[location] = union


def _rest_key(layout: TableLayout, group: GroupRef) -> str:
    return f"{layout.sketches(group.group_id)} without {group.dropped}"


def counted(summary: Summary, union: Columns) -> Summary:
    """A summary with the estimates of a union, and no other counts."""
    stats = {
        column_id: msgspec.structs.replace(
            each, distinct_of_values=estimate(union[column_id]) if column_id in union else None
        )
        for column_id, each in summary.col_stats.items()
    }
    return msgspec.structs.replace(summary, col_stats=stats)


def unsketched(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks as manifests hold them: without their sketches, which have an object of their own."""
    return tuple(msgspec.structs.replace(block, sketches={}) if block.sketches else block for block in blocks)


def _counted_everywhere(parts: Sequence[SegmentRef | GroupRef]) -> set[int]:
    """The columns that every part has counted."""
    counted_in = [
        {column_id for column_id, stats in ref.summary.col_stats.items() if stats.distinct_of_values is not None}
        for ref in parts
    ]
    return set.intersection(*counted_in) if counted_in else set()


def _united(parts: Sequence[Mapping[int, Sketch]]) -> Columns:
    """The unions of the columns that every part has."""
    if not parts:
        return {}
    common = set(parts[0]).intersection(*parts[1:])
    found = {column_id: united(part[column_id] for part in parts) for column_id in sorted(common)}
    return {column_id: sketch for column_id, sketch in found.items() if sketch is not None}
