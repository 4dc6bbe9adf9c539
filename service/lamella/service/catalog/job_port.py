"""What the service asks of a catalog about jobs, schedules and policies. A part of the port.

JSON members (``arguments``, ``progress``, ``checkpoint``, ``result``, ``error``, ``policy``, ``findings``) are text.
Times are Unix milliseconds of the caller's clock; nothing here reads one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from lamella.snapshot.wire import JobLine, JobOrigin, JobOutcome, JobState

if TYPE_CHECKING:
    from lamella.service.catalog.port import StoredAnswer


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job; its members mean what they mean in :class:`~lamella.snapshot.wire.JobInfo`.

    ``namespace``, ``table_name``: as it was asked for. ``lease_token``: of the claim that has it, or ended its last
    attempt. ``twin``: what it shares with jobs that would be the same, None where it may not stand for others.
    ``log_lines``: the number of its log's last line.
    """

    job_id: str
    kind: str
    arguments: str
    state: JobState
    origin: JobOrigin
    created_ms: int
    table_id: str | None = None
    namespace: str | None = None
    table_name: str | None = None
    origin_name: str | None = None
    priority: int = 0
    attempts: int = 0
    max_attempts: int = 1
    timeout_s: int | None = None
    not_before_ms: int = 0
    started_ms: int | None = None
    finished_ms: int | None = None
    heartbeat_ms: int | None = None
    worker: str | None = None
    lease_token: str | None = None
    lease_expires_ms: int | None = None
    cancel_requested: bool = False
    progress: str | None = None
    checkpoint: str | None = None
    result: str | None = None
    error: str | None = None
    twin: str | None = None
    log_lines: int = 0


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are listed. None: any. ``table``: namespace and name, as they were asked for. ``within``: only jobs
    of tables in one of these places, a namespace with a table's name, or with None for all of its tables."""

    states: tuple[JobState, ...] | None = None
    kinds: tuple[str, ...] | None = None
    table: tuple[str, str] | None = None
    within: tuple[tuple[str, str | None], ...] | None = None


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a claim: the job (None: there is none), its table's name now, and what was found on the way: jobs
    whose lease had run out, and jobs whose table is gone, as they are then."""

    job: JobRecord | None = None
    table: tuple[str, str] | None = None
    lost: tuple[JobRecord, ...] = ()
    homeless: tuple[JobRecord, ...] = ()


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells of its job. None leaves what there is. ``most_lines``: the log keeps so many."""

    progress: str | None = None
    checkpoint: str | None = None
    lines: tuple[JobLine, ...] = ()
    most_lines: int = 1_000


