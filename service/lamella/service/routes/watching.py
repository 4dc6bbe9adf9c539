"""``.../prune-rates`` and ``/v1/audit``: how the service is used."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ASKED, on_table, require
from lamella.service.api import Operation, Parameter, json_response, whole_number
from lamella.service.prune_rates import BUCKET_MS, KEPT_MS
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import InvalidPageToken, InvalidRequest, NamespaceNotFound, TableNotFound, Unavailable
from lamella.snapshot.wire import AuditList, PruneRatesAnswer

_DEFAULT_S: Final = 86_400
_MOST_S: Final = KEPT_MS // 1000
_DEFAULT_PAGE: Final = 100


class WatchRoutes:
    """What is noted of prunes and of changes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show_prune_rates(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        since_s = whole_number(request, "since_s", _DEFAULT_S, 1, _MOST_S)

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
                        schema={"type": "integer", "minimum": 1, "maximum": _MOST_S},
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
