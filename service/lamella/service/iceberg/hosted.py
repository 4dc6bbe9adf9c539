"""Tables that Iceberg clients create and commit to: this service is their catalog.

The current metadata file of such a table is a property of its snapshot, so the pointer of the table decides which of
two commits comes first, and a snapshot and its metadata cannot differ. Each commit writes a new metadata file, reads
the client's manifests and the footers of its new files, and registers the files as blocks. What the client commits is
kept even if Lamella cannot read it (equality deletes, files other than Parquet): then Lamella's readers get an error
that says why, until a commit that they can read.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from cachetools import LRUCache
from structlog.typing import FilteringBoundLogger

from lamella.service.catalog import BRANCH_SIGN, Catalog, CommitGuard, TableRecord
from lamella.service.commits.committer import Committer, TableStep
from lamella.service.commits.queue import MakeAnswer, MakeRefs
from lamella.service.commits.transactions import error_of
from lamella.service.external.external import External
from lamella.service.history.history import history_entry, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered, finished
from lamella.service.iceberg.hosted_refs import HostedRefs, has_other_refs, read_or_reason, reason_of
from lamella.service.iceberg.registered import is_of_client
from lamella.service.maintenance.iceberg_files import ICEBERG_FOLDER
from lamella.service.tables.names import LocationRules, check_name
from lamella.snapshot.concurrency import SingleFlight
from lamella.snapshot.delete_policy import DELETE_MODE
from lamella.snapshot.errors import (
    AlreadyExists,
    CommitConflict,
    CommitRequirementFailed,
    Conflict,
    DuplicateBlock,
    InvalidRequest,
    LamellaError,
    ManifestError,
    NotExpressible,
    SchemaConflict,
    StoreError,
    TableNotFound,
    TransactionConflict,
    Unavailable,
)
from lamella.snapshot.iceberg.metadata import NAME_MAPPING
from lamella.snapshot.iceberg.table_metadata import (
    WITH_ROW_IDS,
    WRITTEN_VERSIONS,
    Json,
    changed,
    check_requirements,
    completed,
    current_schema,
    current_snapshot,
    fields_of,
    ids_of,
    new_metadata,
    required_fields,
)
from lamella.snapshot.iceberg.wire import (
    CommitIcebergTable,
    CreateIcebergTable,
    IcebergPointer,
    RegisterIcebergTable,
)
from lamella.snapshot.ids import Ids, is_uuid7
from lamella.snapshot.manifest import Block, Snapshot, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.source import (
    AFTER,
    FIELDS,
    HOSTED,
    IDENTITY,
    LOCATION,
    READ_ONLY,
    REQUIRED,
    UNREAD,
    VERSION,
    Reader,
    first_columns,
    first_properties,
    refuse_unwritable,
    source_of,
    source_properties,
)
from lamella.snapshot.storage import Store, normal
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import ExternalSource

if TYPE_CHECKING:  # pyiceberg is loaded when it is used
    from lamella.snapshot.iceberg.manifest_entries import ManifestEntries, Read

#: The operation of the snapshot whose metadata file has what Lamella's writers changed.
PUBLISH: Final = "publish"
#: How often a commit is tried if other changes of the table come first.
_TRIES: Final = 4
_METADATA_FOLDER: Final = "write.metadata.path"
_JSON: Final = msgspec.json.Decoder(dict[str, Any])
_FIELDS: Final = msgspec.json.Decoder(dict[int, int])
_CREATE: Final = "assert-create"
#: How often Lamella's changes are published before a load gives up, while others commit.
_PUBLISHING_TRIES: Final = 8
#: Memory for metadata files, and the largest file that is kept there.
_FILES_BYTES: Final = 64 << 20
_MAX_FILE_BYTES: Final = 8 << 20
#: How many snapshots without changes of blocks are remembered.
_REMEMBERED: Final = 10_000
#: How many snapshots back the last commit of a client is looked for.
_STEPS: Final = 200
#: Operations after which a table has the same rows.
_SAME_ROWS: Final = frozenset({"compact", "recluster", "purge"})
#: The column of a table whose own columns have no form in Lamella, until they have.
_PLACEHOLDER: Final = (Column(name="unread", type="boolean"),)
#: Why Lamella does not write a table whose files a refresh has read, and no commit yet.
_NOT_CHECKED: Final = "no commit of an Iceberg client has followed since its files could be read"
_BEING_READ: Final = "its files are being registered"
#: The parts of the metadata that the blocks and columns depend on.
_OF_ROWS: Final = ("current-snapshot-id", "schemas", "current-schema-id")
#: Codes of errors after which a commit is tried again on the next snapshot.
_RETRIED: Final = frozenset({CommitConflict.code, DuplicateBlock.code, SchemaConflict.code})


class HostedTable(NamedTuple):
    """A table of Iceberg clients. ``location``: its metadata file. ``is_registered``: it has blocks, of all files."""

    record: TableRecord
    location: str
    is_registered: bool


class _Change(NamedTuple):
    """The next snapshot of a table. ``written``: its metadata file."""

    record: TableRecord
    written: str
    step: Callable[[SnapshotPointer], CommitResult]
    guard: CommitGuard | None
    refs: MakeRefs | None = None


#: Returns updates of a table, its snapshot and its metadata, which has all changes of Lamella's writers.
OwnUpdates = Callable[[TableRecord, Snapshot, Json], list[Json]]


class HostedTables:
    """Creates, loads and changes tables that Iceberg clients commit to. Every method blocks."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        reader: Reader,
        committer: Committer,
        external: External,
        rules: LocationRules,
        ids: Ids,
        clock: Callable[[], int],
        log: FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._reader = reader
        self._committer = committer
        self._external = external
        self._rules = rules
        self._ids = ids
        self._clock = clock
        self._log = log
        self._refs = HostedRefs(catalog=catalog, warehouse=warehouse, external=external, ids=ids, clock=clock, log=log)
        self._publishing = SingleFlight()
        self._manifests: ManifestEntries | None = None
        self._lock = threading.Lock()
        self._files: LRUCache[str, bytes] = LRUCache(_FILES_BYTES, getsizeof=len)
        #: Snapshots that differ from their metadata file in no block, by table and snapshot.
        self._same: dict[tuple[str, str], bool] = {}

    def table(self, record: TableRecord) -> HostedTable | None:
        """Return where the metadata of a table is, with what Lamella's writers changed; None if Iceberg clients do not
        commit to it.

        Raises:
            NotExpressible: what they changed has no form in Iceberg, or it is a branch.
            Unavailable: others change the table all the time.
        """
        if self.location_of(record) is None:
            return None
        record, head, location = self._published(record)
        return HostedTable(record, location, head.summary.block_count > 0 and not head.properties.get(UNREAD))

    def location_of(self, record: TableRecord) -> str | None:
        """Return the metadata file of a table, without what Lamella's writers changed since; None as :meth:`table`.

        Raises NotExpressible for a branch.
        """
        location = _hosted(self._head(record.pointer))
        if location is not None:
            _refuse_branch(record)
        return location

    def _published(self, record: TableRecord) -> tuple[TableRecord, Snapshot, str]:
        """Return a table whose metadata file has all changes, its snapshot and that file."""
        for _ in range(_PUBLISHING_TRIES):
            head = self._head(record.pointer)
            location = _require_hosted(record, head)
            known = (record.table_id, record.pointer.snapshot_id)
            if is_of_client(head) or known in self._same or head.properties.get(UNREAD):
                return record, head, location
            try:
                is_same = self._publishing.run(known, partial(self._publish, record, head, location))
            except CommitConflict:
                is_same = False
            if is_same:
                if len(self._same) >= _REMEMBERED:
                    self._same = {}
                self._same[known] = True
                return record, head, location
            record = self._catalog.table_by_id(record.table_id)
        raise Unavailable("the table is being changed by others; try again", retry_after_s=1)

    def _publish(self, record: TableRecord, head: Snapshot, location: str) -> bool:
        """Commit the Iceberg snapshot of what Lamella's writers changed; return True if they changed no block.

        Raises CommitConflict if another commit came first.
        """
        from lamella.snapshot.iceberg.snapshot_writer import write_snapshot

        metadata = self.metadata(location)
        before, after, same_rows = self._blocks_since(record, metadata)
        added = [block for each, block in sorted(after.items()) if each not in before]
        removed = before - after.keys()
        if not added and not removed:
            return True
        taken = {each["snapshot-id"] for each in metadata["snapshots"]}
        snapshot_id = next(each for each in iter(lambda: secrets.randbits(62), None) if each not in taken)
        now_ms = max(self._clock(), metadata["last-updated-ms"])
        written = write_snapshot(
            metadata,
            self.manifests,
            self.reader_of(record),
            added=added,
            removed=removed,
            schema=head.schema,
            total=head.summary,
            snapshot_id=snapshot_id,
            name=lambda kind: normal(f"{_folder(metadata)}/{kind}-{snapshot_id}-{uuid.uuid4()}.avro"),
            same_rows=same_rows,
            now_ms=now_ms,
        )
        for each, data in written.files.items():
            self._store.put(each, data)
        next_metadata = changed(metadata, written.updates, location, now_ms=now_ms)
        assert next_metadata is not None  # noqa: S101  # a snapshot is a change
        new_location = self.write_metadata(record.namespace, record.table_id, next_metadata)
        step = self._pointer_step(record, new_location, next_metadata, None, PUBLISH)
        change = _Change(record, new_location, step, None)
        try:
            self._queued(change, IdempotencyKey(None, "", "", now_ms)).wait()
        except Conflict:
            self.discard(new_location, *written.files)
            raise
        return False

    def _blocks_since(self, record: TableRecord, metadata: Json) -> tuple[set[str], dict[str, Block], bool]:
        """Return the files of the metadata and the blocks of the table, without those that both certainly have; and
        whether all changes since the metadata left the rows as they were."""
        from pyiceberg.manifest import ManifestContent

        own = {ref.segment_id: ref for ref in self._warehouse.segments(record.pointer)}
        base: SnapshotPointer | None = None
        operations: set[str] = set()
        for entry in self._catalog.history(record.table_id, before_seq=record.version + 1, limit=_STEPS):
            then = self._head(entry.pointer)
            if not is_of_client(then):
                operations.add(then.operation)
            else:
                base = None if then.properties.get(UNREAD) else entry.pointer
                break
        before: set[str] = set()
        if base is not None:
            for ref in self._warehouse.segments(base):
                if own.pop(ref.segment_id, None) is None:
                    before.update(each.location for each in self._warehouse.identities(ref))
        else:
            snapshot, read = current_snapshot(metadata), self.reader_of(record)
            for manifest in () if snapshot is None else self.manifests.listed(snapshot["manifest-list"], read):
                if manifest.content != ManifestContent.DELETES:
                    before.update(normal(file.path) for file in self.manifests.files(manifest, read))
        after = {block.location: block for ref in own.values() for block in self._warehouse.segment(ref).blocks}
        return before, after, base is not None and operations <= _SAME_ROWS

    @property
    def manifests(self) -> ManifestEntries:
        """Return what reads manifests, which remembers them."""
        from lamella.snapshot.iceberg.manifest_entries import ManifestEntries

        if self._manifests is None:
            self._manifests = ManifestEntries()
        return self._manifests

    def reader_of(self, record: TableRecord) -> Read:
        """Return what reads the manifests that clients name: only where the table may have files."""
        from lamella.snapshot.iceberg.manifest_entries import Read

        allowed, store = self._rules.of(record.namespace, record.main_id), self._store
        return Read(lambda location: store.read(normal(location)), lambda location: allowed.require(normal(location)))

    def metadata(self, location: str, *, from_store: bool = False) -> Json:
        """Return the metadata in a file. ``from_store``: it is read even if it is remembered, since it may be gone.

        Raises:
            ObjectNotFound, StoreError: it cannot be read.
            ManifestError: it is damaged.
        """
        with self._lock:
            data = None if from_store else self._files.get(location)
        if data is None:
            data = self._store.read(location)
            self._remember(location, data)
        try:
            return completed(_JSON.decode(data))
        except (msgspec.DecodeError, InvalidRequest) as error:
            raise ManifestError(
                f"{location} is not the metadata of an Iceberg table: {error}", location=location
            ) from error

    def _remember(self, location: str, data: bytes) -> None:
        """Keep a metadata file, which never changes."""
        if len(data) <= _MAX_FILE_BYTES:
            with self._lock:
                self._files[location] = data

    def staged(self, namespace: str, request: CreateIcebergTable) -> tuple[str, Json]:
        """Return the id and the metadata of a table that a commit is going to create.

        Raises:
            InvalidRequest: the name, schema, partition spec, sort order or location.
            LocationRefused: the location is not allowed.
            NamespaceNotFound, AlreadyExists: the state of the catalog.
        """
        self._refuse_existing(namespace, check_name("table", request.name))
        return self._new(namespace, request)

    def create(self, namespace: str, request: CreateIcebergTable, key: IdempotencyKey) -> StoredResponse:
        """Create a table. Raises as :meth:`staged`, and QuotaExceeded."""
        name = check_name("table", request.name)
        self._refuse_existing(namespace, name)
        table_id, metadata = self._new(namespace, request)
        return self._add(namespace, name, table_id, metadata, key)

    def register(self, namespace: str, request: RegisterIcebergTable, key: IdempotencyKey) -> StoredResponse | Pending:
        """Add a table by its metadata file, or give an existing one that metadata (``overwrite``).

        Raises, here or when awaited:
            InvalidRequest: the name or the file; the file is of another table than the one to be overwritten.
            LocationRefused: tables of this namespace may not use the file's location.
            ObjectNotFound, StoreError: the file cannot be read.
            NotExpressible: the table to be overwritten is not one of Iceberg clients.
            NamespaceNotFound, AlreadyExists, QuotaExceeded, Unavailable: the state of the catalog.
        """
        name = check_name("table", request.name)
        location = normal(request.metadata_location)
        if request.overwrite:
            with suppress(TableNotFound):
                record = self._catalog.table(namespace, name)
                self._rules.of(namespace, record.table_id).require(location)
                return self._replace(record, location, self.metadata(location, from_store=True), key, _TRIES)
        self._refuse_existing(namespace, name)
        self._rules.of(namespace, None).require(location)
        metadata = self.metadata(location, from_store=True)
        table_id = str(self._ids.new())
        self._check_location(namespace, table_id, metadata["location"], is_registered=True)
        return self._add(namespace, name, table_id, metadata, key, location=location)

    def commit(
        self, namespace: str, name: str, request: CommitIcebergTable, key: IdempotencyKey
    ) -> StoredResponse | Pending:
        """Commit a client's updates, or create the table.

        Raises, here or when awaited:
            InvalidRequest: an update or a requirement.
            CommitRequirementFailed: the table is no longer as the client requires.
            LocationRefused: the table may not use a location.
            TableNotFound, NamespaceNotFound, QuotaExceeded: the state of the catalog.
            NotExpressible: a table that Iceberg clients cannot commit to.
            StoreError, Unavailable: nothing was committed.
        """
        try:
            record = self._catalog.table(namespace, name)
        except TableNotFound:
            if all(each.get("type") != _CREATE for each in request.requirements):
                raise
            check_requirements(request.requirements, None)
            metadata = changed(None, request.updates, None, now_ms=self._clock())
            assert metadata is not None  # noqa: S101  # a new table is a change
            metadata.setdefault("table-uuid", str(uuid.uuid4()))
            table_id = self._table_id_in(metadata["location"])
            self._check_location(namespace, table_id, metadata["location"])
            try:
                return self._add(namespace, name, table_id, metadata, key)
            except AlreadyExists as error:
                if "view" in error.details:
                    raise
                raise CommitRequirementFailed("Requirement failed: table already exists") from error
        return self._commit(record, request, key, _TRIES)

    def commit_all(self, changes: Sequence[tuple[str, str, CommitIcebergTable]], key: IdempotencyKey) -> StoredResponse:
        """Commit to several tables, all or nothing; each with its namespace and name.

        Raises:
            InvalidRequest: a table is named twice.
            TransactionConflict: tables are no longer as the client requires; all of them are named.
            LamellaError: of another kind, as :meth:`commit` for the first table that has one.
        """
        for tries in range(_TRIES, 0, -1):
            prepared, errors, seen = [], [], set()
            for namespace, name, request in changes:
                table = f"{namespace}.{name}"
                if table in seen:
                    raise InvalidRequest(f"the transaction names {table} twice")
                seen.add(table)
                try:
                    change = self._change(self._catalog.table(namespace, name), request)
                except LamellaError as error:
                    errors.append((table, error))
                    continue
                if not isinstance(change, str):
                    prepared.append((table, change))
            written = [change.written for _, change in prepared]
            if errors:
                self.discard(*written)
                raise error_of(errors)
            if not prepared:
                return answered(self._catalog, key, msgspec.Raw(b"{}"))
            try:
                steps = [TableStep(table, each.record, each.step, each.guard, each.refs) for table, each in prepared]
                return self._committer.steps_together(steps, key, lambda _: key.store_as(200, msgspec.Raw(b"{}")))
            except TransactionConflict as error:
                self.discard(*written)
                if tries == 1 or not all(each["code"] in _RETRIED for each in error.details["conflicts"]):
                    raise
            except Conflict:
                self.discard(*written)
                raise
        raise AssertionError  # the last attempt returns or raises

    # Parts of the above.

    def _head(self, pointer: SnapshotPointer) -> Snapshot:
        with trusted_manifests():
            return self._warehouse.head(pointer)

    def _refuse_existing(self, namespace: str, name: str) -> None:
        try:
            self._catalog.table(namespace, name)
        except TableNotFound:
            return
        raise AlreadyExists(f"Table already exists: {namespace}.{name}", namespace=namespace, table=name)

    def _new(self, namespace: str, request: CreateIcebergTable) -> tuple[str, Json]:
        """Return the id and the metadata of a new table."""
        table_id = str(self._ids.new())
        location = request.location
        if location is None:
            location = self.own_location(table_id)
        else:
            self._check_location(namespace, table_id, location)
        metadata = new_metadata(
            request.schema,
            spec=request.partition_spec,
            order=request.write_order,
            properties=request.properties,
            location=location,
            table_uuid=table_id,
            now_ms=self._clock(),
        )
        return table_id, metadata

    def own_location(self, table_id: str) -> str:
        """Return the folder of a table's Iceberg files.

        Lamella's manifests are not in it: clients delete files there that no metadata names (``remove_orphan_files``).
        """
        return f"{self._warehouse.table_location(table_id)}/{ICEBERG_FOLDER}"

    def _check_location(self, namespace: str, table_id: str, location: str, *, is_registered: bool = False) -> None:
        """Raise LocationRefused, or InvalidRequest, if a table may not have its files there.

        ``is_registered``: it has them already, and they may be those of a table that was dropped.
        """
        found = normal(location).rstrip("/")
        self._rules.of(namespace, table_id).require_all_below(found)
        root = self._warehouse.table_location("").rstrip("/")
        if f"{root}/".startswith(f"{found}/"):
            raise InvalidRequest(f"{location} contains the files of the service", location=location)
        if not f"{found}/".startswith(f"{root}/"):
            return
        folder, _, below = found[len(root) + 1 :].partition("/")
        is_of_iceberg = below.split("/")[0] == ICEBERG_FOLDER and (folder == table_id or is_registered)
        if not is_of_iceberg:
            raise InvalidRequest(f"{location} is among the files of the service", location=location)

    def _refuse_purged(self, *locations: str) -> None:
        """Raise InvalidRequest for a location in the folder of a table whose files are being deleted."""
        root = self._warehouse.table_location("")
        folders = {normal(each)[len(root) :].partition("/")[0] for each in locations if normal(each).startswith(root)}
        dropped = self._catalog.dropped_before(0) if folders else []
        if any(each.removal_scheduled and each.record.table_id in folders for each in dropped):
            raise InvalidRequest("the files are those of a table that was purged", location=locations[0])

    def _table_id_in(self, location: str) -> str:
        """Return the id of the table whose folder a location is, which was made for it; else a new id."""
        found = normal(location).rstrip("/")
        table_id = found.removesuffix(f"/{ICEBERG_FOLDER}").rpartition("/")[2]
        if is_uuid7(table_id) and self.own_location(table_id) == found:
            try:
                self._catalog.table_by_id(table_id)
            except TableNotFound:
                return table_id
        return str(self._ids.new())

    def write_metadata(self, namespace: str, table_id: str, metadata: Json) -> str:
        """Write a metadata file, and return its location. Raises LocationRefused."""
        number = len(metadata["metadata-log"])
        if metadata["metadata-log"]:  # the log is cut off: the number in the last name counts on
            last = metadata["metadata-log"][-1]["metadata-file"].rpartition("/")[2].partition("-")[0]
            number = int(last) + 1 if last.isdigit() else number
        location = normal(f"{_folder(metadata)}/{number:05d}-{uuid.uuid4()}.metadata.json")
        self._rules.of(namespace, table_id).require(location)
        data = msgspec.json.encode(metadata)
        self._store.put(location, data)
        self._remember(location, data)
        return location

    def _add(
        self,
        namespace: str,
        name: str,
        table_id: str,
        metadata: Json,
        key: IdempotencyKey,
        *,
        location: str | None = None,
    ) -> StoredResponse:
        """Add a table with this metadata, which is in a file already at ``location``, or is written."""
        written = location if location is not None else self.write_metadata(namespace, table_id, metadata)
        schema, properties = self._columns(namespace, table_id, written, metadata)
        now_ms = self._clock()
        pointer = self._warehouse.create(table_id, schema, properties=properties, now_ms=now_ms)
        record = TableRecord(
            table_id=table_id,
            namespace=namespace,
            name=name,
            location=self._warehouse.table_location(table_id),
            version=1,
            pointer=pointer,
            created_at_ms=now_ms,
        )
        entry = history_entry(1, pointer, self._warehouse.snapshot(pointer))
        stored = key.store_as(200, IcebergPointer(metadata_location=written), snapshot_id=pointer.snapshot_id)
        if location is not None:
            self._refuse_purged(location, metadata["location"])
        try:
            self._catalog.create_table(record, entry, remember=stored.stored)
        except AlreadyExists:
            if location is None:
                self.discard(written)
            raise
        if properties.get(UNREAD) or has_other_refs(metadata):
            self._register_files(record)
        return stored

    def _columns(self, namespace: str, table_id: str, location: str, metadata: Json) -> tuple[Schema, dict[str, str]]:
        """Return the first columns of a table in Lamella, and its properties."""
        source = ExternalSource(kind="iceberg", location=location)
        properties = {
            **source_properties(source),
            HOSTED: "true",
            IDENTITY: str(metadata["table-uuid"]),
            UNREAD: "" if current_snapshot(metadata) is None else _BEING_READ,
            DELETE_MODE: "copy-on-write",
        }
        try:
            state = self._reader.read(source_of(properties) or source, properties, self._rules.of(namespace, table_id))
            schema = Schema.assign(first_columns(state))
            properties |= first_properties(state, schema)
            return schema, properties | writing_properties(metadata, properties)
        except LamellaError as error:
            return Schema.assign(_PLACEHOLDER), {**properties, UNREAD: reason_of(error), READ_ONLY: _NOT_CHECKED}

    def _register_files(self, record: TableRecord) -> None:
        """Register the files of a new table; a later commit or refresh does so if this fails."""
        head = self._head(record.pointer)
        try:
            location = head.properties[LOCATION]
            change = self._following(record, head, location, self.metadata(location), "register")
            self._queued(change, IdempotencyKey(None, "", "", self._clock())).wait()
        except LamellaError as error:
            self._log.warning("files of an Iceberg table are not registered yet", table=record.name, error=str(error))

    def _replace(
        self, record: TableRecord, location: str, metadata: Json, key: IdempotencyKey, tries: int
    ) -> StoredResponse | Pending:
        """Make a metadata file the current one, whatever the table's is."""
        record, head, current = self._published(record)
        if metadata["table-uuid"] != self.metadata(current)["table-uuid"]:
            raise InvalidRequest(
                f"{location} is the metadata of another table: drop {record.namespace}.{record.name} first",
                location=location,
            )
        self._check_location(record.namespace, record.table_id, metadata["location"], is_registered=True)
        self._refuse_purged(location, metadata["location"])
        if location == current:
            return answered(self._catalog, key, IcebergPointer(metadata_location=location))
        change = self._following(record, head, location, metadata, "register", rereads=True)

        def again(error: LamellaError) -> Pending:
            if error.code not in _RETRIED or tries <= 1:
                raise error
            now = self._catalog.table_by_id(record.table_id)
            following = self._replace(now, location, metadata, key, tries - 1)
            return following if isinstance(following, Pending) else finished(following)

        return Pending(self._queued(change, key).answered, again)

    def _commit(
        self, record: TableRecord, request: CommitIcebergTable, key: IdempotencyKey, tries: int
    ) -> StoredResponse | Pending:
        change = self._change(record, request)
        if isinstance(change, str):
            return answered(self._catalog, key, IcebergPointer(metadata_location=change))

        def again(error: LamellaError) -> Pending:
            if isinstance(error, Conflict):  # after other errors the file may be the current one
                self.discard(change.written)
            if error.code not in _RETRIED or tries <= 1:
                raise error
            current = self._catalog.table_by_id(record.table_id)
            following = self._commit(current, request, key, tries - 1)
            return following if isinstance(following, Pending) else finished(following)

        return Pending(self._queued(change, key).answered, again)

    def _change(self, record: TableRecord, request: CommitIcebergTable) -> _Change | str:
        """Return what a commit changes, with its metadata file written; the current file if it changes nothing.

        Raises as :meth:`commit`.
        """
        record, head, location = self._published(record)
        base = self.metadata(location)
        check_requirements(request.requirements, base)
        metadata = changed(base, request.updates, location, now_ms=self._clock())
        if metadata is None:
            return location
        return self._prepared(record, head, base, metadata)

    def _prepared(
        self,
        record: TableRecord,
        head: Snapshot,
        base: Json,
        metadata: Json,
        operation: str | None = None,
        *,
        is_client: bool = True,
    ) -> _Change:
        """Write a metadata file that follows ``base``, and return the change that makes it the current one.

        ``is_client``: it is committed even if Lamella cannot read it. Otherwise raises what reading it raises.
        """
        if metadata["location"] != base["location"]:
            self._check_location(record.namespace, record.table_id, metadata["location"])
        before, after = ([each.get(member) for member in _OF_ROWS] for each in (base, metadata))
        names, names_after = (each["properties"].get(NAME_MAPPING) for each in (base, metadata))
        written = self.write_metadata(record.namespace, record.table_id, metadata)
        return self._following(
            record,
            head,
            written,
            metadata,
            operation or operation_of(base, metadata),
            same_rows=before == after and names == names_after and not head.properties.get(UNREAD),
            rereads=names is not None and names != names_after,
            is_client=is_client,
        )

    def commit_own(
        self, record: TableRecord, operation: str, make: OwnUpdates, answer: MakeAnswer, key: IdempotencyKey
    ) -> Pending:
        """Commit updates that Lamella's interfaces ask for; ``make`` is called again if others commit first.

        Raises, here or when awaited: InvalidRequest: only Iceberg clients write the table, or the updates change
        nothing. Others: what ``make`` raises, and as :meth:`commit`.
        """
        return self._commit_own(record, operation, make, answer, key, _TRIES)

    def _commit_own(
        self,
        record: TableRecord,
        operation: str,
        make: OwnUpdates,
        answer: MakeAnswer,
        key: IdempotencyKey,
        tries: int,
    ) -> Pending:
        record, head, location = self._published(record)
        refuse_unwritable(head.properties)
        base = self.metadata(location)
        metadata = changed(base, make(record, head, base), location, now_ms=self._clock())
        if metadata is None:
            raise InvalidRequest("the table is like that already")
        change = self._prepared(record, head, base, metadata, operation, is_client=False)

        def again(error: LamellaError) -> Pending:
            if isinstance(error, Conflict):  # after other errors the file may be the current one
                self.discard(change.written)
            if error.code not in _RETRIED or tries <= 1:
                raise error
            current = self._catalog.table_by_id(record.table_id)
            return self._commit_own(current, operation, make, answer, key, tries - 1)

        pending = self._committer.alone(change.record, change.step, answer, key, guard=change.guard, refs=change.refs)
        return Pending(pending.answered, again)

    def _following(
        self,
        record: TableRecord,
        head: Snapshot,
        location: str,
        metadata: Json,
        operation: str,
        *,
        same_rows: bool = False,
        rereads: bool = False,
        is_client: bool = True,
    ) -> _Change:
        """Return the change that makes a metadata file the current one, and registers its files.

        ``same_rows``: they are registered. ``rereads``: files without field ids may have other columns than before.
        ``is_client``: as :meth:`_prepared`.
        """
        guard: CommitGuard | None = None
        step = self._pointer_step(record, location, metadata, None, operation)
        if not same_rows:

            def more(properties: dict[str, str]) -> dict[str, str]:
                return writing_properties(metadata, properties)

            read = read_or_reason(
                lambda: self._external.changed_to(record, head, location, operation, more, rereads=rereads)
            )
            if isinstance(read, LamellaError) and not is_client:
                self.discard(location)
                raise read
            if isinstance(read, LamellaError):
                self._log.info("an Iceberg commit cannot be read", table=record.name, reason=read.message)
                step = self._pointer_step(record, location, metadata, read, operation)
            else:
                step, guard = read
        before = None if location == head.properties[LOCATION] else self.metadata(head.properties[LOCATION])
        refs = self._refs.following(record, head, before, metadata, location, rereads=rereads)
        return _Change(record, location, step, guard, refs)

    def _queued(self, change: _Change, key: IdempotencyKey) -> Pending:
        def answer(_: CommitResult) -> IcebergPointer:
            return IcebergPointer(metadata_location=change.written)

        return self._committer.alone(change.record, change.step, answer, key, guard=change.guard, refs=change.refs)

    def _pointer_step(
        self, record: TableRecord, location: str, metadata: Json, error: LamellaError | None, operation: str
    ) -> Callable[[SnapshotPointer], CommitResult]:
        """Return the step that only changes the metadata file. ``error``: why the blocks do not follow."""

        def step(base: SnapshotPointer) -> CommitResult:
            if base.snapshot_id != record.pointer.snapshot_id:
                raise CommitConflict(
                    "another commit came first", blocks=[], snapshot_id=base.snapshot_id, snapshot_is="current"
                )
            properties = {LOCATION: location, AFTER: base.snapshot_id}
            if error is not None:
                properties |= {UNREAD: reason_of(error), READ_ONLY: _NOT_CHECKED}
            else:
                snapshot = current_snapshot(metadata)
                number = "none" if snapshot is None else snapshot["snapshot-id"]
                properties[VERSION] = f"{location.rpartition('/')[2]}#{number}"
                properties |= writing_properties(metadata, self._head(base).properties)
            return self._warehouse.commit(base, operation=operation, properties=properties, now_ms=self._clock())

        return step

    def discard(self, *locations: str) -> None:
        """Delete metadata files that did not become current."""
        for location in locations:
            with suppress(StoreError):
                self._store.delete(location)


