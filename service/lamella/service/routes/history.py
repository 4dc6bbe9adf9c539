"""``.../snapshots`` and ``.../segments``: a table's manifests, past and present."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service import conditional
from lamella.service.access import on_table
from lamella.service.api import IF_NONE_MATCH, Operation, Parameter, whole_number
from lamella.service.catalog import TableRecord
from lamella.service.conditional import entity_tag, tagged_by_content
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import instant_of
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    ManifestError,
    NamespaceNotFound,
    SegmentNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
)
from lamella.snapshot.manifest import Segment, Snapshot
from lamella.snapshot.wire import SegmentBlocks, SnapshotList

_DEFAULT_PAGE: Final = 100
_OF_SNAPSHOT: Final = Parameter(
    name="snapshot_id",
    description="The snapshot that the segment belongs to, by id or tag; the current one when not given.",
)


class HistoryRoutes:
    """List snapshots; read manifests as they were written."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_snapshots(self, request: Request) -> Response:
        largest = self._services.settings.page_size_max
        page_size = whole_number(request, "page_size", min(_DEFAULT_PAGE, largest), 1, largest)
        given = request.query_params
        page_token, snapshot_id, timestamp = (given.get(key) for key in ("page_token", "snapshot_id", "timestamp"))
        time_zone = given.get("time_zone", "UTC")
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> SnapshotList:
            history = self._services.history
            record = self._services.table(namespace, name)
            newest = None
            if page_token is None and (snapshot_id is not None or timestamp is not None):
                at = None if timestamp is None else instant_of(timestamp)
                newest = history.entry(record, snapshot_id=snapshot_id, timestamp=at, time_zone=time_zone)
            return history.page(record, page_size=page_size, page_token=page_token, newest=newest)

        return tagged_by_content(request, msgspec.json.encode(await self._services.read(work)))

    async def get_snapshot(self, request: Request) -> Response:
        history, snapshot_id = self._services.history, request.path_params["snapshot_id"]
        return await conditional.respond(
            self._services,
            request,
            lambda record: entity_tag("snapshot", history.pointer(record, snapshot_id=snapshot_id).manifest.sha256),
            lambda record: history.snapshot_json(record, snapshot_id),
        )

    async def get_segment(self, request: Request) -> Response:
        history, segment_id = self._services.history, request.path_params["segment_id"]
        snapshot_id = request.query_params.get("snapshot_id")
        return await conditional.respond(
            self._services,
            request,
            lambda record: self._segment_tag("segment", record, segment_id, snapshot_id),
            lambda record: history.segment_json(record, segment_id, snapshot_id),
        )

    async def get_segment_blocks(self, request: Request) -> Response:
        history, segment_id = self._services.history, request.path_params["segment_id"]
        snapshot_id = request.query_params.get("snapshot_id")
        return await conditional.respond(
            self._services,
            request,
            lambda record: self._segment_tag("blocks", record, segment_id, snapshot_id),
            lambda record: msgspec.json.encode(history.segment_blocks(record, segment_id, snapshot_id)),
            cache=conditional.IMMUTABLE,
        )

    def _segment_tag(self, kind: str, record: TableRecord, segment_id: str, snapshot_id: str | None) -> str:
        # With the snapshot, since whoever has such a tag was told then that the segment is in that snapshot.
        return entity_tag(kind, segment_id, self._services.history.pointer(record, snapshot_id=snapshot_id).snapshot_id)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        damaged = (ManifestError, StoreError)
        return (
            Operation(
                method="GET",
                path=TABLE + "/snapshots",
                handler=self.list_snapshots,
                needs=on_table("read"),
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
                    Parameter(name="snapshot_id", description="Begin with this one: its id, or a tag."),
                    Parameter(
                        name="timestamp",
                        description="Begin with the one in force then: Unix milliseconds, or ISO 8601 text.",
                    ),
                    Parameter(name="time_zone", description="For a time without one; `UTC` when not given."),
                    IF_NONE_MATCH,
                ),
                errors=(InvalidRequest, InvalidPageToken, *missing, SnapshotNotFound, SnapshotExpired),
            ),
            Operation(
                method="GET",
                path=TABLE + "/snapshots/{snapshot_id}",
                handler=self.get_snapshot,
                needs=on_table("read"),
                summary="Read a snapshot's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash. A tag may stand in place "
                "of the id.",
                answer_type=Snapshot,
                parameters=(IF_NONE_MATCH,),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, *damaged),
            ),
            Operation(
                method="GET",
                path=TABLE + "/segments/{segment_id}",
                handler=self.get_segment,
                needs=on_table("read"),
                summary="Read a segment's manifest",
                tag="History",
                description="The JSON as it was written, after a check of its content hash.",
                answer_type=Segment,
                parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *damaged),
            ),
            Operation(
                method="GET",
                path=TABLE + "/segments/{segment_id}/blocks",
                handler=self.get_segment_blocks,
                needs=on_table("read"),
                summary="Look up the addresses of a segment's blocks",
                tag="History",
                description="By the numbers that prune answers of `shape` `ranges` have. A segment never changes, so "
                "this can be kept for ever.",
                answer_type=SegmentBlocks,
                parameters=(_OF_SNAPSHOT, IF_NONE_MATCH),
                errors=(*missing, SnapshotNotFound, SnapshotExpired, SegmentNotFound, *damaged),
            ),
        )
