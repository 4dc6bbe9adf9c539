"""A table's skip indexes: created, filled with parts, dropped, restored and removed, each by its own snapshot.

Definitions are stored in snapshots, so every state is complete: an index without parts covers no blocks yet. Parts
identify their blocks, so they may be added to any later snapshot, whatever was committed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from lamella.snapshot import commit as commits
from lamella.snapshot.errors import AlreadyExists, IndexNotFound, InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.definition import defined
from lamella.snapshot.index.directory import Directory
from lamella.snapshot.index.part import PartRef
from lamella.snapshot.manifest import SnapshotPointer, TableIndex
from lamella.snapshot.manifest.block_key import BlockKeys
from lamella.snapshot.near_names import did_you_mean
from lamella.snapshot.warehouse.commits import CommitResult
from lamella.snapshot.warehouse.manifest_writer import Directories, ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests

OPERATION: Final = "index"

_Changed = Callable[[tuple[TableIndex, ...]], tuple[TableIndex, ...]]


class Indexing:
    """Writes the snapshots that change a table's indexes; a catalog decides afterwards whether they take effect."""

    def __init__(self, manifests: Manifests, writer: ManifestWriter, directories: Directories, ids: Ids) -> None:
        self._manifests = manifests
        self._writer = writer
        self._directories = directories
        self._ids = ids

    def create(
        self,
        base: SnapshotPointer,
        *,
        name: str,
        kind: str,
        expression: str,
        options: Mapping[str, Any] | None = None,
        time_zone: str = "UTC",
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot after ``base`` with one more index, which covers no blocks yet.

        Raises:
            AlreadyExists: the table has an index of that name, possibly a dropped one.
            InvalidRequest, InvalidFilter, UnknownColumn: see :func:`lamella.snapshot.index.definition.defined`.
        """
        made = defined(
            index_id=str(self._ids.new()),
            name=name,
            kind=kind,
            expression=expression,
            options=options or {},
            schema=self._manifests.head(base).schema,
            time_zone=time_zone,
            now_ms=now_ms,
        )

        def changed(indexes: tuple[TableIndex, ...]) -> tuple[TableIndex, ...]:
            for index in indexes:
                if index.name.lower() == name.lower():
                    hint = "" if index.dropped_ms is None else ": it was dropped; restore it or remove it permanently"
                    raise AlreadyExists(f"the table already has an index {index.name!r}{hint}", name=index.name)
            return (*indexes, made)

        return self._follow(base, changed, now_ms)

    def drop(self, base: SnapshotPointer, name: str, *, now_ms: int) -> CommitResult:
        """Write the snapshot after ``base`` that no longer uses an index; raises IndexNotFound."""
        return self._replace(base, name, now_ms, dropped_ms=now_ms)

    def restore(self, base: SnapshotPointer, name: str, *, now_ms: int) -> CommitResult:
        """Write the snapshot after ``base`` that uses a dropped index again, with all its parts; raises
        IndexNotFound."""
        return self._replace(base, name, now_ms, is_dropped=True, dropped_ms=None)

    def remove(self, base: SnapshotPointer, name: str, *, now_ms: int) -> CommitResult:
        """Write the snapshot after ``base`` without an index that was dropped before.

        Its parts belong to earlier snapshots, and are deleted after those have expired. Raises IndexNotFound.
        """

        def changed(indexes: tuple[TableIndex, ...]) -> tuple[TableIndex, ...]:
            gone = index_named(indexes, name, is_dropped=True)
            return tuple(index for index in indexes if index is not gone)

        return self._follow(base, changed, now_ms)

    def add_parts(
        self,
        base: SnapshotPointer,
        index_id: str,
        parts: Sequence[tuple[PartRef, BlockKeys]] = (),
        *,
        replace: bool = False,
        forget: BlockKeys | None = None,
        moved_from: AbstractSet[str] | None = None,
        compact: bool = False,
        now_ms: int,
    ) -> CommitResult:
        """Write the snapshot after ``base`` in which an index has these parts, each with the keys of its blocks.

        ``replace``: and no others. ``forget``: earlier entries of these blocks are removed. ``moved_from``: locations
        of the parts that the new ones were copied from; an entry takes effect only if ``base`` still has its block in
        one of them, so that nothing added in the meantime is lost. ``compact``: write one directory that replaces all
        others.

        Raises IndexNotFound if ``base`` has no index with that id, or it was dropped.
        """
        if any(len(keys) != ref.block_count for ref, keys in parts):
            raise InvalidRequest("a part comes with one key for each of its blocks")
        layout = self._writer.layout(self._manifests.head(base).table_id)
        given = Directory.of(parts)

        def changed(indexes: tuple[TableIndex, ...]) -> tuple[TableIndex, ...]:
            index = index_with_id(indexes, index_id)
            directories = () if replace else index.directories
            new = given if moved_from is None else self._directories.still_in(directories, given, moved_from)
            if compact:
                compacted = self._directories.compacted(layout, directories, new, forget)
            else:
                left = self._directories.forgetting(layout, directories, forget)
                compacted = self._directories.extended(layout, left, new)
            filled = msgspec.structs.replace(index, directories=compacted)
            return tuple(filled if each is index else each for each in indexes)

        return self._follow(base, changed, now_ms)

    def _replace(
        self, base: SnapshotPointer, name: str, now_ms: int, *, is_dropped: bool = False, **members: Any
    ) -> CommitResult:
        def changed(indexes: tuple[TableIndex, ...]) -> tuple[TableIndex, ...]:
            found = index_named(indexes, name, is_dropped=is_dropped)
            other = msgspec.structs.replace(found, **members)
            return tuple(other if index is found else index for index in indexes)

        return self._follow(base, changed, now_ms)

    def _follow(self, base: SnapshotPointer, changed: _Changed, now_ms: int) -> CommitResult:
        snapshot = self._manifests.snapshot(base)
        following = commits.indexed_snapshot(
            snapshot,
            changed(snapshot.skip_indexes),
            snapshot_id=str(self._ids.new()),
            operation=OPERATION,
            now_ms=now_ms,
            prev_manifest=base.manifest,
        )
        pointer, written = self._writer.snapshot(following)
        return CommitResult(pointer=pointer, snapshot=written, added=0, removed=0)


def index_with_id(indexes: Sequence[TableIndex], index_id: str) -> TableIndex:
    """Returns the active index with an id; raises IndexNotFound."""
    for index in indexes:
        if index.index_id == index_id and index.dropped_ms is None:
            return index
    raise IndexNotFound(f"the table has no index {index_id!r}", index_id=index_id)


def index_named(indexes: Sequence[TableIndex], name: str, *, is_dropped: bool = False) -> TableIndex:
    """Returns the active (or dropped) index with a name; raises IndexNotFound."""
    for index in indexes:
        if index.name.lower() == name.lower():
            if (index.dropped_ms is not None) == is_dropped:
                return index
            state = "is in use" if is_dropped else "was dropped"
            raise IndexNotFound(f"the index {index.name!r} {state}", name=index.name)
    raise no_index(name, [index for index in indexes if (index.dropped_ms is not None) == is_dropped])


def no_index(name: str, indexes: Sequence[TableIndex]) -> IndexNotFound:
    """Returns the error of an index that is none of ``indexes``, with the nearest name among them."""
    near = did_you_mean(name, [index.name for index in indexes])
    return IndexNotFound(f"the table has no index {name!r}", name=name, **near)
