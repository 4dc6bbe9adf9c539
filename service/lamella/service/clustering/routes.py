"""Routes of cluster keys and of the plans of rewrites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.catalog import TableRecord
from lamella.service.clustering.clustering import MAX_RECORDED, RECORDED
from lamella.service.history.history import trusted_manifests
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, Pending, StoredResponse
from lamella.service.http.routing import (
    IDEMPOTENCY_KEY,
    TABLE,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
    whole_number,
)
from lamella.service.process.threads import Threads
from lamella.service.services import Services
from lamella.snapshot.errors import (
    BodyTooLarge,
    CommitConflict,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    ManifestError,
    NamespaceNotFound,
    NotSignable,
    OutcomeUnknown,
    Overloaded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.expression import read_filter
from lamella.snapshot.manifest import ClusterKind, SnapshotPointer
from lamella.snapshot.warehouse.layouts import Where
from lamella.snapshot.wire import (
    BlocksAnswer,
    BlocksRequest,
    ClusteringAnswer,
    ClusterKeyInfo,
    ClusterKeyRequest,
    PlanAnswer,
    PlanRequest,
    RegroupAnswer,
    RegroupRequest,
)

_SET: Final = msgspec.json.Decoder(ClusterKeyRequest)
_REGROUP: Final = msgspec.json.Decoder(RegroupRequest)
#: Questions, and regroupings, at work at once in a process, and those that wait for their turn; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


class ClusteringRoutes:
    """Look at and change a table's cluster key."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._readers = Threads(_AT_ONCE, max_waiting=_WAITING, what="questions about layouts")
        self._writers = Threads(_AT_ONCE, max_waiting=_WAITING, what="regroupings")

    async def show_cluster_key(self, request: Request) -> Response:
        return json_response(await self._services.read(lambda: self._services.clustering.key(self._table(request))))

    async def set_cluster_key(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(claim: IdempotencyKey) -> StoredResponse | Pending:
            return self._services.clustering.set_key(self._table(request), read_json(_SET, body), claim)

        return await self._services.mutate(request, work, body)

    async def show_clustering(self, request: Request) -> Response:
        columns, kind, where = _columns(request), _kind(request), _where(request)
        snapshot_id = request.query_params.get("snapshot_id")
        recorded = whole_number(request, "recorded", RECORDED, 0, MAX_RECORDED)

        def work() -> ClusteringAnswer:
            return self._services.clustering.figures(
                self._table(request), columns, kind, snapshot_id=snapshot_id, where=where, recorded=recorded
            )

        return json_response(await self._readers.run(work))

    async def regroup(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(claim: IdempotencyKey) -> StoredResponse | Pending:
            return self._services.clustering.regroup(self._table(request), read_json(_REGROUP, body), claim)

        return await self._services.mutate(request, work, body, threads=self._writers)

    def _table(self, request: Request) -> TableRecord:
        return self._services.catalog.table(request.path_params["namespace"], request.path_params["table"])

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        failures = (BodyTooLarge, IdempotencyMismatch, StoreError, Unavailable, OutcomeUnknown)
        tag = "Layout"
        return (
            Operation(
                method="GET",
                path=TABLE + "/cluster-key",
                handler=self.show_cluster_key,
                needs=on_table("read"),
                summary="Look at the cluster key of a table",
                tag=tag,
                answer_type=ClusterKeyInfo,
                errors=missing,
            ),
            Operation(
                method="PUT",
                path=TABLE + "/cluster-key",
                handler=self.set_cluster_key,
                needs=on_table("maintain"),
                summary="Change the cluster key of a table",
                tag=tag,
                description="Blocks stay as they are; jobs lay rows out by the new key from now on. Another key or "
                "kind gets an id that no key of the table had before; no `columns` take the key away. With "
                "`base_snapshot_id` it is changed only if it is still the key of that snapshot.",
                request_type=ClusterKeyRequest,
                answer_type=ClusterKeyInfo,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, UnknownColumn, *missing, SnapshotNotFound, CommitConflict, *failures),
            ),
            Operation(
                method="GET",
                path=TABLE + "/clustering",
                handler=self.show_clustering,
                needs=on_table("read"),
                summary="How well a table is laid out",
                tag=tag,
                description="For its cluster key, or for one that it could have: in how many blocks and segments a key "
                "value lies, how many are constant, not written for the key, small; what look-ups read, and would read "
                "of the best layout; and what the filters read that were recorded of the table. From manifests alone.",
                answer_type=ClusteringAnswer,
                parameters=_QUESTION,
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    FilterTypeMismatch,
                    LimitExceeded,
                    UnknownColumn,
                    *missing,
                    SnapshotNotFound,
                    SnapshotExpired,
                    ManifestError,
                    StoreError,
                    Overloaded,
                    Unavailable,
                ),
            ),
            Operation(
                method="POST",
                path=TABLE + "/regroup",
                handler=self.regroup,
                needs=on_table("maintain"),
                summary="Put blocks into other segments",
                tag=tag,
                description="So that look-ups by the cluster key skip more segments as a whole. No block is read or "
                "written. Each answer is a part, which is committed; send the request again until `remaining` is 0 or "
                "nothing was replaced.",
                request_type=RegroupRequest,
                answer_type=RegroupAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(InvalidRequest, UnknownColumn, *missing, Overloaded, *failures),
            ),
        )


