"""Client connections over uvicorn and httptools, with timeouts for slow clients.

A client that opens connections and sends nothing, sends slowly, or reads its answers slowly costs a little memory for
each; this module limits the total. Such clients cannot keep others out: a new connection closes the one that has been
without a request for longest.

uvicorn has a timeout only between an answer and the next byte. So a connection reports to :class:`Connections` what it
is waiting for, limits the head of each request, and accepts no more requests than can be started soon. Its own error
responses are problem documents, too.
"""

from __future__ import annotations

import asyncio
import math
import resource
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, Literal, Protocol

import msgspec
from httptools import HttpParserError
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lamella.service.config.settings import Settings
from lamella.service.http.problem import MEDIA_TYPE, problem_bytes, problem_response, retry_after_s
from lamella.service.process.health import PATHS
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.errors import HeadersTooLarge, InvalidRequest, LamellaError, Overloaded, TooSlow, Unavailable

#: Key in the lifespan state under which connections find the :class:`Connections`.
STATE: Final = "lamella.connections"

#: Scope member with the latest time at which a request may be started.
BEGIN_UNTIL: Final = "lamella.begin_until"

#: Bytes that a client must send or read within the time for a step, unless fewer are left.
STEP_BYTES: Final = 64 << 10
_TICK_S: Final = 1.0
#: Requests that are started in one iteration of the event loop.
_A_ROUND: Final = 1
#: Open files that a process may need in addition to its connections: for the catalog, the store and the cache.
_OTHER_FILES: Final = 1_024

Reason = Literal["head", "body", "answer", "crowded", "refused", "unused"]


class ConnectionWatch(Protocol):
    """The part of a connection that :class:`Connections` watches."""

    @property
    def received_bytes(self) -> int:
        """Bytes of the current request that have been received."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not read yet."""

    @property
    def is_reading_paused(self) -> bool:
        """True while the service itself has paused reading the request."""

    def end(self, error: LamellaError | None = None) -> None:
        """Close the connection, with a response if the client can still receive one."""


class _Mark(msgspec.Struct):
    """The progress of a transfer at a point in time."""

    since_s: float
    done_bytes: int = 0


