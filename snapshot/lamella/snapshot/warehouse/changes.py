"""Changing tables: the segments of new blocks, and the snapshots that follow others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.commit import ChangeSet, Landed
from lamella.snapshot.errors import CommitConflict, LamellaError, ObjectNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, Versioned, can_read_as
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.warehouse.lookup import Found, Lookup
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.reshape import Reshaper
from lamella.snapshot.warehouse.writing import ManifestWriter

#: How many snapshots are looked through for the one that took a block away.
_WINNER_STEPS = 16
#: The operation of a snapshot of change sets with different ones.
SEVERAL = "several"


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was written and waits for the catalog to point at it."""

    pointer: SnapshotPointer
    snapshot: Snapshot
    added: int
    removed: int


class ManyCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of several change sets: one outcome each, in their order, and the snapshot of those that landed.

    ``result`` is None when none of them did; nothing was written then.
    """

    result: CommitResult | None
    outcomes: tuple[Landed | LamellaError, ...]

    @property
    def landed(self) -> CommitResult:
        """The snapshot; raises the first outcome that is an error when there is none."""
        if self.result is not None:
            return self.result
        raise next(outcome for outcome in self.outcomes if isinstance(outcome, LamellaError))


class _OneSchema(msgspec.Struct, frozen=True):
    """A table that has had one schema, as far as is known here."""

    history: tuple[Schema, ...]


class Changes:
    """Writes what changes; a catalog decides afterwards whether it counts.

    ``segment_blocks``: blocks of a new segment. ``with_pages``: called with a table's schema and new segments.
    """

    def __init__(
        self,
        manifests: Manifests,
        writer: ManifestWriter,
        sketches: SketchLayers,
        reshaper: Reshaper,
        ids: Ids,
        *,
        segment_blocks: int,
        with_pages: Callable[[Schema, Sequence[SegmentRef]], object] | None,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._sketches = sketches
        self._reshaper = reshaper
        self._lookup = Lookup(manifests)
        self._ids = ids
        self._segment_blocks = segment_blocks
        self._with_pages = with_pages

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
        return self._writer.snapshot(first)[0]

    def prepare(self, table_id: str, table: Schema | Versioned, blocks: Sequence[Block]) -> tuple[SegmentRef, ...]:
        """Write the segments of new blocks, at most ``segment_blocks`` each; they belong to no snapshot yet.

        ``table``: a snapshot of the table, or its schema when no block was written with an older one. A block that
        does not say what it was written with was written with the current schema.

        Raises:
            InvalidSchema: a block that was written with a schema that is not known here.
        """
        layout = self._writer.layout(table_id)
        versions = _OneSchema(history=(table,)) if isinstance(table, Schema) else table
        current = versions.history[-1].schema_id
        dated = [
            msgspec.structs.replace(block, schema_id=current) if block.schema_id is None and current else block
            for block in blocks
        ]
        size = self._segment_blocks
        refs = tuple(
            self._writer.segment(layout, versions, dated[start : start + size]) for start in range(0, len(dated), size)
        )
        if self._with_pages is not None:
            self._with_pages(versions.history[-1], refs)
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
        schemas: Sequence[Sequence[SchemaChange]] = (),
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base``; call again with a newer base when the pointer swap was lost.

        ``read_at`` is the snapshot that the writer read the removed blocks in: a file that was replaced at the same
        location since then is another block, and removing it would lose rows that the writer never saw. ``schemas``:
        changes of the columns, each list a new schema, that belong to the same snapshot; see :meth:`seen_after`.

        Raises:
            DuplicateBlock: an added block is in the table already, or twice in ``added``.
            CommitConflict: a removed block is not in ``base``, or not the one of ``read_at``. ``blocks`` names them;
                ``snapshot_id`` is the snapshot that took the newest of them away where ``snapshot_is`` is "winner",
                and ``base`` where it is "current", because none of the few before that was looked at has them.
            SchemaConflict: an added segment was prepared under a schema that ``base`` does not know, or whose files
                cannot be read by its columns (after a rollback).
        """
        change = ChangeSet(
            added=tuple(added),
            removed=tuple(removed),
            read_at=read_at,
            operation=operation,
            properties=dict(properties or {}),
        )
        done = self.commit_many(base, [change], schemas=schemas, now_ms=now_ms)
        for outcome in done.outcomes:
            if isinstance(outcome, LamellaError):
                raise outcome
        return done.landed

    def commit_many(
        self,
        base: SnapshotPointer,
        changes: Sequence[ChangeSet],
        *,
        schemas: Sequence[Sequence[SchemaChange]] = (),
        now_ms: int,
    ) -> ManyCommitted:
        """Write one snapshot after ``base`` that has several callers' change sets, as if made one after another.

        A change set that cannot be made is left out as a whole; its outcome is the error that :meth:`commit` raises
        for it (DuplicateBlock, CommitConflict, SchemaConflict), and the others are made all the same. The snapshot's
        operation is that of the change sets that landed, or "several" when they differ; later properties win. One
        difference from a chain of commits: a removal with ``read_at`` never takes a block that an earlier change set
        of the same call added.

        Raises:
            StoreError, ManifestError, ObjectNotFound: of the whole call; nothing landed.
        """
        snapshot = self.seen_after(base, schemas)
        requests = [self._request(change) for change in changes]
        named = {place for request in requests for place in (*request.removed, *(p for p, _ in request.added))}
        found = self._lookup.find(snapshot, named)
        held = {place: each.ref.segment_id for place, each in found.items()}
        for number, change in enumerate(changes):
            if change.read_at is not None and change.removed and change.read_at.snapshot_id != base.snapshot_id:
                stale = self._stale(change.read_at, requests[number].removed, found)
                requests[number] = msgspec.structs.replace(requests[number], stale=stale)
        known = [schema.schema_id for schema in snapshot.history if can_read_as(schema, snapshot.schema)]
        folded = commits.fold(held, requests, known_schemas=known, snapshot_id=base.snapshot_id)
        for request, outcome in zip(requests, folded.outcomes, strict=True):
            if isinstance(outcome, CommitConflict):
                self._name_winner(snapshot, outcome, request.stale or frozenset())
        landed = [
            change for change, outcome in zip(changes, folded.outcomes, strict=True) if isinstance(outcome, Landed)
        ]
        result = self._follow(base, snapshot, landed, folded, found, now_ms) if landed else None
        return ManyCommitted(result=result, outcomes=folded.outcomes)

    def seen_after(self, base: SnapshotPointer, schemas: Sequence[Sequence[SchemaChange]]) -> Snapshot:
        """A snapshot as it would be with changed columns, each list of changes a new schema; nothing is written.

        Raises:
            UnknownColumn, InvalidSchema, InvalidRequest: a change that cannot be made.
        """
        snapshot = self._manifests.snapshot(base)
        for changes in schemas:
            evolved = commits.evolved_snapshot(
                snapshot, changes, snapshot_id=base.snapshot_id, now_ms=snapshot.timestamp_ms, base_schema_id=None
            )
            # Still that snapshot: what follows it comes behind it, and not behind one that nobody ever wrote.
            snapshot = msgspec.structs.replace(
                evolved,
                timestamp_ms=snapshot.timestamp_ms,
                prev_snapshot_id=snapshot.prev_snapshot_id,
                prev_manifest=snapshot.prev_manifest,
            )
        return snapshot

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
            self._manifests.snapshot(base),
            changes,
            snapshot_id=str(self._ids.new()),
            now_ms=now_ms,
            base_schema_id=base_schema_id,
            prev_manifest=base.manifest,
        )
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)

    def has_blocks(self, pointer: SnapshotPointer, locations: Iterable[str]) -> set[str]:
        """Which of these locations are blocks of the snapshot."""
        return set(self._lookup.find(self._manifests.snapshot(pointer), locations))

    def identities_of(self, pointer: SnapshotPointer, locations: Iterable[str]) -> dict[str, Identity]:
        """What tells the blocks at these locations of the snapshot from others; a location without one is left out."""
        found = self._lookup.find(self._manifests.snapshot(pointer), locations)
        refs = {place.ref.segment_id: place.ref for place in found.values()}
        return {
            block.location: block
            for ref in refs.values()
            for block in self._manifests.identities(ref)
            if block.location in found
        }

    def _request(self, change: ChangeSet) -> commits.Request:
        return commits.Request(
            added=[
                (place, ref.segment_id) for ref in change.added for place in self._manifests.locations(ref.companion)
            ],
            removed=list(dict.fromkeys(change.removed)),
            schema_ids=frozenset(
                schema_id for ref in change.added for schema_id in (ref.schema_id, *ref.block_schema_ids)
            ),
        )

    def _stale(self, read_at: SnapshotPointer, removed: Sequence[str], found: Mapping[str, Found]) -> frozenset[str]:
        """Which of these blocks are not in the base (``found``) as they were when they were read.

        A block of the same segment is the same block, so segments are opened only where that does not tell.
        """
        then = self._lookup.find(self._manifests.snapshot(read_at), removed)
        both = [place for place in removed if place in then and place in found]
        moved = [place for place in both if then[place].ref.segment_id != found[place].ref.segment_id]
        before = self._lookup.contents({place: then[place] for place in moved})
        after = self._lookup.contents({place: found[place] for place in moved})
        changed = {place for place in moved if before.get(place) != after.get(place)}
        return frozenset(changed.union(removed).difference(set(both) - changed))

    def _follow(
        self,
        base: SnapshotPointer,
        snapshot: Snapshot,
        landed: Sequence[ChangeSet],
        folded: commits.Folded,
        found: Mapping[str, Found],
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that has the change sets."""
        added = [ref for change in landed for ref in change.added]
        shaped = self._reshaper.after(snapshot, added, folded.removals, found)
        appended = None if folded.removals else added
        operations = {change.operation for change in landed}
        following = commits.next_snapshot(
            snapshot,
            snapshot_id=str(self._ids.new()),
            groups=shaped.groups,
            segments=shaped.segments,
            appended=appended,
            operation=operations.pop() if len(operations) == 1 else SEVERAL,
            properties={name: value for change in landed for name, value in change.properties.items()},
            prev_manifest=base.manifest,
            now_ms=now_ms,
        )
        following = self._sketches.of_snapshot(
            self._writer.layout(snapshot.table_id),
            snapshot,
            following,
            appended=appended,
            segments_of=self._manifests.group_segments,
        )
        pointer, written = self._writer.snapshot(following)
        outcomes = [outcome for outcome in folded.outcomes if isinstance(outcome, Landed)]
        return CommitResult(
            pointer=pointer,
            snapshot=written,
            added=sum(outcome.added for outcome in outcomes),
            removed=sum(outcome.removed for outcome in outcomes),
        )

    def _name_winner(self, base: Snapshot, error: CommitConflict, stale: AbstractSet[str]) -> None:
        """Let the error say which snapshot took the blocks away, if one of the last few did."""
        blocks: list[str] = error.details["blocks"]
        now = self._lookup.find(base, blocks)
        gone = [place for place in blocks if place not in now]
        replaced = [] if gone else [place for place in blocks if place in stale]
        contents = self._lookup.contents({place: now[place] for place in replaced})
        snapshot = base
        for _ in range(_WINNER_STEPS if gone or replaced else 0):
            if snapshot.prev_manifest is None or snapshot.prev_snapshot_id is None:
                return
            try:
                before = self._manifests.snapshot_at(snapshot.prev_snapshot_id, snapshot.prev_manifest)
                then = self._lookup.find(before, gone or replaced)
                differs = bool(then) if gone else self._lookup.contents(then) != contents
            except ObjectNotFound:  # cleaned up since
                return
            if differs:
                error.details.update(snapshot_id=snapshot.snapshot_id, snapshot_is="winner")
                return
            snapshot = before
