"""How requests leave: the values that go through a transport, and the transport of the standard library.

:class:`PooledTransport` keeps connections of ``http.client`` alive; ``httpx_transport`` is the one for asyncio.

A transport knows nothing of retries, problem documents or JSON. :class:`Transport` serves
:class:`lamella.client.Lamella`, :class:`AsyncTransport` :class:`lamella.client.AsyncLamella`. Shipped are
:class:`~lamella.client.http.transport.PooledTransport` (standard library),
:class:`~lamella.client.http.httpx_transport.HttpxTransport` (extra ``aio``) and the fakes of
:mod:`lamella.client.http.fake_transport`.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import weakref
from collections.abc import Generator
from typing import Final, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from lamella.snapshot.errors import InvalidRequest


class Address(msgspec.Struct, frozen=True):
    """A service's base URL; ``path`` is what stands before ``/v1`` (empty, or ``/prefix`` behind a proxy)."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_address(url: str) -> Address:
    """Read a base URL such as ``http://127.0.0.1:8181`` or ``https://lake.example.com/lamella``.

    Raises:
        InvalidRequest: another scheme, no host, a port that is none, or a user, query or fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", url=url) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is not the URL of a service; it looks like http://127.0.0.1:8181", url=url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidRequest("the URL of a service has no user, query or fragment; pass a token by `token`")
    if any(ord(c) <= 32 or ord(c) > 126 for c in parts.hostname + parts.path):
        raise InvalidRequest(f"{url!r} has characters that must be percent-encoded", url=url)
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Address(scheme, parts.hostname, port or (443 if scheme == "https" else 80), parts.path.rstrip("/"))


#: The reason of a failure once an answer had begun: the connection ended before its body did.
CUT_OFF: Final = "the answer was cut off"

#: A day: no service waits longer.
_MAX_MS: Final = 86_400_000


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request. ``target`` is the path with the query, percent-encoded, as it stands in the request line.

    ``patience_s``: the longest wait for each next piece of the answer, where it is longer than the transport's own.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    patience_s: float | None = None

    @property
    def path(self) -> str:
        """The target without the query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The value of a header, without regard to case; None when it is not there."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One whole HTTP answer; the names in ``headers`` are in lower case, ``body`` has no content encoding."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""


def timeout_header(timeout_s: float, patience_s: float | None) -> tuple[str, str]:
    """Tells the service how long its answer is waited for, so that it does not work for nobody."""
    waits_s = timeout_s if patience_s is None else max(timeout_s, patience_s)
    return "Lamella-Timeout-Ms", str(min(max(1, int(waits_s * 1000)), _MAX_MS))


class TransportFailure(Exception):
    """No whole answer came.

    ``sent``: some of the request may have reached the service, so a mutation may have happened. ``transient``: the
    same request may go through later. Raised by transports; users see :class:`lamella.snapshot.errors.Unavailable`.
    """

    def __init__(self, reason: str, *, sent: bool, transient: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent
        self.transient = transient


class Transport(Protocol):
    """Sends requests to one service. Implementations may be used by several threads at once."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """The answer, whatever its status; raises :class:`TransportFailure`."""
        ...

    def close(self) -> None:
        """Give back what is held open."""
        ...


class AsyncTransport(Protocol):
    """Sends requests to one service, from one event loop."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """The answer, whatever its status; raises :class:`TransportFailure`."""
        ...

    async def close(self) -> None:
        """Give back what is held open."""
        ...


Answer = TypeVar("Answer")


class Send(msgspec.Struct, frozen=True):
    """Send this request; what comes of it is sent back into the generator."""

    request: HttpRequest


class Wait(msgspec.Struct, frozen=True):
    """Wait so long, then go on with None."""

    delay_s: float


Outcome = HttpResponse | TransportFailure
Steps = Generator[Send | Wait, Outcome | None, Answer]


# The shipped transport: kept-alive connections of the standard library's ``http.client``.
#
# It is several times cheaper per call than the general HTTP libraries, and has no dependencies. It does not read proxy
# settings from the environment, follow redirects or handle cookies: none of them belongs in front of a metadata
# service.


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