_QUESTION: Final = (
    Parameter(
        name="key",
        description="Columns of another key than the table's own, with commas between them; may be repeated.",
    ),
    Parameter(
        name="kind",
        description="The kind of that key.",
        schema={"type": "string", "enum": list(get_args(ClusterKind)), "default": "linear"},
    ),
    Parameter(name="snapshot_id", description="A snapshot's id or a tag, instead of the current one."),
    Parameter(name="where", description="SQL: only blocks that may hold a row for which it is true."),
    Parameter(name="time_zone", description="Of times in `where` that have none. Default: UTC."),
    Parameter(
        name="case_sensitive",
        description="Whether letters of names in `where` count.",
        schema={"type": "string", "enum": ["true", "false"], "default": "false"},
    ),
    Parameter(
        name="recorded",
        description="So many of the recorded filters are asked again, the latest.",
        schema={"type": "integer", "minimum": 0, "maximum": MAX_RECORDED, "default": RECORDED},
    ),
)


def _columns(request: Request) -> tuple[str, ...]:
    given = request.query_params.getlist("key")
    return tuple(name.strip() for text in given for name in text.split(",")) if given else ()


def _kind(request: Request) -> ClusterKind:
    kind = request.query_params.get("kind", "linear")
    if kind not in get_args(ClusterKind):
        raise InvalidRequest(f"kind is one of {', '.join(get_args(ClusterKind))}, not {kind!r}", parameter="kind")
    if "kind" in request.query_params and "key" not in request.query_params:
        raise InvalidRequest("a kind is of a key: name its columns", parameter="kind")
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
#: Locations of one request.
MAX_BLOCKS: Final = 10_000
_Answer = TypeVar("_Answer")


class RewriteRoutes:
    """Plan a job; look blocks up."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._threads = Threads(_AT_ONCE)

    async def plan(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_PLAN, await request.body())
        return await self._answer(
            request, asked.snapshot_id, lambda _, pointer: self._services.warehouse.planning.plan(pointer, asked)
        )

    async def blocks(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_BLOCKS, await request.body())
        if len(asked.locations) > MAX_BLOCKS:
            raise InvalidRequest(f"at most {MAX_BLOCKS} locations in one request, not {len(asked.locations)}")

        def looked_up(record: TableRecord, pointer: SnapshotPointer) -> BlocksAnswer:
            found = self._services.warehouse.planning.blocks(pointer, asked.locations)
            return self._services.block_urls.in_blocks(record, found) if asked.sign_urls else found

        response = await self._answer(request, asked.snapshot_id, looked_up, reading=asked.sign_urls)
        if asked.sign_urls:
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
            record = self._services.table(namespace, name)
            with trusted_manifests():
                return work(record, self._services.history.pointer(record, snapshot_id=snapshot_id))

        # Readers, who ask with URLs, do not wait for jobs that plan.
        run = self._services.read if reading else self._threads.run
        return json_response(await run(answered))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound, SnapshotNotFound)
        tag = "Layout"
        return (
            Operation(
                method="POST",
                path=TABLE + "/plan",
                handler=self.plan,
                needs=on_table("read"),
                changes=False,
                summary="What a job would rewrite",
                tag=tag,
                description="The blocks that a compaction or a reclustering would write anew now, in tasks that are "
                "independent of each other, with what is gained and what it costs. Nothing is changed.",
                is_question=True,
                is_large=True,
                request_type=PlanRequest,
                answer_type=PlanAnswer,
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    LimitExceeded,
                    FilterTypeMismatch,
                    UnknownColumn,
                    *missing,
                    StoreError,
                ),
            ),
            Operation(
                method="POST",
                path=TABLE + "/blocks",
                handler=self.blocks,
                needs=on_table("read"),
                changes=False,
                summary="Look up blocks by their locations",
                tag=tag,
                description="What tells the blocks from other files that may come to stand in their places, and what "
                "they were written for; with `sign_urls` also a URL that reads it without "
                "credentials. Locations that are not in the snapshot are listed as `missing`.",
                is_question=True,
                is_large=True,
                request_type=BlocksRequest,
                answer_type=BlocksAnswer,
                errors=(InvalidRequest, LimitExceeded, LocationRefused, NotSignable, *missing, StoreError),
            ),
        )
