"""Tables in the catalog's database: the current pointer, quotas of namespaces, dropped tables.

Nothing is cached, so nothing can be stale: every lookup asks the database which snapshot is current. A statement
through SQLAlchemy takes fifteen times as long as on SQLite's own connection; on PostgreSQL this saves the round trip in
which the pool checks the connection.

A transaction that adds a table, or adds blocks under a quota, locks the namespace's row until it ends, and reads the
usage after that. So two transactions that together would exceed the quota run one after the other. Without a quota
nothing is locked, and commits to different tables do not wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    RowMapping,
    Select,
    bindparam,
    delete,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from lamella.service.catalog import schema as sql
from lamella.service.catalog.engine import CatalogListener, NoListener
from lamella.service.catalog.quotas import NO_QUOTAS, Quotas
from lamella.service.catalog.records import (
    BRANCH_SIGN,
    MAIN,
    DroppedTable,
    HistoryEntry,
    NamespaceUse,
    StoredAnswer,
    TableRecord,
    branch_name,
    no_namespace,
)
from lamella.service.catalog.schema import (
    auto_actions,
    deletion_marks,
    feedback,
    leases,
    namespaces,
    policies,
    prune_rates,
    recorded,
    schedules,
    snapshots,
    sweeps,
    table_health,
    tables,
    tags,
)
from lamella.service.catalog.session import SqlSession, StoredJson, never_stored, table_record
from lamella.snapshot.errors import AlreadyExists, TableNotFound

_CONNECTIONS: Final = 4
_RECORDS: Final = 4_096


class CurrentTables:
    """Looks up live tables by name. Thread-safe; up to four lookups run at once.

    ``is_instant``: a lookup waits for no network and no lock, so that an event loop may make it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Receives the lookups that reached the database.
        self.listener: CatalogListener = NoListener()
        self.is_instant = engine.dialect.name == "sqlite"
        compiled = sql.SELECT_TABLE.compile(dialect=engine.dialect)
        self._text = str(compiled)
        self._names: list[str] | None = None if compiled.positiontup is None else list(compiled.positiontup)
        self._options: dict[str, Any] = {} if self.is_instant else {"prepare": True}
        self._free: deque[Any] = deque()  # cursors, each on its own connection
        self._unopened: deque[None] = deque([None] * _CONNECTIONS)
        # A pointer is decoded from its JSON once; the cached one is valid for exactly the row that the database
        # returned.
        self._records: dict[tuple[str, str], tuple[Any, TableRecord]] = {}

    def find(self, namespace: str, name: str) -> TableRecord | None:
        """Return the table as of a moment after the call began.

        Returns None if there is no such table, or it cannot be read this way now; then call
        :meth:`~lamella.service.catalog.port.Catalog.table`.
        """
        if "\0" in namespace or "\0" in name:
            return None
        name = name.removesuffix(BRANCH_SIGN + MAIN)
        cursor = self._take()
        if cursor is None:
            return None
        given = {"namespace": namespace, "table": name}
        parameters = given if self._names is None else [given[key] for key in self._names]
        started_s = perf_counter()
        try:
            # Fetch all rows, although there is at most one: SQLite ends its read with the last.
            rows = cursor.execute(self._text, parameters, **self._options).fetchall()
        except self._engine.dialect.loaded_dbapi.Error:
            self._drop(cursor)
            self.listener.catalog_called("lookup", "failed", perf_counter() - started_s)
            return None
        except BaseException:
            self._drop(cursor)
            raise
        self._free.append(cursor)
        self.listener.catalog_called("lookup", "ok", perf_counter() - started_s)
        return self._record(namespace, name, rows[0]) if rows else None

    def close(self) -> None:
        """Close the idle connections; later lookups return None."""
        self._unopened = deque()
        while self._free:
            self._free.pop().connection.close()

    def _record(self, namespace: str, name: str, row: tuple[Any, ...]) -> TableRecord:
        cached = self._records.get((namespace, name))
        if cached is not None and cached[0] == row:
            return cached[1]
        record = table_record(dict(zip(_COLUMNS, row, strict=True)))
        if len(self._records) >= _RECORDS:
            self._records = {}
        self._records[namespace, name] = (row, record)
        return record

    def _take(self) -> Any:
        """Return a free cursor; None if all are in use, or the database does not answer."""
        try:
            return self._free.pop()  # the one used last
        except IndexError:
            pass
        try:
            self._unopened.pop()
        except IndexError:
            return None
        try:
            return self._open()
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error):
            self._unopened.append(None)
            return None
        except BaseException:
            self._unopened.append(None)
            raise

    def _open(self) -> Any:
        pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()  # the pool opens a new connection in its place
        if self.is_instant:
            connection.execute("PRAGMA busy_timeout=0")
        else:
            connection.autocommit = True
        return connection.cursor()

    def _drop(self, cursor: Any) -> None:
        cursor.connection.close()
        self._unopened.append(None)


