"""The catalog on a SQL database, SQLite or PostgreSQL, through SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Executable, RowMapping
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lamella.service.catalog import statements as sql
from lamella.service.catalog.engine import WRITES, catalog_url, open_engine
from lamella.service.catalog.migrate import migrate
from lamella.service.catalog.port import HistoryEntry, StoredAnswer, TableRecord
from lamella.snapshot.errors import (
    AlreadyExists,
    IdempotencyMismatch,
    NamespaceNotEmpty,
    NamespaceNotFound,
    OutcomeUnknown,
    SnapshotNotFound,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.wire import NamespaceInfo

_POINTER = msgspec.json.Decoder(SnapshotPointer)
_PROPERTIES = msgspec.json.Decoder(dict[str, str])
_MAX_SEQ = (1 << 63) - 1


def open_catalog(url: str, *, timeout_s: float = 30.0, connections: int = 8) -> SqlCatalog:
    """Connect, migrate, and return the catalog.

    Raises:
        InvalidRequest: the address cannot be used.
        UnsupportedFormat: the database belongs to a newer release.
        Unavailable: the database does not answer.
    """
    engine = open_engine(catalog_url(url), timeout_s=timeout_s, connections=connections)
    try:
        with _database_errors():
            migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return SqlCatalog(engine)


class SqlCatalog:
    """:class:`~lamella.service.catalog.port.Catalog` over an engine whose schema is up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        # One statement needs no transaction around it: on PostgreSQL that saves two round trips.
        self._reader = engine if _is_sqlite(engine) else engine.execution_options(isolation_level="AUTOCOMMIT")

    def secret(self, name: str, fresh: bytes) -> bytes:
        for row in self._rows(sql.SELECT_SECRET, {"name": name}):
            return bytes(row["value"])
        try:
            with self._transaction(None) as connection:
                connection.execute(sql.INSERT_SECRET, {"name": name, "value": fresh})
        except IntegrityError:
            return self.secret(name, fresh)  # another process was faster; its secret is there now
        return fresh

    def ping(self) -> None:
        self._rows(sql.PING, {})

    def create_namespace(self, info: NamespaceInfo, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        row = {"name": info.name, "properties": _text(info.properties), "created_at_ms": now_ms}
        with self._transaction(remember) as connection:
            try:
                connection.execute(sql.INSERT_NAMESPACE, row)
            except IntegrityError as error:
                raise AlreadyExists(f"namespace {info.name!r} exists", namespace=info.name) from error

    def namespaces(self) -> list[NamespaceInfo]:
        found = [_namespace(row) for row in self._rows(sql.SELECT_NAMESPACES, {})]
        return sorted(found, key=lambda info: info.name)  # databases differ in how they collate

    def namespace(self, name: str) -> NamespaceInfo:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": name}):
            return _namespace(row)
        raise _no_namespace(name)

    def drop_namespace(self, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = _namespace_id(connection, sql.LOCK_NAMESPACE, name)
            which = {"in_namespace_id": namespace_id}
            count = connection.execute(sql.COUNT_TABLES, which).scalar_one()
            if count:
                raise NamespaceNotEmpty(f"namespace {name!r} holds {count} tables", namespace=name, tables=count)
            connection.execute(sql.DROP_NAMESPACE, {**which, "now_ms": now_ms})

    def create_table(self, table: TableRecord, first: HistoryEntry, *, remember: StoredAnswer | None = None) -> None:
        with self._transaction(remember) as connection:
            namespace_id = _namespace_id(connection, sql.SHARE_NAMESPACE, table.namespace)
            row = {
                "table_id": table.table_id,
                "namespace_id": namespace_id,
                "name": table.name,
                "location": table.location,
                "version": first.seq,
                "pointer": _text(first.pointer),
                "created_at_ms": table.created_at_ms,
            }
            try:
                connection.execute(sql.INSERT_TABLE, row)
            except IntegrityError as error:
                name = f"{table.namespace}.{table.name}"
                raise AlreadyExists(f"table {name!r} exists", namespace=table.namespace, table=table.name) from error
            connection.execute(sql.INSERT_SNAPSHOT, _snapshot_row(table.table_id, first))

    def tables(self, namespace: str) -> list[str]:
        for row in self._rows(sql.SELECT_NAMESPACE, {"namespace": namespace}):
            which = {"in_namespace_id": row["namespace_id"]}
            return sorted(found["name"] for found in self._rows(sql.SELECT_TABLE_NAMES, which))
        raise _no_namespace(namespace)

    def table(self, namespace: str, name: str) -> TableRecord:
        for row in self._rows(sql.SELECT_TABLE, {"namespace": namespace, "table": name}):
            return _table(row)
        self.namespace(namespace)
        raise TableNotFound(f"there is no table {namespace}.{name}", namespace=namespace, table=name)

    def table_by_id(self, table_id: str) -> TableRecord:
        for row in self._rows(sql.SELECT_TABLE_BY_ID, {"id": table_id}):
            return _table(row)
        raise TableNotFound("the table was dropped", table_id=table_id)

    def drop_table(self, namespace: str, name: str, *, now_ms: int, remember: StoredAnswer | None = None) -> None:
        table_id = self.table(namespace, name).table_id
        with self._transaction(remember) as connection:
            dropped = connection.execute(sql.DROP_TABLE, {"id": table_id, "now_ms": now_ms})
            if dropped.rowcount != 1:
                raise TableNotFound(f"there is no table {namespace}.{name}", namespace=namespace, table=name)

    def advance(self, table_id: str, entry: HistoryEntry, *, remember: StoredAnswer | None = None) -> bool:
        swap = {
            "id": table_id,
            "expected_version": entry.seq - 1,
            "next_version": entry.seq,
            "next_pointer": _text(entry.pointer),
        }
        try:
            with self._transaction(remember) as connection:
                if connection.execute(sql.SWAP_POINTER, swap).rowcount != 1:
                    raise _LostRace
                connection.execute(sql.INSERT_SNAPSHOT, _snapshot_row(table_id, entry))
        except _LostRace:
            return False
        return True

    def history(self, table_id: str, *, before_seq: int | None = None, limit: int) -> list[HistoryEntry]:
        which = {"id": table_id, "before_seq": _MAX_SEQ if before_seq is None else before_seq, "rows": limit}
        return [_entry(row) for row in self._rows(sql.SELECT_HISTORY, which)]

    def snapshot(self, table_id: str, snapshot_id: str) -> HistoryEntry:
        for row in self._rows(sql.SELECT_SNAPSHOT, {"id": table_id, "wanted": snapshot_id}):
            return _entry(row)
        raise SnapshotNotFound(f"the table has no snapshot {snapshot_id}", snapshot_id=snapshot_id)

    def snapshot_at(self, table_id: str, timestamp_ms: int) -> HistoryEntry:
        for row in self._rows(sql.SELECT_SNAPSHOT_AT, {"id": table_id, "at_ms": timestamp_ms}):
            return _entry(row)
        raise SnapshotNotFound("the table did not exist at that time", timestamp_ms=timestamp_ms)

    def answer(self, key: str, scope: str) -> StoredAnswer | None:
        for row in self._rows(sql.SELECT_ANSWER, {"wanted_key": key, "wanted_scope": scope}):
            return StoredAnswer(**row)
        return None

    def forget_answers(self, *, before_ms: int) -> int:
        with self._transaction(None) as connection:
            return connection.execute(sql.DELETE_ANSWERS, {"before_ms": before_ms}).rowcount

    def close(self) -> None:
        self._engine.dispose()

    def _rows(self, statement: Executable, parameters: Mapping[str, Any]) -> list[RowMapping]:
        if _never_stored(parameters):
            return []
        with _database_errors(), self._reader.connect() as connection:
            return list(connection.execute(statement, parameters).mappings())

    @contextmanager
    def _transaction(self, remember: StoredAnswer | None) -> Iterator[Connection]:
        with _database_errors(), self._writer.connect() as connection:
            transaction = connection.begin()
            if remember is not None:
                # First, so that a second request with this key waits here for the first one's outcome.
                try:
                    connection.execute(sql.INSERT_ANSWER, msgspec.structs.asdict(remember))
                except IntegrityError as error:
                    raise IdempotencyMismatch("the idempotency key was used meanwhile", key=remember.key) from error
            yield connection
            try:
                transaction.commit()
            except DBAPIError as error:
                raise OutcomeUnknown(
                    "the catalog database failed while committing; ask again with the same idempotency key"
                ) from error


class _LostRace(Exception):
    """Another commit swapped the pointer first."""


@contextmanager
def _database_errors() -> Iterator[None]:
    """Failures of the database, as opposed to our own mistakes, mean: nothing was done, try again later."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise Unavailable("the catalog database does not answer", retry_after_s=1) from error


def _is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


def _never_stored(parameters: Mapping[str, Any]) -> bool:
    # PostgreSQL cannot even look for it, and nothing that is stored has one.
    return any(isinstance(value, str) and "\0" in value for value in parameters.values())


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _no_namespace(name: str) -> NamespaceNotFound:
    return NamespaceNotFound(f"there is no namespace {name!r}", namespace=name)


def _namespace_id(connection: Connection, statement: Executable, name: str) -> int:
    which = {"namespace": name}
    row = None if _never_stored(which) else connection.execute(statement, which).mappings().first()
    if row is None:
        raise _no_namespace(name)
    return int(row["namespace_id"])


def _namespace(row: RowMapping) -> NamespaceInfo:
    return NamespaceInfo(name=row["name"], properties=_PROPERTIES.decode(row["properties"]))


def _table(row: RowMapping) -> TableRecord:
    return TableRecord(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def _entry(row: RowMapping) -> HistoryEntry:
    return HistoryEntry(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def _snapshot_row(table_id: str, entry: HistoryEntry) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(entry),
        "table_id": table_id,
        "snapshot_id": entry.pointer.snapshot_id,
        "timestamp_ms": entry.pointer.timestamp_ms,
        "pointer": _text(entry.pointer),
    }
