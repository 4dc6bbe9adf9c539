"""Routes of readers' feedback, prune rates and the audit trail."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import require
from lamella.service.catalog import Catalog
from lamella.service.http.admission import read_json
from lamella.service.http.routing import (
    ServedOperation,
    json_response,
    require_json,
    whole_number,
)
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import Audit
from lamella.service.usage.feedback import Feedback
from lamella.service.usage.filters import PruneRates
from lamella.service.usage.service_rates import ServiceRates
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
    """Routes that accept, list and delete readers' reports."""

    def __init__(self, *, catalog: Catalog, readers: Threads, feedback: Feedback) -> None:
        self._catalog = catalog
        self._readers = readers
        self._feedback = feedback

    async def report_feedback(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackAnswer:
            payload = read_json(_REPORT, body)
            return self._feedback.report(self._catalog.table(namespace, name), payload)

        return json_response(await self._readers.run(work))

    async def get_feedback(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackInfo:
            return self._feedback.info(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    async def clear_feedback(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> FeedbackCleared:
            return self._feedback.clear(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.REPORT_FEEDBACK, self.report_feedback),
            ServedOperation(operations.GET_FEEDBACK, self.get_feedback),
            ServedOperation(operations.CLEAR_FEEDBACK, self.clear_feedback),
        )


class UsageRoutes:
    """Routes of what is recorded of prunes and changes."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        prune_rates: PruneRates,
        service_rates: ServiceRates,
        audit: Audit,
        page_size_max: int,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._prune_rates = prune_rates
        self._service_rates = service_rates
        self._audit = audit
        self._page_size_max = page_size_max

    async def show_prune_rates(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        since_s = whole_number(request, "since_s", operations.DEFAULT_S, 1, operations.RATE_RETENTION_MS // 1000)

        def work() -> PruneRatesAnswer:
            return self._prune_rates.answer(self._catalog.table(namespace, name), since_s)

        return json_response(await self._readers.run(work))

    async def show_service_rates(self, request: Request) -> Response:
        since_s = whole_number(request, "since_s", operations.DEFAULT_S, 1, operations.SERVICE_RETENTION_MS // 1000)
        return json_response(await self._readers.run(lambda: self._service_rates.answer(since_s)))

    async def list_audit(self, request: Request) -> Response:
        page_size = whole_number(request, "page_size", operations.DEFAULT_PAGE, 1, self._page_size_max)
        page_token = request.query_params.get("page_token")
        table = request.query_params.get("table")
        namespace, _, name = (table or "").rpartition(".")
        if namespace:
            require(request, "admin", namespace, name)
        else:
            require(request, "admin")

        def work() -> AuditList:
            return self._audit.list(page_size=page_size, page_token=page_token, table=table)

        return json_response(await self._readers.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.SHOW_PRUNE_RATES, self.show_prune_rates),
            ServedOperation(operations.SHOW_SERVICE_RATES, self.show_service_rates),
            ServedOperation(operations.LIST_AUDIT, self.list_audit),
        )
