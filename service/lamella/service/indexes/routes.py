"""Routes of ``.../indexes``: definitions of a table's skip indexes, and their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json, truth
from lamella.service.indexes.indexes import Indexes
from lamella.service.indexes.parts import Commit, IndexParts
from lamella.service.process.threads import Threads
from lamella.snapshot.wire import (
    CreateIndex,
    IndexInfo,
    IndexList,
    OptimiseRequest,
    PartsRequest,
    RefreshRequest,
)
from lamella.snapshot.wire.operations import indexes as operations

_CREATE: Final = msgspec.json.Decoder(CreateIndex)
_REFRESH: Final = msgspec.json.Decoder(RefreshRequest)
_PARTS: Final = msgspec.json.Decoder(PartsRequest)
_OPTIMISE: Final = msgspec.json.Decoder(OptimiseRequest)

#: Parts built at once in a process, and requests that wait for their turn; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


_Payload = TypeVar("_Payload")


class IndexRoutes:
    """Routes that create, list, fill, merge, drop, restore and remove skip indexes."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, mutations: Mutations, indexes: Indexes, index_parts: IndexParts
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._indexes = indexes
        self._index_parts = index_parts
        self._builders = Threads(_AT_ONCE, max_waiting=_WAITING, what="builds of indexes")

    async def list_index_kinds(self, request: Request) -> Response:  # noqa: ARG002  # a handler takes a request
        return json_response(self._indexes.kinds())

    async def list_indexes(self, request: Request) -> Response:
        dropped, snapshot_id = truth(request, "dropped"), request.query_params.get("snapshot_id")

        def work() -> IndexList:
            return self._indexes.list(self._table(request), snapshot_id, dropped=dropped)

        return json_response(await self._readers.run(work))

    async def show_index(self, request: Request) -> Response:
        name, snapshot_id = request.path_params["index"], request.query_params.get("snapshot_id")

        def work() -> IndexInfo:
            return self._indexes.show(self._table(request), name, snapshot_id)

        return json_response(await self._readers.run(work))

    async def create_index(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(idempotency_key: IdempotencyKey) -> Pending:
            return self._indexes.create(self._table(request), read_json(_CREATE, body), idempotency_key)

        return await self._mutations.run(request, work, body)

    async def drop_index(self, request: Request) -> Response:
        return await self._change(request, self._indexes.drop)

    async def restore_index(self, request: Request) -> Response:
        return await self._change(request, self._indexes.restore)

    async def vacuum_index(self, request: Request) -> Response:
        return await self._change(request, self._indexes.vacuum)

    async def refresh_index(self, request: Request) -> Response:
        return await self._build(request, _REFRESH, self._index_parts.refresh)

    async def add_index_parts(self, request: Request) -> Response:
        return await self._build(request, _PARTS, self._index_parts.take_up)

    async def optimise_index(self, request: Request) -> Response:
        return await self._build(request, _OPTIMISE, self._index_parts.optimise)

    def _table(self, request: Request) -> TableRecord:
        return self._catalog.table(request.path_params["namespace"], request.path_params["table"])

    async def _change(
        self, request: Request, change: Callable[[TableRecord, str, IdempotencyKey], Pending]
    ) -> Response:
        body, name = await request.body(), request.path_params["index"]

        def work(idempotency_key: IdempotencyKey) -> Pending:
            return change(self._table(request), name, idempotency_key)

        return await self._mutations.run(request, work, body)

    async def _build(
        self,
        request: Request,
        decoder: msgspec.json.Decoder[_Payload],
        build: Callable[[TableRecord, str, _Payload], Commit],
    ) -> Response:
        require_json(request)
        body, name = await request.body(), request.path_params["index"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse | Pending:
            commit = build(self._table(request), name, read_json(decoder, body))
            return commit(idempotency_key)

        return await self._mutations.run(request, work, body, threads=self._builders)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_INDEX_KINDS, self.list_index_kinds),
            ServedOperation(operations.LIST_INDEXES, self.list_indexes),
            ServedOperation(operations.CREATE_INDEX, self.create_index),
            ServedOperation(operations.SHOW_INDEX, self.show_index),
            ServedOperation(operations.DROP_INDEX, self.drop_index),
            ServedOperation(operations.RESTORE_INDEX, self.restore_index),
            ServedOperation(operations.VACUUM_INDEX, self.vacuum_index),
            ServedOperation(operations.REFRESH_INDEX, self.refresh_index),
            ServedOperation(operations.ADD_INDEX_PARTS, self.add_index_parts),
            ServedOperation(operations.OPTIMISE_INDEX, self.optimise_index),
        )
