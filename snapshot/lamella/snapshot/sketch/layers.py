"""Sketches through the layers: a block's arrive with it, a segment's and a snapshot's are unions of those below.

A column's count is known above only where every part with rows has a sketch of it; after a removal the union is made
again from what is left, so counts shrink. A table without sketches costs nothing: no object is looked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import msgspec
from cachetools import LRUCache

from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, Summary
from lamella.snapshot.sketch.hll import Sketch, estimate, united
from lamella.snapshot.sketch.objects import Columns, encode, read_blocks, read_union

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

    def of_snapshot(self, layout: TableLayout, base: Snapshot, following: Snapshot) -> Snapshot:
        """Write the sketches of the snapshot that follows ``base``, if its segments have any, and count."""
        filled = [ref for ref in following.segments if ref.summary.row_count]
        if not _counted_everywhere(filled):
            return following
        old = {ref.segment_id for ref in base.segments}
        added = [ref for ref in filled if ref.segment_id not in old]
        is_append = old <= {ref.segment_id for ref in following.segments}
        below = self._read(layout.sketches(base.snapshot_id)) if is_append and base.summary.row_count else None
        parts = [below] if below is not None else []
        parts += [self._read(layout.sketches(r.segment_id)) or {} for r in (added if below is not None else filled)]
        union = _united(parts)
        self._write(layout.sketches(following.snapshot_id), union, {})
        return msgspec.structs.replace(following, summary=counted(following.summary, union))

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


def _counted_everywhere(segments: Sequence[SegmentRef]) -> set[int]:
    """The columns that every segment has counted."""
    counted_in = [
        {column_id for column_id, stats in ref.summary.col_stats.items() if stats.distinct_of_values is not None}
        for ref in segments
    ]
    return set.intersection(*counted_in) if counted_in else set()


def _united(parts: Sequence[Mapping[int, Sketch]]) -> Columns:
    """The unions of the columns that every part has."""
    if not parts:
        return {}
    common = set(parts[0]).intersection(*parts[1:])
    found = {column_id: united(part[column_id] for part in parts) for column_id in sorted(common)}
    return {column_id: sketch for column_id, sketch in found.items() if sketch is not None}
