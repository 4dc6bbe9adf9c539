"""A table as it stands, by the shortest way: one prepared statement on a connection that is kept for nothing else.

Nothing is cached, so nothing can be stale: the database itself says which snapshot is current, each time. A statement
through SQLAlchemy takes fifteen times as long as the same one on SQLite's own connection; on PostgreSQL a round trip
for the pool's check of the connection is saved.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Any, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from lamella.service.catalog import statements as sql
from lamella.service.catalog.observed import CatalogListener, Unheard
from lamella.service.catalog.port import TableRecord
from lamella.service.catalog.rows import table_record

_CONNECTIONS: Final = 4
_RECORDS: Final = 4_096


class CurrentTables:
    """Looks up live tables by name. Safe to share between threads; up to four lookups run at once.

    ``is_instant``: a lookup waits for no network and no lock, so that it may be made on an event loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Who is told of lookups that the database was asked for.
        self.listener: CatalogListener = Unheard()
        self.is_instant = engine.dialect.name == "sqlite"
        compiled = sql.SELECT_TABLE.compile(dialect=engine.dialect)
        self._text = str(compiled)
        self._names: list[str] | None = None if compiled.positiontup is None else list(compiled.positiontup)
        self._options: dict[str, Any] = {} if self.is_instant else {"prepare": True}
        self._free: deque[Any] = deque()  # cursors, one a connection
        self._unopened: deque[None] = deque([None] * _CONNECTIONS)
        # So that a pointer is read out of its JSON once; it holds for the very row that the database gives.
        self._records: dict[tuple[str, str], tuple[Any, TableRecord]] = {}

    def find(self, namespace: str, name: str) -> TableRecord | None:
        """The table as of a moment after the call began.

        None: there is no such table, or it cannot be told this way now; who needs to know asks
        :meth:`~lamella.service.catalog.port.Catalog.table`.
        """
        if "\0" in namespace or "\0" in name:
            return None
        cursor = self._take()
        if cursor is None:
            return None
        given = {"namespace": namespace, "table": name}
        parameters = given if self._names is None else [given[key] for key in self._names]
        started_s = perf_counter()
        try:
            # All rows, although there is one at most: SQLite ends its reading with the last.
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
        """Close the connections that are not in use; a lookup from now on finds nothing."""
        self._unopened = deque()
        while self._free:
            self._free.pop().connection.close()

    def _record(self, namespace: str, name: str, row: tuple[Any, ...]) -> TableRecord:
        held = self._records.get((namespace, name))
        if held is not None and held[0] == row:
            return held[1]
        record = table_record(dict(zip(_COLUMNS, row, strict=True)))
        if len(self._records) >= _RECORDS:
            self._records = {}
        self._records[namespace, name] = (row, record)
        return record

    def _take(self) -> Any:
        """A cursor that nobody uses; None when all are in use, or the database does not answer."""
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
        pooled.detach()  # the pool opens another one in its place
        if self.is_instant:
            connection.execute("PRAGMA busy_timeout=0")
        else:
            connection.autocommit = True
        return connection.cursor()

    def _drop(self, cursor: Any) -> None:
        cursor.connection.close()
        self._unopened.append(None)


_COLUMNS: Final = tuple(column.name for column in sql.SELECT_TABLE.selected_columns)
