"""A catalog as it was at an instant, as far as the histories of its tables tell.

Each table's history tells which snapshot was current then, unless that one has expired. When a table was dropped is
known while it can still be undropped. Nothing tells what a name or a property was, which tags were moved or dropped, or
that a table was once dropped and brought back: these are as they are now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, and_, func, select

from lamella.service.backup.contents import PARTS
from lamella.service.catalog.tables import namespaces, snapshots, tables


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was there then, and of which it cannot be told any more what it was."""

    name: str
    table_id: str
    why: str


class _Then(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was: its current snapshot, its namespace, and whether it had been dropped."""

    seq: int
    pointer: str
    namespace_id: int
    dropped_at_ms: int | None


class PointInTime:
    """What of each table of the catalog there was at ``at_ms``. ``lost``: tables that are not in it and should be."""

    def __init__(self, connection: Connection, at_ms: int) -> None:
        self._at_ms = at_ms
        self._all_spaces = {row.namespace_id: row for row in connection.execute(namespaces.select())}
        #: The namespaces that there were, and one that came later where a table has no other.
        self._spaces = {each for each, row in self._all_spaces.items() if row.created_at_ms <= at_ms}
        self._live_spaces: dict[str, int] = {
            self._all_spaces[each].name: each
            for each in self._spaces
            if self._not_later(self._all_spaces[each].dropped_at_ms) is None
        }
        self._names: set[tuple[int, str]] = set()
        self._then: dict[str, _Then] = {}
        lost: list[Lost] = []
        in_force = _in_force(connection, at_ms)
        found = [row for row in connection.execute(tables.select()) if row.created_at_ms <= at_ms]
        # Where two had one name, the one that is there now keeps it.
        for row in sorted(found, key=lambda row: (row.dropped_at_ms is not None, row.table_id)):
            then = self._at(row, in_force.get(row.table_id))
            if isinstance(then, _Then):
                self._then[row.table_id] = then
            else:
                name = f"{self._all_spaces[row.namespace_id].name}.{row.name}"
                lost.append(Lost(name=name, table_id=row.table_id, why=then))
        self.lost = tuple(lost)

    def rows(self, table: Table, found: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Of a table's rows those that there were, as they were."""
        names = [column.name for column in table.columns]
        for row in found:
            kept = self._row(table.name, dict(zip(names, row, strict=True)))
            if kept is not None:
                yield [kept[name] for name in names]

    def _at(self, row: Any, last: Any) -> _Then | str:
        """The table as it was, or why that cannot be told."""
        dropped_at_ms = self._not_later(row.dropped_at_ms)
        if row.doomed_at_ms is not None and dropped_at_ms is None:
            return "it was dropped for good since, and its files may be gone"
        if last is None or (last.until_ms is not None and last.until_ms <= self._at_ms):
            return "its snapshot of that time has expired"
        namespace_id = self._namespace(row.namespace_id)
        if dropped_at_ms is None:
            if (namespace_id, row.name) in self._names:
                return "another table that was there then has its name now"
            self._names.add((namespace_id, row.name))
        return _Then(seq=last.seq, pointer=last.pointer, namespace_id=namespace_id, dropped_at_ms=dropped_at_ms)

    def _namespace(self, namespace_id: int) -> int:
        """Where a table is to be that is in this namespace now, which may be later than the instant."""
        if namespace_id in self._spaces:
            return namespace_id
        name = str(self._all_spaces[namespace_id].name)
        if name not in self._live_spaces:
            self._live_spaces[name] = namespace_id
            self._spaces.add(namespace_id)
        return self._live_spaces[name]

    def _row(self, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
        part = PARTS[table]
        match part.cut:
            case "tables":
                return self._of_histories(table, row)
            case "of kept tables":
                return row if row["table_id"] in self._then else None
            case "of kept snapshots":
                then = self._then.get(row["table_id"])
                is_later = part.column is not None and row[part.column] > self._at_ms
                return None if then is None or is_later or row["seq"] > then.seq else row
        return row

    def _of_histories(self, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
        if table == "namespaces":
            if row["namespace_id"] not in self._spaces:
                return None
            return {**row, "dropped_at_ms": self._not_later(row["dropped_at_ms"])}
        then = self._then.get(row["table_id"])
        if then is None:
            return None
        if table == "tables":
            return {
                **row,
                "namespace_id": then.namespace_id,
                "version": then.seq,
                "pointer": then.pointer,
                "dropped_at_ms": then.dropped_at_ms,
            }
        if row["seq"] > then.seq:
            return None
        # Nothing has followed the last one yet.
        return {**row, "until_ms": None if row["seq"] == then.seq else row["until_ms"]}

    def _not_later(self, dropped_at_ms: int | None) -> int | None:
        return dropped_at_ms if dropped_at_ms is not None and dropped_at_ms <= self._at_ms else None


def _in_force(connection: Connection, at_ms: int) -> dict[str, Any]:
    """By table the last snapshot of its history that was made by then."""
    last = (
        select(snapshots.c.table_id, func.max(snapshots.c.seq).label("seq"))
        .where(snapshots.c.timestamp_ms <= at_ms)
        .group_by(snapshots.c.table_id)
        .subquery()
    )
    statement = select(snapshots.c.table_id, snapshots.c.seq, snapshots.c.pointer, snapshots.c.until_ms).join(
        last, and_(snapshots.c.table_id == last.c.table_id, snapshots.c.seq == last.c.seq)
    )
    return {row.table_id: row for row in connection.execute(statement)}
