"""Histories with gaps: snapshots that expire, and answers for those that did."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, select, update

from lamella.service.catalog import statements as sql
from lamella.service.catalog.leased import leased
from lamella.service.catalog.port import HistoryEntry
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import snapshots, tables, tags
from lamella.snapshot.errors import SnapshotExpired, SnapshotNotFound
from lamella.snapshot.ids import is_uuid7

#: Clocks of replicas differ by less than this; only the choice between two kinds of "not there" depends on it.
_CLOCKS_MS = 60_000

#: Holds a table's row, dropped or not, until the transaction ends.
LOCK_TABLE = (
    select(tables.c.version, tables.c.dropped_at_ms).where(tables.c.table_id == bindparam("id")).with_for_update()
)

_FORGET_DEAD_TAGS = delete(tags).where(tags.c.table_id == bindparam("id"), tags.c.expires_at_ms <= bindparam("now_ms"))
_TAGGED = select(tags.c.seq).where(tags.c.table_id == bindparam("id")).distinct()
_TIMES = select(snapshots.c.seq, snapshots.c.timestamp_ms).where(
    snapshots.c.table_id == bindparam("id"), snapshots.c.seq.in_(bindparam("wanted", expanding=True))
)
_NOTE_GAP = (
    update(snapshots)
    .where(snapshots.c.table_id == bindparam("id"), snapshots.c.seq == bindparam("before"))
    .values(until_ms=bindparam("gap_ms"))
)
_DELETE = delete(snapshots).where(
    snapshots.c.table_id == bindparam("id"), snapshots.c.seq.in_(bindparam("wanted", expanding=True))
)
_AT_ONCE = 500


def require_kept(connection: Connection, table_id: str, seq: int) -> None:
    """Raise SnapshotExpired unless the snapshot is in the history; the caller holds the table's row."""
    if connection.execute(sql.SELECT_KEPT, {"id": table_id, "wanted_seq": seq}).first() is None:
        raise SnapshotExpired("the snapshot expired meanwhile", table_id=table_id)


class SqlExpiry(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that forgets snapshots."""

    def expire_snapshots(self, table_id: str, seqs: Sequence[int], *, now_ms: int) -> list[int]:
        with self._transaction(None) as connection:
            held = connection.execute(LOCK_TABLE, {"id": table_id}).mappings().first()
            if held is None:
                return []
            connection.execute(_FORGET_DEAD_TAGS, {"id": table_id, "now_ms": now_ms})
            protected = {held["version"], *connection.execute(_TAGGED, {"id": table_id}).scalars()}
            protected |= leased(connection, table_id, now_ms=now_ms)
            wanted = sorted(set(seqs) - protected)
            times: dict[int, int] = {}
            for start in range(0, len(wanted), _AT_ONCE):
                some = {"id": table_id, "wanted": wanted[start : start + _AT_ONCE]}
                times.update((row.seq, row.timestamp_ms) for row in connection.execute(_TIMES, some))
            if not times:
                return []
            # What stands before a gap says when it ceased to be current: a time in the gap must not find it.
            gaps = [{"id": table_id, "before": seq - 1, "gap_ms": at_ms} for seq, at_ms in times.items()]
            connection.execute(_NOTE_GAP, gaps)
            removed = sorted(times)
            for start in range(0, len(removed), _AT_ONCE):
                connection.execute(_DELETE, {"id": table_id, "wanted": removed[start : start + _AT_ONCE]})
        return removed

    def _in_force(self, entry: HistoryEntry, timestamp_ms: int) -> HistoryEntry:
        if entry.until_ms is not None and timestamp_ms >= entry.until_ms:
            raise SnapshotExpired("the snapshot of that time has expired", timestamp_ms=timestamp_ms)
        return entry

    def _missing_time(self, table_id: str, timestamp_ms: int) -> SnapshotNotFound:
        for row in self._rows(sql.SELECT_EXTENT, {"id": table_id}):
            if timestamp_ms >= row["created_at_ms"]:
                return SnapshotExpired("the snapshot of that time has expired", timestamp_ms=timestamp_ms)
        return SnapshotNotFound("the table did not exist at that time", timestamp_ms=timestamp_ms)

    def _missing_snapshot(self, table_id: str, snapshot_id: str) -> SnapshotNotFound:
        """Expired ids are not kept. One that was made while the table lived, where the history has gaps, is taken
        for an expired one."""
        for row in self._rows(sql.SELECT_EXTENT, {"id": table_id}):
            has_gaps = row["kept"] < row["version"]
            if has_gaps and is_uuid7(snapshot_id):
                made_ms = UUID(snapshot_id).int >> 80
                if row["created_at_ms"] - _CLOCKS_MS <= made_ms <= row["newest_ms"] + _CLOCKS_MS:
                    text = f"snapshot {snapshot_id} is not in the table's history any more"
                    return SnapshotExpired(text, snapshot_id=snapshot_id)
        return SnapshotNotFound(f"the table has no snapshot {snapshot_id}", snapshot_id=snapshot_id)
