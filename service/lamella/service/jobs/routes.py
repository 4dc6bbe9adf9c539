"""Routes of jobs, of workers, and of schedules and policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog
from lamella.service.http.admission import read_json
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import ServedOperation, json_response, require_json, whole_number
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.queue import JobQueue, job_filter, require_job, require_new_job, visible_jobs
from lamella.service.jobs.schedules import DueJobs, Schedules
from lamella.service.process.threads import Threads
from lamella.service.usage.audit import about
from lamella.snapshot.wire import (
    ClaimJob,
    FinishJob,
    Heartbeat,
    JobInfo,
    JobList,
    Policy,
    PolicyInfo,
    PutSchedule,
    Role,
    ScheduleInfo,
    ScheduleList,
    SubmitJob,
)
from lamella.snapshot.wire.operations import jobs as operations

_SUBMIT: Final = msgspec.json.Decoder(SubmitJob)
_Answer = TypeVar("_Answer")
_MAX_NUMBER: Final = (1 << 53) - 1


class JobRoutes:
    """Routes for people and programs that use jobs."""

    def __init__(self, *, readers: Threads, mutations: Mutations, jobs: JobQueue, page_size_max: int) -> None:
        self._readers = readers
        self._mutations = mutations
        self._jobs = jobs
        self._page_size_max = page_size_max

    async def list_job_kinds(self, _request: Request) -> Response:
        return json_response(self._jobs.kinds())

    async def submit_job(self, request: Request) -> Response:
        require_json(request)
        body = await request.body()

        payload = await self._readers.run(lambda: read_json(_SUBMIT, body))  # it may be large
        about(request, payload.table or "")
        require_new_job(request, payload.kind, payload.arguments, payload.priority, payload.table)
        return await self._mutations.run(
            request, lambda idempotency_key: self._jobs.submit(payload, idempotency_key), body
        )

    async def list_jobs(self, request: Request) -> Response:
        page_size = whole_number(request, "page_size", operations.DEFAULT_PAGE, 1, self._page_size_max)
        page_token = request.query_params.get("page_token")
        query = request.query_params
        which = visible_jobs(request, job_filter(query.get("state"), query.get("kind"), query.get("table")))

        def work() -> JobList:
            return self._jobs.list(which, page_size=page_size, page_token=page_token)

        return json_response(await self._readers.run(work))

    async def get_job(self, request: Request) -> Response:
        return json_response(await self._of(request, "read", lambda job: job))

    async def get_job_log(self, request: Request) -> Response:
        after = whole_number(request, "after", 0, 0, _MAX_NUMBER)
        limit = whole_number(request, "limit", operations.DEFAULT_LINES, 1, operations.MAX_LINES)
        jobs = self._jobs
        return json_response(
            await self._of(request, "read", lambda job: jobs.log(job.job_id, after=after, limit=limit))
        )

    async def cancel_job(self, request: Request) -> Response:
        return json_response(await self._of(request, "maintain", lambda job: self._jobs.cancel(job.job_id)))

    async def retry_job(self, request: Request) -> Response:
        jobs = self._jobs

        def again(job: JobInfo) -> JobInfo:
            require_new_job(request, job.kind, job.arguments, job.priority, jobs.table_of(job))
            return jobs.retry(job.job_id)

        return json_response(await self._of(request, "maintain", again))

    async def _of(self, request: Request, role: Role, work: Callable[[JobInfo], _Answer]) -> _Answer:
        """Run ``work`` on the job in the path, if the caller has the role."""
        job_id = request.path_params["job_id"]

        def done() -> _Answer:
            job = self._jobs.get(job_id)
            require_job(request, role, job, self._jobs.table_of(job))
            return work(job)

        return await self._readers.run(done)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_JOB_KINDS, self.list_job_kinds),
            ServedOperation(operations.SUBMIT_JOB, self.submit_job),
            ServedOperation(operations.LIST_JOBS, self.list_jobs),
            ServedOperation(operations.GET_JOB, self.get_job),
            ServedOperation(operations.GET_JOB_LOG, self.get_job_log),
            ServedOperation(operations.CANCEL_JOB, self.cancel_job),
            ServedOperation(operations.RETRY_JOB, self.retry_job),
        )


_CLAIM_JOB: Final = msgspec.json.Decoder(ClaimJob)
_HEARTBEAT: Final = msgspec.json.Decoder(Heartbeat)
_FINISH: Final = msgspec.json.Decoder(FinishJob)


class WorkerRoutes:
    """Routes for workers: claim a job, report on it, end it; add what is due."""

    def __init__(self, *, readers: Threads, due: DueJobs, jobs: JobQueue) -> None:
        self._readers = readers
        self._due = due
        self._jobs = jobs

    async def claim_job(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_CLAIM_JOB, await request.body())
        answer = await self._readers.run(lambda: self._jobs.claim(payload))
        return Response(status_code=204) if answer is None else json_response(answer)

    async def heartbeat_job(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_HEARTBEAT, await request.body())
        job_id = request.path_params["job_id"]
        return json_response(await self._readers.run(lambda: self._jobs.heartbeat(job_id, payload)))

    async def finish_job(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_FINISH, await request.body())
        job_id = request.path_params["job_id"]
        return json_response(await self._readers.run(lambda: self._jobs.finish(job_id, payload)))

    async def enqueue_due_jobs(self, _request: Request) -> Response:
        return json_response(await self._readers.run(self._due.run))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.CLAIM_JOB, self.claim_job),
            ServedOperation(operations.ENQUEUE_DUE_JOBS, self.enqueue_due_jobs),
            ServedOperation(operations.HEARTBEAT_JOB, self.heartbeat_job),
            ServedOperation(operations.FINISH_JOB, self.finish_job),
        )


_SCHEDULE: Final = msgspec.json.Decoder(PutSchedule)
_POLICY: Final = msgspec.json.Decoder(Policy)


class ScheduleRoutes:
    """Routes that set, return and delete schedules and policies."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, mutations: Mutations, schedules: Schedules, policies: Policies
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._mutations = mutations
        self._schedules = schedules
        self._policies = policies

    async def list_schedules(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> ScheduleList:
            return self._schedules.list(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    async def get_schedule(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]

        def work() -> ScheduleInfo:
            return self._schedules.get(self._catalog.table(namespace, name), schedule)

        return json_response(await self._readers.run(work))

    async def put_schedule(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_SCHEDULE, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]
        require_new_job(request, payload.kind, payload.arguments, payload.priority, f"{namespace}.{name}")

        def work() -> ScheduleInfo:
            return self._schedules.put(self._catalog.table(namespace, name), schedule, payload)

        return json_response(await self._readers.run(work))

    async def drop_schedule(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        schedule = request.path_params["schedule"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            return self._schedules.drop(self._catalog.table(namespace, name), schedule, idempotency_key)

        return await self._mutations.run(request, work)

    async def get_policy(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work() -> PolicyInfo:
            return self._policies.get(self._catalog.table(namespace, name))

        return json_response(await self._readers.run(work))

    async def put_policy(self, request: Request) -> Response:
        require_json(request)
        payload = read_json(_POLICY, await request.body())
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        for kind, rule in msgspec.structs.asdict(payload).items():
            if rule is not None:
                require_new_job(request, kind, rule.arguments, rule.priority, f"{namespace}.{name}")

        def work() -> PolicyInfo:
            return self._policies.put(self._catalog.table(namespace, name), payload)

        return json_response(await self._readers.run(work))

    async def drop_policy(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]

        def work(idempotency_key: IdempotencyKey) -> StoredResponse:
            return self._policies.drop(self._catalog.table(namespace, name), idempotency_key)

        return await self._mutations.run(request, work)

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (
            ServedOperation(operations.LIST_SCHEDULES, self.list_schedules),
            ServedOperation(operations.GET_SCHEDULE, self.get_schedule),
            ServedOperation(operations.PUT_SCHEDULE, self.put_schedule),
            ServedOperation(operations.DROP_SCHEDULE, self.drop_schedule),
            ServedOperation(operations.GET_POLICY, self.get_policy),
            ServedOperation(operations.PUT_POLICY, self.put_policy),
            ServedOperation(operations.DROP_POLICY, self.drop_policy),
        )
