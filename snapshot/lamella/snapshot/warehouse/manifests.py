"""Reads manifests and sidecars and caches them, since neither ever changes."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from lamella.snapshot.cache import BoundedCache, CacheNamespace, DerivedCache, DiskCache, FileMaps, MemoryCache
from lamella.snapshot.columnar import JoinedSidecar, Sidecar
from lamella.snapshot.columnar.column_parts import ByteRange, InMemory, check_range
from lamella.snapshot.columnar.locations import Hashes, LocationIndex, hashes_of
from lamella.snapshot.columnar.sidecar import Part
from lamella.snapshot.concurrency import ContextThreadPool, check_deadline
from lamella.snapshot.errors import ManifestError, SegmentNotFound
from lamella.snapshot.index.directory import Directory
from lamella.snapshot.index.part import Fetch
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
from lamella.snapshot.manifest.block_key import BlockKeys, Identity, block_keys, identities
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.manifest.replaced_files import ReplacedSet
from lamella.snapshot.schema.evolution import schema_at
from lamella.snapshot.storage import MappableStore, Store

#: A larger object is read in ranges of this size, several concurrently: one connection to an object store transfers 50
#: to 100 MB/s, and sidecars of wide tables have tens of MB.
PART_BYTES: Final = 4 << 20


class StoredObjects:
    """The objects of a store, each checked against its hash before use. Thread-safe.

    ``disk`` caches objects of a remote store; objects that can be mapped in place are not copied. ``fetch_threads``:
    ranges of large objects that are read concurrently.
    """

    def __init__(self, store: Store, disk: DiskCache | None = None, *, fetch_threads: int = 16) -> None:
        self._store = store
        # Not the pool that whole objects are read in: those would wait for threads that wait for them.
        self._pool = ContextThreadPool(fetch_threads, thread_name_prefix="lamella-part")
        self._mappable = store if isinstance(store, MappableStore) else None
        self._disk = disk
        self._maps = FileMaps()

    def read(self, ref: ObjectRef) -> bytes:
        """Returns the bytes of an object, from the store itself; raises HashMismatch, ObjectNotFound, StoreError."""
        data = self._store.read(ref.location) if ref.size_bytes <= PART_BYTES else self._in_parts(ref)
        check_hash(data, ref.sha256, ref.location)
        return data

    def _in_parts(self, ref: ObjectRef) -> bytes:
        read, location = self._store.read_range, ref.location
        starts = range(0, ref.size_bytes, PART_BYTES)
        parts = [self._pool.submit(read, location, start, min(PART_BYTES, ref.size_bytes - start)) for start in starts]
        try:
            return b"".join([part.result() for part in parts])
        finally:
            for part in parts:
                part.cancel()

    def view(self, ref: ObjectRef, *, keep: bool = True) -> tuple[memoryview, int]:
        """Returns the bytes of an object, and how many of them are on the heap: none if it is mapped.

        ``keep`` False: a file of the store is mapped for this caller alone. Raises as :meth:`read`.
        """
        path = self._local_path(ref)
        mapped = None if path is None else self._mapped(path, ref, keep=keep)
        if mapped is not None:
            return mapped, 0
        if self._disk is not None and path is None:
            data, is_mapped = self._disk.content(ref.sha256, lambda: self.read(ref))
            return data, 0 if is_mapped else data.nbytes
        data = memoryview(self.read(ref))
        return data, data.nbytes

    def checked_ranges_of(self, ref: ObjectRef, *, keep: bool = True) -> StoredRanges:
        """Returns what reads and checks ranges of an object; ``keep`` False: nothing of it is added to a cache."""
        path = self._local_path(ref)
        mapped: memoryview | None = None
        if path is not None:
            name = f"ranges {ref.sha256} {path}"
            mapped = self._maps.get(name)
            if mapped is None:
                with suppress(OSError):  # a read will report the error
                    mapped = self._maps.open(path)
                if mapped is not None and keep:
                    self._maps.keep(name, mapped)
        disk = self._disk if path is None and keep else None
        return StoredRanges(ref, self._store, self._pool, mapped, disk)

    def ranges_of(self, location: str) -> Fetch:
        """Returns a function that reads ranges of an object, several concurrently, or maps it in place; the caller
        verifies the content.

        Nothing of it is cached here.
        """
        path = None if self._mappable is None else self._mappable.local_path(location)
        mapped: memoryview | None = None
        if path is not None:
            with suppress(OSError):  # a read will report the error
                mapped = self._maps.open(path)

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
            if mapped is not None:
                return [mapped[start : start + length] for start, length in ranges]
            if len(ranges) == 1:
                return [self._store.read_range(location, *ranges[0])]
            reads = [self._pool.submit(self._store.read_range, location, *each) for each in ranges]
            try:
                return [read.result() for read in reads]
            finally:
                for read in reads:
                    read.cancel()

        return fetch

    def is_near(self, ref: ObjectRef) -> bool:
        """Returns whether :meth:`view` will most likely find the object without a request to a remote store."""
        if self._local_path(ref) is not None:
            return True
        if self._disk is None:
            return False
        if ref.tail_bytes:
            return self._disk.has_derived(_range_key(ref, _tail(ref)))
        return self._disk.has_content(ref.sha256)

    def _local_path(self, ref: ObjectRef) -> str | None:
        return None if self._mappable is None else self._mappable.local_path(ref.location)

    def _mapped(self, path: str, ref: ObjectRef, *, keep: bool) -> memoryview | None:
        name = f"{ref.sha256} {path}"
        found = self._maps.get(name)
        if found is not None:
            return found
        try:
            found = self._maps.open(path)
        except OSError:
            return None  # a read will report the error
        if found is not None:
            check_hash(found, ref.sha256, ref.location)
            if keep:
                self._maps.keep(name, found)
        return found


class StoredRanges:
    """Reads ranges of one object, each checked against its hash, several concurrently. Thread-safe.

    ``mapped``: the object, if it is mapped in place. ``disk`` caches each range.
    """

    def __init__(
        self,
        ref: ObjectRef,
        store: Store,
        pool: ContextThreadPool,
        mapped: memoryview | None,
        disk: DiskCache | None,
    ) -> None:
        self._ref = ref
        self._store = store
        self._pool = pool
        self._mapped = None if mapped is None else InMemory(mapped, ref.location)
        self._disk = disk
        self._heap_bytes: dict[int, int] = {}

    @property
    def is_near(self) -> bool:
        """Returns whether a read is no request to the store."""
        return self._mapped is not None

    @property
    def heap_bytes(self) -> int:
        """Returns the bytes on the heap of all that was read."""
        return sum(list(self._heap_bytes.values()))

    def __call__(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Returns the bytes of each range.

        Raises:
            HashMismatch, ObjectNotFound, StoreError: one of them cannot be read.
        """
        if self._mapped is not None:
            return self._mapped(ranges)
        if len(ranges) == 1:
            return [self._one(ranges[0])]
        reads = [self._pool.submit(self._one, byte_range) for byte_range in ranges]
        try:
            return [read.result() for read in reads]
        finally:
            for read in reads:
                read.cancel()

    def _one(self, byte_range: ByteRange) -> memoryview:
        if self._disk is None:
            data = self._read(byte_range)
            self._heap_bytes[byte_range.start] = byte_range.length
            return data
        (view,), heap_bytes = self._disk.derived_with_heap(
            _range_key(self._ref, byte_range), lambda: [self._read(byte_range)]
        )
        self._heap_bytes[byte_range.start] = heap_bytes
        return view

    def _read(self, byte_range: ByteRange) -> memoryview:
        location = self._ref.location
        return check_range(self._store.read_range(location, byte_range.start, byte_range.length), byte_range, location)


