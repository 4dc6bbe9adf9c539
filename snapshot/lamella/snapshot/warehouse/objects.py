"""What a snapshot consists of: its segments, the objects it needs, the blocks it holds."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec

from lamella.snapshot.layout import TableLayout, table_root
from lamella.snapshot.manifest import ObjectRef, SegmentRef, Snapshot, SnapshotPointer
from lamella.snapshot.pages.source import SegmentPages
from lamella.snapshot.warehouse.manifests import Manifests


class SnapshotObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one snapshot that Lamella wrote; blocks are not among them.

    ``needed``: manifests and companions, each with its size and hash; the snapshot cannot be read without them.
    ``optional``: locations of sketches, page companions and parts of skip indexes. They may be there or not, every
    question has an answer without them, and as long as the snapshot lives they belong to it.
    """

    needed: tuple[ObjectRef, ...]
    optional: tuple[str, ...]

    def locations(self) -> set[str]:
        """Every location: what a clean-up must leave alone while the snapshot lives."""
        return {ref.location for ref in self.needed}.union(self.optional)


class Objects:
    """Walks snapshots of the tables below ``root``."""

    def __init__(self, manifests: Manifests, root: str) -> None:
        self._manifests = manifests
        self._root = root

    def segments(self, of: SnapshotPointer | Snapshot) -> Iterator[SegmentRef]:
        """Every segment of a snapshot, oldest first; a snapshot's own ``segments`` may be only some of them.

        ``of``: a pointer, or a whole snapshot (not the head that a companion holds, which lists no segments).

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, ObjectNotFound: a manifest cannot be read.
        """
        yield from self._manifests.refs(self._manifests.snapshot(of) if isinstance(of, SnapshotPointer) else of)

    def objects(self, pointer: SnapshotPointer) -> SnapshotObjects:
        """The objects that a snapshot needs, and those that may stand beside them. Raises as :meth:`segments`."""
        snapshot = self._manifests.snapshot(pointer)
        layout = TableLayout(table_root(self._root, snapshot.table_id))
        needed = [pointer.manifest, pointer.companion]
        optional = [layout.sketches(pointer.snapshot_id)]
        for group in snapshot.groups:
            needed += (group.manifest, group.companion, group.locations)
            optional.append(layout.sketches(group.group_id))
        needed += (files.object for files in snapshot.replaced)
        for index in snapshot.skip_indexes:
            for directory in index.directories:
                needed.append(directory.object)
                optional += (part.location for part in self._manifests.directory(directory.object).parts)
        for ref in self.segments(pointer):
            needed += (ref.manifest, ref.companion)
            optional += (layout.sketches(ref.segment_id), SegmentPages(ref.segment_id, ref.manifest).location)
        return SnapshotObjects(needed=tuple(needed), optional=tuple(optional))

    def block_locations(self, pointer: SnapshotPointer, *, skip: AbstractSet[str] = frozenset()) -> Iterator[str]:
        """The locations of a snapshot's blocks, in their order; without the segments whose ids are in ``skip``.

        Raises as :meth:`segments`, and the same errors for a segment's companion.
        """
        for ref in self.segments(pointer):
            if ref.segment_id not in skip:
                yield from self._manifests.locations(ref.companion)