class Connections:
    """The open connections of a process. Belongs to one event loop. ``timer`` is a monotonic clock in seconds."""

    def __init__(self, settings: Settings, metrics: Metrics, timer: Callable[[], float] = time.monotonic) -> None:
        self._max_connections = settings.connections_max
        self._max_unstarted = settings.requests_at_once + settings.requests_waiting
        self.head_bytes = settings.header_bytes_max
        self._wait_s = settings.request_wait_s
        self._max_slow = settings.slow_readers_max
        self._head_s = settings.header_timeout_s
        self._body_s = settings.body_stall_s
        # Twice the maximum body size: a client whose body is slightly too large must be able to read the error.
        self._max_rest_bytes = 2 * settings.max_body_bytes
        self._answer_s = settings.answer_stall_s
        # The server closes them itself after that time, but closing waits until everything has been read.
        self._unused_s = settings.keep_alive_s + settings.answer_stall_s
        self._tick_s = min(_TICK_S, self._head_s / 4, self._body_s / 4, self._answer_s / 4)
        self._timer = timer
        self._metrics = metrics.limits
        self._refused = metrics.limits.refused.labels("any", "requests")
        #: Requests that were received but not started.
        self.unstarted = 0
        # Each of these is ordered by age, oldest first. A slow connection is not in the idle ones.
        self._all: dict[ConnectionWatch, None] = {}
        self._quiet: dict[ConnectionWatch, float] = {}
        self._heads: dict[ConnectionWatch, float] = {}
        self._bodies: dict[ConnectionWatch, _Mark] = {}
        self._rests: dict[ConnectionWatch, _Mark] = {}
        self._slow: dict[ConnectionWatch, _Mark] = {}
        self._tick: asyncio.TimerHandle | None = None
        self._counted: tuple[ASGIApp, ASGIApp] | None = None
        # Requests that wait to be started, and how many were started in this iteration of the event loop.
        self._turns: deque[Callable[[], None]] = deque()
        self._begun = 0
        self._is_counting = False

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._all)

    def raise_file_limit(self) -> int:
        """Raise this process's limit of open files; returns how many connections it allows, which may be fewer."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self._max_connections + _OTHER_FILES
        if 0 <= soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            self._max_connections = max(1, min(self._max_connections, soft - _OTHER_FILES))
        return self._max_connections

    def opened(self, connection: ConnectionWatch) -> bool:
        """A client has connected; False: the limit is reached, and it was refused."""
        if len(self._all) >= self._max_connections:
            # A client that sends data that is discarded is closed before one that has sent nothing yet.
            first = next(chain(self._rests, self._quiet), None)
            if first is None:
                self._cut(connection, "refused", Unavailable(_FULL, retry_after_s=1, limit="connections"))
                return False
            self._cut(first, "crowded")
        self._all[connection] = None
        now_s = self._timer()
        self._quiet[connection] = self._heads[connection] = now_s
        self._metrics.connections.set(len(self._all))
        if self._tick is None:
            self._tick = asyncio.get_running_loop().call_later(self._tick_s, self._look)
        return True

    def head_begun(self, connection: ConnectionWatch) -> None:
        """A part of a request's head was received."""
        if connection in self._all:
            self._heads.setdefault(connection, self._timer())

    def body_begun(self, connection: ConnectionWatch) -> None:
        """A part of a request's body was received, or is expected."""
        if connection in self._bodies or connection not in self._all:
            return
        rest = self._rests.get(connection)
        if rest is None:
            self._bodies[connection] = _Mark(self._timer())
        elif connection.received_bytes - rest.done_bytes > self._max_rest_bytes:
            self._cut(connection, "body")

    def head_ended(self, connection: ConnectionWatch) -> None:
        """The head is complete: the connection has a request."""
        self._quiet.pop(connection, None)
        self._heads.pop(connection, None)

    def body_ended(self, connection: ConnectionWatch) -> None:
        """The request is complete."""
        self._bodies.pop(connection, None)
        self._rests.pop(connection, None)

    def answered_early(self, connection: ConnectionWatch) -> None:
        """The request was answered before its whole body was received; the rest is discarded.

        Clients may send the whole request before they read the answer. So the rest may take the time of one step and
        have the size of two bodies, no matter how steadily it arrives.
        """
        if connection in self._all:
            self._bodies.pop(connection, None)
            self._rests[connection] = _Mark(self._timer(), connection.received_bytes)

    def answered(self, connection: ConnectionWatch) -> None:
        """The connection no longer has a request; it is not idle until its client has read the answer."""
        if connection in self._all and connection not in self._slow:
            self._quiet.pop(connection, None)
            self._quiet[connection] = self._timer()

    def writing_paused(self, connection: ConnectionWatch) -> None:
        """The client reads its answer more slowly than it is sent."""
        if connection not in self._all or connection in self._slow:
            return
        if len(self._slow) >= self._max_slow:
            self._cut(next(iter(self._slow)), "answer")
        self._quiet.pop(connection, None)
        self._slow[connection] = _Mark(self._timer(), connection.unsent_bytes)

    def writing_resumed(self, connection: ConnectionWatch) -> None:
        """The client has read almost everything; a connection without a request must then call :meth:`answered`."""
        self._slow.pop(connection, None)

    def closed(self, connection: ConnectionWatch) -> None:
        """The connection is closed."""
        if connection in self._all:
            for connections in (self._all, self._quiet, self._heads, self._bodies, self._rests, self._slow):
                connections.pop(connection, None)
            self._metrics.connections.set(len(self._all))

    def begin_until_s(self) -> float:
        """The latest time, by the timer, at which a request that arrives now may be started."""
        return self._timer() + self._wait_s

    def begin(self, start: Callable[[], None]) -> None:
        """Start a request in its turn: only a few in each iteration of the event loop.

        An iteration reads everything that clients have sent, but accepts only one new connection (uvloop). If all
        requests were started in the same iteration, new clients would wait for hundreds of other requests.
        """
        self.unstarted += 1
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._begun < _A_ROUND:
            self._start(start)
        else:
            self._turns.append(start)

    def _start(self, start: Callable[[], None]) -> None:
        self._begun += 1
        try:
            start()
        except BaseException:
            self.unstarted -= 1  # it will not be started, so nothing else decrements the count
            raise

    def _next_round(self) -> None:
        self._begun = 0
        self._is_counting = bool(self._turns)
        if self._is_counting:  # first, since a request that fails to start must not block the others
            asyncio.get_running_loop().call_soon(self._next_round)
        while self._turns and self._begun < _A_ROUND:
            self._start(self._turns.popleft())

    @property
    def is_busy(self) -> bool:
        """True when the limit of received requests that are not started is reached."""
        return self.unstarted >= self._max_unstarted

    def refused(self) -> None:
        """A request was refused because of that limit."""
        self._refused.inc()

    def counted(self, app: ASGIApp) -> ASGIApp:
        """Wrap the application: count the requests that it starts, and refuse those that waited too long."""
        if self._counted is None or self._counted[0] is not app:

            async def begun(scope: Scope, receive: Receive, send: Send) -> None:
                self.unstarted -= 1
                if self._timer() > scope[BEGIN_UNTIL]:
                    self.refused()
                    await problem_response(busy())(scope, receive, send)
                else:
                    await app(scope, receive, send)

            self._counted = app, begun
        return self._counted[1]

    def _look(self) -> None:
        now_s = self._timer()
        for connection in _overdue(self._heads, now_s - self._head_s):
            is_begun = connection.received_bytes > 0
            self._cut(connection, "head", TooSlow(_HEAD_TIMEOUT, retry_after_s=1, limit="head") if is_begun else None)
        for connection in _overdue(self._quiet, now_s - self._unused_s):
            self._cut(connection, "unused")
        for connection in _overdue_marks(self._bodies, now_s - self._body_s):
            done_bytes = self._bodies.pop(connection).done_bytes
            if connection.is_reading_paused or connection.received_bytes - done_bytes >= STEP_BYTES:
                self._bodies[connection] = _Mark(now_s, connection.received_bytes)
            else:
                self._cut(connection, "body", TooSlow(_BODY_TIMEOUT, retry_after_s=1, limit="body"))
        for connection in _overdue_marks(self._rests, now_s - self._body_s):
            self._cut(connection, "body")
        for connection in _overdue_marks(self._slow, now_s - self._answer_s):
            if self._slow.pop(connection).done_bytes - connection.unsent_bytes >= STEP_BYTES:
                self._slow[connection] = _Mark(now_s, connection.unsent_bytes)
            else:
                self._cut(connection, "answer")
        self._tick = asyncio.get_running_loop().call_later(self._tick_s, self._look) if self._all else None

    def _cut(self, connection: ConnectionWatch, reason: Reason, error: LamellaError | None = None) -> None:
        self.closed(connection)
        self._metrics.connections_cut.labels(reason).inc()
        connection.end(error)


