"""Tables in object storage: reading and writing their manifests and companions, committing, pruning.

Everything a warehouse writes is immutable and named by a fresh id, so what was read once is cached for good. Which
snapshot is current is not known here: a catalog holds the pointers and swaps them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from cachetools import LRUCache

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import Companion, build_blocks, build_segments
from lamella.snapshot.errors import CommitConflict, DuplicateBlock, InvalidRequest, SegmentNotFound
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
from lamella.snapshot.pages import PageSource
from lamella.snapshot.pages.writing import OnBlock, PagesBuilt, write_page_companions
from lamella.snapshot.prune.aggregate import Aggregation
from lamella.snapshot.prune.aggregate_answer import answer as aggregate_answer
from lamella.snapshot.prune.aggregate_plan import read_plan
from lamella.snapshot.prune.answer import answer
from lamella.snapshot.prune.batch import single_requests
from lamella.snapshot.prune.difference import Side, difference
from lamella.snapshot.prune.options import read_options
from lamella.snapshot.prune.pages import page_segments, with_pages
from lamella.snapshot.prune.paging import PageTokens
from lamella.snapshot.prune.pipeline import Pruning, next_position
from lamella.snapshot.prune.reader_columns import with_reader_columns
from lamella.snapshot.prune.residual import residuals_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, Versioned, schema_at
from lamella.snapshot.sketch.layers import SketchLayers, unsketched
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateRequest,
    BatchAnswer,
    BatchRequest,
    DiffAnswer,
    DiffRequest,
    PruneAnswer,
    PruneRequest,
)

_SNAPSHOTS_CACHED = 64


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was written and waits for the catalog to point at it."""

    pointer: SnapshotPointer
    snapshot: Snapshot
    added: int
    removed: int


class _OneSchema(msgspec.Struct, frozen=True):
    """A table that has had one schema, as far as is known here."""

    history: tuple[Schema, ...]


