"""Routes of readers' feedback, prune rates and the audit trail."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ASKED, on_table, require
from lamella.service.http.admission import read_json
from lamella.service.http.routing import TABLE, Operation, Parameter, json_response, require_json, whole_number
from lamella.service.services import Services
from lamella.service.usage.filters import BUCKET_MS, KEPT_MS
from lamella.snapshot.errors import (
    FilterTypeMismatch,
    InvalidFilter,
    InvalidPageToken,
    InvalidRequest,
    LimitExceeded,
    NamespaceNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    Unavailable,
    UnknownColumn,
)
from lamella.snapshot.wire import (
    AuditList,
    FeedbackAnswer,
    FeedbackCleared,
    FeedbackInfo,
    FeedbackRequest,
    PruneRatesAnswer,
)

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


_DEFAULT_S: Final = 86_400
_MAX_S: Final = KEPT_MS // 1000
_DEFAULT_PAGE: Final = 100


class UsageRoutes:
    """What is noted of prunes and of changes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show_prune_rates(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        since_s = whole_number(request, "since_s", _DEFAULT_S, 1, _MAX_S)

        def work() -> PruneRatesAnswer:
            return self._services.prune_rates.answer(self._services.catalog.table(namespace, name), since_s)

        return json_response(await self._services.read(work))

    async def list_audit(self, request: Request) -> Response:
        page_size = whole_number(request, "page_size", _DEFAULT_PAGE, 1, self._services.settings.page_size_max)
        page_token = request.query_params.get("page_token")
        table = request.query_params.get("table")
        namespace, _, name = (table or "").rpartition(".")
        if namespace:
            require(request, "admin", namespace, name)
        else:
            require(request, "admin")

        def work() -> AuditList:
            return self._services.audit.list(page_size=page_size, page_token=page_token, table=table)

        return json_response(await self._services.read(work))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path=TABLE + "/prune-rates",
                handler=self.show_prune_rates,
                needs=on_table("read"),
                summary="See how well prunes of a table skipped",
                tag="Prune",
                description=f"Summed up over all workers and replicas, by buckets of {BUCKET_MS // 1000} seconds. What "
                "others answered in the last seconds may be missing.",
                answer_type=PruneRatesAnswer,
                parameters=(
                    Parameter(
                        name="since_s",
                        description=f"How far to look back, in seconds; {_DEFAULT_S} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": _MAX_S},
                    ),
                ),
                errors=(InvalidRequest, NamespaceNotFound, TableNotFound, Unavailable),
            ),
            Operation(
                method="GET",
                path="/v1/audit",
                handler=self.list_audit,
                needs=ASKED,
                summary="List the changes that were asked for, newest first",
                tag="Operations",
                description="Also those that were refused. What others were asked in the last second may be missing.",
                answer_type=AuditList,
                parameters=(
                    Parameter(name="table", description="Only what was about this `namespace.table`."),
                    Parameter(
                        name="page_size",
                        description=f"Entries in one answer; {_DEFAULT_PAGE} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": self._services.settings.page_size_max},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                ),
                errors=(InvalidRequest, InvalidPageToken, Unavailable),
            ),
        )
