"""Jobs, schedules and policies: the calls, ``lake.jobs``, and methods of :class:`Table` and its async twin."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from lamella.client.http.call import AsyncCallRunner, Call, CallRunner, TableName, make_call, text_tuple
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    DueAnswer,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobInfo,
    JobKindInfo,
    JobKindList,
    JobLine,
    JobList,
    JobLog,
    JobState,
    Policy,
    PolicyInfo,
    PutSchedule,
    ScheduleInfo,
    ScheduleList,
    SubmitJob,
    operations,
)
from lamella.snapshot.wire.operation import Nothing

#: Called with a job whenever it was looked at.
OnJob = Callable[[JobInfo], object]


def job_kinds_call() -> Call[JobKindList]:
    """The kinds of jobs."""
    return make_call(operations.jobs.LIST_JOB_KINDS)


def submit_job_call(request: SubmitJob) -> Call[JobInfo]:
    """Have a job done."""
    return make_call(operations.jobs.SUBMIT_JOB, body=request)


def jobs_call(
    table: str | None,
    states: Sequence[JobState] | None,
    kinds: Sequence[str] | None,
    page_size: int | None,
    page_token: str | None,
) -> Call[JobList]:
    """A page of jobs."""
    query = {
        "table": table,
        "state": None if states is None else ",".join(text_tuple("states", states)),
        "kind": None if kinds is None else ",".join(text_tuple("kinds", kinds)),
        "page_size": page_size,
        "page_token": page_token,
    }
    return make_call(operations.jobs.LIST_JOBS, query=query)


def job_call(job_id: str) -> Call[JobInfo]:
    """A job as it stands."""
    return make_call(operations.jobs.GET_JOB, job_id=job_id)


def job_log_call(job_id: str, after: int, limit: int | None) -> Call[JobLog]:
    """Lines of a job's log."""
    query = {"after": after, "limit": limit}
    return make_call(operations.jobs.GET_JOB_LOG, job_id=job_id, query=query)


def cancel_job_call(job_id: str) -> Call[JobInfo]:
    """Cancel a job. Saying it twice does no harm, so it needs no idempotency key; so it is with all that follow."""
    return make_call(operations.jobs.CANCEL_JOB, job_id=job_id)


def retry_job_call(job_id: str) -> Call[JobInfo]:
    """Try a job again."""
    return make_call(operations.jobs.RETRY_JOB, job_id=job_id)


def claim_job_call(request: ClaimJob) -> Call[ClaimAnswer]:
    """Take the next job."""
    return make_call(operations.jobs.CLAIM_JOB, body=request)


def heartbeat_job_call(job_id: str, told: Heartbeat) -> Call[HeartbeatAnswer]:
    """Keep a job."""
    return make_call(operations.jobs.HEARTBEAT_JOB, job_id=job_id, body=told)


def finish_job_call(job_id: str, told: FinishJob) -> Call[JobInfo]:
    """End an attempt."""
    return make_call(operations.jobs.FINISH_JOB, job_id=job_id, body=told)


def due_jobs_call() -> Call[DueAnswer]:
    """Enqueue what schedules and policies ask for now."""
    return make_call(operations.jobs.ENQUEUE_DUE_JOBS)


def _request(
    kind: str,
    table: str | None,
    arguments: Mapping[str, Any] | None,
    priority: int,
    max_attempts: int | None,
    timeout_s: int | None,
    delay_s: int,
    unique: bool,
) -> SubmitJob:
    return SubmitJob(
        kind=kind,
        table=table,
        arguments=dict(arguments or {}),
        priority=priority,
        max_attempts=max_attempts,
        timeout_s=timeout_s,
        delay_s=delay_s,
        unique=unique,
    )


