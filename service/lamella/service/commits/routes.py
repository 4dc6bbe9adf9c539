"""Routes of ``.../register`` and ``.../commits``, which add blocks to a table and remove them."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.permissions import check
from lamella.service.access.principal import principal_of
from lamella.service.catalog import Catalog
from lamella.service.commits.committer import Committer
from lamella.service.http.admission import MAX_RAW_VALUES, read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, require_json
from lamella.service.process.threads import Threads
from lamella.snapshot.wire import CommitRequest, Register
from lamella.snapshot.wire.operations import commits as operations

_REGISTER = msgspec.json.Decoder(Register)
_COMMIT = msgspec.json.Decoder(CommitRequest)


class CommitRoutes:
    """Routes that register Parquet files, and commit blocks that a writer made or a job replaced."""

    def __init__(self, *, catalog: Catalog, mutations: Mutations, committer: Committer, lists_at_once: int) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._committer = committer
        self._with_lists = Threads(lists_at_once)

    async def register(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> Pending:
            payload = read_json(_REGISTER, body)
            return self._committer.register(self._catalog.table(namespace, name), payload, idempotency_key)

        return await self._mutations.run(request, work, body)

    async def commit(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> Pending:
            payload = read_json(_COMMIT, body, max_values=MAX_RAW_VALUES)
            return self._committer.commit(
                self._catalog.table(namespace, name),
                payload,
                idempotency_key,
                require_read=partial(check, principal_of(request), "read"),
            )

        # An estimate from the unparsed body: it decides which queue the request waits in.
        threads = self._with_lists if b'"added_from"' in body else None
        return await self._mutations.run(request, work, body, threads=threads)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.REGISTER, self.register),
            ServedOperation(operations.COMMIT, self.commit),
        )
