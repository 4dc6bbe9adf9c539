"""Database engines of the catalog: SQLite on a local disk, or PostgreSQL by URL. Also measures their statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError

from lamella.snapshot.errors import InvalidRequest

#: Execution option: the transactions of this connection write.
WRITES = "lamella_writes"


def catalog_url(text: str) -> URL:
    """Parse a catalog's address: a path, ``sqlite:///path`` or ``postgresql+psycopg://...``.

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
        raise InvalidRequest(
            f"{url.drivername} is not supported for the catalog: use a path (SQLite) or postgresql+psycopg://"
        )
    if not url.database or url.database.startswith((":memory:", "file:")):
        raise InvalidRequest(
            "a SQLite catalog needs a file, because all processes and threads must see the same database"
        )
    return url.set(database=str(Path(url.database).absolute()))


def open_engine(url: URL, *, timeout_s: float, connections: int) -> Engine:
    """Return an engine with a pool of up to ``connections``; statements wait ``timeout_s`` for a lock."""
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, timeout_s, connections)
    return _open_postgres(url, timeout_s, connections)


def _open_sqlite(url: URL, timeout_s: float, connections: int) -> Engine:
    assert url.database is not None  # noqa: S101  # checked by catalog_url
    try:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"the folder of the catalog {url.database} cannot be made: {error.strerror}") from error
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


#: What SQLite says of a file that it may not open, or not write: ``SQLITE_PERM``, ``READONLY`` and ``CANTOPEN``.
_UNUSABLE: Final = frozenset((3, 8, 14))


@contextmanager
def usable_file(engine: Engine) -> Iterator[None]:
    """Raise InvalidRequest if the database of SQLite cannot be opened or written, which waiting does not change."""
    try:
        yield
    except OperationalError as error:
        # The low byte is the code; the others say more of some.
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF not in _UNUSABLE:
            raise
        raise InvalidRequest(
            f"the catalog {engine.url.database} cannot be opened or written ({error.orig}): check the path, and "
            "who may write its folder"
        ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # _begin_sqlite begins transactions, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged commit survives a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and then writes fails at once when another one wrote in between, whatever the busy
    # timeout. Taking the write lock first makes it wait. Reads need no transaction.
    if connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _open_postgres(url: URL, timeout_s: float, connections: int) -> Engine:
    lock_ms = max(1, int(timeout_s * 1000))
    try:
        return create_engine(
            url,
            hide_parameters=True,  # user data does not belong in logs
            pool_size=connections,
            max_overflow=0,
            pool_timeout=timeout_s,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": max(2, int(timeout_s)),
                "application_name": "lamella",
                "options": f"-c lock_timeout={lock_ms}",
                # Notices a dead host within seconds, instead of the system's hours.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": max(10_000, lock_ms),
            },
        )
    except ModuleNotFoundError as error:
        raise InvalidRequest("a PostgreSQL catalog needs the driver: pip install 'lamella[postgres]'") from error


#: ``begin``: waiting for other writers on SQLite. ``lookup``: reading the current snapshot of a table by name.
CatalogOperation = Literal["select", "insert", "update", "delete", "begin", "commit", "lookup", "other"]

#: ``conflict``: the database refused a row because of existing ones.
CatalogOutcome = Literal["ok", "conflict", "failed"]

_OPERATIONS: Final[dict[str, CatalogOperation]] = {
    "SELECT": "select",
    "WITH": "select",
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
    "BEGIN": "begin",
}
#: Where a connection stores the start time of its statement.
_STARTED: Final = "lamella_started_s"


class CatalogListener(Protocol):
    """Receives calls to the database when they end. Called from any thread; must not raise."""

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """A statement ran for ``took_s`` until its first rows arrived, or a commit did."""

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """A thread waited ``took_s`` for a pooled connection; ``timed_out``: it got none, because all were in use."""


class NoListener:
    """Ignores all calls."""

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """Ignore it."""

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """Ignore it."""


def observe_statements(engine: Engine, listener: CatalogListener) -> None:
    """Report every statement of an engine to a listener, also through copies of the engine with other options."""

    def before(connection: Connection, *_: Any) -> None:
        connection.info[_STARTED] = perf_counter()

    def after(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        notify(connection, statement, "ok")

    def failed(context: ExceptionContext) -> None:
        if context.connection is not None and context.statement is not None:
            outcome: CatalogOutcome = (
                "conflict" if isinstance(context.sqlalchemy_exception, IntegrityError) else "failed"
            )
            notify(context.connection, context.statement, outcome)

    def notify(connection: Connection, statement: str, outcome: CatalogOutcome) -> None:
        # A broken connection loses its start time.
        started_s = None if connection.invalidated else connection.info.pop(_STARTED, None)
        if started_s is not None or outcome != "ok":
            took_s = 0.0 if started_s is None else perf_counter() - started_s
            word = statement[:10].split(None, 1)[0].upper() if statement else ""
            listener.catalog_called(_OPERATIONS.get(word, "other"), outcome, took_s)

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    event.listen(engine, "handle_error", failed)
