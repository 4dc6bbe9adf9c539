"""The ports through which requests leave: values in, values out, one kind of failure.

A transport knows nothing of retries, problem documents or JSON. :class:`Transport` serves
:class:`lamella.client.Lamella`, :class:`AsyncTransport` its async twin. Shipped are
:class:`~lamella.client.http.pool.PooledTransport` (standard library),
:class:`~lamella.client.http.httpx_transport.HttpxTransport` (extra ``aio``) and the fakes of
:mod:`lamella.client.http.testing`.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

#: The reason of a failure once an answer had begun: the connection ended before its body did.
CUT_OFF: Final = "the answer was cut off"

#: A day: no service waits longer.
_MOST_MS: Final = 86_400_000


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
    return "Lamella-Timeout-Ms", str(min(max(1, int(waits_s * 1000)), _MOST_MS))


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
