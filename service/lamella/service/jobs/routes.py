"""Routes of jobs, of workers, and of schedules and policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, ASKED, on_server, on_table
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.http.routing import (
    IDEMPOTENCY_KEY,
    TABLE,
    Operation,
    Parameter,
    json_response,
    require_json,
    whole_number,
)
from lamella.service.jobs.queue import STATES as JOB_STATES
from lamella.service.jobs.queue import job_filter, require_job, require_new_job, visible_jobs
from lamella.service.services import Services
from lamella.service.usage.audit import about
from lamella.snapshot.errors import (
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidPageToken,
    InvalidRequest,
    JobFinished,
    JobLeaseLost,
    JobNotFound,
    JobRunning,
    LocationRefused,
    NamespaceNotFound,
    OutcomeUnknown,
    PolicyNotFound,
    ScheduleNotFound,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    DueAnswer,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobInfo,
    JobKindList,
    JobList,
    JobLog,
    Policy,
    PolicyInfo,
    PutSchedule,
    Role,
    ScheduleInfo,
    ScheduleList,
    SubmitJob,
)

JOBS: Final = "/v1/jobs"
ONE_JOB: Final = "/v1/jobs/{job_id}"
_SUBMIT: Final = msgspec.json.Decoder(SubmitJob)
_DEFAULT_PAGE: Final = 100
_DEFAULT_LINES: Final = 1_000
_MAX_LINES: Final = 10_000
_Answer = TypeVar("_Answer")
_MAX_NUMBER: Final = (1 << 53) - 1


class JobRoutes:
    """What people and programs ask of jobs."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list_job_kinds(self, _request: Request) -> Response:
        return json_response(self._services.jobs.kinds())

    async def submit_job(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        asked = await self._services.read(lambda: read_json(_SUBMIT, body))  # it may be large
        about(request, asked.table or "")
        require_new_job(request, asked.kind, asked.arguments, asked.priority, asked.table)
        return await self._services.mutate(request, lambda claim: self._services.jobs.submit(asked, claim), body)

    async def list_jobs(self, request: Request) -> Response:
        page_size = whole_number(request, "page_size", _DEFAULT_PAGE, 1, self._services.settings.page_size_max)
        page_token = request.query_params.get("page_token")
        query = request.query_params
        which = visible_jobs(request, job_filter(query.get("state"), query.get("kind"), query.get("table")))

        def work() -> JobList:
            return self._services.jobs.list(which, page_size=page_size, page_token=page_token)

        return json_response(await self._services.read(work))

    async def get_job(self, request: Request) -> Response:
        return json_response(await self._of(request, "read", lambda job: job))

    async def get_job_log(self, request: Request) -> Response:
        after = whole_number(request, "after", 0, 0, _MAX_NUMBER)
        limit = whole_number(request, "limit", _DEFAULT_LINES, 1, _MAX_LINES)
        jobs = self._services.jobs
        return json_response(
            await self._of(request, "read", lambda job: jobs.log(job.job_id, after=after, limit=limit))
        )

    async def cancel_job(self, request: Request) -> Response:
        return json_response(await self._of(request, "maintain", lambda job: self._services.jobs.cancel(job.job_id)))

    async def retry_job(self, request: Request) -> Response:
        jobs = self._services.jobs

        def again(job: JobInfo) -> JobInfo:
            require_new_job(request, job.kind, job.arguments, job.priority, job.table)
            return jobs.retry(job.job_id)

        return json_response(await self._of(request, "maintain", again))

    async def _of(self, request: Request, role: Role, work: Callable[[JobInfo], _Answer]) -> _Answer:
        """Do something with the job in the path, for one who may."""
        job_id = request.path_params["job_id"]

        def done() -> _Answer:
            job = self._services.jobs.get(job_id)
            require_job(request, role, job)
            return work(job)

        return await self._services.read(done)

    def operations(self) -> tuple[Operation, ...]:
        """What these routes are."""
        return (
            Operation(
                method="GET",
                path="/v1/job-kinds",
                handler=self.list_job_kinds,
                needs=ANYBODY,
                summary="List the kinds of jobs",
                tag="Jobs",
                answer_type=JobKindList,
            ),
            Operation(
                method="POST",
                path=JOBS,
                handler=self.submit_job,
                needs=ASKED,
                summary="Have a job done",
                tag="Jobs",
                description="It waits for a worker. With `unique`, a job that is pending and would be the same is "
                "answered in its place, with status 200.",
                is_large=True,
                request_type=SubmitJob,
                answer_type=JobInfo,
                status=201,
                parameters=(IDEMPOTENCY_KEY,),
                errors=(
                    InvalidRequest,
                    LocationRefused,
                    BodyTooLarge,
                    NamespaceNotFound,
                    TableNotFound,
                    IdempotencyMismatch,
                    Unavailable,
                    OutcomeUnknown,
                ),
            ),
            Operation(
                method="GET",
                path=JOBS,
                handler=self.list_jobs,
                needs=ASKED,
                summary="List jobs, newest first",
                tag="Jobs",
                description="Without what they answered; a job by its id has that.",
                answer_type=JobList,
                parameters=(
                    Parameter(name="table", description="Only jobs that were asked for this `namespace.table`."),
                    Parameter(
                        name="state",
                        description=f"Only jobs in one of these states, of {', '.join(JOB_STATES)}: `queued,running`.",
                    ),
                    Parameter(name="kind", description="Only jobs of one of these kinds: `compact,recluster`."),
                    Parameter(
                        name="page_size",
                        description=f"Jobs in one answer; {_DEFAULT_PAGE} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": self._services.settings.page_size_max},
                    ),
                    Parameter(name="page_token", description="`next_page_token` of the answer before."),
                ),
                errors=(InvalidRequest, InvalidPageToken, Unavailable),
            ),
            Operation(
                method="GET",
                path=ONE_JOB,
                handler=self.get_job,
                needs=ASKED,
                summary="Read a job as it stands",
                tag="Jobs",
                answer_type=JobInfo,
                errors=(JobNotFound, Unavailable),
            ),
            Operation(
                method="GET",
                path=ONE_JOB + "/log",
                handler=self.get_job_log,
                needs=ASKED,
                summary="Read a job's log",
                tag="Jobs",
                description="To follow it, ask again with the `after` of the answer before.",
                answer_type=JobLog,
                parameters=(
                    Parameter(
                        name="after",
                        description="Only lines behind the one with this number.",
                        schema={"type": "integer", "minimum": 0},
                    ),
                    Parameter(
                        name="limit",
                        description=f"Lines in one answer; {_DEFAULT_LINES} when not given.",
                        schema={"type": "integer", "minimum": 1, "maximum": _MAX_LINES},
                    ),
                ),
                errors=(InvalidRequest, JobNotFound, Unavailable),
            ),
            Operation(
                method="POST",
                path=ONE_JOB + "/cancel",
                handler=self.cancel_job,
                needs=ASKED,
                summary="Cancel a job",
                tag="Jobs",
                description="A queued one is over at once. A running one is ended by its worker, which hears of it "
                "with its next heartbeat; until then it says `cancel_requested`. Saying it twice does no harm.",
                answer_type=JobInfo,
                errors=(JobNotFound, JobFinished, Unavailable),
            ),
            Operation(
                method="POST",
                path=ONE_JOB + "/retry",
                handler=self.retry_job,
                needs=ASKED,
                summary="Try a job again",
                tag="Jobs",
                description="One that failed or was cancelled is queued again with all of its attempts, and goes on "
                "from its checkpoint. A queued one that waits for its time is due at once.",
                answer_type=JobInfo,
                errors=(JobNotFound, JobRunning, JobFinished, Unavailable),
            ),
        )


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


_SCHEDULE: Final = msgspec.json.Decoder(PutSchedule)
_POLICY: Final = msgspec.json.Decoder(Policy)
_SCHEDULES: Final = TABLE + "/schedules"
_ONE_SCHEDULE: Final = TABLE + "/schedules/{schedule}"
_THE_POLICY: Final = TABLE + "/policy"


class ScheduleRoutes:
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

        def work(claim: IdempotencyKey) -> StoredResponse:
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

        def work(claim: IdempotencyKey) -> StoredResponse:
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
