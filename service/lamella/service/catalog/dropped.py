"""Dropped tables in the catalog's database: brought back, or forgotten for good."""

from __future__ import annotations

from typing import Any

from sqlalchemy import RowMapping, bindparam, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import statements as sql
from lamella.service.catalog.missing import no_namespace
from lamella.service.catalog.port import DroppedTable, StoredAnswer
from lamella.service.catalog.quotas import SqlQuotas
from lamella.service.catalog.rows import table_record
from lamella.service.catalog.tables import (
    condemned,
    feedback,
    leases,
    namespaces,
    policies,
    prune_rates,
    recorded,
    schedules,
    snapshots,
    sweeps,
    tables,
    tags,
)
from lamella.snapshot.errors import AlreadyExists, TableNotFound

_this_table = tables.c.table_id == bindparam("id")
_is_dropped = tables.c.dropped_at_ms.is_not(None)
_is_doomed = tables.c.doomed_at_ms.is_not(None)

_dropped_row = sql.table_row.add_columns(tables.c.dropped_at_ms, tables.c.doomed_at_ms).where(_is_dropped)
_SELECT_OF_NAMESPACE = _dropped_row.where(~_is_doomed, namespaces.c.name == bindparam("namespace")).order_by(
    tables.c.dropped_at_ms.desc(), tables.c.table_id.desc()
)
_SELECT_OF_THIS_NAMESPACE = _SELECT_OF_NAMESPACE.where(namespaces.c.dropped_at_ms.is_(None))
_SELECT_OLD = _dropped_row.where(or_(_is_doomed, tables.c.dropped_at_ms < bindparam("before_ms"))).order_by(
    tables.c.dropped_at_ms, tables.c.table_id
)
_UNDROP = (
    update(tables)
    .where(_this_table, _is_dropped, ~_is_doomed)
    .values(dropped_at_ms=None, namespace_id=bindparam("to_namespace_id"), name=bindparam("to_name"))
)
_DOOM = (
    update(tables)
    .where(_this_table, _is_dropped, or_(_is_doomed, tables.c.dropped_at_ms < bindparam("before_ms")))
    .values(doomed_at_ms=func.coalesce(tables.c.doomed_at_ms, bindparam("now_ms")))
)
_LOCK_DOOMED = select(tables.c.table_id).where(_this_table, _is_doomed).with_for_update()
_FORGET = (
    delete(tags).where(tags.c.table_id == bindparam("id")),
    delete(leases).where(leases.c.table_id == bindparam("id")),
    delete(condemned).where(condemned.c.table_id == bindparam("id")),
    delete(sweeps).where(sweeps.c.table_id == bindparam("id")),
    delete(feedback).where(feedback.c.table_id == bindparam("id")),
    delete(recorded).where(recorded.c.table_id == bindparam("id")),
    delete(prune_rates).where(prune_rates.c.table_id == bindparam("id")),
    delete(schedules).where(schedules.c.table_id == bindparam("id")),
    delete(policies).where(policies.c.table_id == bindparam("id")),
    delete(snapshots).where(snapshots.c.table_id == bindparam("id")),
    delete(tables).where(_this_table),
)


class SqlDropped(SqlQuotas):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows dropped tables."""

    def dropped_tables(self, namespace: str, *, earlier: bool = True) -> list[DroppedTable]:
        if not self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            raise no_namespace(namespace)
        wanted = _SELECT_OF_NAMESPACE if earlier else _SELECT_OF_THIS_NAMESPACE
        return [_dropped(row) for row in self._rows(wanted, {"namespace": namespace})]

    def undrop_table(self, table_id: str, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = self._hold_for_table(connection, namespace, name, table_id)
            change: dict[str, Any] = {"id": table_id, "to_namespace_id": namespace_id, "to_name": name}
            try:
                undropped = connection.execute(_UNDROP, change)
            except IntegrityError as error:
                raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name) from error
            if undropped.rowcount != 1:
                raise TableNotFound("there is no dropped table with that id", table_id=table_id)

    def dropped_before(self, before_ms: int) -> list[DroppedTable]:
        return [_dropped(row) for row in self._rows(_SELECT_OLD, {"before_ms": before_ms})]

    def doom_table(self, table_id: str, *, dropped_before_ms: int, now_ms: int) -> bool:
        which = {"id": table_id, "before_ms": dropped_before_ms, "now_ms": now_ms}
        with self._transaction(None) as connection:
            return connection.execute(_DOOM, which).rowcount == 1

    def forget_table(self, table_id: str) -> bool:
        with self._transaction(None) as connection:
            if connection.execute(_LOCK_DOOMED, {"id": table_id}).first() is None:
                return False
            for statement in _FORGET:
                connection.execute(statement, {"id": table_id})
        return True


def _dropped(row: RowMapping) -> DroppedTable:
    record = {name: value for name, value in row.items() if name not in ("dropped_at_ms", "doomed_at_ms")}
    return DroppedTable(
        record=table_record(record), dropped_at_ms=row["dropped_at_ms"], doomed=row["doomed_at_ms"] is not None
    )
