"""What the service asks of a catalog.

Times are Unix milliseconds of the caller's clock; nothing here reads one, so whether a key has expired is the caller's
to say.

Every mutation is one transaction. ``remember`` is stored inside it, so that an answer can be replayed exactly when
the change is there. A mutation raises :class:`~lamella.snapshot.errors.Unavailable` when it certainly did not happen
and :class:`~lamella.snapshot.errors.OutcomeUnknown` when the database failed in the commit itself. When ``remember``'s
key is stored already, the mutation raises :class:`~lamella.snapshot.errors.IdempotencyMismatch` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from lamella.service.catalog.engine import CatalogListener
from lamella.service.catalog.records import (
    AddedJob,
    ClaimResult,
    CommitGuard,
    DroppedTable,
    DueSchedule,
    FeedbackBounds,
    FeedbackRecord,
    HistoryEntry,
    JobEnding,
    JobFilter,
    JobRecord,
    JobReport,
    KeyRecord,
    LeaseRecord,
    NamespaceUse,
    PolicyRecord,
    PruneRateRow,
    RecordedBounds,
    RecordedFilter,
    ScheduleRecord,
    StoredAnswer,
    SweepMark,
    TableRecord,
    TagRecord,
)
from lamella.snapshot.wire import AuditEntry, GrantInfo, JobLine, NamespaceInfo, PruneRate


class AccessCatalog(Protocol):
    """The part of the port. Each method is one transaction, whatever other services do meanwhile."""

    def add_key(self, key: KeyRecord, grants: Sequence[GrantInfo]) -> None:
        """Add a key with these grants and no others. Raises AlreadyExists."""

    def api_keys(self) -> list[KeyRecord]:
        """All of them, by name."""

    def key(self, name: str) -> KeyRecord:
        """Raises KeyNotFound."""

    def key_of(self, sha256: str) -> KeyRecord | None:
        """The key whose text, or old text, has that hash."""

    def rotate_key(
        self, name: str, *, sha256: str, old_until_ms: int, expires_ms: int | None, now_ms: int, by: str
    ) -> KeyRecord:
        """Give a key another text; the one before it becomes the old one, until then or its own end, whichever comes
        first. It is theirs from then on who has the new one. Raises KeyNotFound."""

    def drop_key(self, name: str) -> None:
        """Forget a key and all that was granted to it. Keys that it made go to nobody, not even to another key that
        gets its name. Raises KeyNotFound."""

    def note_key_use(self, name: str, at_ms: int) -> None:
        """Note when a key was used; nothing for one that is gone."""

    def grants(self, principals: Sequence[str] | None = None) -> list[GrantInfo]:
        """What these were granted, or all: by principal, namespace and table."""

    def put_grant(self, grant: GrantInfo) -> None:
        """Give it, in place of another role on the same. Raises KeyNotFound for a key that is not there."""

    def drop_grant(self, principal: str, namespace: str | None, table: str | None) -> bool:
        """Take a grant away; False: there was none."""


# What the service asks of a catalog about how it is used: prune rates, the audit trail, the database itself.
#
# A part of the port. Times are Unix milliseconds of the caller's clock; nothing here reads one.


class UsageCatalog(Protocol):
    """The part of the port. Each method is one transaction, whatever other services do meanwhile."""

    @property
    def backend(self) -> str:
        """The kind of database: ``sqlite`` or ``postgresql``."""

    def add_prune_rates(self, rows: Iterable[PruneRateRow]) -> None:
        """Add to the sums that there are."""

    def prune_rates(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, PruneRate]:
        """By table, all sums that began then or later together; without tables that have none."""

    def prune_rate_series(self, table_id: str, *, since_ms: int) -> list[PruneRate]:
        """The sums of a table that began then or later, the oldest first."""

    def forget_prune_rates(self, *, before_ms: int, limit: int) -> int:
        """Forget up to ``limit`` sums that began before then, the oldest first; returns how many."""

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Keep entries; those whose ``audit_id`` is there already stay as they are."""

    def audit(self, *, before_id: str | None, limit: int, target: str | None = None) -> list[AuditEntry]:
        """Newest first, from behind ``before_id``; ``target``: only what was about it."""

    def forget_audit(self, *, before_ms: int, limit: int) -> int:
        """Forget up to ``limit`` entries from before then, the oldest first; returns how many."""

    def schema_revision(self) -> str:
        """Which migration the database is at."""


# What the service asks of a catalog about jobs, schedules and policies. A part of the port.
#
# JSON members (``arguments``, ``progress``, ``checkpoint``, ``result``, ``error``, ``policy``, ``findings``) are text.
# Times are Unix milliseconds of the caller's clock; nothing here reads one.


