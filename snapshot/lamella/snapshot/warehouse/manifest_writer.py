"""Writes manifests, sidecars and index directories, every object under a new name.

Nothing refers to any of them before the pointer to a snapshot is swapped, so those of one commit may be put together,
in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import Sidecar, build_block_arrays, build_blocks, build_segments
from lamella.snapshot.columnar.column_parts import SPLIT_FROM_BYTES, tail_of
from lamella.snapshot.columnar.locations import Hashes, LocationIndex
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.directory import Addition, Directory, find_entries
from lamella.snapshot.manifest import (
    CONSTRAINTS,
    FORMAT_VERSION,
    UNREAD_SOURCE,
    Block,
    DirectoryRef,
    Group,
    GroupRef,
    ObjectRef,
    ReplacedFiles,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    Summary,
    TableIndex,
    content_hash,
    decode_segment,
    decode_snapshot,
    encode,
    encode_segment,
    format_features,
)
from lamella.snapshot.manifest.block_arrays import BlockSequence
from lamella.snapshot.manifest.block_key import BlockKeys, are_among
from lamella.snapshot.manifest.replaced_files import ReplacedSet, to_merge
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import Versioned
from lamella.snapshot.sketch.layers import SketchLayers, unsketched
from lamella.snapshot.source import UNREAD
from lamella.snapshot.storage import TableLayout, table_root
from lamella.snapshot.storage.together import TogetherStore
from lamella.snapshot.warehouse.manifests import Manifests

#: Location hashes, ascending, with the number of each one's segment.
IndexPart = tuple[Hashes, npt.NDArray[np.uint32]]


class ManifestWriter:
    """Writes below one warehouse URL; written objects are cached in ``manifests``, since they will soon be read.

    ``split_from_bytes``: sidecars of segments and groups of that size and larger ones are written in parts.
    """

    def __init__(
        self,
        store: TogetherStore,
        root: str,
        ids: Ids,
        sketches: SketchLayers,
        manifests: Manifests,
        *,
        split_from_bytes: int = SPLIT_FROM_BYTES,
    ) -> None:
        self._store = store
        self._root = root
        self._ids = ids
        self._sketches = sketches
        self._manifests = manifests
        self._split_from_bytes = split_from_bytes

    def layout(self, table_id: str) -> TableLayout:
        """Returns the locations of a table's objects."""
        return TableLayout(table_root(self._root, table_id))

    def segment(self, layout: TableLayout, table: Versioned, blocks: Sequence[Block]) -> SegmentRef:
        """Write a segment of at least one block, and its sidecar.

        Blocks stay as they were written; their summary is in terms of the current schema.
        """
        schema = table.history[-1]
        arrays = _arrays_of(schema, blocks)
        if arrays is not None:
            return self._segment_of_arrays(layout, schema, arrays)
        blocks = list(blocks)  # a sequence of arrays would make its blocks again and again
        seen = commits.seen_blocks(table, blocks)
        segment_id = str(self._ids.new())
        summary = self._sketches.of_segment(layout, segment_id, commits.summarize_blocks(schema, seen), blocks)
        segment = _segment(segment_id, schema, summary, unsketched(blocks))
        schema_ids = tuple(sorted({block.written_with for block in blocks}))
        manifest = self._put(layout.segment(segment_id), encode(segment))
        self._manifests.remember_segment(manifest, segment)
        built = build_blocks(schema, seen, split_from_bytes=self._split_from_bytes)
        sidecar = self._put_sidecar(layout.segment_sidecar(segment_id), built)
        return _segment_ref(
            segment,
            manifest,
            sidecar,
            [block.location for block in blocks],
            () if schema_ids == (schema.schema_id,) else schema_ids,
        )

    def _segment_of_arrays(self, layout: TableLayout, schema: Schema, blocks: BlockSequence) -> SegmentRef:
        """Write the same objects as :meth:`segment` without an object for each block. The segment is not cached: who
        wants its blocks, reads it."""
        segment_id = str(self._ids.new())
        segment = _segment(segment_id, schema, commits.summarize_block_arrays(schema, blocks), ())
        data = encode_segment(segment, blocks.by_block(lambda part: part.json()))
        manifest = self._put(layout.segment(segment_id), data)
        built = build_block_arrays(schema, blocks, split_from_bytes=self._split_from_bytes)
        sidecar = self._put_sidecar(layout.segment_sidecar(segment_id), built)
        return _segment_ref(segment, manifest, sidecar, blocks.locations, ())

    def group(
        self, layout: TableLayout, table: Versioned, segments: Sequence[SegmentRef], index: Sequence[IndexPart]
    ) -> GroupRef:
        """Write a group of segments, its sidecar, and its location index from the parts in ``index``."""
        schema = table.history[-1]
        seen = commits.seen_refs(table, segments)
        summary = commits.summarize(schema, [ref.summary for ref in seen])
        group_id = str(self._ids.new())
        group = Group(
            format_version=FORMAT_VERSION,
            group_id=group_id,
            segments=tuple(segments),
            schema_id=schema.schema_id,
            required_features=(*summary.required_features, *format_features(segments)),
        )
        locations = LocationIndex.joined(index)
        manifest = self._put(layout.group(group_id), encode(group))
        self._manifests.remember_group(manifest, group)
        sidecar = self._put_sidecar(
            layout.group_sidecar(group_id), build_segments(schema, seen, split_from_bytes=self._split_from_bytes)
        )
        stored = self._put(layout.group_locations(group_id), locations.to_bytes())
        self._manifests.remember_locations(stored, locations)
        first, last = self._location_range(segments)
        return GroupRef(
            group_id=group_id,
            manifest=manifest,
            sidecar=sidecar,
            locations=stored,
            format_version=FORMAT_VERSION,
            segment_count=len(segments),
            summary=self._sketches.of_group(layout, group_id, summary, segments),
            first_location=first,
            last_location=last,
            block_schema_ids=commits.schema_ids((), segments),
            schema_id=schema.schema_id,
            has_parts=bool(sidecar.tail_bytes or format_features(segments)),
        )

    def replaced_files(self, layout: TableLayout, files: ReplacedSet) -> ReplacedFiles:
        """Write a set of files that left the table."""
        ref = self._put(layout.replaced_files(self._ids.new()), files.to_bytes())
        self._manifests.remember_replaced(ref, files)
        return ReplacedFiles(object=ref, file_count=len(files))

    def snapshot(self, snapshot: Snapshot) -> tuple[SnapshotPointer, Snapshot]:
        """Write a snapshot and its sidecar; returns the pointer to it, and the snapshot as it was written."""
        layout = self.layout(snapshot.table_id)
        own = (CONSTRAINTS,) if snapshot.schema.has_constraints else ()
        if snapshot.properties.get(UNREAD):
            own = (*own, UNREAD_SOURCE)
        parts = format_features((*snapshot.groups, *snapshot.segments))
        features = (*snapshot.summary.required_features, *own, *parts) or msgspec.UNSET
        snapshot = msgspec.structs.replace(snapshot, required_features=features)
        groups = tuple(
            msgspec.structs.replace(group, summary=msgspec.structs.replace(group.summary, col_stats={}))
            for group in snapshot.groups
        )
        header = encode(msgspec.structs.replace(snapshot, segments=(), groups=groups))
        decode_snapshot(header, location=snapshot.snapshot_id)  # what cannot be read again must not become current
        built = build_segments(snapshot.schema, commits.seen_refs(snapshot, snapshot.segments), header)
        sidecar = self._put_sidecar(layout.snapshot_sidecar(snapshot.snapshot_id), built)
        whole = msgspec.structs.replace(snapshot, sidecar=sidecar)
        manifest = self._put(layout.snapshot(snapshot.snapshot_id), encode(whole))
        self._manifests.remember_snapshot(manifest, whole)
        pointer = SnapshotPointer(
            snapshot_id=snapshot.snapshot_id,
            timestamp_ms=snapshot.timestamp_ms,
            manifest=manifest,
            sidecar=sidecar,
        )
        return pointer, whole

    def _location_range(self, segments: Sequence[SegmentRef]) -> tuple[str, str]:
        ends: list[str] = []
        for ref in segments:
            if ref.first_location is None or ref.last_location is None:  # written by an older release
                ends += self._manifests.locations(ref.sidecar)
            else:
                ends += (ref.first_location, ref.last_location)
        return min(ends), max(ends)

    def _put_sidecar(self, location: str, data: bytes) -> ObjectRef:
        tail_bytes, tail_sha256 = tail_of(data)
        put = self._put(location, data)
        ref = msgspec.structs.replace(put, tail_bytes=tail_bytes, tail_sha256=tail_sha256)
        self._manifests.remember_sidecar(ref, Sidecar(data, location=location))
        return ref

    def _put(self, location: str, data: bytes) -> ObjectRef:
        self._store.put_new(location, data)
        return ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data))


