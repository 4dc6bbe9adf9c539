"""Cheap clients of a service: sockets in one thread, each sending its next request after the answer."""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Sequence

import msgspec

_CHUNK = 1 << 20


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one request in milliseconds, and requests per second of all clients together."""

    clients: int
    requests: int
    p50_ms: float
    p99_ms: float
    per_second: float
    answer_bytes: int


class RefusedRequest(RuntimeError):
    """The service answered with an error."""


class _Connection:
    """One keep-alive connection; ``ended`` is when its last answer was complete."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = b""
        self._left: int | None = None
        self._tail = b""
        self.started = 0.0
        self.body_bytes = 0

    def send(self, request: bytes) -> None:
        """Begin the next request."""
        self._head, self._left, self._tail, self.body_bytes = b"", None, b"", 0
        self.started = time.perf_counter()
        self.socket.sendall(request)

    def is_done(self, data: bytes) -> bool:
        """Take bytes of the answer; true when it is complete."""
        if not data:
            raise ConnectionError("the service hung up")
        if self._left is None:
            self._head += data
            if b"\r\n\r\n" not in self._head:
                return False
            head, data = self._head.split(b"\r\n\r\n", 1)
            lowered = head.lower()
            if b" 200 " not in head[:16]:
                raise RefusedRequest((head + data).decode(errors="replace")[:500])
            self._left = -1 if b"transfer-encoding: chunked" in lowered else _length(lowered)
        self.body_bytes += len(data)
        if self._left >= 0:
            return self.body_bytes >= self._left
        self._tail = (self._tail + data)[-5:]
        return self._tail == b"0\r\n\r\n"


def request(path: str, body: bytes | None = None) -> bytes:
    """The bytes of a GET, or of a POST of JSON."""
    if body is None:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def run(port: int, requests: Sequence[bytes], clients: int) -> Load:
    """Send all requests, each client taking the next one; the answers are read and discarded."""
    taken: list[float] = []
    size = 0
    todo = iter(requests)
    with selectors.DefaultSelector() as selector:
        started = time.perf_counter()
        open_now = 0
        for _, first in zip(range(clients), todo, strict=False):
            connection = _Connection(port)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send(first)
            open_now += 1
        while open_now:
            for key, _ in selector.select():
                connection = key.data
                if not connection.is_done(connection.socket.recv(_CHUNK)):
                    continue
                taken.append(time.perf_counter() - connection.started)
                size = max(size, connection.body_bytes)
                following = next(todo, None)
                if following is None:
                    selector.unregister(connection.socket)
                    connection.socket.close()
                    open_now -= 1
                else:
                    connection.send(following)
        seconds = time.perf_counter() - started
    taken.sort()
    return Load(
        clients=clients,
        requests=len(taken),
        p50_ms=round(statistics.median(taken) * 1e3, 4),
        p99_ms=round(taken[int(len(taken) * 0.99)] * 1e3, 4),
        per_second=round(len(taken) / seconds, 1),
        answer_bytes=size,
    )


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    raise ConnectionError("an answer without a length")