def _folder(metadata: Json) -> str:
    """Return the folder of metadata files and manifests."""
    return str(metadata["properties"].get(_METADATA_FOLDER) or f"{metadata['location']}/metadata").rstrip("/")


def writing_properties(metadata: Json, properties: Mapping[str, str]) -> dict[str, str]:
    """Return what Lamella's writers must know of a table: why they may not write it, and which columns are required."""
    names = required_fields(current_schema(metadata)).names
    required = msgspec.json.encode(names).decode() if names else ""
    return {READ_ONLY: read_only_reason(metadata, properties), REQUIRED: required}


def read_only_reason(metadata: Json, properties: Mapping[str, str]) -> str:
    """Return why Lamella's writers may not write a table; empty if they may.

    Their files have the field ids of Lamella's columns.
    """
    version = metadata["format-version"]
    if version not in WRITTEN_VERSIONS:
        return f"it has format version {version}"
    if version >= WITH_ROW_IDS and not isinstance(metadata.get("next-row-id"), int):
        return "its metadata does not say which row ids are in use"
    schema = current_schema(metadata)
    unproven = required_fields(schema).unproven
    if unproven is not None:
        return f"column {unproven!r} is required, and no statistics tell whether all rows have a value there"
    for name, field in fields_of(schema):
        if field.get("write-default") != field.get("initial-default"):
            return f"column {name!r} has another default for new rows than for old ones"
    fields = _FIELDS.decode(properties.get(FIELDS, "{}"))
    if any(fields.get(number) != number for number in ids_of(schema)):
        name = next(name for name, field in fields_of(schema) if _differs(field, fields))
        return f"column {name!r} has other ids in Iceberg and in Lamella"
    return ""


