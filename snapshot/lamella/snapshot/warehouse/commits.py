"""Commits: conflict checks, segments of new blocks, merged segments, and the next snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot import commit as commits
from lamella.snapshot.commit import Applied, ChangeSet, row_change_of
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import CommitConflict, InvalidRequest, LamellaError, NewMatches, SchemaConflict
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.directory import Addition
from lamella.snapshot.manifest import Block, GroupRef, RowChange, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.manifest.block_arrays import BlockSequence, footer_hashes_of
from lamella.snapshot.manifest.block_key import Identity
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.evolution import (
    AllowExtraColumns,
    SchemaChange,
    Versioned,
    can_read_as,
    meets,
)
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.source import KIND
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.warehouse.conflicts import Conflicts, DeletesMerge, Difference
from lamella.snapshot.warehouse.manifest_writer import Directories, IndexPart, ManifestWriter, Replacing
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.objects import Lookup, SegmentPosition
from lamella.snapshot.wire import BlockDeletes, NoNewMatches, SchemaUpdate

#: A group that lost more than one in this many segments is rewritten without them.
_DROPPED_PART = 8

#: The segment that a block was in, and its number there.
Origin = tuple[SegmentRef, int]
#: Called with new segments and where their blocks were, one after another.
OnMove = Callable[[Sequence[tuple[SegmentRef, Sequence[Origin]]]], object]


class SegmentEdit(msgspec.Struct, frozen=True):
    """What changes in a segment: locations that are removed, and blocks, by location, that are replaced."""

    removed: AbstractSet[str] = frozenset()
    changed: Mapping[str, Block] = {}


_UNCHANGED: Final = SegmentEdit()


class Shaped(msgspec.Struct, frozen=True):
    """The segments and groups of the next snapshot."""

    groups: tuple[GroupRef, ...]
    segments: tuple[SegmentRef, ...]


class Reshaper:
    """Writes the segments and groups that a commit creates. ``on_move``: see :data:`OnMove`."""

    def __init__(
        self,
        manifests: Manifests,
        writer: ManifestWriter,
        sketches: SketchLayers,
        shape: commits.Shape,
        on_move: OnMove,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._sketches = sketches
        self._shape = shape
        self._on_move = on_move

    def after(
        self,
        base: Snapshot,
        added: Sequence[SegmentRef],
        edits: Mapping[str, SegmentEdit],
        found: Mapping[str, SegmentPosition],
    ) -> Shaped:
        """Returns ``base`` with segments appended, and blocks removed or replaced.

        ``edits``: by segment id, of the base's segments and the added ones. ``found``: where the base has the blocks.
        """
        layout = self._writer.layout(base.table_id)
        hit = {position.ref.segment_id: position for position in found.values() if position.ref.segment_id in edits}
        groups, pieces = self._edited_groups(layout, base, hit, edits)
        for ref in (*base.segments, *added):
            pieces += self._edited(layout, base, ref, edits.get(ref.segment_id, _UNCHANGED))
        segments = self._merged_pieces(layout, base, pieces)
        return self._grouped(layout, base, groups, segments)

    def _edited_groups(
        self,
        layout: TableLayout,
        base: Snapshot,
        hit: Mapping[str, SegmentPosition],
        edits: Mapping[str, SegmentEdit],
    ) -> tuple[list[GroupRef], list[_Piece]]:
        """Returns the base's groups without the segments that change, and what these become."""
        groups: list[GroupRef] = []
        pieces: list[_Piece] = []
        for number, group in enumerate(base.groups):
            leaving = sorted(
                (position for position in hit.values() if position.group == number), key=lambda position: position.row
            )
            if not leaving:
                groups.append(group)
                continue
            for position in leaving:
                pieces += self._edited(layout, base, position.ref, edits[position.ref.segment_id])
            dropped = tuple(sorted({*group.dropped, *(position.row for position in leaving)}))
            groups += self._group_without(layout, base, group, dropped)
        return groups, pieces

    def _group_without(
        self, layout: TableLayout, base: Snapshot, group: GroupRef, dropped: tuple[int, ...]
    ) -> list[GroupRef]:
        everything = self._manifests.group(group).segments
        if len(dropped) == len(everything):
            return []
        smaller = msgspec.structs.replace(group, dropped=dropped, segment_count=len(everything) - len(dropped))
        if _DROPPED_PART * len(dropped) > len(everything):
            return [self._merged(layout, base, [smaller])]
        left = self._manifests.group_segments(smaller)
        summary = commits.summarize(base.schema, [ref.summary for ref in commits.seen_refs(base, left)])
        smaller = msgspec.structs.replace(
            smaller,
            summary=summary,
            schema_id=base.schema.schema_id,
            block_schema_ids=commits.schema_ids((), left),
        )
        return [self._sketches.of_rest(layout, smaller, left)]

    def _edited(self, layout: TableLayout, base: Snapshot, ref: SegmentRef, edit: SegmentEdit) -> list[_Piece]:
        """Returns a segment with an edit; a small one is not written yet, since it may be merged."""
        if not (edit.removed or edit.changed):
            return [_Piece(ref.summary.block_count, (ref,))]
        if len(edit.removed) == ref.summary.block_count:
            return []
        blocks = self._manifests.segment(ref).blocks
        numbers = [number for number, block in enumerate(blocks) if block.location not in edit.removed]
        if not numbers:
            return []
        left = [edit.changed.get(blocks[number].location, blocks[number]) for number in numbers]
        left = self._sketches.restored(layout, ref, left)
        origins = [(ref, number) for number in numbers]
        if self._shape.is_small(len(left)):
            return [_Piece(len(left), (), left, origins)]
        return [_Piece(len(left), (self._segment(layout, base, left, origins),))]

    def _segment(
        self, layout: TableLayout, base: Snapshot, blocks: Sequence[Block], origins: Sequence[Origin]
    ) -> SegmentRef:
        made = self._writer.segment(layout, base, blocks)
        self._on_move([(made, origins)])
        return made

    def _merged_pieces(self, layout: TableLayout, base: Snapshot, pieces: Sequence[_Piece]) -> list[SegmentRef]:
        """Returns the pieces as segments, with small ones merged; a merged segment takes the position of its last
        member."""
        chosen = commits.segments_to_merge([piece.block_count for piece in pieces], self._shape)
        segments: list[SegmentRef] = []
        members = set(chosen)
        for number, piece in enumerate(pieces):
            if number not in members:
                segments += piece.refs or (self._segment(layout, base, piece.loose, piece.origins),)
            elif number == chosen[-1]:
                segments += self._fold(layout, base, [pieces[index] for index in chosen])
        return segments

    def _fold(self, layout: TableLayout, base: Snapshot, members: Sequence[_Piece]) -> list[SegmentRef]:
        blocks: list[Block] = []
        origins: list[Origin] = []
        for piece in members:
            blocks += piece.loose
            origins += piece.origins
            for ref in piece.refs:
                blocks += self._sketches.restored(layout, ref, self._manifests.segment(ref).blocks)
                origins += ((ref, number) for number in range(ref.summary.block_count))
        size = self._shape.segment_blocks
        return [
            self._segment(layout, base, blocks[at : at + size], origins[at : at + size])
            for at in range(0, len(blocks), size)
        ]

    def _grouped(
        self, layout: TableLayout, base: Snapshot, groups: list[GroupRef], segments: list[SegmentRef]
    ) -> Shaped:
        moved = commits.to_move([ref.summary.block_count for ref in segments], self._shape)
        for chosen in moved:
            members = [segments[index] for index in chosen]
            groups.append(self._writer.group(layout, base, members, [self._index(n, m) for n, m in enumerate(members)]))
        while chosen := commits.to_merge([group.segment_count for group in groups], self._shape):
            merged = self._merged(layout, base, [groups[index] for index in chosen])
            groups[chosen[-1]] = merged
            groups = [group for index, group in enumerate(groups) if index not in chosen[:-1]]
        gone = {index for chosen in moved for index in chosen}
        return Shaped(tuple(groups), tuple(ref for index, ref in enumerate(segments) if index not in gone))

    def _merged(self, layout: TableLayout, base: Snapshot, groups: Sequence[GroupRef]) -> GroupRef:
        """Returns one group of those segments of several groups that are still in the table."""
        segments: list[SegmentRef] = []
        index: list[IndexPart] = []
        for group in groups:
            everything = self._manifests.group(group).segments
            numbers = np.full(len(everything), -1, dtype=np.int64)
            remaining = np.delete(np.arange(len(everything)), group.dropped)
            numbers[remaining] = np.arange(len(segments), len(segments) + len(remaining))
            index.append(self._manifests.group_locations(group).renumbered(numbers))
            segments += self._manifests.group_segments(group)
        return self._writer.group(layout, base, segments, index)

    def _index(self, number: int, ref: SegmentRef) -> IndexPart:
        hashes = self._manifests.location_hashes(ref.sidecar)
        return hashes, np.full(len(hashes), number, dtype=np.uint32)


