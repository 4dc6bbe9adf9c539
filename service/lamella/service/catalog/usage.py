"""How tables are used, in the catalog's database: readers' reports, recorded filters, prune rates, the audit trail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, text, tuple_, update

from lamella.service.catalog.records import FeedbackBounds, FeedbackRecord, PruneRateRow, RecordedBounds, RecordedFilter
from lamella.service.catalog.schema import audit, feedback, prune_rates, recorded, service_rates, table_health
from lamella.service.catalog.session import SqlSession
from lamella.service.catalog.snapshots import LOCK_TABLE
from lamella.snapshot.errors import TableNotFound
from lamella.snapshot.manifest.block_key import KEY_BYTES
from lamella.snapshot.wire import AuditEntry, PruneRate

#: Rough overhead of a row.
_ROW_BYTES: Final = 128

_feedback_of_table = feedback.c.table_id == bindparam("id")
_one_feedback = and_(_feedback_of_table, feedback.c.question == bindparam("asks"))
_FEEDBACK_COLUMNS = [column.label(column.key) for column in feedback.c]
_SELECT_FEEDBACK = select(*_FEEDBACK_COLUMNS).where(_feedback_of_table).order_by(feedback.c.question)
_SELECT_ONE = select(*_FEEDBACK_COLUMNS).where(_one_feedback)
_INSERT_FEEDBACK = insert(feedback)
_DELETE_ONE_FEEDBACK = delete(feedback).where(_one_feedback)
_DELETE_ALL_FEEDBACK = delete(feedback).where(_feedback_of_table)
_COUNT_FEEDBACK = select(func.coalesce(func.sum(feedback.c.block_count), 0)).where(_feedback_of_table)
_AGES_FEEDBACK = (
    select(feedback.c.question, feedback.c.block_count, feedback.c.size_bytes)
    .where(_feedback_of_table)
    .order_by(feedback.c.used_at_ms.desc(), feedback.c.question)
)


class SqlFeedback(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for readers' reports."""

    def feedback(self, table_id: str) -> list[FeedbackRecord]:
        return [FeedbackRecord(**row) for row in self._rows(_SELECT_FEEDBACK, {"id": table_id})]

    def add_feedback(self, record: FeedbackRecord, bounds: FeedbackBounds) -> int:
        which = {"id": record.table_id, "asks": record.question}
        with self._transaction(None) as connection:
            _lock(connection, record.table_id)
            stored_row = connection.execute(_SELECT_ONE, which).mappings().first()
            before = _keys(b"" if stored_row is None else stored_row["blocks"])
            known = set(before)
            fresh = [key for key in dict.fromkeys(_keys(record.blocks)) if key not in known]
            free_keys = (bounds.max_bytes - _ROW_BYTES - len(record.filter_json.encode())) // KEY_BYTES
            retained = [*before, *fresh][-min(bounds.max_facts, max(free_keys, 0)) :] if free_keys > 0 else []
            connection.execute(_DELETE_ONE_FEEDBACK, which)
            if retained:
                row = {
                    "table_id": record.table_id,
                    "question": record.question,
                    "filter_json": record.filter_json,
                    "schema_id": record.schema_id,
                    "blocks": b"".join(retained),
                    "block_count": len(retained),
                    "size_bytes": _ROW_BYTES + len(record.filter_json.encode()) + KEY_BYTES * len(retained),
                    "used_at_ms": record.used_at_ms,
                }
                connection.execute(_INSERT_FEEDBACK, row)
                _shrink(connection, record.table_id, record.question, bounds)
            return len(fresh)

    def clear_feedback(self, table_id: str) -> int:
        with self._transaction(None) as connection:
            count = int(connection.execute(_COUNT_FEEDBACK, {"id": table_id}).scalar_one())
            connection.execute(_DELETE_ALL_FEEDBACK, {"id": table_id})
        return count


def _lock(connection: Connection, table_id: str) -> None:
    """Lock a table's row: two changes to the same table's reports run one after the other."""
    stored_row = connection.execute(LOCK_TABLE, {"id": table_id}).mappings().first()
    if stored_row is None or stored_row["dropped_at_ms"] is not None:
        raise TableNotFound("the table was dropped", table_id=table_id)


