"""``.../indexes``: the skip indexes of a table, their life and what fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, on_table
from lamella.service.catalog import TableRecord
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.routing import (
    IDEMPOTENCY_KEY,
    TABLE,
    Handler,
    Method,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
)
from lamella.service.indexes.parts import Commit
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    IdempotencyMismatch,
    IndexNotFound,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LamellaError,
    ManifestError,
    NamespaceNotFound,
    ObjectNotFound,
    OutcomeUnknown,
    Overloaded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    CreateIndex,
    IndexInfo,
    IndexKindList,
    IndexList,
    OptimiseAnswer,
    OptimiseRequest,
    PartsAnswer,
    PartsRequest,
    RefreshAnswer,
    RefreshRequest,
)

_CREATE: Final = msgspec.json.Decoder(CreateIndex)
_REFRESH: Final = msgspec.json.Decoder(RefreshRequest)
_PARTS: Final = msgspec.json.Decoder(PartsRequest)
_OPTIMISE: Final = msgspec.json.Decoder(OptimiseRequest)

_INDEXES: Final = TABLE + "/indexes"
_INDEX: Final = _INDEXES + "/{index}"
#: Parts built at once in a process, and requests that wait for their turn; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16

_TAG: Final = "Indexes"
_MISSING: Final = (NamespaceNotFound, TableNotFound)
_FAILURES: Final = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)

_Asked = TypeVar("_Asked")

_SNAPSHOT: Final = Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one.")


class IndexRoutes:
    """Make, look at, fill, tidy, drop, restore and remove skip indexes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._builders = Threads(_AT_ONCE, max_waiting=_WAITING, what="builds of indexes")

    async def list_index_kinds(self, request: Request) -> Response:  # noqa: ARG002  # a handler takes a request
        return json_response(self._services.indexes.kinds())

    async def list_indexes(self, request: Request) -> Response:
        dropped, snapshot_id = truth(request, "dropped"), request.query_params.get("snapshot_id")

        def work() -> IndexList:
            return self._services.indexes.list(self._table(request), snapshot_id, dropped=dropped)

        return json_response(await self._services.read(work))

    async def show_index(self, request: Request) -> Response:
        name, snapshot_id = request.path_params["index"], request.query_params.get("snapshot_id")

        def work() -> IndexInfo:
            return self._services.indexes.show(self._table(request), name, snapshot_id)

        return json_response(await self._services.read(work))

    async def create_index(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(claim: IdempotencyKey) -> Pending:
            return self._services.indexes.create(self._table(request), read_json(_CREATE, body), claim)

        return await self._services.mutate(request, work, body)

    async def drop_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.drop)

    async def restore_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.restore)

    async def vacuum_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.vacuum)

    async def refresh_index(self, request: Request) -> Response:
        return await self._build(request, _REFRESH, self._services.index_parts.refresh)

    async def add_index_parts(self, request: Request) -> Response:
        return await self._build(request, _PARTS, self._services.index_parts.take_up)

    async def optimise_index(self, request: Request) -> Response:
        return await self._build(request, _OPTIMISE, self._services.index_parts.optimise)

    def _table(self, request: Request) -> TableRecord:
        return self._services.catalog.table(request.path_params["namespace"], request.path_params["table"])

    async def _change(
        self, request: Request, change: Callable[[TableRecord, str, IdempotencyKey], Pending]
    ) -> Response:
        body, name = await request.body(), request.path_params["index"]

        def work(claim: IdempotencyKey) -> Pending:
            return change(self._table(request), name, claim)

        return await self._services.mutate(request, work, body)

    async def _build(
        self,
        request: Request,
        decoder: msgspec.json.Decoder[_Asked],
        build: Callable[[TableRecord, str, _Asked], Commit],
    ) -> Response:
        require_json(request)
        body, name = await request.body(), request.path_params["index"]

        def work(claim: IdempotencyKey) -> StoredResponse | Pending:
            commit = build(self._table(request), name, read_json(decoder, body))
            return commit(claim)

        return await self._services.mutate(request, work, body, threads=self._builders)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        reading = (ManifestError, StoreError)
        return (
            Operation(
                method="GET",
                path="/v1/index-kinds",
                handler=self.list_index_kinds,
                needs=ANYBODY,
                summary="List the kinds of skip indexes",
                tag=_TAG,
                description="With their options, the defaults and bounds of these.",
                answer_type=IndexKindList,
            ),
            Operation(
                method="GET",
                path=_INDEXES,
                handler=self.list_indexes,
                needs=on_table("read"),
                summary="List the skip indexes of a table",
                tag=_TAG,
                description="With what each of them knows of the snapshot's blocks.",
                answer_type=IndexList,
                parameters=(
                    Parameter(
                        name="dropped",
                        description="`true`: dropped ones too.",
                        schema={"type": "string", "enum": ["true", "false"], "default": "false"},
                    ),
                    _SNAPSHOT,
                ),
                errors=(InvalidRequest, *_MISSING, SnapshotNotFound, *reading),
            ),
            Operation(
                method="POST",
                path=_INDEXES,
                handler=self.create_index,
                needs=on_table("maintain"),
                summary="Make a skip index",
                tag=_TAG,
                description="It knows no block yet: refresh it, or build parts elsewhere. Prunes can use it at any "
                "time; blocks that it does not know are kept.",
                request_type=CreateIndex,
                answer_type=IndexInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, InvalidFilter, UnknownColumn, *_MISSING, AlreadyExists, *_FAILURES),
            ),
            Operation(
                method="GET",
                path=_INDEX,
                handler=self.show_index,
                needs=on_table("read"),
                summary="Look at a skip index",
                tag=_TAG,
                answer_type=IndexInfo,
                parameters=(_SNAPSHOT,),
                errors=(*_MISSING, IndexNotFound, SnapshotNotFound, *reading),
            ),
            _changing(
                self.drop_index,
                "",
                method="DELETE",
                summary="Drop a skip index",
                description="It is not used any more, and can be restored with all that it knows.",
            ),
            _changing(self.restore_index, "/restore", summary="Use a dropped skip index again"),
            _changing(
                self.vacuum_index,
                "/vacuum",
                summary="Remove a dropped skip index for good",
                description="Its name is free afterwards. Its objects are deleted by the table's clean-up, when the "
                "last snapshot that has them has expired.",
            ),
            _changing(
                self.refresh_index,
                "/refresh",
                summary="Fill a skip index, part by part",
                description="Each answer is a part, which is committed and used from then on; ask again with "
                "`next_page_token` until there is none. Nothing is held in between, so a refresh can end at any time.",
                request_type=RefreshRequest,
                answer_type=RefreshAnswer,
                errors=(InvalidRequest, InvalidPageToken, SnapshotExpired, Overloaded),
            ),
            _changing(
                self.add_index_parts,
                "/parts",
                summary="Take up parts of a skip index that were built elsewhere",
                description="Each must be in the table's `_ix` folder under a fresh name, whole, and of the index's "
                "definition. What it says of its blocks is believed, as statistics of committed blocks are.",
                is_large=True,
                request_type=PartsRequest,
                answer_type=PartsAnswer,
                errors=(InvalidRequest, ObjectNotFound, Overloaded),
            ),
            _changing(
                self.optimise_index,
                "/optimise",
                summary="Regroup the parts of a skip index",
                description="So that each has the blocks of one full segment, or of small neighbours, and none that "
                "left the table. No data is read. Ask again until `remaining` is 0.",
                request_type=OptimiseRequest,
                answer_type=OptimiseAnswer,
                errors=(InvalidRequest, Overloaded),
            ),
        )


def _changing(
    handler: Handler,
    below: str,
    *,
    summary: str,
    description: str = "",
    method: Method = "POST",
    request_type: Any = None,
    is_large: bool = False,
    answer_type: Any = IndexInfo,
    errors: tuple[type[LamellaError], ...] = (),
) -> Operation:
    """A change of one index, ``below`` its path."""
    return Operation(
        method=method,
        path=_INDEX + below,
        handler=handler,
        needs=on_table("maintain"),
        summary=summary,
        tag=_TAG,
        description=description,
        request_type=request_type,
        is_large=is_large,
        answer_type=answer_type,
        parameters=(IDEMPOTENCY_KEY,),
        errors=(*_MISSING, IndexNotFound, *errors, *_FAILURES),
    )
