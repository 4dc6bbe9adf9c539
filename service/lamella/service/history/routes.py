"""Routes of a table's history: snapshots and segments, tags, changes, rollback."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.permissions import require
from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.history.changes import ChangesQuery, ChangeStream
from lamella.service.history.history import History, instant_of
from lamella.service.history.rollback import Rollback
from lamella.service.history.tags import Tags
from lamella.service.http import responses
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.responses import ConditionalResponses, entity_tag, respond_json, tagged_by_content
from lamella.service.http.routing import (
    ServedOperation,
    json_response,
    reader_features,
    require_json,
    truth,
    whole_number,
)
from lamella.service.http.streaming import LargeAnswers
from lamella.service.process.threads import Threads
from lamella.service.tables.names import split_name
from lamella.snapshot.errors import InvalidFilter, InvalidRequest
from lamella.snapshot.wire import (
    CurrentSnapshot,
    CurrentSnapshots,
    CurrentSnapshotsRequest,
    RollbackRequest,
    SnapshotList,
    TagRequest,
)
from lamella.snapshot.wire.operations import history as operations

_CURRENT: Final = msgspec.json.Decoder(CurrentSnapshotsRequest)


class HistoryRoutes:
    """Routes that list snapshots and return manifests as they were written."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        conditional: ConditionalResponses,
        history: History,
        page_size_max: int,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._conditional = conditional
        self._history = history
        self._page_size_max = page_size_max

    async def list_snapshots(self, request: Request) -> Response:
        largest = self._page_size_max
        page_size = whole_number(request, "page_size", min(operations.DEFAULT_SNAPSHOTS, largest), 1, largest)
        given = request.query_params
        page_token, snapshot_id, timestamp = (given.get(key) for key in ("page_token", "snapshot_id", "timestamp"))
        time_zone = given.get("time_zone", "UTC")
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> SnapshotList:
            history = self._history
            record = current_table(self._catalog, namespace, name)
            newest = None
            if page_token is None and (snapshot_id is not None or timestamp is not None):
                at = None if timestamp is None else instant_of(timestamp)
                newest = history.entry(record, snapshot_id=snapshot_id, timestamp=at, time_zone=time_zone)
            return history.page(record, page_size=page_size, page_token=page_token, newest=newest)

        return tagged_by_content(request, msgspec.json.encode(await self._readers.run(work)))

    async def current_snapshots(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_CURRENT, await request.body())
        names = [split_name(each) for each in payload.tables]
        for namespace, name in names:
            require(request, "read", namespace, name)
        found = await self._readers.run(lambda: self._catalog.tables_at_once(names))
        snapshots = tuple(
            CurrentSnapshot(table=table, snapshot_id=each.pointer.snapshot_id, timestamp_ms=each.pointer.timestamp_ms)
            for table, each in zip(payload.tables, found, strict=True)
        )
        return json_response(CurrentSnapshots(snapshots=snapshots))

    async def get_snapshot(self, request: Request) -> Response:
        history, snapshot_id = self._history, request.path_params["snapshot_id"]
        return await self._conditional.respond(
            request,
            lambda record: entity_tag("snapshot", history.pointer(record, snapshot_id=snapshot_id).manifest.sha256),
            lambda record: history.snapshot_json(record, snapshot_id),
        )

    async def get_segment(self, request: Request) -> Response:
        history, segment_id = self._history, request.path_params["segment_id"]
        snapshot_id, features = request.query_params.get("snapshot_id"), reader_features(request)
        return await self._conditional.respond(
            request,
            lambda record: self._segment_tag("segment", record, segment_id, snapshot_id),
            lambda record: history.segment_json(record, segment_id, snapshot_id, features),
        )

    async def get_segment_blocks(self, request: Request) -> Response:
        history, segment_id = self._history, request.path_params["segment_id"]
        snapshot_id, features = request.query_params.get("snapshot_id"), reader_features(request)
        return await self._conditional.respond(
            request,
            lambda record: self._segment_tag("blocks", record, segment_id, snapshot_id),
            lambda record: msgspec.json.encode(history.segment_blocks(record, segment_id, snapshot_id, features)),
            cache=responses.IMMUTABLE,
        )

    def _segment_tag(self, kind: str, record: TableRecord, segment_id: str, snapshot_id: str | None) -> str:
        # With the snapshot, since whoever has such a tag was told then that the segment is in that snapshot.
        return entity_tag(kind, segment_id, self._history.pointer(record, snapshot_id=snapshot_id).snapshot_id)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_SNAPSHOTS, self.list_snapshots),
            ServedOperation(operations.CURRENT_SNAPSHOTS, self.current_snapshots),
            ServedOperation(operations.GET_SNAPSHOT, self.get_snapshot),
            ServedOperation(operations.GET_SEGMENT, self.get_segment),
            ServedOperation(operations.GET_SEGMENT_BLOCKS, self.get_segment_blocks),
        )


_PUT: Final = msgspec.json.Decoder(TagRequest)


class TagRoutes:
    """Routes that list, create, move and delete tags."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, tags: Tags) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._tags = tags

    async def list_tags(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        return json_response(await self._readers.run(lambda: self._tags.list(self._catalog.table(namespace, name))))

    async def put_tag(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            payload = read_json(_PUT, body)
            return self._tags.put(self._catalog.table(namespace, name), payload, idempotency_key)

        return await self._mutations.run(request, work, body)

    async def drop_tag(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        tag = request.path_params["tag"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            return self._tags.drop(self._catalog.table(namespace, name), tag, idempotency_key)

        return await self._mutations.run(request, work)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_TAGS, self.list_tags),
            ServedOperation(operations.PUT_TAG, self.put_tag),
            ServedOperation(operations.DROP_TAG, self.drop_tag),
        )


_ENCODER: Final = msgspec.json.Encoder()


class ChangesRoutes:
    """Routes for readers of new data."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        changes: ChangeStream,
        large_answers: LargeAnswers,
        answer_blocks_max: int,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._changes = changes
        self._large_answers = large_answers
        self._answer_blocks_max = answer_blocks_max

    async def changes(self, request: Request) -> Response:
        query = _query(request, self._answer_blocks_max)
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> bytes:
            table = current_table(self._catalog, namespace, name)
            return _ENCODER.encode(self._changes.page(table, query))

        return await respond_json(await self._readers.run(work), self._large_answers, request)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.CHANGES, self.changes),)


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
        page_size=min(
            whole_number(request, "page_size", operations.DEFAULT_BLOCKS, 1, operations.MAX_PAGE), max_blocks
        ),
        page_token=given.get("page_token"),
        reader_features=reader_features(request),
    )


def _time(text: str | None) -> int | str | None:
    return None if text is None else instant_of(text)


def _filter(text: str | None) -> Any:
    """Return a filter as in a body: no SQL begins with a brace."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidFilter(f"the filter is not JSON: {error}") from error


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise InvalidRequest('columns is a JSON list of names: ["a", "b"]', parameter="columns") from error


_REQUEST: Final = msgspec.json.Decoder(RollbackRequest)


class RollbackRoutes:
    """Routes of rollback."""

    def __init__(self, *, catalog: Catalog, mutations: Mutations, rollback: Rollback) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._rollback = rollback

    async def rollback(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> Pending:
            payload = read_json(_REQUEST, body)
            return self._rollback.run(self._catalog.table(namespace, name), payload, idempotency_key)

        return await self._mutations.run(request, work, body)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.ROLLBACK, self.rollback),)
