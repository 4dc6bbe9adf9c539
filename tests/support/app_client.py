"""A client of an application in this process."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httpx2
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

_PORTS = {"http": 80, "https": 443}


class AppClient(TestClient):
    """Starlette's test client, but an answer crosses to the thread of the application's event loop once.

    Starlette's own crosses about 15 times, which takes more processor time than most requests. An answer is read
    whole before the test gets it. Use it as a context manager: the application runs from its start to its end.
    """

    def __init__(self, app: ASGIApp, *, raise_server_exceptions: bool = True, **options: Any) -> None:
        super().__init__(app, raise_server_exceptions=raise_server_exceptions, **options)
        self._transport = _Transport(self, self._transport, raise_server_exceptions)


class _Transport(httpx2.BaseTransport):
    """Sends a request to the application of a client that is open; to another one as Starlette does."""

    def __init__(self, client: AppClient, starlettes: Any, raise_server_exceptions: bool) -> None:
        self._client = client
        self._starlettes = starlettes
        self._raise_server_exceptions = raise_server_exceptions

    def close(self) -> None:
        """End what Starlette's transport has open."""
        self._starlettes.close()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, whole.

        Raises:
            Exception: What the application raised, if the client was told to raise it.
        """
        portal = self._client.portal
        if portal is None or request.url.scheme not in _PORTS:
            answer: httpx2.Response = self._starlettes.handle_request(request)
            return answer
        exchange = _Exchange(request.method, request.read())
        raised = portal.call(exchange.run, self._starlettes.app, self._scope(request))
        if raised is not None and self._raise_server_exceptions:
            raise raised
        if exchange.status is None:
            assert not self._raise_server_exceptions, "the application has not answered"
            return httpx2.Response(500, request=request)
        return httpx2.Response(
            exchange.status, headers=exchange.headers, stream=httpx2.ByteStream(exchange.answer), request=request
        )

    def _scope(self, request: httpx2.Request) -> dict[str, Any]:
        url = request.url
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        if not any(name == b"host" for name, _ in headers):
            headers.insert(0, (b"host", url.netloc))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.split(b"?", 1)[0],
            "root_path": self._starlettes.root_path,
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": headers,
            "client": self._starlettes.client,
            "server": [url.host, url.port or _PORTS[url.scheme]],
            "extensions": {},
            "state": self._starlettes.app_state.copy(),
        }


class _Exchange:
    """One request and its answer, as the application reads and sends them."""

    def __init__(self, method: str, body: bytes) -> None:
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self._method = method
        self._body: bytes | None = body
        self._parts: list[bytes] = []
        self._complete: asyncio.Event | None = None

    @property
    def answer(self) -> bytes:
        """The body of the answer."""
        return b"" if self._method == "HEAD" else b"".join(self._parts)

    async def run(self, app: ASGIApp, scope: dict[str, Any]) -> Exception | None:
        """Let the application answer; returns what it raised."""
        self._complete = asyncio.Event()
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            return error
        return None

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        assert self._complete is not None
        await self._complete.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        assert self._complete is not None
        if message["type"] == "http.response.start":
            assert self.status is None, "the answer began twice"
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            assert self.status is not None, "the body came before the start"
            assert not self._complete.is_set(), "the answer went on after its end"
            self._parts.append(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                self._complete.set()
