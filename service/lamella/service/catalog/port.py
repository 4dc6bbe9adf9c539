"""The interface of a catalog.

Times are Unix milliseconds of the caller's clock. Nothing here reads a clock, so the caller decides whether a key has
expired.

Every mutation is one transaction. ``remember`` is stored inside it, so that an answer can be replayed exactly if the
change was made. A mutation raises :class:`~lamella.snapshot.errors.Unavailable` if it certainly did not happen, and
:class:`~lamella.snapshot.errors.OutcomeUnknown` if the database failed in the commit itself. If the key of ``remember``
is stored already, the mutation raises :class:`~lamella.snapshot.errors.IdempotencyMismatch` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from lamella.service.catalog.engine import CatalogListener
from lamella.service.catalog.records import (
    AddedJob,
    AutoRecord,
    BranchRecord,
    ClaimResult,
    CommitGuard,
    DroppedTable,
    DroppedUse,
    DueSchedule,
    FeedbackBounds,
    FeedbackRecord,
    FoundTag,
    HistoryEntry,
    JobEnding,
    JobFilter,
    JobRecord,
    JobReport,
    KeyRecord,
    LeaseRecord,
    ListedTable,
    NamespaceUse,
    PointerSwap,
    PolicyRecord,
    PruneRateRow,
    RecordedBounds,
    RecordedFilter,
    RefChanges,
    ScheduleRecord,
    Scopes,
    StoredAnswer,
    SweepMark,
    TableFilter,
    TableOrder,
    TableRecord,
    TableVersion,
    TagRecord,
)
from lamella.snapshot.wire import AuditEntry, GrantInfo, JobLine, NamespaceInfo, PruneRate, ViewInfo


class AccessCatalog(Protocol):
    """Keys and grants. Each method is one transaction, whatever other services do meanwhile."""

    def add_key(self, key: KeyRecord, grants: Sequence[GrantInfo]) -> None:
        """Add a key with exactly these grants. Raises AlreadyExists."""

    def api_keys(self) -> list[KeyRecord]:
        """Return all keys, by name."""

    def key(self, name: str) -> KeyRecord:
        """Return a key. Raises KeyNotFound."""

    def key_of(self, sha256: str) -> KeyRecord | None:
        """Return the key whose current or old text has that hash."""

    def rotate_key(
        self, name: str, *, sha256: str, old_until_ms: int, expires_ms: int | None, now_ms: int, by: str
    ) -> KeyRecord:
        """Give a key another text and owner; the previous text stays valid until ``old_until_ms`` or its own expiry.

        The key belongs to ``by`` from then on. Raises KeyNotFound.
        """

    def drop_key(self, name: str) -> None:
        """Delete a key and its grants. Keys that it created have no owner then, not even a new key of the same name.

        Raises KeyNotFound.
        """

    def note_key_use(self, name: str, at_ms: int) -> None:
        """Store when a key was used; does nothing for a deleted one."""

    def grants(self, principals: Sequence[str] | None = None) -> list[GrantInfo]:
        """Return the grants of these principals, or all: by principal, namespace and table."""

    def put_grant(self, grant: GrantInfo) -> None:
        """Add a grant; it replaces another role on the same resource. Raises KeyNotFound."""

    def drop_grant(self, principal: str, namespace: str | None, table: str | None) -> bool:
        """Remove a grant; False if there was none."""


# How the catalog is used: prune rates, the audit trail, the database itself.


class UsageCatalog(Protocol):
    """Usage data. Each method is one transaction, whatever other services do meanwhile."""

    @property
    def backend(self) -> str:
        """Return the kind of database: ``sqlite`` or ``postgresql``."""

    def add_prune_rates(self, rows: Iterable[PruneRateRow]) -> None:
        """Add rows to the stored sums."""

    def prune_rates(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, PruneRate]:
        """Return, by table, the total of all sums that began at ``since_ms`` or later; tables without sums are left
        out.
        """

    def prune_rate_series(self, table_id: str, *, since_ms: int) -> list[PruneRate]:
        """Return the sums of a table that began at ``since_ms`` or later, the oldest first."""

    def forget_prune_rates(self, *, before_ms: int, limit: int) -> int:
        """Delete up to ``limit`` sums that began before ``before_ms``, the oldest first; return how many."""

    def put_table_health(self, table_id: str, version: int, measured_ms: int, health: str) -> None:
        """Store the health of a table at a version of it, as JSON; one that is of an earlier version is not stored."""

    def table_health(self, table_id: str) -> str | None:
        """Return the stored health of a table."""

    def add_service_rates(self, bucket_ms: int, totals: Mapping[str, float]) -> None:
        """Add to the sums of the period that began at ``bucket_ms``, by name."""

    def service_rates(self, *, since_ms: int) -> dict[int, dict[str, float]]:
        """Return the sums of periods that began at ``since_ms`` or later: by their beginning, then by name."""

    def forget_service_rates(self, *, before_ms: int, limit: int) -> int:
        """Delete up to ``limit`` sums of periods that began before ``before_ms``, the oldest first; return how many."""

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Store entries; an entry whose ``audit_id`` exists stays unchanged."""

    def audit(self, *, before_id: str | None, limit: int, target: str | None = None) -> list[AuditEntry]:
        """Return entries older than ``before_id``, newest first; ``target``: only those about it."""

    def audit_of_snapshots(self, snapshot_ids: Sequence[str]) -> list[AuditEntry]:
        """Return the entries of requests that committed these snapshots, in the order in which they were noted."""

    def forget_audit(self, *, before_ms: int, limit: int) -> int:
        """Delete up to ``limit`` entries that are older than that, the oldest first; return how many."""

    def schema_revision(self) -> str:
        """Return the migration that the database is at."""