_COLUMNS: Final = tuple(column.name for column in sql.SELECT_TABLE.selected_columns)


_PROPERTIES: Final = StoredJson(dict[str, str], "the properties of a namespace")
#: Key of the PostgreSQL advisory lock for creating namespaces; any number that nothing else uses.
_NAMESPACES: Final = 0x4C414D454C4C42

_live_table = tables.c.dropped_at_ms.is_(None)
_live_namespace = namespaces.c.dropped_at_ms.is_(None)
_current = (tables.c.table_id == snapshots.c.table_id) & (tables.c.version == snapshots.c.seq)
_OF_TABLES: Final = (
    select(
        tables.c.table_id,
        namespaces.c.namespace_id,
        namespaces.c.properties,
        func.coalesce(tables.c.branch_of, tables.c.table_id).label("main_id"),
    )
    .join_from(tables, namespaces)
    .where(tables.c.table_id.in_(bindparam("ids", expanding=True)))
)
#: Not a key column, so that other rows may still refer to the locked row.
_LOCK_QUOTA: Final = (
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
    .where(
        _live_table,
        sql.is_main,
        tables.c.namespace_id == bindparam("in_namespace_id"),
        tables.c.table_id != bindparam("but"),
    )
)
_OWN: Final = (
    select(snapshots.c.block_count, snapshots.c.file_size_bytes)
    .join_from(tables, snapshots, _current)
    .where(tables.c.table_id == bindparam("id"))
)