def _arrays_of(schema: Schema, blocks: Sequence[Block]) -> BlockSequence | None:
    """Returns blocks as a compact sequence if some of them are arrays, and all can be written as such."""
    if not isinstance(blocks, BlockSequence):
        return None
    found = blocks.compact()
    if not found.has_arrays or not all(part.is_plain for part in found.parts):
        return None
    return found if set(found.schema_ids) == {schema.schema_id} else None


def _segment(segment_id: str, schema: Schema, summary: Summary, blocks: tuple[Block, ...]) -> Segment:
    segment = Segment(
        format_version=FORMAT_VERSION,
        segment_id=segment_id,
        summary=summary,
        blocks=blocks,
        schema_id=schema.schema_id,
        required_features=summary.required_features,
    )
    # What cannot be read again must not become current. Blocks were decoded, or made of a checked footer.
    decode_segment(encode(msgspec.structs.replace(segment, blocks=())), location=segment_id)
    return segment


def _segment_ref(
    segment: Segment,
    manifest: ObjectRef,
    sidecar: ObjectRef,
    locations: Sequence[str],
    block_schema_ids: tuple[int, ...],
) -> SegmentRef:
    return SegmentRef(
        segment_id=segment.segment_id,
        manifest=manifest,
        sidecar=sidecar,
        format_version=FORMAT_VERSION,
        summary=segment.summary,
        schema_id=segment.schema_id,
        block_schema_ids=block_schema_ids,
        first_location=min(locations),
        last_location=max(locations),
    )


