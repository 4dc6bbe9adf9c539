"""Mark and sweep: what the remaining snapshots need, and which objects are to be deleted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, Protocol
from uuid import UUID

import msgspec

from lamella.snapshot.errors import ObjectNotFound
from lamella.snapshot.ids import is_uuid7
from lamella.snapshot.manifest import SegmentRef, SnapshotPointer
from lamella.snapshot.storage import ListedObject
from lamella.snapshot.warehouse import SnapshotObjects, Warehouse

Kind = Literal[
    "snapshot",
    "group",
    "segment",
    "pages",
    "sketch",
    "index",
    "block",
    "deletes",
    "temporary",
    "external",
    "export",
    "replaced",
    "iceberg",
]

_ID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAME: Final = re.compile(
    rf"(?P<folder>_ss|_sl|_sg|_ts|_ix|_b|_dv|_rf|_tmp)/(?P<id>{_ID})_v(?P<version>[123])\.(?P<kind>[a-z]+)"
)
_TEMPORARY: Final = re.compile(
    rf"(?P<folder>_ss|_sl|_sg|_ts|_ix|_b|_dv|_rf|_tmp)/\.(?P<id>{_ID})_v[123]\.[a-z]+\.[0-9a-f]{{32}}\.tmp"
)
#: Rows that Spark writes before they become blocks: its files, with those of tasks that did not end.
_ROWS: Final = re.compile(rf"(?P<folder>_tmp)/(?P<id>{_ID})_v1\.rows/[^\n]+")
#: Files of an Iceberg export belong to a segment or a snapshot, or to the table as a whole.
_EXPORTED: Final = re.compile(
    rf"_iceberg/metadata/(?:(?P<segment>{_ID})-(?:[0-9a-f]{{8}}(?:-d?[0-9]+)?\.avro|[0-9a-f]{{32}}\.puffin)"
    rf"|snap-(?P<snapshot>{_ID})-[0-9a-f]{{8}}\.avro"
    rf"|v[1-9][0-9]*\.metadata\.json|version-hint\.text)"
)
#: Left behind by an interrupted put of such a file.
_UNFINISHED: Final = re.compile(r"_iceberg/metadata/\.[^/]+\.[0-9a-f]{32}\.tmp")
_KINDS: Final[dict[tuple[str, str], Kind]] = {
    ("_ss", "json"): "snapshot",
    ("_ss", "arrow"): "snapshot",
    ("_sl", "json"): "group",
    ("_sl", "arrow"): "group",
    ("_sl", "loc"): "group",
    ("_sg", "json"): "segment",
    ("_sg", "arrow"): "segment",
    ("_sg", "pages"): "pages",
    ("_ts", "hll"): "sketch",
    ("_ix", "part"): "index",
    ("_ix", "dir"): "index",
    ("_b", "parquet"): "block",
    ("_dv", "puffin"): "deletes",
    ("_rf", "set"): "replaced",
    ("_tmp", "run"): "temporary",
    ("_tmp", "part"): "temporary",
    ("_tmp", "blocks"): "temporary",
    ("_tmp", "commit"): "temporary",
}


class ObjectName(msgspec.Struct, frozen=True):
    """A parsed object name: the kind, the folder, the v7 id and when (Unix milliseconds) that id was created.

    A file of an export has the folder and id of its source; one about the whole table has none.
    """

    kind: Kind
    folder: str
    id: str
    made_ms: int


def object_name(root: str, location: str) -> ObjectName | None:
    """Parses the location of an object; None if it is not below ``root``, or not a name that Lamella uses.

    ``root``: the table's folder, without a trailing slash. A folder with the same prefix (``abc-2`` next to ``abc``) is
    another folder.
    """
    if not location.startswith(root + "/"):
        return None
    below = location[len(root) + 1 :]
    if below.startswith("_iceberg/"):
        return _exported(below)
    found = _NAME.fullmatch(below)
    kind: Kind | None = "temporary"
    if found is not None:
        kind = _KINDS.get((found["folder"], found["kind"]))
    else:  # left behind by an interrupted put, before the file was renamed, or by a job of Spark
        found = _TEMPORARY.fullmatch(below) or _ROWS.fullmatch(below)
    if found is None or kind is None or not is_uuid7(found["id"]):
        return None
    return ObjectName(kind, found["folder"], found["id"], UUID(found["id"]).int >> 80)


def _exported(below: str) -> ObjectName | None:
    if _UNFINISHED.fullmatch(below) is not None:
        return ObjectName("temporary", "", "", 0)
    found = _EXPORTED.fullmatch(below)
    if found is None:
        return None
    of = found["segment"] or found["snapshot"]
    if of is None:
        return ObjectName("export", "", "", 0)
    return ObjectName("export", "_sg" if found["segment"] else "_ss", of, UUID(of).int >> 80) if is_uuid7(of) else None


#: Returns whether a snapshot has left the history since it was found there.
IsExpired = Callable[[SnapshotPointer], bool]


class LiveSet:
    """What a table's snapshots need, collected snapshot by snapshot; it only grows.

    An object is needed if the snapshots need any object of its folder with its id: a sidecar of an unknown kind is safe
    next to its manifest.

    ``is_expired`` is called for a snapshot that lacks an object: another clean-up may have expired and deleted it. A
    snapshot that has left the history needs nothing.
    """

    def __init__(self, warehouse: Warehouse, root: str, is_expired: IsExpired) -> None:
        self._warehouse = warehouse
        self._root = root
        self._is_expired = is_expired
        self._pointers: dict[str, SnapshotPointer] = {}
        self._ids: set[tuple[str, str]] = set()
        self._blocks: BlockSet | None = None

    def add(self, pointers: Iterable[SnapshotPointer]) -> None:
        """Add snapshots; adding one again costs nothing.

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, ObjectNotFound, StoreError: a manifest of a snapshot that is
                not gone cannot be read, so what it needs is unknown and nothing may be deleted.
        """
        for pointer in pointers:
            if pointer.snapshot_id in self._pointers:
                continue
            try:
                self._ids.update(_names(self._root, self._warehouse.objects(pointer)))
            except ObjectNotFound:
                if not self._is_expired(pointer):
                    raise
                continue
            self._pointers[pointer.snapshot_id] = pointer
            if self._blocks is not None:
                self._blocks.add([pointer])

    def holds(self, name: ObjectName, location: str) -> bool:
        """Returns whether a snapshot needs the object. Raises as :meth:`add`."""
        if name.kind == "temporary":
            return False
        if name.kind in ("block", "deletes"):
            if self._blocks is None:  # only if there is one to check: this reads every segment's sidecar
                blocks = BlockSet(self._warehouse, self._is_expired)
                blocks.add(self._pointers.values())
                self._blocks = blocks
            return location in self._blocks
        if name.kind == "export" and not name.id:
            return bool(self._pointers)
        return (name.folder, name.id) in self._ids


class BlockSet:
    """The blocks of snapshots, of one or more tables, and their lists of deleted rows.

    ``is_expired``: as for :class:`LiveSet`.
    """

    def __init__(self, warehouse: Warehouse, is_expired: IsExpired) -> None:
        self._warehouse = warehouse
        self._is_expired = is_expired
        self._segments: set[str] = set()
        self._locations: set[str] = set()

    def add(self, pointers: Iterable[SnapshotPointer]) -> None:
        """Add snapshots; each segment is read once. Raises as :meth:`LiveSet.add`."""
        for pointer in pointers:
            try:
                self._locations.update(self._warehouse.block_locations(pointer, skip=self._segments))
                self._locations.update(self._warehouse.delete_locations(pointer, skip=self._segments))
                self._segments.update(ref.segment_id for ref in self._warehouse.segments(pointer))
            except ObjectNotFound:
                if not self._is_expired(pointer):
                    raise

    def __contains__(self, location: str) -> bool:
        return location in self._locations

    def others(self, pointer: SnapshotPointer) -> Iterable[SegmentRef]:
        """Returns the segments of a snapshot that none of the added ones has."""
        return (ref for ref in self._warehouse.segments(pointer) if ref.segment_id not in self._segments)


class Rooted(Protocol):
    """An object that knows the locations of tables."""

    def table_location(self, table_id: str) -> str:
        """Returns the folder of a table."""


def foreign_table(warehouse: Rooted, table_id: str, location: str) -> str | None:
    """Returns the id of the other table whose folder contains a file; None if the file is in this table's folder, or in
    none.

    Files in a table's folder belong to that table and are deleted with it: no other table may register them.
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


