"""Filters that were asked of tables, in the catalog's database: each once, with how often, within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import and_, bindparam, delete, func, insert, select, update

from lamella.service.catalog.expiry import LOCK_TABLE
from lamella.service.catalog.port import RecordedBounds, RecordedFilter
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import recorded

_of_table = recorded.c.table_id == bindparam("id")
_one = and_(_of_table, recorded.c.digest == bindparam("which"))
_SELECT: Final = select(recorded).where(_of_table).order_by(recorded.c.last_ms.desc(), recorded.c.digest)
_SELECT_LATEST: Final = _SELECT.limit(bindparam("rows"))
_AGES: Final = (
    select(recorded.c.digest, recorded.c.size_bytes)
    .where(_of_table)
    .order_by(recorded.c.last_ms.desc(), recorded.c.digest)
)
_INSERT: Final = insert(recorded)
_ADD: Final = (
    update(recorded)
    .where(_one)
    .values(
        times=recorded.c.times + bindparam("more_times"),
        considered=recorded.c.considered + bindparam("more_considered"),
        kept=recorded.c.kept + bindparam("more_kept"),
        kept_bytes=recorded.c.kept_bytes + bindparam("more_bytes"),
        last_ms=bindparam("now_ms"),
    )
)
_DELETE_ONE: Final = delete(recorded).where(_one)
_DELETE_ALL: Final = delete(recorded).where(_of_table)
_COUNT: Final = select(func.count()).select_from(recorded).where(_of_table)


class SqlRecorded(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows what was asked."""

    def add_recorded(self, table_id: str, filters: Sequence[RecordedFilter], bounds: RecordedBounds) -> None:
        with self._transaction(None) as connection:
            # Whoever records of the same table waits here, so that nobody counts beside another.
            if connection.execute(LOCK_TABLE, {"id": table_id}).first() is None:
                return
            for each in sorted(filters, key=lambda each: each.digest):
                if connection.execute(_ADD, _more(table_id, each)).rowcount == 0:
                    connection.execute(_INSERT, msgspec.structs.asdict(each))
            count = size_bytes = 0
            for row in connection.execute(_AGES, {"id": table_id}).mappings().all():
                if count < bounds.most_filters and size_bytes + row["size_bytes"] <= bounds.most_bytes:
                    count, size_bytes = count + 1, size_bytes + row["size_bytes"]
                else:
                    connection.execute(_DELETE_ONE, {"id": table_id, "which": row["digest"]})

    def recorded(self, table_id: str, *, limit: int) -> list[RecordedFilter]:
        return [RecordedFilter(**row) for row in self._rows(_SELECT_LATEST, {"id": table_id, "rows": limit})]

    def clear_recorded(self, table_id: str) -> int:
        with self._transaction(None) as connection:
            count = int(connection.execute(_COUNT, {"id": table_id}).scalar_one())
            connection.execute(_DELETE_ALL, {"id": table_id})
        return count


def _more(table_id: str, each: RecordedFilter) -> Mapping[str, Any]:
    return {
        "id": table_id,
        "which": each.digest,
        "more_times": each.times,
        "more_considered": each.considered,
        "more_kept": each.kept,
        "more_bytes": each.kept_bytes,
        "now_ms": each.last_ms,
    }
