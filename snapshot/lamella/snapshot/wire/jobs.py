"""Jobs, schedules and policies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import Moment, Options, TableText, Word, Words

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]
JobOrigin = Literal["request", "schedule", "policy"]
JobOutcome = Literal["succeeded", "failed", "cancelled", "released"]
LogLevel = Literal["debug", "info", "warning", "error"]

#: The states that a job does not leave by itself.
FINISHED_STATES: frozenset[JobState] = frozenset(("succeeded", "failed", "cancelled"))


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a job: ``done`` of ``total`` (None: unknown) of a ``unit`` such as "blocks"; ``message``: the current
    activity."""

    done: int = 0
    total: int | None = None
    unit: str = ""
    message: str = ""


class JobError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an attempt at a job failed. ``code``: one of docs/errors.md, or one of docs/jobs.md."""

    code: str
    detail: str
    details: dict[str, Any] = {}


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a job's log. ``number`` counts from 1 over all attempts."""

    number: int
    at_ms: int
    text: str
    level: LogLevel = "info"


class SubmitJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs``: submits a job.

    ``table``: ``namespace.table``; None for kinds without a table. ``arguments``: those of the kind. ``priority``:
    larger ones run first. ``max_attempts`` (None: the service's setting): maximum number of starts. ``timeout_s``:
    maximum duration of an attempt; None: no limit. ``delay_s``: minimum delay before it starts. ``unique``: if a job of
    that kind with these arguments is pending for that table, return that one and add none.
    """

    kind: Word
    table: TableText | None = None
    arguments: Options = {}
    priority: int = 0
    max_attempts: int | None = None
    timeout_s: int | None = None
    delay_s: int = 0
    unique: bool = False


class JobInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a job.

    ``table``: its name in the request; ``table_id``: the table it referred to. ``origin_name``: the schedule, or the
    rule of the policy, that submitted it. ``attempts``: number of starts. ``not_before_ms``: while it is queued, it is
    not started earlier. ``started_ms``: of the last attempt. ``heartbeat_ms``: the last heartbeat of its worker, whose
    lease ends at ``lease_expires_ms``. ``error``: of the last failed attempt, also while the next one is pending.
    ``result``: the answer of its program; not in listings.
    """

    job_id: str
    kind: str
    state: JobState
    origin: JobOrigin
    arguments: dict[str, Any]
    priority: int
    attempts: int
    max_attempts: int
    created_ms: int
    not_before_ms: int
    cancel_requested: bool
    table: str | None = None
    table_id: str | None = None
    origin_name: str | None = None
    timeout_s: int | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    heartbeat_ms: int | None = None
    worker: str | None = None
    lease_expires_ms: int | None = None
    progress: Progress | None = None
    result: Any = None
    error: JobError | None = None

    @property
    def is_finished(self) -> bool:
        """Returns whether the job is finished."""
        return self.state in FINISHED_STATES


class JobList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs, the newest first. ``next_page_token``: None at the end."""

    jobs: tuple[JobInfo, ...]
    next_page_token: str | None = None


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a job's log, oldest first. To continue, send the number of the last line as ``after``; if ``state`` is a
    finished state and there are no lines, there will be no more."""

    state: JobState
    lines: tuple[JobLine, ...] = ()
    after: int = 0

    @property
    def is_finished(self) -> bool:
        """Returns whether the job was finished when the lines were read."""
        return self.state in FINISHED_STATES


class ClaimJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/claim``: takes the next job.

    ``worker``: a name of the worker for display. ``lease_token``: a new UUID that identifies this claim; repeating the
    request with the same one returns the same job. ``lease_s``: time until the next heartbeat is due. ``kinds``: only
    jobs of these; None: of any.
    """

    worker: Word
    lease_token: Word
    lease_s: int
    kinds: Words | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that was taken; None (status 204, without a body): no job is due.

    ``table``: the table's current name. ``checkpoint``: left by an earlier attempt to continue from. ``log_lines``: the
    number of the last line of its log, from which the worker continues.
    """

    job: JobInfo | None = None
    table: str | None = None
    checkpoint: Any = None
    log_lines: int = 0


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/{job_id}/heartbeat``: extends the worker's lease to ``lease_s`` from now.

    ``progress``, ``checkpoint``: None leaves them unchanged. ``log``: lines whose number is not above the last one's
    are ignored, so a heartbeat can be sent again.
    """

    lease_token: Word
    lease_s: int
    progress: Progress | None = None
    log: Annotated[tuple[JobLine, ...], Meta(max_length=10_000)] = ()
    checkpoint: Any = None


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``cancel_requested``: the worker must end the job."""

    lease_expires_ms: int
    cancel_requested: bool


class FinishJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/{job_id}/finish``: reports the outcome of a job.

    ``outcome``: "released" returns it to the queue without counting the attempt. A "failed" one is retried if ``retry``
    is set, an attempt is left and its cancellation was not requested: after ``retry_after_s``, or if that is None after
    a delay that doubles with each attempt. The other members are those of :class:`Heartbeat`.
    """

    lease_token: Word
    outcome: JobOutcome
    result: Any = None
    error: JobError | None = None
    retry: bool = True
    retry_after_s: float | None = None
    progress: Progress | None = None
    log: Annotated[tuple[JobLine, ...], Meta(max_length=10_000)] = ()
    checkpoint: Any = None


class DueAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /v1/jobs/due``: the jobs that schedules and policies submitted now. ``more``: repeat the request
    immediately."""

    enqueued: tuple[str, ...] = ()
    more: bool = False


class JobKindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. ``arguments``: a JSON schema."""

    name: str
    text: str
    needs_table: bool
    arguments: dict[str, Any]


class JobKindList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/job-kinds``, ordered by name."""

    kinds: tuple[JobKindInfo, ...]


class PutSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``PUT .../schedules/{schedule}``: submits a job repeatedly.

    Exactly one of ``every_s`` and ``cron`` (five fields, as in Debian's cron, in ``time_zone``). No job is added while
    the job of an earlier time is pending; missed times count once. ``enabled`` False: the schedule is kept, but
    inactive. The other members apply to each job; see :class:`~lamella.snapshot.wire.SubmitJob`.
    """

    kind: Word
    arguments: Options = {}
    every_s: int | None = None
    cron: Word | None = None
    time_zone: Moment = "UTC"
    enabled: bool = True
    priority: int = 0
    max_attempts: int | None = None
    timeout_s: int | None = None


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. ``next_ms``: its next time; ``last_ms``: its last time, when it submitted ``last_job_id``."""

    name: str
    kind: str
    arguments: dict[str, Any]
    time_zone: str
    enabled: bool
    priority: int
    created_ms: int
    every_s: int | None = None
    cron: str | None = None
    max_attempts: int | None = None
    timeout_s: int | None = None
    next_ms: int | None = None
    last_ms: int | None = None
    last_job_id: str | None = None


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules of a table, ordered by name."""

    schedules: tuple[ScheduleInfo, ...]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a job of one kind is due, and how it runs.

    ``every_s``: it is due when the rule's last job is at least this old, whatever else is measured. ``cool_down_s``:
    minimum time after the rule's last job, so that a job without effect is not repeated forever. ``arguments``: of the
    job.
    """

    every_s: int | None = None
    cool_down_s: int = 3600
    arguments: Options = {}
    priority: int = 0
    timeout_s: int | None = None


class CompactRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``small_blocks``: due when at least this many blocks of the table are so small that compaction would rewrite
    them."""

    small_blocks: int | None = None


class ReclusterRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``average_depth``: due when on average at least this many blocks contain a value of the cluster key."""

    average_depth: float | None = None


class PurgeRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``blocks_with_deletes``: due when a purge would rewrite at least this many blocks: those with the share
    ``min_deleted_share`` of the arguments of their rows deleted, by default a tenth."""

    blocks_with_deletes: int | None = None


class IndexRefreshRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``not_indexed_blocks``: due when an index does not cover at least this many blocks. Each index has its own job;
    ``indexes``: only these (None: all active ones)."""

    not_indexed_blocks: int | None = None
    indexes: Words | None = None


class VacuumRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``snapshots``: due when the history has at least this many. Without ``execute`` in ``arguments`` it is a dry
    run."""

    snapshots: int | None = None


class AutoRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job of kind "auto" every ``every_s`` seconds: it does the best candidates (docs/advice.md) for the table within
    budgets, measures each action on the same filters, and undoes or does not repeat what does not reach half of its
    prediction (docs/auto.md).

    ``dry_run``: nothing is done; ``lamella auto explain`` shows what would be. ``rewritten_bytes_per_day``: maximum
    file bytes that are rewritten in 24 hours; None: as many as the table has. ``index_bytes``: maximum size of the
    indexes that it created; None: a quarter of the table's bytes. ``hours``: actions begin only at these times of the
    day, in ``time_zone``: ``22:00-06:00``; None: at any time. ``payback_days``: an action is worth its cost if it would
    have saved the filters of so many days as many bytes. ``min_gain``: minimum part of the bytes that filters read that
    an action must save. ``kinds``: of candidates; None: all.
    """

    every_s: int | None = 3600
    cool_down_s: int = 0
    dry_run: bool = False
    rewritten_bytes_per_day: int | None = None
    index_bytes: int | None = None
    hours: Moment | None = None
    time_zone: Moment = "UTC"
    payback_days: float = 7.0
    min_gain: float = 0.02
    kinds: Words | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``PUT .../policy``: automatic maintenance of a table: for each kind of job the rule by which it is due."""

    compact: CompactRule | None = None
    recluster: ReclusterRule | None = None
    purge: PurgeRule | None = None
    regroup: Rule | None = None
    index_refresh: IndexRefreshRule | None = None
    vacuum: VacuumRule | None = None
    verify: Rule | None = None
    refresh: Rule | None = None
    auto: AutoRule | None = None


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the last check of a rule. ``rule``: its kind, followed for an index by a colon and its name.

    ``measured``: compared with ``threshold``; None: it has none, or it could not be measured (``reason`` states why).
    ``last_ms``, ``last_job_id``: when the rule last submitted a job, and which.
    """

    rule: str
    due: bool
    reason: str
    measured: float | None = None
    threshold: float | None = None
    last_ms: int | None = None
    last_job_id: str | None = None


class PolicyInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table's policy, and the results of its last check (``checked_ms`` None: there was none yet)."""

    policy: Policy
    updated_ms: int
    checked_ms: int | None = None
    findings: tuple[RuleFinding, ...] = ()
