"""Moves blocks to other segments: no block is read or written, and its manifest entry stays the same.

Segments are written first and belong to no snapshot. A commit then replaces the segments whose blocks they have, as far
as these are still in the table. Each *swap* is independent, so a concurrent commit only invalidates the swaps that it
touched.

The blocks' manifests are in memory as bytes; only those of one new segment at a time are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.errors import CommitConflict
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import SegmentRef, Snapshot, SnapshotPointer, decode_block, raw_blocks
from lamella.snapshot.sketch.layers import SketchLayers, SketchSpool
from lamella.snapshot.warehouse.commits import CommitResult, Reshaper, SegmentEdit
from lamella.snapshot.warehouse.manifest_writer import ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.objects import SegmentPosition

OPERATION: Final = "regroup"
#: Occurs in the manifest of a segment with a block that has a sketch.
_COUNTED: Final = b'"distinct_of_values":'

#: A segment and the number of a block in it.
BlockPosition = tuple[SegmentRef, int]
#: Called with each new segment, and the previous positions of its blocks, in order.
OnWritten = Callable[[Sequence[tuple[SegmentRef, Sequence[BlockPosition]]]], object]


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A replacement of segments. ``rows``: the rows of some segments in a snapshot's layer. ``made``: for each new
    segment its blocks in order, each as the index of a segment in ``rows`` and the number of a block there. Every
    block of these segments occurs exactly once.
    """

    rows: tuple[int, ...]
    made: tuple[tuple[tuple[int, int], ...], ...]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A swap whose segments are written: ``old`` leave the table and ``new`` are added."""

    old: tuple[SegmentRef, ...]
    new: tuple[SegmentRef, ...]


class Rearranging:
    """Writes swaps; a catalog decides afterwards whether they take effect. ``on_written``: see :data:`OnWritten`."""

    def __init__(
        self,
        manifests: Manifests,
        writer: ManifestWriter,
        sketches: SketchLayers,
        reshaper: Reshaper,
        ids: Ids,
        on_written: OnWritten,
    ) -> None:
        self._manifests = manifests
        self._writer = writer
        self._sketches = sketches
        self._reshaper = reshaper
        self._ids = ids
        self._on_written = on_written

    def write(self, pointer: SnapshotPointer, swap: Swap) -> Written:
        """Write the new segments of a swap.

        Raises:
            ValueError: a block does not occur exactly once.
        """
        snapshot = self._manifests.snapshot(pointer)
        layout = self._writer.layout(snapshot.table_id)
        old = tuple(self._manifests.ref_at(snapshot, row) for row in swap.rows)
        given = sorted(position for of_new in swap.made for position in of_new)
        if given != [(number, row) for number, ref in enumerate(old) for row in range(ref.summary.block_count)]:
            raise ValueError("a swap has every block of its segments once")
        made = [of_new for of_new in swap.made if of_new]
        with self._sketches.spool(layout) as sketches:
            blocks = [self._raw_blocks(ref, sketches) for ref in old]
            new = tuple(
                self._writer.segment(
                    layout, snapshot, sketches.restored([decode_block(blocks[number][row]) for number, row in of_new])
                )
                for of_new in made
            )
        self._on_written(
            [(ref, [(old[number], row) for number, row in of_new]) for ref, of_new in zip(new, made, strict=True)]
        )
        return Written(old=old, new=new)

    def _raw_blocks(self, ref: SegmentRef, sketches: SketchSpool) -> tuple[msgspec.Raw, ...]:
        """Returns the blocks of a segment undecoded, as in its manifest."""
        data = self._manifests.read(ref.manifest)
        if _COUNTED in data:  # otherwise there is no object of sketches to read
            sketches.add(ref)
        return raw_blocks(data, location=ref.manifest.location)

    def commit(
        self, base: SnapshotPointer, written: Sequence[Written], *, now_ms: int
    ) -> tuple[CommitResult, tuple[Written, ...]]:
        """Write the snapshot that follows ``base`` with those swaps whose old segments it still has; returns it and
        these swaps.

        Call again with a newer base if the pointer swap fails.

        Raises:
            CommitConflict: ``base`` lacks a segment of every swap; ``snapshot_id`` is ``base``.
        """
        snapshot = self._manifests.snapshot(base)
        found = self._found(snapshot)
        done = tuple(swap for swap in written if all(ref.segment_id in found for ref in swap.old))
        if not done:
            raise CommitConflict(
                "all segments to be regrouped were replaced by other commits",
                blocks=[],
                snapshot_id=base.snapshot_id,
                snapshot_is="current",
            )
        leaving = {ref.segment_id for swap in done for ref in swap.old}
        edits = {
            segment_id: SegmentEdit(set(self._manifests.locations(found[segment_id].ref.sidecar)))
            for segment_id in leaving
        }
        added = [ref for swap in done for ref in swap.new]
        shaped = self._reshaper.after(snapshot, added, edits, {name: found[name] for name in leaving})
        following = commits.next_snapshot(
            snapshot,
            snapshot_id=str(self._ids.new()),
            groups=shaped.groups,
            segments=shaped.segments,
            appended=(),
            operation=OPERATION,
            row_changes=(),
            properties={},
            prev_manifest=base.manifest,
            now_ms=now_ms,
        )
        following = self._sketches.of_snapshot(
            self._writer.layout(snapshot.table_id),
            snapshot,
            following,
            # Recomputed from the current segments: a union of other unions may round differently.
            appended=None,
            segments_of=self._manifests.group_segments,
        )
        pointer, after = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=after, added=0, removed=0), done

    def _found(self, snapshot: Snapshot) -> dict[str, SegmentPosition]:
        """Returns the positions of a snapshot's segments, by their ids."""
        found = {
            ref.segment_id: SegmentPosition(ref, row, number)
            for number, group in enumerate(snapshot.groups)
            for row, ref in enumerate(self._manifests.group(group).segments)
            if row not in group.dropped
        }
        return found | {ref.segment_id: SegmentPosition(ref, row) for row, ref in enumerate(snapshot.segments)}
