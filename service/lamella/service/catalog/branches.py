"""Branches in the catalog's database, and the histories that they share with their table.

A branch has a row, a pointer and a history of its own, which begins with the snapshot that it was created from. Numbers
continue those of the table, so what came before is found in the history of the table, below that snapshot's number.
A fast-forward copies the rows that a history lacks. They get the time of the fast-forward, since a time selects what
was current then; the time at which a snapshot was made is in its pointer.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.quotas import NO_QUOTAS
from lamella.service.catalog.records import (
    BranchRecord,
    HistoryEntry,
    StoredAnswer,
    TableRecord,
    main_name,
    no_branch,
    no_table,
)
from lamella.service.catalog.schema import history_row, own_history, snapshots, tables
from lamella.service.catalog.session import LostRace, entry_record, json_text, table_record
from lamella.service.catalog.snapshots import (
    FAMILY,
    LOCK_TABLE,
    OWNER,
    SELECT_TAG_NAMED,
    SqlExpiry,
    has_tags,
    leased_snapshots,
    lock_family,
    require_in_history,
)
from lamella.service.catalog.tables import SqlQuotas, check_quota, forget_rows
from lamella.snapshot.errors import AlreadyExists, CommitConflict

_branch = sql.table_row.add_columns(tables.c.fork_seq, tables.c.max_idle_ms)
_live = tables.c.dropped_at_ms.is_(None)
_this = tables.c.table_id == bindparam("id")
_SELECT_BRANCHES: Final = _branch.where(tables.c.branch_of == bindparam("id"), _live)
_SELECT_DROPPED: Final = (
    select(tables.c.table_id)
    .where(tables.c.branch_of == bindparam("id"), tables.c.dropped_at_ms < bindparam("before_ms"))
    .order_by(tables.c.table_id)
)
_LOCK_DROPPED: Final = select(tables.c.table_id).where(_this, ~_live, ~sql.is_main).with_for_update()
#: Drops a live branch.
DROP: Final = update(tables).where(_this, _live, ~sql.is_main).values(dropped_at_ms=bindparam("now_ms"))
_DROP_NAMED: Final = (
    update(tables)
    .where(_live, tables.c.branch_of == bindparam("id"), tables.c.name == bindparam("branch"))
    .values(dropped_at_ms=bindparam("now_ms"))
)
_FORK: Final = select(tables.c.branch_of, tables.c.fork_seq).where(_this)
#: The history of a branch is its own, and that of its table below its first number.
_HAS_COMMIT: Final = (
    select(snapshots.c.seq)
    .join_from(tables, snapshots, snapshots.c.table_id.in_([tables.c.table_id, tables.c.branch_of]))
    .where(
        _this,
        or_(snapshots.c.table_id == tables.c.table_id, snapshots.c.seq < tables.c.fork_seq),
        or_(snapshots.c.snapshot_id == bindparam("wanted"), snapshots.c.operation == bindparam("operation")),
    )
    .limit(1)
)
_HEADS: Final = FAMILY.order_by(tables.c.table_id)
_SELECT_IN_FAMILY: Final = (
    history_row.where(snapshots.c.snapshot_id == bindparam("wanted"), snapshots.c.table_id.in_(FAMILY))
    .order_by(snapshots.c.table_id)
    .limit(1)
)
_ENDING: Final = select(snapshots.c.snapshot_id).where(snapshots.c.snapshot_id.like(bindparam("pattern"))).distinct()
_ENDING_IN_BRANCHES: Final = _ENDING.where(
    snapshots.c.table_id.in_(select(tables.c.table_id).where(tables.c.branch_of == OWNER))
).limit(2)
_ENDING_IN_TABLE: Final = _ENDING.where(snapshots.c.table_id == OWNER).limit(2)
_COPIED: Final = [column for column in snapshots.c if column.name != "table_id"]
_COPY_ROWS: Final = insert(snapshots).from_select(
    ["table_id", *(column.name for column in _COPIED)],
    select(bindparam("to_id", type_=tables.c.table_id.type), *_COPIED).where(
        snapshots.c.table_id == bindparam("from_id"),
        snapshots.c.seq >= bindparam("first_seq"),
        snapshots.c.seq <= bindparam("last_seq"),
    ),
)
_SET_TIME: Final = (
    update(snapshots)
    .where(snapshots.c.table_id == bindparam("id"), snapshots.c.seq > bindparam("above_seq"))
    .values(timestamp_ms=bindparam("at_ms"), until_ms=None)
)
_NUMBERED_FROM: Final = own_history.where(snapshots.c.seq.in_([bindparam("wanted_seq"), bindparam("next_seq")]))
_POINT: Final = (
    update(tables)
    .where(_this, _live, tables.c.version == bindparam("at_version"))
    .values(version=bindparam("next_version"), pointer=bindparam("next_pointer"))
)


def insert_branch(connection: Connection, branch: BranchRecord, source: HistoryEntry, namespace_id: int) -> None:
    """Add a branch with the history that leads to ``source``, which the caller has locked.

    Raises IntegrityError, which ends the transaction, if a branch has the name.
    """
    record = branch.record
    row = {
        "table_id": record.table_id,
        "namespace_id": namespace_id,
        "name": record.name,
        "location": record.location,
        "version": record.version,
        "pointer": json_text(record.pointer),
        "created_at_ms": record.created_at_ms,
        "branch_of": record.main_id,
        "fork_seq": branch.fork_seq,
        "max_idle_ms": branch.max_idle_ms,
    }
    connection.execute(sql.INSERT_TABLE, row)
    # Of another branch's own history, the part that leads to the snapshot comes along.
    copy = {"to_id": record.table_id, "from_id": source.table_id}
    connection.execute(_COPY_ROWS, {**copy, "first_seq": branch.fork_seq, "last_seq": source.seq})


class SqlBranches(SqlQuotas, SqlExpiry):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for branches."""

    quotas = NO_QUOTAS

    def branches(self, table_id: str) -> list[BranchRecord]:
        found = []
        for row in self._rows(_SELECT_BRANCHES, {"id": table_id}):
            record = {name: value for name, value in row.items() if name not in ("fork_seq", "max_idle_ms")}
            found.append(
                BranchRecord(record=table_record(record), fork_seq=row["fork_seq"], max_idle_ms=row["max_idle_ms"])
            )
        return sorted(found, key=lambda each: each.name)  # databases differ in their collation

    def create_branch(
        self,
        branch: BranchRecord,
        source: HistoryEntry,
        *,
        replace: bool,
        now_ms: int,
        remember: StoredAnswer | None = None,
    ) -> None:
        record = branch.record
        main_id = record.main_id
        with self._transaction(remember) as connection:
            # Expiring snapshots locks the same row: a snapshot that is found here stays until the branch protects it.
            lock_family(connection, source.table_id)
            require_in_history(connection, source.table_id, source.seq)
            namespace_id = connection.execute(_NAMESPACE_OF, {"id": main_id, "main": main_name(record.name)}).scalar()
            if namespace_id is None:
                raise no_table(record.namespace, main_name(record.name))
            named = {"id": main_id, "tag": branch.name, "now_ms": now_ms}
            if connection.execute(SELECT_TAG_NAMED, named).first() is not None:
                raise AlreadyExists(
                    f"the table has a tag {branch.name!r}, so no branch can have that name", branch=branch.name
                )
            if replace:
                connection.execute(_DROP_NAMED, {"id": main_id, "branch": record.name, "now_ms": now_ms})
            try:
                insert_branch(connection, branch, source, namespace_id)
            except IntegrityError as error:
                raise AlreadyExists(
                    f"the table has a branch {branch.name!r}; set `replace` to replace it", branch=branch.name
                ) from error

    def fork_seq(self, table_id: str) -> int | None:
        for row in self._rows(_FORK, {"id": table_id}):
            return None if row["fork_seq"] is None else int(row["fork_seq"])
        return None

    def has_commit(self, table_id: str, snapshot_id: str, operation: str) -> bool:
        which = {"id": table_id, "wanted": snapshot_id, "operation": operation}
        return bool(self._rows(_HAS_COMMIT, which))

    def drop_branch(self, record: TableRecord, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(DROP, {"id": record.table_id, "now_ms": now_ms}).rowcount != 1:
                raise no_branch(record.namespace, record.name)

    def fast_forward(
        self, target: TableRecord, source: TableRecord, *, now_ms: int, remember: StoredAnswer | None = None
    ) -> bool:
        try:
            with self._transaction(remember) as connection:
                quotas = self._lock_quotas(connection, [target.table_id])
                for each in sorted({target.table_id, source.table_id, target.main_id}):
                    locked = connection.execute(LOCK_TABLE, {"id": each}).mappings().first()
                    if locked is None or locked["dropped_at_ms"] is not None:
                        raise LostRace
                    if any(locked["version"] != head.version for head in (target, source) if head.table_id == each):
                        raise LostRace
                if not self._continues(connection, target, source):
                    raise _diverged(target, source)
                last = (
                    connection.execute(own_history.where(snapshots.c.seq == source.version), {"id": source.table_id})
                    .mappings()
                    .one()
                )
                quota = quotas.get(target.table_id)
                if quota is not None:
                    check_quota(connection, target.table_id, entry_record(last), quota)
                copy = {
                    "to_id": target.table_id,
                    "from_id": source.table_id,
                    "first_seq": target.version + 1,
                    "last_seq": source.version,
                }
                connection.execute(_COPY_ROWS, copy)
                which: dict[str, Any] = {"id": target.table_id, "above_seq": target.version, "at_ms": now_ms}
                connection.execute(_SET_TIME, which)
                swap = {
                    "id": target.table_id,
                    "at_version": target.version,
                    "next_version": source.version,
                    "next_pointer": json_text(source.pointer),
                }
                connection.execute(_POINT, swap)
        except LostRace:
            return False
        return True

    def snapshot_ending(self, table_id: str, ending: str) -> HistoryEntry | None:
        for statement in (_ENDING_IN_BRANCHES, _ENDING_IN_TABLE):
            found = self._rows(statement, {"id": table_id, "pattern": f"%{ending}"})
            if found:
                return self.snapshot(table_id, found[0]["snapshot_id"]) if len(found) == 1 else None
        return None

    def heads(self, table_id: str) -> list[str]:
        return [row["table_id"] for row in self._rows(_HEADS, {"id": table_id})]

    def dropped_branches(self, table_id: str, *, before_ms: int) -> list[str]:
        return [row["table_id"] for row in self._rows(_SELECT_DROPPED, {"id": table_id, "before_ms": before_ms})]

    def forget_branch(self, table_id: str, *, now_ms: int) -> bool:
        with self._transaction(None) as connection:
            if connection.execute(_LOCK_DROPPED, {"id": table_id}).first() is None:
                return False
            if has_tags(connection, table_id, now_ms=now_ms) or leased_snapshots(connection, table_id, now_ms=now_ms):
                return False
            forget_rows(connection, table_id)
        return True

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        before = _MAX_SEQ if before_seq is None else before_seq
        rows = self._rows(sql.SELECT_HISTORY, {"id": table_id, "before_seq": before, "rows": limit})
        if len(rows) < limit:
            for fork in self._rows(_FORK, {"id": table_id}):
                if fork["branch_of"] is not None:
                    below = {"id": fork["branch_of"], "before_seq": min(before, fork["fork_seq"])}
                    rows += self._rows(sql.SELECT_HISTORY, {**below, "rows": limit - len(rows)})
        return [entry_record(row) for row in rows]

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        for statement in (sql.SELECT_SNAPSHOT, _SELECT_IN_FAMILY):
            for row in self._rows(statement, {"id": table_id, "wanted": snapshot_id}):
                return entry_record(row)
        raise self._missing_snapshot(table_id, snapshot_id)

    def numbered(self, table_id: str, number: int) -> HistoryEntry:
        for row in self._rows(sql.SELECT_NUMBERED, {"id": table_id, "number": number}):
            return entry_record(row)
        for fork in self._rows(_FORK, {"id": table_id}):
            if fork["branch_of"] is not None and number < fork["fork_seq"]:
                return self.numbered(fork["branch_of"], number)
        raise self._missing_number(table_id, number)

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        for row in self._rows(sql.SELECT_SNAPSHOT_AT, {"id": table_id, "at_ms": timestamp_ms}):
            return self._in_force(entry_record(row), timestamp_ms)
        for fork in self._rows(_FORK, {"id": table_id}):
            if fork["branch_of"] is not None:
                found = self.snapshot_at(fork["branch_of"], timestamp_ms)
                if found.seq < fork["fork_seq"]:
                    return found
        raise self._missing_time(table_id, timestamp_ms)

    def _continues(self, connection: Connection, target: TableRecord, source: TableRecord) -> bool:
        """Return whether the source's history has the target's current snapshot, at the same number."""
        if source.version < target.version:
            return False
        wanted = target.pointer.snapshot_id
        which = {"id": source.table_id, "wanted_seq": target.version, "next_seq": target.version + 1}
        for row in connection.execute(_NUMBERED_FROM, which).mappings():
            if row["seq"] == target.version:
                return bool(entry_record(row).pointer.snapshot_id == wanted)
            if row["prev_snapshot_id"] == wanted:
                return True
        return False


_MAX_SEQ: Final = (1 << 63) - 1
_NAMESPACE_OF: Final = select(tables.c.namespace_id).where(_this, _live, tables.c.name == bindparam("main"))


def _diverged(target: TableRecord, source: TableRecord) -> CommitConflict:
    return CommitConflict(
        f"{target.name} has commits that {source.name} does not have, so it cannot be fast-forwarded to it; cherry-pick"
        " the snapshots instead",
        blocks=[],
        snapshot_id=target.pointer.snapshot_id,
        snapshot_is="current",
    )
