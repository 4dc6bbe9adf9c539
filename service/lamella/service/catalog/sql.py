"""The catalog on a SQL database, SQLite or PostgreSQL, with SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Engine, RowMapping, bindparam, delete, select, tuple_
from sqlalchemy.exc import IntegrityError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.access import SqlAccess
from lamella.service.catalog.branches import SqlBranches
from lamella.service.catalog.cleanup import SqlCleanup, require_unswept
from lamella.service.catalog.engine import CatalogListener, catalog_url, open_engine, usable_file
from lamella.service.catalog.jobs import SqlJobClaims, SqlJobs
from lamella.service.catalog.listing import SqlListing
from lamella.service.catalog.migrate import migrate
from lamella.service.catalog.quotas import NO_QUOTAS, Quotas
from lamella.service.catalog.records import (
    BRANCH_SIGN,
    MAIN,
    CommitGuard,
    HistoryEntry,
    PointerSwap,
    RefChanges,
    StoredAnswer,
    TableRecord,
    main_name,
    no_branch,
    no_namespace,
    no_table,
)
from lamella.service.catalog.refs import change_refs, tables_to_lock
from lamella.service.catalog.schedules import SqlSchedules
from lamella.service.catalog.schema import idempotency, secrets
from lamella.service.catalog.session import (
    LostRace,
    SqlSession,
    StoredJson,
    database_errors,
    json_text,
    snapshot_row,
    table_record,
)
from lamella.service.catalog.snapshots import (
    LOCK_TABLE,
    LOCK_TABLES,
    SHARE_TABLE,
    SqlLeases,
    SqlTags,
    require_in_history,
)
from lamella.service.catalog.tables import (
    CurrentTables,
    SqlDropped,
    SqlQuotas,
    TableQuota,
    check_quota,
    name_branches,
    namespace_row,
    refuse_view,
)
from lamella.service.catalog.usage import SqlFeedback, SqlRecordedFilters, SqlUsage
from lamella.service.catalog.views import SqlViews
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import (
    AlreadyExists,
    CommitConflict,
    NamespaceNotEmpty,
    OutcomeUnknown,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import NamespaceInfo

_OLDEST: Final = (
    select(idempotency.c.key, idempotency.c.scope)
    .where(idempotency.c.created_at_ms < bindparam("before_ms"))
    .order_by(idempotency.c.created_at_ms)
    .limit(bindparam("rows"))
)
_DELETE_OLDEST: Final = delete(idempotency).where(tuple_(idempotency.c.key, idempotency.c.scope).in_(_OLDEST))


class SqlAnswers(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for stored answers."""

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        for row in self._rows(sql.SELECT_ANSWER, {"wanted_key": key, "wanted_scope": scope}):
            return StoredAnswer(**row)
        return None

    def keep_answer(self, answer: StoredAnswer) -> None:
        with self._transaction(answer):
            pass  # the transaction has nothing else to store

    def forget_answers(self, *, before_ms: int, limit: int = 1000) -> int:
        with self._transaction(None) as connection:
            return connection.execute(_DELETE_OLDEST, {"before_ms": before_ms, "rows": limit}).rowcount


_PROPERTIES = StoredJson(dict[str, str], "the properties of a namespace")


def open_catalog(
    url: str,
    *,
    timeout_s: float = 30.0,
    connections: int = 8,
    auto_migrate: bool | None = None,
    quotas: Quotas = NO_QUOTAS,
) -> SqlCatalog:
    """Connect, migrate the schema if needed, and return the catalog.

    A new database is set up. An older schema is migrated if ``auto_migrate`` is true, or if it is None and this is
    SQLite.

    Raises:
        CatalogOutdated: the schema is older and may not be migrated.
        InvalidRequest: the address cannot be used.
        UnsupportedFormat: the database belongs to a newer release.
        Unavailable: the database does not answer.
    """
    engine = open_engine(catalog_url(url), timeout_s=timeout_s, connections=connections)
    try:
        with database_errors(), usable_file(engine):
            is_sqlite = engine.dialect.name == "sqlite"
            migrate(engine, may_upgrade=is_sqlite if auto_migrate is None else auto_migrate)
    except BaseException:
        engine.dispose()
        raise
    catalog = SqlCatalog(engine)
    catalog.quotas = quotas
    return catalog


