# Written by scripts/write_sync_client.py from client/lamella/client/http/aio/jobs.py: change that file.
"""Methods for jobs, ``lake.jobs``, and for a table's schedules and policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lamella.client.http.call import TableName, text_tuple
from lamella.client.http.jobs import (
    OnJob,
    cancel_job_call,
    claim_job_call,
    drop_policy_call,
    drop_schedule_call,
    due_jobs_call,
    finish_job_call,
    heartbeat_job_call,
    job_call,
    job_kinds_call,
    job_log_call,
    jobs_call,
    policy_call,
    put_policy_call,
    put_schedule_call,
    retry_job_call,
    schedule_call,
    schedules_call,
    submit_job_call,
    submit_job_request,
)
from lamella.client.http.sync.runner import CallRunner
from lamella.snapshot.wire import (
    ClaimAnswer,
    ClaimJob,
    DueAnswer,
    FinishJob,
    Heartbeat,
    HeartbeatAnswer,
    JobInfo,
    JobKindInfo,
    JobLine,
    JobLog,
    JobState,
    Policy,
    PolicyInfo,
    PutSchedule,
    ScheduleInfo,
)


class Jobs:
    """The jobs of a service: ``lake.jobs``."""

    def __init__(self, lake: CallRunner, sleep: Callable[[float], object]) -> None:
        self._lake = lake
        self._sleep = sleep

    def kinds(self) -> tuple[JobKindInfo, ...]:
        """The kinds of jobs that the service knows, by name, with their arguments as JSON schemas.

        Example:
            >>> [kind.name for kind in lake.jobs.kinds()][:3]
            ['analyze', 'auto', 'compact']
        """
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
        """Submit a job for ``namespace.table``; it is queued until a worker claims it.

        The arguments are described at :class:`~lamella.snapshot.wire.SubmitJob`.

        Raises InvalidRequest (the kind or its arguments), TableNotFound, NamespaceNotFound.

        Example:
            >>> lake.jobs.submit("compact", "shop.orders", priority=5).state
            'queued'
        """
        request = submit_job_request(kind, table, arguments, priority, max_attempts, timeout_s, delay_s, unique)
        return self._lake.run(submit_job_call(request), idempotency_key)

    def list(
        self,
        table: str | None = None,
        *,
        states: Sequence[JobState] | None = None,
        kinds: Sequence[str] | None = None,
        page_size: int | None = None,
    ) -> Iterator[JobInfo]:
        """Jobs, newest first, without their results; pages of ``page_size`` are fetched during iteration.

        Example:
            >>> [job.kind for job in lake.jobs.list("shop.orders", states=["succeeded"])]
            ['compact']
        """
        token: str | None = None
        while True:
            page = self._lake.run(jobs_call(table, states, kinds, page_size, token))
            yield from page.jobs
            token = page.next_page_token
            if token is None:
                return

    def get(self, job_id: str) -> JobInfo:
        """The current state of a job; raises JobNotFound.

        Example:
            >>> lake.jobs.get(job_id).state
            'succeeded'
        """
        return self._lake.run(job_call(job_id))

    def log(self, job_id: str, *, after: int = 0, limit: int | None = None) -> JobLog:
        """The lines of a job's log after line number ``after``; raises JobNotFound.

        Example:
            >>> [line.text for line in lake.jobs.log(job_id).lines]
            ['nothing to compact']
        """
        return self._lake.run(job_log_call(job_id, after, limit))

    def follow(self, job_id: str, *, after: int = 0, poll_s: float = 1.0) -> Iterator[JobLine]:
        """The lines of a job's log as they are written, until the job ends; raises JobNotFound.

        Example:
            >>> for line in lake.jobs.follow(job_id):
            ...     print(line.number, line.text)
            1 nothing to compact
        """
        while True:
            part = self.log(job_id, after=after)
            yield from part.lines
            after = part.after
            if not part.lines:
                if part.is_finished:
                    return
                self._sleep(poll_s)

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job; a running job is stopped by its worker soon after. Raises JobNotFound, JobFinished.

        Example:
            >>> job = lake.jobs.submit("compact", "shop.orders")
            >>> lake.jobs.cancel(job.job_id).state
            'cancelled'
        """
        return self._lake.run(cancel_job_call(job_id))

    def retry(self, job_id: str) -> JobInfo:
        """Queue a failed or cancelled job again; raises JobNotFound, JobRunning, JobFinished.

        Example:
            >>> job = lake.jobs.submit("compact", "shop.orders")
            >>> job = lake.jobs.cancel(job.job_id)
            >>> lake.jobs.retry(job.job_id).state
            'queued'
        """
        return self._lake.run(retry_job_call(job_id))

    def wait(
        self, job_id: str, *, timeout_s: float | None = None, poll_s: float = 1.0, on_job: OnJob | None = None
    ) -> JobInfo:
        """Wait until a job ends, or for ``timeout_s`` seconds, and return it; ``state`` tells whether it succeeded.

        ``on_job`` is called each time the job was fetched. Raises JobNotFound.

        Example:
            >>> job = lake.jobs.wait(job_id, timeout_s=60)
            >>> job.state
            'succeeded'
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
        """For workers: claim the next job, if there is one. ``lease_token``: a new UUID for each job.

        Example:
            >>> job = lake.jobs.submit("compact", "shop.orders")
            >>> claimed = lake.jobs.claim("worker-1", str(uuid.uuid4()), lease_s=60)
            >>> claimed.job.kind, claimed.table
            ('compact', 'shop.orders')
        """
        names = None if kinds is None else text_tuple("kinds", kinds)
        return self._lake.run(
            claim_job_call(ClaimJob(worker=worker, lease_token=lease_token, lease_s=lease_s, kinds=names))
        )

    def heartbeat(self, job_id: str, report: Heartbeat) -> HeartbeatAnswer:
        """For workers: renew the lease of a job, and report its progress; raises JobNotFound, JobLeaseLost.

        Example:
            >>> from lamella.snapshot.wire import Heartbeat
            >>> job, lease_token = lake.jobs.submit("compact", "shop.orders"), str(uuid.uuid4())
            >>> claimed = lake.jobs.claim("worker-1", lease_token, lease_s=60)
            >>> lake.jobs.heartbeat(job.job_id, Heartbeat(lease_token=lease_token, lease_s=60)).cancel_requested
            False
        """
        return self._lake.run(heartbeat_job_call(job_id, report))

    def finish(self, job_id: str, report: FinishJob) -> JobInfo:
        """For workers: end an attempt; raises JobNotFound, JobLeaseLost.

        Example:
            >>> from lamella.snapshot.wire import FinishJob
            >>> job, lease_token = lake.jobs.submit("compact", "shop.orders"), str(uuid.uuid4())
            >>> claimed = lake.jobs.claim("worker-1", lease_token, lease_s=60)
            >>> lake.jobs.finish(job.job_id, FinishJob(lease_token=lease_token, outcome="succeeded")).state
            'succeeded'
        """
        return self._lake.run(finish_job_call(job_id, report))

    def due(self) -> DueAnswer:
        """For workers: enqueue the jobs that are due by schedules and policies.

        Example:
            >>> lake.jobs.due().more
            False
        """
        return self._lake.run(due_jobs_call())


class TableSchedules:
    """The schedules and the policy of a table; a part of :class:`lamella.client.http.Table`."""

    _lake: CallRunner
    _name: TableName

    def schedules(self) -> tuple[ScheduleInfo, ...]:
        """The schedules, by name; raises TableNotFound.

        Example:
            >>> [(schedule.name, schedule.kind) for schedule in table.schedules()]
            [('nightly', 'compact')]
        """
        return self._lake.run(schedules_call(self._name)).schedules

    def schedule(self, name: str) -> ScheduleInfo:
        """One schedule; raises ScheduleNotFound, TableNotFound.

        Example:
            >>> table.schedule("nightly").cron
            '0 3 * * *'
        """
        return self._lake.run(schedule_call(self._name, name))

    def set_schedule(self, name: str, schedule: PutSchedule | Mapping[str, Any]) -> ScheduleInfo:
        """Create or replace a schedule, which may be a dictionary, as in HTTP; raises InvalidRequest, TableNotFound.

        Example:
            >>> table.set_schedule("hourly", {"kind": "compact", "every_s": 3_600}).enabled
            True
        """
        return self._lake.run(put_schedule_call(self._name, name, schedule))

    def run_schedule(self, name: str, *, idempotency_key: str | None = None) -> JobInfo:
        """Submit the job of a schedule now, also of a disabled one; its next time stays. If the same job waits or runs
        already, it is returned. Raises ScheduleNotFound, TableNotFound.

        Example:
            >>> table.run_schedule("nightly").kind
            'compact'
        """
        found = self._lake.run(schedule_call(self._name, name))
        request = submit_job_request(
            found.kind,
            str(self._name),
            found.arguments,
            found.priority,
            found.max_attempts,
            found.timeout_s,
            delay_s=0,
            unique=True,
        )
        return self._lake.run(submit_job_call(request), idempotency_key)

    def drop_schedule(self, name: str, *, idempotency_key: str | None = None) -> None:
        """Drop a schedule; jobs that it submitted stay. Raises ScheduleNotFound, TableNotFound.

        Example:
            >>> table.drop_schedule("nightly")
            >>> table.schedules()
            ()
        """
        self._lake.run(drop_schedule_call(self._name, name), idempotency_key)

    def policy(self) -> PolicyInfo:
        """The policy and the result of its last check; raises PolicyNotFound, TableNotFound.

        Example:
            >>> table.policy().policy.compact.small_blocks
            100
        """
        return self._lake.run(policy_call(self._name))

    def set_policy(self, policy: Policy | Mapping[str, Any]) -> PolicyInfo:
        """Create or replace the whole policy, which may be a dictionary, as in HTTP.

        Raises InvalidRequest, TableNotFound.

        Example:
            >>> table.set_policy({"compact": {"small_blocks": 50}}).policy.compact.small_blocks
            50
        """
        return self._lake.run(put_policy_call(self._name, policy))

    def drop_policy(self, *, idempotency_key: str | None = None) -> None:
        """Drop the policy; jobs that it submitted stay. Raises PolicyNotFound, TableNotFound.

        Example:
            >>> table.drop_policy()
        """
        self._lake.run(drop_policy_call(self._name), idempotency_key)
