"""Change sets, and what becomes of several of them on one base: conflicts per block, as pure logic.

The rule is that of doing them one after another. An addition always goes through, unless a block of its location is
there. A removal goes through unless a block that it names is gone, or is not the one that was read. A change that
cannot go through is left out as a whole, with an error of its own, and the others are not touched by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from lamella.snapshot.errors import CommitConflict, DuplicateBlock, LamellaError, NewMatches, SchemaConflict
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.wire.commit import NoNewMatches

#: Blocks that an error names.
NAMED_BLOCKS = 100


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """What one caller wants changed, all of it or nothing.

    ``added``: segments that were prepared. ``removed``: locations of blocks; ``read_at`` is the snapshot that they
    were read in: a file that was replaced at the same location since then is another block, and removing it would
    lose rows that the caller never saw (None: whatever is there now). ``operation`` is a word for the history,
    ``properties`` are set beside the table's others. ``index_parts``: what skip indexes know of the added blocks; what
    the table has no index for by then is left out. ``no_new_matches``: it rests on no row that came after ``read_at``
    matching a filter. ``only_new``: no added file may have been in the table before, see
    :mod:`lamella.snapshot.manifest.replaced_files`.
    """

    added: tuple[SegmentRef, ...] = ()
    removed: tuple[str, ...] = ()
    read_at: SnapshotPointer | None = None
    operation: str = "append"
    properties: dict[str, str] = {}
    index_parts: tuple[Addition, ...] = ()
    no_new_matches: NoNewMatches | None = None
    only_new: bool = False


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """A change set that is part of the new snapshot: how many blocks it added and removed."""

    added: int
    removed: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A change set in the terms of :func:`fold`.

    ``added``: for each block its location and its segment's id. ``removed``: each location once. ``stale``: those of
    them where the base has another block than the snapshot that they were read in (None: they were not read).
    ``replaced``: added files that left the table before the base and must not come back; with ``only_new`` neither may
    those that an earlier request removed. ``is_serial``: it cannot be made behind one that added blocks. ``refused``:
    why it cannot be made on the base, if it is known already.
    """

    added: Sequence[tuple[str, str]]
    removed: Sequence[str]
    stale: frozenset[str] | None = None
    replaced: frozenset[str] = frozenset()
    only_new: bool = False
    schema_ids: frozenset[int] = frozenset()
    is_serial: bool = False
    refused: LamellaError | None = None


class Folded(msgspec.Struct, frozen=True):
    """One outcome a request, in order; ``removals``: by segment id, of the base and of requests, what leaves it."""

    outcomes: tuple[Landed | LamellaError, ...]
    removals: dict[str, set[str]]


def fold(
    held: Mapping[str, str], requests: Sequence[Request], *, known_schemas: Collection[int], snapshot_id: str
) -> Folded:
    """What becomes of several change sets that are made one after another on one base.

    ``held``: the segment that has it in the base, for each block that a request names, added or removed; a location
    that is not here is not in the base. ``known_schemas`` and ``snapshot_id`` are the base's: those whose
    files can be read by its columns.

    The errors among the outcomes: DuplicateBlock, CommitConflict and NewMatches (``blocks`` names them, ``snapshot_id``
    is the base), SchemaConflict, and ``refused``.
    """
    now = dict(held)
    fresh: set[str] = set()
    removals: dict[str, set[str]] = {}
    outcomes: list[Landed | LamellaError] = []
    for request in requests:
        error = _refusal(now, fresh, removals, request, known_schemas, snapshot_id)
        if error is not None:
            outcomes.append(error)
            continue
        for place in request.removed:
            removals.setdefault(now.pop(place), set()).add(place)
        now.update(request.added)
        fresh.update(place for place, _ in request.added)
        outcomes.append(Landed(added=len(request.added), removed=len(request.removed)))
    return Folded(tuple(outcomes), removals)


def _refusal(
    now: Mapping[str, str],
    fresh: Collection[str],
    removals: Mapping[str, Collection[str]],
    request: Request,
    known_schemas: Collection[int],
    snapshot_id: str,
) -> LamellaError | None:
    strange = sorted(request.schema_ids.difference(known_schemas))
    if strange:
        text = f"a segment was written under schema {strange[0]}, which is none that the table's columns can be read by"
        return SchemaConflict(text, schema_id=strange[0], snapshot_id=snapshot_id)
    gone = sorted(place for place in request.removed if place not in now)
    if gone:
        return conflict(gone, "not in the table", snapshot_id)
    if request.stale is not None:
        # A block that an earlier request added was not there to be read.
        changed = sorted(place for place in request.removed if place in request.stale or place in fresh)
        if changed:
            return conflict(changed, "not those that were read", snapshot_id)
    if request.refused is not None:
        return request.refused
    if request.is_serial and fresh:
        return _came_before(sorted(fresh), snapshot_id)
    doubled = _doubled(place for place, _ in request.added)
    if doubled:
        return _duplicate(doubled, "twice in the request")
    removed = set(request.removed)
    present = sorted(place for place, _ in request.added if place in now and place not in removed)
    if present:
        return _duplicate(present, "already in the table")
    replaced = set(request.replaced)
    if request.only_new:
        gone_now = {place for places in removals.values() for place in places} - removed
        replaced.update(place for place, _ in request.added if place in gone_now)
    if replaced:
        return _duplicate(
            sorted(replaced), "files that were in the table and left it", "; to add them again, set take_replaced"
        )
    return None


def _doubled(places: Iterable[str]) -> list[str]:
    return sorted(place for place, count in Counter(places).items() if count > 1)


def conflict(blocks: Sequence[str], why: str, snapshot_id: str) -> CommitConflict:
    """The error for blocks that cannot be removed; ``snapshot_id`` is the base until the winner is known."""
    return CommitConflict(
        f"{len(blocks)} blocks to be removed are {why}, first {blocks[0]!r}",
        blocks=list(blocks[:NAMED_BLOCKS]),
        snapshot_id=snapshot_id,
        snapshot_is="current",
    )


def _came_before(blocks: Sequence[str], snapshot_id: str) -> NewMatches:
    return NewMatches(
        f"{len(blocks)} blocks that may hold matching rows are added first, first {blocks[0]!r}",
        blocks=list(blocks[:NAMED_BLOCKS]),
        snapshot_id=snapshot_id,
        snapshot_is="current",
    )


def _duplicate(blocks: Sequence[str], where: str, advice: str = "") -> DuplicateBlock:
    text = f"{len(blocks)} blocks are {where}, first {blocks[0]!r}{advice}"
    return DuplicateBlock(text, blocks=list(blocks[:NAMED_BLOCKS]))