class SqlCatalog(
    SqlAccess,
    SqlAnswers,
    SqlTags,
    SqlLeases,
    SqlFeedback,
    SqlRecordedFilters,
    SqlJobs,
    SqlJobClaims,
    SqlSchedules,
    SqlUsage,
    SqlCleanup,
    SqlListing,
    SqlDropped,
    SqlBranches,
    SqlViews,
    SqlQuotas,
    SqlSession,
):
    """:class:`~lamella.service.catalog.port.Catalog` on an engine whose schema is up to date."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._current = CurrentTables(engine)
        self.is_instant = self._current.is_instant

    def listen_to(self, listener: CatalogListener) -> None:
        super().listen_to(listener)
        self._current.listener = listener

    def secret(self, name: str, fresh: bytes) -> bytes:
        for row in self._rows(sql.SELECT_SECRET, {"name": name}):
            return bytes(row["value"])
        try:
            with self._transaction(None) as connection:
                connection.execute(sql.INSERT_SECRET, {"name": name, "value": fresh})
        except IntegrityError:
            return self.secret(name, fresh)  # another process was faster; its secret is stored now
        return fresh

    def ping(self) -> None:
        self._rows(sql.PING, {})

    def check_write(self) -> None:
        row = {"name": "readiness", "value": b""}
        upsert = self._insert(secrets).values(row)
        try:
            with self._transaction(None) as connection:
                connection.execute(upsert.on_conflict_do_update(index_elements=["name"], set_=row))
        except OutcomeUnknown as error:  # nothing needs the test write
            raise Unavailable("the catalog database accepts no writes", retry_after_s=1) from error

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        row = {"name": info.name, "properties": json_text(info.properties), "created_at_ms": now_ms}
        with self._transaction(remember) as connection:
            self._lock_namespaces(connection, info.name)
            try:
                connection.execute(sql.INSERT_NAMESPACE, row)
            except IntegrityError as error:
                raise AlreadyExists(f"namespace {info.name!r} exists", namespace=info.name) from error

    def namespaces(self) -> list[NamespaceInfo]:
        found = [_namespace(row) for row in self._rows(sql.SELECT_NAMESPACES, {})]
        return sorted(found, key=lambda info: info.name)  # databases differ in their collation

    def namespace(self, name: str) -> NamespaceInfo:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": name}):
            return _namespace(row)
        raise no_namespace(name)

    def change_namespace(
        self, before: NamespaceInfo, after: NamespaceInfo, *, remember: StoredAnswer | None = None
    ) -> bool:
        change = {
            "namespace": before.name,
            "old_properties": json_text(before.properties),
            "new_properties": json_text(after.properties),
        }
        try:
            with self._transaction(remember) as connection:
                if connection.execute(sql.CHANGE_NAMESPACE, change).rowcount != 1:
                    raise LostRace
        except LostRace:
            return False
        return True

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            which = {"in_namespace_id": namespace_row(connection, sql.LOCK_NAMESPACE, name)["namespace_id"]}
            count = connection.execute(sql.COUNT_TABLES, which).scalar_one()
            if count:
                raise NamespaceNotEmpty(
                    f"namespace {name!r} holds {counted(count, 'table')}", namespace=name, tables=count
                )
            count = connection.execute(sql.COUNT_VIEWS, which).scalar_one()
            if count:
                raise NamespaceNotEmpty(
                    f"namespace {name!r} holds {counted(count, 'view')}", namespace=name, views=count
                )
            connection.execute(sql.DROP_NAMESPACE, {**which, "now_ms": now_ms})

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = self._lock_for_table(connection, table.namespace, table.name)
            row = {
                "table_id": table.table_id,
                "namespace_id": namespace_id,
                "name": table.name,
                "location": table.location,
                "version": first.seq,
                "pointer": json_text(first.pointer),
                "created_at_ms": table.created_at_ms,
            }
            try:
                connection.execute(sql.INSERT_TABLE, row)
            except IntegrityError as error:
                name = f"{table.namespace}.{table.name}"
                raise AlreadyExists(f"table {name!r} exists", namespace=table.namespace, table=table.name) from error
            connection.execute(sql.INSERT_SNAPSHOT, snapshot_row(table.table_id, first))

    def tables(self, namespace: str) -> list[str]:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            which = {"in_namespace_id": row["namespace_id"]}
            return sorted(found["name"] for found in self._rows(sql.SELECT_TABLE_NAMES, which))
        raise no_namespace(namespace)

    def some_names(self, namespace: str | None, *, limit: int) -> list[str]:
        if namespace is None:
            rows = self._rows(sql.SELECT_SOME_NAMESPACES, {"rows": limit})
        else:
            rows = self._rows(sql.SELECT_SOME_TABLES, {"namespace": namespace, "rows": limit})
        return [row["name"] for row in rows]

    def table(self, namespace: str, name: str) -> TableRecord:
        name = name.removesuffix(BRANCH_SIGN + MAIN)
        for row in self._rows(sql.SELECT_TABLE, {"namespace": namespace, "table": name}):
            return table_record(row)
        self.namespace(namespace)
        if BRANCH_SIGN in name and self._rows(sql.SELECT_TABLE, {"namespace": namespace, "table": main_name(name)}):
            raise no_branch(namespace, name)
        raise no_table(namespace, main_name(name))

    def tables_at_once(self, names: Sequence[tuple[str, str]]) -> list[TableRecord]:
        names = [(namespace, table.removesuffix(BRANCH_SIGN + MAIN)) for namespace, table in names]
        stored = [name for name in names if "\0" not in name[0] + name[1]]
        which = {
            "namespaces": sorted({namespace for namespace, _ in stored}),
            "tables": sorted({table for _, table in stored}),
            "names": stored,
        }
        found = {(row["namespace"], row["name"]): row for row in self._rows(sql.SELECT_NAMED_TABLES, which)}
        for namespace, table in names:
            if (namespace, table) not in found:
                self.table(namespace, table)  # raises what is missing
                raise no_table(namespace, main_name(table))
        return [table_record(found[name]) for name in names]

    def current(self, namespace: str, name: str) -> TableRecord | None:
        return self._current.find(namespace, name)

    def table_by_id(self, table_id: str) -> TableRecord:
        for row in self._rows(sql.SELECT_TABLE_BY_ID, {"id": table_id}):
            return table_record(row)
        raise TableNotFound("the table was dropped", table_id=table_id)

    def tables_by_id(self, table_ids: Sequence[str]) -> dict[str, TableRecord]:
        rows = self._rows(sql.SELECT_TABLES_BY_ID, {"ids": table_ids})
        return {row["table_id"]: table_record(row) for row in rows}

    def drop_table(
        self,
        namespace: str,
        name: str,
        *,
        now_ms: int,
        purge: bool = False,
        base_snapshot_id: str | None = None,
        remember: StoredAnswer | None = None,
    ) -> None:
        record = self.table(namespace, name)
        which: dict[str, Any] = {"id": record.table_id, "now_ms": now_ms, "doomed": now_ms if purge else None}
        statement = sql.DROP_TABLE
        if base_snapshot_id is not None:
            _require_current(record, base_snapshot_id)
            statement, which["at_version"] = sql.DROP_TABLE_AT, record.version
        with self._transaction(remember) as connection:
            dropped = connection.execute(statement, which)
            if dropped.rowcount != 1:
                if base_snapshot_id is not None:
                    _require_current(self.table(namespace, name), base_snapshot_id)
                raise no_table(namespace, name)
            connection.execute(sql.DROP_BRANCHES, {key: which[key] for key in ("id", "now_ms", "doomed")})

    def rename_table(
        self, table: TableRecord, namespace: str, name: str, *, remember: StoredAnswer | None = None
    ) -> None:
        with self._transaction(remember) as connection:
            which: dict[str, Any] = {"id": table.table_id, "of_name": table.name, "to_name": name}
            of_namespace = namespace_row(connection, sql.SHARE_NAMESPACE, table.namespace)["namespace_id"]
            if namespace == table.namespace:
                to_namespace = of_namespace
                refuse_view(connection, to_namespace, namespace, name)
            else:
                to_namespace = self._lock_for_table(connection, namespace, name, table.table_id)
            which |= {"of_namespace_id": of_namespace, "to_namespace_id": to_namespace}
            try:
                renamed = connection.execute(sql.RENAME_TABLE, which)
            except IntegrityError as error:
                raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name) from error
            if renamed.rowcount != 1:
                raise no_table(table.namespace, table.name)
            name_branches(connection, sql.LIVE_BRANCHES, {"id": table.table_id}, to_namespace, name)

    def advance(
        self,
        table_id: str,
        entry: HistoryEntry,
        *,
        branch_of: str | None = None,
        required: HistoryEntry | None = None,
        guard: CommitGuard | None = None,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
        unchanged: Mapping[str, int] | None = None,
        refs: RefChanges | None = None,
    ) -> bool:
        swap = PointerSwap(table_id=table_id, entry=entry, branch_of=branch_of, required=required, guard=guard)
        with_refs = () if refs is None else (refs,)
        return self.advance_all([swap], remember=remember, unchanged=unchanged, refs=with_refs)

    def advance_all(
        self,
        swaps: Sequence[PointerSwap],
        *,
        remember: StoredAnswer | Sequence[StoredAnswer] | None = None,
        unchanged: Mapping[str, int] | None = None,
        refs: Sequence[RefChanges] = (),
    ) -> bool:
        swaps = [*swaps, *(each for change in refs for each in change.swaps)]
        changed = {swap.table_id: swap.entry.seq - 1 for swap in swaps}
        # A clean-up of the table's files locks its row, so a commit to a branch does, too.
        shared: dict[str, int | None] = {swap.branch_of: None for swap in swaps if swap.branch_of is not None}
        dropped, needed = tables_to_lock(refs)
        shared |= dict.fromkeys((*dropped, *needed))
        versions = {**shared, **(unchanged or {}), **changed}
        try:
            with self._transaction(remember) as connection:
                quotas = self._lock_quotas(connection, changed)
                if len(versions) > 1 and not _lock_versions(connection, versions, changed.keys() | dropped):
                    raise LostRace
                # The check of a quota counts the tables that were swapped before.
                for some in ([swap] for swap in swaps) if quotas else (swaps,):
                    _swap(connection, some, quotas)
                for change in refs:
                    change_refs(connection, change, quotas)
        except LostRace:
            return False
        return True

    def close(self) -> None:
        self._current.close()
        self._engine.dispose()


def _swap(connection: Connection, swaps: Sequence[PointerSwap], quotas: Mapping[str, TableQuota]) -> None:
    """Make snapshots current; if there are several, the caller has locked the tables at the versions before.

    Raises LostRace, QuotaExceeded, SnapshotExpired, Unavailable.
    """
    for swap in swaps:
        if swap.table_id in quotas:
            check_quota(connection, swap.table_id, swap.entry, quotas[swap.table_id])
    rows = [
        {
            "id": swap.table_id,
            "expected_version": swap.entry.seq - 1,
            "next_version": swap.entry.seq,
            "next_pointer": json_text(swap.entry.pointer),
        }
        for swap in swaps
    ]
    if len(rows) > 1:
        connection.execute(sql.SWAP_POINTER, rows)
    elif connection.execute(sql.SWAP_POINTER, rows[0]).rowcount != 1:
        raise LostRace
    for swap in swaps:
        if swap.required is not None:
            require_in_history(connection, swap.required.table_id, swap.required.seq)
    guards = [(swap.branch_of or swap.table_id, swap.guard) for swap in swaps if swap.guard is not None]
    require_unswept(connection, guards)
    connection.execute(sql.INSERT_SNAPSHOT, [snapshot_row(swap.table_id, swap.entry) for swap in swaps])


def _lock_versions(connection: Connection, versions: Mapping[str, int | None], changed: Container[str]) -> bool:
    """Lock tables until the transaction ends, those in ``changed`` for a change; return whether they have these
    versions (None: any).

    In the order of their ids, so that two commits that depend on each other's table do not wait for each other.
    """
    found: dict[str, int] = {}
    if all(each in changed for each in versions):
        locked = connection.execute(LOCK_TABLES, {"ids": sorted(versions)})
        found.update((row.table_id, row.version) for row in locked if row.dropped_at_ms is None)
    else:
        for each in sorted(versions):
            locked = connection.execute(LOCK_TABLE if each in changed else SHARE_TABLE, {"id": each})
            found.update((each, row.version) for row in locked if row.dropped_at_ms is None)
    return all(each in found and version in (None, found[each]) for each, version in versions.items())


def _require_current(record: TableRecord, base_snapshot_id: str) -> None:
    current = record.pointer.snapshot_id
    if base_snapshot_id != current:
        raise CommitConflict(
            f"the current snapshot is {current}, not {base_snapshot_id}",
            blocks=[],
            snapshot_id=current,
            snapshot_is="current",
        )


def _namespace(row: RowMapping) -> NamespaceInfo:
    return NamespaceInfo(name=row["name"], properties=_PROPERTIES.decode(row["properties"]))