class JobCatalog(Protocol):
    """The part of the port. Each method is one transaction, whatever other services do meanwhile."""

    def enqueue_job(self, job: JobRecord, *, unique: bool, remember: StoredAnswer | None = None) -> JobRecord | None:
        """Add a queued job; None. With ``unique``: or the pending job with the same ``twin``, and nothing was done.

        Without it the job is added in any case, and stands for others only if none does yet.
        """

    def claim_job(
        self, *, worker: str, kinds: Sequence[str] | None, lease_token: str, lease_expires_ms: int, now_ms: int
    ) -> ClaimResult:
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

    def fire_schedule(self, seen: ScheduleRecord, job: JobRecord, *, next_ms: int, now_ms: int) -> AddedJob | None:
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
    ) -> dict[str, AddedJob]:
        """Enqueue the jobs (unique) that rules ask for, and note what was found.

        Nothing is done, and nothing returned, when the policy changed since the check began.
        """


class Catalog(AccessCatalog, JobCatalog, UsageCatalog, Protocol):
    """The port. All methods may be called from several threads at once.

    ``is_instant``: :meth:`current` waits for nothing and nobody, so that it may be called on an event loop.
    """

    is_instant: bool

    def listen_to(self, listener: CatalogListener) -> None:
        """Tell somebody what the database takes; once, before the catalog is used."""

    @property
    def connections(self) -> tuple[int, int]:
        """Of the pool: those that are in use, and as many as may be."""

    def ping(self) -> None:
        """Return when the database answers; else raise :class:`Unavailable`."""

    def check_write(self) -> None:
        """Return when the database has taken a write, which changes nothing; else raise :class:`Unavailable`."""

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises AlreadyExists, QuotaExceeded."""

    def change_namespace(
        self, before: NamespaceInfo, after: NamespaceInfo, *, remember: StoredAnswer | None = None
    ) -> bool:
        """Give a namespace other properties, if it still has those that it had ``before``; False: it has not."""

    def namespace_use(self, name: str) -> NamespaceUse:
        """How much there is in a namespace, and may be. Raises NamespaceNotFound."""

    def check_room(self, table_id: str, *, blocks: int, size_bytes: int) -> None:
        """Raises QuotaExceeded when so much more of a table would be beyond a quota now; nothing is held."""

    def check_room_for_table(self, namespace: str) -> None:
        """Raises NamespaceNotFound, and QuotaExceeded when one more table would be beyond a quota now."""

    def namespaces(self) -> list[NamespaceInfo]:
        """All of them, by name."""

    def namespace(self, name: str) -> NamespaceInfo:
        """Raises NamespaceNotFound."""

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, NamespaceNotEmpty."""

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        """Raises NamespaceNotFound, AlreadyExists, QuotaExceeded."""

    def tables(self, namespace: str) -> list[str]:
        """Names of the live tables, sorted. Raises NamespaceNotFound."""

    def table(self, namespace: str, name: str) -> TableRecord:
        """Raises NamespaceNotFound, TableNotFound."""

    def current(self, namespace: str, name: str) -> TableRecord | None:
        """As :meth:`table`, by a shorter way and as fresh: every commit that was acknowledged before is seen.

        None: it is not there, or cannot be told this way now; :meth:`table` knows.
        """

    def table_by_id(self, table_id: str) -> TableRecord:
        """Raises TableNotFound, also when the table was dropped."""

    def drop_table(
        self,
        namespace: str,
        name: str,
        *,
        now_ms: int,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        remember: StoredAnswer | None = None,
    ) -> None:
        """The table leaves the listing and its name is free again; nothing in storage is touched.

        ``purge``: it is doomed at once. ``base_snapshot_id``: only if that is its current snapshot. Raises
        NamespaceNotFound, TableNotFound, CommitConflict.
        """

    def dropped_tables(self, namespace: str, *, earlier: bool = True) -> list[DroppedTable]:
        """Those that can be undropped, newest drop first; with ``earlier``, also of earlier namespaces of that name.

        Raises NamespaceNotFound.
        """

    def undrop_table(self, table_id: str, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        """Bring a dropped table back under that name.

        Raises NamespaceNotFound, TableNotFound (not dropped, or doomed), AlreadyExists (the name is taken),
        QuotaExceeded.
        """

    def dropped_before(self, before_ms: int) -> list[DroppedTable]:
        """The tables of the whole catalog that were dropped before then, and all doomed ones; oldest drop first."""

    def doom_table(self, table_id: str, *, dropped_before_ms: int, now_ms: int) -> bool:
        """From now on the table cannot be undropped, so its files may be deleted.

        False: it is not dropped (any more), or was dropped later than that.
        """

    def forget_table(self, table_id: str) -> bool:
        """Delete all that the catalog knows of a doomed table, once its files are gone; False: it is not doomed."""

    def advance(
        self,
        table_id: str,
        entry: HistoryEntry,
        *,
        while_kept: int | None = None,
        guard: CommitGuard | None = None,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
    ) -> bool:
        """Make ``entry`` current if the table still is at version ``entry.seq - 1``; False: another commit won,
        or the table was dropped.

        ``while_kept``: only if the snapshot with this ``seq`` is still in the history; else raises SnapshotExpired.
        ``guard``: only if no clean-up deleted meanwhile what the commit relies on; else raises Unavailable.
        Raises QuotaExceeded when the table would grow beyond a quota, whatever others commit at the same time.
        """

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        """Newest first, from below ``before_seq``."""

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        """Raises SnapshotNotFound, or SnapshotExpired when it must have been one that expired."""

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        """The snapshot that was current at that instant.

        Raises SnapshotNotFound when it is before the first, SnapshotExpired when that snapshot is no longer there.
        """

    def tags(self, table_id: str, *, now_ms: int) -> list[TagRecord]:
        """The tags of a table that are alive, by name."""

    def tag(self, table_id: str, name: str, *, now_ms: int) -> TagRecord:
        """Raises TagNotFound, also for a tag that expired."""

    def tagged(self, table_id: str, name: str, *, now_ms: int) -> HistoryEntry:
        """The snapshot that a tag names. Raises TagNotFound."""

    def put_tag(self, tag: TagRecord, *, move: bool, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Make a tag, or ``move`` the one of that name.

        Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), AlreadyExists; TagNotFound when
        there is none to move.
        """

    def drop_tag(self, table_id: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Raises TagNotFound."""

    def expire_snapshots(self, table_id: str, seqs: Sequence[int], *, now_ms: int) -> list[int]:
        """Take snapshots out of a table's history; returns the ``seq`` of those that were taken out now, ascending.

        The current snapshot stays, and so does one that a living tag names or a lease holds: nobody can tag, lease
        or roll back to a snapshot once it is out. Tags and leases that are not alive are forgotten. Works for dropped
        tables too.
        """

    def add_lease(self, lease: LeaseRecord) -> None:
        """Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), QuotaExceeded."""

    def renew_lease(self, table_id: str, lease_id: str, *, expires_at_ms: int, now_ms: int) -> None:
        """Raises LeaseNotFound, also when the lease ran out already."""

    def release_lease(self, table_id: str, lease_id: str) -> None:
        """End a lease; one that is not there is no error."""

    def leases(self, table_id: str, *, now_ms: int) -> list[LeaseRecord]:
        """The leases of a table that have not run out, oldest first."""

    def kept(self, table_id: str) -> list[HistoryEntry]:
        """The whole history as it is, newest first; also of a dropped table. Empty when there is no such table."""

    def tables_with_files(self) -> list[str]:
        """The ids of all tables that are there or can be undropped."""

    def guard(self, table_id: str, files: Iterable[str], *, since_ms: int) -> CommitGuard:
        """What a commit carries into :meth:`advance`; to be asked before its files are looked at.

        Raises Unavailable when a clean-up is about to delete one of the files.
        """

    def condemn(self, table_id: str, objects: Sequence[SweepMark], *, watermark_ms: int) -> None:
        """Note what is about to be deleted, so that no commit takes it up from now on.

        ``watermark_ms``: the newest name time among the objects that are not blocks. Raises TableNotFound.
        """

    def condemned(self, table_id: str, *, after: str, limit: int) -> list[SweepMark]:
        """What was condemned and not acquitted, by location as the database orders them, from behind ``after``."""

    def acquit(self, table_id: str, locations: Iterable[str]) -> None:
        """Take objects off that list: they are gone, or turned out to be needed."""

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        """What readers reported of a table, by question."""

    def add_feedback(self, record: FeedbackRecord, bounds: FeedbackBounds) -> int:
        """Remember blocks beside those that are known for the same question; returns how many were not.

        Beyond the bounds the questions that were not used for longest go, and of one that is too large by itself the
        blocks that were reported first. Raises TableNotFound.
        """

    def touch_feedback(self, table_id: str, questions: Iterable[str], *, now_ms: int) -> None:
        """These questions were used."""

    def drop_feedback(self, table_id: str, question: str, blocks: Iterable[bytes]) -> int:
        """Forget some blocks of a question; returns how many were known. Raises TableNotFound."""

    def clear_feedback(self, table_id: str) -> int:
        """Forget all that was reported of a table; returns how many facts."""

    def add_recorded(self, table_id: str, filters: Sequence[RecordedFilter], bounds: RecordedBounds) -> None:
        """Count filters that were asked; beyond the bounds those that were not asked for longest go."""

    def recorded(self, table_id: str, *, limit: int) -> list[RecordedFilter]:
        """The filters that were asked of a table, the latest first."""

    def clear_recorded(self, table_id: str) -> int:
        """Forget them; returns how many there were."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        """What was stored under the key, if anything."""

    def keep_answer(self, answer: StoredAnswer) -> None:
        """Store the answer of a request that changed nothing.

        Raises IdempotencyMismatch when there is one under the key already.
        """

    def forget_answers(self, *, before_ms: int, limit: int = 1000) -> int:
        """Delete up to ``limit`` answers that were stored before then, the oldest first; returns how many."""

    def secret(self, name: str, fresh: bytes) -> bytes:
        """The secret of that name; the first to ask gives it its value, ``fresh``. All replicas get the same."""

    def close(self) -> None:
        """Release connections."""


def current_table(catalog: Catalog, namespace: str, name: str) -> TableRecord:
    """A table as it stands; raises NamespaceNotFound, TableNotFound. Waits for the catalog."""
    return catalog.current(namespace, name) or catalog.table(namespace, name)
