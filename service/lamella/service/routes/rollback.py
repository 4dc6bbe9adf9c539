"""``.../rollback``: an older snapshot's blocks as the newest snapshot."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import IDEMPOTENCY_KEY, Operation, require_json
from lamella.service.idempotency import Claim
from lamella.service.json_body import read_json
from lamella.service.pending import Pending
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    BlocksGone,
    BodyTooLarge,
    CommitConflict,
    IdempotencyMismatch,
    InvalidRequest,
    LocationRefused,
    NamespaceNotFound,
    OutcomeUnknown,
    QuotaExceeded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import RollbackAnswer, RollbackRequest

_REQUEST: Final = msgspec.json.Decoder(RollbackRequest)


class RollbackRoutes:
    """Take back what was committed."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def rollback(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: Claim) -> Pending:
            asked = read_json(_REQUEST, body)
            return self._services.rollback.run(self._services.catalog.table(namespace, name), asked, claim)

        return await self._services.mutate(request, work, body)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/rollback",
                handler=self.rollback,
                needs=on_table("maintain"),
                summary="Roll a table back to an earlier snapshot",
                tag="History",
                description="A new snapshot gets the blocks and columns of the older one; nothing leaves the history, "
                "so a rollback can be rolled back. The files of blocks that come back are looked at first. With "
                "`base_snapshot_id` it is done only if that is the current snapshot; without, what others commit "
                "meanwhile is taken back too.",
                request_type=RollbackRequest,
                answer_type=RollbackAnswer,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    LocationRefused,
                    BodyTooLarge,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    SnapshotExpired,
                    CommitConflict,
                    BlocksGone,
                    QuotaExceeded,
                    IdempotencyMismatch,
                    StoreError,
                    Unavailable,
                    OutcomeUnknown,
                ),
            ),
        )
