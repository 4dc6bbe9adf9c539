"""Routes of a table's history: snapshots and segments, tags, changes, rollback."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.catalog import TableRecord
from lamella.service.history.changes import MAX_SNAPSHOTS, ChangesQuery
from lamella.service.history.history import instant_of
from lamella.service.http import responses
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.responses import entity_tag, respond_json, tagged_by_content
from lamella.service.http.routing import (
    IDEMPOTENCY_KEY,
    IF_NONE_MATCH,
    TABLE,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
    whole_number,
)
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    BlocksGone,
    BodyTooLarge,
    CommitConflict,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    ManifestError,
    NamespaceNotFound,
    NotAppendOnly,
    OutcomeUnknown,
    QuotaExceeded,
    SegmentNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    TagNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.manifest import Segment, Snapshot
from lamella.snapshot.wire import (
    ChangesAnswer,
    RollbackAnswer,
    RollbackRequest,
    SegmentBlocks,
    SnapshotList,
    TagInfo,
    TagList,
    TagRequest,
)

_DEFAULT_SNAPSHOTS: Final = 100
_OF_SNAPSHOT: Final = Parameter(
    name="snapshot_id",
    description="The snapshot that the segment belongs to, by id or tag; the current one when not given.",
)


class HistoryRoutes:
    """List snapshots; read manifests as they were written."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_snapshots(self, request: Request) -> Response:
        largest = self._services.settings.page_size_max
        page_size = whole_number(request, "page_size", min(_DEFAULT_SNAPSHOTS, largest), 1, largest)
        given = request.query_params
        page_token, snapshot_id, timestamp = (given.get(key) for key in ("page_token", "snapshot_id", "timestamp"))
        time_zone = given.get("time_zone", "UTC")
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> SnapshotList:
            history = self._services.history
            record = self._services.table(namespace, name)
            newest = None
            if page_token is None and (snapshot_id is not None or timestamp is not None):
                at = None if timestamp is None else instant_of(timestamp)
                newest = history.entry(record, snapshot_id=snapshot_id, timestamp=at, time_zone=time_zone)
            return history.page(record, page_size=page_size, page_token=page_token, newest=newest)

        return tagged_by_content(request, msgspec.json.encode(await self._services.read(work)))

    async def get_snapshot(self, request: Request) -> Response:
        history, snapshot_id = self._services.history, request.path_params["snapshot_id"]
        return await responses.respond_conditional(
            self._services,
            request,
            lambda record: entity_tag("snapshot", history.pointer(record, snapshot_id=snapshot_id).manifest.sha256),
            lambda record: history.snapshot_json(record, snapshot_id),
        )

    async def get_segment(self, request: Request) -> Response:
        history, segment_id = self._services.history, request.path_params["segment_id"]
        snapshot_id = request.query_params.get("snapshot_id")
        return await responses.respond_conditional(
            self._services,
            request,
            lambda record: self._segment_tag("segment", record, segment_id, snapshot_id),
            lambda record: history.segment_json(record, segment_id, snapshot_id),
        )

    async def get_segment_blocks(self, request: Request) -> Response:
        history, segment_id = self._services.history, request.path_params["segment_id"]
        snapshot_id = request.query_params.get("snapshot_id")
        return await responses.respond_conditional(
            self._services,
            request,
            lambda record: self._segment_tag("blocks", record, segment_id, snapshot_id),
            lambda record: msgspec.json.encode(history.segment_blocks(record, segment_id, snapshot_id)),
            cache=responses.IMMUTABLE,
        )

    def _segment_tag(self, kind: str, record: TableRecord, segment_id: str, snapshot_id: str | None) -> str:
        # With the snapshot, since whoever has such a tag was told then that the segment is in that snapshot.
        return entity_tag(kind, segment_id, self._services.history.pointer(record, snapshot_id=snapshot_id).snapshot_id)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        damaged = (ManifestError, StoreError)
        return (
            Operation(
                method="GET",
                path=TABLE + "/snapshots",
                handler=self.list_snapshots,
                needs=on_table("read"),
                summary="List a table's snapshots, newest first",
                tag="History",
                answer_type=SnapshotList,
                parameters=(
                    Parameter(
                        name="page_size",
                        description=f"Snapshots in one answer; {_DEFAULT_SNAPSHOTS} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": self._services.settings.page_size_max},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                    Parameter(name="snapshot_id", description="Begin with this one: its id, or a tag."),
                    Parameter(
                        name="timestamp",
                        description="Begin with the one in force then: Unix milliseconds, or ISO 8601 text.",
                    ),
                    Parameter(name="time_zone", description="For a time without one; `UTC` when not given."),
                    IF_NONE_MATCH,
                ),
                errors=(InvalidRequest, InvalidPageToken, *missing, SnapshotNotFound, SnapshotExpired),
            ),
            Operation(
                method="GET",
                path=TABLE + "/snapshots/{snapshot_id}",
                handler=self.get_snapshot,
                needs=on_table("read"),
                summary="Read a snapshot's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash. A tag may stand in place "
                "of the id.",
                answer_type=Snapshot,
                parameters=(IF_NONE_MATCH,),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, *damaged),
            ),
            Operation(
                method="GET",
                path=TABLE + "/segments/{segment_id}",
                handler=self.get_segment,
                needs=on_table("read"),
                summary="Read a segment's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash.",
                answer_type=Segment,
                parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *damaged),
            ),
            Operation(
                method="GET",
                path=TABLE + "/segments/{segment_id}/blocks",
                handler=self.get_segment_blocks,
                needs=on_table("read"),
                summary="Look up the addresses of a segment's blocks",
                tag="History",
                description="By the numbers that prune answers of `shape` `ranges` have. A segment never changes, so "
                "this can be kept for ever.",
                answer_type=SegmentBlocks,
                parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *damaged),
            ),
        )


