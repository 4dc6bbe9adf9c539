"""``/v1/jobs``: ask for jobs, look at them, cancel them, try them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import ANYBODY, ASKED
from lamella.service.api import IDEMPOTENCY_KEY, Operation, Parameter, json_response, require_json, whole_number
from lamella.service.audit import about
from lamella.service.job_access import require_job, require_new_job, seen_jobs
from lamella.service.json_body import read_json
from lamella.service.services import Services
from lamella.service.upkeep import JOB_STATES, job_filter
from lamella.snapshot.errors import (
    BodyTooLarge,
    IdempotencyMismatch,
    InvalidPageToken,
    InvalidRequest,
    JobFinished,
    JobNotFound,
    JobRunning,
    LocationRefused,
    NamespaceNotFound,
    OutcomeUnknown,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import JobInfo, JobKindList, JobList, JobLog, Role, SubmitJob

JOBS: Final = "/v1/jobs"
ONE_JOB: Final = "/v1/jobs/{job_id}"
_SUBMIT: Final = msgspec.json.Decoder(SubmitJob)
_DEFAULT_PAGE: Final = 100
_DEFAULT_LINES: Final = 1_000
_MOST_LINES: Final = 10_000
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
        which = seen_jobs(request, job_filter(query.get("state"), query.get("kind"), query.get("table")))

        def work() -> JobList:
            return self._services.jobs.list(which, page_size=page_size, page_token=page_token)

        return json_response(await self._services.read(work))

    async def get_job(self, request: Request) -> Response:
        return json_response(await self._of(request, "read", lambda job: job))

    async def get_job_log(self, request: Request) -> Response:
        after = whole_number(request, "after", 0, 0, _MAX_NUMBER)
        limit = whole_number(request, "limit", _DEFAULT_LINES, 1, _MOST_LINES)
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
                        schema={"type": "integer", "minimum": 1, "maximum": _MOST_LINES},
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