class Jobs:
    """The jobs of a service: ``lake.jobs``."""

    def __init__(self, lake: CallRunner, sleep: Callable[[float], object]) -> None:
        self._lake = lake
        self._sleep = sleep

    def kinds(self) -> tuple[JobKindInfo, ...]:
        """The kinds of jobs that the service knows, by name, with their arguments as JSON schemas."""
        return self._lake.run(job_kinds_call()).kinds

    def submit(
        self,
        kind: str,
        table: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        priority: int = 0,
        max_attempts: int | None = None,
        timeout_s: int | None = None,
        delay_s: int = 0,
        unique: bool = False,
        idempotency_key: str | None = None,
    ) -> JobInfo:
        """Have a job done for ``namespace.table``; it waits for a worker.

        What the arguments mean is said at :class:`~lamella.snapshot.wire.SubmitJob`.

        Raises InvalidRequest (the kind or its arguments), TableNotFound, NamespaceNotFound.
        """
        request = _request(kind, table, arguments, priority, max_attempts, timeout_s, delay_s, unique)
        return self._lake.run(submit_job_call(request), idempotency_key)

    def list(
        self,
        table: str | None = None,
        *,
        states: Sequence[JobState] | None = None,
        kinds: Sequence[str] | None = None,
        page_size: int | None = None,
    ) -> Iterator[JobInfo]:
        """Jobs, the newest first, without what they answered; pages of ``page_size`` are asked for as it goes on."""
        token: str | None = None
        while True:
            page = self._lake.run(jobs_call(table, states, kinds, page_size, token))
            yield from page.jobs
            token = page.next_page_token
            if token is None:
                return

    def get(self, job_id: str) -> JobInfo:
        """A job as it stands; raises JobNotFound."""
        return self._lake.run(job_call(job_id))

    def log(self, job_id: str, *, after: int = 0, limit: int | None = None) -> JobLog:
        """Lines of a job's log behind the one with the number ``after``; raises JobNotFound."""
        return self._lake.run(job_log_call(job_id, after, limit))

    def follow(self, job_id: str, *, after: int = 0, poll_s: float = 1.0) -> Iterator[JobLine]:
        """The lines of a job's log, as they come, until it is over; raises JobNotFound."""
        while True:
            part = self.log(job_id, after=after)
            yield from part.lines
            after = part.after
            if not part.lines:
                if part.is_finished:
                    return
                self._sleep(poll_s)

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job; one that runs is ended by its worker soon. Raises JobNotFound, JobFinished."""
        return self._lake.run(cancel_job_call(job_id))

    def retry(self, job_id: str) -> JobInfo:
        """Queue a job again that failed or was cancelled; raises JobNotFound, JobRunning, JobFinished."""
        return self._lake.run(retry_job_call(job_id))

    def wait(
        self, job_id: str, *, timeout_s: float | None = None, poll_s: float = 1.0, on_job: OnJob | None = None
    ) -> JobInfo:
        """The job once it is over, or as it stands after ``timeout_s``; whether it succeeded is its ``state``.

        ``on_job`` is called each time that it was looked at. Raises JobNotFound.
        """
        give_up_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            job = self.get(job_id)
            if on_job is not None:
                on_job(job)
            if job.is_finished or (give_up_s is not None and time.monotonic() >= give_up_s):
                return job
            self._sleep(poll_s)

    def claim(self, worker: str, lease_token: str, *, lease_s: int, kinds: Sequence[str] | None = None) -> ClaimAnswer:
        """For workers: take the next job, if there is one. ``lease_token``: a fresh UUID for each job."""
        names = None if kinds is None else text_tuple("kinds", kinds)
        return self._lake.run(
            claim_job_call(ClaimJob(worker=worker, lease_token=lease_token, lease_s=lease_s, kinds=names))
        )

    def heartbeat(self, job_id: str, told: Heartbeat) -> HeartbeatAnswer:
        """For workers: keep a job, and tell of it; raises JobNotFound, JobLeaseLost."""
        return self._lake.run(heartbeat_job_call(job_id, told))

    def finish(self, job_id: str, told: FinishJob) -> JobInfo:
        """For workers: end an attempt; raises JobNotFound, JobLeaseLost."""
        return self._lake.run(finish_job_call(job_id, told))

    def due(self) -> DueAnswer:
        """For workers: enqueue what schedules and policies ask for now."""
        return self._lake.run(due_jobs_call())


class AsyncJobs:
    """The asyncio twin of :class:`Jobs`."""

    def __init__(self, lake: AsyncCallRunner, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._lake = lake
        self._sleep = sleep

    async def kinds(self) -> tuple[JobKindInfo, ...]:
        """As :meth:`Jobs.kinds`."""
        return (await self._lake.run(job_kinds_call())).kinds

    async def submit(
        self,
        kind: str,
        table: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        priority: int = 0,
        max_attempts: int | None = None,
        timeout_s: int | None = None,
        delay_s: int = 0,
        unique: bool = False,
        idempotency_key: str | None = None,
    ) -> JobInfo:
        """As :meth:`Jobs.submit`."""
        request = _request(kind, table, arguments, priority, max_attempts, timeout_s, delay_s, unique)
        return await self._lake.run(submit_job_call(request), idempotency_key)

    async def list(
        self,
        table: str | None = None,
        *,
        states: Sequence[JobState] | None = None,
        kinds: Sequence[str] | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[JobInfo]:
        """As :meth:`Jobs.list`."""
        token: str | None = None
        while True:
            page = await self._lake.run(jobs_call(table, states, kinds, page_size, token))
            for job in page.jobs:
                yield job
            token = page.next_page_token
            if token is None:
                return

    async def get(self, job_id: str) -> JobInfo:
        """As :meth:`Jobs.get`."""
        return await self._lake.run(job_call(job_id))

    async def log(self, job_id: str, *, after: int = 0, limit: int | None = None) -> JobLog:
        """As :meth:`Jobs.log`."""
        return await self._lake.run(job_log_call(job_id, after, limit))

    async def follow(self, job_id: str, *, after: int = 0, poll_s: float = 1.0) -> AsyncIterator[JobLine]:
        """As :meth:`Jobs.follow`."""
        while True:
            part = await self.log(job_id, after=after)
            for line in part.lines:
                yield line
            after = part.after
            if not part.lines:
                if part.is_finished:
                    return
                await self._sleep(poll_s)

    async def cancel(self, job_id: str) -> JobInfo:
        """As :meth:`Jobs.cancel`."""
        return await self._lake.run(cancel_job_call(job_id))

    async def retry(self, job_id: str) -> JobInfo:
        """As :meth:`Jobs.retry`."""
        return await self._lake.run(retry_job_call(job_id))

    async def wait(
        self, job_id: str, *, timeout_s: float | None = None, poll_s: float = 1.0, on_job: OnJob | None = None
    ) -> JobInfo:
        """As :meth:`Jobs.wait`."""
        give_up_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            job = await self.get(job_id)
            if on_job is not None:
                on_job(job)
            if job.is_finished or (give_up_s is not None and time.monotonic() >= give_up_s):
                return job
            await self._sleep(poll_s)

    async def claim(
        self, worker: str, lease_token: str, *, lease_s: int, kinds: Sequence[str] | None = None
    ) -> ClaimAnswer:
        """As :meth:`Jobs.claim`."""
        names = None if kinds is None else text_tuple("kinds", kinds)
        return await self._lake.run(
            claim_job_call(ClaimJob(worker=worker, lease_token=lease_token, lease_s=lease_s, kinds=names))
        )

    async def heartbeat(self, job_id: str, told: Heartbeat) -> HeartbeatAnswer:
        """As :meth:`Jobs.heartbeat`."""
        return await self._lake.run(heartbeat_job_call(job_id, told))

    async def finish(self, job_id: str, told: FinishJob) -> JobInfo:
        """As :meth:`Jobs.finish`."""
        return await self._lake.run(finish_job_call(job_id, told))

    async def due(self) -> DueAnswer:
        """As :meth:`Jobs.due`."""
        return await self._lake.run(due_jobs_call())


def schedules_call(name: TableName) -> Call[ScheduleList]:
    """The schedules of a table."""
    return make_call(operations.jobs.LIST_SCHEDULES, name)


def schedule_call(name: TableName, schedule: str) -> Call[ScheduleInfo]:
    """One of them."""
    return make_call(operations.jobs.GET_SCHEDULE, name, schedule=schedule)


def put_schedule_call(name: TableName, schedule: str, request: PutSchedule) -> Call[ScheduleInfo]:
    """Make or replace one. Doing it twice does no harm, so it needs no idempotency key."""
    return make_call(operations.jobs.PUT_SCHEDULE, name, schedule=schedule, body=request)


def drop_schedule_call(name: TableName, schedule: str) -> Call[Nothing]:
    """Drop one."""
    return make_call(operations.jobs.DROP_SCHEDULE, name, schedule=schedule)


def policy_call(name: TableName) -> Call[PolicyInfo]:
    """A table's policy."""
    return make_call(operations.jobs.GET_POLICY, name)


