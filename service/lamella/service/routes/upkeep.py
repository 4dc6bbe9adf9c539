"""``.../schedules`` and ``.../policy``: what asks for a table's jobs by itself."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_table
from lamella.service.api import IDEMPOTENCY_KEY, Operation, json_response, require_json
from lamella.service.idempotency import Claim, Sealed
from lamella.service.job_access import require_new_job
from lamella.service.json_body import read_json
from lamella.service.routes.paths import TABLE
from lamella.service.services import Services
from lamella.snapshot.errors import (
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidRequest,
    LocationRefused,
    NamespaceNotFound,
    OutcomeUnknown,
    PolicyNotFound,
    ScheduleNotFound,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import Policy, PolicyInfo, PutSchedule, ScheduleInfo, ScheduleList

_SCHEDULE: Final = msgspec.json.Decoder(PutSchedule)
_POLICY: Final = msgspec.json.Decoder(Policy)
_SCHEDULES: Final = TABLE + "/schedules"
_ONE_SCHEDULE: Final = TABLE + "/schedules/{schedule}"
_THE_POLICY: Final = TABLE + "/policy"


class UpkeepRoutes:
    """Set, look at and drop them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_schedules(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> ScheduleList:
            return self._services.schedules.list(self._services.catalog.table(namespace, name))

        return json_response(await self._services.read(work))

    async def get_schedule(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]

        def work() -> ScheduleInfo:
            return self._services.schedules.get(self._services.catalog.table(namespace, name), schedule)

        return json_response(await self._services.read(work))

    async def put_schedule(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_SCHEDULE, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]
        require_new_job(request, asked.kind, asked.arguments, asked.priority, f"{namespace}.{name}")

        def work() -> ScheduleInfo:
            return self._services.schedules.put(self._services.catalog.table(namespace, name), schedule, asked)

        return json_response(await self._services.read(work))

    async def drop_schedule(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]

        def work(claim: Claim) -> Sealed:
            return self._services.schedules.drop(self._services.catalog.table(namespace, name), schedule, claim)

        return await self._services.mutate(request, work)

    async def get_policy(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> PolicyInfo:
            return self._services.policies.get(self._services.catalog.table(namespace, name))

        return json_response(await self._services.read(work))

    async def put_policy(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_POLICY, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        for kind, rule in msgspec.structs.asdict(asked).items():
            if rule is not None:
                require_new_job(request, kind, rule.arguments, rule.priority, f"{namespace}.{name}")

        def work() -> PolicyInfo:
            return self._services.policies.put(self._services.catalog.table(namespace, name), asked)

        return json_response(await self._services.read(work))

    async def drop_policy(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(claim: Claim) -> Sealed:
            return self._services.policies.drop(self._services.catalog.table(namespace, name), claim)

        return await self._services.mutate(request, work)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        missing = (NamespaceNotFound, TableNotFound)
        trouble = (IdempotencyMismatch, Unavailable, OutcomeUnknown)
        return (
            Operation(
                method="GET",
                path=_SCHEDULES,
                handler=self.list_schedules,
                needs=on_table("read"),
                summary="List the schedules of a table",
                tag="Jobs",
                answer_type=ScheduleList,
                errors=(*missing, Unavailable),
            ),
            Operation(
                method="GET",
                path=_ONE_SCHEDULE,
                handler=self.get_schedule,
                needs=on_table("read"),
                summary="Read a schedule",
                tag="Jobs",
                answer_type=ScheduleInfo,
                errors=(*missing, ScheduleNotFound, Unavailable),
            ),
            Operation(
                method="PUT",
                path=_ONE_SCHEDULE,
                handler=self.put_schedule,
                needs=on_table("maintain"),
                summary="Have a job done again and again",
                tag="Jobs",
                description="Makes the schedule, or replaces it. Workers enqueue its jobs (`POST /v1/jobs/due`), so "
                "nothing happens while none runs; times that went by then count once.",
                request_type=PutSchedule,
                answer_type=ScheduleInfo,
                errors=(InvalidRequest, LocationRefused, BodyTooLarge, *missing, Unavailable),
            ),
            Operation(
                method="DELETE",
                path=_ONE_SCHEDULE,
                handler=self.drop_schedule,
                needs=on_table("maintain"),
                summary="Drop a schedule",
                tag="Jobs",
                description="Jobs that it asked for stay.",
                status=204,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, ScheduleNotFound, *trouble),
            ),
            Operation(
                method="GET",
                path=_THE_POLICY,
                handler=self.get_policy,
                needs=on_table("read"),
                summary="Read a table's policy, and what its last check found",
                tag="Jobs",
                answer_type=PolicyInfo,
                errors=(*missing, PolicyNotFound, Unavailable),
            ),
            Operation(
                method="PUT",
                path=_THE_POLICY,
                handler=self.put_policy,
                needs=on_table("maintain"),
                summary="Have jobs done when a table needs them",
                tag="Jobs",
                description="Makes the policy, or replaces it as a whole. Workers have it checked "
                "(`POST /v1/jobs/due`).",
                request_type=Policy,
                answer_type=PolicyInfo,
                errors=(InvalidRequest, BodyTooLarge, *missing, Unavailable),
            ),
            Operation(
                method="DELETE",
                path=_THE_POLICY,
                handler=self.drop_policy,
                needs=on_table("maintain"),
                summary="Drop a table's policy",
                tag="Jobs",
                description="Jobs that it asked for stay.",
                status=204,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(*missing, PolicyNotFound, *trouble),
            ),
        )
