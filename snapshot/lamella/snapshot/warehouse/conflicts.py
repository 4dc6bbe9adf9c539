"""What others changed in a table since a writer read it, and whether the writer's change can still be made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
import numpy as np

from lamella.snapshot.commit import NAMED_BLOCKS, ChangeSet, conflict
from lamella.snapshot.counts import counted
from lamella.snapshot.deletes import Positions, RangeReader, VectorFile, Vectors, deleted_rows, union
from lamella.snapshot.errors import (
    CommitConflict,
    InvalidRequest,
    LamellaError,
    NewMatches,
    ObjectNotFound,
    ReadConflict,
    SchemaConflict,
)
from lamella.snapshot.manifest import FEATURES, Block, DeleteFile, RowChange, Snapshot, SnapshotPointer
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.objects import Lookup, SegmentPosition
from lamella.snapshot.wire import BlockDeletes, DiffAnswer, DiffRequest, NoNewMatches, PrunedBlock, TableRead

#: Maximum number of snapshots that are searched for the one that removed a block.
_WINNER_STEPS: Final = 16
#: Maximum number of snapshots since a writer's that are looked at one by one.
_STEPS: Final = 256
#: Maximum number of differences between two snapshots that are computed for one conflict check.
_DIFFERENCES: Final = 32

#: Returns the difference of two snapshots, the earlier one first.
Difference = Callable[[SnapshotPointer, SnapshotPointer, DiffRequest], DiffAnswer]


class BlockChanges(msgspec.Struct, frozen=True):
    """What was done to blocks between two snapshots: locations that were added and removed, and deleted rows."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    deletes: tuple[BlockDeletes, ...]


