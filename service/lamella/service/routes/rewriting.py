"""``.../plan`` and ``.../blocks``: what jobs ask before they rewrite blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import Operation, json_response, require_json
from lamella.service.catalog import TableRecord
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.service.threads import Threads
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    LocationRefused,
    NamespaceNotFound,
    NotSignable,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    UnknownColumn,
)
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import BlocksAnswer, BlocksRequest, PlanAnswer, PlanRequest

_PLAN: Final = msgspec.json.Decoder(PlanRequest)
_BLOCKS: Final = msgspec.json.Decoder(BlocksRequest)
#: Locations of one request.
MOST_BLOCKS: Final = 10_000
#: Requests at work at once in a process; others wait, so that they do not take the prunes' threads.
_AT_ONCE: Final = 2
_Answer = TypeVar("_Answer")


class RewritingRoutes:
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
        if len(asked.locations) > MOST_BLOCKS:
            raise InvalidRequest(f"at most {MOST_BLOCKS} locations in one request, not {len(asked.locations)}")

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
