"""Leases: protect a snapshot's files while a reader or job needs them for long."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from lamella.service.catalog import Catalog, LeaseRecord, TableRecord
from lamella.service.history.history import History
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import InvalidRequest, LeaseNotFound
from lamella.snapshot.ids import Ids
from lamella.snapshot.wire import LeaseInfo, LeaseList, LeaseRequest, RenewRequest

_LONGEST_OWNER = 255


class Leases:
    """Creates, renews and ends leases; none lasts longer than ``longest_s`` without being renewed."""

    def __init__(
        self,
        catalog: Catalog,
        history: History,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        *,
        longest_s: int,
    ) -> None:
        self._catalog = catalog
        self._history = history
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._longest_s = longest_s

    def take(self, record: TableRecord, request: LeaseRequest) -> LeaseInfo:
        """Lease a snapshot.

        Raises:
            InvalidRequest: an invalid duration or owner.
            SnapshotNotFound, SnapshotExpired: the snapshot is not in the history.
            QuotaExceeded: the table has the maximum number of leases.
        """
        owner = request.owner
        if not (0 < len(owner) <= _LONGEST_OWNER and owner.isprintable()):
            raise InvalidRequest(f"owner must be a text of 1 to {_LONGEST_OWNER} characters that identifies the reader")
        now_ms = self._clock()
        pointer = self._history.pointer(record, snapshot_id=request.snapshot_id)
        entry = self._catalog.snapshot(record.table_id, pointer.snapshot_id)
        lease = LeaseRecord(
            lease_id=str(self._ids.new()),
            table_id=entry.table_id,
            seq=entry.seq,
            snapshot_id=pointer.snapshot_id,
            owner=owner,
            created_at_ms=now_ms,
            expires_at_ms=now_ms + self._ttl_ms(request.ttl_s),
        )
        self._catalog.add_lease(lease)
        self._metrics.leases_taken.inc()
        return _info(lease)

    def renew(self, record: TableRecord, lease_id: str, request: RenewRequest) -> LeaseInfo:
        """Extend a lease. Raises InvalidRequest, LeaseNotFound (also for an expired lease)."""
        now_ms = self._clock()
        found = self._found(record, lease_id, now_ms)
        until_ms = now_ms + self._ttl_ms(request.ttl_s)
        self._catalog.renew_lease(record.table_id, found.lease_id, expires_at_ms=until_ms, now_ms=now_ms)
        return LeaseInfo(
            lease_id=found.lease_id,
            snapshot_id=found.snapshot_id,
            owner=found.owner,
            created_at_ms=found.created_at_ms,
            expires_at_ms=until_ms,
        )

    def release(self, record: TableRecord, lease_id: str) -> None:
        """End a lease; a missing one is no error."""
        self._catalog.release_lease(record.table_id, lease_id)

    def list(self, record: TableRecord) -> LeaseList:
        """Return the leases that have not expired, oldest first."""
        found = self._catalog.leases(record.table_id, now_ms=self._clock())
        return LeaseList(leases=tuple(_info(lease) for lease in found))

    def _found(self, record: TableRecord, lease_id: str, now_ms: int) -> LeaseRecord:
        try:
            canonical = str(UUID(lease_id))
        except ValueError:
            canonical = ""
        for lease in self._catalog.leases(record.table_id, now_ms=now_ms):
            if lease.lease_id == canonical:
                return lease
        raise LeaseNotFound(f"the table has no lease {lease_id!r}, or it has expired", lease_id=lease_id)

    def _ttl_ms(self, ttl_s: int) -> int:
        if not 1 <= ttl_s <= self._longest_s:
            raise InvalidRequest(
                f"ttl_s must be a number from 1 to {self._longest_s}, not {ttl_s}; leases can be renewed"
            )
        return ttl_s * 1000


def _info(lease: LeaseRecord) -> LeaseInfo:
    return LeaseInfo(
        lease_id=lease.lease_id,
        snapshot_id=lease.snapshot_id,
        owner=lease.owner,
        created_at_ms=lease.created_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )
