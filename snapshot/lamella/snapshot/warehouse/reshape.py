"""The segments and groups of the snapshot to come: without removed blocks, small ones folded, full ones in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec
import numpy as np

from lamella.snapshot import commit as commits
from lamella.snapshot.layout import TableLayout
from lamella.snapshot.manifest import Block, GroupRef, SegmentRef, Snapshot
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.warehouse.lookup import Found
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.writing import IndexPart, ManifestWriter

#: A group that lost more than one of so many segments is written again without them.
_DROPPED_PART = 8

#: Called with new segments, and those whose blocks they have, one after another.
OnFold = Callable[[Sequence[SegmentRef], Sequence[SegmentRef]], object]


class Shaped(msgspec.Struct, frozen=True):
    """What the next snapshot consists of."""

    groups: tuple[GroupRef, ...]
    segments: tuple[SegmentRef, ...]


class Reshaper:
    """Writes the segments and groups that a commit makes. ``on_fold``: see :data:`OnFold`."""

    def __init__(
        self,
        manifests: Manifests,
        writer: ManifestWriter,
        sketches: SketchLayers,
        shape: commits.Shape,
        on_fold: OnFold,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._sketches = sketches
        self._shape = shape
        self._on_fold = on_fold

    def after(
        self,
        base: Snapshot,
        added: Sequence[SegmentRef],
        removals: Mapping[str, AbstractSet[str]],
        found: Mapping[str, Found],
    ) -> Shaped:
        """``base`` with segments added behind and blocks removed.

        ``removals``: locations by segment id, of the base's segments and the added ones. ``found``: where the base
        has the blocks.
        """
        layout = self._writer.layout(base.table_id)
        hit = {place.ref.segment_id: place for place in found.values() if place.ref.segment_id in removals}
        groups, pieces = self._groups_without(layout, base, hit, removals)
        for ref in (*base.segments, *added):
            pieces += self._without(layout, base, ref, removals.get(ref.segment_id, frozenset()))
        segments = self._folded(layout, base, pieces)
        return self._grouped(layout, base, groups, segments)

    def _groups_without(
        self,
        layout: TableLayout,
        base: Snapshot,
        hit: Mapping[str, Found],
        removals: Mapping[str, AbstractSet[str]],
    ) -> tuple[list[GroupRef], list[_Piece]]:
        """The base's groups without the segments that lose blocks, and what is left of those segments."""
        groups: list[GroupRef] = []
        pieces: list[_Piece] = []
        for number, group in enumerate(base.groups):
            leaving = sorted((place for place in hit.values() if place.group == number), key=lambda place: place.row)
            if not leaving:
                groups.append(group)
                continue
            for place in leaving:
                pieces += self._without(layout, base, place.ref, removals[place.ref.segment_id])
            dropped = tuple(sorted({*group.dropped, *(place.row for place in leaving)}))
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

    def _without(self, layout: TableLayout, base: Snapshot, ref: SegmentRef, gone: AbstractSet[str]) -> list[_Piece]:
        """What a segment is without some of its blocks; a small rest is not written yet, since it may be folded."""
        if not gone:
            return [_Piece(ref.summary.block_count, (ref,), None)]
        if len(gone) == ref.summary.block_count:
            return []
        left = [block for block in self._manifests.segment(ref).blocks if block.location not in gone]
        if not left:
            return []
        left = self._sketches.restored(layout, ref, left)
        if self._shape.is_small(len(left)):
            return [_Piece(len(left), (), left)]
        return [_Piece(len(left), (self._writer.segment(layout, base, left),), None)]

    def _folded(self, layout: TableLayout, base: Snapshot, pieces: Sequence[_Piece]) -> list[SegmentRef]:
        """The pieces as segments, small ones folded together; a fold stands where its last member stood."""
        chosen = commits.to_fold([piece.block_count for piece in pieces], self._shape)
        segments: list[SegmentRef] = []
        members = set(chosen)
        for number, piece in enumerate(pieces):
            if number not in members:
                segments += piece.refs or (self._writer.segment(layout, base, piece.loose or ()),)
            elif number == chosen[-1]:
                segments += self._fold(layout, base, [pieces[index] for index in chosen])
        return segments

    def _fold(self, layout: TableLayout, base: Snapshot, members: Sequence[_Piece]) -> list[SegmentRef]:
        blocks: list[Block] = []
        for piece in members:
            blocks += piece.loose or ()
            for ref in piece.refs:
                blocks += self._sketches.restored(layout, ref, self._manifests.segment(ref).blocks)
        size = self._shape.segment_blocks
        folded = [self._writer.segment(layout, base, blocks[at : at + size]) for at in range(0, len(blocks), size)]
        if all(piece.loose is None for piece in members):
            self._on_fold(folded, [ref for piece in members for ref in piece.refs])
        return folded

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
        """One group of the segments of several that are still in the table."""
        segments: list[SegmentRef] = []
        index: list[IndexPart] = []
        for group in groups:
            everything = self._manifests.group(group).segments
            numbers = np.full(len(everything), -1, dtype=np.int64)
            kept = np.delete(np.arange(len(everything)), group.dropped)
            numbers[kept] = np.arange(len(segments), len(segments) + len(kept))
            index.append(self._manifests.group_locations(group).renumbered(numbers))
            segments += self._manifests.group_segments(group)
        return self._writer.group(layout, base, segments, index)

    def _index(self, number: int, ref: SegmentRef) -> IndexPart:
        hashes = self._manifests.location_hashes(ref.companion)
        return hashes, np.full(len(hashes), number, dtype=np.uint32)


class _Piece(msgspec.Struct, frozen=True):
    """Blocks of one segment: it is written (``refs`` has it), or they are ``loose``, with their sketches."""

    block_count: int
    refs: tuple[SegmentRef, ...]
    loose: list[Block] | None
