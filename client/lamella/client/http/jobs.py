"""Jobs, schedules and policies: the calls. Their methods are in :mod:`lamella.client.http.aio.jobs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lamella.client.http.call import Call, TableName, make_call, struct_of, text_tuple
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

#: Called with a job each time its state was fetched.
OnJob = Callable[[JobInfo], object]


def job_kinds_call() -> Call[JobKindList]:
    """The kinds of jobs."""
    return make_call(operations.jobs.LIST_JOB_KINDS)


def submit_job_call(request: SubmitJob) -> Call[JobInfo]:
    """Submit a job."""
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
    """The current state of a job."""
    return make_call(operations.jobs.GET_JOB, job_id=job_id)


def job_log_call(job_id: str, after: int, limit: int | None) -> Call[JobLog]:
    """Lines of a job's log."""
    query = {"after": after, "limit": limit}
    return make_call(operations.jobs.GET_JOB_LOG, job_id=job_id, query=query)


def cancel_job_call(job_id: str) -> Call[JobInfo]:
    """Cancel a job. It can safely be sent twice, so it needs no idempotency key; so can all calls below."""
    return make_call(operations.jobs.CANCEL_JOB, job_id=job_id)


def retry_job_call(job_id: str) -> Call[JobInfo]:
    """Queue a job again."""
    return make_call(operations.jobs.RETRY_JOB, job_id=job_id)


def claim_job_call(request: ClaimJob) -> Call[ClaimAnswer]:
    """Claim the next job."""
    return make_call(operations.jobs.CLAIM_JOB, body=request)


def heartbeat_job_call(job_id: str, report: Heartbeat) -> Call[HeartbeatAnswer]:
    """Renew the lease of a job."""
    return make_call(operations.jobs.HEARTBEAT_JOB, job_id=job_id, body=report)


def finish_job_call(job_id: str, report: FinishJob) -> Call[JobInfo]:
    """End an attempt."""
    return make_call(operations.jobs.FINISH_JOB, job_id=job_id, body=report)


def due_jobs_call() -> Call[DueAnswer]:
    """Enqueue the jobs that are due by schedules and policies."""
    return make_call(operations.jobs.ENQUEUE_DUE_JOBS)


def submit_job_request(
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


def schedules_call(name: TableName) -> Call[ScheduleList]:
    """The schedules of a table."""
    return make_call(operations.jobs.LIST_SCHEDULES, name)


def schedule_call(name: TableName, schedule: str) -> Call[ScheduleInfo]:
    """One schedule of a table."""
    return make_call(operations.jobs.GET_SCHEDULE, name, schedule=schedule)


def put_schedule_call(name: TableName, schedule: str, request: PutSchedule | Mapping[str, Any]) -> Call[ScheduleInfo]:
    """Create or replace a schedule. It can safely be sent twice, so it needs no idempotency key."""
    return make_call(
        operations.jobs.PUT_SCHEDULE, name, schedule=schedule, body=struct_of(PutSchedule, request, "schedule")
    )


def drop_schedule_call(name: TableName, schedule: str) -> Call[Nothing]:
    """Drop a schedule."""
    return make_call(operations.jobs.DROP_SCHEDULE, name, schedule=schedule)


def policy_call(name: TableName) -> Call[PolicyInfo]:
    """A table's policy."""
    return make_call(operations.jobs.GET_POLICY, name)


def put_policy_call(name: TableName, policy: Policy | Mapping[str, Any]) -> Call[PolicyInfo]:
    """Create or replace the policy. It can safely be sent twice, so it needs no idempotency key."""
    return make_call(operations.jobs.PUT_POLICY, name, body=struct_of(Policy, policy, "policy"))


def drop_policy_call(name: TableName) -> Call[Nothing]:
    """Drop the policy."""
    return make_call(operations.jobs.DROP_POLICY, name)