_PUT: Final = msgspec.json.Decoder(TagRequest)


class TagRoutes:
    """List, make, move and drop tags."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_tags(self, request: Request) -> Response:
        services = self._services
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return json_response(await services.read(lambda: services.tags.list(services.catalog.table(namespace, name))))

    async def put_tag(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: IdempotencyKey) -> StoredResponse:
            asked = read_json(_PUT, body)
            return self._services.tags.put(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    async def drop_tag(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tag = request.path_params["tag"]

        def work(claim: IdempotencyKey) -> StoredResponse:
            return self._services.tags.drop(self._services.catalog.table(namespace, name), tag, claim)

        return await self._services.mutate(request, work)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        trouble = (IdempotencyMismatch, Unavailable, OutcomeUnknown)
        return (
            Operation(
                method="GET",
                path=TABLE + "/tags",
                handler=self.list_tags,
                needs=on_table("read"),
                summary="List the tags of a table",
                tag="History",
                answer_type=TagList,
                errors=missing,
            ),
            Operation(
                method="POST",
                path=TABLE + "/tags",
                handler=self.put_tag,
                needs=on_table("write"),
                summary="Tag a snapshot, or move a tag",
                tag="History",
                description="Wherever a snapshot is named by its id, a tag can stand instead. As long as the tag is "
                "alive its snapshot does not expire. A tag that is there is moved only with `move`, which is answered "
                "with status 200.",
                request_type=TagRequest,
                answer_type=TagInfo,
                status=201,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    BodyTooLarge,
                    *missing,
                    SnapshotNotFound,
                    SnapshotExpired,
                    TagNotFound,
                    AlreadyExists,
                    *trouble,
                ),
            ),
            Operation(
                method="DELETE",
                path=TABLE + "/tags/{tag}",
                handler=self.drop_tag,
                needs=on_table("write"),
                summary="Drop a tag",
                tag="History",
                description="The snapshot stays, as long as the retention of the table lets it.",
                status=204,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, TagNotFound, *trouble),
            ),
        )


_DEFAULT_BLOCKS: Final = 10_000
_LARGEST_PAGE: Final = 1_000_000
_ENCODER: Final = msgspec.json.Encoder()
_FLAG: Final = {"type": "boolean"}


class ChangesRoutes:
    """For readers who want what is new."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def changes(self, request: Request) -> Response:
        query = _query(request, self._services.settings.answer_blocks_max)
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> bytes:
            table = self._services.table(namespace, name)
            return _ENCODER.encode(self._services.changes.page(table, query))

        return await respond_json(await self._services.read(work), self._services.large_answers, request)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        snapshots = "Unix milliseconds, or ISO 8601 text; without a zone it is in `time_zone`."
        return (
            Operation(
                method="GET",
                path=TABLE + "/changes",
                handler=self.changes,
                needs=on_table("read"),
                summary="Ask which blocks came and went after a snapshot",
                tag="History",
                description="Snapshot by snapshot, oldest first, those that may match the filter; names and types are "
                "those of the last snapshot. One page looks at no more than "
                f"{MAX_SNAPSHOTS} snapshots. All pages are of the snapshots of the first one.",
                answer_type=ChangesAnswer,
                parameters=(
                    Parameter(name="since", description="A snapshot's id, or a tag. Its own blocks are not answered."),
                    Parameter(name="since_timestamp", description="The same by time. " + snapshots),
                    Parameter(name="until", description="A snapshot's id, or a tag; by default the current one."),
                    Parameter(name="until_timestamp", description="The same by time. " + snapshots),
                    Parameter(name="filter", description="SQL text in Spark's dialect, or a JSON tree as text."),
                    Parameter(name="columns", description='Columns, as a JSON list, for `column_size_bytes`: `["a"]`.'),
                    Parameter(
                        name="net",
                        description="The difference of the two ends: blocks that came and went in between are left "
                        "out, and so are the snapshots in between, which may have expired.",
                        schema=_FLAG,
                    ),
                    Parameter(
                        name="append_only",
                        description="Refuse where blocks were removed; what came before that is answered first.",
                        schema=_FLAG,
                    ),
                    Parameter(name="time_zone", description="For times without one; `UTC` when not given."),
                    Parameter(
                        name="case_sensitive", description="Tell apart columns that differ in case.", schema=_FLAG
                    ),
                    Parameter(
                        name="page_size",
                        description=f"Blocks in one answer; {_DEFAULT_BLOCKS} when not given, and never more than the "
                        "setting `answer_blocks_max`.",
                        schema={"type": "integer", "minimum": 1, "maximum": _LARGEST_PAGE},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                ),
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    FilterTypeMismatch,
                    UnknownColumn,
                    LimitExceeded,
                    InvalidPageToken,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    SnapshotExpired,
                    NotAppendOnly,
                    ManifestError,
                    StoreError,
                ),
            ),
        )


