"""Writing manifests and companions: leaves first, and every object under a name that was never used before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import Companion, build_blocks, build_segments
from lamella.snapshot.columnar.locations import Hashes, LocationIndex
from lamella.snapshot.ids import Ids
from lamella.snapshot.layout import Store, TableLayout, table_root
from lamella.snapshot.manifest import (
    SEGMENT_FORMAT,
    SNAPSHOT_FORMAT,
    Block,
    Group,
    GroupRef,
    ObjectRef,
    ReplacedFiles,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    content_hash,
    encode,
)
from lamella.snapshot.replaced import ReplacedSet
from lamella.snapshot.schema.evolution import Versioned
from lamella.snapshot.sketch.layers import SketchLayers, unsketched
from lamella.snapshot.warehouse.manifests import Manifests

#: Location hashes, ascending, and for each the number of its segment.
IndexPart = tuple[Hashes, npt.NDArray[np.uint32]]


class ManifestWriter:
    """Writes below one warehouse URL; what was written is kept in ``manifests``, where it will soon be wanted."""

    def __init__(self, store: Store, root: str, ids: Ids, sketches: SketchLayers, manifests: Manifests) -> None:
        self._store = store
        self._root = root
        self._ids = ids
        self._sketches = sketches
        self._manifests = manifests

    def layout(self, table_id: str) -> TableLayout:
        """Where the objects of a table are."""
        return TableLayout(table_root(self._root, table_id))

    def segment(self, layout: TableLayout, table: Versioned, blocks: Sequence[Block]) -> SegmentRef:
        """Write a segment of at least one block, and its companion.

        Blocks stay as they were written; what is said of them together is in terms of the current schema.
        """
        schema = table.history[-1]
        seen = commits.seen_blocks(table, blocks)
        segment_id = str(self._ids.new())
        segment = Segment(
            format_version=SEGMENT_FORMAT,
            segment_id=segment_id,
            summary=self._sketches.of_segment(layout, segment_id, commits.summarize_blocks(schema, seen), blocks),
            blocks=unsketched(blocks),
            schema_id=schema.schema_id,
        )
        schema_ids = tuple(sorted({block.written_with for block in blocks}))
        manifest = self._put(layout.segment(segment_id), encode(segment))
        self._manifests.remember_segment(manifest, segment)
        companion = self._put_companion(layout.segment_companion(segment_id), build_blocks(schema, seen))
        return SegmentRef(
            segment_id=segment_id,
            manifest=manifest,
            companion=companion,
            format_version=SEGMENT_FORMAT,
            summary=segment.summary,
            schema_id=schema.schema_id,
            block_schema_ids=() if schema_ids == (schema.schema_id,) else schema_ids,
            first_location=min(block.location for block in blocks),
            last_location=max(block.location for block in blocks),
        )

    def group(
        self, layout: TableLayout, table: Versioned, segments: Sequence[SegmentRef], index: Sequence[IndexPart]
    ) -> GroupRef:
        """Write a group of segments, its companion and its location index, which ``index`` has the parts of."""
        schema = table.history[-1]
        seen = commits.seen_refs(table, segments)
        group_id = str(self._ids.new())
        group = Group(
            format_version=SNAPSHOT_FORMAT, group_id=group_id, segments=tuple(segments), schema_id=schema.schema_id
        )
        locations = LocationIndex.joined(index)
        manifest = self._put(layout.group(group_id), encode(group))
        self._manifests.remember_group(manifest, group)
        companion = self._put_companion(layout.group_companion(group_id), build_segments(schema, seen))
        stored = self._put(layout.group_locations(group_id), locations.to_bytes())
        self._manifests.remember_locations(stored, locations)
        first, last = self._location_range(segments)
        summary = commits.summarize(schema, [ref.summary for ref in seen])
        return GroupRef(
            group_id=group_id,
            manifest=manifest,
            companion=companion,
            locations=stored,
            format_version=SNAPSHOT_FORMAT,
            segment_count=len(segments),
            summary=self._sketches.of_group(layout, group_id, summary, segments),
            first_location=first,
            last_location=last,
            block_schema_ids=commits.schema_ids((), segments),
            schema_id=schema.schema_id,
        )

    def replaced_files(self, layout: TableLayout, files: ReplacedSet) -> ReplacedFiles:
        """Write a set of files that left the table."""
        ref = self._put(layout.replaced_files(self._ids.new()), files.to_bytes())
        self._manifests.remember_replaced(ref, files)
        return ReplacedFiles(object=ref, file_count=len(files))

    def snapshot(self, snapshot: Snapshot) -> tuple[SnapshotPointer, Snapshot]:
        """Write a snapshot and its companion; returns the pointer to it, and the snapshot as it was written."""
        layout = self.layout(snapshot.table_id)
        groups = tuple(
            msgspec.structs.replace(group, summary=msgspec.structs.replace(group.summary, col_stats={}))
            for group in snapshot.groups
        )
        header = encode(msgspec.structs.replace(snapshot, segments=(), groups=groups))
        built = build_segments(snapshot.schema, commits.seen_refs(snapshot, snapshot.segments), header)
        companion = self._put_companion(layout.snapshot_companion(snapshot.snapshot_id), built)
        whole = msgspec.structs.replace(snapshot, companion=companion)
        manifest = self._put(layout.snapshot(snapshot.snapshot_id), encode(whole))
        self._manifests.remember_snapshot(manifest, whole)
        pointer = SnapshotPointer(
            snapshot_id=snapshot.snapshot_id,
            timestamp_ms=snapshot.timestamp_ms,
            manifest=manifest,
            companion=companion,
        )
        return pointer, whole

    def _location_range(self, segments: Sequence[SegmentRef]) -> tuple[str, str]:
        ends: list[str] = []
        for ref in segments:
            if ref.first_location is None or ref.last_location is None:  # an older release wrote it
                ends += self._manifests.locations(ref.companion)
            else:
                ends += (ref.first_location, ref.last_location)
        return min(ends), max(ends)

    def _put_companion(self, location: str, data: bytes) -> ObjectRef:
        ref = self._put(location, data)
        self._manifests.remember_companion(ref, Companion(data))
        return ref

    def _put(self, location: str, data: bytes) -> ObjectRef:
        self._store.put(location, data)
        return ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data))
