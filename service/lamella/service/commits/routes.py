"""``.../register`` and ``.../commits``: how blocks come into a table and leave it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.http.admission import MAX_RAW_VALUES, read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.http.routing import IDEMPOTENCY_KEY, TABLE, Operation, require_json
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.snapshot.errors import (
    BlocksRefused,
    BodyTooLarge,
    CommitConflict,
    DuplicateBlock,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NewMatches,
    ObjectNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    SchemaConflict,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import CommitAnswer, CommitRequest, Register, RegisterAnswer

_REGISTER = msgspec.json.Decoder(Register)
_COMMIT = msgspec.json.Decoder(CommitRequest)


class CommitRoutes:
    """Register Parquet files; commit blocks that a writer made, or that a job replaced."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._with_lists = Threads(services.settings.commit_lists_at_once)

    async def register(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: IdempotencyKey) -> Pending:
            asked = read_json(_REGISTER, body)
            return self._services.committer.register(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    async def commit(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: IdempotencyKey) -> Pending:
            asked = read_json(_COMMIT, body, max_values=MAX_RAW_VALUES)
            return self._services.committer.commit(self._services.catalog.table(namespace, name), asked, claim)

        # Only a guess, made before the body is read as JSON: it decides whose turn the request waits for.
        threads = self._with_lists if b'"added_from"' in body else None
        return await self._services.mutate(request, work, body, threads=threads)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        common = (
            InvalidRequest,
            LocationRefused,
            BlocksRefused,
            BodyTooLarge,
            DuplicateBlock,
            NamespaceNotFound,
            TableNotFound,
            IdempotencyMismatch,
            QuotaExceeded,
            StoreError,
            Unavailable,
            OutcomeUnknown,
        )
        return (
            Operation(
                method="POST",
                path=TABLE + "/register",
                handler=self.register,
                needs=on_table("write"),
                summary="Append Parquet files that exist",
                tag="Blocks",
                description="Each of `paths` is a file, a folder (its `*.parquet` files at any depth) or a glob. "
                "Footers are read in parallel and the files appended in one snapshot. A file that cannot be taken is "
                "listed under `refused` with the reason, and the others are registered, unless `strict` is true. "
                "With `verify` the statistics are taken from the values, all of which are read, not from the footers. "
                "When nothing could be registered the answer is an error and the table is as it was.",
                is_large=True,
                request_type=Register,
                answer_type=RegisterAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=common,
            ),
            Operation(
                method="POST",
                path=TABLE + "/commits",
                handler=self.commit,
                needs=on_table("write"),
                summary="Add and remove blocks in one snapshot",
                tag="Blocks",
                description="All of it happens or nothing. Appends never conflict; a block that is to be removed and "
                "is no longer there does. The size of each added file is asked of the store, whatever the request "
                "says. `added_from` names objects `_tmp/<v7 UUID>_v1.blocks` below the table's folder that hold "
                "further blocks as JSON, one a line, for commits that are larger than a request can be; they come "
                "behind those of `added` and are treated alike. `index_parts` are what skip indexes know of the added "
                "blocks, for which they are filled by the same snapshot; those of an index that is no longer used are "
                "left out and named in the answer. With `no_new_matches` the commit is refused when blocks came since "
                "`base_snapshot_id` that may hold rows of a filter: for changes that rest on having seen all of these.",
                is_large=True,
                request_type=CommitRequest,
                answer_type=CommitAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    *common,
                    InvalidFilter,
                    UnknownColumn,
                    FilterTypeMismatch,
                    LimitExceeded,
                    SnapshotNotFound,
                    ObjectNotFound,
                    CommitConflict,
                    NewMatches,
                    SchemaConflict,
                ),
            ),
        )
