"""Transports: requests and responses, and the transport over the standard library.

:class:`PooledTransport` keeps connections of ``http.client`` alive; ``httpx_transport`` is the one for asyncio.

A transport does not handle retries, problem documents or JSON. :class:`Transport` is used by
:class:`lamella.client.Lamella`, :class:`AsyncTransport` by :class:`lamella.client.AsyncLamella`. Lamella includes
:class:`~lamella.client.http.transport.PooledTransport` (standard library),
:class:`~lamella.client.http.httpx_transport.HttpxTransport` (extra ``aio``), those of
:mod:`lamella.client.http.embedded`, which answer in this process, and the fakes of
:mod:`lamella.client.http.fake_transport`.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import time
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Final, Literal, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from lamella.snapshot.errors import InvalidRequest


class Address(msgspec.Struct, frozen=True):
    """A service's base URL; ``path`` is the part before ``/v1`` (empty, or ``/prefix`` behind a proxy)."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class FolderAddress(Address, frozen=True, kw_only=True):
    """Where an embedded lake is: ``folder`` is an absolute path. Its text is a ``file://`` URL."""

    scheme: Literal["http", "https"] = "http"
    host: str = "localhost"
    port: int = 80
    path: str = ""
    folder: str

    def __str__(self) -> str:
        return FOLDER + quote(self.folder)


#: What the addresses of embedded lakes begin with.
FOLDER: Final = "file://"
#: The database in the folder of a lake, unless the settings of a service name another one.
CATALOG: Final = "_catalog.db"