class Replacing:
    """Looks up replaced files, and writes the sets of the next snapshot."""

    def __init__(self, manifests: Manifests, writer: ManifestWriter) -> None:
        self._manifests = manifests
        self._writer = writer

    def find(self, snapshot: Snapshot, files: Mapping[str, str | None], *, unknown: bool) -> set[str]:
        """Returns which of these files left the table; each with the hash of its footer (None: unknown).

        ``unknown``: a file with an unknown footer also matches entries for a specific footer.
        """
        found: set[str] = set()
        for each in snapshot.replaced:
            found |= self._manifests.replaced_set(each.object).has(files, unknown=unknown)
        return found

    def in_own_folder(self, table_id: str, locations: Iterable[str]) -> set[str]:
        """Returns the locations in the folder of the table's own blocks, which are not recorded when they leave."""
        own = self._writer.layout(table_id).blocks + "/"
        return {location for location in locations if location.startswith(own)}

    def after(self, base: Snapshot, files: Mapping[str, str | None]) -> tuple[ReplacedFiles, ...]:
        """Write the sets of the snapshot after ``base`` when these files leave the table.

        ``files``: by location; the hash of the footer for a file that is only removed, None for one whose rows may be
        in blocks that replace it.
        """
        layout = self._writer.layout(base.table_id)
        own = self.in_own_folder(base.table_id, files)
        foreign = {path: footer for path, footer in files.items() if path not in own}
        if not foreign:
            return base.replaced
        made = ReplacedSet.of(foreign)
        counts = [each.file_count for each in base.replaced]
        remaining, waiting = list(base.replaced), [made]
        while chosen := to_merge([*counts, len(made)]):
            taken = [index for index in chosen if index < len(remaining)]
            waiting += (self._manifests.replaced_set(remaining[index].object) for index in taken)
            made = ReplacedSet.merged(waiting)
            waiting = [made]
            remaining = [each for index, each in enumerate(remaining) if index not in taken]
            counts = [each.file_count for each in remaining]
        return (*remaining, self._writer.replaced_files(layout, made))