def put_policy_call(name: TableName, policy: Policy) -> Call[PolicyInfo]:
    """Make or replace it. Doing it twice does no harm, so it needs no idempotency key."""
    return make_call(operations.jobs.PUT_POLICY, name, body=policy)


def drop_policy_call(name: TableName) -> Call[Nothing]:
    """Drop it."""
    return make_call(operations.jobs.DROP_POLICY, name)


class TableSchedules:
    """What asks for a table's jobs by itself; a part of :class:`lamella.client.Table`."""

    _lake: CallRunner
    _name: TableName

    def schedules(self) -> tuple[ScheduleInfo, ...]:
        """The schedules, by name; raises TableNotFound."""
        return self._lake.run(schedules_call(self._name)).schedules

    def schedule(self, name: str) -> ScheduleInfo:
        """One schedule; raises ScheduleNotFound, TableNotFound."""
        return self._lake.run(schedule_call(self._name, name))

    def set_schedule(self, name: str, schedule: PutSchedule) -> ScheduleInfo:
        """Make or replace a schedule; raises InvalidRequest, TableNotFound."""
        return self._lake.run(put_schedule_call(self._name, name, schedule))

    def drop_schedule(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a schedule; jobs that it asked for stay. Raises ScheduleNotFound, TableNotFound."""
        self._lake.run(drop_schedule_call(self._name, name), idempotency_key)

    def policy(self) -> PolicyInfo:
        """The policy, and what its last check found; raises PolicyNotFound, TableNotFound."""
        return self._lake.run(policy_call(self._name))

    def set_policy(self, policy: Policy) -> PolicyInfo:
        """Make or replace the policy, as a whole; raises InvalidRequest, TableNotFound."""
        return self._lake.run(put_policy_call(self._name, policy))

    def drop_policy(self, *, idempotency_key: str | None = None) -> None:
        """Drop the policy; jobs that it asked for stay. Raises PolicyNotFound, TableNotFound."""
        self._lake.run(drop_policy_call(self._name), idempotency_key)


class AsyncTableSchedules:
    """The asyncio twin of :class:`TableSchedules`."""

    _lake: AsyncCallRunner
    _name: TableName

    async def schedules(self) -> tuple[ScheduleInfo, ...]:
        """As :meth:`TableSchedules.schedules`."""
        return (await self._lake.run(schedules_call(self._name))).schedules

    async def schedule(self, name: str) -> ScheduleInfo:
        """As :meth:`TableSchedules.schedule`."""
        return await self._lake.run(schedule_call(self._name, name))

    async def set_schedule(self, name: str, schedule: PutSchedule) -> ScheduleInfo:
        """As :meth:`TableSchedules.set_schedule`."""
        return await self._lake.run(put_schedule_call(self._name, name, schedule))

    async def drop_schedule(self, name: str, *, idempotency_key: str | None = None) -> None:
        """As :meth:`TableSchedules.drop_schedule`."""
        await self._lake.run(drop_schedule_call(self._name, name), idempotency_key)

    async def policy(self) -> PolicyInfo:
        """As :meth:`TableSchedules.policy`."""
        return await self._lake.run(policy_call(self._name))

    async def set_policy(self, policy: Policy) -> PolicyInfo:
        """As :meth:`TableSchedules.set_policy`."""
        return await self._lake.run(put_policy_call(self._name, policy))

    async def drop_policy(self, *, idempotency_key: str | None = None) -> None:
        """As :meth:`TableSchedules.drop_policy`."""
        await self._lake.run(drop_policy_call(self._name), idempotency_key)
