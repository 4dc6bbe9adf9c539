"""Tables that Iceberg clients create and commit to: this service is their catalog.

The current metadata file of such a table is a property of its snapshot, so the pointer of the table decides which of
two commits comes first, and a snapshot and its metadata cannot differ. Each commit writes a new metadata file, reads
the client's manifests and the footers of its new files, and registers the files as blocks. What the client commits is
kept even if Lamella cannot read it (equality deletes, files other than Parquet): then Lamella's readers get an error
that says why, until a commit that they can read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from lamella.service.catalog import Catalog, CommitGuard, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.commits.transactions import error_of
from lamella.service.external.external import External
from lamella.service.history.history import history_entry, trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered, finished
from lamella.service.tables.names import LocationRules, check_name
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
    Json,
    changed,
    check_requirements,
    current_schema,
    current_snapshot,
    new_metadata,
)
from lamella.snapshot.iceberg.wire import (
    CommitIcebergTable,
    CreateIcebergTable,
    IcebergPointer,
    LoadedTable,
    RegisterIcebergTable,
)
from lamella.snapshot.ids import Ids, is_uuid7
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.source import (
    HOSTED,
    IDENTITY,
    LOCATION,
    UNREAD,
    Reader,
    first_columns,
    first_properties,
    source_of,
    source_properties,
)
from lamella.snapshot.storage import Store, normal
from lamella.snapshot.vacuum import foreign_table
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import ExternalSource

#: How often a commit is tried if other changes of the table come first.
_TRIES: Final = 4
_METADATA_FOLDER: Final = "write.metadata.path"
_JSON: Final = msgspec.json.Decoder(dict[str, Any])
_CREATE: Final = "assert-create"
#: The column of a table whose own columns have no form in Lamella, until they have.
_PLACEHOLDER: Final = (Column(name="unread", type="boolean"),)
_BEING_READ: Final = "its files are being registered"
#: The parts of the metadata that the blocks and columns depend on.
_OF_ROWS: Final = ("current-snapshot-id", "schemas", "current-schema-id")
_MAX_REASON: Final = 1_000
#: Codes of errors after which a commit is tried again on the next snapshot.
_RETRIED: Final = frozenset({CommitConflict.code, DuplicateBlock.code, SchemaConflict.code})


class HostedTable(NamedTuple):
    """A table of Iceberg clients. ``location``: its metadata file. ``is_registered``: it has blocks, of all files."""

    location: str
    is_registered: bool


class _Change(NamedTuple):
    """The next snapshot of a table. ``written``: its metadata file."""

    record: TableRecord
    written: str
    step: Callable[[SnapshotPointer], CommitResult]
    guard: CommitGuard | None


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

    def table(self, record: TableRecord) -> HostedTable | None:
        """Return where the metadata of a table is; None if Iceberg clients do not commit to it."""
        head = self._head(record.pointer)
        location = _hosted(head)
        is_registered = head.summary.block_count > 0 and not head.properties.get(UNREAD)
        return None if location is None else HostedTable(location, is_registered)

    def metadata(self, location: str) -> Json:
        """Return the metadata in a file.

        Raises:
            ObjectNotFound, StoreError: it cannot be read.
            ManifestError: it is damaged.
        """
        data = self._store.read(location)
        try:
            return _JSON.decode(data)
        except msgspec.DecodeError as error:
            raise ManifestError(f"{location} is not the metadata of an Iceberg table", location=location) from error

    def staged(self, namespace: str, request: CreateIcebergTable) -> LoadedTable:
        """Return the metadata of a table that a commit is going to create.

        Raises:
            InvalidRequest: the name, schema, partition spec, sort order or location.
            LocationRefused: the location is not allowed.
            NamespaceNotFound, AlreadyExists: the state of the catalog.
        """
        self._refuse_existing(namespace, check_name("table", request.name))
        return LoadedTable(metadata_location=None, metadata=self._new(namespace, request)[1], config={})

    def create(self, namespace: str, request: CreateIcebergTable, key: IdempotencyKey) -> StoredResponse:
        """Create a table. Raises as :meth:`staged`, and QuotaExceeded."""
        name = check_name("table", request.name)
        self._refuse_existing(namespace, name)
        table_id, metadata = self._new(namespace, request)
        return self._add(namespace, name, table_id, metadata, key)

    def register(self, namespace: str, request: RegisterIcebergTable, key: IdempotencyKey) -> StoredResponse:
        """Add a table by its metadata file.

        Raises:
            InvalidRequest: the name or the file.
            LocationRefused: tables of this namespace may not use the file's location.
            ObjectNotFound, StoreError: the file cannot be read.
            NamespaceNotFound, AlreadyExists, QuotaExceeded: the state of the catalog.
        """
        name = check_name("table", request.name)
        if request.overwrite:
            raise NotExpressible("overwrite is not supported: drop the table first")
        self._refuse_existing(namespace, name)
        location = normal(request.metadata_location)
        self._rules.of(namespace, None).require(location)
        metadata = self.metadata(location)
        check_metadata(metadata, location)
        table_id = str(self._ids.new())
        self._rules.of(namespace, table_id).require_all_below(normal(metadata["location"]))
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
                if change is not None:
                    prepared.append((table, change))
            written = [change.written for _, change in prepared]
            if errors:
                self._discard(*written)
                raise error_of(errors)
            if not prepared:
                return answered(self._catalog, key, msgspec.Raw(b"{}"))
            try:
                steps = [(table, each.record, each.step, each.guard) for table, each in prepared]
                return self._committer.steps_together(steps, key, lambda _: key.store_as(200, msgspec.Raw(b"{}")))
            except TransactionConflict as error:
                self._discard(*written)
                if tries == 1 or not all(each["code"] in _RETRIED for each in error.details["conflicts"]):
                    raise
            except Conflict:
                self._discard(*written)
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
            location = self._warehouse.table_location(table_id)
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

    def _check_location(self, namespace: str, table_id: str, location: str) -> None:
        """Raise LocationRefused, or InvalidRequest, if a table may not have its files there."""
        found = normal(location).rstrip("/")
        self._rules.of(namespace, table_id).require_all_below(found)
        if f"{self._warehouse.table_location('')}/".startswith(f"{found}/"):
            raise InvalidRequest(f"{location} contains the folders of other tables", location=location)
        other = foreign_table(self._warehouse, table_id, f"{found}/")
        if other is not None:
            raise InvalidRequest(f"{location} is in the folder of another table, {other}", location=location)

    def _table_id_in(self, location: str) -> str:
        """Return the id of the table whose folder a location is, which was made for it; else a new id."""
        found = normal(location).rstrip("/")
        name = found.rpartition("/")[2]
        if is_uuid7(name) and self._warehouse.table_location(name) == found:
            try:
                self._catalog.table_by_id(name)
            except TableNotFound:
                return name
        return str(self._ids.new())

    def _write(self, namespace: str, table_id: str, metadata: Json) -> str:
        """Write a metadata file, and return its location. Raises LocationRefused."""
        folder = metadata["properties"].get(_METADATA_FOLDER) or f"{metadata['location']}/metadata"
        number = len(metadata["metadata-log"])
        if metadata["metadata-log"]:  # the log is cut off: the number in the last name counts on
            last = metadata["metadata-log"][-1]["metadata-file"].rpartition("/")[2].partition("-")[0]
            number = int(last) + 1 if last.isdigit() else number
        location = normal(f"{folder.rstrip('/')}/{number:05d}-{uuid.uuid4()}.metadata.json")
        self._rules.of(namespace, table_id).require(location)
        self._store.put(location, msgspec.json.encode(metadata))
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
        written = location if location is not None else self._write(namespace, table_id, metadata)
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
        try:
            self._catalog.create_table(record, entry, remember=stored.stored)
        except AlreadyExists:
            if location is None:
                self._discard(written)
            raise
        if properties.get(UNREAD):
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
        }
        try:
            state = self._reader.read(source_of(properties) or source, properties, self._rules.of(namespace, table_id))
            schema = Schema.assign(first_columns(state))
            return schema, {**properties, **first_properties(state, schema)}
        except LamellaError as error:
            return Schema.assign(_PLACEHOLDER), {**properties, UNREAD: error.message[:_MAX_REASON] or error.code}

    def _register_files(self, record: TableRecord) -> None:
        """Register the files of a new table; a later commit or refresh does so if this fails."""
        head = self._head(record.pointer)
        try:
            change = self._following(record, head, head.properties[LOCATION], "register")
            self._queued(change, IdempotencyKey(None, "", "", self._clock())).wait()
        except LamellaError as error:
            self._log.warning("files of an Iceberg table are not registered yet", table=record.name, error=str(error))

    def _commit(
        self, record: TableRecord, request: CommitIcebergTable, key: IdempotencyKey, tries: int
    ) -> StoredResponse | Pending:
        change = self._change(record, request)
        if change is None:
            table = self.table(record)
            assert table is not None  # noqa: S101  # other tables are refused
            return answered(self._catalog, key, IcebergPointer(metadata_location=table.location))

        def again(error: LamellaError) -> Pending:
            if isinstance(error, Conflict):  # after other errors the file may be the current one
                self._discard(change.written)
            if error.code not in _RETRIED or tries <= 1:
                raise error
            current = self._catalog.table_by_id(record.table_id)
            following = self._commit(current, request, key, tries - 1)
            return following if isinstance(following, Pending) else finished(following)

        return Pending(self._queued(change, key).answered, again)

    def _change(self, record: TableRecord, request: CommitIcebergTable) -> _Change | None:
        """Return what a commit changes, with its metadata file written; None if it changes nothing.

        Raises as :meth:`commit`.
        """
        head = self._head(record.pointer)
        location = _require_hosted(record, head)
        base = self.metadata(location)
        check_requirements(request.requirements, base)
        metadata = changed(base, request.updates, location, now_ms=self._clock())
        if metadata is None:
            return None
        if metadata["location"] != base["location"]:
            self._check_location(record.namespace, record.table_id, metadata["location"])
        before, after = ([each.get(member) for member in _OF_ROWS] for each in (base, metadata))
        names, names_after = (each["properties"].get(NAME_MAPPING) for each in (base, metadata))
        written = self._write(record.namespace, record.table_id, metadata)
        return self._following(
            record,
            head,
            written,
            operation_of(base, metadata),
            same_rows=before == after and names == names_after and not head.properties.get(UNREAD),
            rereads=names is not None and names != names_after,
        )

    def _following(
        self,
        record: TableRecord,
        head: Snapshot,
        location: str,
        operation: str,
        *,
        same_rows: bool = False,
        rereads: bool = False,
    ) -> _Change:
        """Return the change that makes a metadata file the current one, and registers its files.

        ``same_rows``: they are registered. ``rereads``: files without field ids may have other columns than before.
        """
        before = head.properties[LOCATION]
        guard: CommitGuard | None = None
        step = self._pointer_step(before, location, None, operation)
        if not same_rows:
            try:
                step, guard = self._external.changed_to(record, head, location, operation, rereads=rereads)
            except Unavailable:
                raise
            except LamellaError as error:
                self._log.info("an Iceberg commit cannot be read", table=record.name, reason=error.message)
                step = self._pointer_step(before, location, error, operation)
        return _Change(record, location, step, guard)

    def _queued(self, change: _Change, key: IdempotencyKey) -> Pending:
        def answer(_: CommitResult) -> IcebergPointer:
            return IcebergPointer(metadata_location=change.written)

        return self._committer.alone(change.record, change.step, answer, key, guard=change.guard)

    def _pointer_step(
        self, before: str, location: str, error: LamellaError | None, operation: str
    ) -> Callable[[SnapshotPointer], CommitResult]:
        """Return the step that only changes the metadata file. ``error``: why the blocks do not follow."""

        def step(base: SnapshotPointer) -> CommitResult:
            head = self._head(base)
            if head.properties.get(LOCATION) != before:
                raise CommitConflict(
                    "another commit came first", blocks=[], snapshot_id=base.snapshot_id, snapshot_is="current"
                )
            properties = {LOCATION: location}
            if error is not None:
                properties[UNREAD] = reason_of(error)
            return self._warehouse.commit(base, operation=operation, properties=properties, now_ms=self._clock())

        return step

    def _discard(self, *locations: str) -> None:
        """Delete metadata files that did not become current."""
        for location in locations:
            with suppress(StoreError):
                self._store.delete(location)


def _hosted(head: Snapshot) -> str | None:
    return head.properties.get(LOCATION) if head.properties.get(HOSTED) else None


def _require_hosted(record: TableRecord, head: Snapshot) -> str:
    location = _hosted(head)
    if location is None:
        raise NotExpressible(
            f"{record.namespace}.{record.name} was not created by an Iceberg client, and only such tables take their"
            " commits: write it by Lamella's interfaces"
        )
    return location


def reason_of(error: LamellaError) -> str:
    """Return why a commit cannot be read, in a sentence; the first refused file stands for all."""
    refused = error.details.get("refused")
    if refused:
        first = refused[0]
        path, reason = (first["path"], first["reason"]) if isinstance(first, Mapping) else (first.path, first.reason)
        return f"{path}: {reason}"[:_MAX_REASON]
    return error.message[:_MAX_REASON] or error.code


def operation_of(before: Json, after: Json) -> str:
    """Return the name of a commit for the history: the operation of the new current snapshot, else ``update``."""
    if before.get("current-snapshot-id") == after.get("current-snapshot-id"):
        return "evolve" if before["current-schema-id"] != after["current-schema-id"] else "update"
    snapshot = current_snapshot(after)
    return str((snapshot or {}).get("summary", {}).get("operation", "update"))


def check_metadata(metadata: Json, location: str) -> None:
    """Raise InvalidRequest unless a file has what the metadata of a table needs."""
    needed = ("format-version", "table-uuid", "location", "schemas", "current-schema-id", "partition-specs")
    missing = [each for each in needed if each not in metadata]
    if missing:
        raise InvalidRequest(f"{location} is not the metadata of an Iceberg table: it has no {missing[0]}")
    for name, empty in (
        ("properties", {}),
        ("snapshots", []),
        ("snapshot-log", []),
        ("metadata-log", []),
        ("refs", {}),
    ):
        metadata.setdefault(name, empty)
    current_schema(metadata)
