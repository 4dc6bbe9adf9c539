"""Tables in object storage: reading and writing their manifests and companions, committing, pruning.

Everything a warehouse writes is immutable and named by a fresh id, so what was read once is cached for good. Which
snapshot is current is not known here: a catalog holds the pointers and swaps them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from cachetools import LRUCache

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import Companion, build_blocks, build_segments
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, SegmentNotFound
from lamella.snapshot.expression import Predicate, bind, read_filter, text_of
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
    decode_segment,
    decode_snapshot,
    encode,
)
from lamella.snapshot.manifest.codec import check_hash
from lamella.snapshot.prune.answer import answer
from lamella.snapshot.prune.pipeline import Pruning
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import PruneAnswer, PruneRequest

_SNAPSHOTS_CACHED = 64


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was written and waits for the catalog to point at it."""

    pointer: SnapshotPointer
    snapshot: Snapshot
    added: int
    removed: int


class Warehouse:
    """Tables below one root URL.

    ``store`` is the object storage, ``ids`` the source of names, ``cache_bytes`` bounds the companions held in
    memory, ``segment_blocks`` the blocks of a new segment. Safe to share between threads.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        *,
        ids: Ids | None = None,
        cache_bytes: int = 256 << 20,
        segment_blocks: int = commits.SEGMENT_BLOCKS,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._root = root
        self._ids = ids if ids is not None else Ids()
        self._timer = timer
        self._segment_blocks = segment_blocks
        self._lock = threading.Lock()
        self._companions: LRUCache[str, Companion] = LRUCache(cache_bytes, getsizeof=lambda c: c.size_bytes)
        self._snapshots: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED)
        self._heads: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED * 16)

    def table_location(self, table_id: str) -> str:
        """The folder of a table."""
        return table_root(self._root, table_id)

    def create(
        self,
        table_id: str,
        schema: Schema,
        *,
        cluster_key: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> SnapshotPointer:
        """Write a table's first, empty snapshot."""
        first = commits.empty_snapshot(
            snapshot_id=str(self._ids.new()),
            table_id=table_id,
            schema=schema,
            cluster_key=cluster_key,
            properties=properties or {},
            now_ms=now_ms,
        )
        return self._write_snapshot(first)[0]

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
            header = self._companion(pointer.companion).header
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

    def prepare(self, table_id: str, schema: Schema, blocks: Sequence[Block]) -> tuple[SegmentRef, ...]:
        """Write the segments of new blocks, at most ``segment_blocks`` each; they belong to no snapshot yet."""
        layout = TableLayout(self.table_location(table_id))
        size = self._segment_blocks
        return tuple(
            self._write_segment(layout, schema, blocks[start : start + size]) for start in range(0, len(blocks), size)
        )

    def commit(
        self,
        base: SnapshotPointer,
        *,
        added: Sequence[SegmentRef] = (),
        removed: Sequence[str] = (),
        read_at: SnapshotPointer | None = None,
        operation: str = "append",
        properties: Mapping[str, str] | None = None,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base``; call again with a newer base when the pointer swap was lost.

        ``read_at`` is the snapshot that the writer read the removed blocks in: a file that was replaced at the same
        location since then is another block, and removing it would lose rows that the writer never saw.

        Raises:
            DuplicateBlock: an added block is in the table already, or twice in ``added``.
            CommitConflict: a removed block is not in ``base``, or not the one of ``read_at`` (``blocks`` names them).
        """
        snapshot = self.snapshot(base)
        if read_at is not None and removed and read_at.snapshot_id != base.snapshot_id:
            self._check_same(read_at, base, removed)
        locations = [block for ref in added for block in self._locations(ref.companion)]
        self._check_new(base, locations, removed)
        replaced = self._without(snapshot, removed)
        following = commits.next_snapshot(
            snapshot,
            snapshot_id=str(self._ids.new()),
            added=added,
            replaced=replaced,
            operation=operation,
            properties=properties,
            now_ms=now_ms,
        )
        pointer, written = self._write_snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=len(locations), removed=len(removed))

    def has_blocks(self, pointer: SnapshotPointer, locations: Iterable[str]) -> set[str]:
        """Which of these locations are blocks of the snapshot."""
        wanted = set(locations)
        found: set[str] = set()
        if not wanted:
            return found
        for ref in self.snapshot(pointer).segments:
            found.update(wanted.intersection(self._locations(ref.companion)))
        return found

    def prune(self, pointer: SnapshotPointer, request: PruneRequest) -> PruneAnswer:
        """The blocks (or segments) of a snapshot that may hold matching rows.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
        """
        return self.prune_predicate(pointer, read_filter(request.filter, time_zone=request.time_zone), request)

    def prune_predicate(self, pointer: SnapshotPointer, predicate: Predicate, request: PruneRequest) -> PruneAnswer:
        """As :meth:`prune`, for a filter that has been read already; ``request.filter`` is not looked at."""
        head = self.head(pointer)
        bound = bind(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        segments = self._companion(pointer.companion)
        columns = None
        if request.columns is not None:
            columns = head.schema.select(request.columns, case_sensitive=request.case_sensitive)
        refs = _companion_refs(segments)
        funnel = Pruning(head, segments, lambda row: self._companion(refs(row)), self._timer).run(
            bound, blocks=request.level == "block", explain=request.explain
        )
        return answer(head, segments, funnel, request, columns, text_of(predicate))

    def _companion(self, ref: ObjectRef) -> Companion:
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

    def _locations(self, ref: ObjectRef) -> list[str]:
        return self._companion(ref).texts("location")

    def _check_new(self, base: SnapshotPointer, locations: Sequence[str], removed: Sequence[str]) -> None:
        doubled = sorted(place for place, count in Counter(locations).items() if count > 1)
        present = [] if doubled else sorted(self.has_blocks(base, locations) - set(removed))
        if doubled or present:
            blocks = doubled or present
            where = "twice in the request" if doubled else "already in the table"
            raise DuplicateBlock(f"{len(blocks)} blocks are {where}, first {blocks[0]!r}", blocks=blocks[:100])

    def _check_same(self, read_at: SnapshotPointer, base: SnapshotPointer, removed: Sequence[str]) -> None:
        then, now = self._contents(read_at, removed), self._contents(base, removed)
        changed = sorted(place for place in removed if place not in then or then[place] != now.get(place))
        if changed:
            raise CommitConflict(
                f"{len(changed)} blocks to be removed are not those that were read, first {changed[0]!r}",
                blocks=changed[:100],
                snapshot_id=base.snapshot_id,
            )

    def _contents(self, pointer: SnapshotPointer, locations: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
        """Content id and footer hash of the blocks at these locations."""
        wanted = set(locations)
        found: dict[str, tuple[str | None, str | None]] = {}
        for ref in self.snapshot(pointer).segments:
            if wanted.intersection(self._locations(ref.companion)):
                for block in self.segment(ref).blocks:
                    if block.location in wanted:
                        found[block.location] = (block.content_id, block.footer_sha256)
        return found

    def _without(self, snapshot: Snapshot, removed: Sequence[str]) -> dict[str, SegmentRef | None]:
        """The segments that change when blocks are removed, by id; None where nothing is left."""
        missing = set(removed)
        replaced: dict[str, SegmentRef | None] = {}
        layout = TableLayout(self.table_location(snapshot.table_id))
        for ref in snapshot.segments:
            if not missing:
                break
            hit = missing.intersection(self._locations(ref.companion))
            if hit:
                missing -= hit
                left = [block for block in self.segment(ref).blocks if block.location not in hit]
                replaced[ref.segment_id] = self._write_segment(layout, snapshot.schema, left) if left else None
        if missing:
            blocks = sorted(missing)
            raise CommitConflict(
                f"{len(blocks)} blocks to be removed are not in the table, first {blocks[0]!r}",
                blocks=blocks[:100],
                snapshot_id=snapshot.snapshot_id,
            )
        return replaced

    def _write_segment(self, layout: TableLayout, schema: Schema, blocks: Sequence[Block]) -> SegmentRef:
        segment_id = str(self._ids.new())
        segment = Segment(
            format_version=FORMAT_VERSION,
            segment_id=segment_id,
            summary=commits.summarize_blocks(schema, blocks),
            blocks=tuple(blocks),
        )
        manifest = self._put(layout.segment(segment_id), encode(segment))
        companion = self._put(layout.segment_companion(segment_id), build_blocks(schema, blocks))
        return SegmentRef(
            segment_id=segment_id,
            manifest=manifest,
            companion=companion,
            format_version=FORMAT_VERSION,
            summary=segment.summary,
        )

    def _write_snapshot(self, snapshot: Snapshot) -> tuple[SnapshotPointer, Snapshot]:
        layout = TableLayout(self.table_location(snapshot.table_id))
        header = encode(msgspec.structs.replace(snapshot, segments=()))
        built = build_segments(snapshot.schema, snapshot.segments, header)
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


def _companion_refs(segments: Companion) -> Callable[[int], ObjectRef]:
    """The companions of a snapshot's segments by row."""

    def ref(row: int) -> ObjectRef:
        one = np.array([row])
        return ObjectRef(
            location=segments.texts("companion.location", one)[0],
            size_bytes=int(segments.numbers("companion.size_bytes")[row]),
            sha256=segments.texts("companion.sha256", one)[0],
        )

    return ref
