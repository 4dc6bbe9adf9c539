"""Routes of readers' feedback, prune rates and the audit trail."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.http.admission import read_json
from lamella.service.http.routing import ServedOperation, json_response, require_json, whole_number
from lamella.service.services import Services
from lamella.snapshot.wire import (
    AuditList,
    FeedbackAnswer,
    FeedbackCleared,
    FeedbackInfo,
    FeedbackRequest,
    PruneRatesAnswer,
)
from lamella.snapshot.wire.operations import usage as operations

_REPORT: Final = msgspec.json.Decoder(FeedbackRequest)


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

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.REPORT_FEEDBACK, self.report_feedback),
            ServedOperation(operations.GET_FEEDBACK, self.get_feedback),
            ServedOperation(operations.CLEAR_FEEDBACK, self.clear_feedback),
        )


class UsageRoutes:
    """What is noted of prunes and of changes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show_prune_rates(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        since_s = whole_number(request, "since_s", operations.DEFAULT_S, 1, operations.KEPT_MS // 1000)

        def work() -> PruneRatesAnswer:
            return self._services.prune_rates.answer(self._services.catalog.table(namespace, name), since_s)

        return json_response(await self._services.read(work))

    async def list_audit(self, request: Request) -> Response:
        page_size = whole_number(
            request, "page_size", operations.DEFAULT_PAGE, 1, self._services.settings.page_size_max
        )
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

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.SHOW_PRUNE_RATES, self.show_prune_rates),
            ServedOperation(operations.LIST_AUDIT, self.list_audit),
        )
