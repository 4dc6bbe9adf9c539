"""A connection of a client, as uvicorn and httptools speak HTTP on it, with an eye on those who do not come to an end.

uvicorn gives a connection a time only between an answer and the next byte. So this tells
:class:`~lamella.service.connections.Connections` what it is waiting for, keeps the head of each request within bounds,
and takes on no more requests than can be begun soon. What it answers itself are problem documents, too.
"""

from __future__ import annotations

import math
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lamella.service.connections import BEGIN_UNTIL, STATE, Connections, busy
from lamella.service.probes import PATHS
from lamella.service.problem import MEDIA_TYPE, problem_bytes, retry_after_s
from lamella.snapshot.errors import HeadersTooLarge, InvalidRequest, LamellaError, Unavailable

#: More headers than clients, and proxies before them, have a use for.
MOST_HEADERS: Final = 128
#: Requests that a client may send ahead of their answers.
MOST_AHEAD: Final = 8

_NOTHING, _HEAD, _BODY = range(3)


class _Refused(HttpParserError):
    """Ends the reading of what a client sends."""


class ClientConnection(HttpToolsProtocol):
    """One connection. The state of the app's lifespan has the :class:`Connections` that it is one of."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._kept: Connections = app_state[STATE]
        self.app: Any = self._kept.counted(self.app)
        self._coming = _NOTHING
        self._head_bytes = 0
        self._is_long = False
        self._refusal: LamellaError | None = None
        self.received_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    @property
    def is_held_back(self) -> bool:
        """True while the service itself takes no more of the request."""
        return self.flow.read_paused

    def end(self, error: LamellaError | None = None) -> None:
        """Close it, with an answer where the client can still be given one."""
        if self.unsent_bytes or self.transport.is_closing():
            self.transport.abort()  # to close it would be to wait until all is taken
            return
        if error is not None and self._can_be_answered:
            self._write_problem(error, is_last=True)
        self.transport.close()

    # What the transport calls.

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._kept.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._kept.closed(self)

    def data_received(self, data: bytes) -> None:
        kept = self._kept
        self._is_long = self._head_bytes + len(data) > kept.head_bytes
        super().data_received(data)
        if self._coming == _NOTHING:
            return
        self.received_bytes += len(data)
        if self._coming == _BODY:
            kept.body_begun(self)
            if len(self.headers) > MOST_HEADERS:  # of the trailer: those before the body are counted there
                self.end()
            return
        self._head_bytes += len(data)
        if self._head_bytes > kept.head_bytes:
            self.end(_too_large(kept.head_bytes))
        else:
            kept.head_begun(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._kept.held_up(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._kept.went_on(self)
        if self._is_idle:
            self._begin_idling()  # only now: the time without a request is not the time that the answer took

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._coming = _HEAD
        self.received_bytes = 0
        if len(self.pipeline) >= MOST_AHEAD:
            self._refuse(InvalidRequest(f"more than {MOST_AHEAD} requests were sent ahead", limit="pipeline"))

    def on_headers_complete(self) -> None:
        limit_bytes = self._kept.head_bytes
        if self._is_long and len(self.url) + sum(len(n) + len(v) + 4 for n, v in self.headers) > limit_bytes:
            self._refuse(_too_large(limit_bytes))
        if len(self.headers) > MOST_HEADERS:
            self._refuse(HeadersTooLarge(f"there are more than {MOST_HEADERS} headers", limit="headers"))
        self._head_bytes = 0
        self._coming = _BODY
        self._kept.head_ended(self)
        super().on_headers_complete()
        self.headers = []  # those of the trailer come here

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._coming = _NOTHING
        self._kept.body_ended(self)
        if self._is_idle:
            # It was answered before all of it had come, and what came since then ended the time of the connection.
            self._begin_idling()

    def timeout_keep_alive_handler(self) -> None:
        """Close what was idle for too long; who still takes an answer is not idle."""
        if not self.flow.write_paused:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read as HTTP."""
        self.end(self._refusal or InvalidRequest(msg))

    # What requests call.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle:
            self._kept.answered(self)
        elif self.cycle.response_complete:
            self._kept.answered_early(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        kept, is_urgent = self._kept, cycle.scope["path"] in PATHS
        if kept.is_busy and not is_urgent:
            kept.refused()
            cycle.response_started = cycle.response_complete = True
            is_last = not cycle.keep_alive or cycle.scope["method"] == "HEAD"
            self._write_problem(busy(), is_last=is_last, has_body=cycle.scope["method"] != "HEAD")
            if is_last:
                self.transport.close()
            self.on_response_complete()
            return
        if is_urgent:
            cycle.scope[BEGIN_UNTIL] = math.inf  # type: ignore[typeddict-unknown-key]  # a member of ours
            kept.unstarted += 1
            super()._start_asgi_task(cycle, app)
        else:
            cycle.scope[BEGIN_UNTIL] = kept.begin_until_s()  # type: ignore[typeddict-unknown-key]
            kept.begin(partial(super()._start_asgi_task, cycle, app))

    @property
    def _is_idle(self) -> bool:
        """True when the last request was answered, and has come to its end, or as far as it ever will."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_complete:
            return False
        return self._coming != _BODY or self.transport.is_closing()

    def _begin_idling(self) -> None:
        self._kept.answered(self)
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
