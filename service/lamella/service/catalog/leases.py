"""Leases in the catalog's database: who reads a snapshot, and until when that is believed."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, delete, func, insert, select, update

from lamella.service.catalog.expiry import LOCK_TABLE, require_kept
from lamella.service.catalog.port import LeaseRecord
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import leases, snapshots
from lamella.service.quotas import NO_QUOTAS, Quotas
from lamella.snapshot.errors import LeaseNotFound, TableNotFound

_its_snapshot = and_(leases.c.table_id == snapshots.c.table_id, leases.c.seq == snapshots.c.seq)
_this_lease = and_(leases.c.table_id == bindparam("id"), leases.c.lease_id == bindparam("lease"))

_SELECT = (
    select(
        leases.c.lease_id,
        leases.c.table_id,
        leases.c.seq,
        snapshots.c.snapshot_id,
        leases.c.owner,
        leases.c.created_at_ms,
        leases.c.expires_at_ms,
    )
    .join_from(leases, snapshots, _its_snapshot)
    .where(leases.c.table_id == bindparam("id"), leases.c.expires_at_ms > bindparam("now_ms"))
    .order_by(leases.c.created_at_ms, leases.c.lease_id)
)
_COUNT = select(func.count()).where(leases.c.table_id == bindparam("id"), leases.c.expires_at_ms > bindparam("now_ms"))
_INSERT = insert(leases)
_RENEW = (
    update(leases)
    .where(_this_lease, leases.c.expires_at_ms > bindparam("now_ms"))
    .values(expires_at_ms=bindparam("until_ms"))
)
_RELEASE = delete(leases).where(_this_lease)


class SqlLeases(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows leases."""

    quotas: Quotas = NO_QUOTAS

    def add_lease(self, lease: LeaseRecord) -> None:
        with self._transaction(None) as connection:
            # Whoever expires snapshots holds the same row: what is found here stays until the lease protects it.
            held = connection.execute(LOCK_TABLE, {"id": lease.table_id}).mappings().first()
            if held is None or held["dropped_at_ms"] is not None:
                raise TableNotFound("the table was dropped", table_id=lease.table_id)
            require_kept(connection, lease.table_id, lease.seq)
            if self.quotas.table_leases is not None:
                counted = {"id": lease.table_id, "now_ms": lease.created_at_ms}
                self.quotas.check("table_leases", connection.execute(_COUNT, counted).scalar_one() + 1)
            row = {
                "lease_id": lease.lease_id,
                "table_id": lease.table_id,
                "seq": lease.seq,
                "owner": lease.owner,
                "created_at_ms": lease.created_at_ms,
                "expires_at_ms": lease.expires_at_ms,
            }
            connection.execute(_INSERT, row)

    def renew_lease(self, table_id: str, lease_id: str, *, expires_at_ms: int, now_ms: int) -> None:
        which = {"id": table_id, "lease": lease_id, "now_ms": now_ms, "until_ms": expires_at_ms}
        with self._transaction(None) as connection:
            if connection.execute(_RENEW, which).rowcount != 1:
                raise LeaseNotFound(f"the table has no lease {lease_id}, or it ran out", lease_id=lease_id)

    def release_lease(self, table_id: str, lease_id: str) -> None:
        with self._transaction(None) as connection:
            connection.execute(_RELEASE, {"id": table_id, "lease": lease_id})

    def leases(self, table_id: str, *, now_ms: int) -> list[LeaseRecord]:
        return [LeaseRecord(**row) for row in self._rows(_SELECT, {"id": table_id, "now_ms": now_ms})]
