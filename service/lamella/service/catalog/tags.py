"""Tags in the catalog's database."""

from __future__ import annotations

from sqlalchemy import RowMapping, and_, bindparam, delete, insert, or_, select, update

from lamella.service.catalog.expiry import LOCK_TABLE, require_kept
from lamella.service.catalog.port import HistoryEntry, StoredAnswer, TagRecord
from lamella.service.catalog.rows import entry_record
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.statements import history_row
from lamella.service.catalog.tables import snapshots, tags
from lamella.snapshot.errors import AlreadyExists, TableNotFound, TagNotFound

_of_table = tags.c.table_id == bindparam("id")
_named = and_(_of_table, tags.c.name == bindparam("tag"))
_alive = or_(tags.c.expires_at_ms.is_(None), tags.c.expires_at_ms > bindparam("now_ms"))
_its_snapshot = and_(tags.c.table_id == snapshots.c.table_id, tags.c.seq == snapshots.c.seq)

_SELECT = (
    select(
        tags.c.table_id,
        tags.c.name,
        tags.c.seq,
        snapshots.c.snapshot_id,
        snapshots.c.timestamp_ms,
        tags.c.created_at_ms,
        tags.c.expires_at_ms,
    )
    .join_from(tags, snapshots, _its_snapshot)
    .where(_alive)
)
_SELECT_ALL = _SELECT.where(_of_table)
_SELECT_ONE = _SELECT.where(_named)
_SELECT_TAGGED = history_row.join(tags, _its_snapshot).where(_named, _alive)
_INSERT = insert(tags)
_MOVE = update(tags).where(_named, _alive).values(seq=bindparam("to_seq"), expires_at_ms=bindparam("until_ms"))
_DROP = delete(tags).where(_named, _alive)
_FORGET_DEAD = delete(tags).where(_named, tags.c.expires_at_ms <= bindparam("now_ms"))


class SqlTags(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows tags."""

    def tags(self, table_id: str, *, now_ms: int) -> list[TagRecord]:
        found = [_tag(row) for row in self._rows(_SELECT_ALL, {"id": table_id, "now_ms": now_ms})]
        return sorted(found, key=lambda tag: tag.name)  # databases differ in how they collate

    def tag(self, table_id: str, name: str, *, now_ms: int) -> TagRecord:
        for row in self._rows(_SELECT_ONE, {"id": table_id, "tag": name, "now_ms": now_ms}):
            return _tag(row)
        raise _no_tag(name)

    def tagged(self, table_id: str, name: str, *, now_ms: int) -> HistoryEntry:
        for row in self._rows(_SELECT_TAGGED, {"id": table_id, "tag": name, "now_ms": now_ms}):
            return entry_record(row)
        raise _no_tag(name)

    def put_tag(self, tag: TagRecord, *, move: bool, now_ms: int, remember: StoredAnswer | None = None) -> None:
        which = {"id": tag.table_id, "tag": tag.name, "now_ms": now_ms}
        with self._transaction(remember) as connection:
            # Whoever expires snapshots holds the same row: what is found here stays until the tag protects it.
            held = connection.execute(LOCK_TABLE, {"id": tag.table_id}).mappings().first()
            if held is None or held["dropped_at_ms"] is not None:
                raise TableNotFound("the table was dropped", table_id=tag.table_id)
            require_kept(connection, tag.table_id, tag.seq)
            if move:
                moved = connection.execute(_MOVE, {**which, "to_seq": tag.seq, "until_ms": tag.expires_at_ms})
                if moved.rowcount != 1:
                    raise _no_tag(tag.name)
                return
            connection.execute(_FORGET_DEAD, which)
            if connection.execute(_SELECT_ONE, which).first() is not None:
                raise AlreadyExists(f"there is a tag {tag.name!r} already; say so to move it", tag=tag.name)
            row = {
                "table_id": tag.table_id,
                "name": tag.name,
                "seq": tag.seq,
                "created_at_ms": tag.created_at_ms,
                "expires_at_ms": tag.expires_at_ms,
            }
            connection.execute(_INSERT, row)

    def drop_tag(self, table_id: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            if connection.execute(_DROP, {"id": table_id, "tag": name, "now_ms": now_ms}).rowcount != 1:
                raise _no_tag(name)


def _tag(row: RowMapping) -> TagRecord:
    return TagRecord(**row)


def _no_tag(name: str) -> TagNotFound:
    return TagNotFound(f"the table has no tag {name!r}", tag=name)