def _shrink(connection: Connection, table_id: str, newest: str, bounds: FeedbackBounds) -> None:
    """Delete the filters that were not reported for longest until the rest is within the limits."""
    facts = size_bytes = 0
    rows = connection.execute(_AGES_FEEDBACK, {"id": table_id}).mappings().all()
    for row in sorted(rows, key=lambda row: row["question"] != newest):
        facts += row["block_count"]
        size_bytes += row["size_bytes"]
        if row["question"] != newest and (facts > bounds.max_facts or size_bytes > bounds.max_bytes):
            connection.execute(_DELETE_ONE_FEEDBACK, {"id": table_id, "asks": row["question"]})
            facts -= row["block_count"]
            size_bytes -= row["size_bytes"]


def _keys(blocks: bytes) -> list[bytes]:
    return [bytes(blocks[at : at + KEY_BYTES]) for at in range(0, len(blocks), KEY_BYTES)]


_recorded_of_table = recorded.c.table_id == bindparam("id")
_one_recorded = and_(_recorded_of_table, recorded.c.digest == bindparam("which"))
_SELECT_FILTER: Final = (
    select(recorded).where(_recorded_of_table).order_by(recorded.c.last_ms.desc(), recorded.c.digest)
)
_SELECT_LATEST: Final = _SELECT_FILTER.limit(bindparam("rows"))
_AGES_FILTER: Final = (
    select(recorded.c.digest, recorded.c.size_bytes)
    .where(_recorded_of_table)
    .order_by(recorded.c.last_ms.desc(), recorded.c.digest)
)
_INSERT_FILTER: Final = insert(recorded)
_ADD: Final = (
    update(recorded)
    .where(_one_recorded)
    .values(
        times=recorded.c.times + bindparam("more_times"),
        considered=recorded.c.considered + bindparam("more_considered"),
        kept=recorded.c.kept + bindparam("more_kept"),
        kept_bytes=recorded.c.kept_bytes + bindparam("more_bytes"),
        last_ms=bindparam("now_ms"),
    )
)
_DELETE_ONE_FILTER: Final = delete(recorded).where(_one_recorded)
_DELETE_ALL_FILTER: Final = delete(recorded).where(_recorded_of_table)
_COUNT_FILTER: Final = select(func.count()).select_from(recorded).where(_recorded_of_table)