class Conflicts:
    """Conflict checks between snapshots; writes nothing."""

    def __init__(self, manifests: Manifests, lookup: Lookup, difference: Difference, store: RangeReader) -> None:
        self._manifests = manifests
        self._lookup = lookup
        self._difference = difference
        self._store = store

    def new_matches(
        self, read_at: SnapshotPointer, base: SnapshotPointer, unwanted: NoNewMatches
    ) -> LamellaError | None:
        """Checks a change that requires that no new row matches a filter. Returns the error if it cannot be made on
        ``base``, otherwise None.

        The change is valid if no block that was added between ``read_at`` and ``base`` may match. NewMatches names the
        blocks that may. Blocks of snapshots that only wrote the same rows anew do not count, nor do blocks of which
        rows were deleted. SchemaConflict: the filter's columns may have changed.

        Raises:
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: the filter does not apply to the table.
        """
        request = _request(unwanted)
        if read_at.snapshot_id == base.snapshot_id:
            self._difference(base, base, request)  # called for the errors that it raises
            return None
        if (changed := self._schema_conflict(read_at, base)) is not None:
            return changed
        added: Sequence[PrunedBlock] = self._new_rows(read_at, base, request)
        # What a compaction wrote has no new rows. That is known of single snapshots only.
        if not added or not (added := self._added_by_steps(read_at, base, request, added)):
            return None
        return NewMatches(
            f"{counted(len(added), 'block')} added meanwhile may hold matching rows, first {added[0].location!r}",
            blocks=[block.location for block in added[:NAMED_BLOCKS]],
            snapshot_id=base.snapshot_id,
            snapshot_is="current",
        )

    def changed_reads(self, read_at: SnapshotPointer, base: SnapshotPointer, read: TableRead) -> LamellaError | None:
        """Checks a change that depends on rows of ``read_at``. Returns the error if others may have added, changed or
        removed such rows until ``base``, otherwise None; raises as :meth:`new_matches`."""
        request = _request(read)
        if read_at.snapshot_id == base.snapshot_id:
            self._difference(base, base, request)
            return None
        if (changed := self._schema_conflict(read_at, base)) is not None:
            return changed
        between = self._between(read_at, base)
        if between is not None and all(_is_silent(snapshot) for snapshot, _ in between):
            return None
        found = self._difference(read_at, base, request)
        blocks = [*found.added, *found.removed]
        if not blocks:
            return None
        return ReadConflict(
            f"rows of {read.table} that the commit depends on may have changed, first those of {blocks[0].location!r}",
            table=read.table,
            blocks=list(dict.fromkeys(block.location for block in blocks))[:NAMED_BLOCKS],
            snapshot_id=base.snapshot_id,
            snapshot_is="current",
        )

    def of(self, change: ChangeSet, base: SnapshotPointer) -> LamellaError | None:
        """Returns the result of :meth:`new_matches` for a change set."""
        if change.no_new_matches is None or change.read_at is None:
            return None
        return self.new_matches(change.read_at, base, change.no_new_matches)

    def only_deletes(self, read_at: SnapshotPointer, base: SnapshotPointer) -> bool:
        """Returns whether all rows that left the table since ``read_at`` were deleted because of a condition on the
        row alone, so that no other row took their place. False: not proven."""
        between = self._between(read_at, base)
        return between is not None and all(
            snapshot.row_changes is not msgspec.UNSET and "overwrite" not in snapshot.row_changes
            for snapshot, _ in between
        )

    def _schema_conflict(self, read_at: SnapshotPointer, base: SnapshotPointer) -> LamellaError | None:
        then, now = self._manifests.head(read_at), self._manifests.head(base)
        if then.schema.schema_id == now.schema.schema_id:
            return None
        return SchemaConflict(
            "the table's columns changed since the rows were read",
            schema_id=now.schema.schema_id,
            snapshot_id=base.snapshot_id,
        )

    def _between(
        self, read_at: SnapshotPointer, base: SnapshotPointer
    ) -> list[tuple[Snapshot, SnapshotPointer]] | None:
        """Returns the snapshots after ``read_at`` up to ``base``, newest first, with their pointers; None: they are too
        many, or one is gone."""
        found: list[tuple[Snapshot, SnapshotPointer]] = []
        pointer, snapshot = base, self._manifests.snapshot(base)
        while snapshot.snapshot_id != read_at.snapshot_id:
            found.append((snapshot, pointer))
            manifest = snapshot.prev_manifest
            if len(found) > _STEPS or manifest is None or snapshot.prev_snapshot_id is None:
                return None
            try:
                snapshot = self._manifests.snapshot_at(snapshot.prev_snapshot_id, manifest)
            except ObjectNotFound:
                return None
            if snapshot.sidecar is None:
                return None
            pointer = SnapshotPointer(
                snapshot_id=snapshot.snapshot_id,
                timestamp_ms=snapshot.timestamp_ms,
                manifest=manifest,
                sidecar=snapshot.sidecar,
            )
        return found

    def _added_by_steps(
        self,
        read_at: SnapshotPointer,
        base: SnapshotPointer,
        request: DiffRequest,
        otherwise: Sequence[PrunedBlock],
    ) -> Sequence[PrunedBlock]:
        """Returns the blocks with new rows of the snapshots since ``read_at``, one by one; ``otherwise``, if these are
        not known."""
        between = self._between(read_at, base)
        if between is None or not any(_is_silent(snapshot) for snapshot, _ in between):
            return otherwise
        if sum(not _is_silent(snapshot) for snapshot, _ in between) > _DIFFERENCES:
            return otherwise
        before = [*(pointer for _, pointer in between[1:]), read_at]
        return [
            block
            for (snapshot, pointer), previous in zip(between, before, strict=True)
            if not _is_silent(snapshot)
            for block in self._new_rows(previous, pointer, request)
        ]

    def _new_rows(self, then: SnapshotPointer, now: SnapshotPointer, request: DiffRequest) -> list[PrunedBlock]:
        """Returns the blocks that may match and came between two snapshots, but those that were there with fewer
        deleted rows."""
        found = self._difference(then, now, request)
        removed = {block.location for block in found.removed}
        on_both = [block.location for block in found.added if block.location in removed]
        if not on_both:
            return list(found.added)
        old, new = (self.blocks_at(pointer, on_both) for pointer in (then, now))
        store = Vectors(self._store, [entry for blocks in (old, new) for b in blocks.values() for entry in b.deletes])
        less = {location for location in on_both if _only_lost_rows(store, old[location], new[location])}
        return [block for block in found.added if block.location not in less]

    def changes_of(self, before: SnapshotPointer, after: SnapshotPointer) -> BlockChanges:
        """Returns what was done to blocks between two snapshots. A file whose statistics alone differ has not changed.

        Raises:
            InvalidRequest: deleted rows came back, or are not in one deletion vector.
        """
        found = self._difference(before, after, DiffRequest(reader_features=FEATURES))
        added = {block.location for block in found.added}
        removed = {block.location for block in found.removed}
        on_both = sorted(added & removed)
        old, new = (self.blocks_at(pointer, on_both) for pointer in (before, after))
        store = Vectors(self._store, [entry for blocks in (old, new) for b in blocks.values() for entry in b.deletes])
        deletes: list[BlockDeletes] = []
        for location in on_both:
            then, now = old[location], new[location]
            if not _is_same_file(then, now):
                continue
            added.discard(location)
            removed.discard(location)
            if then.deletes == now.deletes:
                continue
            if len(now.deletes) != 1 or not _only_lost_rows(store, then, now):
                raise InvalidRequest(
                    f"rows of {location!r} came back, or are deleted by several files, so the change cannot be made"
                    " again",
                    location=location,
                )
            deletes.append(BlockDeletes(location=location, deletes=now.deletes[0]))
        return BlockChanges(tuple(sorted(added)), tuple(sorted(removed)), tuple(deletes))

    def blocks_at(self, pointer: SnapshotPointer, locations: Sequence[str]) -> dict[str, Block]:
        """Returns the blocks of a snapshot at these locations; locations without a block are left out."""
        return self._lookup.blocks(self._lookup.find(self._manifests.snapshot(pointer), locations))

    def stale(
        self, read_at: SnapshotPointer, removed: Sequence[str], found: Mapping[str, SegmentPosition]
    ) -> frozenset[str]:
        """Returns those of the blocks that differ in the base (``found``) from what was read.

        Blocks in the same segment are unchanged, so segments are opened only if their ids differ.
        """
        then = self._lookup.find(self._manifests.snapshot(read_at), removed)
        both = [location for location in removed if location in then and location in found]
        moved = [location for location in both if then[location].ref.segment_id != found[location].ref.segment_id]
        before = self._lookup.contents({location: then[location] for location in moved})
        after = self._lookup.contents({location: found[location] for location in moved})
        changed = {location for location in moved if before.get(location) != after.get(location)}
        return frozenset(changed.union(removed).difference(set(both) - changed))

    def name_winner(self, base: Snapshot, error: CommitConflict, stale: AbstractSet[str]) -> None:
        """Add to the error the snapshot that removed the blocks, if it is one of the last few."""
        blocks: list[str] = error.details["blocks"]
        now = self._lookup.find(base, blocks)
        gone = [location for location in blocks if location not in now]
        replaced = [] if gone else [location for location in blocks if location in stale]
        contents = self._lookup.contents({location: now[location] for location in replaced})
        snapshot = base
        for _ in range(_WINNER_STEPS if gone or replaced else 0):
            if snapshot.prev_manifest is None or snapshot.prev_snapshot_id is None:
                return
            try:
                before = self._manifests.snapshot_at(snapshot.prev_snapshot_id, snapshot.prev_manifest)
                then = self._lookup.find(before, gone or replaced)
                differs = bool(then) if gone else self._lookup.contents(then) != contents
            except ObjectNotFound:  # deleted since
                return
            if differs:
                error.details.update(snapshot_id=snapshot.snapshot_id, snapshot_is="winner")
                return
            snapshot = before


