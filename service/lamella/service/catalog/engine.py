"""Database engines for the catalog: SQLite on a local disk, or PostgreSQL by URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

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