def busy() -> Overloaded:
    """The error for a request that arrives while too many wait, or that waited too long."""
    return Overloaded("too many requests are under way", retry_after_s=1, limit="requests")


_FULL: Final = "the service has as many connections as it takes"
_HEAD_TIMEOUT: Final = "the head of the request did not come in time"
_BODY_TIMEOUT: Final = "the body of the request does not come on"


def _overdue(since: dict[ConnectionWatch, float], before_s: float) -> list[ConnectionWatch]:
    found = []
    for connection, since_s in since.items():
        if since_s > before_s:
            break
        found.append(connection)
    return found


def _overdue_marks(marks: dict[ConnectionWatch, _Mark], before_s: float) -> list[ConnectionWatch]:
    found = []
    for connection, mark in marks.items():
        if mark.since_s > before_s:
            break
        found.append(connection)
    return found


#: Maximum number of headers; clients and their proxies need fewer.
MAX_HEADERS: Final = 128
#: Requests that a client may send before it gets their answers (pipelining).
MAX_AHEAD: Final = 8

_NOTHING, _HEAD, _BODY = range(3)


class _Refused(HttpParserError):
    """Stops reading from a client."""


class _AnswerWriter:
    """What an answer writes to its connection: the head waits for the body, so that one system call sends both.

    It waits no longer than until the next iteration of the event loop: the head of a stream is sent at once, too.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes) -> None:
        """Write data; the first ones wait for the next."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) <= STEP_BYTES:
                self._transport.write(head + data)
            else:
                self._transport.write(head)
                self._transport.write(data)
        elif self._is_begun:
            self._transport.write(data)
        else:
            self._is_begun = True
            self._head = data
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits."""
        if self._head:
            head, self._head = self._head, b""
            if not self._transport.is_closing():
                self._transport.write(head)

    def is_closing(self) -> bool:
        """True once the connection closes."""
        return bool(self._transport.is_closing())

    def close(self) -> None:
        """Close the connection when everything is written."""
        self.flush()
        self._transport.close()


class ClientConnection(HttpToolsProtocol):
    """One connection. The lifespan state of the app has its :class:`Connections`."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections: Connections = app_state[STATE]
        self.app: Any = self._connections.counted(self.app)
        self._coming = _NOTHING
        self._head_bytes = 0
        self._is_long = False
        self._refusal: LamellaError | None = None
        self.received_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not read yet."""
        return self.transport.get_write_buffer_size()

    @property
    def is_reading_paused(self) -> bool:
        """True while the service itself has paused reading the request."""
        return self.flow.read_paused

    def end(self, error: LamellaError | None = None) -> None:
        """Close the connection, with a response if the client can still receive one."""
        if self.unsent_bytes or self.transport.is_closing():
            self.transport.abort()  # closing would wait until everything is read
            return
        if error is not None and self._can_be_answered:
            self._write_problem(error, is_last=True)
        self.transport.close()

    # What the transport calls.

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._connections.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.closed(self)

    def data_received(self, data: bytes) -> None:
        connections = self._connections
        self._is_long = self._head_bytes + len(data) > connections.head_bytes
        super().data_received(data)
        if self._coming == _NOTHING:
            return
        self.received_bytes += len(data)
        if self._coming == _BODY:
            connections.body_begun(self)
            if len(self.headers) > MAX_HEADERS:  # of the trailer: those before the body are counted there
                self.end()
            return
        self._head_bytes += len(data)
        if self._head_bytes > connections.head_bytes:
            self.end(_too_large(connections.head_bytes))
        else:
            connections.head_begun(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.writing_paused(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connections.writing_resumed(self)
        if self._is_idle:
            self._begin_idling()  # only now: the time for reading the answer does not count as idle time

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._coming = _HEAD
        self.received_bytes = 0
        if len(self.pipeline) >= MAX_AHEAD:
            self._refuse(InvalidRequest(f"more than {MAX_AHEAD} requests were sent ahead", limit="pipeline"))

    def on_headers_complete(self) -> None:
        limit_bytes = self._connections.head_bytes
        if self._is_long and len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers) > limit_bytes:
            self._refuse(_too_large(limit_bytes))
        if len(self.headers) > MAX_HEADERS:
            self._refuse(HeadersTooLarge(f"there are more than {MAX_HEADERS} headers", limit="headers"))
        self._head_bytes = 0
        self._coming = _BODY
        self._connections.head_ended(self)
        super().on_headers_complete()
        if self.cycle is not None:
            writer = _AnswerWriter(self.transport, self.loop)
            self.cycle.transport = writer  # type: ignore[assignment]  # all of a transport that a cycle uses
            self.cycle.on_response = partial(self._end_answer, writer)
        self.headers = []  # those of the trailer come here

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._coming = _NOTHING
        self._connections.body_ended(self)
        if self._is_idle:
            # It was answered before all of it was received, and data that arrived later cancelled the connection's
            # timeout.
            self._begin_idling()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long; one that still reads an answer is not idle."""
        if not self.flow.write_paused:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer data that cannot be parsed as HTTP."""
        self.end(self._refusal or InvalidRequest(msg))

    # What requests call.

    def _end_answer(self, writer: _AnswerWriter) -> None:
        writer.flush()  # of an answer without a body; before that of the next request
        self.on_response_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle:
            self._connections.answered(self)
        elif self.cycle.response_complete:
            self._connections.answered_early(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        connections, is_urgent = self._connections, cycle.scope["path"] in PATHS
        if connections.is_busy and not is_urgent:
            connections.refused()
            cycle.response_started = cycle.response_complete = True
            is_last = not cycle.keep_alive or cycle.scope["method"] == "HEAD"
            self._write_problem(busy(), is_last=is_last, has_body=cycle.scope["method"] != "HEAD")
            if is_last:
                self.transport.close()
            self.on_response_complete()
            return
        if is_urgent:
            cycle.scope[BEGIN_UNTIL] = math.inf  # type: ignore[typeddict-unknown-key]  # a member of ours
            connections.unstarted += 1
            super()._start_asgi_task(cycle, app)
        else:
            cycle.scope[BEGIN_UNTIL] = connections.begin_until_s()  # type: ignore[typeddict-unknown-key]
            connections.begin(partial(super()._start_asgi_task, cycle, app))

    @property
    def _is_idle(self) -> bool:
        """True when the last request was answered, and was received completely or will not be received further."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_complete:
            return False
        return self._coming != _BODY or self.transport.is_closing()

    def _begin_idling(self) -> None:
        self._connections.answered(self)
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    @property
    def _can_be_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        if self._coming == _BODY:
            return cycle is not None and not cycle.response_started
        return cycle is None or cycle.response_complete

    def _refuse(self, error: LamellaError) -> None:
        self._refusal = error
        raise _Refused(error.message)

    def _write_problem(self, error: LamellaError, *, is_last: bool, has_body: bool = True) -> None:
        status, body = problem_bytes(error)
        headers = [*self.server_state.default_headers, (b"content-type", MEDIA_TYPE.encode())]
        headers.append((b"content-length", b"%d" % len(body)))
        if isinstance(error, Unavailable):
            headers.append((b"retry-after", b"%d" % retry_after_s(error)))
        if is_last:
            headers.append((b"connection", b"close"))
        head = b"".join(b"%b: %b\r\n" % header for header in headers)
        line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self.transport.write(b"".join((line, head, b"\r\n", body if has_body else b"")))


def _too_large(limit_bytes: int) -> HeadersTooLarge:
    return HeadersTooLarge(f"the head of the request is larger than {limit_bytes} bytes", limit="header_bytes")
