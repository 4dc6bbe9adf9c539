"""What speaks against a change when it is made on a later snapshot than the one it was thought out on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from lamella.snapshot.commit import NAMED_BLOCKS, ChangeSet
from lamella.snapshot.errors import CommitConflict, LamellaError, NewMatches, ObjectNotFound, SchemaConflict
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.warehouse.lookup import Found, Lookup
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import DiffAnswer, DiffRequest, NoNewMatches

#: How many snapshots are looked through for the one that took a block away.
_WINNER_STEPS: Final = 16

#: The difference of two snapshots, the earlier one first.
Difference = Callable[[SnapshotPointer, SnapshotPointer, DiffRequest], DiffAnswer]


class Conflicts:
    """Compares snapshots; writes nothing."""

    def __init__(self, manifests: Manifests, lookup: Lookup, difference: Difference) -> None:
        self._manifests = manifests
        self._lookup = lookup
        self._difference = difference

    def new_matches(
        self, read_at: SnapshotPointer, base: SnapshotPointer, unwanted: NoNewMatches
    ) -> LamellaError | None:
        """Why a change that rests on no new row matching a filter cannot be made on ``base``; None: it can.

        It can when no block that ``base`` has and ``read_at`` had not may match: NewMatches names those that may.
        Blocks that only hold rows of earlier ones, as a compaction's, are new like any other. SchemaConflict: the
        filter's columns may be others by now.

        Raises:
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: the filter cannot be asked of the table.
        """
        request = DiffRequest(
            filter=unwanted.filter, time_zone=unwanted.time_zone, case_sensitive=unwanted.case_sensitive
        )
        if read_at.snapshot_id == base.snapshot_id:
            self._difference(base, base, request)  # for what it raises
            return None
        then, now = self._manifests.head(read_at), self._manifests.head(base)
        if then.schema.schema_id != now.schema.schema_id:
            return SchemaConflict(
                "the table's columns changed since the rows were read",
                schema_id=now.schema.schema_id,
                snapshot_id=base.snapshot_id,
            )
        added = self._difference(read_at, base, request).added
        if not added:
            return None
        return NewMatches(
            f"{len(added)} blocks that were added meanwhile may hold matching rows, first {added[0].location!r}",
            blocks=[block.location for block in added[:NAMED_BLOCKS]],
            snapshot_id=base.snapshot_id,
            snapshot_is="current",
        )

    def of(self, change: ChangeSet, base: SnapshotPointer) -> LamellaError | None:
        """What :meth:`new_matches` says of a change set."""
        if change.no_new_matches is None or change.read_at is None:
            return None
        return self.new_matches(change.read_at, base, change.no_new_matches)

    def stale(self, read_at: SnapshotPointer, removed: Sequence[str], found: Mapping[str, Found]) -> frozenset[str]:
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

    def name_winner(self, base: Snapshot, error: CommitConflict, stale: AbstractSet[str]) -> None:
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
