"""``.../prune/batch`` and ``.../diff``: many filters over one snapshot, and one filter over two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.answers import respond_json
from lamella.service.api import Operation, require_json
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_FILTER, OF_A_SNAPSHOT
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import BatchAnswer, BatchRequest, DiffAnswer, DiffRequest, PruneAnswer

_BATCH: Final = msgspec.json.Decoder(BatchRequest)
_DIFF: Final = msgspec.json.Decoder(DiffRequest)
_ENCODER: Final = msgspec.json.Encoder()
_ERRORS: Final = (*OF_A_SNAPSHOT, *OF_A_FILTER)


class PruneManyRoutes:
    """What one prune does not answer."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def prune_batch(self, request: Request) -> Response:
        return await self._answer(request, self._batch)

    async def diff(self, request: Request) -> Response:
        return await self._answer(request, self._diff)

    async def _answer(self, request: Request, work: Callable[[str, str, bytes, int | None], bytes]) -> Response:
        require_json(request)
        body = await request.body()
        parameters = request.path_params
        data = await self._services.weighed(
            request, lambda most_tests: work(parameters["namespace"], parameters["table"], body, most_tests)
        )
        return await respond_json(data, self._services.large_answers, request)

    def _batch(self, namespace: str, name: str, body: bytes, most_tests: int | None) -> bytes:
        asked = read_json(_BATCH, body)
        record = self._services.table(namespace, name)
        pointer = self._services.history.pointer(
            record, snapshot_id=asked.snapshot_id, timestamp=asked.timestamp, time_zone=asked.time_zone
        )
        with trusted_manifests(), self._services.traces.span("prune batch"):
            most_blocks = self._services.settings.answer_blocks_max
            answer = self._services.warehouse.prune_batch(
                pointer, asked, most_blocks=most_blocks, most_tests=most_tests
            )
        for each in answer.answers:
            self._services.metrics.pruned(each)
            kept = _kept(each)
            if kept is not None:
                self._services.prune_rates.note(record, each.report, kept)
        return _ENCODER.encode(answer)

    def _diff(self, namespace: str, name: str, body: bytes, most_tests: int | None) -> bytes:
        asked = read_json(_DIFF, body)
        record = self._services.table(namespace, name)
        if (asked.from_snapshot_id is None) == (asked.from_timestamp is None):
            raise InvalidRequest("give exactly one of from_snapshot_id and from_timestamp")
        point, zone = self._services.history.pointer, asked.time_zone
        before = point(record, snapshot_id=asked.from_snapshot_id, timestamp=asked.from_timestamp, time_zone=zone)
        after = point(record, snapshot_id=asked.to_snapshot_id, timestamp=asked.to_timestamp, time_zone=zone)
        with trusted_manifests():
            most_blocks = self._services.settings.answer_blocks_max
            answer = self._services.warehouse.diff(before, after, asked, most_blocks=most_blocks, most_tests=most_tests)
            return _ENCODER.encode(answer)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/prune/batch",
                handler=self.prune_batch,
                needs=on_table("read"),
                changes=False,
                summary="Ask which blocks each of many filters leaves",
                tag="Prune",
                description="As many prunes of one snapshot, but each segment is read once for all of them. "
                "`details.filter` of an error is the number of the filter, from 0. All answers together have no more "
                "blocks (or runs of them, or segments) than the setting `answer_blocks_max` says.",
                takes_own_place=True,
                is_question=True,
                is_large=True,
                request_type=BatchRequest,
                answer_type=BatchAnswer,
                errors=_ERRORS,
            ),
            Operation(
                method="POST",
                path=TABLE + "/diff",
                handler=self.diff,
                needs=on_table("read"),
                changes=False,
                summary="Ask which blocks came and went between two snapshots",
                tag="Prune",
                description="Only blocks that may match the filter, and no more than the setting `answer_blocks_max` "
                "says; `changes` has pages. Segments that both snapshots have are not read.",
                takes_own_place=True,
                is_question=True,
                is_large=True,
                request_type=DiffRequest,
                answer_type=DiffAnswer,
                errors=_ERRORS,
            ),
        )


def _kept(answer: PruneAnswer) -> int | None:
    """How many blocks an answer has; None: it has segments."""
    if answer.block_columns is not None:
        return len(answer.block_columns.location)
    if answer.block_ranges is not None:
        return sum(answer.block_ranges.block_count)
    return None if answer.blocks is None else len(answer.blocks)
