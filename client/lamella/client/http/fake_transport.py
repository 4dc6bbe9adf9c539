"""Transports without a network, for the tests of programs that use the client.

def handler(request: HttpRequest) -> HttpResponse:
    assert request.path == "/v1/namespaces"
    return json_response({"namespaces": [{"name": "db"}]})

lake = Lamella("http://lamella.test", transport=FakeTransport(handler))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure
from lamella.snapshot.wire import Problem

#: Returns a response, or returns or raises :class:`TransportFailure` when there is none.
Handler = Callable[[HttpRequest], HttpResponse | TransportFailure]


class FakeTransport:
    """A :class:`~lamella.client.http.transport.Transport` that calls a function; ``requests`` records what was sent."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.requests: list[HttpRequest] = []
        self.closed = False

    def send(self, request: HttpRequest) -> HttpResponse:
        """Record the request and return the handler's response."""
        self.requests.append(request)
        outcome = self._handler(request)
        if isinstance(outcome, TransportFailure):
            raise outcome
        return outcome

    def close(self) -> None:
        """Record that the transport was closed."""
        self.closed = True


class AsyncFakeTransport:
    """The same for :class:`~lamella.client.http.transport.AsyncTransport`."""

    def __init__(self, handler: Handler) -> None:
        self._fake = FakeTransport(handler)
        self.requests = self._fake.requests

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._fake.closed

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Record the request and return the handler's response."""
        return self._fake.send(request)

    async def close(self) -> None:
        """Record that the transport was closed."""
        self._fake.close()


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """A response with a JSON body; ``value`` may be a struct of :mod:`lamella.snapshot.wire`."""
    names = {name.lower(): text for name, text in (headers or {}).items()}
    return HttpResponse(
        status=status, headers={"content-type": "application/json", **names}, body=msgspec.json.encode(value)
    )


def problem_response(
    status: int, code: str, detail: str = "", *, headers: dict[str, str] | None = None, **details: Any
) -> HttpResponse:
    """A response with a problem document, as sent by the service."""
    problem = Problem(type="about:blank", title=code, status=status, detail=detail, code=code, details=details)
    names = {name.lower(): text for name, text in (headers or {}).items()}
    return json_response(problem, status, {"content-type": "application/problem+json", **names})
