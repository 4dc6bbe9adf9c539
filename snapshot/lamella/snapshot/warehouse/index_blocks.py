"""The blocks of a snapshot as its indexes know them: which are indexed, which are not, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from lamella.snapshot.index.building import PART_BLOCKS
from lamella.snapshot.index.directory import Directory, place
from lamella.snapshot.manifest import SegmentRef, Snapshot, SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys, are_among, no_keys
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import Coverage

#: Companions that are read at once.
_AT_ONCE: Final = 64


class IndexBlocks:
    """Holds blocks against directories. Every method that goes through a snapshot reads the companions of all of its
    segments, one row of 16 bytes a block; what is not in memory is not kept there."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests

    def directories(self, index: TableIndex) -> list[Directory]:
        """The directories of an index, oldest first."""
        return [self._manifests.directory(ref.object) for ref in index.directories]

    def groups(self, snapshot: Snapshot) -> list[list[SegmentRef]]:
        """The segments of a whole snapshot in the groups that have a part each: full ones alone, small neighbours
        together. The same for a snapshot every time.
        """
        groups: list[list[SegmentRef]] = []
        size = PART_BLOCKS
        for ref in self._manifests.refs(snapshot):
            count = ref.summary.block_count
            if size + count > PART_BLOCKS:
                groups.append([])
                size = 0
            groups[-1].append(ref)
            size += count
        return groups

    def keys(self, refs: Sequence[SegmentRef]) -> Iterator[BlockKeys]:
        """The keys of the blocks of each of some segments."""
        for start in range(0, len(refs), _AT_ONCE):
            some = refs[start : start + _AT_ONCE]
            companions = self._manifests.companions([ref.companion for ref in some], keep=False)
            for ref, companion in zip(some, companions, strict=True):
                keys = companion.block_keys()
                yield self._manifests.block_keys(ref) if keys is None else keys

    def all_keys(self, pointer: SnapshotPointer) -> BlockKeys:
        """The keys of all blocks of a snapshot."""
        refs = list(self._manifests.refs(self._manifests.snapshot(pointer)))
        return np.concatenate([no_keys(), *self.keys(refs)])

    def coverage(
        self,
        pointer: SnapshotPointer,
        indexes: Sequence[TableIndex],
        *,
        more: Directory | None = None,
        forget: BlockKeys | None = None,
    ) -> list[Coverage]:
        """What each index knows of a snapshot. ``more``, ``forget``: as if these entries were added, and the others of
        these blocks were not there."""
        keys = self.all_keys(pointer)
        return [self._covered(keys, self.directories(index), more, forget) for index in indexes]

    def gone(self, pointer: SnapshotPointer, index: TableIndex) -> BlockKeys:
        """The blocks that an index knows and that are not in a snapshot."""
        here = self.all_keys(pointer)
        return np.concatenate(
            [no_keys(), *(each.keys[~are_among(each.keys, here)] for each in self.directories(index))]
        )

    def _covered(
        self, keys: BlockKeys, directories: Sequence[Directory], more: Directory | None, forget: BlockKeys | None
    ) -> Coverage:
        if forget is not None and len(forget):
            directories = [each.where(~are_among(each.keys, forget)) for each in directories]
        if more is not None:
            directories = [*directories, more]
        found = place(directories, keys)
        is_known = found.number >= 0
        indexed = int(is_known.sum())
        return Coverage(
            blocks=len(keys),
            indexed=indexed,
            not_indexed=len(keys) - indexed,
            stale=int((found.has_location & ~is_known).sum()),
            unused_entries=sum(len(each) for each in directories) - indexed,
        )
