"""What a service says of what was asked of it: how well prunes skipped, and who changed what."""

from __future__ import annotations

import msgspec


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