def _query(request: Request, max_blocks: int) -> ChangesQuery:
    given = request.query_params
    return ChangesQuery(
        since=given.get("since"),
        since_timestamp=_time(given.get("since_timestamp")),
        until=given.get("until"),
        until_timestamp=_time(given.get("until_timestamp")),
        filter=_filter(given.get("filter")),
        columns=_columns(given.get("columns")),
        net=truth(request, "net"),
        append_only=truth(request, "append_only"),
        time_zone=given.get("time_zone", "UTC"),
        case_sensitive=truth(request, "case_sensitive"),
        page_size=min(whole_number(request, "page_size", _DEFAULT_BLOCKS, 1, _LARGEST_PAGE), max_blocks),
        page_token=given.get("page_token"),
    )


def _time(text: str | None) -> int | str | None:
    return None if text is None else instant_of(text)


def _filter(text: str | None) -> Any:
    """A filter as of bodies: no SQL begins with a brace."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidFilter(f"the filter is no JSON: {error}") from error


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise InvalidRequest('columns is a JSON list of names: ["a", "b"]', parameter="columns") from error


_REQUEST: Final = msgspec.json.Decoder(RollbackRequest)


class RollbackRoutes:
    """Take back what was committed."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def rollback(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: IdempotencyKey) -> Pending:
            asked = read_json(_REQUEST, body)
            return self._services.rollback.run(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/rollback",
                handler=self.rollback,
                needs=on_table("maintain"),
                summary="Roll a table back to an earlier snapshot",
                tag="History",
                description="A new snapshot gets the blocks and columns of the older one; nothing leaves the history, "
                "so a rollback can be rolled back. The files of blocks that come back are looked at first. With "
                "`base_snapshot_id` it is done only if that is the current snapshot; without, what others commit "
                "meanwhile is taken back too.",
                request_type=RollbackRequest,
                answer_type=RollbackAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    LocationRefused,
                    BodyTooLarge,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    SnapshotExpired,
                    CommitConflict,
                    BlocksGone,
                    QuotaExceeded,
                    IdempotencyMismatch,
                    StoreError,
                    Unavailable,
                    OutcomeUnknown,
                ),
            ),
        )
