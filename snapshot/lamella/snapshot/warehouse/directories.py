"""The directories of skip indexes: written beside a table's other objects, merged as they become many."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec
import numpy as np

from lamella.snapshot.ids import Ids
from lamella.snapshot.index.directory import Addition, Directory, place
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import DirectoryRef, ObjectRef, TableIndex, content_hash
from lamella.snapshot.manifest.block_key import BlockKeys, are_among
from lamella.snapshot.warehouse.manifests import Manifests

#: A directory is merged with the one before it when that one is less than so many times as large.
_MERGE_FACTOR: Final = 4

Refs = tuple[DirectoryRef, ...]


class Directories:
    """Writes directories; a snapshot that has them says that they count."""

    def __init__(self, manifests: Manifests, store: Store, ids: Ids) -> None:
        self._manifests = manifests
        self._store = store
        self._ids = ids

    def added(
        self, layout: TableLayout, indexes: tuple[TableIndex, ...], additions: Sequence[Addition]
    ) -> tuple[TableIndex, ...]:
        """Indexes of a table with more parts, those of each index in the order in which they come.

        Parts of an index that is not among these, or was dropped, are left out: nobody would ask them.
        """
        filled = []
        for index in indexes:
            parts = [part for addition in additions if addition.index_id == index.index_id for part in addition.parts]
            if not parts or index.dropped_ms is not None:
                filled.append(index)
                continue
            directories = self.extended(layout, index.directories, Directory.of(parts))
            filled.append(msgspec.structs.replace(index, directories=directories))
        return tuple(filled)

    def extended(self, layout: TableLayout, directories: Refs, new: Directory) -> Refs:
        """The directories and a new one, merged with those before it as long as they are not much larger."""
        if not len(new):
            return directories
        kept = list(directories)
        merged = [new]
        size = len(new)
        while kept and kept[-1].block_count < _MERGE_FACTOR * size:
            size += kept[-1].block_count
            merged.insert(0, self._manifests.directory(kept.pop().object))
        return (*kept, *self._written(layout, Directory.merged(merged) if len(merged) > 1 else new))

    def forgetting(self, layout: TableLayout, directories: Refs, forget: BlockKeys | None) -> Refs:
        """The directories without some blocks; those that know none of them are not written again."""
        kept: list[DirectoryRef] = []
        for ref in directories:
            directory = self._manifests.directory(ref.object)
            less = _without(directory, forget)
            kept += (ref,) if less is directory else self._written(layout, less)
        return tuple(kept)

    def compacted(self, layout: TableLayout, directories: Refs, new: Directory, forget: BlockKeys | None) -> Refs:
        """One directory of what these know, without some blocks, and of a new one."""
        old = [_without(self._manifests.directory(ref.object), forget) for ref in directories]
        return self._written(layout, Directory.merged([*old, new]))

    def still_in(self, directories: Refs, new: Directory, parts: AbstractSet[str]) -> Directory:
        """The entries of ``new`` whose blocks are still in one of these parts."""
        placed = place([self._manifests.directory(ref.object) for ref in directories], new.keys)
        is_there = np.array([part.location in parts for part in placed.parts] or [False])
        return new.where((placed.number >= 0) & is_there[placed.number])

    def _written(self, layout: TableLayout, directory: Directory) -> Refs:
        if not len(directory):
            return ()
        data = directory.to_bytes()
        location = layout.index_directory(self._ids.new())
        self._store.put(location, data)
        ref = DirectoryRef(
            object=ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data)),
            part_count=len(directory.parts),
            block_count=len(directory),
            parts_bytes=sum(part.size_bytes for part in directory.parts),
        )
        return (ref,)


def _without(directory: Directory, forget: BlockKeys | None) -> Directory:
    """The directory itself when it knows none of the blocks."""
    if forget is None or not len(forget):
        return directory
    gone = are_among(directory.keys, forget)
    return directory.where(~gone) if gone.any() else directory
