"""Routes of ``.../register`` and ``.../commits``, which add blocks to a table and remove them."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access.permissions import check, require
from lamella.service.access.principal import principal_of
from lamella.service.catalog import Catalog
from lamella.service.commits.committer import Committer
from lamella.service.http.admission import MAX_RAW_VALUES, read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import SNAPSHOT_ID, ServedOperation, require_json
from lamella.service.process.threads import Threads
from lamella.service.tables.names import split_name
from lamella.service.usage.audit import about
from lamella.snapshot.wire import CommitRequest, Register, TransactionAnswer, TransactionRequest
from lamella.snapshot.wire.operations import commits as operations

_REGISTER = msgspec.json.Decoder(Register)
_COMMIT = msgspec.json.Decoder(CommitRequest)
_TRANSACTION = msgspec.json.Decoder(TransactionRequest)


class CommitRoutes:
    """Routes that register Parquet files, and commit blocks that a writer made or a job replaced."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        mutations: Mutations,
        committer: Committer,
        lists_at_once: int,
        transactions_at_once: int,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._committer = committer
        self._with_lists = Threads(lists_at_once)
        #: Each waits for the turns of its tables, so it takes no thread from commits.
        self._transactions = Threads(transactions_at_once)

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

    async def commit_transaction(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        payload = await self._readers.run(lambda: read_json(_TRANSACTION, body, max_values=MAX_RAW_VALUES))
        names = [split_name(each.table) for each in payload.tables]
        about(request, *(each.table for each in payload.tables))
        for namespace, name in names:
            require(request, "write", namespace, name)

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            tables = self._catalog.tables_at_once(names)
            changes = [(each.table, table, each.commit) for each, table in zip(payload.tables, tables, strict=True)]
            require_read = partial(check, principal_of(request), "read")
            return self._committer.transaction(changes, idempotency_key, require_read=require_read)

        response = await self._mutations.run(request, work, body, threads=self._transactions)
        if response.status_code == operations.COMMIT_TRANSACTION.status:
            committed = msgspec.json.decode(response.body, type=TransactionAnswer)
            request.scope[SNAPSHOT_ID] = {each.table: each.snapshot_id for each in committed.tables}
        return response

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.REGISTER, self.register),
            ServedOperation(operations.COMMIT, self.commit),
            ServedOperation(operations.COMMIT_TRANSACTION, self.commit_transaction),
        )