#: A directory is merged with the one before it if that one is less than this many times as large.
_MERGE_FACTOR: Final = 4

Refs = tuple[DirectoryRef, ...]


class Directories:
    """Writes directories; they take effect when a snapshot refers to them."""

    def __init__(self, manifests: Manifests, store: TogetherStore, ids: Ids) -> None:
        self._manifests = manifests
        self._store = store
        self._ids = ids

    def added(
        self, layout: TableLayout, indexes: tuple[TableIndex, ...], additions: Sequence[Addition]
    ) -> tuple[TableIndex, ...]:
        """Returns indexes of a table with more parts, those of each index in the given order.

        Parts of an index that is missing here, or was dropped, are ignored, since nothing would read them.
        """
        filled = []
        for index in indexes:
            parts = [part for addition in additions if addition.index_id == index.index_id for part in addition.parts]
            if not parts or index.dropped_ms is not None:
                filled.append(index)
                continue
            directories = self.extended(layout, index.directories, Directory.of(parts))
            filled.append(msgspec.structs.replace(index, directories=directories))
        return tuple(filled)

    def extended(self, layout: TableLayout, directories: Refs, new: Directory) -> Refs:
        """Returns the directories and a new one, merged with its predecessors as long as these are not much larger."""
        if not len(new):
            return directories
        remaining = list(directories)
        merged = [new]
        size = len(new)
        while remaining and remaining[-1].block_count < _MERGE_FACTOR * size:
            size += remaining[-1].block_count
            merged.insert(0, self._manifests.directory(remaining.pop().object))
        return (*remaining, *self._written(layout, Directory.merged(merged) if len(merged) > 1 else new))

    def forgetting(self, layout: TableLayout, directories: Refs, forget: BlockKeys | None) -> Refs:
        """Returns the directories without some blocks; directories without any of these are not rewritten."""
        remaining: list[DirectoryRef] = []
        for ref in directories:
            directory = self._manifests.directory(ref.object)
            less = _without(directory, forget)
            remaining += (ref,) if less is directory else self._written(layout, less)
        return tuple(remaining)

    def compacted(self, layout: TableLayout, directories: Refs, new: Directory, forget: BlockKeys | None) -> Refs:
        """Returns one directory of the entries of these, without some blocks, and those of a new one."""
        old = [_without(self._manifests.directory(ref.object), forget) for ref in directories]
        return self._written(layout, Directory.merged([*old, new]))

    def still_in(self, directories: Refs, new: Directory, parts: AbstractSet[str]) -> Directory:
        """Returns the entries of ``new`` whose blocks are still in one of these parts."""
        placed = find_entries([self._manifests.directory(ref.object) for ref in directories], new.keys)
        is_there = np.array([part.location in parts for part in placed.parts] or [False])
        return new.where((placed.number >= 0) & is_there[placed.number])

    def _written(self, layout: TableLayout, directory: Directory) -> Refs:
        if not len(directory):
            return ()
        data = directory.to_bytes()
        location = layout.index_directory(self._ids.new())
        self._store.put_new(location, data)
        ref = DirectoryRef(
            object=ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data)),
            part_count=len(directory.parts),
            block_count=len(directory),
            parts_bytes=sum(part.size_bytes for part in directory.parts),
        )
        return (ref,)


def _without(directory: Directory, forget: BlockKeys | None) -> Directory:
    """Returns the directory without some blocks; the directory itself if it has none of them."""
    if forget is None or not len(forget):
        return directory
    gone = are_among(directory.keys, forget)
    return directory.where(~gone) if gone.any() else directory
