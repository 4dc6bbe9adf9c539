"""Quotas in the catalog's database: held while something is added, so that they hold whoever adds something meanwhile.

Whoever adds blocks to a namespace that has a quota, or a table, holds the namespace's row until its transaction ends,
and looks at what there is after that. So two that would be too much together come one after the other. Without a quota
nothing is held, and commits to different tables do not wait for each other.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Executable, RowMapping, bindparam, func, select, text

from lamella.service.catalog import statements as sql
from lamella.service.catalog.missing import no_namespace
from lamella.service.catalog.port import HistoryEntry, NamespaceUse
from lamella.service.catalog.rows import StoredJson
from lamella.service.catalog.session import SqlSession, never_stored
from lamella.service.catalog.tables import namespaces, snapshots, tables
from lamella.service.quotas import NO_QUOTAS, Quotas

_PROPERTIES: Final = StoredJson(dict[str, str], "the properties of a namespace")
#: Key of the PostgreSQL advisory lock that whoever makes a namespace holds; any number that nothing else uses.
_NAMESPACES: Final = 0x4C414D454C4C42

_live_table = tables.c.dropped_at_ms.is_(None)
_live_namespace = namespaces.c.dropped_at_ms.is_(None)
_current = (tables.c.table_id == snapshots.c.table_id) & (tables.c.version == snapshots.c.seq)
_OF_TABLE: Final = (
    select(namespaces.c.namespace_id, namespaces.c.properties)
    .join_from(tables, namespaces)
    .where(tables.c.table_id == bindparam("id"))
)
#: What is locked is no key, so that others may still refer to the row.
_HOLD: Final = (
    select(namespaces.c.namespace_id)
    .where(namespaces.c.namespace_id == bindparam("in_namespace_id"))
    .with_for_update(key_share=True)
)
_COUNT_NAMESPACES: Final = select(func.count()).select_from(namespaces).where(_live_namespace)
_OTHERS: Final = (
    select(
        func.count().label("tables"),
        func.coalesce(func.sum(snapshots.c.block_count), 0).label("blocks"),
        func.coalesce(func.sum(snapshots.c.file_size_bytes), 0).label("bytes"),
    )
    .join_from(tables, snapshots, _current)
    .where(_live_table, tables.c.namespace_id == bindparam("in_namespace_id"), tables.c.table_id != bindparam("but"))
)
_OWN: Final = (
    select(snapshots.c.block_count, snapshots.c.file_size_bytes)
    .join_from(tables, snapshots, _current)
    .where(tables.c.table_id == bindparam("id"))
)


class SqlQuotas(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows how much there is, and may be."""

    #: Those that hold where a namespace has none of its own.
    quotas: Quotas = NO_QUOTAS

    def namespace_use(self, name: str) -> NamespaceUse:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": name}):
            which = {"in_namespace_id": row["namespace_id"], "but": ""}
            for use in self._rows(_OTHERS, which):
                quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
                counts = {member: int(use[member]) for member in ("tables", "blocks", "bytes")}
                return NamespaceUse(quotas=quotas, **counts)
        raise no_namespace(name)

    def check_room(self, table_id: str, *, blocks: int, size_bytes: int) -> None:
        for row in self._rows(_OF_TABLE, {"id": table_id}):
            quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
            for own in self._rows(_OWN, {"id": table_id}) if quotas.bounds_commits else ():
                before = own["block_count"], own["file_size_bytes"]
                after = before[0] + blocks, before[1] + size_bytes
                for others in self._rows(_OTHERS, {"in_namespace_id": row["namespace_id"], "but": table_id}):
                    _check(quotas, others, before, after)

    def check_room_for_table(self, namespace: str) -> None:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
            if quotas.tables is not None:
                for use in self._rows(_OTHERS, {"in_namespace_id": row["namespace_id"], "but": ""}):
                    quotas.check("tables", int(use["tables"]) + 1)
            return
        raise no_namespace(namespace)

    def _hold_namespaces(self, connection: Connection, name: str) -> None:
        """Before a namespace is made; raises QuotaExceeded. Where there is one of that name, that is the answer."""
        if self.quotas.namespaces is None:
            return
        if self.backend == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _NAMESPACES})
        if connection.execute(sql.SELECT_NAMESPACE, {"namespace": name}).first() is not None:
            return
        self.quotas.check("namespaces", connection.execute(_COUNT_NAMESPACES).scalar_one() + 1)

    def _hold_for_table(self, connection: Connection, namespace: str, name: str, undropped: str | None = None) -> int:
        """The id of a namespace that is not dropped until the transaction ends, before a table is put into it.

        ``undropped``: the id of one that comes with its blocks. Raises NamespaceNotFound, QuotaExceeded. Where there is
        a table of that name, that is the answer, whatever the quota.
        """
        row = namespace_row(connection, sql.SELECT_NAMESPACE, namespace)
        quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
        brings_blocks = undropped is not None and quotas.bounds_commits
        if quotas.tables is None and not brings_blocks:
            return int(namespace_row(connection, sql.SHARE_NAMESPACE, namespace)["namespace_id"])
        namespace_id = int(namespace_row(connection, sql.LOCK_NAMESPACE, namespace)["namespace_id"])
        if connection.execute(sql.SELECT_TABLE, {"namespace": namespace, "table": name}).first() is not None:
            return namespace_id
        others = connection.execute(_OTHERS, {"in_namespace_id": namespace_id, "but": undropped or ""}).mappings().one()
        quotas.check("tables", others["tables"] + 1)
        if brings_blocks:
            for own in connection.execute(_OWN, {"id": undropped}):
                _check(quotas, others, (0, 0), (own.block_count, own.file_size_bytes))
        return namespace_id

    def _hold_for_commit(self, connection: Connection, table_id: str, entry: HistoryEntry) -> None:
        """Before a snapshot becomes current; raises QuotaExceeded when its table would grow beyond a quota."""
        row = connection.execute(_OF_TABLE, {"id": table_id}).mappings().first()
        if row is None:
            return
        quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
        if not quotas.bounds_commits:
            return
        which = {"in_namespace_id": row["namespace_id"], "but": table_id}
        if quotas.blocks is not None or quotas.bytes is not None:
            connection.execute(_HOLD, which)
        own = connection.execute(_OWN, {"id": table_id}).first()
        before = (0, 0) if own is None else (own.block_count, own.file_size_bytes)
        others = connection.execute(_OTHERS, which).mappings().one()
        _check(quotas, others, before, (entry.block_count, entry.file_size_bytes))


def _check(quotas: Quotas, others: RowMapping, before: tuple[int, int], after: tuple[int, int]) -> None:
    """``before`` and ``after``: blocks and bytes of the table that changes."""
    blocks, size_bytes = int(others["blocks"]), int(others["bytes"])
    quotas.check("table_blocks", after[0], before=before[0])
    quotas.check("blocks", blocks + after[0], before=blocks + before[0])
    quotas.check("bytes", size_bytes + after[1], before=size_bytes + before[1])


def namespace_row(connection: Connection, statement: Executable, name: str) -> RowMapping:
    """A namespace that is not dropped, by a statement for that; raises NamespaceNotFound."""
    which = {"namespace": name}
    row = None if never_stored(which) else connection.execute(statement, which).mappings().first()
    if row is None:
        raise no_namespace(name)
    return row