class _Piece(msgspec.Struct, frozen=True):
    """Blocks of one segment: either the segment is written (``refs`` has it), or they are ``loose``, with their
    sketches, and where they were."""

    block_count: int
    refs: tuple[SegmentRef, ...]
    loose: Sequence[Block] = ()
    origins: Sequence[Origin] = ()


#: The operation of a snapshot whose change sets have different ones.
SEVERAL = "several"
#: The operation of a snapshot that repeats the changes of another one, whose id follows.
CHERRY_PICK: Final = "cherry_pick "


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """A written snapshot that the catalog does not point to yet; ``changed``: blocks of which rows were deleted."""

    pointer: SnapshotPointer
    snapshot: Snapshot
    added: int
    removed: int
    changed: int = 0


class ManyCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of several change sets, in order, and the snapshot with those that were applied.

    ``result`` is None if none of them was applied; then nothing was written.
    """

    result: CommitResult | None
    outcomes: tuple[Applied | LamellaError, ...]

    @property
    def applied(self) -> CommitResult:
        """Returns the snapshot; if there is none, raises the first outcome that is an error."""
        if self.result is not None:
            return self.result
        raise next(outcome for outcome in self.outcomes if isinstance(outcome, LamellaError))


class _OneSchema(msgspec.Struct, frozen=True):
    """A table with one known schema."""

    history: tuple[Schema, ...]


class Changes:
    """Writes changes; a catalog decides afterwards whether they take effect.

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
        store: Store,
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
        self._conflicts = Conflicts(manifests, self._lookup, difference, store)
        self.new_matches = self._conflicts.new_matches
        self.changed_reads = self._conflicts.changed_reads
        self.blocks_at = self._conflicts.blocks_at
        self._store = store
        self._ids = ids
        self._segment_blocks = segment_blocks
        self._with_pages = with_pages

    def prepare(self, table_id: str, table: Schema | Versioned, blocks: Sequence[Block]) -> tuple[SegmentRef, ...]:
        """Write the segments of new blocks, at most ``segment_blocks`` each; they do not belong to a snapshot yet.

        ``table``: a snapshot of the table, or its schema if no block was written with an older one. A block without a
        schema id was written with the current schema.

        Raises:
            InvalidSchema: a block was written with an unknown schema.
            LimitExceeded: they have more rows or bytes than 64 bits count.
        """
        layout = self._writer.layout(table_id)
        versions = _OneSchema(history=(table,)) if isinstance(table, Schema) else table
        current = versions.history[-1].schema_id
        dated = blocks
        if current and not (isinstance(blocks, BlockSequence) and blocks.have_schemas):
            dated = [
                msgspec.structs.replace(block, schema_id=current) if block.schema_id is None else block
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
        deletes: Sequence[BlockDeletes] = (),
        row_change: RowChange | None = None,
        schemas: Sequence[Sequence[SchemaChange | AllowExtraColumns]] = (),
        columns_of: Snapshot | None = None,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base``; call again with a newer base if the pointer swap fails.

        ``read_at`` is the snapshot in which the writer read the removed blocks: a file that was replaced at the same
        location since then is another block, and removing it would lose rows that the writer never saw.
        ``index_parts``: index parts of the added blocks; parts of indexes that the table lacks are ignored.
        ``no_new_matches``: see :meth:`~lamella.snapshot.warehouse.conflicts.Conflicts.new_matches`; requires
        ``read_at``. ``deletes``, ``row_change``: see :class:`~lamella.snapshot.commit.ChangeSet`; None:
        "append" if blocks are only added, otherwise "overwrite".
        ``schemas``, ``columns_of``: schema changes of the same snapshot, as for :meth:`seen_after`.

        Raises:
            DuplicateBlock: an added block is in the table already, or twice in ``added``.
            CommitConflict: a removed block is not in ``base``, or not the one of ``read_at``. ``blocks`` names them;
                ``snapshot_id`` is the snapshot that took the newest of them away where ``snapshot_is`` is "winner", and
                ``base`` where it is "current", because none of the few before that was looked at has them.
            SchemaConflict: an added segment was prepared under a schema that ``base`` does not know, or whose files
                cannot be read by its columns (after a rollback); or there is ``no_new_matches`` and other columns.
            NewMatches: ``base`` has blocks that ``read_at`` had not and that may match ``no_new_matches``.
            LimitExceeded: the table would have more rows or bytes than 64 bits count.
        """
        change = ChangeSet(
            added=tuple(added),
            removed=tuple(removed),
            read_at=read_at,
            operation=operation,
            properties=dict(properties or {}),
            index_parts=tuple(index_parts),
            no_new_matches=no_new_matches,
            deletes=tuple(deletes),
            row_change=row_change or row_change_of(removes=bool(removed or deletes)),
        )
        done = self.commit_many(base, [change], schemas=schemas, columns_of=columns_of, now_ms=now_ms)
        for outcome in done.outcomes:
            if isinstance(outcome, LamellaError):
                raise outcome
        return done.applied

    def commit_many(
        self,
        base: SnapshotPointer,
        changes: Sequence[ChangeSet],
        *,
        schemas: Sequence[Sequence[SchemaChange | AllowExtraColumns]] = (),
        columns_of: Snapshot | None = None,
        update: SchemaUpdate | None = None,
        now_ms: int,
    ) -> ManyCommitted:
        """Write one snapshot after ``base`` with several callers' change sets, as if committed one after another.

        A change set that fails is left out as a whole; its outcome is the error that :meth:`commit` raises for it
        (DuplicateBlock, CommitConflict, NewMatches, SchemaConflict), and the others are still applied. The snapshot's
        operation is that of the applied change sets, or "several" if they differ; later properties win. There are two
        differences to a chain of commits: a removal with ``read_at`` never removes a block that an earlier change set
        of the same call added, and a change set with ``no_new_matches`` is not applied after one that added blocks.

        ``schemas``, ``columns_of``: as for :meth:`commit`; or ``update``: changes of the columns and the cluster key.

        Raises:
            SchemaConflict, InvalidSchema, UnknownColumn, InvalidRequest: of the whole call, for ``update``.
            InvalidFilter, UnknownColumn, FilterTypeMismatch, LimitExceeded: of the whole call, for ``no_new_matches``.
            StoreError, ManifestError, ObjectNotFound: of the whole call; nothing was applied.
            LimitExceeded: of the whole call: with all change sets, the table has more rows or bytes than 64 bits count.
        """
        snapshot = self.seen_after(base, schemas, columns_of) if update is None else self.seen_with(base, update)
        requests = [self._request(change) for change in changes]
        named = {
            location
            for request in requests
            for location in (*request.removed, *request.deletes, *(path for path, _ in request.added))
        }
        found = self._lookup.find(snapshot, named)
        segment_ids = {location: each.ref.segment_id for location, each in found.items()}
        layout = self._writer.layout(snapshot.table_id)
        merge = DeletesMerge(
            self._conflicts, self._lookup, self._store, base, found, lambda: layout.deletes(self._ids.new())
        )
        for number, change in enumerate(changes):
            if change.only_new:
                replaced = self._returned(snapshot, change, requests[number])
                requests[number] = msgspec.structs.replace(requests[number], replaced=replaced, only_new=True)
            if change.read_at is not None and change.removed:
                is_base = change.read_at.snapshot_id == base.snapshot_id
                removed = requests[number].removed
                stale = frozenset() if is_base else self._conflicts.stale(change.read_at, removed, found)
                requests[number] = msgspec.structs.replace(requests[number], stale=stale)
            if update is not None and update.replaces_columns and (left := _left(snapshot, change)):
                text = f"the commit replaces the columns, and leaves {counted(left, 'block')} with none of the new ones"
                stays = CommitConflict(text, blocks=[], snapshot_id=base.snapshot_id, snapshot_is="current")
                requests[number] = msgspec.structs.replace(requests[number], refused=stays)
            elif change.row_change == "replace" and (uneven := self._uneven(change, found)) is not None:
                requests[number] = msgspec.structs.replace(requests[number], refused=uneven)
            elif change.no_new_matches is not None:
                refused = self._conflicts.of(change, base)
                requests[number] = msgspec.structs.replace(requests[number], refused=refused, is_serial=True)
            if change.deletes and change.read_at is not None:
                requests[number] = msgspec.structs.replace(
                    requests[number], merge=partial(merge, change.read_at, change)
                )
        readable = [schema for schema in snapshot.history if can_read_as(schema, snapshot.schema)]
        known = [schema.schema_id for schema in readable]
        checked = {schema.schema_id for schema in readable if meets(schema, snapshot.schema)}
        for number, change in enumerate(changes):
            # Rows that are written anew satisfy what was proven of them.
            if change.row_change != "replace" and not requests[number].schema_ids <= checked:
                refused = _unchecked(requests[number].schema_ids - checked, base)
                requests[number] = msgspec.structs.replace(requests[number], refused=refused)
        applied_changes = commits.apply_changes(
            segment_ids, requests, known_schemas=known, snapshot_id=base.snapshot_id
        )
        for request, outcome in zip(requests, applied_changes.outcomes, strict=True):
            if isinstance(outcome, CommitConflict) and not isinstance(outcome, NewMatches):
                self._conflicts.name_winner(snapshot, outcome, request.stale or frozenset())
        applied = [
            change
            for change, outcome in zip(changes, applied_changes.outcomes, strict=True)
            if isinstance(outcome, Applied)
        ]
        leaving = self._leaving(requests, applied_changes, found)
        result = self._follow(base, snapshot, applied, applied_changes, found, leaving, now_ms) if applied else None
        return ManyCommitted(result=result, outcomes=applied_changes.outcomes)

    def cherry_pick(
        self,
        base: SnapshotPointer,
        before: SnapshotPointer,
        picked: SnapshotPointer,
        *,
        operation: str,
        strict: bool = False,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot that follows ``base`` with the changes that ``picked`` made to ``before``, another
        snapshot of the table.

        Blocks that it removed, or of which it deleted rows, must be in ``base`` as they were. With ``strict``, a change
        that may have depended on other rows (``overwrite``) must have seen all blocks of ``base``.

        Raises:
            InvalidRequest: nothing to do, or a change that cannot be made again.
            DuplicateBlock, CommitConflict, NewMatches, SchemaConflict: as for :meth:`commit`.
        """
        snapshot = self._manifests.snapshot(picked)
        changes = self._conflicts.changes_of(before, picked)
        if not (changes.added or changes.removed or changes.deletes):
            raise InvalidRequest(
                f"the snapshot ({snapshot.operation}) added, removed and changed no block, so there is nothing to pick",
                snapshot_id=picked.snapshot_id,
            )
        kinds = () if snapshot.row_changes is msgspec.UNSET else tuple(dict.fromkeys(snapshot.row_changes))
        row_change: RowChange = kinds[0] if len(kinds) == 1 else "overwrite"
        return self.commit(
            base,
            added=self._segments_of(snapshot, changes.added),
            removed=changes.removed,
            read_at=before,
            operation=operation,
            no_new_matches=NoNewMatches() if strict and row_change == "overwrite" else None,
            deletes=changes.deletes,
            row_change=row_change,
            now_ms=now_ms,
        )

    def _segments_of(self, snapshot: Snapshot, locations: Sequence[str]) -> list[SegmentRef]:
        """Returns segments with these blocks of a snapshot, its own where they have no other block."""
        found = self._lookup.find(snapshot, locations)
        wanted: dict[str, set[str]] = {}
        for location, position in found.items():
            wanted.setdefault(position.ref.segment_id, set()).add(location)
        refs = {position.ref.segment_id: position.ref for position in found.values()}
        layout = self._writer.layout(snapshot.table_id)
        whole: list[SegmentRef] = []
        others: list[Block] = []
        for segment_id, ref in refs.items():
            if len(wanted[segment_id]) == ref.summary.block_count:
                whole.append(ref)
                continue
            chosen = [block for block in self._manifests.segment(ref).blocks if block.location in wanted[segment_id]]
            others += self._sketches.restored(layout, ref, chosen)
        return [*whole, *(self.prepare(snapshot.table_id, snapshot, others) if others else ())]

    def _uneven(self, change: ChangeSet, found: Mapping[str, SegmentPosition]) -> InvalidRequest | None:
        """Returns the error for a change that would write the same rows anew, but has another number of rows."""
        if change.deletes or change.no_new_matches is not None:
            return InvalidRequest("a commit that replaces blocks by the same rows deletes none and depends on none")
        removed = self._lookup.blocks({path: found[path] for path in change.removed if path in found})
        before = [block.live_row_count for block in removed.values()]
        after = [ref.summary.live_row_count for ref in change.added]
        if len(removed) < len(set(change.removed)) or None in before or None in after:
            return None
        rows = sum(filter(None, before)), sum(filter(None, after))
        if rows[0] == rows[1]:
            return None
        return InvalidRequest(
            f"the added blocks have {counted(rows[1], 'row')} and the removed ones {rows[0]}, so they "
            "cannot be the same rows"
        )

    def seen_after(
        self,
        base: SnapshotPointer,
        schemas: Sequence[Sequence[SchemaChange | AllowExtraColumns]],
        columns_of: Snapshot | None = None,
    ) -> Snapshot:
        """Returns a snapshot with changed columns, each list of changes a new schema; nothing is written.

        ``columns_of``: a snapshot of another branch, whose columns and cluster key it gets first.

        Raises:
            UnknownColumn, InvalidSchema, InvalidRequest: an invalid change.
            SchemaConflict: the columns of ``columns_of`` do not continue its own.
        """
        snapshot = self._manifests.snapshot(base)
        if columns_of is not None:
            snapshot = commits.seen_with_columns_of(snapshot, columns_of)
        for changes in schemas:
            snapshot = commits.seen_with_changes(snapshot, changes)
        return snapshot

    def seen_with(self, base: SnapshotPointer, update: SchemaUpdate | None) -> Snapshot:
        """Returns a snapshot with the changes of an update that are left to make; nothing is written.

        Raises:
            SchemaConflict: others changed the columns in another way.
            UnknownColumn, InvalidSchema, InvalidRequest: an invalid change.
        """
        return commits.seen_with_update(self._manifests.snapshot(base), update)

    def has_blocks(self, pointer: SnapshotPointer, locations: Iterable[str]) -> set[str]:
        """Returns which of these locations are blocks of the snapshot."""
        return set(self._lookup.find(self._manifests.snapshot(pointer), locations))

    def identities_of(self, pointer: SnapshotPointer, locations: Iterable[str]) -> dict[str, Identity]:
        """Returns the identities of the snapshot's blocks at these locations; locations without a block are left
        out."""
        found = self._lookup.find(self._manifests.snapshot(pointer), locations)
        refs = {position.ref.segment_id: position.ref for position in found.values()}
        return {
            block.location: block
            for ref in refs.values()
            for block in self._manifests.identities(ref)
            if block.location in found
        }

    def replaced(self, pointer: SnapshotPointer, files: Mapping[str, str | None]) -> set[str]:
        """Returns which of these files were in the table before the snapshot and are no longer in it.

        ``files``: the hash of the footer by location; None: unknown, so that only entries that apply to any version
        match. Blocks that Lamella wrote are not recorded; they are recognized by the folder of the table's own blocks.
        """
        snapshot = self._manifests.snapshot(pointer)
        own = self._replacing.in_own_folder(snapshot.table_id, files)
        return own | self._replacing.find(snapshot, files, unknown=False)

    def coming_back(self, pointer: SnapshotPointer, blocks: Iterable[Block]) -> set[str]:
        """Returns the locations of added blocks whose files were in the table before the snapshot.

        A block without a footer hash may be any file. New blocks in the folder of the table's own blocks are not
        checked.
        """
        return self._coming_back(self._manifests.snapshot(pointer), blocks)

    def _coming_back(self, snapshot: Snapshot, blocks: Iterable[Block]) -> set[str]:
        if not snapshot.replaced:
            return set()
        files = footer_hashes_of(blocks)
        own = self._replacing.in_own_folder(snapshot.table_id, files)
        foreign = {location: footer for location, footer in files.items() if location not in own}
        return self._replacing.find(snapshot, foreign, unknown=True)

    def _returned(self, snapshot: Snapshot, change: ChangeSet, request: commits.Request) -> frozenset[str]:
        """Returns files of a change set that were in the table before, except those that are in it now and are being
        replaced."""
        added_locations = {location for location, _ in request.added}
        if not snapshot.replaced or added_locations == self._replacing.in_own_folder(
            snapshot.table_id, added_locations
        ):
            return frozenset()
        blocks = (block for ref in change.added for block in self._manifests.segment(ref).blocks)
        return frozenset(self._coming_back(snapshot, blocks).difference(request.removed))

    def _leaving(
        self,
        requests: Sequence[commits.Request],
        applied_changes: commits.AppliedChanges,
        found: Mapping[str, SegmentPosition],
    ) -> dict[str, str | None]:
        """Returns the files that leave the table, as :meth:`Replacing.after` expects them."""
        applied = [
            request
            for request, outcome in zip(requests, applied_changes.outcomes, strict=True)
            if isinstance(outcome, Applied)
        ]
        dropped = {location for request in applied if not request.added for location in request.removed}
        contents = self._lookup.contents({location: found[location] for location in dropped if location in found})
        leaving: dict[str, str | None] = {}
        for request in applied:
            for location in request.removed:
                # Without added blocks, only this version of the file has left; another one may be registered at its
                # location.
                is_known = not request.added and location in contents
                leaving[location] = contents[location][1] if is_known else None
            for location, _ in request.added:
                leaving.pop(location, None)
        # Blocks whose last rows were deleted.
        named = {location for request in applied for location in request.removed}
        emptied = {location for locations in applied_changes.removals.values() for location in locations} - named
        return leaving | dict.fromkeys(emptied)

    def _request(self, change: ChangeSet) -> commits.Request:
        return commits.Request(
            added=[
                (location, ref.segment_id)
                for ref in change.added
                for location in self._manifests.locations(ref.sidecar)
            ],
            removed=list(dict.fromkeys(change.removed)),
            deletes=[each.location for each in change.deletes],
            schema_ids=frozenset(
                schema_id for ref in change.added for schema_id in (ref.schema_id, *ref.block_schema_ids)
            ),
        )

    def _follow(
        self,
        base: SnapshotPointer,
        snapshot: Snapshot,
        applied: Sequence[ChangeSet],
        applied_changes: commits.AppliedChanges,
        found: Mapping[str, SegmentPosition],
        leaving: Mapping[str, str | None],
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot with the applied change sets. ``leaving``: files that are not in the table afterwards."""
        added = [ref for change in applied for ref in change.added]
        shaped = self._reshaper.after(snapshot, added, _edits(applied_changes), found)
        appended = None if applied_changes.removals or applied_changes.changes else added
        operations = {change.operation for change in applied}
        properties, removed_properties = _properties(applied)
        following = commits.next_snapshot(
            snapshot,
            snapshot_id=str(self._ids.new()),
            groups=shaped.groups,
            segments=shaped.segments,
            appended=appended,
            operation=operations.pop() if len(operations) == 1 else SEVERAL,
            row_changes=[change.row_change for change in applied if change.changes_rows],
            properties=properties,
            removed_properties=removed_properties,
            prev_manifest=base.manifest,
            now_ms=now_ms,
        )
        layout = self._writer.layout(snapshot.table_id)
        additions = [addition for change in applied for addition in change.index_parts]
        if additions:
            indexes = self._directories.added(layout, following.skip_indexes, additions)
            following = msgspec.structs.replace(following, indexes=indexes or msgspec.UNSET)
        if leaving and KIND not in snapshot.properties:  # the files of an external table follow its source
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
        outcomes = [outcome for outcome in applied_changes.outcomes if isinstance(outcome, Applied)]
        return CommitResult(
            pointer=pointer,
            snapshot=written,
            added=sum(outcome.added for outcome in outcomes),
            removed=sum(outcome.removed for outcome in outcomes),
            changed=sum(outcome.changed for outcome in outcomes),
        )


def _unchecked(schema_ids: AbstractSet[int], base: SnapshotPointer) -> SchemaConflict:
    return SchemaConflict(
        f"the rows were checked by schema {min(schema_ids)}, and the table has got constraints since that they may"
        " violate; write the rows again",
        schema_id=min(schema_ids),
        snapshot_id=base.snapshot_id,
    )


def _left(base: Snapshot, change: ChangeSet) -> int:
    """Returns how many blocks stay when a change set is applied to a snapshot, if it removes none that is gone."""
    return base.summary.block_count - len(set(change.removed))


def _properties(applied: Sequence[ChangeSet]) -> tuple[dict[str, str], frozenset[str]]:
    """Returns the properties that change sets set one after another, and those that they remove."""
    properties: dict[str, str] = {}
    removed: frozenset[str] = frozenset()
    for change in applied:
        left = {name: text for name, text in properties.items() if name not in change.removed_properties}
        properties = {**left, **change.properties}
        removed |= change.removed_properties
    return properties, removed


def _edits(applied: commits.AppliedChanges) -> dict[str, SegmentEdit]:
    return {
        segment_id: SegmentEdit(applied.removals.get(segment_id, frozenset()), applied.changes.get(segment_id, {}))
        for segment_id in applied.removals.keys() | applied.changes.keys()
    }
