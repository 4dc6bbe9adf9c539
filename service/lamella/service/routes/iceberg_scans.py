"""``/iceberg/.../plan`` and ``/tasks``: which files an Iceberg client reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.answers import Begun, Wanted, Whole, begun, respond
from lamella.service.api import JSON, Operation, require_json
from lamella.service.catalog import TableRecord
from lamella.service.json_body import read_json
from lamella.service.routes.failures import OF_A_FILTER, OF_A_SNAPSHOT
from lamella.service.routes.paths import ICEBERG_TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import InvalidRequest, NamespaceNotFound, NotExpressible, PlanTaskNotFound, TableNotFound
from lamella.snapshot.iceberg.wire import CompletedPlan, FetchScanTasks, PlanTableScan, ScanTasks

_PLAN: Final = msgspec.json.Decoder(PlanTableScan)
_TASKS: Final = msgspec.json.Decoder(FetchScanTasks)
_REPORT: Final = msgspec.json.Decoder(dict[str, Any])
_PLAN_ID: Final = ICEBERG_TABLE + "/plan/{plan_id}"


class IcebergScanRoutes:
    """Plans are whole when they are answered: nothing is held between two requests."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def plan_table_scan(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        scans = self._services.iceberg_scans
        return await self._answer(request, lambda record, most: scans.plan(record, read_json(_PLAN, body), most))

    async def fetch_scan_tasks(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()
        scans = self._services.iceberg_scans
        return await self._answer(
            request, lambda record, most: scans.tasks(record, read_json(_TASKS, body).plan_task, most)
        )

    async def fetch_plan(self, request: Request) -> Response:
        plan_id, scans = request.path_params["plan_id"], self._services.iceberg_scans
        return await self._answer(request, lambda record, most: scans.fetched(record, plan_id, most))

    async def cancel_plan(self, request: Request) -> Response:
        plan_id, services = request.path_params["plan_id"], self._services
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await services.read(lambda: services.iceberg_scans.cancel(services.table(namespace, name), plan_id))
        return Response(None, 204)

    async def report_iceberg_metrics(self, request: Request) -> Response:
        require_json(request)
        read_json(_REPORT, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        await self._services.read(lambda: self._services.table(namespace, name))
        return Response(None, 204)

    async def _answer(self, request: Request, ask: Callable[[TableRecord, int | None], Iterator[bytes]]) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        services, wanted = self._services, Wanted.of(request)

        def work(most_tests: int | None) -> Whole | Begun:
            return begun(JSON, ask(services.table(namespace, name), most_tests))

        return await respond(await services.weighed(request, work), wanted, services.large_answers, request)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        return (
            Operation(
                method="POST",
                path=ICEBERG_TABLE + "/plan",
                handler=self.plan_table_scan,
                takes_own_place=True,
                needs=on_table("read"),
                changes=False,
                is_question=True,
                is_large=True,
                summary="Plan a scan of an Iceberg client",
                tag="Iceberg",
                description="The answer is always `completed`: files, each with what is left of the filter in it, and "
                "plan tasks for those that do not fit. A file in which every row is proven to match has `true`.",
                request_type=PlanTableScan,
                answer_type=CompletedPlan,
                errors=(*OF_A_SNAPSHOT, *OF_A_FILTER, NotExpressible),
            ),
            Operation(
                method="POST",
                path=ICEBERG_TABLE + "/tasks",
                handler=self.fetch_scan_tasks,
                takes_own_place=True,
                needs=on_table("read"),
                changes=False,
                is_question=True,
                is_large=True,
                summary="Fetch a part of a plan",
                tag="Iceberg",
                description="Any replica serves it. It may have further plan tasks where the filter is large.",
                request_type=FetchScanTasks,
                answer_type=ScanTasks,
                errors=(*OF_A_SNAPSHOT, PlanTaskNotFound),
            ),
            Operation(
                method="GET",
                path=_PLAN_ID,
                handler=self.fetch_plan,
                takes_own_place=True,
                needs=on_table("read"),
                summary="Fetch a plan again",
                tag="Iceberg",
                description="It is made anew of its id. Plans of large filters and of ranges of snapshots are not "
                "known once they are answered.",
                answer_type=CompletedPlan,
                errors=(*OF_A_SNAPSHOT, PlanTaskNotFound),
            ),
            Operation(
                method="DELETE",
                path=_PLAN_ID,
                handler=self.cancel_plan,
                needs=on_table("read"),
                changes=False,
                summary="Give up a plan",
                tag="Iceberg",
                description="Nothing is held for a plan, so nothing happens.",
                status=204,
                errors=(*missing, PlanTaskNotFound),
            ),
            Operation(
                method="POST",
                path=ICEBERG_TABLE + "/metrics",
                handler=self.report_iceberg_metrics,
                needs=on_table("read"),
                changes=False,
                summary="Report of a scan",
                tag="Iceberg",
                description="Taken, and not kept.",
                request_type=dict[str, Any],
                status=204,
                errors=(InvalidRequest, *missing),
            ),
        )
