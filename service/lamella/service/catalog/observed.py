"""Who is told how long the catalog's database takes, and for what, in a word. Never a statement or a value."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import IntegrityError

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


class Unheard:
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
