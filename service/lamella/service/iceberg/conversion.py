"""Makes a table of Lamella one that Iceberg clients commit to, with all its files and its history in Lamella."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.history.history import trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse, answered, finished
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, require_json
from lamella.service.iceberg.hosted import HostedTables, writing_properties
from lamella.service.process.threads import Threads
from lamella.service.tables.names import LocationRules
from lamella.snapshot.delete_policy import DELETE_MODE
from lamella.snapshot.errors import (
    CommitConflict,
    InvalidRequest,
    InvalidSchema,
    LamellaError,
    NotExpressible,
    SchemaConflict,
    StoreError,
)
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.source import (
    AFTER,
    HOSTED,
    IDENTITY,
    LOCATION,
    UNREAD,
    VERSION,
    Evolution,
    Reader,
    evolution,
    source_of,
    source_properties,
)
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.warehouse import CommitResult, Warehouse
from lamella.snapshot.wire import ConversionAnswer, ConversionRequest, ExternalSource
from lamella.snapshot.wire.operations import external as operations

if TYPE_CHECKING:  # pyiceberg is loaded when it is used
    from lamella.snapshot.iceberg.conversion import FirstManifests

#: How often a conversion is tried if commits come first. Manifests of segments that stay are written once.
_TRIES: Final = 8
_OPERATION: Final = "convert"
_CONVERT: Final = msgspec.json.Decoder(ConversionRequest)
#: Conversions at once in a process, and how many requests wait; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


class Conversions:
    """Converts tables. Every method blocks."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        reader: Reader,
        committer: Committer,
        hosted: HostedTables,
        rules: LocationRules,
        clock: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._reader = reader
        self._committer = committer
        self._hosted = hosted
        self._rules = rules
        self._clock = clock

    def convert(self, record: TableRecord, request: ConversionRequest, key: IdempotencyKey) -> StoredResponse | Pending:
        """Convert a table. With ``dry_run`` nothing changes, and only manifests are not made.

        Raises, here or when awaited:
            InvalidRequest: a branch, or a table that has branches, follows a source, or has Iceberg clients already.
            NotExpressible: a column, a constraint or a block has no form there; the message says what helps.
            CommitConflict: other commits always came first.
            StoreError, Unavailable: nothing was changed.
        """
        return self._convert(record, request, key, {}, _TRIES)

    def _convert(
        self,
        record: TableRecord,
        request: ConversionRequest,
        key: IdempotencyKey,
        manifests: dict[str, FirstManifests],
        tries: int,
    ) -> StoredResponse | Pending:
        try:
            from lamella.snapshot.iceberg.conversion import column_properties, require_convertible
        except ImportError as error:
            raise StoreError("Iceberg tables require the extra lamella[iceberg]") from error
        self._refuse_others(record)
        with trusted_manifests():
            head = self._warehouse.snapshot(record.pointer)
        if head.properties.get(HOSTED):
            raise InvalidRequest("Iceberg clients can commit to this table already")
        if source_of(head.properties) is not None:
            raise InvalidRequest("the table follows a source, which decides what its files are")
        require_convertible(head)

        def answer(snapshot_id: str, location: str | None) -> ConversionAnswer:
            return ConversionAnswer(
                snapshot_id=snapshot_id,
                metadata_location=location,
                block_count=head.summary.block_count,
                row_count=head.summary.row_count,
            )

        if request.dry_run:
            return answered(self._catalog, key, answer(record.pointer.snapshot_id, None))
        metadata = self._first_metadata(record, head, manifests)
        location = self._hosted.write_metadata(record.namespace, record.table_id, metadata)
        properties = {
            **source_properties(ExternalSource(kind="iceberg", location=location)),
            **column_properties(head),
            HOSTED: "true",
            IDENTITY: str(metadata["table-uuid"]),
            UNREAD: "",
            VERSION: f"{location.rpartition('/')[2]}#{metadata['current-snapshot-id']}",
            AFTER: record.pointer.snapshot_id,
            DELETE_MODE: "copy-on-write",
        }
        steps = self._evolution(record, head, properties)
        properties |= steps.properties
        properties |= writing_properties(metadata, properties)

        def step(base: SnapshotPointer) -> CommitResult:
            if base.snapshot_id != record.pointer.snapshot_id:
                raise CommitConflict(
                    "another commit came first", blocks=[], snapshot_id=base.snapshot_id, snapshot_is="current"
                )
            self._refuse_others(record)
            return self._warehouse.commit(
                base, operation=_OPERATION, properties=properties, schemas=steps.steps, now_ms=self._clock()
            )

        def again(error: LamellaError) -> Pending:
            if not isinstance(error, CommitConflict | SchemaConflict) or tries <= 1:
                raise error
            self._hosted.discard(location)
            now = self._catalog.table_by_id(record.table_id)
            following = self._convert(now, request, key, manifests, tries - 1)
            return following if isinstance(following, Pending) else finished(following)

        pending = self._committer.alone(record, step, lambda result: answer(result.pointer.snapshot_id, location), key)
        return Pending(pending.answered, again)

    def _refuse_others(self, record: TableRecord) -> None:
        """Raise InvalidRequest for a branch, and for a table with branches: their commits are not Iceberg's."""
        if record.branch_of is not None:
            raise InvalidRequest("this is a branch: convert its table")
        found = self._catalog.branches(record.table_id)
        if found:
            raise InvalidRequest(f"the table has branches, such as {found[0].record.name}: drop them first")

    def _first_metadata(self, record: TableRecord, head: Snapshot, known: dict[str, FirstManifests]) -> Json:
        """Return the metadata of a table's current snapshot, with its manifests written. ``known``: those of segments
        that were written before."""
        from lamella.snapshot.iceberg.conversion import first_metadata, write_manifests

        folder = f"{self._hosted.own_location(record.table_id)}/metadata"

        def put(kind: str, data: bytes) -> str:
            location = f"{folder}/{kind}-{uuid.uuid4()}.avro"
            self._store.put(location, data)
            return location

        own_folder = TableLayout(record.location).blocks
        found: list[FirstManifests] = []
        with trusted_manifests():
            for ref in self._warehouse.segments(head):
                if ref.segment_id not in known:
                    blocks = self._warehouse.segment(ref).blocks
                    known[ref.segment_id] = write_manifests(
                        head, blocks, record.version, lambda data: put("m", data), own_folder=own_folder
                    )
                found.append(known[ref.segment_id])
        return first_metadata(
            head,
            found,
            record.version,
            lambda data: put(f"snap-{record.version}", data),
            location=self._hosted.own_location(record.table_id),
            now_ms=self._clock(),
        )

    def _evolution(self, record: TableRecord, head: Snapshot, properties: dict[str, str]) -> Evolution:
        """Return the changes of columns after which the table has those of its Iceberg metadata: int32 for int16, and
        all of them nullable.

        Raises NotExpressible if a column has no such type.
        """
        from lamella.snapshot.iceberg.conversion import nullable_columns

        found = self._reader.iceberg_change(
            properties[LOCATION], properties, self._rules.of(record.namespace, record.table_id)
        )
        assert found is not None  # noqa: S101  # a metadata file has the delete files of itself
        first = nullable_columns(head)
        seen = self._warehouse.seen_after(record.pointer, [first] if first else [])
        try:
            steps = evolution(seen, properties, found[0])
        except InvalidSchema as error:
            raise NotExpressible(f"the columns are others in Iceberg: {error.message}") from error
        if steps.rereads:
            raise NotExpressible("the columns are others in Iceberg, with which all files would be read again")
        return msgspec.structs.replace(steps, steps=(first, *steps.steps)) if first else steps


class ConversionRoutes:
    """The route that converts a table."""

    def __init__(self, *, catalog: Catalog, mutations: Mutations, conversions: Conversions) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._conversions = conversions
        self._threads = Threads(_AT_ONCE, max_waiting=_WAITING, what="conversions of tables")

    async def convert_to_iceberg(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(key: IdempotencyKey) -> StoredResponse | Pending:
            payload = read_json(_CONVERT, body)
            return self._conversions.convert(self._catalog.table(namespace, name), payload, key)

        return await self._mutations.run(request, work, body, threads=self._threads)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.CONVERT_TO_ICEBERG, self.convert_to_iceberg),)
