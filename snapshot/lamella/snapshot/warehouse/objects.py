"""The objects of a snapshot, and the look-up of blocks in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.locations import Hashes, hashes_of, may_share
from lamella.snapshot.manifest import Block, DeleteFile, GroupRef, ObjectRef, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.pages.source import SegmentPages
from lamella.snapshot.storage import TableLayout, table_root
from lamella.snapshot.warehouse.manifests import Manifests

#: The content of a block's file: its content id, and the hash of its footer.
Content = tuple[str | None, str | None, tuple[DeleteFile, ...]]


class SegmentPosition(msgspec.Struct, frozen=True):
    """The position of a segment that has a block: number ``row`` of the snapshot's own segments, or of those of its
    group number ``group``."""

    ref: SegmentRef
    row: int
    group: int | None = None


class Lookup:
    """Finds blocks; the cost of a look-up hardly depends on the table's size."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    def find(self, snapshot: Snapshot, locations: Iterable[str]) -> dict[str, SegmentPosition]:
        """Returns where a whole snapshot has the blocks at these locations; missing ones are left out."""
        wanted = sorted(set(locations))
        found: dict[str, SegmentPosition] = {}
        if not wanted:
            return found
        hashes = hashes_of(wanted)
        for number, group in enumerate(snapshot.groups):
            some = _between(wanted, group.first_location, group.last_location)
            if some.start == some.stop:
                continue
            rows = self._manifests.group_locations(group).candidates(hashes[some])
            rows = rows[~np.isin(rows, group.dropped)]
            for row in rows.tolist():
                ref = self._manifests.group(group).segments[row]
                self._confirm(SegmentPosition(ref, row, number), wanted[some], found)
        for row, ref in enumerate(snapshot.segments):
            some = _between(wanted, ref.first_location, ref.last_location)
            if some.start < some.stop and self._may_have(ref, hashes[some]):
                self._confirm(SegmentPosition(ref, row), wanted[some], found)
        return found

    def contents(self, positions: Mapping[str, SegmentPosition]) -> dict[str, Content]:
        """Returns content id, footer hash and deletes of blocks that were found."""
        return {
            location: (block.content_id, block.footer_sha256, block.deletes)
            for location, block in self.blocks(positions).items()
        }

    def blocks(self, positions: Mapping[str, SegmentPosition]) -> dict[str, Block]:
        """Returns the blocks that were found, by location."""
        by_segment: dict[str, SegmentRef] = {position.ref.segment_id: position.ref for position in positions.values()}
        return {
            block.location: block
            for ref in by_segment.values()
            for block in self._manifests.segment(ref).blocks
            if block.location in positions
        }

    def _may_have(self, ref: SegmentRef, hashes: Hashes) -> bool:
        return may_share(self._manifests.location_hashes(ref.sidecar), np.sort(hashes))

    def _confirm(self, position: SegmentPosition, wanted: list[str], found: dict[str, SegmentPosition]) -> None:
        for location in set(wanted).intersection(self._manifests.locations(position.ref.sidecar)):
            found[location] = position


def _between(wanted: list[str], first: str | None, last: str | None) -> slice:
    """Returns the range of the ascending ``wanted`` that may be in a segment or group."""
    start = 0 if first is None else bisect_left(wanted, first)
    return slice(start, len(wanted) if last is None else max(start, bisect_right(wanted, last)))


class SnapshotObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one snapshot that Lamella wrote, without blocks.

    ``needed``: manifests and sidecars, each with its size and hash; the snapshot cannot be read without them.
    ``optional``: locations of sketches, page sidecars and parts of skip indexes. They may be missing, every query has
    an answer without them, and they belong to the snapshot while it lives.
    """

    needed: tuple[ObjectRef, ...]
    optional: tuple[str, ...]

    def locations(self) -> set[str]:
        """Returns every location, which a clean-up must keep while the snapshot lives."""
        return {ref.location for ref in self.needed}.union(self.optional)


class ObjectsLeft(msgspec.Struct, frozen=True, kw_only=True):
    """Objects in a table's folder that one snapshot names and another does not: their number, and their bytes.

    Without sketches, page sidecars and lists of deleted rows, whose sizes manifests do not have.
    """

    objects: int = 0
    size_bytes: int = 0


#: Sidecars that are open at a time while blocks are compared.
_AT_ONCE: Final = 16


class Objects:
    """Walks snapshots of the tables below ``root``."""

    def __init__(self, manifests: Manifests, root: str) -> None:
        self._manifests = manifests
        self._root = root

    def segments(self, of: SnapshotPointer | Snapshot) -> Iterator[SegmentRef]:
        """Yields every segment of a snapshot, oldest first; a snapshot's own ``segments`` may be only some of them.

        ``of``: a pointer, or a whole snapshot (not the head from a sidecar, which lists no segments).

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, ObjectNotFound: a manifest cannot be read.
        """
        yield from self._manifests.refs(self._manifests.snapshot(of) if isinstance(of, SnapshotPointer) else of)

    def objects(self, pointer: SnapshotPointer) -> SnapshotObjects:
        """Returns the objects that a snapshot needs, and those that may exist in addition. Raises as
        :meth:`segments`."""
        snapshot = self._manifests.snapshot(pointer)
        layout = TableLayout(table_root(self._root, snapshot.table_id))
        needed = [pointer.manifest, pointer.sidecar]
        optional = [layout.sketches(pointer.snapshot_id)]
        for group in snapshot.groups:
            needed += (group.manifest, group.sidecar, group.locations)
            optional.append(layout.sketches(group.group_id))
        needed += (files.object for files in snapshot.replaced)
        for index in snapshot.skip_indexes:
            for directory in index.directories:
                needed.append(directory.object)
                optional += (part.location for part in self._manifests.directory(directory.object).parts)
        for ref in self.segments(pointer):
            needed += (ref.manifest, ref.sidecar)
            optional += (layout.sketches(ref.segment_id), SegmentPages(ref.segment_id, ref.manifest).location)
        return SnapshotObjects(needed=tuple(needed), optional=tuple(optional))

    def block_locations(self, pointer: SnapshotPointer, *, skip: AbstractSet[str] = frozenset()) -> Iterator[str]:
        """Yields the locations of a snapshot's blocks, in order; without the segments whose ids are in ``skip``.

        Raises as :meth:`segments`, and the same errors for a segment's sidecar.
        """
        for ref in self.segments(pointer):
            if ref.segment_id not in skip:
                yield from self._manifests.locations(ref.sidecar)

    def delete_locations(self, pointer: SnapshotPointer, *, skip: AbstractSet[str] = frozenset()) -> Iterator[str]:
        """Yields the locations of the lists of deleted rows, one for each block and list; as :meth:`block_locations`.

        Raises as that.
        """
        for ref in self.segments(pointer):
            if ref.segment_id not in skip and ref.summary.deletes_count:
                sidecar = self._manifests.sidecar(ref.sidecar)
                for entries in sidecar.deletes(np.arange(len(sidecar))):
                    yield from (entry.location for entry in entries or ())

    def left(self, before: SnapshotPointer, after: SnapshotPointer) -> ObjectsLeft:
        """Returns the objects of one snapshot that another of the table lacks. Reads the sidecars of the segments that
        only one of them has, so that the cost is that of what differs.

        Raises as :meth:`block_locations`.
        """
        old, new = self._manifests.snapshot(before), self._manifests.snapshot(after)
        sizes = self._own_sizes(before, old)
        retained = self._own_sizes(after, new)
        shared = set(map(_contents, old.groups)) & set(map(_contents, new.groups))
        old_refs, new_refs = (self._segments_without(each, shared) for each in (old, new))
        for ref in old_refs.values():
            sizes.update({each.location: each.size_bytes for each in (ref.manifest, ref.sidecar)})
        for ref in new_refs.values():
            retained.update({each.location: each.size_bytes for each in (ref.manifest, ref.sidecar)})
        gone = [size for location, size in sizes.items() if location not in retained]
        root = table_root(self._root, old.table_id) + "/"
        blocks, block_bytes = self._blocks_left(
            [ref for segment_id, ref in old_refs.items() if segment_id not in new_refs],
            [ref for segment_id, ref in new_refs.items() if segment_id not in old_refs],
            root,
        )
        return ObjectsLeft(objects=len(gone) + blocks, size_bytes=sum(gone) + block_bytes)

    def _own_sizes(self, pointer: SnapshotPointer, snapshot: Snapshot) -> dict[str, int]:
        """Returns by location the bytes of a snapshot's objects, without those of segments."""
        refs = [pointer.manifest, pointer.sidecar, *(files.object for files in snapshot.replaced)]
        for group in snapshot.groups:
            refs += (group.manifest, group.sidecar, group.locations)
        sizes = {ref.location: ref.size_bytes for ref in refs}
        for index in snapshot.skip_indexes:
            for directory in index.directories:
                sizes[directory.object.location] = directory.object.size_bytes
                parts = self._manifests.directory(directory.object).parts
                sizes.update({part.location: part.size_bytes for part in parts})
        return sizes

    def _segments_without(
        self, snapshot: Snapshot, groups: AbstractSet[tuple[str, tuple[int, ...]]]
    ) -> dict[str, SegmentRef]:
        own = [group for group in snapshot.groups if _contents(group) not in groups]
        found = [ref for group in own for ref in self._manifests.group_segments(group)]
        return {ref.segment_id: ref for ref in (*found, *snapshot.segments)}

    def _blocks_left(self, old: list[SegmentRef], new: list[SegmentRef], root: str) -> tuple[int, int]:
        """Returns the number and the bytes of the blocks below ``root`` in the old segments and in no new one."""
        known = pa.chunked_array([self._locations(some)[0] for some in _batches(new)], type=pa.string())
        count = size_bytes = 0
        for some in _batches(old):
            locations, sizes = self._locations(some)
            is_left = pc.and_(pc.starts_with(locations, root), pc.invert(pc.is_in(locations, value_set=known)))
            chosen = is_left.to_numpy(zero_copy_only=False)
            count += int(chosen.sum())
            size_bytes += int(sizes[chosen].sum())
        return count, size_bytes

    def _locations(self, refs: list[SegmentRef]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        sidecars = self._manifests.sidecars([ref.sidecar for ref in refs], keep=False)
        locations = pa.array([location for each in sidecars for location in each.texts("location")], type=pa.string())
        return locations, np.concatenate([each.numbers("file_size").astype(np.int64) for each in sidecars])


def _contents(group: GroupRef) -> tuple[str, tuple[int, ...]]:
    """Returns a value that is the same for entries with the same segments."""
    return group.group_id, group.dropped


def _batches(refs: list[SegmentRef]) -> Iterator[list[SegmentRef]]:
    for start in range(0, len(refs), _AT_ONCE):
        yield refs[start : start + _AT_ONCE]
