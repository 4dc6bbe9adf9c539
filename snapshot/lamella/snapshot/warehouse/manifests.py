"""Reading manifests and companions; what was read once is kept, since neither ever changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
from cachetools import LRUCache

from lamella.snapshot.columnar import Companion, JoinedCompanion
from lamella.snapshot.columnar.joined import Part
from lamella.snapshot.columnar.locations import Hashes, LocationIndex, hashes_of
from lamella.snapshot.errors import ManifestError, SegmentNotFound
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import (
    Group,
    GroupRef,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    decode_group,
    decode_segment,
    decode_snapshot,
)
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.schema.evolution import schema_at

_SNAPSHOTS_CACHED = 64
#: Of JSON; decoded, it takes several times as much.
_SEGMENTS_CACHED_BYTES = 8 << 20
_GROUPS_CACHED_BYTES = 16 << 20
_HASHES_CACHED = 4096


class Manifests:
    """The manifests and companions in one store. Thread-safe.

    ``cache_bytes`` bounds the companions in memory, and once more half of it what is made of them for groups.
    """

    def __init__(self, store: Store, cache_bytes: int) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._companions: LRUCache[str, Companion] = LRUCache(cache_bytes, getsizeof=lambda c: c.size_bytes)
        self._joined: LRUCache[str, Companion] = LRUCache(cache_bytes // 4, getsizeof=lambda c: c.size_bytes)
        self._indexes: LRUCache[str, LocationIndex] = LRUCache(cache_bytes // 4, getsizeof=lambda i: i.size_bytes)
        self._hashes: LRUCache[str, Hashes] = LRUCache(_HASHES_CACHED)
        self._snapshots: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED)
        self._heads: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED * 16)
        self._segments: LRUCache[str, tuple[int, Segment]] = LRUCache(_SEGMENTS_CACHED_BYTES, getsizeof=_first)
        self._groups: LRUCache[str, tuple[int, Group]] = LRUCache(_GROUPS_CACHED_BYTES, getsizeof=_first)

    def snapshot(self, pointer: SnapshotPointer) -> Snapshot:
        """The whole snapshot, checked against its hash; its segments are those of :meth:`refs`."""
        return self.snapshot_at(pointer.snapshot_id, pointer.manifest)

    def snapshot_at(self, snapshot_id: str, ref: ObjectRef) -> Snapshot:
        """As :meth:`snapshot`."""
        with self._lock:
            found = self._snapshots.get(snapshot_id)
        if found is None:
            found = decode_snapshot(self._store.read(ref.location), sha256=ref.sha256, location=ref.location)
            self.remember_snapshot(found)
        return found

    def remember_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot that was just written."""
        with self._lock:
            self._snapshots[snapshot.snapshot_id] = snapshot

    def head(self, pointer: SnapshotPointer) -> Snapshot:
        """The snapshot without its segments, from the companion: schema, summary, properties.

        Its groups have no statistics.
        """
        with self._lock:
            found = self._heads.get(pointer.snapshot_id)
        if found is None:
            header = self.companion(pointer.companion).header
            found = decode_snapshot(header, location=pointer.companion.location)
            with self._lock:
                self._heads[pointer.snapshot_id] = found
        return found

    def group(self, ref: GroupRef) -> Group:
        """A group's manifest, checked against its hash."""
        manifest = ref.manifest
        with self._lock:
            held = self._groups.get(manifest.location)
        if held is not None:
            return held[1]
        data = self._store.read(manifest.location)
        found = decode_group(data, sha256=manifest.sha256, location=manifest.location)
        self.remember_group(manifest, found)
        return found

    def remember_group(self, manifest: ObjectRef, group: Group) -> None:
        """Keep a group that was just written or read."""
        with self._lock:
            if manifest.size_bytes <= self._groups.maxsize:
                self._groups[manifest.location] = (manifest.size_bytes, group)

    def group_segments(self, ref: GroupRef) -> tuple[SegmentRef, ...]:
        """The segments of a group that are still in the table."""
        segments = self.group(ref).segments
        if not ref.dropped:
            return segments
        dropped = set(ref.dropped)
        return tuple(segment for row, segment in enumerate(segments) if row not in dropped)

    def group_locations(self, ref: GroupRef) -> LocationIndex:
        """A group's location index, checked against its hash."""
        location = ref.locations.location
        with self._lock:
            found = self._indexes.get(location)
        if found is None:
            found = LocationIndex.read(self.read(ref.locations))
            self.remember_locations(ref.locations, found)
        return found

    def remember_locations(self, ref: ObjectRef, index: LocationIndex) -> None:
        """Keep a location index that was just written or read."""
        with self._lock:
            if index.size_bytes <= self._indexes.maxsize:
                self._indexes[ref.location] = index

    def refs(self, snapshot: Snapshot) -> Iterator[SegmentRef]:
        """Every segment of a whole snapshot, in the order of :meth:`layer`."""
        for group in snapshot.groups:
            yield from self.group_segments(group)
        yield from snapshot.segments

    def ref_at(self, snapshot: Snapshot, row: int) -> SegmentRef:
        """The segment of a whole snapshot that is in that row of :meth:`layer`."""
        for group in snapshot.groups:
            if row < group.segment_count:
                return self.group_segments(group)[row]
            row -= group.segment_count
        return snapshot.segments[row]

    def segment(self, ref: SegmentRef) -> Segment:
        """A segment's manifest, checked against its hash."""
        manifest = ref.manifest
        with self._lock:
            held = self._segments.get(manifest.location)
        if held is not None:
            return held[1]
        data = self._store.read(manifest.location)
        found = decode_segment(data, sha256=manifest.sha256, location=manifest.location)
        self.remember_segment(manifest, found)
        return found

    def remember_segment(self, manifest: ObjectRef, segment: Segment) -> None:
        """Keep a segment that was just written or read."""
        with self._lock:
            if manifest.size_bytes <= self._segments.maxsize:
                self._segments[manifest.location] = (manifest.size_bytes, segment)

    def segment_bytes(self, pointer: SnapshotPointer, segment_id: str) -> bytes:
        """A segment's JSON as it was written; raises SegmentNotFound."""
        for ref in self.refs(self.snapshot(pointer)):
            if ref.segment_id == segment_id:
                return self.read(ref.manifest)
        raise SegmentNotFound(f"the snapshot has no segment {segment_id!r}", segment_id=segment_id)

    def read(self, ref: ObjectRef) -> bytes:
        """The bytes of an object, checked against its hash."""
        data = self._store.read(ref.location)
        check_hash(data, ref.sha256, ref.location)
        return data

    def companion(self, ref: ObjectRef) -> Companion:
        """A companion, checked against its hash; raises ManifestError, HashMismatch, UnsupportedFormat."""
        with self._lock:
            found = self._companions.get(ref.location)
        if found is None:
            found = Companion(self.read(ref))
            self.remember_companion(ref, found)
        return found

    def remember_companion(self, ref: ObjectRef, companion: Companion) -> None:
        """Keep a companion that was just written or read."""
        with self._lock:
            if companion.size_bytes <= self._companions.maxsize:
                self._companions[ref.location] = companion

    def layer(self, pointer: SnapshotPointer) -> Companion:
        """One row for every segment of a snapshot: those of its groups, then its own."""
        head = self.head(pointer)
        if not head.groups:
            return self.companion(pointer.companion)
        with self._lock:
            found = self._joined.get(pointer.snapshot_id)
        if found is None:
            own = self.companion(pointer.companion)
            parts = [self._part(head, group) for group in head.groups]
            found = JoinedCompanion(own, [*parts, (own, None)])
            with self._lock:
                if found.size_bytes <= self._joined.maxsize:
                    self._joined[pointer.snapshot_id] = found
        return found

    def _part(self, head: Snapshot, group: GroupRef) -> Part:
        seen = self.blocks(head, group.companion)
        if len(seen) != group.segment_count + len(group.dropped):
            raise ManifestError(f"{group.companion.location} has not the rows that its group has segments")
        if not group.dropped:
            return seen, None
        return seen, np.delete(np.arange(len(seen)), group.dropped)

    def blocks(self, head: Snapshot, ref: ObjectRef) -> Companion:
        """The companion of a segment (or group) as it looks from the schema of ``head``."""
        companion = self.companion(ref)
        if companion.schema_id == head.schema.schema_id:
            return companion
        return companion.seen_from(schema_at(head, companion.schema_id), head.schema)

    def locations(self, ref: ObjectRef) -> list[str]:
        """The locations of the blocks in a segment's companion."""
        return self.companion(ref).texts("location")

    def location_hashes(self, ref: ObjectRef) -> Hashes:
        """The hashes of those locations, ascending."""
        with self._lock:
            found = self._hashes.get(ref.location)
        if found is None:
            found = np.sort(hashes_of(self.locations(ref)))
            with self._lock:
                self._hashes[ref.location] = found
        return found


def _first(held: tuple[int, object]) -> int:
    return held[0]
