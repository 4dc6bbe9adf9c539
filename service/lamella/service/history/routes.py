"""Routes of a table's history: snapshots and segments, tags, changes, rollback."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import TableRecord
from lamella.service.history.changes import ChangesQuery
from lamella.service.history.history import instant_of
from lamella.service.http import responses
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.responses import entity_tag, respond_json, tagged_by_content
from lamella.service.http.routing import ServedOperation, json_response, require_json, truth, whole_number
from lamella.service.services import Services
from lamella.snapshot.errors import InvalidFilter, InvalidRequest
from lamella.snapshot.wire import RollbackRequest, SnapshotList, TagRequest
from lamella.snapshot.wire.operations import history as operations


class HistoryRoutes:
    """List snapshots; read manifests as they were written."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_snapshots(self, request: Request) -> Response:
        largest = self._services.settings.page_size_max
        page_size = whole_number(request, "page_size", min(operations.DEFAULT_SNAPSHOTS, largest), 1, largest)
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

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_SNAPSHOTS, self.list_snapshots),
            ServedOperation(operations.GET_SNAPSHOT, self.get_snapshot),
            ServedOperation(operations.GET_SEGMENT, self.get_segment),
            ServedOperation(operations.GET_SEGMENT_BLOCKS, self.get_segment_blocks),
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

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_TAGS, self.list_tags),
            ServedOperation(operations.PUT_TAG, self.put_tag),
            ServedOperation(operations.DROP_TAG, self.drop_tag),
        )


_ENCODER: Final = msgspec.json.Encoder()


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

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.ROLLBACK, self.rollback),)
