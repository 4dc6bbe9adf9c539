"""Prune rates, the audit trail, and what readers report."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import Location, Moment, Word


class PruneRate(msgspec.Struct, frozen=True, kw_only=True):
    """Prunes of a table, summed up: blocks and bytes of their snapshots, and what they kept of these.

    ``ms``: the time that their stages took. ``bucket_ms``: when the time that they were asked in began (None: it is the
    sum over several).
    """

    prunes: int = 0
    considered_blocks: int = 0
    kept_blocks: int = 0
    bytes_total: int = 0
    kept_bytes: int = 0
    ms: float = 0.0
    bucket_ms: int | None = None

    @property
    def skipped_blocks(self) -> float | None:
        """The share of blocks that need not be read, from 0 to 1; None: there were none."""
        return _skipped(self.kept_blocks, self.considered_blocks)

    @property
    def skipped_bytes(self) -> float | None:
        """As :attr:`skipped_blocks`, of bytes."""
        return _skipped(self.kept_bytes, self.bytes_total)


class PruneRatesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../prune-rates``: of all prunes since ``since_ms``, and by buckets of ``bucket_s`` seconds, the oldest
    first; those in which nobody asked are left out."""

    since_ms: int
    bucket_s: int
    total: PruneRate
    series: tuple[PruneRate, ...]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was asked for, whether it was made or refused.

    ``actor``: who asked; ``client``: from which address (empty: unknown). ``operation``: the operation's id in the
    API's description, or the name of a page of the dashboard. ``target``: a table (``namespace.table``), a namespace or
    a job's id; None: the service. ``status``: of the answer; 499: the client went away, or the service stopped, before
    there was one. ``code``: of the error; None: there was none.
    """

    audit_id: str
    at_ms: int
    actor: str
    client: str
    operation: str
    target: str | None
    status: int
    code: str | None
    request_id: str


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit trail, the newest first."""

    entries: tuple[AuditEntry, ...]
    next_page_token: str | None = None


def _skipped(kept: float, considered: float) -> float | None:
    return None if considered <= 0 else min(max(1 - kept / considered, 0.0), 1.0)


class FeedbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../feedback``: no row of the blocks at the locations ``empty`` of a snapshot matches ``filter``.

    Only a reader that decided every row of them exactly may say so. The filter, ``time_zone`` and ``case_sensitive``
    are those that it was planned with.
    """

    snapshot_id: Word
    filter: Any
    empty: Annotated[tuple[Location, ...], Meta(max_length=10_000)]
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class FeedbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the reported blocks are remembered from now on, and how many were before.

    Beyond the service's bounds, what was not used for longest is forgotten at once, of a long report a part of it too.
    """

    remembered: int
    known_before: int


class FeedbackInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../feedback``: what is remembered for a table. ``facts`` are pairs of a filter and a block."""

    enabled: bool
    filters: int
    facts: int
    size_bytes: int
    max_facts: int
    max_bytes: int


class FeedbackCleared(msgspec.Struct, frozen=True, kw_only=True):
    """``DELETE .../feedback``: how many facts were forgotten."""

    facts: int


class FeedbackUse(msgspec.Struct, frozen=True, kw_only=True):
    """What readers' reports did to a prune: of ``considered`` blocks, so many were left out on a reader's word.

    ``contradicted``: blocks that a report calls empty, and statistics prove otherwise; they stay.
    """

    considered: int
    ruled_out: int
    contradicted: int
    ms: float
