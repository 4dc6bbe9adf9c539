"""Schedules and policies: what asks for jobs by itself."""

from __future__ import annotations

from typing import Any

import msgspec

from lamella.snapshot.wire.bounds import Moment, Options, Word, Words


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
