"""Changing what tables hold: the segments of new blocks, and the snapshots that follow others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.commit import ChangeSet, Landed
from lamella.snapshot.errors import CommitConflict, LamellaError, NewMatches
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import SchemaChange, Versioned, can_read_as
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.source import KIND
from lamella.snapshot.warehouse.conflicts import Conflicts, Difference
from lamella.snapshot.warehouse.directories import Directories
from lamella.snapshot.warehouse.lookup import Found, Lookup
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.replacing import Replacing
from lamella.snapshot.warehouse.reshape import Reshaper
from lamella.snapshot.warehouse.writing import ManifestWriter
from lamella.snapshot.wire import NoNewMatches

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
        directories: Directories,
        sketches: SketchLayers,
        reshaper: Reshaper,
        difference: Difference,
        ids: Ids,
        *,
        segment_blocks: int,
        with_pages: Callable[[Schema, Sequence[SegmentRef]], object] | None,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._directories = directories
        self._sketches = sketches
        self._reshaper = reshaper
        self._lookup = Lookup(manifests)
        self._replacing = Replacing(manifests, writer)
        self._conflicts = Conflicts(manifests, self._lookup, difference)
        self.new_matches = self._conflicts.new_matches
        self._ids = ids
        self._segment_blocks = segment_blocks
        self._with_pages = with_pages

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
        index_parts: Sequence[Addition] = (),
        no_new_matches: NoNewMatches | None = None,
        schemas: Sequence[Sequence[SchemaChange]] = (),
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base``; call again with a newer base when the pointer swap was lost.

        ``read_at`` is the snapshot that the writer read the removed blocks in: a file that was replaced at the same
        location since then is another block, and removing it would lose rows that the writer never saw.
        ``index_parts``: what skip indexes know of the added blocks; what the table has no index for is left out.
        ``no_new_matches``: see :meth:`~lamella.snapshot.warehouse.conflicts.Conflicts.new_matches`, needs ``read_at``.
        ``schemas``: changes of the columns, each list a new schema, that belong to the same snapshot; see
        :meth:`seen_after`.

        Raises:
            DuplicateBlock: an added block is in the table already, or twice in ``added``.
            CommitConflict: a removed block is not in ``base``, or not the one of ``read_at``. ``blocks`` names them;
                ``snapshot_id`` is the snapshot that took the newest of them away where ``snapshot_is`` is "winner",
                and ``base`` where it is "current", because none of the few before that was looked at has them.
            SchemaConflict: an added segment was prepared under a schema that ``base`` does not know, or whose files
                cannot be read by its columns (after a rollback); or there is ``no_new_matches`` and other columns.
            NewMatches: ``base`` has blocks that ``read_at`` had not and that may match ``no_new_matches``.
        """
        change = ChangeSet(
            added=tuple(added),
            removed=tuple(removed),
            read_at=read_at,
            operation=operation,
            properties=dict(properties or {}),
            index_parts=tuple(index_parts),
            no_new_matches=no_new_matches,
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
        for it (DuplicateBlock, CommitConflict, NewMatches, SchemaConflict), and the others are made all the same. The
        snapshot's operation is that of the change sets that landed, or "several" when they differ; later properties
        win. Two differences from a chain of commits: a removal with ``read_at`` never takes a block that an earlier
        change set of the same call added, and one with ``no_new_matches`` is not made behind one that added blocks.

        Raises:
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: of the whole call, for ``no_new_matches``.
            StoreError, ManifestError, ObjectNotFound: of the whole call; nothing landed.
        """
        snapshot = self.seen_after(base, schemas)
        requests = [self._request(change) for change in changes]
        named = {place for request in requests for place in (*request.removed, *(p for p, _ in request.added))}
        found = self._lookup.find(snapshot, named)
        held = {place: each.ref.segment_id for place, each in found.items()}
        for number, change in enumerate(changes):
            if change.only_new:
                replaced = self._returned(snapshot, change, requests[number])
                requests[number] = msgspec.structs.replace(requests[number], replaced=replaced, only_new=True)
            if change.read_at is not None and change.removed and change.read_at.snapshot_id != base.snapshot_id:
                stale = self._conflicts.stale(change.read_at, requests[number].removed, found)
                requests[number] = msgspec.structs.replace(requests[number], stale=stale)
            if change.no_new_matches is not None:
                refused = self._conflicts.of(change, base)
                requests[number] = msgspec.structs.replace(requests[number], refused=refused, is_serial=True)
        known = [schema.schema_id for schema in snapshot.history if can_read_as(schema, snapshot.schema)]
        folded = commits.fold(held, requests, known_schemas=known, snapshot_id=base.snapshot_id)
        for request, outcome in zip(requests, folded.outcomes, strict=True):
            if isinstance(outcome, CommitConflict) and not isinstance(outcome, NewMatches):
                self._conflicts.name_winner(snapshot, outcome, request.stale or frozenset())
        landed = [
            change for change, outcome in zip(changes, folded.outcomes, strict=True) if isinstance(outcome, Landed)
        ]
        leaving = self._leaving(requests, folded, found)
        result = self._follow(base, snapshot, landed, folded, found, leaving, now_ms) if landed else None
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

    def replaced(self, pointer: SnapshotPointer, files: Mapping[str, str | None]) -> set[str]:
        """Which of these files were in the table before the snapshot and are no longer in it.

        ``files``: by location, with the hash of the footer; None: not known, so that only files are found of which any
        version counts. Blocks that Lamella wrote are not remembered: those that are in the folder of the table's own
        blocks are found by that.
        """
        snapshot = self._manifests.snapshot(pointer)
        own = self._replacing.in_own_folder(snapshot.table_id, files)
        return own | self._replacing.find(snapshot, files, unknown=False)

    def coming_back(self, pointer: SnapshotPointer, blocks: Iterable[Block]) -> set[str]:
        """Locations of those blocks that are to be added and whose files were in the table before the snapshot.

        A block that does not tell its footer may be any file. New blocks are in the folder of the table's own blocks:
        there none is looked for.
        """
        return self._coming_back(self._manifests.snapshot(pointer), blocks)

    def _coming_back(self, snapshot: Snapshot, blocks: Iterable[Block]) -> set[str]:
        if not snapshot.replaced:
            return set()
        files = {block.location: block.footer_sha256 for block in blocks}
        own = self._replacing.in_own_folder(snapshot.table_id, files)
        foreign = {place: footer for place, footer in files.items() if place not in own}
        return self._replacing.find(snapshot, foreign, unknown=True)

    def _returned(self, snapshot: Snapshot, change: ChangeSet, request: commits.Request) -> frozenset[str]:
        """Files of a change set that come back; not those that are in the table, and are exchanged."""
        places = {place for place, _ in request.added}
        if not snapshot.replaced or places == self._replacing.in_own_folder(snapshot.table_id, places):
            return frozenset()
        blocks = (block for ref in change.added for block in self._manifests.segment(ref).blocks)
        return frozenset(self._coming_back(snapshot, blocks).difference(request.removed))

    def _leaving(
        self, requests: Sequence[commits.Request], folded: commits.Folded, found: Mapping[str, Found]
    ) -> dict[str, str | None]:
        """The files that leave the table, as :meth:`Replacing.after` wants them."""
        landed = [
            request for request, outcome in zip(requests, folded.outcomes, strict=True) if isinstance(outcome, Landed)
        ]
        dropped = {place for request in landed if not request.added for place in request.removed}
        contents = self._lookup.contents({place: found[place] for place in dropped if place in found})
        leaving: dict[str, str | None] = {}
        for request in landed:
            for place in request.removed:
                # Without added blocks, only the file that was there has left; another one may come to its place.
                is_known = not request.added and place in contents
                leaving[place] = contents[place][1] if is_known else None
            for place, _ in request.added:
                leaving.pop(place, None)
        return leaving

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

    def _follow(
        self,
        base: SnapshotPointer,
        snapshot: Snapshot,
        landed: Sequence[ChangeSet],
        folded: commits.Folded,
        found: Mapping[str, Found],
        leaving: Mapping[str, str | None],
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that has the change sets. ``leaving``: files that are not in the table after them."""
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
        layout = self._writer.layout(snapshot.table_id)
        additions = [addition for change in landed for addition in change.index_parts]
        if additions:
            indexes = self._directories.added(layout, following.skip_indexes, additions)
            following = msgspec.structs.replace(following, indexes=indexes or msgspec.UNSET)
        if leaving and KIND not in snapshot.properties:  # the files of a source come and go as it says
            replaced = self._replacing.after(snapshot, leaving)
            following = msgspec.structs.replace(following, replaced_files=replaced or msgspec.UNSET)
        following = self._sketches.of_snapshot(
            layout,
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
