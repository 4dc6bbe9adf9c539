"""Change sets, and how several of them are applied to one base: conflicts per block, as pure logic.

The result is that of applying them one after another. An addition succeeds unless a block of its location exists. A
removal succeeds unless a block that it names was removed, or is not the one that was read. Deletions of rows in one
block are merged unless one of them also moved a row that the other deletes. A change that fails is left out as a whole,
with its own error, and does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from lamella.snapshot.counts import counted
from lamella.snapshot.errors import (
    CommitConflict,
    DuplicateBlock,
    LamellaError,
    NewMatches,
    SchemaConflict,
)
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, RowChange, SegmentRef, SnapshotPointer
from lamella.snapshot.wire.commit import BlockDeletes, NoNewMatches

#: Maximum number of blocks that an error names.
NAMED_BLOCKS = 100


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller wants to change; applied completely or not at all.

    ``added``: prepared segments. ``removed``: locations of blocks. ``read_at``: the snapshot that they were read in; a
    file that was replaced at the same location since then is another block, and removing it would lose rows that the
    caller never saw (None: the current block is meant). ``operation`` names the change in the history. ``properties``
    are merged into the table's, without ``removed_properties``. ``index_parts``: what skip indexes know of the added
    blocks; parts of indexes that the table no longer has are dropped. ``no_new_matches``: the change is valid only if
    no row added after ``read_at`` matches a filter. ``only_new``: no added file may have been in the table before, see
    :mod:`lamella.snapshot.manifest.replaced_files`.

    ``deletes``: blocks of ``read_at`` of which rows are deleted, with all deleted rows of each. ``row_change``: see
    :data:`RowChange`.
    """

    added: tuple[SegmentRef, ...] = ()
    removed: tuple[str, ...] = ()
    read_at: SnapshotPointer | None = None
    operation: str = "append"
    properties: dict[str, str] = {}
    removed_properties: frozenset[str] = frozenset()
    index_parts: tuple[Addition, ...] = ()
    no_new_matches: NoNewMatches | None = None
    only_new: bool = False
    deletes: tuple[BlockDeletes, ...] = ()
    row_change: RowChange = "overwrite"

    @property
    def changes_rows(self) -> bool:
        """Returns whether it adds, removes or changes blocks."""
        return bool(self.added or self.removed or self.deletes)


def row_change_of(*, removes: bool) -> RowChange:
    """Returns what a change does to rows if its writer does not say; ``removes``: it removes blocks or deletes rows."""
    return "overwrite" if removes else "append"


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A change set that was applied to the new snapshot: how many blocks it added and removed, and of how many others
    it deleted rows."""

    added: int
    removed: int
    changed: int = 0


#: Returns by location the blocks of a request with more deleted rows, None for one without any other row, as they
#: follow from the requests before it; or why that cannot be done. Called once, if the request has no other problem.
MergeDeletes = Callable[[], "Mapping[str, Block | None] | LamellaError"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A change set as :func:`apply_changes` needs it.

    ``added``: the segment id of each added block, by location. ``removed``: each location once. ``stale``: removed
    locations where the base has another block than the snapshot that they were read in (None: they were not read).
    ``replaced``: added files that left the table before the base and must not be added again; with ``only_new`` this
    also applies to files that an earlier request removed. ``is_serial``: it cannot follow a request that added blocks.
    ``refused``: the reason why it cannot be applied to the base, if already known.

    ``deletes``: locations of blocks of which rows are deleted, each once; ``merge``: how.
    """

    added: Sequence[tuple[str, str]]
    removed: Sequence[str]
    stale: frozenset[str] | None = None
    replaced: frozenset[str] = frozenset()
    only_new: bool = False
    schema_ids: frozenset[int] = frozenset()
    is_serial: bool = False
    refused: LamellaError | None = None
    deletes: Sequence[str] = ()
    merge: MergeDeletes | None = None


class AppliedChanges(msgspec.Struct, frozen=True):
    """The outcomes of the requests, in order; ``removals``: by segment id, of the base and of requests, the blocks that
    leave it; ``changes``: by segment id and location, the blocks that stay with more deleted rows."""

    outcomes: tuple[Applied | LamellaError, ...]
    removals: dict[str, set[str]]
    changes: dict[str, dict[str, Block]]


def apply_changes(
    segment_ids: Mapping[str, str], requests: Sequence[Request], *, known_schemas: Collection[int], snapshot_id: str
) -> AppliedChanges:
    """Applies several change sets one after another to a base.

    ``segment_ids``: for each block that a request adds or removes, the segment of the base that has it; a location that
    is missing here is not in the base. ``known_schemas`` and ``snapshot_id`` are those of the base: the schemas whose
    files its columns can read.

    Outcomes may be the errors DuplicateBlock, CommitConflict and NewMatches (``blocks`` names the blocks,
    ``snapshot_id`` is the base), SchemaConflict, ``refused``, and what ``merge`` returns.
    """
    state = _State(dict(segment_ids), set(), {}, {})
    outcomes: list[Applied | LamellaError] = []
    for request in requests:
        error = _refusal(state, request, known_schemas, snapshot_id)
        merged = error or (request.merge() if request.merge is not None else {})
        outcomes.append(merged if isinstance(merged, LamellaError) else state.apply(request, merged))
    changes = {segment_id: blocks for segment_id, blocks in state.changes.items() if blocks}
    return AppliedChanges(tuple(outcomes), state.removals, changes)


