"""The shipped transport: kept-alive connections of the standard library's ``http.client``.

It is several times cheaper per call than the general HTTP libraries, and has no dependencies. It does not read proxy
settings from the environment, follow redirects or handle cookies: none of them belongs in front of a metadata service.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import weakref

from lamella.client.http.address import parse_address
from lamella.client.http.transport import CUT_OFF, HttpRequest, HttpResponse, TransportFailure, timeout_header


class PooledTransport:
    """A thread-safe pool of connections to one service, closed at the latest when nobody has it any more.

    ``timeout_s`` bounds the wait for a connection and for each next piece of an answer. ``max_idle``: how many unused
    connections are kept; more than that may be in use at once. ``ssl_context``: for https with a private authority or
    a client certificate; by default the system's authorities are trusted and the host's name is checked.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 30.0, max_idle: int = 8, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._address = parse_address(url)
        self._timeout_s = timeout_s
        self._max_idle = max_idle
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle)  # a frame of Spark's has no end at which it could be closed

    def send(self, request: HttpRequest) -> HttpResponse:
        """One request and its whole answer; raises :class:`TransportFailure`."""
        connection = self._take() or self._connect()
        reusable = False
        if request.patience_s is not None and connection.sock is not None:
            connection.sock.settimeout(max(self._timeout_s, request.patience_s))
        try:
            whole = _write(connection, request, timeout_header(self._timeout_s, request.patience_s))
            with connection.getresponse() as answer:
                if answer.length is None and not answer.chunked:
                    # Such a body ends when the connection does, so a cut-off one looks whole.
                    raise http.client.HTTPException("the answer does not say how long it is")
                headers = {name.lower(): value for name, value in answer.getheaders()}
                response = HttpResponse(status=answer.status, headers=headers, body=_body(answer))
                reusable = whole and not answer.will_close
        except (OSError, http.client.HTTPException) as error:
            raise TransportFailure(_reason(error), sent=True) from error
        finally:
            # Also after an interrupt: a half-read answer must never be taken for the next one's.
            if reusable:
                self._give_back(connection)
            else:
                connection.close()
        return response

    def close(self) -> None:
        """Close the unused connections. A later request opens a new one."""
        with self._lock:
            _close_all(self._idle)

    def _connect(self) -> http.client.HTTPConnection:
        a = self._address
        if a.scheme == "https":
            with self._lock:
                if self._ssl_context is None:
                    self._ssl_context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                a.host, a.port, timeout=self._timeout_s, context=self._ssl_context
            )
        else:
            connection = http.client.HTTPConnection(a.host, a.port, timeout=self._timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            transient = not isinstance(error, ssl.SSLCertVerificationError)
            raise TransportFailure(_reason(error), sent=False, transient=transient) from error
        return connection

    def _take(self) -> http.client.HTTPConnection | None:
        """The connection used last that is still open, if any."""
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    # After a fork both processes hold the same sockets; the child must not speak on them.
                    self._idle.clear()
                    self._pid = os.getpid()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._pid == os.getpid() and len(self._idle) < self._max_idle and connection.sock is not None:
                connection.sock.settimeout(self._timeout_s)
                self._idle.append(connection)
                return
        connection.close()


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _write(connection: http.client.HTTPConnection, request: HttpRequest, timeout: tuple[str, str]) -> bool:
    """Send the request; False when the service hung up before it had read it all.

    It may have answered first (a body that is too large), so that is no failure yet.
    """
    try:
        connection.request(
            request.method, request.target, body=request.body or None, headers=dict((timeout, *request.headers))
        )
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _body(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read()
    except ConnectionError as error:  # cut off by a reset instead of an end
        raise TransportFailure(CUT_OFF, sent=True) from error


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """True when nothing can be read: an idle connection that can be read was closed by the other side."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _reason(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return CUT_OFF
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
