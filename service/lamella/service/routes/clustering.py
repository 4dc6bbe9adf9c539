"""``.../cluster-key``, ``.../clustering``, ``.../regroup``: how a table is to be laid out, how it is, and what changes
without a block being written."""

from __future__ import annotations

from typing import Final, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import (
    IDEMPOTENCY_KEY,
    Operation,
    Parameter,
    json_response,
    require_json,
    truth,
    whole_number,
)
from lamella.service.catalog import TableRecord
from lamella.service.clustering import MOST_RECORDED, RECORDED
from lamella.service.idempotency import Claim, Sealed
from lamella.service.json_body import read_json
from lamella.service.pending import Pending
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.threads import Threads
from lamella.snapshot.errors import (
    BodyTooLarge,
    CommitConflict,
    FilterTypeMismatch,
    IdempotencyMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
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
from lamella.snapshot.manifest import ClusterKind
from lamella.snapshot.warehouse.layouts import Where
from lamella.snapshot.wire import ClusteringAnswer, ClusterKeyInfo, ClusterKeyRequest, RegroupAnswer, RegroupRequest

_SET: Final = msgspec.json.Decoder(ClusterKeyRequest)
_REGROUP: Final = msgspec.json.Decoder(RegroupRequest)
#: Questions, and regroupings, at work at once in a process, and those that wait for their turn; one more is refused.
_AT_ONCE: Final = 2
_WAITING: Final = 16


class ClusteringRoutes:
    """Look at and change a table's cluster key."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._readers = Threads(_AT_ONCE, most_waiting=_WAITING, what="questions about layouts")
        self._writers = Threads(_AT_ONCE, most_waiting=_WAITING, what="regroupings")

    async def show_cluster_key(self, request: Request) -> Response:
        return json_response(await self._services.read(lambda: self._services.clustering.key(self._table(request))))

    async def set_cluster_key(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(claim: Claim) -> Sealed | Pending:
            return self._services.clustering.set_key(self._table(request), read_json(_SET, body), claim)

        return await self._services.mutate(request, work, body)

    async def show_clustering(self, request: Request) -> Response:
        columns, kind, where = _columns(request), _kind(request), _where(request)
        snapshot_id = request.query_params.get("snapshot_id")
        recorded = whole_number(request, "recorded", RECORDED, 0, MOST_RECORDED)

        def work() -> ClusteringAnswer:
            return self._services.clustering.figures(
                self._table(request), columns, kind, snapshot_id=snapshot_id, where=where, recorded=recorded
            )

        return json_response(await self._readers.run(work))

    async def regroup(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        def work(claim: Claim) -> Sealed | Pending:
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
        schema={"type": "integer", "minimum": 0, "maximum": MOST_RECORDED, "default": RECORDED},
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
