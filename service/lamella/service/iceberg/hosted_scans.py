"""Plans scans of tables that Iceberg clients commit to.

The files are those of the client's manifests, with their partitions and delete files. Lamella's blocks say which of
them can match, as far as the snapshot's files are registered; other snapshots are planned without statistics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.service.iceberg.hosted import HostedTable, HostedTables
from lamella.service.iceberg.registered import RegisteredSnapshots
from lamella.snapshot.errors import InvalidRequest, NotExpressible
from lamella.snapshot.iceberg.filter import IcebergResiduals, filter_for
from lamella.snapshot.iceberg.metadata import MAIN, is_pyiceberg, read_as_text, require_known_constants
from lamella.snapshot.iceberg.scan_plan import blocks_of
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.iceberg.wire import PlanTableScan
from lamella.snapshot.manifest import FEATURES, SnapshotPointer
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

if TYPE_CHECKING:  # pyiceberg is loaded when it is used
    from lamella.snapshot.iceberg.snapshot_files import SnapshotFiles

#: Snapshots whose files stay in memory.
_SNAPSHOTS: Final = 16
_FILES: Final = 500_000
_ALL: Final = b"true"

Note = Callable[[TableRecord, PlanTableScan, PruneResult], None]


class HostedScans:
    """Plans scans; every method blocks. ``note`` is called for each plan that blocks have decided."""

    def __init__(self, *, catalog: Catalog, warehouse: Warehouse, hosted: HostedTables, note: Note) -> None:
        self._warehouse = warehouse
        self._hosted = hosted
        self._note = note
        self._registered = RegisteredSnapshots(catalog, warehouse)
        self._lock = Lock()
        #: By the location of the manifest list, the one used last at the end.
        self._files: OrderedDict[str, SnapshotFiles] = OrderedDict()

    def plan(
        self,
        record: TableRecord,
        table: HostedTable,
        request: PlanTableScan,
        max_tests: int | None = None,
        *,
        user_agent: str = "",
    ) -> Iterator[bytes]:
        """Return the members of a complete plan as JSON, piece by piece.

        ``user_agent``: the client, as it names itself.

        Raises:
            InvalidRequest: no such snapshot, or an invalid filter (its subclasses).
            NotExpressible: a range of snapshots, a partition value without a form in JSON, or values of folders that
                the client would read wrongly.
            ManifestError, ObjectNotFound, StoreError: a manifest cannot be read.
            NotNow: it takes more than ``max_tests``.
        """
        if request.start_snapshot_id is not None or request.end_snapshot_id is not None:
            raise NotExpressible("the service plans no ranges of snapshots of this table: plan them by its manifests")
        metadata = self._hosted.metadata(table.location)
        snapshot = _snapshot(metadata, request.snapshot_id)
        if snapshot is None:
            return iter((b'"file-scan-tasks":[]',))
        found = self._snapshot_files(record, metadata, snapshot, nulls=not is_pyiceberg(user_agent))
        pointer: SnapshotPointer | None = None
        if table.is_registered and snapshot["snapshot-id"] == metadata.get("current-snapshot-id"):
            pointer = table.record.pointer
        else:
            entry = self._registered.at(record, snapshot["snapshot-id"])
            pointer = None if entry is None else entry.pointer
        if is_pyiceberg(user_agent):
            self._require_readable(pointer, found)
        if pointer is None:
            left = _ALL if request.filter is None else msgspec.json.encode(request.filter)
            return _members(found, dict.fromkeys(found.files, left))
        return _members(found, self._matches(record, pointer, request, found, max_tests))

    def _require_readable(self, pointer: SnapshotPointer | None, found: SnapshotFiles) -> None:
        """Raise NotExpressible if pyiceberg (0.12) would miss values that are only in partitions.

        ``pointer``: None: it is not known whether files have the values themselves.
        """
        has_constants = True
        if pointer is not None:
            with trusted_manifests():
                head = self._warehouse.head(pointer)
            require_known_constants(head)
            has_constants = head.summary.constants_count > 0
        elif found.text_column is not None:
            raise read_as_text(found.text_column)
        if has_constants and found.leaves_out:
            raise NotExpressible(
                "pyiceberg reads no plan with a null in a partition, and the files have not all values themselves: set"
                " the catalog's property scan-planning-mode=client"
            )

    def _matches(
        self,
        record: TableRecord,
        pointer: SnapshotPointer,
        request: PlanTableScan,
        found: SnapshotFiles,
        max_tests: int | None,
    ) -> dict[str, bytes]:
        """Return the residual filters of the files that can match, by location."""
        with trusted_manifests():
            head = self._warehouse.head(pointer)
            spoken = head.schema if request.use_snapshot_schema else self._warehouse.head(record.pointer).schema
            sensitive = request.case_sensitive
            filter = filter_for(request.filter, spoken, head.schema, case_sensitive=sensitive)
            residuals = IcebergResiduals(filter, head.schema, case_sensitive=sensitive)
            result = self._warehouse.find_predicate(
                pointer,
                filter.predicate,
                PruneRequest(case_sensitive=sensitive, reader_features=FEATURES),
                max_tests=max_tests,
            )
        self._note(record, request, result)
        matches: dict[str, bytes] = {}
        for block in blocks_of(result.parts(), residuals):
            location = block.part.sidecar.text_at("location", block.row)
            matches[location] = _ALL if block.left is True else bytes(block.left)
        if not matches.keys() <= found.files.keys():
            raise NotExpressible("the table has blocks that are not in its Iceberg metadata")
        return matches

    def _snapshot_files(self, record: TableRecord, metadata: Json, snapshot: Json, *, nulls: bool) -> SnapshotFiles:
        """Return the files of a snapshot, which never change. ``nulls``: whether partitions may have some."""
        key = f"{record.table_id} {nulls} {snapshot['manifest-list']}"
        with self._lock:
            found = self._files.get(key)
            if found is not None:
                self._files.move_to_end(key)
                return found
        from lamella.snapshot.iceberg.snapshot_files import snapshot_files

        found = snapshot_files(metadata, snapshot, self._hosted.manifests, self._hosted.reader_of(record), nulls=nulls)
        with self._lock:
            self._files[key] = found
            while len(self._files) > _SNAPSHOTS or (
                len(self._files) > 1 and sum(len(each.files) for each in self._files.values()) > _FILES
            ):
                self._files.popitem(last=False)
        return found


def _snapshot(metadata: Json, number: int | None) -> Json | None:
    """Return the snapshot with an id; None: the current one, if there is any. Raises InvalidRequest."""
    if number is None:
        ref = metadata["refs"].get(MAIN)
        if ref is None:
            return None
        number = ref["snapshot-id"]
    for each in metadata["snapshots"]:
        if each["snapshot-id"] == number:
            return dict(each)
    raise InvalidRequest(f"the table has no snapshot with the id {number}, or it has expired", snapshot_id=number)


def _members(found: SnapshotFiles, left: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the members of an answer with the tasks of some files; ``left``: their residual filters."""
    positions: dict[int, int] = {}
    for location in left:
        for each in found.files[location].deletes:
            positions.setdefault(each, len(positions))
    if positions:
        yield b'"delete-files":[%b],' % b",".join(found.delete_files[each] for each in positions)
    yield b'"file-scan-tasks":['
    tasks: list[bytes] = []
    for location, residual in left.items():
        file = found.files[location]
        references: Any = [positions[each] for each in file.deletes]
        deletes = b',"delete-file-references":%b' % msgspec.json.encode(references) if references else b""
        tasks.append(b'{"data-file":%b%b,"residual-filter":%b}' % (file.data_file, deletes, residual))
    yield b",".join(tasks)
    yield b"]"
