"""Coordinates clean-ups and commits through the catalog's database.

A clean-up *condemns* objects in one transaction, then checks a last time what is in use, and only then deletes. A
commit carries a :class:`CommitGuard`, made before it looked at its files, into the transaction that makes it current.
Both transactions lock the table's row (and, for files outside of tables, the row ``*`` of ``sweeps``), so one runs
after the other: either the clean-up's last check sees the commit, or the commit sees the clean-up and is refused.
docs/decisions/0016-vacuum.md discusses the cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec
from sqlalchemy import Connection, Text, bindparam, case, delete, func, insert, select, union_all, update

from lamella.service.catalog.records import CommitGuard, HistoryEntry, SweepMark
from lamella.service.catalog.schema import deletion_marks, is_main, own_history, snapshots, sweeps, tables
from lamella.service.catalog.session import SqlSession, entry_record
from lamella.service.catalog.snapshots import LOCK_TABLE
from lamella.snapshot.errors import DeletionPending, TableNotFound, Unavailable

_EVERYWHERE: Final = "*"
_AT_ONCE: Final = 500
#: Objects that a commit uses although it did not write them: blocks, and parts of skip indexes.
_REUSED_KINDS: Final = ("block", "index")

_Item = TypeVar("_Item")

_HISTORY = own_history.order_by(snapshots.c.seq.desc())
_TABLES = select(tables.c.table_id).where(tables.c.doomed_at_ms.is_(None))
_ELSEWHERE = (
    select(tables.c.location)
    .where(is_main, tables.c.location != bindparam("folder", type_=Text) + tables.c.table_id)
    .order_by(tables.c.location)
)
_STATE = select(sweeps.c.table_id, sweeps.c.epoch, sweeps.c.watermark_ms).where(
    sweeps.c.table_id.in_(bindparam("ids", expanding=True))
)
#: The same for tables and branches: the files of a branch belong to its table.
_STATE_OF_HEADS = union_all(
    select(tables.c.table_id, sweeps.c.epoch)
    .join_from(tables, sweeps, sweeps.c.table_id == func.coalesce(tables.c.branch_of, tables.c.table_id))
    .where(tables.c.table_id.in_(bindparam("ids", expanding=True))),
    select(sweeps.c.table_id, sweeps.c.epoch).where(sweeps.c.table_id == _EVERYWHERE),
)
#: A shared lock: commits do not wait for each other, only for a clean-up that condemns files.
_LOCKED_STATE = _STATE.with_for_update(read=True)
_AMONG = select(deletion_marks.c.location).where(deletion_marks.c.location.in_(bindparam("wanted", expanding=True)))
_OF_TABLE = (
    select(
        deletion_marks.c.location,
        deletion_marks.c.table_id,
        deletion_marks.c.kind,
        deletion_marks.c.size_bytes,
        deletion_marks.c.marked_at_ms.label("marked_at_ms"),
    )
    .where(deletion_marks.c.table_id == bindparam("id"), deletion_marks.c.location > bindparam("after"))
    .order_by(deletion_marks.c.location)
    .limit(bindparam("rows"))
)
_MARK = insert(deletion_marks)
_FORGET = delete(deletion_marks).where(
    deletion_marks.c.table_id == bindparam("id"), deletion_marks.c.location.in_(bindparam("wanted", expanding=True))
)
_ADVANCE = (
    update(sweeps)
    .where(sweeps.c.table_id == bindparam("whose"))
    .values(
        epoch=sweeps.c.epoch + bindparam("steps"),
        watermark_ms=case(
            (sweeps.c.watermark_ms < bindparam("to_ms"), bindparam("to_ms")), else_=sweeps.c.watermark_ms
        ),
    )
)
_START = insert(sweeps)


def require_unswept(connection: Connection, guards: Sequence[tuple[str, CommitGuard]]) -> None:
    """Raise Unavailable if a clean-up may have deleted what a commit uses; ``guards``: with the tables that have the
    files. The caller holds the locks on the rows of these tables.
    """
    if not guards:
        return
    rows = connection.execute(_LOCKED_STATE, {"ids": [*(table_id for table_id, _ in guards), _EVERYWHERE]}).all()
    watermarks_ms = {row.table_id: int(row.watermark_ms) for row in rows}
    epochs = {row.table_id: int(row.epoch) for row in rows}
    for table_id, guard in guards:
        if watermarks_ms.get(table_id, -1) >= guard.since_ms:
            raise Unavailable("a clean-up overtook this commit, which took very long; send it again", retry_after_s=0)
        if guard.adds_files and _epochs(epochs, table_id) != guard.epochs:
            raise Unavailable("a clean-up deleted files during this commit; send it again", retry_after_s=0)


def _epochs(state: Mapping[str, int], table_id: str) -> tuple[int, int]:
    """Return the epochs of a table, and of files outside of tables."""
    return state.get(table_id, 0), state.get(_EVERYWHERE, 0)


class SqlCleanup(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for objects that are being deleted."""

    def whole_history(self, table_id: str) -> list[HistoryEntry]:
        return [entry_record(row) for row in self._rows(_HISTORY, {"id": table_id})]

    def tables_with_files(self) -> list[str]:
        return sorted(row["table_id"] for row in self._rows(_TABLES, {}))

    def tables_elsewhere(self, warehouse: str) -> list[str]:
        return [row["location"] for row in self._rows(_ELSEWHERE, {"folder": f"{warehouse}/"})]

    def guard(self, table_id: str, files: Iterable[str], *, since_ms: int) -> CommitGuard:
        # The state is read first: condemning objects later raises the epoch.
        guard = self.guards([table_id], since_ms=since_ms)[table_id]
        adds_files = False
        for some in _parts(files):
            adds_files = True
            for row in self._rows(_AMONG, {"wanted": some}):
                location = row["location"]
                # Not Unavailable: if the clean-up was interrupted, the mark stays until the next one, perhaps for days.
                text = f"a clean-up will delete {location}; write its rows to a new file"
                raise DeletionPending(text, location=location)
        return msgspec.structs.replace(guard, adds_files=adds_files)

    def guards(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, CommitGuard]:
        rows = self._rows(_STATE_OF_HEADS, {"ids": list(table_ids)})
        state = {row["table_id"]: int(row["epoch"]) for row in rows}
        return {
            each: CommitGuard(since_ms=since_ms, epochs=_epochs(state, each), adds_files=False) for each in table_ids
        }

    def mark_for_deletion(self, table_id: str, objects: Sequence[SweepMark], *, watermark_ms: int) -> None:
        kinds = {one.kind for one in objects}
        with self._transaction(None) as connection:
            if connection.execute(LOCK_TABLE, {"id": table_id}).first() is None:
                raise TableNotFound("the table is not in the catalog", table_id=table_id)
            known: set[str] = set()
            for some in _parts(one.location for one in objects):
                found = connection.execute(_AMONG.where(deletion_marks.c.table_id == table_id), {"wanted": some})
                known.update(found.scalars())
            for part in _parts(one for one in objects if one.location not in known):
                connection.execute(_MARK, [msgspec.structs.asdict(one) for one in part])
            step = {"whose": table_id, "steps": int(not kinds.isdisjoint(_REUSED_KINDS)), "to_ms": watermark_ms}
            if connection.execute(_ADVANCE, step).rowcount != 1:
                connection.execute(_START, {"table_id": table_id, "epoch": step["steps"], "watermark_ms": watermark_ms})
            if "external" in kinds:
                connection.execute(_ADVANCE, {"whose": _EVERYWHERE, "steps": 1, "to_ms": 0})

    def deletion_marks(self, table_id: str, *, after: str, limit: int) -> list[SweepMark]:
        which = {"id": table_id, "after": after, "rows": limit}
        return [SweepMark(**row) for row in self._rows(_OF_TABLE, which)]

    def unmark(self, table_id: str, locations: Iterable[str]) -> None:
        with self._transaction(None) as connection:
            for some in _parts(locations):
                connection.execute(_FORGET, {"id": table_id, "wanted": some})


def _parts(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    waiting = iter(items)
    while part := list(islice(waiting, _AT_ONCE)):
        yield part