class SqlQuotas(SqlSession):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for quotas."""

    #: Quotas of namespaces that set none of their own.
    quotas: Quotas = NO_QUOTAS

    def namespace_use(self, name: str) -> NamespaceUse:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": name}):
            which = {"in_namespace_id": row["namespace_id"], "but": ""}
            for use in self._rows(_OTHERS, which):
                quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
                counts = {member: int(use[member]) for member in ("tables", "blocks", "bytes")}
                return NamespaceUse(quotas=quotas, **counts)
        raise no_namespace(name)

    def check_growth(self, table_id: str, *, blocks: int, size_bytes: int) -> None:
        for row in self._rows(_OF_TABLES, {"ids": [table_id]}):
            quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
            for own in self._rows(_OWN, {"id": table_id}) if quotas.bounds_commits else ():
                before = own["block_count"], own["file_size_bytes"]
                after = before[0] + blocks, before[1] + size_bytes
                for others in self._rows(_OTHERS, {"in_namespace_id": row["namespace_id"], "but": row["main_id"]}):
                    _check(quotas, others, before, after)

    def check_table_quota(self, namespace: str) -> None:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
            if quotas.tables is not None:
                for use in self._rows(_OTHERS, {"in_namespace_id": row["namespace_id"], "but": ""}):
                    quotas.check("tables", int(use["tables"]) + 1)
            return
        raise no_namespace(namespace)

    def _lock_namespaces(self, connection: Connection, name: str) -> None:
        """Lock before creating a namespace. Raises QuotaExceeded, unless the name exists, which is the error then."""
        if self.quotas.namespaces is None:
            return
        if self.backend == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _NAMESPACES})
        if connection.execute(sql.SELECT_NAMESPACE, {"namespace": name}).first() is not None:
            return
        self.quotas.check("namespaces", connection.execute(_COUNT_NAMESPACES).scalar_one() + 1)

    def _lock_for_table(self, connection: Connection, namespace: str, name: str, undropped: str | None = None) -> int:
        """Lock a live namespace until the transaction ends, before a table is added to it; return its id.

        ``undropped``: the id of a table that comes with its blocks. Raises NamespaceNotFound, QuotaExceeded. If the
        table's name is taken, that is the error, whatever the quota; by a view, it is AlreadyExists.
        """
        namespace_id = self._lock_for_table_quota(connection, namespace, name, undropped)
        refuse_view(connection, namespace_id, namespace, name)
        return namespace_id

    def _lock_for_table_quota(self, connection: Connection, namespace: str, name: str, undropped: str | None) -> int:
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

    def _lock_quotas(self, connection: Connection, table_ids: Iterable[str]) -> dict[str, TableQuota]:
        """Lock before snapshots of tables become current; return the quotas to check, by table.

        In the order of namespaces, so that two commits of several tables do not wait for each other.
        """
        found: dict[str, TableQuota] = {}
        for row in connection.execute(_OF_TABLES, {"ids": list(table_ids)}).mappings():
            quotas = self.quotas.within(_PROPERTIES.decode(row["properties"]))
            if quotas.bounds_commits:
                found[row["table_id"]] = TableQuota(row["namespace_id"], row["main_id"], quotas)
        bounded = (each for each in found.values() if each.quotas.blocks is not None or each.quotas.bytes is not None)
        for namespace_id in sorted({each.namespace_id for each in bounded}):
            connection.execute(_LOCK_QUOTA, {"in_namespace_id": namespace_id})
        return found


class TableQuota(NamedTuple):
    """The quotas that a commit to a table is checked against. That of a branch counts in place of the table's own
    blocks, ``main_id``.
    """

    namespace_id: int
    main_id: str
    quotas: Quotas


def check_quota(connection: Connection, table_id: str, entry: HistoryEntry, quota: TableQuota) -> None:
    """Raise QuotaExceeded if a table would exceed a quota with a snapshot."""
    own = connection.execute(_OWN, {"id": table_id}).first()
    before = (0, 0) if own is None else (own.block_count, own.file_size_bytes)
    which = {"in_namespace_id": quota.namespace_id, "but": quota.main_id}
    others = connection.execute(_OTHERS, which).mappings().one()
    _check(quota.quotas, others, before, (entry.block_count, entry.file_size_bytes))


def _check(quotas: Quotas, others: RowMapping, before: tuple[int, int], after: tuple[int, int]) -> None:
    """Check the quotas of a namespace; ``before`` and ``after``: blocks and bytes of the changed table."""
    blocks, size_bytes = int(others["blocks"]), int(others["bytes"])
    quotas.check("table_blocks", after[0], before=before[0])
    quotas.check("blocks", blocks + after[0], before=blocks + before[0])
    quotas.check("bytes", size_bytes + after[1], before=size_bytes + before[1])


def namespace_row(connection: Connection, statement: Executable, name: str) -> RowMapping:
    """Return a live namespace by that statement. Raises NamespaceNotFound."""
    which = {"namespace": name}
    row = None if never_stored(which) else connection.execute(statement, which).mappings().first()
    if row is None:
        raise no_namespace(name)
    return row


def refuse_view(connection: Connection, namespace_id: int, namespace: str, name: str) -> None:
    """Raise AlreadyExists if a view has the name; its namespace is locked or shared."""
    which = {"in_namespace_id": namespace_id, "view": name}
    if connection.execute(sql.SELECT_VIEW_ID, which).first() is not None:
        raise AlreadyExists(f"view '{namespace}.{name}' exists", namespace=namespace, view=name)


_this_table = tables.c.table_id == bindparam("id")
_is_dropped = tables.c.dropped_at_ms.is_not(None)
_is_scheduled = tables.c.doomed_at_ms.is_not(None)

_dropped_row = sql.table_row.add_columns(tables.c.dropped_at_ms, tables.c.doomed_at_ms).where(_is_dropped, sql.is_main)
_SELECT_OF_NAMESPACE = _dropped_row.where(~_is_scheduled, namespaces.c.name == bindparam("namespace")).order_by(
    tables.c.dropped_at_ms.desc(), tables.c.table_id.desc()
)
_SELECT_OF_THIS_NAMESPACE = _SELECT_OF_NAMESPACE.where(namespaces.c.dropped_at_ms.is_(None))
_SELECT_OLD = _dropped_row.where(or_(_is_scheduled, tables.c.dropped_at_ms < bindparam("before_ms"))).order_by(
    tables.c.dropped_at_ms, tables.c.table_id
)
_UNDROP = (
    update(tables)
    .where(_this_table, _is_dropped, ~_is_scheduled)
    .values(dropped_at_ms=None, namespace_id=bindparam("to_namespace_id"), name=bindparam("to_name"))
)
_SCHEDULE_REMOVAL = (
    update(tables)
    .where(_this_table, _is_dropped, or_(_is_scheduled, tables.c.dropped_at_ms < bindparam("before_ms")))
    .values(doomed_at_ms=func.coalesce(tables.c.doomed_at_ms, bindparam("now_ms")))
)
_DROPPED_AT = select(tables.c.dropped_at_ms).where(_this_table)
_LOCK_SCHEDULED = select(tables.c.table_id).where(_this_table, _is_scheduled).with_for_update()
_FORGET = (
    delete(tags).where(tags.c.table_id == bindparam("id")),
    delete(leases).where(leases.c.table_id == bindparam("id")),
    delete(deletion_marks).where(deletion_marks.c.table_id == bindparam("id")),
    delete(sweeps).where(sweeps.c.table_id == bindparam("id")),
    delete(feedback).where(feedback.c.table_id == bindparam("id")),
    delete(recorded).where(recorded.c.table_id == bindparam("id")),
    delete(prune_rates).where(prune_rates.c.table_id == bindparam("id")),
    delete(table_health).where(table_health.c.table_id == bindparam("id")),
    delete(auto_actions).where(auto_actions.c.table_id == bindparam("id")),
    delete(schedules).where(schedules.c.table_id == bindparam("id")),
    delete(policies).where(policies.c.table_id == bindparam("id")),
    delete(snapshots).where(snapshots.c.table_id == bindparam("id")),
    delete(tables).where(_this_table),
)


def name_branches(
    connection: Connection, which: Select[Any], given: Mapping[str, Any], namespace_id: int, name: str
) -> None:
    """Rename the branches of a table that a query finds after their table, which has that name now.

    Of several with one name, only the one created last: the others were replaced.

    Raises:
        InvalidRequest: a name becomes too long.
    """
    found = {branch.name: branch.table_id for branch in connection.execute(which, given)}
    for old, table_id in found.items():
        new = branch_name(name, old.partition(BRANCH_SIGN)[2])
        connection.execute(sql.NAME_BRANCH, {"id": table_id, "to_namespace_id": namespace_id, "to_name": new})


def forget_rows(connection: Connection, table_id: str) -> None:
    """Delete all rows of a table or branch."""
    for statement in _FORGET:
        connection.execute(statement, {"id": table_id})


class SqlDropped(SqlQuotas):
    """The part of :class:`~lamella.service.catalog.port.Catalog` for dropped tables."""

    def dropped_tables(self, namespace: str, *, earlier: bool = True) -> list[DroppedTable]:
        if not self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            raise no_namespace(namespace)
        query = _SELECT_OF_NAMESPACE if earlier else _SELECT_OF_THIS_NAMESPACE
        return [_dropped(row) for row in self._rows(query, {"namespace": namespace})]

    def undrop_table(self, table_id: str, namespace: str, name: str, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = self._lock_for_table(connection, namespace, name, table_id)
            change: dict[str, Any] = {"id": table_id, "to_namespace_id": namespace_id, "to_name": name}
            which = {"id": table_id, "at_ms": connection.execute(_DROPPED_AT, {"id": table_id}).scalar()}
            try:
                undropped = connection.execute(_UNDROP, change)
            except IntegrityError as error:
                raise AlreadyExists(f"table '{namespace}.{name}' exists", namespace=namespace, table=name) from error
            if undropped.rowcount != 1:
                raise TableNotFound("there is no dropped table with that id", table_id=table_id)
            name_branches(connection, sql.BRANCHES_DROPPED_WITH, which, namespace_id, name)

    def dropped_before(self, before_ms: int) -> list[DroppedTable]:
        return [_dropped(row) for row in self._rows(_SELECT_OLD, {"before_ms": before_ms})]

    def schedule_removal(self, table_id: str, *, dropped_before_ms: int, now_ms: int) -> bool:
        which = {"id": table_id, "before_ms": dropped_before_ms, "now_ms": now_ms}
        with self._transaction(None) as connection:
            if connection.execute(_SCHEDULE_REMOVAL, which).rowcount != 1:
                return False
            connection.execute(sql.SCHEDULE_BRANCHES, {"id": table_id, "now_ms": now_ms})
            return True

    def forget_table(self, table_id: str) -> bool:
        with self._transaction(None) as connection:
            if connection.execute(_LOCK_SCHEDULED, {"id": table_id}).first() is None:
                return False
            branches = connection.execute(sql.ALL_BRANCHES, {"id": table_id}).scalars().all()
            for each in (*branches, table_id):
                forget_rows(connection, each)
        return True


def _dropped(row: RowMapping) -> DroppedTable:
    record = {name: value for name, value in row.items() if name not in ("dropped_at_ms", "doomed_at_ms")}
    return DroppedTable(
        record=table_record(record),
        dropped_at_ms=row["dropped_at_ms"],
        removal_scheduled=row["doomed_at_ms"] is not None,
        # A drop that purges sets both at once; a clean-up marks only tables that were dropped earlier.
        is_purged=row["doomed_at_ms"] == row["dropped_at_ms"],
    )
