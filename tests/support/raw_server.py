"""A small application behind our connections, in a thread, and raw sockets to talk to it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from lamella.service.config.settings import Settings
from lamella.service.http.connections import STATE, ClientConnection, Connections
from lamella.service.telemetry.metrics import Metrics
from support.loopback import LoopbackServer
from support.ports import free_port

WAIT_S = 60
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_POST = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


def post(path: str, size_bytes: int) -> bytes:
    """The head of a request with a body."""
    return _POST % (path.encode(), size_bytes)


class RawServer:
    """``app`` on a loopback port, a context manager. ``settings``: those of connections."""

    def __init__(self, app: ASGIApp, **settings: Any) -> None:
        chosen = Settings(warehouse="memory://none", **settings)
        self.metrics = Metrics()
        self.connections = Connections(chosen, self.metrics)
        self.port = free_port()
        self._app = app
        self._made: list[socket.socket] = []
        config = uvicorn.Config(
            self,
            host="127.0.0.1",
            port=self.port,
            log_level="critical",
            lifespan="on",
            http=ClientConnection,
            ws="none",
            timeout_keep_alive=chosen.keep_alive_s,  # type: ignore[arg-type]  # it takes any number
            timeout_graceful_shutdown=1,
        )
        self._server = LoopbackServer(config)
        self._thread = threading.Thread(target=self._server.run)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                scope["state"][STATE] = self.connections
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    def __enter__(self) -> Self:
        self._thread.start()
        self.until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._made:
            each.close()
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so."""
        for _ in range(WAIT_S * 200):
            if is_so():
                return
            threading.Event().wait(0.005)
        raise AssertionError("it never came to be so")

    def cut(self, reason: str) -> float:
        """How many connections were ended for that reason."""
        return float(self.metrics.limits.connections_cut.labels(reason)._value.get())

    def connect(self, data: bytes = b"", *, receive_bytes: int | None = None) -> socket.socket:
        """A connection on which something was sent. ``receive_bytes``: how much the system takes for us."""
        made = socket.socket()
        self._made.append(made)
        made.settimeout(WAIT_S)
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.connect(("127.0.0.1", self.port))
        made.sendall(data)
        return made


def read_head(connection: socket.socket) -> bytes:
    """The head of the next answer, and nothing behind it."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, f"the connection ended in the head of an answer: {data!r}"
        data += part
    return data


def answer_on(connection: socket.socket) -> tuple[int, dict[str, Any] | bytes]:
    """The next answer: its status, and its JSON or bytes."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        assert part, f"the connection ended in the head of an answer: {data!r}"
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
    length = int(headers.get(b"content-length", b"0"))
    while len(body) < length:
        part = connection.recv(65_536)
        assert part, "the connection ended in the body of an answer"
        body += part
    assert len(body) == length, "more came than the answer"
    status = int(lines[0].split()[1])
    return status, json.loads(body) if b"json" in headers.get(b"content-type", b"") else body


def is_ended(connection: socket.socket) -> bool:
    """Wait for the end of a connection on which nothing more comes; True however it ends."""
    try:
        return connection.recv(65_536) == b""
    except ConnectionError:
        return True


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the size of the body; ``/early`` does not wait for it."""
    size_bytes = 0
    more = scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        size_bytes += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = str(size_bytes).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def sending(size_bytes: int) -> ASGIApp:
    """An application that answers with so many bytes, in one piece."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(size_bytes).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size_bytes})

    return app


class Blocking:
    """An application that begins requests only when it is told to: its event loop is busy until then."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        if scope["path"] == "/block":
            assert self.go.wait(WAIT_S)
        elif scope["path"] == "/sleep":
            time.sleep(0.5)
        await echo({**scope, "path": "/early"}, receive, send)
