"""Routes for cluster keys and the plans of rewrites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord, current_table
from lamella.service.clustering.clustering import Clustering
from lamella.service.history.history import History, trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json, truth, whole_number
from lamella.service.process.threads import Threads
from lamella.service.prune.block_urls import BlockUrls
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import ClusterKind, SnapshotPointer
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.layouts import Where
from lamella.snapshot.wire import (
    BlocksAnswer,
    BlocksRequest,
    ClusteringAnswer,
    ClusterKeyRequest,
    PlanRequest,
    RegroupRequest,
)
from lamella.snapshot.wire.operations import clustering as operations

_SET: Final = msgspec.json.Decoder(ClusterKeyRequest)
_REGROUP: Final = msgspec.json.Decoder(RegroupRequest)
#: Concurrent layout queries and regroupings in a process, and how many wait; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


class ClusteringRoutes:
    """Routes that read and change a table's cluster key."""

    def __init__(self, *, catalog: Catalog, readers: Threads, mutations: Mutations, clustering: Clustering) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._clustering = clustering
        self._askers = Threads(_AT_ONCE, max_waiting=_WAITING, what="questions about layouts")
        self._writers = Threads(_AT_ONCE, max_waiting=_WAITING, what="regroupings")

    async def show_cluster_key(self, request: Request) -> Response:
        return json_response(await self._readers.run(lambda: self._clustering.key(self._table(request))))

    async def set_cluster_key(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(idempotency_key: IdempotencyKey) -> StoredResponse | Pending:
            return self._clustering.set_key(self._table(request), read_json(_SET, body), idempotency_key)

        return await self._mutations.run(request, work, body)

    async def show_clustering(self, request: Request) -> Response:
        columns, kind, where = _columns(request), _kind(request), _where(request)
        snapshot_id = request.query_params.get("snapshot_id")
        recorded = whole_number(request, "recorded", operations.RECORDED, 0, operations.MAX_RECORDED)

        def work() -> ClusteringAnswer:
            return self._clustering.figures(
                self._table(request), columns, kind, snapshot_id=snapshot_id, where=where, recorded=recorded
            )

        return json_response(await self._askers.run(work))

    async def regroup(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(idempotency_key: IdempotencyKey) -> StoredResponse | Pending:
            return self._clustering.regroup(self._table(request), read_json(_REGROUP, body), idempotency_key)

        return await self._mutations.run(request, work, body, threads=self._writers)

    def _table(self, request: Request) -> TableRecord:
        return self._catalog.table(request.path_params["namespace"], request.path_params["table"])

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.SHOW_CLUSTER_KEY, self.show_cluster_key),
            ServedOperation(operations.SET_CLUSTER_KEY, self.set_cluster_key),
            ServedOperation(operations.SHOW_CLUSTERING, self.show_clustering),
            ServedOperation(operations.REGROUP, self.regroup),
        )


def _columns(request: Request) -> tuple[str, ...]:
    given = request.query_params.getlist("key")
    return tuple(name.strip() for text in given for name in text.split(",")) if given else ()


def _kind(request: Request) -> ClusterKind:
    kind = request.query_params.get("kind", "linear")
    if kind not in get_args(ClusterKind):
        raise InvalidRequest(f"kind is one of {', '.join(get_args(ClusterKind))}, not {kind!r}", parameter="kind")
    if "kind" in request.query_params and "key" not in request.query_params:
        raise InvalidRequest("a kind without columns: name the columns of the key", parameter="kind")
    return cast("ClusterKind", kind)


def _where(request: Request) -> Where | None:
    text = request.query_params.get("where")
    case_sensitive = truth(request, "case_sensitive")
    if text is None:
        return None
    time_zone = request.query_params.get("time_zone", "UTC")
    return Where(read_filter(text, time_zone=time_zone), time_zone, case_sensitive)


_PLAN: Final = msgspec.json.Decoder(PlanRequest)
_BLOCKS: Final = msgspec.json.Decoder(BlocksRequest)
_Answer = TypeVar("_Answer")


class RewriteRoutes:
    """Routes that plan rewrites and look up blocks."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, block_urls: BlockUrls, history: History, warehouse: Warehouse
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._block_urls = block_urls
        self._history = history
        self._warehouse = warehouse
        self._threads = Threads(_AT_ONCE)

    async def plan(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_PLAN, await request.body())
        return await self._answer(
            request, payload.snapshot_id, lambda _, pointer: self._warehouse.planning.plan(pointer, payload)
        )

    async def blocks(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_BLOCKS, await request.body())
        if len(payload.locations) > operations.MAX_BLOCKS:
            raise InvalidRequest(
                f"at most {operations.MAX_BLOCKS} locations in one request, not {len(payload.locations)}"
            )

        def looked_up(record: TableRecord, pointer: SnapshotPointer) -> BlocksAnswer:
            found = self._warehouse.planning.blocks(pointer, payload.locations, payload.reader_features)
            return self._block_urls.in_blocks(record, found) if payload.sign_urls else found

        response = await self._answer(request, payload.snapshot_id, looked_up, reading=payload.sign_urls)
        if payload.sign_urls:
            response.headers["Cache-Control"] = "no-store"
        return response

    async def _answer(
        self,
        request: Request,
        snapshot_id: str | None,
        work: Callable[[TableRecord, SnapshotPointer], _Answer],
        *,
        reading: bool = False,
    ) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def answered() -> _Answer:
            record = current_table(self._catalog, namespace, name)
            with trusted_manifests():
                return work(record, self._history.pointer(record, snapshot_id=snapshot_id))

        # Readers, who ask with URLs, do not wait for jobs that plan.
        run = self._readers.run if reading else self._threads.run
        return json_response(await run(answered))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.PLAN, self.plan),
            ServedOperation(operations.BLOCKS, self.blocks),
        )
