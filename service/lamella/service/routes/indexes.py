"""``.../indexes``: the skip indexes of a table, their life and what fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.api import IDEMPOTENCY_KEY, Operation, Parameter, json_response, require_json, truth
from lamella.service.catalog import TableRecord
from lamella.service.idempotency import Claim, Sealed, claim, replay_of
from lamella.service.index_parts import Commit
from lamella.service.json_body import read_json
from lamella.service.pending import Pending
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    IdempotencyMismatch,
    IndexNotFound,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
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

_SNAPSHOT: Final = Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one.")


class IndexRoutes:
    """Make, look at, fill, tidy, drop, restore and remove skip indexes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._limiter: CapacityLimiter | None = None

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

        def work(claim: Claim) -> Pending:
            return self._services.indexes.create(self._table(request), read_json(_CREATE, body), claim)

        return await self._services.mutate(request, work, body)

    async def drop_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.drop)

    async def restore_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.restore)

    async def vacuum_index(self, request: Request) -> Response:
        return await self._change(request, self._services.indexes.vacuum)

    async def refresh_index(self, request: Request) -> Response:
        require_json(request)
        body, name = await request.body(), request.path_params["index"]
        return await self._build(
            request,
            body,
            lambda: self._services.index_parts.refresh(self._table(request), name, read_json(_REFRESH, body)),
        )

    async def add_index_parts(self, request: Request) -> Response:
        require_json(request)
        body, name = await request.body(), request.path_params["index"]
        return await self._build(
            request,
            body,
            lambda: self._services.index_parts.take_up(self._table(request), name, read_json(_PARTS, body)),
        )

    async def optimise_index(self, request: Request) -> Response:
        require_json(request)
        body, name = await request.body(), request.path_params["index"]
        return await self._build(
            request,
            body,
            lambda: self._services.index_parts.optimise(self._table(request), name, read_json(_OPTIMISE, body)),
        )

    def _table(self, request: Request) -> TableRecord:
        return self._services.catalog.table(request.path_params["namespace"], request.path_params["table"])

    async def _change(self, request: Request, change: Callable[[TableRecord, str, Claim], Pending]) -> Response:
        body, name = await request.body(), request.path_params["index"]

        def work(claim: Claim) -> Pending:
            return change(self._table(request), name, claim)

        return await self._services.mutate(request, work, body)

    async def _build(self, request: Request, body: bytes, build: Callable[[], Commit]) -> Response:
        """Do the long part in a thread of its own, so that it takes no commit's place, and then commit."""
        services = self._services
        if self._limiter is None:  # made here because it belongs to the event loop
            self._limiter = CapacityLimiter(_AT_ONCE)
        if self._limiter.statistics().tasks_waiting >= _WAITING:
            raise Overloaded("too many indexes are being built at once", retry_after_s=1)
        key = request.headers.get("idempotency-key")
        claimed = claim(key, request.method, request.url.path, request.url.query, body, services.clock())

        def work() -> Commit | Sealed:
            return replay_of(services.catalog, claimed) or build()

        done = await anyio.to_thread.run_sync(work, limiter=self._limiter)

        def commit(claim: Claim) -> Sealed | Pending:
            return done if isinstance(done, Sealed) else done(claim)

        return await services.mutate(request, commit, body)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        reading = (ManifestError, StoreError)
        failures = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)
        tag = "Indexes"
        return (
            Operation(
                method="GET",
                path="/v1/index-kinds",
                handler=self.list_index_kinds,
                summary="List the kinds of skip indexes",
                tag=tag,
                description="With their options, the defaults and bounds of these.",
                answer_type=IndexKindList,
            ),
            Operation(
                method="GET",
                path=_INDEXES,
                handler=self.list_indexes,
                summary="List the skip indexes of a table",
                tag=tag,
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
                errors=(InvalidRequest, *missing, SnapshotNotFound, *reading),
            ),
            Operation(
                method="POST",
                path=_INDEXES,
                handler=self.create_index,
                summary="Make a skip index",
                tag=tag,
                description="It knows no block yet: refresh it, or build parts elsewhere. Prunes can use it at any "
                "time; blocks that it does not know are kept.",
                request_type=CreateIndex,
                answer_type=IndexInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, InvalidFilter, UnknownColumn, *missing, AlreadyExists, *failures),
            ),
            Operation(
                method="GET",
                path=_INDEX,
                handler=self.show_index,
                summary="Look at a skip index",
                tag=tag,
                answer_type=IndexInfo,
                parameters=(_SNAPSHOT,),
                errors=(*missing, IndexNotFound, SnapshotNotFound, *reading),
            ),
            Operation(
                method="DELETE",
                path=_INDEX,
                handler=self.drop_index,
                summary="Drop a skip index",
                tag=tag,
                description="It is not used any more, and can be restored with all that it knows.",
                answer_type=IndexInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, IndexNotFound, *failures),
            ),
            Operation(
                method="POST",
                path=_INDEX + "/restore",
                handler=self.restore_index,
                summary="Use a dropped skip index again",
                tag=tag,
                answer_type=IndexInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, IndexNotFound, *failures),
            ),
            Operation(
                method="POST",
                path=_INDEX + "/vacuum",
                handler=self.vacuum_index,
                summary="Remove a dropped skip index for good",
                tag=tag,
                description="Its name is free afterwards. Its objects are deleted by the table's clean-up, when the "
                "last snapshot that has them has expired.",
                answer_type=IndexInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, IndexNotFound, *failures),
            ),
            Operation(
                method="POST",
                path=_INDEX + "/refresh",
                handler=self.refresh_index,
                summary="Fill a skip index, part by part",
                tag=tag,
                description="Each answer is a part, which is committed and used from then on; ask again with "
                "`next_page_token` until there is none. Nothing is held in between, so a refresh can end at any time.",
                request_type=RefreshRequest,
                answer_type=RefreshAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    InvalidPageToken,
                    *missing,
                    IndexNotFound,
                    SnapshotExpired,
                    Overloaded,
                    *failures,
                ),
            ),
            Operation(
                method="POST",
                path=_INDEX + "/parts",
                handler=self.add_index_parts,
                summary="Take up parts of a skip index that were built elsewhere",
                tag=tag,
                description="Each must be in the table's `_ix` folder under a fresh name, whole, and of the index's "
                "definition. What it says of its blocks is believed, as statistics of committed blocks are.",
                request_type=PartsRequest,
                answer_type=PartsAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, *missing, IndexNotFound, ObjectNotFound, Overloaded, *failures),
            ),
            Operation(
                method="POST",
                path=_INDEX + "/optimise",
                handler=self.optimise_index,
                summary="Regroup the parts of a skip index",
                tag=tag,
                description="So that each has the blocks of one full segment, or of small neighbours, and none that "
                "left the table. No data is read. Ask again until `remaining` is 0.",
                request_type=OptimiseRequest,
                answer_type=OptimiseAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, *missing, IndexNotFound, Overloaded, *failures),
            ),
        )