class Warehouse:
    """Tables below one root URL.

    ``store`` is the object storage, ``ids`` the source of names, ``cache_bytes`` bounds the companions held in
    memory, ``segment_blocks`` the blocks of a new segment. ``token_secret`` signs page tokens: those of another
    warehouse are only taken when it has the same one (None: a secret of its own). Safe to share between threads.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        *,
        ids: Ids | None = None,
        cache_bytes: int = 256 << 20,
        segment_blocks: int = commits.SEGMENT_BLOCKS,
        page_cache_bytes: int = 64 << 20,
        page_files: int = 256,
        prepare_pages: bool = False,
        timer: Callable[[], float] = time.perf_counter,
        token_secret: bytes | None = None,
    ) -> None:
        self.page_tokens = PageTokens(secrets.token_bytes(32) if token_secret is None else token_secret)
        self._store = store
        self._root = root
        self._ids = ids if ids is not None else Ids()
        self._timer = timer
        self._segment_blocks = segment_blocks
        self._sketches = SketchLayers(store)
        self._lock = threading.Lock()
        self._companions: LRUCache[str, Companion] = LRUCache(cache_bytes, getsizeof=lambda c: c.size_bytes)
        self._snapshots: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED)
        self._heads: LRUCache[str, Snapshot] = LRUCache(_SNAPSHOTS_CACHED * 16)
        self._prepare_pages = prepare_pages
        self._pages = PageSource(store, self._manifest, cache_bytes=page_cache_bytes, files=page_files)

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

    def prepare(self, table_id: str, table: Schema | Versioned, blocks: Sequence[Block]) -> tuple[SegmentRef, ...]:
        """Write the segments of new blocks, at most ``segment_blocks`` each; they belong to no snapshot yet.

        ``table``: a snapshot of the table, or its schema when no block was written with an older one. A block that
        does not say what it was written with was written with the current schema.

        Raises:
            InvalidSchema: a block that was written with a schema that is not known here.
        """
        layout = TableLayout(self.table_location(table_id))
        versions = _OneSchema(history=(table,)) if isinstance(table, Schema) else table
        current = versions.history[-1].schema_id
        dated = [
            msgspec.structs.replace(block, schema_id=current) if block.schema_id is None and current else block
            for block in blocks
        ]
        size = self._segment_blocks
        refs = tuple(
            self._write_segment(layout, versions, dated[start : start + size]) for start in range(0, len(dated), size)
        )
        if self._prepare_pages:
            write_page_companions(self._store, self._pages, versions.history[-1], refs, self.segment)
        return refs

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
            SchemaConflict: an added segment was prepared under a schema that ``base`` does not know.
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
        layout = TableLayout(self.table_location(snapshot.table_id))
        following = self._sketches.of_snapshot(layout, snapshot, following)
        pointer, written = self._write_snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=len(locations), removed=len(removed))

    def evolve(
        self,
        base: SnapshotPointer,
        changes: Sequence[SchemaChange],
        *,
        base_schema_id: int | None = None,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base`` under a changed schema; no segment is written again.

        Call again with a newer base when the pointer swap was lost: the changes then apply to that base's schema,
        unless ``base_schema_id`` insists on one.

        Raises:
            SchemaConflict: the schema of ``base`` is not ``base_schema_id``.
            UnknownColumn, InvalidSchema, InvalidRequest: a change that cannot be made.
        """
        following = commits.evolved_snapshot(
            self.snapshot(base),
            changes,
            snapshot_id=str(self._ids.new()),
            now_ms=now_ms,
            base_schema_id=base_schema_id,
        )
        pointer, written = self._write_snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)

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
            InvalidPageToken: the token belongs to another request or snapshot; SegmentNotFound: one of ``segments``.
        """
        return self.prune_predicate(pointer, read_filter(request.filter, time_zone=request.time_zone), request)

    def prune_batch(self, pointer: SnapshotPointer, request: BatchRequest) -> BatchAnswer:
        """The answers to many filters; each segment is read once for all of them.

        Raises:
            LimitExceeded: too many filters; the errors of :meth:`prune`, ``details.filter`` is the filter's number.
        """
        held: dict[str, Companion] = {}
        answers = []
        for number, single in enumerate(single_requests(request)):
            try:
                predicate = read_filter(single.filter, time_zone=single.time_zone)
                answers.append(self.prune_predicate(pointer, predicate, single, held=held))
            except InvalidRequest as error:
                error.details["filter"] = number
                raise
        head = self.head(pointer)
        return BatchAnswer(snapshot_id=head.snapshot_id, timestamp_ms=head.timestamp_ms, answers=tuple(answers))

    def diff(self, before: SnapshotPointer, after: SnapshotPointer, request: DiffRequest) -> DiffAnswer:
        """The blocks that came and went between two snapshots, as far as they may match a filter.

        Names and types are those of the newer snapshot. Raises as :meth:`prune`.
        """
        newer = max(self.head(before), self.head(after), key=lambda head: head.timestamp_ms)
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        bound = bind(predicate, newer.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        columns = None
        if request.columns is not None:
            columns = newer.schema.select(request.columns, case_sensitive=request.case_sensitive)
        sides = (self._side(before, newer), self._side(after, newer))
        return difference(*sides, bound, columns, newer.schema.schema_id)

    def _side(self, pointer: SnapshotPointer, newer: Snapshot) -> Side:
        segments = self._companion(pointer.companion)
        refs = _companion_refs(segments)
        return Side(
            head=self.head(pointer),
            segments=segments,
            load=lambda row: self._blocks(newer, refs(row)),
            manifest=lambda row: self.segment(self.snapshot(pointer).segments[row]).blocks,
        )

    def prune_predicate(
        self,
        pointer: SnapshotPointer,
        predicate: Predicate,
        request: PruneRequest,
        *,
        held: dict[str, Companion] | None = None,
    ) -> PruneAnswer:
        """As :meth:`prune`, for a filter that has been read already; ``request.filter`` is not looked at.

        ``held``: companions by location that other prunes have opened, and that this one adds to.
        """
        head = self.head(pointer)
        bound = bind(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        segments = self._companion(pointer.companion)
        columns = None
        if request.columns is not None:
            columns = head.schema.select(request.columns, case_sensitive=request.case_sensitive)
        refs = _companion_refs(segments)
        start = None if request.page_token is None else self.page_tokens.position(request, head.snapshot_id)
        options = read_options(request, head.schema, start)

        def load(row: int) -> Companion:
            ref = refs(row)
            if held is None:
                return self._blocks(head, ref)
            if ref.location not in held:
                held[ref.location] = self._blocks(head, ref)
            return held[ref.location]

        funnel = Pruning(head, segments, load, self._timer).run(
            bound, blocks=request.level != "segment", explain=request.explain, options=options
        )
        if request.level == "page":
            leaves = None if columns is None else [head.schema.by_id()[column_id] for column_id in columns]
            funnel = with_pages(funnel, bound, self._pages, page_segments(segments), leaves, self._timer)
        residuals = residuals_of(predicate, funnel.kept, head.schema, request)
        token = self.page_tokens.following(head.snapshot_id, request, next_position(funnel))
        text = text_of(predicate)
        found = answer(head, segments, funnel, request, columns, text, residuals=residuals, next_page_token=token)
        own_blocks = TableLayout(self.table_location(head.table_id)).blocks + "/"
        return with_reader_columns(found, head, funnel.kept, request, own_blocks)

    def aggregate(self, pointer: SnapshotPointer, request: AggregateRequest) -> AggregateAnswer:
        """Counts, least and greatest values of the rows that match a filter, as far as statistics prove them.

        Raises:
            InvalidFilter, FilterTypeMismatch, UnknownColumn, LimitExceeded, InvalidRequest: the request is wrong.
        """
        return self.aggregate_predicate(pointer, read_filter(request.filter, time_zone=request.time_zone), request)

    def aggregate_predicate(
        self, pointer: SnapshotPointer, predicate: Predicate, request: AggregateRequest
    ) -> AggregateAnswer:
        """As :meth:`aggregate`, for a filter that has been read already; ``request.filter`` is not looked at."""
        head = self.head(pointer)
        bound = bind(predicate, head.schema, time_zone=request.time_zone, case_sensitive=request.case_sensitive)
        plan = read_plan(request, head.schema)
        segments = self._companion(pointer.companion)
        refs = _companion_refs(segments)
        aggregation = Aggregation(head, segments, lambda row: self._blocks(head, refs(row)), self._timer)
        return aggregate_answer(head, plan, aggregation.run(bound, plan), request, bound)

    def build_pages(
        self, pointer: SnapshotPointer, *, rebuild: bool = False, on_done: OnBlock | None = None
    ) -> PagesBuilt:
        """Write the page companions of a snapshot's segments that have none (``rebuild``: of all), from their files.

        No snapshot changes: a page companion stands beside its segment and can be deleted at any time. A file that
        cannot be read, or is not the one that was registered, is left out, and the companion says why; ``on_done`` is
        called with each block's location and that reason (None: all is well).

        Raises:
            StoreError: a companion cannot be written.
        """
        head = self.snapshot(pointer)
        return write_page_companions(
            self._store, self._pages, head.schema, head.segments, self.segment, rebuild=rebuild, on_done=on_done
        )

    def _manifest(self, ref: ObjectRef) -> bytes:
        data = self._store.read(ref.location)
        check_hash(data, ref.sha256, ref.location)
        return data

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

    def _blocks(self, head: Snapshot, ref: ObjectRef) -> Companion:
        """A segment's companion as it looks from the schema of ``head``."""
        companion = self._companion(ref)
        if companion.schema_id == head.schema.schema_id:
            return companion
        return companion.seen_from(schema_at(head, companion.schema_id), head.schema)

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
                left = self._sketches.restored(layout, ref, left)
                replaced[ref.segment_id] = self._write_segment(layout, snapshot, left) if left else None
        if missing:
            blocks = sorted(missing)
            raise CommitConflict(
                f"{len(blocks)} blocks to be removed are not in the table, first {blocks[0]!r}",
                blocks=blocks[:100],
                snapshot_id=snapshot.snapshot_id,
            )
        return replaced

    def _write_segment(self, layout: TableLayout, table: Versioned, blocks: Sequence[Block]) -> SegmentRef:
        """Blocks stay as they were written; what is said of them together is in terms of the current schema."""
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

    def _write_snapshot(self, snapshot: Snapshot) -> tuple[SnapshotPointer, Snapshot]:
        layout = TableLayout(self.table_location(snapshot.table_id))
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
