"""Marking: what the snapshots that stay need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from lamella.snapshot.errors import ObjectNotFound
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.vacuum.names import ObjectName, object_name
from lamella.snapshot.warehouse import SnapshotObjects, Warehouse

#: Whether a snapshot has left the history since it was found there.
IsGone = Callable[[SnapshotPointer], bool]


class LiveSet:
    """What a table's snapshots need, gathered snapshot by snapshot; it only ever grows.

    An object counts as needed when the snapshots need any object of its folder with its id: a companion of a kind
    that is not known here is safe beside its manifest.

    ``is_gone`` is asked of a snapshot that lacks an object: another clean-up may have expired and deleted it. What
    has left the history needs nothing.
    """

    def __init__(self, warehouse: Warehouse, root: str, is_gone: IsGone) -> None:
        self._warehouse = warehouse
        self._root = root
        self._is_gone = is_gone
        self._pointers: dict[str, SnapshotPointer] = {}
        self._ids: set[tuple[str, str]] = set()
        self._blocks: BlockSet | None = None

    def add(self, pointers: Iterable[SnapshotPointer]) -> None:
        """Take in snapshots; those that were taken in before cost nothing.

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, ObjectNotFound, StoreError: a manifest of a snapshot that
                is not gone cannot be read, so what it needs is not known and nothing may be deleted.
        """
        for pointer in pointers:
            if pointer.snapshot_id in self._pointers:
                continue
            try:
                self._ids.update(_names(self._root, self._warehouse.objects(pointer)))
            except ObjectNotFound:
                if not self._is_gone(pointer):
                    raise
                continue
            self._pointers[pointer.snapshot_id] = pointer
            if self._blocks is not None:
                self._blocks.add([pointer])

    def holds(self, name: ObjectName, location: str) -> bool:
        """True when a snapshot needs the object. Raises as :meth:`add`."""
        if name.kind == "temporary":
            return False
        if name.kind == "block":
            if self._blocks is None:  # only where there is a block to ask about: this reads every segment's companion
                blocks = BlockSet(self._warehouse, self._is_gone)
                blocks.add(self._pointers.values())
                self._blocks = blocks
            return location in self._blocks
        if name.kind == "export" and not name.id:
            return bool(self._pointers)
        return (name.folder, name.id) in self._ids


class BlockSet:
    """The blocks of snapshots, of one table or of many. ``is_gone``: as for :class:`LiveSet`."""

    def __init__(self, warehouse: Warehouse, is_gone: IsGone) -> None:
        self._warehouse = warehouse
        self._is_gone = is_gone
        self._segments: set[str] = set()
        self._locations: set[str] = set()

    def add(self, pointers: Iterable[SnapshotPointer]) -> None:
        """Take in snapshots; each segment is read once. Raises as :meth:`LiveSet.add`."""
        for pointer in pointers:
            try:
                self._locations.update(self._warehouse.block_locations(pointer, skip=self._segments))
                self._segments.update(ref.segment_id for ref in self._warehouse.segments(pointer))
            except ObjectNotFound:
                if not self._is_gone(pointer):
                    raise

    def __contains__(self, location: str) -> bool:
        return location in self._locations

    def others(self, pointer: SnapshotPointer) -> Iterable[SegmentRef]:
        """The segments of a snapshot that none of those taken in has."""
        return (ref for ref in self._warehouse.segments(pointer) if ref.segment_id not in self._segments)


class Rooted(Protocol):
    """Something that knows where tables are."""

    def table_location(self, table_id: str) -> str:
        """The folder of a table."""


def foreign_table(warehouse: Rooted, table_id: str, location: str) -> str | None:
    """The id of the other table in whose folder a file is; None: it is in this table's, or in none.

    What stands in a table's folder belongs to that table, and goes with it: no other table may register it.
    """
    root = warehouse.table_location("")
    if not location.startswith(root):
        return None
    folder, slash, _ = location[len(root) :].partition("/")
    if not slash or folder == table_id:
        return None
    try:
        return str(UUID(folder)) if str(UUID(folder)) == folder else None
    except ValueError:
        return None


def _names(root: str, objects: SnapshotObjects) -> Iterable[tuple[str, str]]:
    for location in objects.locations():
        name = object_name(root, location)
        if name is not None:
            yield name.folder, name.id
