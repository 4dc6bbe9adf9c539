"""Which snapshots leases hold, for the transaction that expires snapshots."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from lamella.service.catalog.tables import leases

#: A lease is believed for so much longer than it says, since the clocks of replicas differ.
LEASE_GRACE_MS: Final = 60_000

_FORGET_DEAD = delete(leases).where(
    leases.c.table_id == bindparam("id"), leases.c.expires_at_ms <= bindparam("dead_ms")
)
_LEASED = select(leases.c.seq).where(leases.c.table_id == bindparam("id")).distinct()


def leased(connection: Connection, table_id: str, *, now_ms: int) -> set[int]:
    """The snapshots (``seq``) that leases hold; forgets the dead leases. The caller holds the table's row."""
    connection.execute(_FORGET_DEAD, {"id": table_id, "dead_ms": now_ms - LEASE_GRACE_MS})
    return set(connection.execute(_LEASED, {"id": table_id}).scalars())