def _tail(ref: ObjectRef) -> ByteRange:
    """Returns the range of the tail of a sidecar in parts."""
    try:
        sha256 = bytes.fromhex(ref.tail_sha256)
    except ValueError:
        sha256 = b""
    if len(sha256) != hashlib.sha256().digest_size or ref.tail_bytes > ref.size_bytes:
        raise ManifestError(f"the reference to {ref.location} has an invalid tail", location=ref.location)
    return ByteRange(ref.size_bytes - ref.tail_bytes, ref.tail_bytes, sha256)


def _range_key(ref: ObjectRef, byte_range: ByteRange) -> str:
    return f"range {ref.sha256} {byte_range.start} {byte_range.length}"


#: Memory of a decoded manifest relative to its JSON (measured: 4 to 6.5 times).
_DECODED: Final = 6
#: Memory of an open sidecar per Arrow column, without its bytes (measured: 700, and up to 400 more for zone maps once
#: they are used).
_COLUMN_BYTES: Final = 1_100
#: Minimum size of any cached value.
_VALUE_BYTES: Final = 512


class Manifests:
    """The manifests and sidecars in one store. Thread-safe: of threads that need the same object, one reads it.

    ``cache_bytes`` limits everything cached on the heap, of any kind. ``disk`` caches sidecars and location indexes of
    a remote store. ``fetch_threads``: objects that :meth:`sidecars` reads concurrently, and as many ranges of large
    ones.
    """

    def __init__(
        self, store: Store, cache_bytes: int, *, disk: DiskCache | None = None, fetch_threads: int = 16
    ) -> None:
        #: The memory cache of everything on the heap.
        self.memory_cache = memory_cache = BoundedCache(cache_bytes)
        #: The cache of columns derived from sidecars.
        self.derived: DerivedCache = disk if disk is not None else MemoryCache(memory_cache)
        self.disk = disk
        #: The object storage.
        self.store = store
        self._objects = StoredObjects(store, disk, fetch_threads=fetch_threads)
        self._pool = ContextThreadPool(fetch_threads, thread_name_prefix="lamella-fetch")
        self._sidecars: CacheNamespace[Sidecar] = CacheNamespace(memory_cache, "sidecar")
        self._joined: CacheNamespace[Sidecar] = CacheNamespace(memory_cache, "joined")
        self._indexes: CacheNamespace[LocationIndex] = CacheNamespace(memory_cache, "locations")
        self._hashes: CacheNamespace[Hashes] = CacheNamespace(memory_cache, "hashes")
        self._replaced: CacheNamespace[ReplacedSet] = CacheNamespace(memory_cache, "replaced files")
        self._snapshots: CacheNamespace[Snapshot] = CacheNamespace(memory_cache, "snapshot")
        self._heads: CacheNamespace[Snapshot] = CacheNamespace(memory_cache, "head")
        self._directories: CacheNamespace[Directory] = CacheNamespace(memory_cache, "directory")
        self._block_keys: CacheNamespace[BlockKeys] = CacheNamespace(memory_cache, "block keys")
        self._segments: CacheNamespace[Segment] = CacheNamespace(memory_cache, "segment")
        self._groups: CacheNamespace[Group] = CacheNamespace(memory_cache, "group")

    def snapshot(self, pointer: SnapshotPointer) -> Snapshot:
        """Returns the whole snapshot, checked against its hash; :meth:`refs` gives its segments."""
        return self.snapshot_at(pointer.snapshot_id, pointer.manifest)

    def snapshot_at(self, snapshot_id: str, ref: ObjectRef) -> Snapshot:
        """Returns the whole snapshot, as :meth:`snapshot`."""
        return self._snapshots.load(
            snapshot_id, lambda: (decode_snapshot(self.read(ref), location=ref.location), _decoded(ref.size_bytes))
        )

    def remember_snapshot(self, manifest: ObjectRef, snapshot: Snapshot) -> None:
        """Cache a snapshot that was just written."""
        self._snapshots.remember(snapshot.snapshot_id, snapshot, _decoded(manifest.size_bytes))

    def head(self, pointer: SnapshotPointer) -> Snapshot:
        """Returns the snapshot without its segments, from the sidecar: schema, summary, properties.

        Its groups have no statistics.
        """
        found = self._heads.get(pointer.snapshot_id)
        if found is not None:
            return found

        def decoded() -> tuple[Snapshot, int]:
            header = self.sidecar(pointer.sidecar).header
            return decode_snapshot(header, location=pointer.sidecar.location), _decoded(len(header))

        return self._heads.load(pointer.snapshot_id, decoded)

    def passing_head(self, pointer: SnapshotPointer) -> Snapshot:
        """Returns the snapshot as :meth:`head`, without caching it: for passes over many tables."""
        found = self._heads.get(pointer.snapshot_id)
        if found is not None:
            return found
        return decode_snapshot(self._passing(pointer.sidecar).header, location=pointer.sidecar.location)

    def group(self, ref: GroupRef) -> Group:
        """Returns a group's manifest, checked against its hash."""
        manifest = ref.manifest
        return self._groups.load(
            manifest.location,
            lambda: (
                decode_group(self.read(manifest), location=manifest.location),
                _decoded(manifest.size_bytes),
            ),
        )

    def remember_group(self, manifest: ObjectRef, group: Group) -> None:
        """Cache a group that was just written."""
        self._groups.remember(manifest.location, group, _decoded(manifest.size_bytes))

    def group_segments(self, ref: GroupRef) -> tuple[SegmentRef, ...]:
        """Returns the segments of a group that are still in the table."""
        segments = self.group(ref).segments
        if not ref.dropped:
            return segments
        dropped = set(ref.dropped)
        return tuple(segment for row, segment in enumerate(segments) if row not in dropped)

    def group_locations(self, ref: GroupRef) -> LocationIndex:
        """Returns a group's location index, checked against its hash."""

        def opened() -> tuple[LocationIndex, int]:
            data, heap_bytes = self._objects.view(ref.locations)
            return LocationIndex.read(data), heap_bytes + _VALUE_BYTES

        return self._indexes.load(ref.locations.location, opened)

    def remember_locations(self, ref: ObjectRef, index: LocationIndex) -> None:
        """Cache a location index that was just written."""
        self._indexes.remember(ref.location, index, index.size_bytes + _VALUE_BYTES)

    def replaced_set(self, ref: ObjectRef) -> ReplacedSet:
        """Returns a set of files that left a table, checked against its hash."""

        def opened() -> tuple[ReplacedSet, int]:
            found = ReplacedSet.read(self.read(ref))
            return found, found.size_bytes + _VALUE_BYTES

        return self._replaced.load(ref.location, opened)

    def remember_replaced(self, ref: ObjectRef, files: ReplacedSet) -> None:
        """Cache a set that was just written."""
        self._replaced.remember(ref.location, files, files.size_bytes + _VALUE_BYTES)

    def refs(self, snapshot: Snapshot) -> Iterator[SegmentRef]:
        """Yields every segment of a whole snapshot, in the order of :meth:`layer`."""
        for group in snapshot.groups:
            yield from self.group_segments(group)
        yield from snapshot.segments

    def ref_at(self, snapshot: Snapshot, row: int) -> SegmentRef:
        """Returns the segment of a whole snapshot at a row of :meth:`layer`."""
        for group in snapshot.groups:
            if row < group.segment_count:
                return self.group_segments(group)[row]
            row -= group.segment_count
        return snapshot.segments[row]

    def segment(self, ref: SegmentRef) -> Segment:
        """Returns a segment's manifest, checked against its hash."""
        return self.segment_at(ref.manifest)

    def segment_at(self, manifest: ObjectRef) -> Segment:
        """Returns a segment's manifest, as :meth:`segment`."""
        return self._segments.load(
            manifest.location,
            lambda: (
                decode_segment(self.read(manifest), location=manifest.location),
                _decoded(manifest.size_bytes),
            ),
        )

    def remember_segment(self, manifest: ObjectRef, segment: Segment) -> None:
        """Cache a segment that was just written."""
        self._segments.remember(manifest.location, segment, _decoded(manifest.size_bytes))

    def segment_bytes(self, pointer: SnapshotPointer, segment_id: str) -> bytes:
        """Returns a segment's JSON as it was written; raises SegmentNotFound."""
        for ref in self.refs(self.snapshot(pointer)):
            if ref.segment_id == segment_id:
                return self.read(ref.manifest)
        raise SegmentNotFound(f"the snapshot has no segment {segment_id!r}", segment_id=segment_id)

    def read(self, ref: ObjectRef) -> bytes:
        """Returns the bytes of an object, from the store itself, checked against its hash."""
        return self._objects.read(ref)

    def sidecar(self, ref: ObjectRef) -> Sidecar:
        """Returns a sidecar, checked against its hash; raises ManifestError, HashMismatch, UnsupportedFormat."""
        found = self._sidecars.get(ref.location)
        if found is not None:
            return found

        return self._sidecars.load(ref.location, lambda: self._open(ref, keep=True))

    def _open(self, ref: ObjectRef, *, keep: bool) -> tuple[Sidecar, int]:
        if not ref.tail_bytes:
            data, heap_bytes = self._objects.view(ref, keep=keep)
            sidecar = Sidecar(data, location=ref.location)
            return sidecar, _opened(sidecar, heap_bytes)
        fetch = self._objects.checked_ranges_of(ref, keep=keep)
        (data,) = fetch([_tail(ref)])
        sidecar = Sidecar(data, fetch=fetch, location=ref.location)
        if keep and sidecar.column_parts is not None:
            cached = weakref.ref(sidecar)  # a cycle would keep its bytes until the next collection

            def grown() -> None:
                one = cached()
                if one is not None:
                    self._sidecars.resize(ref.location, one, _opened(one, fetch.heap_bytes))

            sidecar.column_parts.on_growth = grown
        return sidecar, _opened(sidecar, fetch.heap_bytes)

    def _passing(self, ref: ObjectRef) -> Sidecar:
        """Returns a sidecar without caching it, unless it is cached already, or would have to be fetched remotely again
        and the cache is at most half full: a scan of a large table removes neither its columns nor anything else."""
        found = self._sidecars.get(ref.location)
        if found is not None:
            return found
        if self._objects.is_near(ref):
            return self._open(ref, keep=False)[0]
        if self.disk is not None:
            is_full = self.disk.is_half_full
        else:
            is_full = 2 * self._sidecars.size_bytes >= self._sidecars.max_bytes
        if not is_full:
            return self.sidecar(ref)
        return self._open(ref, keep=False)[0] if ref.tail_bytes else Sidecar(self._objects.read(ref))

    def sidecars(
        self, refs: Sequence[ObjectRef], *, keep: bool = True, column_ids: Collection[int] = ()
    ) -> list[Sidecar]:
        """Returns sidecars, as :meth:`sidecar`; those of a remote store are read concurrently.

        ``column_ids``: columns that will be asked for; those of sidecars in parts are read concurrently, too.

        All are in memory (or mapped) at once, so callers request many of them in batches. Raises the error of the first
        one that cannot be read. ``keep`` False: sidecars that are not cached are not added to the cache.
        """
        one = self.sidecar if keep else self._passing
        near = [self._sidecars.get(ref.location) for ref in refs]
        if all(sidecar is not None for sidecar in near):
            known = [sidecar for sidecar in near if sidecar is not None]
            self.read_columns(known, column_ids)
            return known
        by_location = {ref.location: sidecar for ref, sidecar in zip(refs, near, strict=True)}
        missing = {ref.location: ref for ref in refs if by_location[ref.location] is None}
        far = [ref for ref in missing.values() if not self._objects.is_near(ref)]
        read = {}
        if len(far) > 1:
            read = {ref.location: self._pool.submit(one, ref) for ref in far}
        try:
            found = []
            for ref in refs:
                sidecar = by_location[ref.location]
                if sidecar is None:
                    future = read.get(ref.location)
                    sidecar = one(ref) if future is None else future.result()
                found.append(sidecar)
        finally:
            for future in read.values():
                future.cancel()
        self.read_columns(found, column_ids)
        return found

    def read_columns(self, sidecars: Iterable[Sidecar], column_ids: Collection[int]) -> None:
        """Read columns of sidecars in parts that are in a remote store, concurrently. Raises as :meth:`sidecar`."""
        each = [one for sidecar in sidecars for one in _single(sidecar)]
        lacking = list({id(one): one for one in each if one.lacks(column_ids)}.values())
        if len(lacking) < 2:
            for one in lacking:
                one.read(column_ids)
            return
        reads = [self._pool.submit(one.read, column_ids) for one in lacking]
        try:
            for read in reads:
                read.result()
        finally:
            for read in reads:
                read.cancel()

    def remember_sidecar(self, ref: ObjectRef, sidecar: Sidecar) -> None:
        """Cache a sidecar that was just written."""
        self._sidecars.remember(ref.location, sidecar, _opened(sidecar, sidecar.size_bytes))

    def layer(self, pointer: SnapshotPointer) -> Sidecar:
        """Returns one row for every segment of a snapshot: those of its groups, then its own."""
        head = self.head(pointer)
        if not head.groups:
            return self.sidecar(pointer.sidecar)
        found = self._joined.get(pointer.snapshot_id)
        if found is not None:
            return found

        def joined() -> tuple[Sidecar, int]:
            own, *of_groups = self.sidecars([pointer.sidecar, *(group.sidecar for group in head.groups)])
            parts = [_part(head, *pair) for pair in zip(head.groups, of_groups, strict=True)]
            layer = JoinedSidecar(own, [*parts, (own, None)])
            size_bytes = layer.size_bytes + _VALUE_BYTES
            if any(group.sidecar.tail_bytes for group in head.groups):
                cached = weakref.ref(layer)

                def grown(columns_bytes: int) -> None:
                    one = cached()
                    if one is not None:
                        self._joined.resize(pointer.snapshot_id, one, size_bytes + columns_bytes)

                layer.on_growth = grown
            return layer, size_bytes

        return self._joined.load(pointer.snapshot_id, joined)

    def cached_layer(self, pointer: SnapshotPointer) -> tuple[Snapshot, Sidecar] | None:
        """Returns :meth:`head` and :meth:`layer` if both are in memory, else None; neither reads nor blocks."""
        head = self._heads.get(pointer.snapshot_id)
        if head is None:
            return None
        layer = self._joined.get(pointer.snapshot_id) if head.groups else self._sidecars.get(pointer.sidecar.location)
        return None if layer is None else (head, layer)

    def cached_blocks(self, head: Snapshot, ref: ObjectRef) -> Sidecar | None:
        """Returns :meth:`blocks` if the sidecar is in memory, else None."""
        sidecar = self._sidecars.get(ref.location)
        return None if sidecar is None else _seen(head, sidecar)

    def blocks(self, head: Snapshot, ref: ObjectRef) -> Sidecar:
        """Returns the sidecar of a segment (or group) in terms of the schema of ``head``.

        Raises Unavailable after the request's deadline, because whatever scans a table calls this for each segment.
        """
        check_deadline()
        return _seen(head, self.sidecar(ref))

    def is_near(self, ref: ObjectRef) -> bool:
        """Returns whether a sidecar can most likely be opened without a request to a remote store."""
        return self._sidecars.get(ref.location) is not None or self._objects.is_near(ref)

    def many_blocks(
        self, head: Snapshot, refs: Sequence[ObjectRef], *, keep: bool = True, column_ids: Collection[int] = ()
    ) -> list[Sidecar]:
        """Returns sidecars as :meth:`blocks`, read as in :meth:`sidecars`."""
        check_deadline()
        return [_seen(head, sidecar) for sidecar in self.sidecars(refs, keep=keep, column_ids=column_ids)]

    def ranges_of(self, location: str) -> Fetch:
        """Returns a function that reads ranges of an object; the caller verifies the content."""
        return self._objects.ranges_of(location)

    def directory(self, ref: ObjectRef) -> Directory:
        """Returns a directory of a skip index, checked against its hash."""

        def opened() -> tuple[Directory, int]:
            data, _ = self._objects.view(ref)
            directory = Directory.read(data, ref.location)
            return directory, directory.size_bytes + _VALUE_BYTES

        return self._directories.load(ref.location, opened)

    def block_keys(self, ref: SegmentRef) -> BlockKeys:
        """Returns the keys of a segment's blocks, in order."""
        return self.keys_of(ref.sidecar, ref.manifest)

    def keys_of(self, sidecar: ObjectRef, manifest: ObjectRef) -> BlockKeys:
        """Returns the keys of a segment's blocks, given its sidecar and manifest.

        Sidecars of older releases lack them: then they are computed from the manifest.
        """
        keys = self.sidecar(sidecar).block_keys()
        if keys is not None:
            return keys

        def made() -> tuple[BlockKeys, int]:
            found = block_keys(identities(self.read(manifest), manifest.location))
            return found, found.nbytes + _VALUE_BYTES

        return self._block_keys.load(manifest.location, made)

    def identities(self, ref: SegmentRef) -> tuple[Identity, ...]:
        """Returns the identities of a segment's blocks, in order; read each time, and not cached."""
        return identities(self.read(ref.manifest), ref.manifest.location)

    def locations(self, ref: ObjectRef) -> list[str]:
        """Returns the locations of the blocks in a segment's sidecar."""
        return self.sidecar(ref).texts("location")

    def location_hashes(self, ref: ObjectRef) -> Hashes:
        """Returns the hashes of those locations, ascending."""

        def hashed() -> tuple[Hashes, int]:
            hashes = np.sort(hashes_of(self.locations(ref)))
            return hashes, hashes.nbytes + _VALUE_BYTES

        return self._hashes.load(ref.location, hashed)


def _single(sidecar: Sidecar) -> Sequence[Sidecar]:
    """Returns the sidecars that one consists of."""
    return sidecar.sidecars if isinstance(sidecar, JoinedSidecar) else (sidecar,)


def _seen(head: Snapshot, sidecar: Sidecar) -> Sidecar:
    if sidecar.schema_id == head.schema.schema_id:
        return sidecar
    return sidecar.seen_from(schema_at(head, sidecar.schema_id), head.schema)


def _part(head: Snapshot, group: GroupRef, sidecar: Sidecar) -> Part:
    seen = _seen(head, sidecar)
    if len(seen) != group.segment_count + len(group.dropped):
        raise ManifestError(f"{group.sidecar.location} has not the rows that its group has segments")
    if not group.dropped:
        return seen, None
    return seen, np.delete(np.arange(len(seen)), group.dropped)


def _decoded(json_bytes: int) -> int:
    return json_bytes * _DECODED + _VALUE_BYTES


def _opened(sidecar: Sidecar, heap_bytes: int) -> int:
    return heap_bytes + sidecar.array_count * _COLUMN_BYTES + _VALUE_BYTES
