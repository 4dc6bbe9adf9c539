"""Writing manifests and companions: leaves first, and every object under a name that was never used before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import build_blocks, build_segments
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store, TableLayout, table_root
from lamella.snapshot.manifest import (
    FORMAT_VERSION,
    Block,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    content_hash,
    encode,
)
from lamella.snapshot.schema.evolution import Versioned
from lamella.snapshot.sketch.layers import SketchLayers, unsketched


class ManifestWriter:
    """Writes below one warehouse URL."""

    def __init__(self, store: Store, root: str, ids: Ids, sketches: SketchLayers) -> None:
        self._store = store
        self._root = root
        self._ids = ids
        self._sketches = sketches

    def layout(self, table_id: str) -> TableLayout:
        """Where the objects of a table are."""
        return TableLayout(table_root(self._root, table_id))

    def segment(self, layout: TableLayout, table: Versioned, blocks: Sequence[Block]) -> SegmentRef:
        """Write a segment and its companion.

        Blocks stay as they were written; what is said of them together is in terms of the current schema.
        """
        schema = table.history[-1]
        seen = commits.seen_blocks(table, blocks)
        segment_id = str(self._ids.new())
        segment = Segment(
            format_version=FORMAT_VERSION,
            segment_id=segment_id,
            summary=self._sketches.of_segment(layout, segment_id, commits.summarize_blocks(schema, seen), blocks),
            blocks=unsketched(blocks),
            schema_id=schema.schema_id,
        )
        schema_ids = tuple(sorted({block.written_with for block in blocks}))
        manifest = self._put(layout.segment(segment_id), encode(segment))
        companion = self._put(layout.segment_companion(segment_id), build_blocks(schema, seen))
        return SegmentRef(
            segment_id=segment_id,
            manifest=manifest,
            companion=companion,
            format_version=FORMAT_VERSION,
            summary=segment.summary,
            schema_id=schema.schema_id,
            block_schema_ids=() if schema_ids == (schema.schema_id,) else schema_ids,
        )

    def snapshot(self, snapshot: Snapshot) -> tuple[SnapshotPointer, Snapshot]:
        """Write a snapshot and its companion; returns the pointer to it, and the snapshot as it was written."""
        layout = self.layout(snapshot.table_id)
        header = encode(msgspec.structs.replace(snapshot, segments=()))
        built = build_segments(snapshot.schema, commits.seen_refs(snapshot, snapshot.segments), header)
        companion = self._put(layout.snapshot_companion(snapshot.snapshot_id), built)
        whole = msgspec.structs.replace(snapshot, companion=companion)
        manifest = self._put(layout.snapshot(snapshot.snapshot_id), encode(whole))
        pointer = SnapshotPointer(
            snapshot_id=snapshot.snapshot_id,
            timestamp_ms=snapshot.timestamp_ms,
            manifest=manifest,
            companion=companion,
        )
        return pointer, whole

    def _put(self, location: str, data: bytes) -> ObjectRef:
        self._store.put(location, data)
        return ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data))
