"""A catalog's database that goes away: refused connections, and connections that break around a COMMIT."""

from __future__ import annotations

import threading
from typing import Any, Literal

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext

from lamella.service.catalog import SqlCatalog

#: ``statement``: the connection breaks before a statement is sent. ``before commit``, ``after commit``: around a
#: COMMIT, which then did not happen, or did.
CatalogFault = Literal["statement", "before commit", "after commit"]


class CatalogFaults:
    """Breaks connections of ``catalog`` by number, and refuses all of them while ``is_down``.

    Only COMMITs and statements after :meth:`arm` count. Every broken connection takes the others of its pool along, as
    a failover does.
    """

    def __init__(self, catalog: SqlCatalog) -> None:
        engine = catalog._engine
        self.is_down = False
        self.happened: list[CatalogFault] = []
        self._lock = threading.Lock()
        self._armed: dict[CatalogFault, int] = {}
        base: type[Exception] = engine.dialect.loaded_dbapi.OperationalError
        self._broken = type("Broken", (base,), {})
        self._commit = engine.dialect.do_commit
        engine.dialect.do_commit = self._do_commit  # type: ignore[method-assign,assignment]  # what SQLAlchemy calls
        event.listen(engine, "do_connect", self._refuse)
        event.listen(engine, "do_execute", self._statement)
        event.listen(engine, "handle_error", self._is_disconnect)

    def arm(self, fault: CatalogFault, nth: int = 1) -> None:
        """Let the ``nth`` statement or COMMIT from now on meet its fault."""
        with self._lock:
            self._armed[fault] = nth

    def disarm(self) -> None:
        """Nothing goes wrong any more."""
        with self._lock:
            self._armed.clear()
            self.is_down = False

    def _meets(self, fault: CatalogFault) -> bool:
        with self._lock:
            if fault not in self._armed:
                return False
            self._armed[fault] -= 1
            if self._armed[fault]:
                return False
            del self._armed[fault]
            self.happened.append(fault)
            return True

    def _do_commit(self, connection: Any) -> None:
        if self.is_down or self._meets("before commit"):
            raise self._broken("server closed the connection unexpectedly")
        self._commit(connection)
        if self._meets("after commit"):
            raise self._broken("server closed the connection unexpectedly")

    def _refuse(self, *_: object) -> None:
        if self.is_down:
            raise self._broken("connection refused")

    def _statement(self, *_: object) -> None:
        if self.is_down or self._meets("statement"):
            raise self._broken("server closed the connection unexpectedly")

    def _is_disconnect(self, context: ExceptionContext) -> None:
        if isinstance(context.original_exception, self._broken):
            context.is_disconnect = True
