"""``/v1/jobs/claim``, ``.../heartbeat``, ``.../finish`` and ``/v1/jobs/due``: what workers ask."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import on_server
from lamella.service.api import Operation, json_response, require_json
from lamella.service.json_body import read_json
from lamella.service.routes.jobs import JOBS, ONE_JOB
from lamella.service.services import Services
from lamella.snapshot.errors import BodyTooLarge, InvalidRequest, JobLeaseLost, JobNotFound, Unavailable
from lamella.snapshot.wire import ClaimAnswer, ClaimJob, DueAnswer, FinishJob, Heartbeat, HeartbeatAnswer, JobInfo

_CLAIM: Final = msgspec.json.Decoder(ClaimJob)
_HEARTBEAT: Final = msgspec.json.Decoder(Heartbeat)
_FINISH: Final = msgspec.json.Decoder(FinishJob)


class WorkerRoutes:
    """Take a job, tell of it, end it; ask for what is due."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def claim_job(self, request: Request) -> Response:
        require_json(request)
        asked = read_json(_CLAIM, await request.body())
        answer = await self._services.read(lambda: self._services.jobs.claim(asked))
        return Response(status_code=204) if answer is None else json_response(answer)

    async def heartbeat_job(self, request: Request) -> Response:
        require_json(request)
        told = read_json(_HEARTBEAT, await request.body())
        job_id = request.path_params["job_id"]
        return json_response(await self._services.read(lambda: self._services.jobs.heartbeat(job_id, told)))

    async def finish_job(self, request: Request) -> Response:
        require_json(request)
        told = read_json(_FINISH, await request.body())
        job_id = request.path_params["job_id"]
        return json_response(await self._services.read(lambda: self._services.jobs.finish(job_id, told)))

    async def enqueue_due_jobs(self, _request: Request) -> Response:
        return json_response(await self._services.read(self._services.due.run))

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        theirs = (InvalidRequest, BodyTooLarge, JobNotFound, JobLeaseLost, Unavailable)
        return (
            Operation(
                method="POST",
                path=JOBS + "/claim",
                handler=self.claim_job,
                needs=on_server("maintain"),
                changes=False,
                summary="Take the next job",
                tag="Workers",
                description="The oldest of the highest priority whose table has no running job. It is the worker's "
                "until its lease runs out; a heartbeat extends that. Status 204: there is nothing to do. The same "
                "`lease_token` again answers the same job.",
                request_type=ClaimJob,
                answer_type=ClaimAnswer,
                errors=(InvalidRequest, BodyTooLarge, Unavailable),
            ),
            Operation(
                method="POST",
                path=JOBS + "/due",
                handler=self.enqueue_due_jobs,
                needs=on_server("maintain"),
                changes=False,
                summary="Enqueue what schedules and policies ask for now",
                tag="Workers",
                description="Workers send this every now and then. However many do at once, each job is enqueued once.",
                answer_type=DueAnswer,
                errors=(Unavailable,),
            ),
            Operation(
                method="POST",
                path=ONE_JOB + "/heartbeat",
                handler=self.heartbeat_job,
                needs=on_server("maintain"),
                changes=False,
                summary="Keep a job, and tell how far it is",
                tag="Workers",
                is_large=True,
                request_type=Heartbeat,
                answer_type=HeartbeatAnswer,
                errors=theirs,
            ),
            Operation(
                method="POST",
                path=ONE_JOB + "/finish",
                handler=self.finish_job,
                needs=on_server("maintain"),
                changes=False,
                summary="End an attempt at a job",
                tag="Workers",
                description="It succeeded, failed, was cancelled, or is handed back. Telling the same end twice does "
                "no harm.",
                is_large=True,
                request_type=FinishJob,
                answer_type=JobInfo,
                errors=theirs,
            ),
        )
