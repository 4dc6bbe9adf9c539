"""Routes of ``.../refresh``, which brings a table up to date with its source."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog
from lamella.service.external.external import External
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json
from lamella.service.process.threads import Threads
from lamella.snapshot.near_names import require_known_members
from lamella.snapshot.wire import RefreshProgress, RefreshTable
from lamella.snapshot.wire.operations import external as operations

_REFRESH: Final = msgspec.json.Decoder(RefreshTable)
#: Concurrent refreshes in a process, and how many requests wait; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


class ExternalRoutes:
    """Routes that refresh external tables and report progress."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, external: External) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._external = external
        self._threads = Threads(_AT_ONCE, max_waiting=_WAITING, what="refreshes of external tables")

    async def refresh_table(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse | Pending:
            payload = read_json(_REFRESH, body)
            require_known_members(_REFRESH.type, body)
            return self._external.refresh(self._catalog.table(namespace, name), payload, idempotency_key)

        return await self._mutations.run(request, work, body, threads=self._threads)

    async def refresh_progress(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> RefreshProgress:
            return self._external.progress(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.REFRESH_TABLE, self.refresh_table),
            ServedOperation(operations.REFRESH_PROGRESS, self.refresh_progress),
        )