class JobEnding(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended. ``retry_at_ms``: a failed job is queued again for then, if an attempt is left."""

    outcome: JobOutcome
    result: str | None = None
    error: str | None = None
    retry_at_ms: int | None = None


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; see :class:`~lamella.snapshot.wire.ScheduleInfo`."""

    table_id: str
    name: str
    kind: str
    arguments: str
    time_zone: str
    enabled: bool
    created_ms: int
    every_s: int | None = None
    cron: str | None = None
    priority: int = 0
    max_attempts: int | None = None
    timeout_s: int | None = None
    next_ms: int | None = None
    last_ms: int | None = None
    last_job_id: str | None = None


class DueSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule whose time has come, and the name of its table."""

    schedule: ScheduleRecord
    namespace: str
    table_name: str


class RuleFired(msgspec.Struct, frozen=True, kw_only=True):
    """When a rule of a policy last asked for a job, and which one that was."""

    at_ms: int
    job_id: str


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A table's policy. ``checked_ms``: 0 before its first check. ``fired``: by rule."""

    table_id: str
    policy: str
    updated_ms: int
    checked_ms: int = 0
    findings: str = "[]"
    fired: dict[str, RuleFired] = {}


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """The job that stands for what was asked; ``is_new`` False: a twin that was pending."""

    job_id: str
    is_new: bool


class JobCatalog(Protocol):
    """The part of the port. Each method is one transaction, whatever other services do meanwhile."""

    def enqueue_job(self, job: JobRecord, *, unique: bool, remember: StoredAnswer | None = None) -> JobRecord | None:
        """Add a queued job; None. With ``unique``: or the pending job with the same ``twin``, and nothing was done.

        Without it the job is added in any case, and stands for others only if none does yet.
        """

    def claim_job(
        self, *, worker: str, kinds: Sequence[str] | None, lease_token: str, lease_expires_ms: int, now_ms: int
    ) -> Claimed:
        """Take the oldest job of the highest priority that is due, of these kinds, whose table has no running job.

        First, running jobs whose lease ran out are queued again, or fail when they have no attempt left, or are
        cancelled when that was asked for. Jobs of tables that were dropped fail. With a ``lease_token`` that was used,
        the job that it stands for, if it has that still, and else none.
        """

    def heartbeat_job(
        self, job_id: str, lease_token: str, report: JobReport, *, lease_expires_ms: int, now_ms: int
    ) -> JobRecord:
        """Note what a worker tells, and let its lease run until then. Raises JobNotFound, JobLeaseLost."""

    def finish_job(
        self, job_id: str, lease_token: str, report: JobReport, ending: JobEnding, *, now_ms: int
    ) -> tuple[JobRecord, bool]:
        """End an attempt; a job that was asked to be cancelled is, unless it succeeded.

        Returns the job as it is then, and False when this claim had ended it before. Raises JobNotFound, JobLeaseLost.
        """

    def cancel_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        """Cancel a queued job, and ask the worker of a running one to. Raises JobNotFound, JobFinished."""

    def retry_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        """Queue a job that failed or was cancelled again, with all of its attempts; a queued one is due at once.

        Raises JobNotFound, JobRunning, JobFinished (it succeeded).
        """

    def job(self, job_id: str) -> JobRecord:
        """Raises JobNotFound."""

    def jobs(self, which: JobFilter, *, before_id: str | None, limit: int) -> list[JobRecord]:
        """Newest first, from behind ``before_id``; without ``result`` and ``checkpoint``."""

    def job_lines(self, job_id: str, *, after: int, limit: int) -> list[JobLine]:
        """Lines of a job's log above a number, ascending."""

    def pending_jobs(self) -> dict[str, int]:
        """How many jobs are queued and running."""

    def prune_jobs(self, *, before_ms: int, limit: int = 1_000) -> int:
        """Forget up to ``limit`` jobs that were over before then, with their logs, the oldest first."""

    def put_schedule(self, schedule: ScheduleRecord) -> ScheduleRecord:
        """Make or replace a schedule; returns it with the times that it keeps. Raises TableNotFound."""

    def schedules(self, table_id: str) -> list[ScheduleRecord]:
        """The schedules of a table, by name."""

    def drop_schedule(self, table_id: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        """Raises ScheduleNotFound."""

    def due_schedules(self, *, now_ms: int, limit: int) -> list[DueSchedule]:
        """Enabled schedules of live tables whose time has come, the longest due first."""

    def fire_schedule(self, seen: ScheduleRecord, job: JobRecord, *, next_ms: int, now_ms: int) -> Enqueued | None:
        """Enqueue the job of a due schedule (unique) and set its next time; None: another did, or it changed."""

    def put_policy(self, policy: PolicyRecord) -> None:
        """Make or replace a table's policy; it is due for a check. Raises TableNotFound."""

    def policy(self, table_id: str) -> PolicyRecord:
        """Raises PolicyNotFound."""

    def drop_policy(self, table_id: str, *, remember: StoredAnswer | None = None) -> None:
        """Raises PolicyNotFound."""

    def due_policies(self, *, checked_before_ms: int, limit: int) -> list[PolicyRecord]:
        """Policies of live tables whose last check is that long ago, the longest first."""

    def begin_check(self, seen: PolicyRecord, *, now_ms: int) -> bool:
        """Take on the check of a policy; False: another did, or it changed."""

    def end_check(
        self, table_id: str, *, began_ms: int, findings: str, jobs: Mapping[str, JobRecord]
    ) -> dict[str, Enqueued]:
        """Enqueue the jobs (unique) that rules ask for, and note what was found.

        Nothing is done, and nothing returned, when the policy changed since the check began.
        """
