"""What the service asks of a catalog about how it is used: prune rates, the audit trail, the database itself.

A part of the port. Times are Unix milliseconds of the caller's clock; nothing here reads one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from lamella.snapshot.wire import AuditEntry, PruneRate


class PruneRateRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to a table's sums of the time that began at ``bucket_ms``; see
    :class:`~lamella.snapshot.wire.PruneRate`."""

    table_id: str
    bucket_ms: int
    prunes: int
    considered_blocks: int
    kept_blocks: int
    bytes_total: float
    kept_bytes: float
    ms: float


class WatchCatalog(Protocol):
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