def _differs(field: Json, own: Mapping[int, int]) -> bool:
    return any(own.get(number) != number for number in ids_of({"fields": [field]}))


def _hosted(head: Snapshot) -> str | None:
    return head.properties.get(LOCATION) if head.properties.get(HOSTED) else None


def _require_hosted(record: TableRecord, head: Snapshot) -> str:
    location = _hosted(head)
    if location is None:
        raise NotExpressible(
            f"{record.namespace}.{record.name} was not created by an Iceberg client: write it by Lamella's interfaces,"
            " or convert it (lamella tables convert-to-iceberg)"
        )
    _refuse_branch(record)
    return location


def _refuse_branch(record: TableRecord) -> None:
    """Raise NotExpressible for a branch: it is a ref in the metadata of its table, which clients load."""
    if record.branch_of is not None:
        table, _, branch = record.name.partition(BRANCH_SIGN)
        raise NotExpressible(
            f"{branch} is a branch in the metadata of {record.namespace}.{table}: load that table, and use its branch"
        )


def operation_of(before: Json, after: Json) -> str:
    """Return the name of a commit for the history: the operation of the new current snapshot, else ``update``."""
    if before.get("current-snapshot-id") == after.get("current-snapshot-id"):
        return "evolve" if before["current-schema-id"] != after["current-schema-id"] else "update"
    snapshot = current_snapshot(after)
    return str((snapshot or {}).get("summary", {}).get("operation", "update"))