Verdict = Literal["garbage", "live", "young", "unknown"]


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """A number of objects, and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> Tally:
        """Returns the tally with one more object."""
        return Tally(objects=self.objects + 1, size_bytes=self.size_bytes + size_bytes)

    def __add__(self, other: Tally) -> Tally:
        return Tally(objects=self.objects + other.objects, size_bytes=self.size_bytes + other.size_bytes)


class ClassifiedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object and its status in the table; ``name`` is None for ``unknown``."""

    verdict: Verdict
    location: str
    size_bytes: int
    name: ObjectName | None

    @property
    def kind(self) -> Kind | None:
        """Returns the kind of the name."""
        return None if self.name is None else self.name.kind


def judged(listing: Iterable[ListedObject], root: str, live: LiveSet, *, before_ms: int) -> Iterator[ClassifiedObject]:
    """Yields each object of a table's folder with its verdict, in the order of the listing.

    An object is garbage only if both the time in its name and the store's own modification time are before
    ``before_ms``: a running commit or job has objects that no snapshot needs yet. An object with an unknown name is
    never garbage. Raises as :meth:`LiveSet.add`.
    """
    for found in listing:
        name = object_name(root, found.location)
        verdict: Verdict
        if name is None:
            verdict = "unknown"
        elif max(name.made_ms, found.modified_ms) >= before_ms:
            verdict = "young"
        else:
            verdict = "live" if live.holds(name, found.location) else "garbage"
        yield ClassifiedObject(verdict=verdict, location=found.location, size_bytes=found.size_bytes, name=name)
