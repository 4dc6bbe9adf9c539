"""``.../aggregate``: counts, least and greatest values without reading what the statistics prove."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import JSON, Operation, require_json
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_FILTER, OF_A_SNAPSHOT
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.wire import AggregateAnswer, AggregateRequest

_REQUEST = msgspec.json.Decoder(AggregateRequest)
_ENCODER = msgspec.json.Encoder()


class AggregateRoutes:
    """Aggregates from metadata."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def aggregate(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        data = await self._services.weighed(
            request, lambda most_tests: self._aggregate(parameters["namespace"], parameters["table"], body, most_tests)
        )
        return Response(data, media_type=JSON)

    def _aggregate(self, namespace: str, name: str, body: bytes, most_tests: int | None) -> bytes:
        asked = read_json(_REQUEST, body)
        record = self._services.table(namespace, name)
        pointer = self._services.history.pointer(
            record, snapshot_id=asked.snapshot_id, timestamp=asked.timestamp, time_zone=asked.time_zone
        )
        with trusted_manifests(), self._services.traces.span("aggregate"):
            answer = self._services.warehouse.aggregate(pointer, asked, most_tests=most_tests)
        self._services.metrics.aggregated(answer)
        return _ENCODER.encode(answer)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/aggregate",
                handler=self.aggregate,
                needs=on_table("read"),
                changes=False,
                summary="Count rows, find least and greatest values",
                tag="Prune",
                description="`groups` hold what the statistics prove; the matching rows of the blocks in `scan` are to "
                "be added. Never from bounds that may not occur. With `mode` `bounded` nothing is to be scanned, and "
                "the answer says what the true values lie between.",
                takes_own_place=True,
                is_question=True,
                is_large=True,
                request_type=AggregateRequest,
                answer_type=AggregateAnswer,
                errors=(*OF_A_SNAPSHOT, *OF_A_FILTER),
            ),
        )
