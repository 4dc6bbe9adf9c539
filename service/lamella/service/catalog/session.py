"""Statements and transactions on the catalog's database, and its rows as values. The repositories are built on this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, Executable, Insert, RowMapping, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from lamella.service.catalog import schema as sql
from lamella.service.catalog.engine import WRITES, CatalogListener, NoListener, observe_statements
from lamella.service.catalog.records import HistoryEntry, StoredAnswer, TableRecord
from lamella.snapshot.errors import CatalogDamaged, IdempotencyMismatch, OutcomeUnknown, Unavailable
from lamella.snapshot.manifest import SnapshotPointer

_T = TypeVar("_T")


class StoredJson(Generic[_T]):
    """Decodes the JSON text of a column; ``what`` names it in errors."""

    def __init__(self, kind: type[_T], what: str) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._what = what

    def decode(self, text: str | bytes) -> _T:
        """Return the value. Raises CatalogDamaged for text that the service cannot have written."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
            raise CatalogDamaged(f"{self._what} in the catalog is damaged: {error}", what=self._what) from error


_POINTER = StoredJson(SnapshotPointer, "the pointer of a snapshot")


def json_text(value: object) -> str:
    """Encode a value as the JSON text of a column."""
    return msgspec.json.encode(value).decode()


def table_record(row: Mapping[Any, Any]) -> TableRecord:
    """Make a table from its row, joined with its namespace's name."""
    return TableRecord(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def entry_record(row: Mapping[Any, Any]) -> HistoryEntry:
    """Make a snapshot of a table's history from its row."""
    return HistoryEntry(**{**row, "pointer": _POINTER.decode(row["pointer"])})


def snapshot_row(table_id: str, entry: HistoryEntry) -> dict[str, Any]:
    """Return the row of a snapshot."""
    values = msgspec.structs.asdict(entry)
    del values["since_ms"]
    return {
        **values,
        "table_id": table_id,
        "snapshot_id": entry.pointer.snapshot_id,
        "timestamp_ms": entry.pointer.timestamp_ms,
        "pointer": json_text(entry.pointer),
    }


class LostRace(Exception):
    """Another change came first. It leaves the transaction, so that nothing of it is stored, not even the answer."""


class SqlSession:
    """Runs single reads, and writes in transactions, on an engine whose schema is up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        # A single statement needs no transaction: on PostgreSQL that saves two round trips.
        self._reader = engine if _is_sqlite(engine) else engine.execution_options(isolation_level="AUTOCOMMIT")
        self._listener: CatalogListener = NoListener()

    def listen_to(self, listener: CatalogListener) -> None:
        """Report database calls to a listener. Called once, before the catalog is used."""
        self._listener = listener
        observe_statements(self._engine, listener)

    @property
    def connections(self) -> tuple[int, int]:
        """Return how many connections of the pool are in use, and the limit."""
        pool = self._engine.pool
        return (pool.checkedout(), pool.size()) if isinstance(pool, QueuePool) else (0, 0)

    @property
    def backend(self) -> str:
        """Return the kind of database: ``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    def _insert(self, table: Table) -> Any:
        """Return an INSERT with ``ON CONFLICT``, which both databases write the same way."""
        made: Insert = sqlite.insert(table) if self.backend == "sqlite" else postgresql.insert(table)
        return made

    def _rows(self, statement: Executable, parameters: Mapping[str, Any]) -> list[RowMapping]:
        if never_stored(parameters):
            return []
        with database_errors(), self._connected(self._reader) as connection:
            return list(connection.execute(statement, parameters).mappings())

    @contextmanager
    def _transaction(self, remember: StoredAnswer | Sequence[StoredAnswer] | None) -> Iterator[Connection]:
        answers = [remember] if isinstance(remember, StoredAnswer) else remember
        with database_errors(), self._connected(self._writer) as connection:
            transaction = connection.begin()
            if answers:
                # First, so that a second request with this key waits here for the outcome of the first. All
                # transactions use the same order, so that two of them cannot deadlock.
                rows = sorted((msgspec.structs.asdict(answer) for answer in answers), key=_key_and_scope)
                try:
                    connection.execute(sql.INSERT_ANSWER, rows)
                except IntegrityError as error:
                    key = rows[0]["key"] if len(rows) == 1 else None
                    raise IdempotencyMismatch(
                        "the idempotency key was used by another request meanwhile", key=key
                    ) from error
            yield connection
            started_s = perf_counter()
            try:
                transaction.commit()
            except DBAPIError as error:
                self._listener.catalog_called("commit", "failed", perf_counter() - started_s)
                raise OutcomeUnknown(
                    "the catalog database failed while committing; send the request again with the same idempotency key"
                ) from error
            self._listener.catalog_called("commit", "ok", perf_counter() - started_s)

    def _connected(self, engine: Engine) -> Connection:
        """Take a connection from the pool; the caller closes it."""
        started_s = perf_counter()
        try:
            connection = engine.connect()
        except PoolTimeout:
            self._listener.connection_awaited(perf_counter() - started_s, timed_out=True)
            raise
        self._listener.connection_awaited(perf_counter() - started_s, timed_out=False)
        return connection


def _key_and_scope(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["key"], row["scope"]


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn database failures, as opposed to programming errors, into Unavailable: nothing was done, try again later.

    InternalError: a PostgreSQL that accepts no writes (a standby, or after ``default_transaction_read_only``).
    """
    try:
        yield
    except (OperationalError, InterfaceError, InternalError, PoolTimeout) as error:
        raise Unavailable("the catalog database does not answer", retry_after_s=1) from error
    except DatabaseError as error:
        if type(error) is not DatabaseError:  # a programming error, or one that the caller handles
            raise
        # SQLite raises this for a damaged file, or one that is not a database.
        raise CatalogDamaged(f"the catalog database is damaged: {error.orig}", what="the database") from error


def never_stored(parameters: Mapping[str, Any]) -> bool:
    """Return True for text with a NUL: PostgreSQL cannot search for it, and no stored value has one."""
    return any(isinstance(value, str) and "\0" in value for value in parameters.values())


def _is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"
