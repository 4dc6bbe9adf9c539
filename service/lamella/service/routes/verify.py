"""``.../verify``: every claim of a table's manifests held against what it is derived from."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table, require
from lamella.service.api import Operation, json_response, require_json
from lamella.service.feedback_check import FeedbackCheck
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.service.threads import Threads
from lamella.service.verification import Verifications
from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    NamespaceNotFound,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
)
from lamella.snapshot.wire import VerifyAnswer, VerifyRequest

_REQUEST = msgspec.json.Decoder(VerifyRequest)
#: Verifications at work at once in a process; others wait, so that they do not take the prunes' threads.
_AT_ONCE: Final = 2


class VerifyRoutes:
    """Verify a table, part by part."""

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self._verifications = Verifications(
            services.catalog,
            services.history,
            services.store,
            settings.warehouse_url,
            tokens=services.page_tokens,
            page_companions=settings.page_companions,
            workers=settings.ingest_threads,
            feedback=FeedbackCheck(services.feedback, services.warehouse, services.store),
        )
        self._threads = Threads(_AT_ONCE)

    async def verify(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        asked = await self._services.read(lambda: read_json(_REQUEST, body))
        if asked.repair:
            require(request, "maintain", namespace, name)

        def work() -> VerifyAnswer:
            return self._verifications.verify(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._threads.run(work))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="POST",
                path=TABLE + "/verify",
                handler=self.verify,
                needs=on_table("read"),
                summary="Verify a table, and repair what is derived",
                tag="Maintenance",
                description="Holds manifests, companions, layers, the blocks' files and their footers against each "
                "other, and with `deep` the values of some blocks too. Each answer is a part of the work; ask again "
                "with `next_page_token` until there is none. With `repair` companions and page companions are written "
                "again where they are damaged; manifests and blocks never are.",
                request_type=VerifyRequest,
                answer_type=VerifyAnswer,
                errors=(
                    InvalidRequest,
                    InvalidPageToken,
                    NamespaceNotFound,
                    TableNotFound,
                    SnapshotNotFound,
                    StoreError,
                ),
            ),
        )
