"""Histories of tables in the catalog's database: tags and leases protect snapshots; the others expire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, RowMapping, and_, bindparam, delete, func, insert, or_, select, update

from lamella.service.catalog import schema as sql
from lamella.service.catalog.quotas import NO_QUOTAS, Quotas
from lamella.service.catalog.records import (
    BRANCH_SIGN,
    MAIN,
    HistoryEntry,
    LeaseRecord,
    StoredAnswer,
    TagRecord,
)
from lamella.service.catalog.schema import history_row, leases, snapshots, tables, tags
from lamella.service.catalog.session import SqlSession, entry_record
from lamella.snapshot.errors import (
    AlreadyExists,
    LeaseNotFound,
    SnapshotExpired,
    SnapshotNotFound,
    TableNotFound,
    TagNotFound,
)
from lamella.snapshot.ids import is_uuid7

#: Leases are honored for this much longer than they say, since the clocks of replicas differ.
LEASE_GRACE_MS: Final = 60_000

_DELETE_DEAD_LEASES = delete(leases).where(
    leases.c.table_id == bindparam("id"), leases.c.expires_at_ms <= bindparam("dead_ms")
)
_LEASED = select(leases.c.seq).where(leases.c.table_id == bindparam("id")).distinct()


def leased_snapshots(connection: Connection, table_id: str, *, now_ms: int) -> set[int]:
    """Return the ``seq`` that leases protect, and delete expired leases. The caller holds the table's row."""
    connection.execute(_DELETE_DEAD_LEASES, {"id": table_id, "dead_ms": now_ms - LEASE_GRACE_MS})
    return set(connection.execute(_LEASED, {"id": table_id}).scalars())


#: Clocks of replicas differ by less than this. Only the choice between two "not found" errors depends on it.
_CLOCKS_MS = 60_000

#: Locks a table's row, dropped or not, until the transaction ends.
_STATE_OF_TABLE = select(tables.c.version, tables.c.dropped_at_ms).where(tables.c.table_id == bindparam("id"))
LOCK_TABLE = _STATE_OF_TABLE.with_for_update()
#: Locks the rows of several tables, in the order of their ids, until the transaction ends.
LOCK_TABLES = (
    select(tables.c.table_id, tables.c.version, tables.c.dropped_at_ms)
    .where(tables.c.table_id.in_(bindparam("ids", expanding=True)))
    .order_by(tables.c.table_id)
    .with_for_update()
)
#: Keeps a table's row from being changed until the transaction ends.
SHARE_TABLE = _STATE_OF_TABLE.with_for_update(read=True)

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


#: The id of the table that a table or branch belongs to.
OWNER = func.coalesce(
    select(tables.c.branch_of).where(tables.c.table_id == bindparam("id")).scalar_subquery(), bindparam("id")
)
_OWNER_OF = select(OWNER.label("main_id"))
_of_owner = or_(tables.c.table_id == OWNER, tables.c.branch_of == OWNER)
#: A table and its branches, also those that were dropped and still have their history.
FAMILY = select(tables.c.table_id).where(_of_owner)


def lock_family(connection: Connection, table_id: str) -> str:
    """Lock a table or branch, and the table that it belongs to, until the transaction ends; return the table's id.

    Raises:
        TableNotFound: the table was dropped.
    """
    main_id = str(connection.execute(_OWNER_OF, {"id": table_id}).scalar_one())
    for each in sorted({table_id, main_id}):
        locked = connection.execute(LOCK_TABLE, {"id": each}).mappings().first()
        if locked is None or (each == main_id and locked["dropped_at_ms"] is not None):
            raise TableNotFound("the table was dropped", table_id=each)
    return main_id


def require_in_history(connection: Connection, table_id: str, seq: int) -> None:
    """Raise SnapshotExpired unless the snapshot is in the history of a table or branch. The caller holds its row."""
    if connection.execute(sql.SELECT_IN_HISTORY, {"id": table_id, "wanted_seq": seq}).first() is None:
        raise SnapshotExpired("the snapshot expired meanwhile", table_id=table_id)


