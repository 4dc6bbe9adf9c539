"""Export of a table as Iceberg: metadata for engines that plan from Iceberg metadata. Copies no data.

Segments never change, so each segment needs one manifest only: an export writes the missing manifests, then the
snapshot's manifest list, and finally the metadata file that names it. Files are created and never overwritten, so an
interrupted or concurrent export leaves the previous one intact; the next export reuses the files it finds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, Final

import msgspec

from lamella.client.http import Lamella, Table
from lamella.client.http.maintenance import SnapshotLease
from lamella.client.jobs.context import OnProgress
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    JobCancelled,
    NotExpressible,
    ObjectNotFound,
    TagNotFound,
)
from lamella.snapshot.iceberg.export import (
    Exported,
    ExportedVector,
    ListedManifest,
    check_readable,
    current_list,
    entry,
    is_exported,
    list_bytes,
    manifests_of,
    next_metadata,
    next_sequence,
    parent_of,
    read_list,
    says_the_same,
    vectors_of,
)
from lamella.snapshot.iceberg.export_folder import ExportFolder, Version
from lamella.snapshot.manifest import Block, SegmentRef, Snapshot
from lamella.snapshot.parquet import read_footer
from lamella.snapshot.parquet.iceberg_readers import unreadable
from lamella.snapshot.schema import Schema
from lamella.snapshot.storage import ReplacingStore, TableLayout, normal
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import SnapshotInfo

#: The tag that protects an exported snapshot from expiry, unless another is named.
HOLD: Final = "iceberg-export"
#: Block statistics are exported for this many leading columns unless others are named, as Iceberg's writers do.
MAX_COLUMNS: Final = 100
_CACHE_BYTES: Final = 64 << 20
_THREADS: Final = 16
#: How many times an export starts again because another export finished first.
_TRIES: Final = 8
#: Part of manifest names. Changes when manifests are written differently, so that those of older releases are not
#: reused.
_REVISION: Final = "1"


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to export, and where to.

    ``snapshot``: an id, tag or number; None: the current one. ``location``: the folder; None: one in the table's own.
    ``columns``: whose statistics are exported; None: the first :data:`MAX_COLUMNS`. ``hold``: the tag that protects the
    snapshot from expiry; None: :data:`HOLD`, with a suffix for a folder elsewhere. ``no_hold``: set no tag.
    ``trust_files``: do not open registered files to check that Iceberg's readers map their columns correctly.
    """

    snapshot: str | None = None
    location: str | None = None
    columns: tuple[str, ...] | None = None
    hold: str | None = None
    no_hold: bool = False
    trust_files: bool = False


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an export.

    ``is_changed``: False when the export was up to date and nothing was written. ``number``: the snapshot's id in
    Iceberg. ``rows``: those that are not deleted. ``snapshots``: how many snapshots the metadata names; ``forgotten``:
    how many were removed because they expired from the table's history. ``size_bytes``: of all files written.
    """

    snapshot_id: str
    number: int
    location: str
    metadata_location: str
    is_changed: bool
    manifests_written: int
    manifests_reused: int
    files: int
    rows: int
    size_bytes: int
    snapshots: int
    forgotten: int
    held_by: str | None


def export_iceberg(
    lake: Lamella,
    name: str,
    store: ReplacingStore,
    options: ExportOptions | None = None,
    *,
    on_progress: OnProgress | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ExportResult:
    """Export a snapshot of ``namespace.table``; ``store`` reads its manifests and files and writes the export.

    Raises:
        TableNotFound, SnapshotNotFound, SnapshotExpired: no such table or snapshot.
        UnknownColumn: one of the columns whose statistics are requested.
        NotExpressible: a column or file that Iceberg's readers would not read as Lamella does.
        InvalidRequest: the location is in the warehouse but not the table's own folder, or contains another table.
        Conflict: other exports finished first, repeatedly.
        JobCancelled: ``cancelled`` returned true.
        ManifestError, StoreError: an object cannot be read; the previous export stays.
    """
    options = options if options is not None else ExportOptions()
    table = lake.table(name)
    own = table.info().location
    snapshot_id = next(table.snapshots(snapshot_id=options.snapshot, page_size=1)).snapshot_id
    with SnapshotLease(table, snapshot_id=snapshot_id, owner="export as Iceberg"):
        # Listed while the lease protects the snapshot, so that it is among them.
        history = list(table.snapshots())
        export = _Export(store, table.snapshot(snapshot_id), history, own, options, on_progress, cancelled)
        done = export.run()
        protecting_tags = {tag for each in history for tag in each.tags if each.snapshot_id == snapshot_id}
        if done.held_by is not None and done.held_by not in protecting_tags:
            _tag(table, done.held_by, snapshot_id)
        return done


class _Export:
    def __init__(
        self,
        store: ReplacingStore,
        snapshot: Snapshot,
        history: Sequence[SnapshotInfo],
        own: str,
        options: ExportOptions,
        on_progress: OnProgress | None,
        cancelled: Callable[[], bool],
    ) -> None:
        check_readable(snapshot)
        self._store = store
        self._snapshot = snapshot
        self._alive = {each.snapshot_id: each for each in history}
        self._blocks_folder = TableLayout(own).blocks + "/"
        self._folder = ExportFolder(store, _root(own, options.location))
        self._columns = _ids(snapshot.schema, options.columns)
        said = "first" if self._columns is None else ",".join(map(str, sorted(self._columns)))
        if options.trust_files:  # manifests of unchecked files are used by such exports only
            said += ":trusted"
        number = self._alive[snapshot.snapshot_id].number
        if not number:
            raise InvalidRequest("the service is of an older release, which does not number a table's snapshots")
        self._exported = Exported(snapshot=snapshot, number=number, columns=said)
        if snapshot.summary.constants_count:  # a manifest's partition has the constants in the columns that exist
            said += ":" + ",".join(str(column.id) for column in snapshot.schema.columns)
        self._mark = hashlib.sha256(f"{_REVISION}:{said}".encode()).hexdigest()[:8]
        self._options = options
        self._protecting_tag = None if options.no_hold else options.hold or _protecting_tag(options.location)
        self._manifests = Manifests(store, _CACHE_BYTES)
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._written = self._reused = self._size_bytes = 0
        self._specs: set[tuple[int, ...]] = set()
        self._deleted_rows = 0

    def run(self) -> ExportResult:
        there = self._folder.manifests()
        current = self._folder.current()
        known = self._listed(current_list(None if current is None else current.metadata)) or {}
        refs = list(self._manifests.refs(self._snapshot))
        found: list[ListedManifest] = []
        for done, ref in enumerate(refs):
            if self._cancelled():
                raise JobCancelled("the export was cancelled; the one before it stays")
            found += self._there(ref, there, known) or self._write(ref, there)
            if self._on_progress is not None:
                self._on_progress(done + 1, len(refs), "segments")
        self._reused = len(found) - self._written
        self._deleted_rows = sum(each.row_count for each in found if each.is_deletes)
        return self._publish(found)

    def _there(
        self, ref: SegmentRef, sizes: Mapping[str, int], known: Mapping[str, ListedManifest]
    ) -> list[ListedManifest]:
        """The manifests of a segment if they exist: all of them, or none."""
        vectors = self._known(ref, known, "d")
        if ref.summary.deletes_count and not vectors:
            return []
        if ref.summary.constants_count:
            data = self._known(ref, known)
            return [*data, *vectors] if data else []
        location = self._location(ref)
        if location not in sizes:
            return []
        counts = ref.summary.block_count, ref.summary.row_count
        return [self._new(location, sizes[location], *counts), *vectors]

    def _known(self, ref: SegmentRef, known: Mapping[str, ListedManifest], kind: str = "") -> list[ListedManifest]:
        """The numbered manifests of a segment. Their number is not known without its blocks, but a list has all."""
        found = (known.get(self._location(ref, _part(number, kind))) for number in count())
        return [each for each in takewhile(bool, found) if each is not None]

    def _write(self, ref: SegmentRef, there: Mapping[str, int]) -> list[ListedManifest]:
        blocks = self._manifests.segment(ref).blocks
        written = [each for each in self._snapshot.history if each.schema_id in {b.written_with for b in blocks}]
        if not self._options.trust_files:
            self._check(blocks, written)
        columns = self._columns
        if columns is None:
            columns = {leaf.id for schema in written for leaf in schema.leaves()[:MAX_COLUMNS]}
        vectors = self._write_vectors(ref, blocks)
        found = []
        data_numbers, vector_numbers = count(), count()
        for made in manifests_of(blocks, self._snapshot.schema, written, columns, vectors):
            if made.is_deletes:
                part = _part(next(vector_numbers), "d")
            else:
                part = _part(next(data_numbers)) if ref.summary.constants_count else ""
            location = self._location(ref, part)
            size_bytes = there[location] if location in there else self._put(location, made.data)
            self._specs.add(made.partition_columns)
            listed = self._new(location, size_bytes, made.file_count, made.row_count)
            found.append(
                msgspec.structs.replace(
                    listed, spec_id=made.spec_id, partitions=made.partitions, is_deletes=made.is_deletes
                )
            )
        return found

    def _write_vectors(self, ref: SegmentRef, blocks: Sequence[Block]) -> dict[str, ExportedVector]:
        vectors = vectors_of(blocks, self._store, lambda sha256: self._folder.vector(ref.segment_id, sha256))

        def put(vector: ExportedVector) -> int:
            try:
                self._store.put(vector.entry.location, vector.data)
            except AlreadyExists:  # with the same bytes, since it is named by its hash
                return 0
            return len(vector.data)

        if vectors:
            with ContextThreadPool(_THREADS, thread_name_prefix="lamella-export") as pool:
                self._size_bytes += sum(pool.map(put, vectors.values()))
        return vectors

    def _put(self, location: str, data: bytes) -> int:
        self._written += 1
        try:
            self._store.put(location, data)
        except AlreadyExists:  # another export's, of the same blocks
            return self._store.stat(location).size_bytes
        self._size_bytes += len(data)
        return len(data)

    def _new(self, location: str, size_bytes: int, file_count: int, row_count: int) -> ListedManifest:
        """The entry of a manifest that this snapshot is the first to have, as far as is known."""
        return ListedManifest(
            location=location,
            size_bytes=size_bytes,
            added_by=self._exported.number,
            sequence_number=0,
            file_count=file_count,
            row_count=row_count,
        )

    def _check(self, blocks: Sequence[Block], written: Sequence[Schema]) -> None:
        schemas = {schema.schema_id: schema for schema in written}

        def checked(block: Block) -> str | None:
            return unreadable(read_footer(self._store, block.location).metadata.schema, schemas[block.written_with])

        # Files that Lamella's own jobs wrote number their columns as the table does.
        others = [block for block in blocks if not block.location.startswith(self._blocks_folder)]
        with ContextThreadPool(_THREADS, thread_name_prefix="lamella-export") as pool:
            for block, reason in zip(others, pool.map(checked, others), strict=True):
                if reason is not None:
                    raise NotExpressible(
                        f"{block.location} cannot be read as Iceberg: {reason}", location=block.location
                    )

    def _publish(self, manifests: Sequence[ListedManifest]) -> ExportResult:
        tags = {
            tag: each.snapshot_id
            for each in self._alive.values()
            for tag in each.tags
            if tag != self._protecting_tag and not tag.startswith(HOLD)
        }
        for _ in range(_TRIES):
            current = self._folder.current()
            previous = None if current is None else current.metadata
            if previous is not None and previous["table-uuid"] != self._snapshot.table_id:
                raise InvalidRequest(f"{self._folder.root} has another table", location=self._folder.root)
            if current is not None and self._is_superseded(current):
                return self._result(current, current)
            before = None if current is None else current.location
            added = None if is_exported(previous, self._exported) else self._add(previous, manifests)
            metadata = next_metadata(
                previous,
                before,
                self._exported,
                added,
                partition_columns=self._specs,
                location=self._folder.root,
                alive=self._alive,
                tags=tags,
                now_ms=time.time_ns() // 1_000_000,
            )
            if current is not None and says_the_same(previous, metadata):
                self._folder.hint(current.number)
                return self._result(current, current)
            published = self._folder.publish(metadata, after=current)
            if published is not None:
                self._size_bytes += len(msgspec.json.encode(metadata))
                return self._result(published, current)
        raise Conflict(f"other exports to {self._folder.root} were faster {_TRIES} times", location=self._folder.root)

    def _is_superseded(self, current: Version) -> bool:
        """Whether another export of the current snapshot, begun later, has published a later one."""
        return self._options.snapshot is None and current.metadata["current-snapshot-id"] > self._exported.number

    def _add(self, previous: Mapping[str, Any] | None, manifests: Sequence[ListedManifest]) -> dict[str, Any]:
        """Write the manifest list; what the current snapshot has already is known since then."""
        known = self._listed(current_list(previous))
        locations = {each.location for each in manifests}
        # Readers of appended files do not look for deleted rows.
        added_vectors = [each for each in manifests if each.is_deletes and each.location not in (known or {})]
        only_adds = known is not None and known.keys() <= locations and not added_vectors
        known = known or {}
        sequence_number, parent = next_sequence(previous), parent_of(previous, only_adds=only_adds)
        listed = [
            known.get(each.location)
            or msgspec.structs.replace(each, added_by=self._exported.number, sequence_number=sequence_number)
            for each in manifests
        ]
        data = list_bytes(listed, snapshot=self._exported.number, parent=parent, sequence_number=sequence_number)
        location = self._folder.new_list(self._snapshot.snapshot_id)
        self._store.put(location, data)
        self._size_bytes += len(data)
        return entry(
            self._exported, location, listed, sequence_number=sequence_number, parent=parent, only_adds=only_adds
        )

    def _listed(self, at: str | None) -> dict[str, ListedManifest] | None:
        """The manifests that a list names; None: it is gone, with a snapshot that has left the table's history."""
        if at is None:
            return {}
        try:
            return {each.location: each for each in read_list(self._store.read(at))}
        except ObjectNotFound:
            return None

    def _result(self, version: Version, before: Version | None) -> ExportResult:
        named, named_before = _numbers(version), _numbers(before)
        return ExportResult(
            snapshot_id=self._snapshot.snapshot_id,
            number=self._exported.number,
            location=self._folder.root,
            metadata_location=version.location,
            is_changed=version is not before,
            manifests_written=self._written,
            manifests_reused=self._reused,
            files=self._snapshot.summary.block_count,
            rows=self._snapshot.summary.row_count - self._deleted_rows,
            size_bytes=self._size_bytes,
            snapshots=len(named),
            forgotten=len(named_before - named),
            held_by=None if self._is_superseded(version) else self._protecting_tag,
        )

    def _location(self, ref: SegmentRef, part: str = "") -> str:
        return self._folder.manifest(ref.segment_id, self._mark, part)


def _part(number: int, kind: str = "") -> str:
    return f"-{kind}{number}"


def _root(own: str, location: str | None) -> str:
    default = TableLayout(own).iceberg
    if location is None:
        return default
    root = normal(location).rstrip("/")
    warehouse = own.rpartition("/")[0]
    if root != default and f"{root}/".startswith(f"{warehouse}/"):
        raise InvalidRequest(
            f"{location} is in the warehouse {warehouse}, where tables have their own folders; use another location",
            location=location,
        )
    return root


def _protecting_tag(location: str | None) -> str:
    return HOLD if location is None else f"{HOLD}-{hashlib.sha256(location.encode()).hexdigest()[:8]}"


def _ids(schema: Schema, names: Iterable[str] | None) -> set[int] | None:
    return None if names is None else set(schema.select(names))


def _tag(table: Table, name: str, snapshot_id: str) -> None:
    try:
        table.tag(name, snapshot_id, move=True)
    except TagNotFound:  # nothing was exported yet, or somebody dropped it
        table.tag(name, snapshot_id)


def _numbers(version: Version | None) -> set[int]:
    return set() if version is None else {each["snapshot-id"] for each in version.metadata["snapshots"]}
