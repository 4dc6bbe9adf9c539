"""Prune rates and the audit trail in the catalog's database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, func, select, text, tuple_

from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.tables import audit, prune_rates
from lamella.service.catalog.watch_port import PruneRateRow
from lamella.snapshot.wire import AuditEntry, PruneRate

_AT_ONCE: Final = 500
_SUMMED: Final = ("prunes", "considered_blocks", "kept_blocks", "bytes_total", "kept_bytes", "ms")
_since = prune_rates.c.bucket_ms >= bindparam("since_ms")
_TOTALS: Final = (
    select(prune_rates.c.table_id, *(func.sum(prune_rates.c[name]).label(name) for name in _SUMMED))
    .where(prune_rates.c.table_id.in_(bindparam("wanted", expanding=True)), _since)
    .group_by(prune_rates.c.table_id)
)
_SERIES: Final = (
    select(prune_rates.c.bucket_ms, *(prune_rates.c[name] for name in _SUMMED))
    .where(prune_rates.c.table_id == bindparam("id"), _since)
    .order_by(prune_rates.c.bucket_ms)
)
_OLD_RATES: Final = (
    select(prune_rates.c.table_id, prune_rates.c.bucket_ms)
    .where(prune_rates.c.bucket_ms < bindparam("before_ms"))
    .order_by(prune_rates.c.bucket_ms)
    .limit(bindparam("rows"))
)
_FORGET_RATES: Final = delete(prune_rates).where(
    tuple_(prune_rates.c.table_id, prune_rates.c.bucket_ms).in_(_OLD_RATES)
)

_ENTRIES: Final = select(audit).order_by(audit.c.audit_id.desc()).limit(bindparam("rows"))
_OLD_ENTRIES: Final = (
    select(audit.c.audit_id)
    .where(audit.c.at_ms < bindparam("before_ms"))
    .order_by(audit.c.at_ms)
    .limit(bindparam("rows"))
)
_FORGET_ENTRIES: Final = delete(audit).where(audit.c.audit_id.in_(_OLD_ENTRIES))
_REVISION: Final = text("SELECT version_num FROM alembic_version")


class SqlWatch(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` that knows how the service is used."""

    def add_prune_rates(self, rows: Iterable[PruneRateRow]) -> None:
        # In one order everywhere, so that two who add at once do not wait for each other.
        added = sorted((msgspec.structs.asdict(row) for row in rows), key=_key)
        if not added:
            return
        insert = self._insert(prune_rates)
        more = {name: prune_rates.c[name] + insert.excluded[name] for name in _SUMMED}
        statement = insert.on_conflict_do_update(index_elements=["table_id", "bucket_ms"], set_=more)
        with self._transaction(None) as connection:
            for start in range(0, len(added), _AT_ONCE):
                connection.execute(statement, added[start : start + _AT_ONCE])

    def prune_rates(self, table_ids: Sequence[str], *, since_ms: int) -> dict[str, PruneRate]:
        found: dict[str, PruneRate] = {}
        for start in range(0, len(table_ids), _AT_ONCE):
            some = list(table_ids[start : start + _AT_ONCE])
            for row in self._rows(_TOTALS, {"wanted": some, "since_ms": since_ms}):
                found[row["table_id"]] = _rate(row)
        return found

    def prune_rate_series(self, table_id: str, *, since_ms: int) -> list[PruneRate]:
        rows = self._rows(_SERIES, {"id": table_id, "since_ms": since_ms})
        return [msgspec.structs.replace(_rate(row), bucket_ms=row["bucket_ms"]) for row in rows]

    def forget_prune_rates(self, *, before_ms: int, limit: int) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_FORGET_RATES, {"before_ms": before_ms, "rows": limit}).rowcount

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        if not entries:
            return
        statement = self._insert(audit).on_conflict_do_nothing(index_elements=["audit_id"])
        with self._transaction(None) as connection:
            for start in range(0, len(entries), _AT_ONCE):
                part = entries[start : start + _AT_ONCE]
                connection.execute(statement, [msgspec.structs.asdict(entry) for entry in part])

    def audit(self, *, before_id: str | None, limit: int, target: str | None = None) -> list[AuditEntry]:
        statement, given = _ENTRIES, {"rows": limit}
        which: dict[str, Any] = dict(given)
        if before_id is not None:
            statement = statement.where(audit.c.audit_id < bindparam("before_id"))
            which["before_id"] = before_id
        if target is not None:
            statement = statement.where(audit.c.target == bindparam("about"))
            which["about"] = target
        return [AuditEntry(**row) for row in self._rows(statement, which)]

    def forget_audit(self, *, before_ms: int, limit: int) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_FORGET_ENTRIES, {"before_ms": before_ms, "rows": limit}).rowcount

    def schema_revision(self) -> str:
        return ", ".join(sorted(row["version_num"] for row in self._rows(_REVISION, {})))


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["table_id"], row["bucket_ms"]


def _rate(row: Mapping[Any, Any]) -> PruneRate:
    """Sums come as decimals from one database and as floats where bytes are kept as such."""
    values = {name: int(row[name]) for name in _SUMMED if name != "ms"}
    return PruneRate(**values, ms=float(row["ms"]))