def _request(condition: NoNewMatches | TableRead) -> DiffRequest:
    return DiffRequest(
        filter=condition.filter,
        time_zone=condition.time_zone,
        case_sensitive=condition.case_sensitive,
        reader_features=FEATURES,
    )


def _is_silent(snapshot: Snapshot) -> bool:
    """Returns whether a snapshot has the rows of the previous one. False: not proven."""
    return snapshot.row_changes is not msgspec.UNSET and set(snapshot.row_changes) <= {"replace"}


def _is_same_file(one: Block, other: Block) -> bool:
    """Returns whether two entries have the same rows, but for deleted ones.

    An analysis changes the statistics of a file that is the same; without the hash of its footer nothing else tells.
    """
    members: dict[str, Any] = {"deletes": ()} if one.footer_sha256 is None else {"deletes": (), "col_stats": {}}
    return msgspec.structs.replace(one, **members) == msgspec.structs.replace(other, **members)


def _only_lost_rows(store: RangeReader, then: Block, now: Block) -> bool:
    """Returns whether two entries are of one file, and the later one has no row that the earlier one lacks."""
    if not _is_same_file(then, now):
        return False
    before = deleted_rows(store, then.deletes, then.row_count)
    return bool(np.isin(before, deleted_rows(store, now.deletes, now.row_count)).all())


