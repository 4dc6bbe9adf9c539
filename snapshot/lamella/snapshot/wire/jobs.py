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
    """How far a job is: ``done`` of ``total`` (None: nobody knows) of a ``unit`` such as "blocks"; ``message``: at what
    it is."""

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
    """``POST /v1/jobs``: have a job done.

    ``table``: ``namespace.table``; None for kinds that are about none. ``arguments``: those of the kind. ``priority``:
    larger ones come first. ``max_attempts`` (None: the service's setting): how often it is started at most.
    ``timeout_s``: how long an attempt may take; None: as long as it likes. ``delay_s``: not before so long from now.
    ``unique``: when a job of that kind with these arguments is pending for that table, answer that one and add none.
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
    """A job as it stands.

    ``table``: as it was asked for; ``table_id``: which one that was. ``origin_name``: the schedule, or the rule of the
    policy, that asked. ``attempts``: how often it was started. ``not_before_ms``: while it is queued, it is not started
    earlier. ``started_ms``: of the last attempt. ``heartbeat_ms``: when its worker was last heard of, who has it until
    ``lease_expires_ms``. ``error``: of the last attempt that failed, also while the next one is waited for. ``result``:
    what its program answered; not in listings.
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
        """Whether it is over."""
        return self.state in FINISHED_STATES


class JobList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs, the newest first. ``next_page_token``: None at the end."""

    jobs: tuple[JobInfo, ...]
    next_page_token: str | None = None


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a job's log, oldest first. Ask again with ``after``, the number of the last one, for what comes then;
    when ``state`` is one in which a job is over and no line came, nothing will."""

    state: JobState
    lines: tuple[JobLine, ...] = ()
    after: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether the job was over when the lines were read."""
        return self.state in FINISHED_STATES


class ClaimJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/claim``: take the next job.

    ``worker``: who asks, for people. ``lease_token``: a fresh UUID; it stands for this claim, so that asking again with
    the same one gives the same job. ``lease_s``: until when the worker will have been heard of again. ``kinds``: only
    jobs of these; None: of any.
    """

    worker: Word
    lease_token: Word
    lease_s: int
    kinds: Words | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job that was taken; None (status 204, without a body): there is nothing to do.

    ``table``: the table's name now. ``checkpoint``: what an earlier attempt left to go on from. ``log_lines``: the
    number of the last line of its log; the worker numbers on from there.
    """

    job: JobInfo | None = None
    table: str | None = None
    checkpoint: Any = None
    log_lines: int = 0


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/{job_id}/heartbeat``: the worker still has it, for ``lease_s`` more.

    ``progress``, ``checkpoint``: None leaves them as they are. ``log``: lines whose number is not above the last one's
    are left out, so that a heartbeat can be sent again.
    """

    lease_token: Word
    lease_s: int
    progress: Progress | None = None
    log: Annotated[tuple[JobLine, ...], Meta(max_length=10_000)] = ()
    checkpoint: Any = None


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``cancel_requested``: end the job."""

    lease_expires_ms: int
    cancel_requested: bool


class FinishJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST /v1/jobs/{job_id}/finish``: what became of it.

    ``outcome``: "released" hands it back without counting the attempt. A "failed" one is tried again if ``retry``, an
    attempt is left and nobody asked to cancel it: after ``retry_after_s``, or when that is None after a time that
    doubles with each attempt. The rest: as of :class:`Heartbeat`.
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
    """``POST /v1/jobs/due``: the jobs that schedules and policies asked for now. ``more``: ask again at once."""

    enqueued: tuple[str, ...] = ()
    more: bool = False


class JobKindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. ``arguments``: a JSON schema."""

    name: str
    text: str
    needs_table: bool
    arguments: dict[str, Any]


class JobKindList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/job-kinds``, by name."""

    kinds: tuple[JobKindInfo, ...]


class PutSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``PUT .../schedules/{schedule}``: have a job done again and again.

    Exactly one of ``every_s`` and ``cron`` (five fields, as Debian's cron reads them, in ``time_zone``). A time that
    comes while the job of an earlier one is pending adds none; times that nobody asked at count once. ``enabled``
    False: it stays, and does nothing. The rest is what each job gets; see :class:`~lamella.snapshot.wire.SubmitJob`.
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
    """A schedule. ``next_ms``: when it asks next; ``last_ms``: when it last did, for ``last_job_id``."""

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
    """The schedules of a table, by name."""

    schedules: tuple[ScheduleInfo, ...]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a job of one kind is due, and how it is done.

    ``every_s``: when the rule's last job is so long ago, whatever else holds. ``cool_down_s``: never sooner than so
    long after the rule's last job, so that a job that cannot help is not repeated for ever. ``arguments``: of the job.
    """

    every_s: int | None = None
    cool_down_s: int = 3600
    arguments: Options = {}
    priority: int = 0
    timeout_s: int | None = None


class CompactRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``small_blocks``: so many blocks of the table, or more, are below the size that compaction would leave alone."""

    small_blocks: int | None = None


class ReclusterRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``average_depth``: a value of the cluster key lies in so many blocks on average, or more."""

    average_depth: float | None = None


class IndexRefreshRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``not_indexed_blocks``: an index does not know so many blocks, or more. Each index has a job of its own;
    ``indexes``: only these (None: all that are in use)."""

    not_indexed_blocks: int | None = None
    indexes: Words | None = None


class VacuumRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``snapshots``: the history has so many, or more. Without ``arguments`` that say ``execute`` it is a dry run."""

    snapshots: int | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``PUT .../policy``: the upkeep that a table gets by itself: for each kind of job the rule by which it is due."""

    compact: CompactRule | None = None
    recluster: ReclusterRule | None = None
    regroup: Rule | None = None
    index_refresh: IndexRefreshRule | None = None
    vacuum: VacuumRule | None = None
    verify: Rule | None = None
    refresh: Rule | None = None


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the last check of a rule found. ``rule``: its kind, for an index with its name behind a colon.

    ``measured``: against ``threshold``; None: it has none, or it could not be measured (``reason`` says why).
    ``last_ms``, ``last_job_id``: when the rule last asked for a job, and which.
    """

    rule: str
    due: bool
    reason: str
    measured: float | None = None
    threshold: float | None = None
    last_ms: int | None = None
    last_job_id: str | None = None


class PolicyInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table's policy, and what its last check found (``checked_ms`` None: there was none yet)."""

    policy: Policy
    updated_ms: int
    checked_ms: int | None = None
    findings: tuple[RuleFinding, ...] = ()
