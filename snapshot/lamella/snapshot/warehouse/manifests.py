"""Reading manifests and companions; what was read once is kept, since neither ever changes."""

from __future__ import annotations

import threading

from cachetools import LRUCache

from lamella.snapshot.columnar import Companion
from lamella.snapshot.errors import SegmentNotFound
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import (
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    decode_segment,
    decode_snapshot,
)
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.schema.evolution import schema_at

_SNAPSHOTS_CACHED = 64


class Manifests:
    """The manifests and companions in one store; ``cache_bytes`` bounds the companions in memory. Thread-safe."""

    def __init__(self, store: Store, cache_bytes: int) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._companions: LRUCache[str, Companion] = LRUCache(cache_bytes, getsizeof=lambda c: c.size_bytes)
        self._snapshots: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED)
        self._heads: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED * 16)

    def snapshot(self, pointer: SnapshotPointer) -> Snapshot:
        """The whole snapshot, checked against its hash."""
        with self._lock:
            found = self._snapshots.get(pointer.snapshot_id)
        if found is None:
            ref = pointer.manifest
            found = decode_snapshot(self._store.read(ref.location), sha256=ref.sha256, location=ref.location)
            with self._lock:
                self._snapshots[pointer.snapshot_id] = found
        return found

    def head(self, pointer: SnapshotPointer) -> Snapshot:
        """The snapshot without its segment list, from the companion: schema, summary, properties."""
        with self._lock:
            found = self._heads.get(pointer.snapshot_id)
        if found is None:
            header = self.companion(pointer.companion).header
            found = decode_snapshot(header, location=pointer.companion.location)
            with self._lock:
                self._heads[pointer.snapshot_id] = found
        return found

    def segment(self, ref: SegmentRef) -> Segment:
        """A segment's manifest, checked against its hash."""
        manifest = ref.manifest
        return decode_segment(self._store.read(manifest.location), sha256=manifest.sha256, location=manifest.location)

    def segment_bytes(self, pointer: SnapshotPointer, segment_id: str) -> bytes:
        """A segment's JSON as it was written; raises SegmentNotFound."""
        for ref in self.snapshot(pointer).segments:
            if ref.segment_id == segment_id:
                data = self._store.read(ref.manifest.location)
                check_hash(data, ref.manifest.sha256, ref.manifest.location)
                return data
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
            data = self._store.read(ref.location)
            check_hash(data, ref.sha256, ref.location)
            found = Companion(data)
            with self._lock:
                if found.size_bytes <= self._companions.maxsize:
                    self._companions[ref.location] = found
        return found

    def blocks(self, head: Snapshot, ref: ObjectRef) -> Companion:
        """A segment's companion as it looks from the schema of ``head``."""
        companion = self.companion(ref)
        if companion.schema_id == head.schema.schema_id:
            return companion
        return companion.seen_from(schema_at(head, companion.schema_id), head.schema)

    def locations(self, ref: ObjectRef) -> list[str]:
        """The locations of the blocks in a segment's companion."""
        return self.companion(ref).texts("location")
