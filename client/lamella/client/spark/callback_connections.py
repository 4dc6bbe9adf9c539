"""The connections by which the JVM calls proxies in this process, and closing those that are no longer in use.

With pinned threads py4j gives each JVM thread that calls a proxy a connection of its own, which a thread of this
process serves. Neither side ever closes it: not when the JVM thread ends, and not while that thread is idle. Spark runs
the result stage of each adaptive query, each broadcast and each subquery on a thread of a pool that prefers a new
thread to an idle one, so each query would leave descriptors and a thread behind in both processes.

Without pinned threads py4j has a pool of connections, which it cleans up by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import msgspec
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError

#: So many connections that no JVM thread uses may stay open.
_IDLE: Final = 16

_log = logging.getLogger(__name__)


class _Connection(msgspec.Struct, frozen=True, eq=False):
    """py4j's ``ClientServerConnection`` in the JVM, and the ``java.lang.Thread`` that opened it."""

    java_connection: Any
    java_thread: Any


class CallbackConnections:
    """The callback connections of one py4j gateway."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._client = gateway._gateway_client
        self._pins_threads = isinstance(gateway, ClientServer)
        self._lock = threading.Lock()
        self._open: list[_Connection] = []
        self._limit = _IDLE
        self._thread = threading.local()

    @contextmanager
    def callback(self) -> Iterator[None]:
        """To be held around each callback; closes idle connections when a new one makes them too many."""
        if not self._pins_threads:
            yield
            return
        connection = self._client.get_thread_connection()
        if connection is not None and not getattr(self._thread, "is_known", False):
            self._thread.is_known = True
            if connection.python_server is not None:  # opened by the JVM, not by a thread of ours
                self._add()
        try:
            yield
        finally:
            # A call into the JVM from within a callback gives the connection back to py4j's list of idle ones, and the
            # call that led to the callback does so again. When the thread ends py4j removes one entry only, and the
            # other would keep the connection open for ever.
            with suppress(ValueError):
                self._client.deque.remove(connection)

    def _add(self) -> None:
        try:
            client = self._gateway.java_gateway_server.getCallbackClient()
            java_thread = self._gateway.jvm.java.lang.Thread.currentThread()
            added = _Connection(client.getPerThreadConnection(), java_thread)
            with self._lock:
                self._open.append(added)
                if len(self._open) <= self._limit:
                    return
                seen, self._open = self._open, []
            busy = self._close_idle(client, seen)
            with self._lock:
                self._open += busy
                self._limit = max(_IDLE, 2 * len(self._open))
        except Py4JError:
            # A query does not fail because of this.
            _log.warning("connections of callbacks are not closed, as py4j is not the expected one", exc_info=True)

    def _close_idle(self, client: Any, connections: list[_Connection]) -> list[_Connection]:
        """Close those that no JVM thread uses; returns the others.

        py4j hands a connection to a thread under a lock, which is held here. So a thread that is not inside py4j now
        has to come by that lock before it can use its connection, and opens another one when it finds it closed.
        Membership in py4j's own list of idle connections is not enough: a callback within a callback puts the
        connection there while the outer one still uses it.
        """
        jvm = self._gateway.jvm
        fields = client.getClass().getSuperclass()
        lock, idle = (_private(client, fields, name) for name in ("lock", "connections"))
        closed = jvm.java.util.ArrayList()
        busy = []
        lock.lock()
        try:
            for connection in connections:
                if "py4j." in stack_text(jvm, connection.java_thread):
                    busy.append(connection)
                else:
                    connection.java_connection.shutdown()
                    closed.add(connection.java_connection)
            idle.removeAll(closed)
        finally:
            lock.unlock()
        return busy


@cache
def callback_connections(gateway: Any) -> CallbackConnections:
    """Those of a py4j gateway, of which a process has one."""
    return CallbackConnections(gateway)


def stack_text(jvm: Any, java_thread: Any) -> str:
    """What a thread of the JVM is in, as text; empty braces when it has ended."""
    return str(jvm.org.apache.commons.lang3.ArrayUtils.toString(java_thread.getStackTrace()))


def _private(instance: Any, java_class: Any, name: str) -> Any:
    field = java_class.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(instance)
