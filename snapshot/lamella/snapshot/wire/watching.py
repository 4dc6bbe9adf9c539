"""Prune rates, the audit trail, and reader feedback."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import Location, Moment, Word


class PruneRate(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a table's prunes: blocks and bytes of their snapshots, and what they kept of these.

    ``ms``: the duration of their stages. ``bucket_ms``: the beginning of the bucket (None: a sum over several).
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
        """Returns the fraction of blocks that need not be read, from 0 to 1; None if there were none."""
        return _skipped(self.kept_blocks, self.considered_blocks)

    @property
    def skipped_bytes(self) -> float | None:
        """Returns the fraction of bytes that need not be read; see :attr:`skipped_blocks`."""
        return _skipped(self.kept_bytes, self.bytes_total)


class PruneRatesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../prune-rates``: of all prunes since ``since_ms``, and by buckets of ``bucket_s`` seconds, the oldest
    first; buckets without prunes are left out."""

    since_ms: int
    bucket_s: int
    total: PruneRate
    series: tuple[PruneRate, ...]


class ServiceRate(msgspec.Struct, frozen=True, kw_only=True):
    """What the service did: requests to ``/v1``, prunes among them, commits, look-ups in the caches in memory, calls of
    the object store.

    ``errors``: requests answered with a status from 500 on. Quantiles are estimated from histograms; None: there was no
    request, or it is beyond the last bucket, a minute. ``store_ms``: the duration of all calls together. ``bucket_ms``:
    the beginning of the bucket (None: a sum over several).
    """

    requests: int = 0
    errors: int = 0
    request_p50_ms: float | None = None
    request_p99_ms: float | None = None
    prunes: int = 0
    prune_p50_ms: float | None = None
    prune_p99_ms: float | None = None
    commits: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    store_calls: int = 0
    store_errors: int = 0
    store_ms: float = 0.0
    bucket_ms: int | None = None

    @property
    def hit_rate(self) -> float | None:
        """Returns the fraction of look-ups that the caches answered, from 0 to 1; None if there were none."""
        looked_up = self.cache_hits + self.cache_misses
        return self.cache_hits / looked_up if looked_up else None


class ServiceRatesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/service-rates``: since ``since_ms`` in total, and by buckets of ``bucket_s`` seconds, the oldest first;
    buckets in which nothing happened are left out."""

    since_ms: int
    bucket_s: int
    total: ServiceRate
    series: tuple[ServiceRate, ...]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A requested change, whether it was made or refused.

    ``actor``: the principal; ``client``: its address (empty: unknown). ``operation``: the operation's id in the API's
    description, or the name of a page of the dashboard. ``target``: a table (``namespace.table``), a namespace or a
    job's id; None: the service. ``status``: of the answer; 499: the client disconnected, or the service stopped, before
    there was one. ``code``: of the error; None: there was none. ``snapshot_id``: of the snapshot that the request
    committed, alone or with others; None: none, or the answer was one of an earlier request.
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
    snapshot_id: str | None = None


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the audit trail, the newest first."""

    entries: tuple[AuditEntry, ...]
    next_page_token: str | None = None


def _skipped(kept: float, considered: float) -> float | None:
    return None if considered <= 0 else min(max(1 - kept / considered, 0.0), 1.0)


class FeedbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST .../feedback``: no row of the blocks at the locations ``empty`` of a snapshot matches ``filter``.

    Only a reader that evaluated every row of them exactly may report this. The filter, ``time_zone`` and
    ``case_sensitive`` are those that it was planned with.
    """

    snapshot_id: Word
    filter: Any
    empty: Annotated[tuple[Location, ...], Meta(max_length=10_000)]
    time_zone: Moment = "UTC"
    case_sensitive: bool = False


class FeedbackAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the reported blocks are now stored, and how many were stored before.

    Beyond the service's limits, the filters that were not reported for longest are removed immediately, and of a single
    filter that is too large the blocks that were reported first.
    """

    remembered: int
    known_before: int


class FeedbackInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET .../feedback``: the stored feedback of a table. ``facts`` are pairs of a filter and a block."""

    enabled: bool
    filters: int
    facts: int
    size_bytes: int
    max_facts: int
    max_bytes: int


class FeedbackCleared(msgspec.Struct, frozen=True, kw_only=True):
    """``DELETE .../feedback``: how many facts were deleted."""

    facts: int