def folder_of(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder given as a path, which may begin with ``~``, or as a ``file://`` URL."""
    text = os.fspath(path)
    if text.startswith(FOLDER):
        text = unquote(text.removeprefix(FOLDER))
    return str(Path(text).expanduser().absolute()) if "://" not in text else text


def parse_address(url: str) -> Address:
    """Read a base URL such as ``http://127.0.0.1:8181`` or ``https://lake.example.com/lamella``.

    Raises:
        InvalidRequest: the URL has another scheme, no host, an invalid port, or a user, query or fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{url!r} is not a URL: {error}", url=url) from error
    if url.startswith(FOLDER):
        raise InvalidRequest(
            f"{url} is a folder, not the URL of a service: Lamella.embedded(folder) opens it in this process, and "
            "`lamella serve --warehouse FOLDER` serves it by a URL",
            url=url,
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is not the URL of a service; it looks like http://127.0.0.1:8181", url=url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidRequest("the URL of a service has no user, query or fragment; pass a token by `token`")
    if any(ord(c) <= 32 or ord(c) > 126 for c in parts.hostname + parts.path):
        raise InvalidRequest(f"{url!r} has characters that must be percent-encoded", url=url)
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Address(scheme, parts.hostname, port or (443 if scheme == "https" else 80), parts.path.rstrip("/"))


#: The connection was closed before the end of the response body.
CUT_OFF: Final = "the answer was cut off"

#: A day: no service waits longer.
_MAX_MS: Final = 86_400_000
_TOO_LARGE: Final = 413


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request. ``target`` is the percent-encoded path with the query, as sent in the request line.

    ``min_timeout_s``: the maximum wait in seconds for each part of the response, if longer than the transport's own.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    min_timeout_s: float | None = None

    @property
    def path(self) -> str:
        """The target without the query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The value of a header, ignoring case; None when the header is missing."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A complete HTTP response; the names in ``headers`` are in lower case, ``body`` has no content encoding."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""


def timeout_header(timeout_s: float, min_timeout_s: float | None) -> tuple[str, str]:
    """The header that gives the service the client's timeout, so that it stops work when the client has given up."""
    waits_s = timeout_s if min_timeout_s is None else max(timeout_s, min_timeout_s)
    return "Lamella-Timeout-Ms", str(min(max(1, int(waits_s * 1000)), _MAX_MS))


class TransportFailure(Exception):
    """No complete response was received.

    ``sent``: part of the request may have reached the service, so a mutation may have been made. ``transient``: the
    same request may succeed later. Raised by transports; users see :class:`lamella.snapshot.errors.Unavailable`.
    """

    def __init__(self, reason: str, *, sent: bool, transient: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent
        self.transient = transient


class Transport(Protocol):
    """Sends requests to one service. Implementations may be used by several threads at once."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """The response, with any status; raises :class:`TransportFailure`."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class AsyncTransport(Protocol):
    """Sends requests to one service, from one event loop."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """The response, with any status; raises :class:`TransportFailure`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


Answer = TypeVar("Answer")


class Send(msgspec.Struct, frozen=True):
    """Send this request; the outcome is sent into the generator."""

    request: HttpRequest


class Wait(msgspec.Struct, frozen=True):
    """Wait for ``delay_s`` seconds, then continue with None."""

    delay_s: float


Outcome = HttpResponse | TransportFailure
Steps = Generator[Send | Wait, Outcome | None, Answer]


# The default transport: persistent connections of the standard library's ``http.client``.
#
# It takes a fraction of the time per call of general HTTP libraries, and has no dependencies. It does not read proxy
# settings from the environment, follow redirects or handle cookies: a metadata service needs none of these.


#: A connection that was unused for longer is not used again: a service closes it after five seconds by default
#: (``keep_alive_s``), and a request that is sent in that moment is lost.
MAX_IDLE_S: Final = 4.0


class PooledTransport:
    """A thread-safe pool of connections to one service; also closed when it is garbage-collected.

    ``timeout_s``: the maximum wait in seconds for a connection and for each part of a response. ``max_idle``: the
    number of unused connections that are kept; more may be in use at the same time. ``ssl_context``: for https with a
    private authority or a client certificate; by default the system's authorities are trusted and the host name is
    checked.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 30.0, max_idle: int = 8, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._address = parse_address(url)
        self._timeout_s = timeout_s
        self._max_idle = max_idle
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        #: Unused connections, and since when.
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle)  # a Spark DataFrame has no point at which it could be closed

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the complete response; raises :class:`TransportFailure`."""
        connection = self._take() or self._connect()
        reusable = False
        if request.min_timeout_s is not None and connection.sock is not None:
            connection.sock.settimeout(max(self._timeout_s, request.min_timeout_s))
        try:
            whole = _write(connection, request, timeout_header(self._timeout_s, request.min_timeout_s))
            with connection.getresponse() as answer:
                if answer.length is None and not answer.chunked:
                    # Such a body ends with the connection, so a truncated one would look complete.
                    raise http.client.HTTPException("the response has no Content-Length")
                headers = {name.lower(): value for name, value in answer.getheaders()}
                response = HttpResponse(status=answer.status, headers=headers, body=_body(answer))
                # The service may not have read a body that it found too large, and then closes the connection.
                reusable = whole and not answer.will_close and answer.status != _TOO_LARGE
        except (OSError, http.client.HTTPException) as error:
            raise TransportFailure(_reason(error), sent=True) from error
        finally:
            # Also after an interrupt: the rest of a response must never be read as the next one.
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
        """The most recently used connection that is still open, or None."""
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    # After a fork both processes have the same sockets; the child must not use them.
                    self._idle.clear()
                    self._pid = os.getpid()
                if not self._idle:
                    return None
                connection, since_s = self._idle.pop()
            if time.monotonic() - since_s < MAX_IDLE_S and _is_quiet(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._pid == os.getpid() and len(self._idle) < self._max_idle and connection.sock is not None:
                connection.sock.settimeout(self._timeout_s)
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()


def _close_all(connections: list[tuple[http.client.HTTPConnection, float]]) -> None:
    while connections:
        connections.pop()[0].close()


def _write(connection: http.client.HTTPConnection, request: HttpRequest, timeout: tuple[str, str]) -> bool:
    """Send the request; False when the service closed the connection before it had read all of it.

    It may have responded before that (when a body is too large), so this is not a failure yet.
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
    except ConnectionError as error:  # truncated by a reset
        raise TransportFailure(CUT_OFF, sent=True) from error


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """True when nothing can be read; an idle connection that can be read was closed by the other side."""
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