# Jobs, schedules and policies. JSON members (``arguments``, ``progress``, ``checkpoint``, ``result``, ``error``,
# ``policy``, ``findings``) are text.


class JobCatalog(Protocol):
    """Jobs, schedules and policies. Each method is one transaction, whatever other services do meanwhile."""

    def enqueue_job(self, job: JobRecord, *, unique: bool, remember: StoredAnswer | None = None) -> JobRecord | None:
        """Add a queued job and return None. With ``unique``, return the pending job with the same ``twin`` instead.

        Without ``unique`` the job is always added; it takes the ``twin`` only if no pending job has it.
        """

    def claim_job(
        self, *, worker: str, kinds: Sequence[str] | None, lease_token: str, lease_expires_ms: int, now_ms: int
    ) -> ClaimResult:
        """Claim the oldest due job of the highest priority, of these kinds, whose table has no running job.

        First, running jobs whose lease ran out are queued again, or fail if they have no attempt left, or are cancelled
        if that was requested. Jobs of dropped tables fail. A ``lease_token`` that was used before returns the job that
        it still has, otherwise none.
        """

    def heartbeat_job(
        self, job_id: str, lease_token: str, report: JobReport, *, lease_expires_ms: int, now_ms: int
    ) -> JobRecord:
        """Store a worker's report and extend its lease. Raises JobNotFound, JobLeaseLost."""

    def finish_job(
        self, job_id: str, lease_token: str, report: JobReport, ending: JobEnding, *, now_ms: int
    ) -> tuple[JobRecord, bool]:
        """End an attempt. A job whose cancellation was requested becomes cancelled, unless it succeeded.

        Returns the job as it is then, and False if this claim had ended it before. Raises JobNotFound, JobLeaseLost.
        """

    def cancel_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        """Cancel a queued job, or request the cancellation of a running one. Raises JobNotFound, JobFinished."""

    def retry_job(self, job_id: str, *, now_ms: int) -> JobRecord:
        """Queue a failed or cancelled job again, with all of its attempts; a queued job becomes due at once.

        Raises JobNotFound, JobRunning, JobFinished (it succeeded).
        """

    def job(self, job_id: str) -> JobRecord:
        """Return a job. Raises JobNotFound."""

    def jobs(self, which: JobFilter, *, before_id: str | None, limit: int) -> list[JobRecord]:
        """Return jobs older than ``before_id``, newest first, without ``result`` and ``checkpoint``."""

    def job_lines(self, job_id: str, *, after: int, limit: int) -> list[JobLine]:
        """Return the lines of a job's log above a number, ascending."""

    def pending_jobs(self) -> dict[str, int]:
        """Return how many jobs are queued and how many are running."""

    def prune_jobs(self, *, before_ms: int, limit: int = 1_000) -> int:
        """Delete up to ``limit`` jobs that ended before ``before_ms``, with their logs, the oldest first."""

    def put_schedule(self, schedule: ScheduleRecord) -> ScheduleRecord:
        """Create or replace a schedule; return it with the times of creation and last run. Raises TableNotFound."""

    def schedules(self, table_id: str) -> list[ScheduleRecord]:
        """Return the schedules of a table, by name."""

    def drop_schedule(self, table_id: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        """Delete a schedule. Raises ScheduleNotFound."""

    def due_schedules(self, *, now_ms: int, limit: int) -> list[DueSchedule]:
        """Return enabled schedules of live tables that are due, the longest due first."""

    def fire_schedule(self, seen: ScheduleRecord, job: JobRecord, *, next_ms: int, now_ms: int) -> AddedJob | None:
        """Enqueue the job of a due schedule (unique) and set its next time.

        Returns None if another process did, or the schedule changed.
        """

    def put_policy(self, policy: PolicyRecord) -> None:
        """Create or replace a table's policy; it is due for a check. Raises TableNotFound."""

    def policy(self, table_id: str) -> PolicyRecord:
        """Return a table's policy. Raises PolicyNotFound."""

    def drop_policy(self, table_id: str, *, remember: StoredAnswer | None = None) -> None:
        """Delete a table's policy. Raises PolicyNotFound."""

    def due_policies(self, *, checked_before_ms: int, limit: int) -> list[PolicyRecord]:
        """Return policies of live tables whose last check was before ``checked_before_ms``, the oldest check first."""

    def begin_check(self, seen: PolicyRecord, *, now_ms: int) -> bool:
        """Reserve the check of a policy; False if another process did, or the policy changed."""

    def end_check(
        self, table_id: str, *, began_ms: int, findings: str, jobs: Mapping[str, JobRecord]
    ) -> dict[str, AddedJob]:
        """Enqueue the jobs (unique) that rules request, and store the findings.

        Does nothing and returns nothing if the policy changed since the check began.
        """

    def begin_auto(self, record: AutoRecord, *, at_most: int) -> bool:
        """Add an action, unless the table has one that has not ended; return whether it was added.

        One whose lease has expired counts too: end it first. Of ended ones, the latest ``at_most`` stay. Raises
        TableNotFound.
        """

    def put_auto(self, record: AutoRecord, *, runner: str) -> bool:
        """Replace an action that has not ended and that ``runner`` does; return whether it did."""

    def auto_actions(self, table_id: str, *, limit: int) -> list[AutoRecord]:
        """Return the latest actions of a table, the latest first."""


class ListingCatalog(Protocol):
    """Lists and searches over all namespaces. ``within``: only where the caller may read; None: everywhere."""

    def listed_tables(
        self,
        which: TableFilter,
        *,
        order: TableOrder = "name",
        descending: bool = False,
        offset: int = 0,
        limit: int,
    ) -> list[ListedTable]:
        """Return up to ``limit`` live tables; those that are equal in ``order`` are sorted by name."""

    def count_tables(self, which: TableFilter) -> int:
        """Return how many live tables there are."""

    def table_versions(self) -> list[TableVersion]:
        """Return all live tables, in no order."""

    def find_tags(self, text: str, within: Scopes | None, *, now_ms: int, limit: int) -> list[FoundTag]:
        """Return up to ``limit`` tags whose names contain a text, without regard to case, by table and name."""

    def has_upkeep(self, within: Scopes | None) -> bool:
        """Return whether a live table has a policy or an active schedule."""

    def dropped_use(self, *, before_ms: int) -> DroppedUse:
        """Return what the tables use that were dropped before that or cannot be undropped any more."""


class Catalog(AccessCatalog, JobCatalog, ListingCatalog, UsageCatalog, Protocol):
    """The catalog. All methods are thread-safe.

    ``is_instant``: :meth:`current` waits for no network and no lock, so that an event loop may call it.
    """

    is_instant: bool

    def listen_to(self, listener: CatalogListener) -> None:
        """Report database calls to a listener. Called once, before the catalog is used."""

    @property
    def connections(self) -> tuple[int, int]:
        """Return how many connections of the pool are in use, and the limit."""

    def ping(self) -> None:
        """Return if the database answers; otherwise raise :class:`Unavailable`."""

    def check_write(self) -> None:
        """Return if the database accepts a write, which changes nothing; otherwise raise :class:`Unavailable`."""

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Create a namespace. Raises AlreadyExists, QuotaExceeded."""

    def change_namespace(
        self, before: NamespaceInfo, after: NamespaceInfo, *, remember: StoredAnswer | None = None
    ) -> bool:
        """Replace the properties of a namespace if they still equal ``before``; False if they do not."""

    def namespace_use(self, name: str) -> NamespaceUse:
        """Return the usage and the quotas of a namespace. Raises NamespaceNotFound."""

    def check_growth(self, table_id: str, *, blocks: int, size_bytes: int) -> None:
        """Raise QuotaExceeded if so much growth of a table would exceed a quota now; reserves nothing."""

    def check_table_quota(self, namespace: str) -> None:
        """Raise NamespaceNotFound, or QuotaExceeded if one more table would exceed a quota now."""

    def namespaces(self) -> list[NamespaceInfo]:
        """Return all namespaces, by name."""

    def namespace(self, name: str) -> NamespaceInfo:
        """Return a namespace. Raises NamespaceNotFound."""

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Drop a namespace. Raises NamespaceNotFound, NamespaceNotEmpty."""

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        """Create a table. Raises NamespaceNotFound, AlreadyExists, QuotaExceeded."""

    def tables(self, namespace: str) -> list[str]:
        """Return the names of the live tables, sorted. Raises NamespaceNotFound."""

    def some_names(self, namespace: str | None, *, limit: int) -> list[str]:
        """Return at most ``limit`` names of a namespace's tables, or of namespaces (None). Empty if there is none."""

    def table(self, namespace: str, name: str) -> TableRecord:
        """Return a table. Raises NamespaceNotFound, TableNotFound."""

    def tables_at_once(self, names: Sequence[tuple[str, str]]) -> list[TableRecord]:
        """Return tables, by namespace and name, as they all were at one moment after the call began.

        Raises NamespaceNotFound, TableNotFound.
        """

    def current(self, namespace: str, name: str) -> TableRecord | None:
        """Return a table as :meth:`table` does, faster and equally fresh: it sees every commit acknowledged before.

        Returns None if the table does not exist or cannot be read this way now; then call :meth:`table`.
        """

    def table_by_id(self, table_id: str) -> TableRecord:
        """Return a live table. Raises TableNotFound, also for a dropped one."""

    def tables_by_id(self, table_ids: Sequence[str]) -> dict[str, TableRecord]:
        """Return those of the tables that are live, by id, as they all were at one moment after the call began."""

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
        """Drop a table with its branches: it leaves the listing and frees its name. Nothing in storage changes.

        ``purge``: it cannot be undropped. ``base_snapshot_id``: drop it only if that is its current snapshot. Raises
        NamespaceNotFound, TableNotFound, CommitConflict.
        """

    def rename_table(
        self, table: TableRecord, namespace: str, name: str, *, remember: StoredAnswer | None = None
    ) -> None:
        """Give a table that name, if it still has the name of ``table``. Its snapshots are of no concern.

        Raises NamespaceNotFound, TableNotFound (it was dropped or renamed), AlreadyExists (the name is taken),
        QuotaExceeded.
        """

    def create_view(self, view: ViewInfo, *, remember: StoredAnswer | None = None) -> None:
        """Add a view. Raises NamespaceNotFound, AlreadyExists (a table or a view has the name)."""

    def views(self, namespace: str) -> list[str]:
        """Return the names of the views of a namespace, sorted. Raises NamespaceNotFound."""

    def view(self, namespace: str, name: str) -> ViewInfo:
        """Return a view. Raises NamespaceNotFound, ViewNotFound."""

    def replace_view(self, before: ViewInfo, after: ViewInfo, *, remember: StoredAnswer | None = None) -> bool:
        """Give a view the definition of ``after``; False if it is no longer as ``before``."""

    def rename_view(self, view: ViewInfo, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> bool:
        """Give a view that name; False if it is no longer as ``view``.

        Raises NamespaceNotFound, AlreadyExists (a table or a view has the name).
        """

    def drop_view(self, view: ViewInfo, *, remember: StoredAnswer | None = None) -> None:
        """Delete a view. Raises ViewNotFound."""

    def dropped_tables(self, namespace: str, *, earlier: bool = True) -> list[DroppedTable]:
        """Return the tables that can be undropped, latest drop first; ``earlier``: also of dropped namespaces of that
        name.

        Raises NamespaceNotFound.
        """

    def undrop_table(self, table_id: str, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        """Restore a dropped table under that name.

        Raises NamespaceNotFound, TableNotFound (not dropped, or doomed), AlreadyExists (the name is taken),
        QuotaExceeded.
        """

    def dropped_before(self, before_ms: int) -> list[DroppedTable]:
        """Return all tables that were dropped before that, and all doomed ones; oldest drop first."""

    def schedule_removal(self, table_id: str, *, dropped_before_ms: int, now_ms: int) -> bool:
        """Mark a dropped table so that it cannot be undropped and its files may be deleted.

        Returns False if it is not dropped (any more) or was dropped later than that.
        """

    def forget_table(self, table_id: str) -> bool:
        """Delete all rows of a doomed table, once its files are deleted; False if it is not doomed."""

    def advance(
        self,
        table_id: str,
        entry: HistoryEntry,
        *,
        branch_of: str | None = None,
        required: HistoryEntry | None = None,
        guard: CommitGuard | None = None,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
        unchanged: Mapping[str, int] | None = None,
        refs: RefChanges | None = None,
    ) -> bool:
        """Make ``entry`` current if the table is still at version ``entry.seq - 1``.

        Returns False if another commit came first or the table was dropped. ``unchanged``: the same if one of these
        tables, by id, has another version, or was dropped. ``branch_of``: the table of a branch. ``required``: only if
        this snapshot is still in the history; otherwise raises SnapshotExpired. ``guard``: only if no clean-up deleted
        meanwhile what the commit uses; otherwise raises Unavailable. Raises QuotaExceeded if the table would exceed a
        quota, whatever others commit at the same time. ``refs``: what happens to other branches and tags of the table;
        returns False, or raises CommitConflict, if one of them is no longer as it was.
        """

    def advance_all(
        self,
        swaps: Sequence[PointerSwap],
        *,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
        unchanged: Mapping[str, int] | None = None,
        refs: Sequence[RefChanges] = (),
    ) -> bool:
        """Make several snapshots current, of a table each, or none of them. Returns and raises as :meth:`advance`."""

    def branches(self, table_id: str) -> list[BranchRecord]:
        """Return the branches of a table other than ``main``, by name."""

    def create_branch(
        self,
        branch: BranchRecord,
        source: HistoryEntry,
        *,
        replace: bool,
        now_ms: int,
        remember: StoredAnswer | None = None,
    ) -> None:
        """Create a branch whose current snapshot is ``source``, of the table or of one of its branches.

        ``replace``: drop the branch of that name first. Raises TableNotFound, SnapshotExpired (the snapshot is not in
        the history), AlreadyExists (a branch or a tag has the name).
        """

    def fork_seq(self, table_id: str) -> int | None:
        """Return the number of the snapshot that a branch's own history begins with; None: not a branch."""

    def has_commit(self, table_id: str, snapshot_id: str, operation: str) -> bool:
        """Return whether the history of a table or branch has a snapshot with that id, or with that operation."""

    def drop_branch(self, record: TableRecord, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Drop a branch; its snapshots stay until :meth:`forget_branch`. Raises BranchNotFound."""

    def fast_forward(
        self, target: TableRecord, source: TableRecord, *, now_ms: int, remember: StoredAnswer | None = None
    ) -> bool:
        """Make the source's current snapshot that of the target, with the snapshots in between.

        Both are branches of one table, or the table. Returns False if one of them has another version, or was dropped.
        Raises CommitConflict if the source's history does not have the target's current snapshot; QuotaExceeded.
        """

    def snapshot_ending(self, table_id: str, ending: str) -> HistoryEntry | None:
        """Return the snapshot of a table or of one of its branches whose id ends like that.

        None if there is none, or more than one: the branches count before the table.
        """

    def heads(self, table_id: str) -> list[str]:
        """Return the ids of a table and of its branches, also of those that were dropped."""

    def dropped_branches(self, table_id: str, *, before_ms: int) -> list[str]:
        """Return the ids of a table's branches that were dropped before that."""

    def forget_branch(self, table_id: str, *, now_ms: int) -> bool:
        """Delete all rows of a dropped branch; False if it is not dropped, or a tag or a lease names a snapshot."""

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        """Return snapshots below ``before_seq``, newest first; of a branch, also those before it was created."""

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        """Return a snapshot of a table or of one of its branches.

        Raises SnapshotNotFound, or SnapshotExpired if it must have expired.
        """

    def numbered(self, table_id: str, number: int) -> HistoryEntry:
        """Return the snapshot with that ``seq``. Raises SnapshotNotFound, or SnapshotExpired if it has expired."""

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        """Return the snapshot that was current at that time.

        Raises SnapshotNotFound for a time before the first one, SnapshotExpired if that snapshot has expired.
        """

    def tags(self, table_id: str, *, now_ms: int) -> list[TagRecord]:
        """Return the tags of a table and its branches that have not expired, by name."""

    def tag(self, table_id: str, name: str, *, now_ms: int) -> TagRecord:
        """Return a tag. Raises TagNotFound, also for an expired tag."""

    def tagged(self, table_id: str, name: str, *, now_ms: int) -> HistoryEntry:
        """Return the snapshot of a tag. Raises TagNotFound."""

    def put_tag(self, tag: TagRecord, *, move: bool, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Create a tag, or ``move`` the one of that name.

        Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), AlreadyExists; TagNotFound if there
        is none to move.
        """

    def drop_tag(self, table_id: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        """Delete a tag. Raises TagNotFound."""

    def expire_snapshots(self, table_id: str, seqs: Sequence[int], *, now_ms: int) -> list[int]:
        """Remove snapshots from a table's history; return the ``seq`` of those that were removed, ascending.

        The current snapshot stays, and so does one that a valid tag names or a lease protects. A removed snapshot
        cannot be tagged, leased or rolled back to. Expired tags and leases are deleted. Works for dropped tables too.
        """

    def add_lease(self, lease: LeaseRecord) -> None:
        """Add a lease. Raises TableNotFound, SnapshotExpired (the snapshot is not in the history), QuotaExceeded."""

    def renew_lease(self, table_id: str, lease_id: str, *, expires_at_ms: int, now_ms: int) -> None:
        """Extend a lease. Raises LeaseNotFound, also for an expired lease."""

    def release_lease(self, table_id: str, lease_id: str) -> None:
        """Delete a lease; a missing one is no error."""

    def leases(self, table_id: str, *, now_ms: int) -> list[LeaseRecord]:
        """Return the leases of a table and its branches that have not expired, oldest first."""

    def whole_history(self, table_id: str) -> list[HistoryEntry]:
        """Return the whole history, newest first, also of a dropped table. Empty if there is no such table."""

    def tables_with_files(self) -> list[str]:
        """Return the ids of all tables that are live or can be undropped."""

    def tables_elsewhere(self, warehouse: str) -> list[str]:
        """Return the locations of the tables that are not in this warehouse (without a trailing slash), in order.

        Dropped tables count until their files are deleted.
        """

    def guard(self, table_id: str, files: Iterable[str], *, since_ms: int) -> CommitGuard:
        """Return the guard that a commit passes to :meth:`advance`. Call this before looking at the commit's files.

        Raises DeletionPending if a clean-up has marked one of the files for deletion.
        """

    def guards(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, CommitGuard]:
        """Return guards of commits to several tables, by table, as :meth:`guard` does without files."""

    def mark_for_deletion(self, table_id: str, objects: Sequence[SweepMark], *, watermark_ms: int) -> None:
        """Mark objects for deletion, so that no commit uses them from now on.

        ``watermark_ms``: the latest time in the names of those objects that are not blocks. Raises TableNotFound.
        """

    def deletion_marks(self, table_id: str, *, after: str, limit: int) -> list[SweepMark]:
        """Return marked objects after that location, in the database's order of locations."""

    def unmark(self, table_id: str, locations: Iterable[str]) -> None:
        """Remove the marks of objects that are deleted or turned out to be in use."""

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        """Return what readers reported about a table, by question."""

    def add_feedback(self, record: FeedbackRecord, bounds: FeedbackBounds) -> int:
        """Add blocks to those known for the same question; return how many were new.

        Above the limits the questions that were not reported for longest are deleted, and from a question that alone is
        too large the blocks that were reported first. Raises TableNotFound.
        """

    def clear_feedback(self, table_id: str) -> int:
        """Delete all that was reported about a table; return how many facts."""

    def add_recorded(self, table_id: str, filters: Sequence[RecordedFilter], bounds: RecordedBounds) -> None:
        """Count filters of queries. Above the limits those unused for longest are deleted."""

    def recorded(self, table_id: str, *, limit: int) -> list[RecordedFilter]:
        """Return the recorded filters of a table, the latest first."""

    def clear_recorded(self, table_id: str) -> int:
        """Delete the recorded filters of a table; return how many there were."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        """Return the answer stored under the key; None without one."""

    def keep_answer(self, answer: StoredAnswer) -> None:
        """Store the answer of a request that changed nothing.

        Raises IdempotencyMismatch if the key is taken.
        """

    def forget_answers(self, *, before_ms: int, limit: int = 1000) -> int:
        """Delete up to ``limit`` answers that were stored before that, the oldest first; return how many."""

    def secret(self, name: str, fresh: bytes) -> bytes:
        """Return the secret of that name; the first caller sets it to ``fresh``. All replicas get the same one."""

    def close(self) -> None:
        """Release connections."""


def current_table(catalog: Catalog, namespace: str, name: str) -> TableRecord:
    """A table as it stands; raises NamespaceNotFound, TableNotFound. Waits for the catalog."""
    return catalog.current(namespace, name) or catalog.table(namespace, name)
