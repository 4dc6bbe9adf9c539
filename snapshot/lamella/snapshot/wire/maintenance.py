"""Vacuum, leases, verification, and the health of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from lamella.snapshot.wire.limits import Moment, Token, Word


class VacuumRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../vacuum`` and ``POST /v1/vacuum-dropped``: one part of a clean-up.

    ``execute``: False only reports what would be done. ``older_than``: expire snapshots that were superseded at least
    this long ago (``7d``, ``12h``), in place of the table's retention; its tags, leases and ``min_snapshots`` still
    apply. ``include_external_blocks``: also delete files outside of the table's folder that were blocks of the
    snapshots that expire now and are in no remaining snapshot of any table. ``max_objects``: maximum number of objects
    to check. ``page_token``: continues where the previous answer ended.
    """

    execute: bool = False
    older_than: Moment | None = None
    include_external_blocks: bool = False
    max_objects: int | None = None
    page_token: Token | None = None


class SnapshotDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, whether it expires, and why or why not. ``branch``: in whose history it is; None: ``main``."""

    snapshot_id: str
    timestamp_ms: int
    expires: bool
    reason: str
    branch: str | None = None


class ObjectCount(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one kind, and their bytes."""

    objects: int = 0
    size_bytes: int = 0


class LeftObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was not deleted although nothing needs it, and why."""

    location: str
    reason: str


class VacuumAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a clean-up, or all of it.

    ``snapshots``: only in the first part. ``garbage``: by kind, what was deleted, or without ``executed`` what would
    be. ``live``, ``young`` (created since ``before_ms``) and ``unknown`` (not a name of Lamella's) objects are kept;
    ``unknowns`` names some. ``left``: what could not be deleted, or must not be; it is retried next time if that may
    help. ``tables``: ids of dropped tables that were, or would be, purged. ``next_page_token``: None at the end.
    """

    executed: bool
    before_ms: int
    snapshots: tuple[SnapshotDecision, ...] = ()
    garbage: dict[str, ObjectCount] = {}
    live: ObjectCount = ObjectCount()
    young: ObjectCount = ObjectCount()
    unknown: ObjectCount = ObjectCount()
    unknowns: tuple[str, ...] = ()
    left: tuple[LeftObject, ...] = ()
    tables: tuple[str, ...] = ()
    next_page_token: str | None = None

    @property
    def deleted(self) -> ObjectCount:
        """Returns the total of ``garbage``."""
        return counted(self.garbage.values())


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../leases``: leases a snapshot (None: the current one) for ``ttl_s`` seconds from now."""

    ttl_s: int
    owner: Word
    snapshot_id: Word | None = None


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../leases/{lease_id}``: extends a lease to ``ttl_s`` seconds from now."""

    ttl_s: int


class LeaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lease; it ends by itself at ``expires_at_ms``."""

    lease_id: str
    snapshot_id: str
    owner: str
    created_at_ms: int
    expires_at_ms: int


class LeaseList(msgspec.Struct, frozen=True, kw_only=True):
    """The active leases of a table, oldest first."""

    leases: tuple[LeaseInfo, ...]


def counted(counts: Iterable[ObjectCount]) -> ObjectCount:
    """Returns the sum of counts."""
    found = list(counts)
    return ObjectCount(
        objects=sum(count.objects for count in found), size_bytes=sum(count.size_bytes for count in found)
    )


def merged_vacuum(parts: Sequence[VacuumAnswer]) -> VacuumAnswer:
    """Merges the parts of one clean-up into one answer."""
    first, last = parts[0], parts[-1]
    garbage: dict[str, ObjectCount] = {}
    for part in parts:
        for kind, count in part.garbage.items():
            garbage[kind] = counted((garbage.get(kind, ObjectCount()), count))
    return VacuumAnswer(
        executed=first.executed,
        before_ms=first.before_ms,
        snapshots=first.snapshots,
        garbage=garbage,
        live=counted([part.live for part in parts]),
        young=counted([part.young for part in parts]),
        unknown=counted([part.unknown for part in parts]),
        unknowns=tuple(name for part in parts for name in part.unknowns),
        left=tuple(one for part in parts for one in part.left),
        tables=tuple(dict.fromkeys(table for part in parts for table in part.tables)),
        next_page_token=last.next_page_token,
    )


Severity = Literal["error", "warning", "info"]


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../verify``.

    At most one of ``snapshot_id`` and ``timestamp``, as for a prune. ``files``: check the blocks' files (their
    existence, their footers) and not only what Lamella wrote. ``history``: number of snapshots, newest first, that are
    compared with the catalog. ``pages``: every segment should have a page sidecar; None: as the service builds them.

    ``deep``: read the values of some blocks too: ``blocks`` of them, or the share ``sample``, selected by ``seed``; for
    each, ``filters`` random filters are answered from statistics and from its rows. ``repair``: rewrite sidecars and
    page sidecars that are damaged or missing.

    An answer is returned after about ``max_ms``; ``page_token`` continues it.
    """

    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    files: bool = True
    history: int = 100
    pages: bool | None = None
    deep: bool = False
    sample: float | None = None
    blocks: int | None = None
    seed: int = 0
    filters: int = 20
    repair: bool = False
    max_ms: float | None = None
    page_token: Token | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One problem.

    ``code`` names the check (see ``docs/verify.md``), ``object`` the location that it is about, ``advice`` what to do.
    ``repaired``: it has been fixed; ``not_repaired``: why it could not be, if that was requested.
    """

    code: str
    severity: Severity
    object: str
    message: str
    advice: str
    segment_id: str | None = None
    block: str | None = None
    column: str | None = None
    repaired: bool = False
    not_repaired: str | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """How much was checked: objects that Lamella wrote, blocks' entries, files, values and filters."""

    snapshots: int = 0
    groups: int = 0
    segments: int = 0
    blocks: int = 0
    files: int = 0
    page_sidecars: int = 0
    blocks_read: int = 0
    values: int = 0
    filters: int = 0
    filters_left_out: int = 0
    index_parts: int = 0
    index_filters: int = 0

    def plus(self, other: Checked) -> Checked:
        """Returns the sum of both."""
        return Checked(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a part of a verification.

    ``findings`` contain a limited number of each code per object; ``counts`` has all of them by code. ``steps_done`` of
    ``steps`` are done; the next part begins at ``next_page_token``, None: this was the last part.
    """

    snapshot_id: str
    steps: int
    steps_done: int
    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = {}
    checked: Checked = Checked()
    next_page_token: str | None = None

    @property
    def is_clean(self) -> bool:
        """Returns whether there are no findings, or only repaired ones."""
        return all(finding.repaired or finding.severity == "info" for finding in self.findings)


def merged_verification(parts: Sequence[VerifyAnswer]) -> VerifyAnswer:
    """Merges the parts of one verification into one answer."""
    counts: dict[str, int] = {}
    checked = Checked()
    for part in parts:
        checked = checked.plus(part.checked)
        for code, count in part.counts.items():
            counts[code] = counts.get(code, 0) + count
    return msgspec.structs.replace(
        parts[-1], findings=tuple(each for part in parts for each in part.findings), counts=counts, checked=checked
    )


#: Codes of what should be done for a table.
HealthCode = Literal[
    "small_blocks",
    "deleted_rows",
    "depth",
    "depth_growing",
    "not_indexed",
    "retention",
    "no_cluster_key",
]


class HealthRemedy(msgspec.Struct, frozen=True, kw_only=True):
    """The job that helps: its kind and arguments, as in :class:`~lamella.snapshot.wire.SubmitJob`."""

    kind: str
    arguments: dict[str, Any] = {}


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should be done for a table. ``text``: one sentence with the values.

    ``remedy`` None: no job does it, or its kind is not installed here.
    """

    code: HealthCode
    severity: Literal["warn", "info"]
    text: str
    remedy: HealthRemedy | None = None


class IndexHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Which blocks an index in use covers; see :class:`~lamella.snapshot.wire.Coverage`."""

    name: str
    kind: str
    blocks: int
    not_indexed: int
    stale: int


class ExpiredBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of the objects in a table's folder that only ``snapshots`` name, which a vacuum would expire now: at
    least ``min_bytes``, at most ``max_bytes``. They differ after a rollback. ``max_bytes`` None: ``not_compared`` of
    the snapshots were not looked at yet, and ``min_bytes`` is of the others.

    Without sketches, page sidecars and lists of deleted rows, whose sizes manifests do not have.
    """

    snapshots: int
    min_bytes: int
    max_bytes: int | None = None
    not_compared: int = 0


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a table at a snapshot, measured at ``measured_ms``.

    ``version``: the number of that snapshot. ``commits_since``: how many commits the table had after it until the
    answer was made; 0: the figures are of the current snapshot.

    ``small_blocks``: blocks that compaction would rewrite. ``deletes_count``: blocks with deleted rows,
    ``deleted_row_count`` together (None: unknown), ``deleted_bytes``: their share of the blocks' files, which a purge
    frees (of blocks with a known number of deleted rows); ``blocks_to_purge``: of these, those that a purge would
    rewrite.
    ``average_depth``: the average number of blocks that contain
    a value of the cluster key (None: no key; of a sample, and rather too low, if the key is a curve and there are more
    than 4,000 blocks); ``depth_day_ago``, ``depth_week_ago``: the same at that time on the same
    key (None: no snapshot of that time is in the history, or it had another key). ``expired_snapshots``: how many a
    vacuum would expire now; ``expired``: what that frees. ``missing``: by member, why it could not be measured; such a
    member is None, or empty.
    """

    table_id: str
    snapshot_id: str
    timestamp_ms: int
    measured_ms: int
    version: int = 0
    commits_since: int = 0
    row_count: int | None = None
    block_count: int | None = None
    segment_count: int | None = None
    file_size_bytes: int | None = None
    small_blocks: int | None = None
    deletes_count: int | None = None
    deleted_row_count: int | None = None
    deleted_bytes: int | None = None
    blocks_to_purge: int | None = None
    cluster_key: tuple[str, ...] = ()
    cluster_kind: str | None = None
    average_depth: float | None = None
    depth_day_ago: float | None = None
    depth_week_ago: float | None = None
    indexes: tuple[IndexHealth, ...] = ()
    snapshots: int | None = None
    oldest_ms: int | None = None
    expired_snapshots: int | None = None
    expired: ExpiredBytes | None = None
    findings: tuple[HealthFinding, ...] = ()
    missing: dict[str, str] = {}