class SqlRecordedFilters(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for recorded filters."""

    def add_recorded(self, table_id: str, filters: Sequence[RecordedFilter], bounds: RecordedBounds) -> None:
        with self._transaction(None) as connection:
            # Writers for the same table wait here, so that no count is lost.
            if connection.execute(LOCK_TABLE, {"id": table_id}).first() is None:
                return
            for each in sorted(filters, key=lambda each: each.digest):
                if connection.execute(_ADD, _more(table_id, each)).rowcount == 0:
                    connection.execute(_INSERT_FILTER, msgspec.structs.asdict(each))
            count = size_bytes = 0
            for row in connection.execute(_AGES_FILTER, {"id": table_id}).mappings().all():
                if count < bounds.max_filters and size_bytes + row["size_bytes"] <= bounds.max_bytes:
                    count, size_bytes = count + 1, size_bytes + row["size_bytes"]
                else:
                    connection.execute(_DELETE_ONE_FILTER, {"id": table_id, "which": row["digest"]})

    def recorded(self, table_id: str, *, limit: int) -> list[RecordedFilter]:
        return [RecordedFilter(**row) for row in self._rows(_SELECT_LATEST, {"id": table_id, "rows": limit})]

    def clear_recorded(self, table_id: str) -> int:
        with self._transaction(None) as connection:
            count = int(connection.execute(_COUNT_FILTER, {"id": table_id}).scalar_one())
            connection.execute(_DELETE_ALL_FILTER, {"id": table_id})
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

_HEALTH: Final = select(table_health.c.health).where(table_health.c.table_id == bindparam("id"))

_SERVICE: Final = select(service_rates).where(service_rates.c.bucket_ms >= bindparam("since_ms"))
_OLD_SERVICE: Final = (
    select(service_rates.c.bucket_ms, service_rates.c.name)
    .where(service_rates.c.bucket_ms < bindparam("before_ms"))
    .order_by(service_rates.c.bucket_ms)
    .limit(bindparam("rows"))
)
_FORGET_SERVICE: Final = delete(service_rates).where(
    tuple_(service_rates.c.bucket_ms, service_rates.c.name).in_(_OLD_SERVICE)
)

_ENTRIES: Final = select(audit).order_by(audit.c.audit_id.desc()).limit(bindparam("rows"))
_OF_SNAPSHOTS: Final = (
    select(audit).where(audit.c.snapshot_id.in_(bindparam("ids", expanding=True))).order_by(audit.c.audit_id)
)
_OLD_ENTRIES: Final = (
    select(audit.c.audit_id)
    .where(audit.c.at_ms < bindparam("before_ms"))
    .order_by(audit.c.at_ms)
    .limit(bindparam("rows"))
)
_FORGET_ENTRIES: Final = delete(audit).where(audit.c.audit_id.in_(_OLD_ENTRIES))
_REVISION: Final = text("SELECT version_num FROM alembic_version")


class SqlUsage(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for usage data."""

    def add_prune_rates(self, rows: Iterable[PruneRateRow]) -> None:
        # One order everywhere, so that two writers do not deadlock.
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

    def put_table_health(self, table_id: str, version: int, measured_ms: int, health: str) -> None:
        insert = self._insert(table_health)
        new = {name: insert.excluded[name] for name in ("version", "measured_ms", "health")}
        statement = insert.on_conflict_do_update(
            index_elements=["table_id"], set_=new, where=table_health.c.version <= insert.excluded.version
        )
        row = {"table_id": table_id, "version": version, "measured_ms": measured_ms, "health": health}
        with self._transaction(None) as connection:
            connection.execute(statement, row)

    def table_health(self, table_id: str) -> str | None:
        return next((row["health"] for row in self._rows(_HEALTH, {"id": table_id})), None)

    def add_service_rates(self, bucket_ms: int, totals: Mapping[str, float]) -> None:
        if not totals:
            return
        insert = self._insert(service_rates)
        statement = insert.on_conflict_do_update(
            index_elements=["bucket_ms", "name"], set_={"total": service_rates.c.total + insert.excluded.total}
        )
        # One order everywhere, so that two writers do not deadlock.
        rows = [{"bucket_ms": bucket_ms, "name": name, "total": totals[name]} for name in sorted(totals)]
        with self._transaction(None) as connection:
            connection.execute(statement, rows)

    def service_rates(self, *, since_ms: int) -> dict[int, dict[str, float]]:
        found: dict[int, dict[str, float]] = {}
        for row in self._rows(_SERVICE, {"since_ms": since_ms}):
            found.setdefault(row["bucket_ms"], {})[row["name"]] = float(row["total"])
        return found

    def forget_service_rates(self, *, before_ms: int, limit: int) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_FORGET_SERVICE, {"before_ms": before_ms, "rows": limit}).rowcount

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

    def audit_of_snapshots(self, snapshot_ids: Sequence[str]) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        for start in range(0, len(snapshot_ids), _AT_ONCE):
            rows = self._rows(_OF_SNAPSHOTS, {"ids": list(snapshot_ids[start : start + _AT_ONCE])})
            found += [AuditEntry(**row) for row in rows]
        return found

    def forget_audit(self, *, before_ms: int, limit: int) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_FORGET_ENTRIES, {"before_ms": before_ms, "rows": limit}).rowcount

    def schema_revision(self) -> str:
        return ", ".join(sorted(row["version_num"] for row in self._rows(_REVISION, {})))


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["table_id"], row["bucket_ms"]


def _rate(row: Mapping[Any, Any]) -> PruneRate:
    """Make a prune rate from a row; sums are decimals on one database, and floats where bytes are stored as floats."""
    values = {name: int(row[name]) for name in _SUMMED if name != "ms"}
    return PruneRate(**values, ms=float(row["ms"]))
