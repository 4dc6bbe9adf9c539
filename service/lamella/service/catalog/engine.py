"""Database engines of the catalog: SQLite on a local disk, or PostgreSQL by URL; how long their statements take."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError

from lamella.snapshot.errors import InvalidRequest

#: An execution option: this connection's transactions will write.
WRITES = "lamella_writes"


def catalog_url(text: str) -> URL:
    """Read a catalog's address: a path, ``sqlite:///path`` or ``postgresql+psycopg://...``.

    Raises:
        InvalidRequest: another database, or SQLite without a file.
    """
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).absolute()))
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise InvalidRequest("the catalog's address is not a database URL") from error
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise InvalidRequest(f"no catalog on {url.drivername}: use a path (SQLite) or postgresql+psycopg://")
    if not url.database or url.database.startswith((":memory:", "file:")):
        raise InvalidRequest("a SQLite catalog needs a file: every process and thread must see the same one")
    return url.set(database=str(Path(url.database).absolute()))


def open_engine(url: URL, *, timeout_s: float, connections: int) -> Engine:
    """An engine whose pool holds up to ``connections``; statements wait ``timeout_s`` for a lock."""
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, timeout_s, connections)
    return _open_postgres(url, timeout_s, connections)


def _open_sqlite(url: URL, timeout_s: float, connections: int) -> Engine:
    assert url.database is not None  # noqa: S101  # catalog_url saw to it
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"no place for the catalog at {url.database}: {error.strerror}") from error
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=timeout_s,
        connect_args={"timeout": timeout_s, "check_same_thread": False},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing on its own; _begin_sqlite does
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged commit survives a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that starts by reading and then writes fails at once when another one wrote in between,
    # whatever the busy timeout; taking the write lock first makes it wait. Reads need no transaction.
    if connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _open_postgres(url: URL, timeout_s: float, connections: int) -> Engine:
    lock_ms = max(1, int(timeout_s * 1000))
    try:
        return create_engine(
            url,
            hide_parameters=True,  # what users sent does not belong into logs
            pool_size=connections,
            max_overflow=0,
            pool_timeout=timeout_s,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": max(2, int(timeout_s)),
                "application_name": "lamella",
                "options": f"-c lock_timeout={lock_ms}",
                # A host that is gone without a word is noticed within seconds, not within the system's hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": max(10_000, lock_ms),
            },
        )
    except ModuleNotFoundError as error:
        raise InvalidRequest("a PostgreSQL catalog needs the driver: pip install 'lamella[postgres]'") from error


#: ``begin``: where a writer waits for others on SQLite. ``lookup``: of a table by its name, the shortest way.
CatalogOperation = Literal["select", "insert", "update", "delete", "begin", "commit", "lookup", "other"]

#: ``conflict``: the database refused a row because of others that are there.
CatalogOutcome = Literal["ok", "conflict", "failed"]

_OPERATIONS: Final[dict[str, CatalogOperation]] = {
    "SELECT": "select",
    "WITH": "select",
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "BEGIN": "begin",
}
#: Where a connection keeps the time at which its statement began.
_STARTED: Final = "lamella_started_s"


class CatalogListener(Protocol):
    """Is told of calls when they are over; called from any thread, and must not raise."""

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """A statement took so long, until its first rows were there; or a commit did."""

    def connection_awaited(self, took_s: float, /, *, in_vain: bool) -> None:
        """A connection of the pool was had after so long; ``in_vain``: none was, since all were in use."""


class NoListener:
    """Nobody listens."""

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """Nothing."""

    def connection_awaited(self, took_s: float, /, *, in_vain: bool) -> None:
        """Nothing."""


def observe_statements(engine: Engine, listener: CatalogListener) -> None:
    """Tell of each statement that goes through an engine, also one with other options."""

    def before(connection: Connection, *_: Any) -> None:
        connection.info[_STARTED] = perf_counter()

    def after(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        tell(connection, statement, "ok")

    def failed(context: ExceptionContext) -> None:
        if context.connection is not None and context.statement is not None:
            outcome: CatalogOutcome = (
                "conflict" if isinstance(context.sqlalchemy_exception, IntegrityError) else "failed"
            )
            tell(context.connection, context.statement, outcome)

    def tell(connection: Connection, statement: str, outcome: CatalogOutcome) -> None:
        # A connection that broke has lost what it kept.
        started_s = None if connection.invalidated else connection.info.pop(_STARTED, None)
        if started_s is not None or outcome != "ok":
            took_s = 0.0 if started_s is None else perf_counter() - started_s
            word = statement[:10].split(None, 1)[0].upper() if statement else ""
            listener.catalog_called(_OPERATIONS.get(word, "other"), outcome, took_s)

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    event.listen(engine, "handle_error", failed)
