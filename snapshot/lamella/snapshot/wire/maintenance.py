"""Vacuum, leases and verification."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from lamella.snapshot.wire.limits import Moment, Token, Word


class VacuumRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../vacuum`` and ``POST /v1/vacuum-dropped``: one part of a clean-up.

    ``execute``: False only says what would be done. ``older_than``: expire snapshots that were superseded so long ago
    (``7d``, ``12h``), in place of the table's retention; its tags, leases and ``min_snapshots`` count all the same.
    ``include_external_blocks``: also delete files outside of the table's folder that were blocks of the snapshots
    that expire now and of no snapshot of any table that stays. ``max_objects``: look at so many at most.
    ``page_token``: go on where the answer before ended.
    """

    execute: bool = False
    older_than: Moment | None = None
    include_external_blocks: bool = False
    max_objects: int | None = None
    page_token: Token | None = None


class SnapshotFate(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, whether it expires, and why or why not."""

    snapshot_id: str
    timestamp_ms: int
    expires: bool
    reason: str


class ObjectCount(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one kind, and their bytes."""

    objects: int = 0
    size_bytes: int = 0


class LeftObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was left alone although nothing needs it, and why."""

    location: str
    reason: str


class VacuumAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a clean-up, or all of it.

    ``snapshots``: only in the first part. ``garbage``: by kind, what was deleted, or without ``executed`` what would
    be. ``live``, ``young`` (made since ``before_ms``) and ``unknown`` (not a name of Lamella's) stay; ``unknowns``
    names some. ``left``: what could not be deleted, or must not; it is tried again next time where that may help.
    ``tables``: ids of dropped tables that were, or would be, purged. ``next_page_token``: None when this is the end.
    """

    executed: bool
    before_ms: int
    snapshots: tuple[SnapshotFate, ...] = ()
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
        """All of ``garbage`` together."""
        return counted(self.garbage.values())


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../leases``: hold a snapshot (None: the current one) for ``ttl_s`` seconds from now."""

    ttl_s: int
    owner: Word
    snapshot_id: Word | None = None


class RenewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../leases/{lease_id}``: hold on for ``ttl_s`` seconds from now."""

    ttl_s: int


class LeaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lease; it ends by itself at ``expires_at_ms``."""

    lease_id: str
    snapshot_id: str
    owner: str
    created_at_ms: int
    expires_at_ms: int


class LeaseList(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of a table that have not run out, oldest first."""

    leases: tuple[LeaseInfo, ...]


def counted(counts: Iterable[ObjectCount]) -> ObjectCount:
    """Counts added up."""
    found = list(counts)
    return ObjectCount(
        objects=sum(count.objects for count in found), size_bytes=sum(count.size_bytes for count in found)
    )


def merged_vacuum(parts: Sequence[VacuumAnswer]) -> VacuumAnswer:
    """The parts of one clean-up as one answer."""
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

    At most one of ``snapshot_id`` and ``timestamp``, as for a prune. ``files``: look at the blocks' files (that they
    are there, their footers) and not only at what Lamella wrote. ``history``: so many snapshots, the newest first, are
    held against the catalog. ``pages``: every segment should have a page sidecar; None: as the service builds them.

    ``deep``: read the values of some blocks too: ``blocks`` of them, or the share ``sample``, drawn by ``seed``; of
    each, so many random ``filters`` are answered from statistics and from its rows. ``repair``: write sidecars and
    page sidecars again where they are damaged or missing.

    An answer comes after about ``max_ms``; ``page_token`` asks for what follows.
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
    """One thing that is not as it should be.

    ``code`` names the check (see ``docs/verify.md``), ``object`` the location that it is about, ``advice`` what to do.
    ``repaired``: it has been put right; ``not_repaired``: why it could not be, when that was asked for.
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
    """How much was looked at: objects that Lamella wrote, blocks' entries, files, values and filters."""

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
    feedback: int = 0
    index_parts: int = 0
    index_filters: int = 0

    def plus(self, other: Checked) -> Checked:
        """Both together."""
        return Checked(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of a verification found.

    ``findings`` hold at most so many of one code for one object; ``counts`` has all of them by code.
    ``steps_done`` of ``steps`` are behind us; the next part begins at ``next_page_token``, None: that was all.
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
        """Nothing is wrong, or nothing that was not put right."""
        return all(finding.repaired or finding.severity == "info" for finding in self.findings)


def merged_verification(parts: Sequence[VerifyAnswer]) -> VerifyAnswer:
    """The parts of one verification as one answer."""
    counts: dict[str, int] = {}
    checked = Checked()
    for part in parts:
        checked = checked.plus(part.checked)
        for code, count in part.counts.items():
            counts[code] = counts.get(code, 0) + count
    return msgspec.structs.replace(
        parts[-1], findings=tuple(each for part in parts for each in part.findings), counts=counts, checked=checked
    )
