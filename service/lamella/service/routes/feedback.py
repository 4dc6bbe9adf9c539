"""``.../feedback``: what readers say of blocks that held no matching row."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import Operation, json_response, require_json
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidRequest,
    LimitExceeded,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import FeedbackAnswer, FeedbackCleared, FeedbackInfo, FeedbackRequest

_REPORT: Final = msgspec.json.Decoder(FeedbackRequest)
_FEEDBACK: Final = TABLE + "/feedback"


class FeedbackRoutes:
    """Take reports, say what is remembered, forget it."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def report_feedback(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackAnswer:
            asked = read_json(_REPORT, body)
            return self._services.feedback.report(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._services.read(work))

    async def get_feedback(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackInfo:
            return self._services.feedback.info(self._services.catalog.table(namespace, name))

        return json_response(await self._services.read(work))

    async def clear_feedback(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackCleared:
            return self._services.feedback.clear(self._services.catalog.table(namespace, name))

        return json_response(await self._services.read(work))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound, Unavailable)
        return (
            Operation(
                method="POST",
                path=_FEEDBACK,
                handler=self.report_feedback,
                needs=on_table("write"),
                summary="Report blocks that held no matching row",
                tag="Feedback",
                description="Remembered for everyone who asks the same of the same files, if the service and the table "
                "take feedback. It is the reader's word: a false report leaves out rows. Saying it twice does no harm.",
                is_large=True,
                request_type=FeedbackRequest,
                answer_type=FeedbackAnswer,
                errors=(
                    InvalidRequest,
                    InvalidFilter,
                    UnknownColumn,
                    FilterTypeMismatch,
                    LimitExceeded,
                    *missing,
                    SnapshotNotFound,
                    SnapshotExpired,
                ),
            ),
            Operation(
                method="GET",
                path=_FEEDBACK,
                handler=self.get_feedback,
                needs=on_table("read"),
                summary="See how much feedback is remembered",
                tag="Feedback",
                answer_type=FeedbackInfo,
                errors=missing,
            ),
            Operation(
                method="DELETE",
                path=_FEEDBACK,
                handler=self.clear_feedback,
                needs=on_table("maintain"),
                summary="Forget all feedback of a table",
                tag="Feedback",
                description="Other processes of the service stop using it within a few seconds.",
                answer_type=FeedbackCleared,
                errors=missing,
            ),
        )
