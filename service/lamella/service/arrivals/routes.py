"""The route of ``.../arrivals``."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.arrivals.arrivals import Arrivals
from lamella.service.catalog import Catalog
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, require_json
from lamella.service.process.threads import Threads
from lamella.snapshot.arrivals import file_events
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage.location import SUFFIX, normal
from lamella.snapshot.wire import ArrivalsRequest
from lamella.snapshot.wire.operations import commits as operations

_REQUEST: Final = msgspec.json.Decoder(ArrivalsRequest)
#: Requests that a process works on at once, and how many wait. Each waits for its commit, so none takes a thread of
#: commits.
_AT_ONCE: Final = 16
_WAITING: Final = 256


class ArrivalsRoutes:
    """The route that takes event notifications, and lists of files that arrived."""

    def __init__(self, *, catalog: Catalog, mutations: Mutations, arrivals: Arrivals) -> None:
        self._catalog = catalog
        self._mutations = mutations
        self._arrivals = arrivals
        self._threads = Threads(_AT_ONCE, max_waiting=_WAITING, what="arrivals of files")

    async def register_arrivals(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        prefix, suffix = request.query_params.get("prefix"), request.query_params.get("suffix", SUFFIX)

        def work(_key: IdempotencyKey) -> StoredResponse:
            payload = read_json(_REQUEST, body)
            if prefix is not None:
                normal(prefix)
            if not suffix or "/" in suffix:
                raise InvalidRequest(f"the end of a file's name cannot be {suffix!r}", parameter="suffix")
            answer = self._arrivals.take(
                self._catalog.table(namespace, name),
                file_events(payload),
                prefix=prefix,
                suffix=suffix,
                must_report=not (payload.files or payload.removed),
            )
            snapshot_id = answer.snapshot_id if answer.changed else None
            return StoredResponse(200, msgspec.json.encode(answer), snapshot_id=snapshot_id)

        return await self._mutations.run(request, work, body, threads=self._threads)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.REGISTER_ARRIVALS, self.register_arrivals),)
