"""The values that the catalog's methods take and return, and its "not found" errors.

Times are Unix milliseconds. JSON members of jobs (``arguments``, ``progress``, ``checkpoint``, ``result``, ``error``,
``policy``, ``findings``) are text.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from lamella.service.catalog.quotas import Quotas
from lamella.snapshot.errors import (
    BranchNotFound,
    InvalidRequest,
    JobNotFound,
    NamespaceNotFound,
    TableNotFound,
    ViewNotFound,
)
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import (
    JobLine,
    JobOrigin,
    JobOutcome,
    JobState,
    ViewDefinition,
    ViewInfo,
)

#: Between the names of a table and of its branch; no other name has it.
BRANCH_SIGN: Final = "@"
#: The branch that every table has; its row has the name of the table alone.
MAIN: Final = "main"


#: Characters of the name of a table, and of ``table@branch``.
MAX_NAME_LENGTH: Final = 128


def branch_name(table: str, branch: str) -> str:
    """Return the name of a branch's row. Raises InvalidRequest if it is too long."""
    name = table if branch == MAIN else f"{table}{BRANCH_SIGN}{branch}"
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"the names of a table and of its branch have at most {MAX_NAME_LENGTH - 1} characters together: {name}"
        )
    return name


def main_name(name: str) -> str:
    """Return the name of the table that ``table@branch`` is a branch of, or the name itself."""
    return name.partition(BRANCH_SIGN)[0]


def no_namespace(name: str) -> NamespaceNotFound:
    """Return the error of a missing namespace."""
    return NamespaceNotFound(f"there is no namespace {name!r}", namespace=name)


def no_table(namespace: str, name: str) -> TableNotFound:
    """Return the error of a missing table in an existing namespace."""
    return TableNotFound(f"there is no table {namespace}.{name}", namespace=namespace, table=name)


def no_branch(namespace: str, name: str) -> BranchNotFound:
    """Return the error of a missing branch of an existing table; ``name`` is ``table@branch``."""
    table, _, branch = name.partition(BRANCH_SIGN)
    return BranchNotFound(
        f"the table {namespace}.{table} has no branch {branch!r}", namespace=namespace, table=table, branch=branch
    )


def no_view(namespace: str, name: str) -> ViewNotFound:
    """Return the error of a missing view in an existing namespace."""
    return ViewNotFound(f"there is no view {namespace}.{name}", namespace=namespace, view=name)


def no_job(job_id: str) -> JobNotFound:
    """Return the error of a missing job."""
    return JobNotFound(f"there is no job {job_id!r}", job_id=job_id)


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key; the fields mean the same as in :class:`~lamella.snapshot.wire.KeyInfo`.

    ``sha256``, ``old_sha256``: hashes of its text and of the text before the last rotation, hexadecimal.
    """

    name: str
    sha256: str
    created_ms: int
    created_by: str
    old_sha256: str | None = None
    old_until_ms: int | None = None
    expires_ms: int | None = None
    rotated_ms: int | None = None
    used_ms: int | None = None
    requests_per_s: float | None = None

    @property
    def principal(self) -> str:
        """Return the principal of requests with this key."""
        return f"key:{self.name}"


class PruneRateRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to a table's sums of the period that began at ``bucket_ms``; see
    :class:`~lamella.snapshot.wire.PruneRate`.
    """

    table_id: str
    bucket_ms: int
    prunes: int
    considered_blocks: int
    kept_blocks: int
    bytes_total: float
    kept_bytes: float
    ms: float


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a table. ``seq`` counts from 1 and is the table's ``version`` at that snapshot.

    Expired snapshots leave gaps. ``until_ms``: the time of the next snapshot, if that one is in a gap. ``table_id``: of
    the table or branch in whose history it is stored; empty before that. ``since_ms``: when it became the current
    one there, which is after its own time if a fast-forward brought it.
    """

    seq: int
    pointer: SnapshotPointer
    prev_snapshot_id: str | None
    operation: str
    row_count: int
    block_count: int
    segment_count: int
    file_size_bytes: int
    until_ms: int | None = None
    table_id: str = ""
    since_ms: int = 0


class TagRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a snapshot of a table. It expires at ``expires_at_ms`` (None: never)."""

    table_id: str
    name: str
    seq: int
    snapshot_id: str
    timestamp_ms: int
    created_at_ms: int
    expires_at_ms: int | None = None


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A live table or branch and its current snapshot; ``version`` is the ``seq`` of that snapshot.

    A branch has an id, a history and jobs of its own; its ``name`` is ``table@branch``. ``branch_of``: the id of its
    table, which has all files.
    """

    table_id: str
    namespace: str
    name: str
    location: str
    version: int
    pointer: SnapshotPointer
    created_at_ms: int
    branch_of: str | None = None

    @property
    def main_id(self) -> str:
        """Return the id of the table: that of its branch ``main``."""
        return self.branch_of or self.table_id


def branch_record(main: TableRecord, branch: str, branch_id: str, source: HistoryEntry, *, now_ms: int) -> TableRecord:
    """Return the record of a new branch of a table at a snapshot. Raises InvalidRequest: see :func:`branch_name`."""
    return TableRecord(
        table_id=branch_id,
        namespace=main.namespace,
        name=branch_name(main.name, branch),
        location=main.location,
        version=source.seq,
        pointer=source.pointer,
        created_at_ms=now_ms,
        branch_of=main.table_id,
    )


class BranchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A branch: ``record`` with its last snapshot; ``fork_seq``: the number of the snapshot that it was created from.

    ``max_idle_ms``: a clean-up drops it when its last snapshot is older (None: never).
    """

    record: TableRecord
    fork_seq: int
    max_idle_ms: int | None = None

    @property
    def name(self) -> str:
        """Return its name without that of the table."""
        return self.record.name.partition(BRANCH_SIGN)[2]


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A dropped table. ``removal_scheduled``: it cannot be undropped any more, and its files may be deleted.

    ``is_purged``: because its drop said so, and not because its grace period is over.
    """

    record: TableRecord
    dropped_at_ms: int
    removal_scheduled: bool
    is_purged: bool


#: Where somebody may read: namespaces with a table's name, or with None for all of their tables.
Scopes = tuple[tuple[str, str | None], ...]

#: How tables are sorted: by namespace and name, or by a figure of the current snapshot.
TableOrder = Literal["name", "rows", "size", "blocks", "commit"]


class TableFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which live tables are listed. ``within``: None for everywhere. ``name_part``, ``path_part``, ``location_part``:
    what the name, ``namespace.name`` and the location contain, without regard to case; empty: any.
    """

    within: Scopes | None = None
    namespace: str | None = None
    name_part: str = ""
    path_part: str = ""
    location_part: str = ""


class ListedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A live table with the figures of its current snapshot."""

    record: TableRecord
    row_count: int
    block_count: int
    file_size_bytes: int


class TableVersion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A live table; the ``seq`` and the blocks of its current snapshot. Not seen by the garbage collector: there are
    many of these.
    """

    table_id: str
    namespace: str
    name: str
    version: int
    block_count: int


class FoundTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and the snapshot that it names."""

    namespace: str
    table: str
    name: str
    snapshot_id: str
    timestamp_ms: int


class DroppedUse(msgspec.Struct, frozen=True, kw_only=True):
    """Dropped tables, and the bytes of the blocks of their last snapshots."""

    tables: int
    size_bytes: int


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A reader's lease on a snapshot of a table. It protects the snapshot until ``expires_at_ms``."""

    lease_id: str
    table_id: str
    seq: int
    snapshot_id: str
    owner: str
    created_at_ms: int
    expires_at_ms: int


class SweepMark(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a clean-up decided to delete. ``kind``: one of :data:`lamella.snapshot.vacuum.mark.Kind`."""

    location: str
    table_id: str
    kind: str
    size_bytes: int
    marked_at_ms: int


class CommitGuard(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit knew of clean-ups before it looked at its files or wrote anything.

    ``since_ms``: every object that it writes has a later time in its name. ``epochs``: see ``sweeps`` in the catalog.
    ``adds_files``: it adds blocks, which a clean-up may have been deleting.
    """

    since_ms: int
    epochs: tuple[int, int]
    adds_files: bool


class PointerSwap(msgspec.Struct, frozen=True, kw_only=True):
    """A new current snapshot of a table that is still at version ``entry.seq - 1``.

    ``branch_of``: the table, if it is a branch. ``required``: only if this snapshot is still in the history. ``guard``:
    only if no clean-up deleted meanwhile what the commit uses.
    """

    table_id: str
    entry: HistoryEntry
    branch_of: str | None = None
    required: HistoryEntry | None = None
    guard: CommitGuard | None = None


class NewBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch with a first snapshot of its own, ``entry``, which follows ``source``. ``guard``: as of a swap."""

    branch: BranchRecord
    source: HistoryEntry
    entry: HistoryEntry
    guard: CommitGuard


class RefChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the other branches and the tags of a table together with a commit to it.

    ``dropped``: ids of branches. ``dropped_tags``: only those that are still at their snapshot.
    """

    swaps: tuple[PointerSwap, ...] = ()
    created: tuple[NewBranch, ...] = ()
    dropped: tuple[str, ...] = ()
    tags: tuple[TagRecord, ...] = ()
    dropped_tags: tuple[TagRecord, ...] = ()
    now_ms: int = 0


class FeedbackRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks in which readers found no row for one filter of a table.

    ``question``: the filter's digest, hexadecimal. ``filter_json``: the filter as it was last reported, in terms of the
    schema ``schema_id``. ``blocks``: block keys, 16 bytes each, those reported last at the end.
    """

    table_id: str
    question: str
    filter_json: str
    schema_id: int
    blocks: bytes
    block_count: int
    size_bytes: int
    used_at_ms: int


class FeedbackBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of feedback for a table: pairs of a filter and a block, and their bytes."""

    max_facts: int
    max_bytes: int


class RecordedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter that queries of a table used, with the sums over all its uses.

    ``tree``: JSON, depending on ``mode``: without constants ("shape"), with keyed hashes of them ("hashed"), or
    complete ("full"). ``digest`` identifies it, ``text`` is readable. ``considered``, ``kept``: blocks; ``kept_bytes``:
    their bytes.
    """

    table_id: str
    digest: str
    mode: str
    tree: str
    text: str
    time_zone: str
    times: int
    considered: int
    kept: int
    kept_bytes: int
    size_bytes: int
    first_ms: int
    last_ms: int


class RecordedBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many filters of a table are stored, and how many bytes of them."""

    max_filters: int
    max_bytes: int


class NamespaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the current snapshots of a namespace's tables use, and the limits."""

    quotas: Quotas
    tables: int
    blocks: int
    bytes: int


class IcebergView(msgspec.Struct, frozen=True, kw_only=True):
    """A view as Iceberg clients left it: its metadata, and the file that has it."""

    metadata_location: str
    metadata: dict[str, Any]


class StoredView(ViewDefinition, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The definition of a view that an Iceberg client has made or changed.

    ``iceberg``: None if it was replaced by Spark later. ``version_offset``: what Iceberg's number of a version that
    Spark made is more than ``version`` of the view, so that no number comes twice.
    """

    iceberg: IcebergView | None = None
    version_offset: int = 0


def plain_definition(definition: ViewDefinition) -> ViewDefinition:
    """Return what Lamella's own interfaces show of a definition."""
    if not isinstance(definition, StoredView):
        return definition
    return ViewDefinition(**{name: getattr(definition, name) for name in ViewDefinition.__struct_fields__})


def plain_view(view: ViewInfo) -> ViewInfo:
    """Return what Lamella's own interfaces show of a view."""
    return msgspec.structs.replace(view, definition=plain_definition(view.definition))


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer stored under its ``Idempotency-Key``. ``scope`` is the request's method and path."""

    key: str
    scope: str
    request_sha256: str
    status: int
    body: bytes
    created_at_ms: int


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job; the fields mean the same as in :class:`~lamella.snapshot.wire.JobInfo`.

    ``namespace``, ``table_name``: as requested. ``lease_token``: of the claim that has the job, or ended its last
    attempt. ``twin``: equal for jobs that do the same work; None if the job stands for no other. ``log_lines``: the
    number of the last line in its log.
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
    """Which jobs are listed. None: any. ``table``: namespace and name, as requested. ``within``: only jobs of tables
    that are in one of these places now: a namespace with a table's name, or with None for all of its tables.
    ``finished_since_ms``: only jobs that ended then or later.
    """

    states: tuple[JobState, ...] | None = None
    kinds: tuple[str, ...] | None = None
    table: tuple[str, str] | None = None
    within: Scopes | None = None
    finished_since_ms: int | None = None


class ClaimResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim: the job (None: there is none), its table's current name, and jobs changed on the way:
    those whose lease had run out, and those whose table was dropped.
    """

    job: JobRecord | None = None
    table: tuple[str, str] | None = None
    lost: tuple[JobRecord, ...] = ()
    orphaned: tuple[JobRecord, ...] = ()


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker reports about its job. None keeps the stored value. ``max_lines``: limit of the log's lines."""

    progress: str | None = None
    checkpoint: str | None = None
    lines: tuple[JobLine, ...] = ()
    max_lines: int = 1_000


class JobEnding(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended. ``retry_at_ms``: when a failed job runs again, if an attempt is left."""

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
    """A schedule that is due, and the name of its table."""

    schedule: ScheduleRecord
    namespace: str
    table_name: str


class RuleFired(msgspec.Struct, frozen=True, kw_only=True):
    """When a rule of a policy last requested a job, and which one."""

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


class AutoRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An action of automatic upkeep. ``action``, ``filters``: as JSON. ``lease_expires_ms`` None: it has ended."""

    action_id: str
    table_id: str
    started_ms: int
    runner: str
    lease_expires_ms: int | None
    action: str
    filters: str


class AddedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that does the requested work; ``is_new`` False: an equal job that was pending."""

    job_id: str
    is_new: bool