class SqlExpiry(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that expires snapshots."""

    def expire_snapshots(self, table_id: str, seqs: Sequence[int], *, now_ms: int) -> list[int]:
        with self._transaction(None) as connection:
            locked = connection.execute(LOCK_TABLE, {"id": table_id}).mappings().first()
            if locked is None:
                return []
            connection.execute(_FORGET_DEAD_TAGS, {"id": table_id, "now_ms": now_ms})
            protected = {locked["version"], *connection.execute(_TAGGED, {"id": table_id}).scalars()}
            protected |= leased_snapshots(connection, table_id, now_ms=now_ms)
            removable = sorted(set(seqs) - protected)
            times: dict[int, int] = {}
            for start in range(0, len(removable), _AT_ONCE):
                some = {"id": table_id, "wanted": removable[start : start + _AT_ONCE]}
                times.update((row.seq, row.timestamp_ms) for row in connection.execute(_TIMES, some))
            if not times:
                return []
            # The snapshot before a gap stores when it ceased to be current, so that it is not returned for a time in
            # the gap.
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

    def _missing_number(self, table_id: str, number: int) -> SnapshotNotFound:
        for row in self._rows(sql.SELECT_EXTENT, {"id": table_id}):
            if 1 <= number <= row["version"]:
                return SnapshotExpired(f"snapshot {number} of the table has expired", snapshot_id=str(number))
        return SnapshotNotFound(f"the table has no snapshot {number}", snapshot_id=str(number))

    def _missing_snapshot(self, table_id: str, snapshot_id: str) -> SnapshotNotFound:
        """Return the error for a missing snapshot. Expired ids are not stored: an id that was made while the table
        existed and where the history has gaps counts as expired.
        """
        for row in self._rows(sql.SELECT_EXTENT, {"id": table_id}):
            has_gaps = row["history_length"] < row["version"]
            if has_gaps and is_uuid7(snapshot_id):
                made_ms = UUID(snapshot_id).int >> 80
                if row["created_at_ms"] - _CLOCKS_MS <= made_ms <= row["newest_ms"] + _CLOCKS_MS:
                    text = f"snapshot {snapshot_id} is not in the table's history any more"
                    return SnapshotExpired(text, snapshot_id=snapshot_id)
        return SnapshotNotFound(f"the table has no snapshot {snapshot_id}", snapshot_id=snapshot_id)


_SELECT_MAIN_NAME = select(tables.c.name).where(tables.c.table_id == bindparam("main_id"))
_SELECT_BRANCH = select(tables.c.table_id).where(
    tables.c.branch_of == bindparam("main_id"), tables.c.dropped_at_ms.is_(None), tables.c.name == bindparam("branch")
)
_of_table = tags.c.table_id.in_(FAMILY)
_named = and_(_of_table, tags.c.name == bindparam("tag"))
_alive = or_(tags.c.expires_at_ms.is_(None), tags.c.expires_at_ms > bindparam("now_ms"))
_tagged_snapshot = and_(tags.c.table_id == snapshots.c.table_id, tags.c.seq == snapshots.c.seq)

_SELECT_TAGS = (
    select(
        tags.c.table_id,
        tags.c.name,
        tags.c.seq,
        snapshots.c.snapshot_id,
        snapshots.c.timestamp_ms,
        tags.c.created_at_ms,
        tags.c.expires_at_ms,
    )
    .join_from(tags, snapshots, _tagged_snapshot)
    .where(_alive)
)
_SELECT_ALL = _SELECT_TAGS.where(_of_table)
SELECT_TAG_NAMED = _SELECT_TAGS.where(_named)
_SELECT_TAGGED = history_row.join(tags, _tagged_snapshot).where(_named, _alive)
_INSERT_TAG = insert(tags)
_MOVE = (
    update(tags)
    .where(_named, _alive)
    .values(table_id=bindparam("to_table_id"), seq=bindparam("to_seq"), expires_at_ms=bindparam("until_ms"))
)
_DROP = delete(tags).where(_named, _alive)
_DELETE_DEAD_TAG = delete(tags).where(_named, tags.c.expires_at_ms <= bindparam("now_ms"))


def has_tags(connection: Connection, table_id: str, *, now_ms: int) -> bool:
    """Return whether a tag that has not expired names a snapshot in the history of this table or branch."""
    named = select(tags.c.name).where(tags.c.table_id == bindparam("id"), _alive)
    return connection.execute(named, {"id": table_id, "now_ms": now_ms}).first() is not None


class SqlTags(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for tags."""

    def tags(self, table_id: str, *, now_ms: int) -> list[TagRecord]:
        found = [_tag(row) for row in self._rows(_SELECT_ALL, {"id": table_id, "now_ms": now_ms})]
        return sorted(found, key=lambda tag: tag.name)  # databases differ in their collation

    def tag(self, table_id: str, name: str, *, now_ms: int) -> TagRecord:
        for row in self._rows(SELECT_TAG_NAMED, {"id": table_id, "tag": name, "now_ms": now_ms}):
            return _tag(row)
        raise _no_tag(name)

    def tagged(self, table_id: str, name: str, *, now_ms: int) -> HistoryEntry:
        for row in self._rows(_SELECT_TAGGED, {"id": table_id, "tag": name, "now_ms": now_ms}):
            return entry_record(row)
        raise _no_tag(name)

    def put_tag(self, tag: TagRecord, *, move: bool, now_ms: int, remember: StoredAnswer | None = None) -> None:
        which = {"id": tag.table_id, "tag": tag.name, "now_ms": now_ms}
        with self._transaction(remember) as connection:
            # Expiring snapshots locks the same row: a snapshot that is found here stays until the tag protects it.
            main_id = lock_family(connection, tag.table_id)
            require_in_history(connection, tag.table_id, tag.seq)
            connection.execute(_DELETE_DEAD_TAG, which)
            if move:
                change = {"to_table_id": tag.table_id, "to_seq": tag.seq, "until_ms": tag.expires_at_ms}
                if connection.execute(_MOVE, {**which, **change}).rowcount != 1:
                    raise _no_tag(tag.name)
                return
            of_main = connection.execute(_SELECT_MAIN_NAME, {"main_id": main_id}).scalar_one()
            branch = {"main_id": main_id, "branch": f"{of_main}{BRANCH_SIGN}{tag.name}"}
            if tag.name == MAIN or connection.execute(_SELECT_BRANCH, branch).first() is not None:
                raise AlreadyExists(f"the table has a branch {tag.name!r}, so no tag can have that name", tag=tag.name)
            if connection.execute(SELECT_TAG_NAMED, which).first() is not None:
                raise AlreadyExists(f"tag {tag.name!r} exists; set `move` to move it", tag=tag.name)
            row = {
                "table_id": tag.table_id,
                "name": tag.name,
                "seq": tag.seq,
                "created_at_ms": tag.created_at_ms,
                "expires_at_ms": tag.expires_at_ms,
            }
            connection.execute(_INSERT_TAG, row)

    def drop_tag(self, table_id: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(_DROP, {"id": table_id, "tag": name, "now_ms": now_ms}).rowcount != 1:
                raise _no_tag(name)


def _tag(row: RowMapping) -> TagRecord:
    return TagRecord(**row)


def _no_tag(name: str) -> TagNotFound:
    return TagNotFound(f"the table has no tag {name!r}", tag=name)


_leased_snapshot = and_(leases.c.table_id == snapshots.c.table_id, leases.c.seq == snapshots.c.seq)
_leased_here = leases.c.table_id.in_(FAMILY)
_this_lease = and_(_leased_here, leases.c.lease_id == bindparam("lease"))

_SELECT_LEASES = (
    select(
        leases.c.lease_id,
        leases.c.table_id,
        leases.c.seq,
        snapshots.c.snapshot_id,
        leases.c.owner,
        leases.c.created_at_ms,
        leases.c.expires_at_ms,
    )
    .join_from(leases, snapshots, _leased_snapshot)
    .where(_leased_here, leases.c.expires_at_ms > bindparam("now_ms"))
    .order_by(leases.c.created_at_ms, leases.c.lease_id)
)
_COUNT = select(func.count()).where(_leased_here, leases.c.expires_at_ms > bindparam("now_ms"))
_INSERT_LEASE = insert(leases)
_RENEW = (
    update(leases)
    .where(_this_lease, leases.c.expires_at_ms > bindparam("now_ms"))
    .values(expires_at_ms=bindparam("until_ms"))
)
_RELEASE = delete(leases).where(_this_lease)


class SqlLeases(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for leases."""

    quotas: Quotas = NO_QUOTAS

    def add_lease(self, lease: LeaseRecord) -> None:
        with self._transaction(None) as connection:
            # Expiring snapshots locks the same row: a snapshot that is found here stays until the lease protects it.
            lock_family(connection, lease.table_id)
            require_in_history(connection, lease.table_id, lease.seq)
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
            connection.execute(_INSERT_LEASE, row)

    def renew_lease(self, table_id: str, lease_id: str, *, expires_at_ms: int, now_ms: int) -> None:
        which = {"id": table_id, "lease": lease_id, "now_ms": now_ms, "until_ms": expires_at_ms}
        with self._transaction(None) as connection:
            if connection.execute(_RENEW, which).rowcount != 1:
                raise LeaseNotFound(f"the table has no lease {lease_id}, or it has expired", lease_id=lease_id)

    def release_lease(self, table_id: str, lease_id: str) -> None:
        with self._transaction(None) as connection:
            connection.execute(_RELEASE, {"id": table_id, "lease": lease_id})

    def leases(self, table_id: str, *, now_ms: int) -> list[LeaseRecord]:
        return [LeaseRecord(**row) for row in self._rows(_SELECT_LEASES, {"id": table_id, "now_ms": now_ms})]
