"""Live tables, tags and upkeep over all namespaces, as pages list and search them.

Each query is limited to what its caller may read (:class:`~lamella.service.catalog.records.Scopes`), and to a number of
rows. Searches compare without regard to case, as far as letters of ASCII go: names have no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, bindparam, exists, false, func, literal_column, or_, select

from lamella.service.catalog.records import (
    DroppedUse,
    FoundTag,
    ListedTable,
    Scopes,
    TableFilter,
    TableOrder,
    TableVersion,
)
from lamella.service.catalog.schema import is_main, namespaces, policies, schedules, snapshots, table_row, tables, tags
from lamella.service.catalog.session import SqlSession, table_record

_live: Final = and_(tables.c.dropped_at_ms.is_(None), namespaces.c.dropped_at_ms.is_(None))
_listed_tables: Final = and_(_live, is_main)
_current: Final = and_(snapshots.c.table_id == tables.c.table_id, snapshots.c.seq == tables.c.version)
#: No table has a dot in its name, so this is the name of one table only.
_path: Final = namespaces.c.name + literal_column("'.'") + tables.c.name
_FIGURES: Final = (snapshots.c.row_count, snapshots.c.block_count, snapshots.c.file_size_bytes)
_ORDERS: Final[Mapping[TableOrder, ColumnElement[Any]]] = {
    "rows": snapshots.c.row_count,
    "size": snapshots.c.file_size_bytes,
    "blocks": snapshots.c.block_count,
    "commit": snapshots.c.timestamp_ms,
}
_IDS: Final = select(tables.c.table_id).join_from(tables, namespaces).where(_listed_tables)
_LISTED: Final = table_row.add_columns(*_FIGURES).join(snapshots, _current).where(_live)
_VERSIONS: Final = (
    select(
        tables.c.table_id,
        namespaces.c.name.label("namespace"),
        tables.c.name,
        tables.c.version,
        snapshots.c.block_count,
    )
    .join_from(tables, namespaces)
    .join(snapshots, _current)
    .where(_listed_tables)
)
#: From policies and schedules to their tables: there are fewer, often none.
_UPKEEP: Final = tuple(
    (select(upkeep.c.table_id), (tables.c.table_id == upkeep.c.table_id, *conditions))
    for upkeep, conditions in ((schedules, (schedules.c.enabled,)), (policies, ()))
)
_DROPPED_USE: Final = (
    select(func.count().label("tables"), func.coalesce(func.sum(snapshots.c.file_size_bytes), 0).label("size_bytes"))
    .join_from(tables, snapshots, _current)
    .where(
        tables.c.dropped_at_ms.is_not(None),
        is_main,
        or_(tables.c.doomed_at_ms.is_not(None), tables.c.dropped_at_ms < bindparam("before_ms")),
    )
)


def _within(scopes: Scopes | None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition on a table's names; none if everything is in reach."""
    if scopes is None:
        return ()
    whole = sorted({namespace for namespace, table in scopes if table is None})
    single = sorted({f"{namespace}.{table}" for namespace, table in scopes if table is not None})
    return (or_(namespaces.c.name.in_(whole), _path.in_(single)),)


def _holds(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    if "\0" in text:  # no stored text has one, and PostgreSQL cannot search for it
        return false()
    return func.lower(column).contains(text.lower(), autoescape=True)


def _conditions(which: TableFilter) -> tuple[ColumnElement[bool], ...]:
    found = [*_within(which.within)]
    if which.namespace is not None:
        found.append(false() if "\0" in which.namespace else namespaces.c.name == which.namespace)
    if which.name_part:
        found.append(_holds(tables.c.name, which.name_part))
    if which.path_part:
        found.append(_holds(_path, which.path_part))
    if which.location_part:
        found.append(_holds(tables.c.location, which.location_part))
    return tuple(found)


class SqlListing(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that lists over namespaces."""

    def listed_tables(
        self,
        which: TableFilter,
        *,
        order: TableOrder = "name",
        descending: bool = False,
        offset: int = 0,
        limit: int,
    ) -> list[ListedTable]:
        keys = _keys(which, order, descending=descending)
        ids = _IDS if order == "name" else _IDS.join(snapshots, _current)
        page = ids.where(*_conditions(which)).order_by(*keys).offset(offset).limit(limit).subquery("page")
        query = _LISTED.join(page, page.c.table_id == tables.c.table_id).order_by(*keys)
        return [_listed(row) for row in self._rows(query, {})]

    def count_tables(self, which: TableFilter) -> int:
        query = select(func.count()).select_from(tables).join(namespaces).where(_listed_tables, *_conditions(which))
        return sum(int(row["count_1"]) for row in self._rows(query, {}))

    def table_versions(self) -> list[TableVersion]:
        return [TableVersion(**row) for row in self._rows(_VERSIONS, {})]

    def find_tags(self, text: str, within: Scopes | None, *, now_ms: int, limit: int) -> list[FoundTag]:
        tagged = and_(snapshots.c.table_id == tags.c.table_id, snapshots.c.seq == tags.c.seq)
        query = (
            select(
                namespaces.c.name.label("namespace"),
                tables.c.name.label("table"),
                tags.c.name,
                snapshots.c.snapshot_id,
                snapshots.c.timestamp_ms,
            )
            .join_from(tags, tables, tables.c.table_id == tags.c.table_id)
            .join(namespaces)
            .join(snapshots, tagged)
            .where(
                _live,
                *_within(within),
                _holds(tags.c.name, text),
                or_(tags.c.expires_at_ms.is_(None), tags.c.expires_at_ms > now_ms),
            )
            .order_by(namespaces.c.name, tables.c.name, tags.c.name)
            .limit(limit)
        )
        return [FoundTag(**row) for row in self._rows(query, {})]

    def has_upkeep(self, within: Scopes | None) -> bool:
        reach = (namespaces.c.namespace_id == tables.c.namespace_id, _live, *_within(within))
        return any(
            self._rows(query.where(exists().where(*conditions, *reach)).limit(1), {}) for query, conditions in _UPKEEP
        )

    def dropped_use(self, *, before_ms: int) -> DroppedUse:
        (row,) = self._rows(_DROPPED_USE, {"before_ms": before_ms})
        return DroppedUse(tables=int(row["tables"]), size_bytes=int(row["size_bytes"]))


def _keys(which: TableFilter, order: TableOrder, *, descending: bool) -> tuple[ColumnElement[Any], ...]:
    """Return what tables are sorted by; in a search by name, tables with exactly that name come first."""
    names: tuple[ColumnElement[Any], ...] = (namespaces.c.name, tables.c.name)
    if order == "name":
        is_other = (func.lower(tables.c.name) != which.path_part.lower(),) if which.path_part else ()
        return (*is_other, *(name.desc() if descending else name for name in names))
    by = _ORDERS[order]
    return (by.desc() if descending else by, *names)


def _listed(row: Mapping[Any, Any]) -> ListedTable:
    values = dict(row)
    figures = {column.name: int(values.pop(column.name)) for column in _FIGURES}
    return ListedTable(record=table_record(values), **figures)