class _State(msgspec.Struct, eq=False):
    """The base after some requests. ``segment_ids``: of the blocks in it. ``fresh``: blocks that requests added.
    ``removals``, ``changes``: as in :class:`AppliedChanges`."""

    segment_ids: dict[str, str]
    fresh: set[str]
    removals: dict[str, set[str]]
    changes: dict[str, dict[str, Block]]

    def is_changed(self, location: str) -> bool:
        """Returns whether a request deleted rows of a block."""
        return location in self.changes.get(self.segment_ids.get(location, ""), {})

    def apply(self, request: Request, merged: Mapping[str, Block | None]) -> Applied:
        """Apply a request that can be applied; ``merged``: its blocks with more deleted rows."""
        empty = [location for location, block in merged.items() if block is None]
        for location in (*request.removed, *empty):
            segment_id = self.segment_ids.pop(location)
            self.removals.setdefault(segment_id, set()).add(location)
            self.changes.get(segment_id, {}).pop(location, None)
        for location, block in merged.items():
            if block is not None:
                self.changes.setdefault(self.segment_ids[location], {})[location] = block
        self.segment_ids.update(request.added)
        self.fresh.update(location for location, _ in request.added)
        return Applied(
            added=len(request.added), removed=len(request.removed) + len(empty), changed=len(merged) - len(empty)
        )


def _refusal(state: _State, request: Request, known_schemas: Collection[int], snapshot_id: str) -> LamellaError | None:
    strange = sorted(request.schema_ids.difference(known_schemas))
    if strange:
        text = (
            f"the rows were written for schema {strange[0]}, which the table does not have, or whose columns do not fit"
            " it any more; write the rows again"
        )
        return SchemaConflict(text, schema_id=strange[0], snapshot_id=snapshot_id)
    now, fresh, removals = state.segment_ids, state.fresh, state.removals
    gone = sorted(location for location in (*request.removed, *request.deletes) if location not in now)
    if gone:
        return conflict(gone, "not in the table", snapshot_id)
    # The caller cannot have read a block that an earlier request added, or its rows that one deleted.
    changed = {location for location in request.deletes if location in fresh}
    if request.stale is not None:
        changed.update(
            location
            for location in request.removed
            if location in request.stale or location in fresh or state.is_changed(location)
        )
    if changed:
        return conflict(sorted(changed), "not the blocks that were read", snapshot_id)
    if request.refused is not None:
        return request.refused
    if request.is_serial and fresh:
        return _was_added_before(sorted(fresh), snapshot_id)
    doubled = _doubled(location for location, _ in request.added)
    if doubled:
        return _duplicate(doubled, "twice in the request")
    removed = set(request.removed)
    present = sorted(location for location, _ in request.added if location in now and location not in removed)
    if present:
        return _duplicate(present, "already in the table")
    replaced = set(request.replaced)
    if request.only_new:
        removed_now = {location for locations in removals.values() for location in locations} - removed
        replaced.update(location for location, _ in request.added if location in removed_now)
    if replaced:
        return _duplicate(
            sorted(replaced), "files that were removed from the table earlier", "; to add them again, set take_replaced"
        )
    return None


def _doubled(locations: Iterable[str]) -> list[str]:
    return sorted(location for location, count in Counter(locations).items() if count > 1)


def conflict(blocks: Sequence[str], why: str, snapshot_id: str) -> CommitConflict:
    """Returns the error for blocks that cannot be removed or changed; ``snapshot_id`` is the base until the winning
    commit is known."""
    return CommitConflict(
        f"{counted(len(blocks), 'block to be changed is', 'blocks to be changed are')} {why}, first {blocks[0]!r}",
        blocks=list(blocks[:NAMED_BLOCKS]),
        snapshot_id=snapshot_id,
        snapshot_is="current",
    )


def _was_added_before(blocks: Sequence[str], snapshot_id: str) -> NewMatches:
    return NewMatches(
        f"{counted(len(blocks), 'block was', 'blocks were')} added meanwhile that may hold matching rows, "
        f"first {blocks[0]!r}",
        blocks=list(blocks[:NAMED_BLOCKS]),
        snapshot_id=snapshot_id,
        snapshot_is="current",
    )


def _duplicate(blocks: Sequence[str], where: str, advice: str = "") -> DuplicateBlock:
    text = f"{counted(len(blocks), 'block is', 'blocks are')} {where}, first {blocks[0]!r}{advice}"
    return DuplicateBlock(text, blocks=list(blocks[:NAMED_BLOCKS]))
