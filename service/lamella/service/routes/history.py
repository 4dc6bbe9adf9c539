"""``.../snapshots`` and ``.../segments``: a table's manifests, past and present."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.api import JSON, Operation, Parameter, json_response, whole_number
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    InvalidRequest,
    ManifestError,
    NamespaceNotFound,
    SegmentNotFound,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
)
from lamella.snapshot.manifest import Segment, Snapshot
from lamella.snapshot.wire import SnapshotList

_DEFAULT_PAGE: Final = 100


class HistoryRoutes:
    """List snapshots; read manifests as they were written."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_snapshots(self, request: Request) -> Response:
        largest = self._services.settings.page_size_max
        page_size = whole_number(request, "page_size", min(_DEFAULT_PAGE, largest), 1, largest)
        page_token = request.query_params.get("page_token")
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> SnapshotList:
            record = self._services.catalog.table(namespace, name)
            return self._services.history.page(record, page_size=page_size, page_token=page_token)

        return json_response(await self._services.read(work))

    async def get_snapshot(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        snapshot_id = request.path_params["snapshot_id"]

        def work() -> bytes:
            record = self._services.catalog.table(namespace, name)
            return self._services.history.snapshot_json(record, snapshot_id)

        return Response(await self._services.read(work), media_type=JSON)

    async def get_segment(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        segment_id = request.path_params["segment_id"]
        snapshot_id = request.query_params.get("snapshot_id")

        def work() -> bytes:
            record = self._services.catalog.table(namespace, name)
            return self._services.history.segment_json(record, segment_id, snapshot_id)

        return Response(await self._services.read(work), media_type=JSON)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        damaged = (ManifestError, StoreError)
        return (
            Operation(
                method="GET",
                path=TABLE + "/snapshots",
                handler=self.list_snapshots,
                summary="List a table's snapshots, newest first",
                tag="History",
                answer_type=SnapshotList,
                parameters=(
                    Parameter(
                        name="page_size",
                        description=f"Snapshots in one answer; {_DEFAULT_PAGE} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": self._services.settings.page_size_max},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                ),
                errors=(InvalidRequest, *missing),
            ),
            Operation(
                method="GET",
                path=TABLE + "/snapshots/{snapshot_id}",
                handler=self.get_snapshot,
                summary="Read a snapshot's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash.",
                answer_type=Snapshot,
                errors=(*missing, SnapshotNotFound, *damaged),
            ),
            Operation(
                method="GET",
                path=TABLE + "/segments/{segment_id}",
                handler=self.get_segment,
                summary="Read a segment's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash.",
                answer_type=Segment,
                parameters=(
                    Parameter(
                        name="snapshot_id",
                        description="The snapshot that the segment belongs to; the current one when not given.",
                    ),
                ),
                errors=(*missing, SnapshotNotFound, SegmentNotFound, *damaged),
            ),
        )
