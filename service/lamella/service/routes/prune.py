"""``.../prune``: the reason for everything else."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.api import JSON, Operation, require_json
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    ManifestError,
    NamespaceNotFound,
    SegmentNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.wire import PruneAnswer, PruneRequest

_REQUEST = msgspec.json.Decoder(PruneRequest)
_ENCODER = msgspec.json.Encoder()


class PruneRoutes:
    """Which blocks a query must read."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def prune(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        # All of it in one hop to a thread: a large filter, table or answer must not hold up the others' requests.
        data = await self._services.read(lambda: self._prune(parameters["namespace"], parameters["table"], body))
        return Response(data, media_type=JSON)

    def _prune(self, namespace: str, name: str, body: bytes) -> bytes:
        asked = read_json(_REQUEST, body)
        record = self._services.catalog.table(namespace, name)
        # a page belongs to the snapshot of the first one, whatever has become current since
        pinned = None if asked.page_token is None else self._services.warehouse.page_tokens.read(asked)[0]
        pointer = self._services.history.pointer(
            record,
            snapshot_id=asked.snapshot_id if pinned is None else pinned,
            timestamp=asked.timestamp if pinned is None else None,
            time_zone=asked.time_zone,
        )
        with trusted_manifests():
            answer = self._services.warehouse.prune(pointer, asked)
        self._services.metrics.pruned(answer)
        return _ENCODER.encode(answer)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/prune",
                handler=self.prune,
                summary="Ask which blocks a filter leaves",
                tag="Prune",
                description="A block that holds a matching row is always among them, under Spark SQL's semantics. "
                "`report` says how many entries each stage looked at and kept, and which predicates could not prune "
                "and why.",
                request_type=PruneRequest,
                answer_type=PruneAnswer,
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    FilterTypeMismatch,
                    UnknownColumn,
                    LimitExceeded,
                    InvalidPageToken,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    SnapshotExpired,
                    SegmentNotFound,
                    ManifestError,
                    StoreError,
                ),
            ),
        )