class DeletesMerge:
    """Merges the deleted rows of several change sets of one commit, in their order.

    ``found``: where the base has the blocks. ``new_location``: returns the location of a new file of vectors.
    """

    def __init__(
        self,
        conflicts: Conflicts,
        lookup: Lookup,
        store: Store,
        base: SnapshotPointer,
        found: Mapping[str, SegmentPosition],
        new_location: Callable[[], str],
    ) -> None:
        self._conflicts = conflicts
        self._lookup = lookup
        self._store = store
        self._base = base
        self._found = found
        self._new_location = new_location
        self._now: dict[str, Block] = {}
        #: Blocks of which an earlier change set removed rows other than by conditions on them.
        self._moved: set[str] = set()

    def __call__(self, read_at: SnapshotPointer, change: ChangeSet) -> Mapping[str, Block | None] | LamellaError:
        """Returns the blocks with the deleted rows of a change set too, None for a block whose last rows they are.

        The change set has all deleted rows of ``read_at`` and its own. Rows that are deleted by now and were not there
        are those of others. CommitConflict, as a result: a block is not the one that was read; another change moved a
        row that this one deletes, or the other way round; or rows came back that the change did not see.
        """
        wanted = {each.location: each.deletes for each in change.deletes}
        then = self._conflicts.blocks_at(read_at, list(wanted))
        missing = [location for location in wanted if location not in self._now]
        now = self._now | self._lookup.blocks({location: self._found[location] for location in missing})
        strange = [p for p in wanted if p not in then or not _is_same_file(then[p], now[p])]
        if strange:
            return conflict(sorted(strange), "not the blocks that were read", self._base.snapshot_id)
        entries = [
            entry
            for location, own in wanted.items()
            if now[location].deletes != then[location].deletes
            for entry in (own, *then[location].deletes, *now[location].deletes)
        ]
        store = Vectors(self._store, entries)
        merged: dict[str, tuple[DeleteFile, ...] | Positions | None] = {}
        for location, own in wanted.items():
            if now[location].deletes == then[location].deletes:
                merged[location] = None if own.cardinality == now[location].row_count else (own,)
                continue
            positions = self._positions(store, then[location], now[location], own, change.row_change)
            if positions is None or (positions.overlap and not self._may_overlap(read_at, location, change.row_change)):
                return conflict([location], "of which others changed the same rows", self._base.snapshot_id)
            merged[location] = None if len(positions.all) == now[location].row_count else positions.all
        return self._written(change.row_change, now, merged)

    def _positions(
        self, store: RangeReader, then: Block, now: Block, own: DeleteFile, row_change: RowChange
    ) -> _Merged | None:
        """Returns the deleted rows of both; None: rows came back, and the change did not see them."""
        before = deleted_rows(store, then.deletes, then.row_count)
        added = np.setdiff1d(deleted_rows(store, (own,), now.row_count), before, assume_unique=True)
        current = deleted_rows(store, now.deletes, now.row_count)
        if row_change != "delete" and not np.isin(before, current, assume_unique=True).all():
            return None
        overlap = bool(np.isin(added, current, assume_unique=True).any())
        return _Merged(union([current, added]), overlap)

    def _may_overlap(self, read_at: SnapshotPointer, location: str, row_change: RowChange) -> bool:
        """Returns whether it is certain that a row which two changes delete was moved by neither."""
        if row_change != "delete" or location in self._moved:
            return False
        return self._conflicts.only_deletes(read_at, self._base)

    def _written(
        self,
        row_change: RowChange,
        now: Mapping[str, Block],
        merged: Mapping[str, tuple[DeleteFile, ...] | Positions | None],
    ) -> dict[str, Block | None]:
        """Write the vectors that are not in a file, into one; returns the blocks."""
        file = VectorFile(self._new_location())
        found: dict[str, Block | None] = {}
        for location, deletes in merged.items():
            if deletes is None:
                found[location] = None
                continue
            entries = deletes if isinstance(deletes, tuple) else (file.add(location, deletes),)
            found[location] = self._now[location] = msgspec.structs.replace(now[location], deletes=entries)
        if len(file):
            self._store.put(file.location, file.finished())
        if row_change != "delete":
            self._moved.update(merged)
        return found


class _Merged(msgspec.Struct, frozen=True):
    """All deleted rows of a block; ``overlap``: whether two changes delete the same row."""

    all: Positions
    overlap: bool
