"""An HTTP server that does what a script says, also what no well-behaved one does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the scripted server does with one request.

    It sends ``raw``, then: ``close`` hangs up, ``reset`` hangs up by RST, ``hold`` says nothing more until the test
    is over. ``early``: all that before it has read the body. ``after_s``: it does nothing for so long.
    """

    raw: bytes = b""
    close: bool = False
    reset: bool = False
    hold: bool = False
    early: bool = False
    after_s: float = 0.0


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it came in; ``connection`` counts accepted connections from 0."""

    connection: int
    request_line: str
    headers: dict[str, str]
    body: bytes


def ok(body: bytes = b"{}", headers: str = "") -> bytes:
    """A whole answer with status 200."""
    return answer("200 OK", body, headers)


def answer(status: str, body: bytes = b"", headers: str = "") -> bytes:
    """A whole answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class ScriptedServer:
    """Answers the n-th request by the n-th reply, whatever connection it comes on; the last reply is repeated."""

    def __init__(self, replies: list[Reply]) -> None:
        self._replies = replies
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.02)
        self._threads: list[threading.Thread] = []
        self.received: list[Received] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def stop(self) -> None:
        """End all threads; from then on nobody listens."""
        self._over.set()
        for thread in list(self._threads):
            thread.join(timeout=10)
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        count = 0
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._start(self._serve, connection, count)
            count += 1

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.settimeout(0.02)
        with connection:
            data = b""
            while True:
                head, data = self._until(connection, data, b"\r\n\r\n")
                if head is None:
                    return
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                with self._lock:
                    reply = self._replies[min(len(self.received), len(self._replies) - 1)]
                    body = b""
                    self.received.append(Received(connection=number, request_line=first, headers=headers, body=body))
                    position = len(self.received) - 1
                if not reply.early:
                    length = int(headers.get("content-length", "0"))
                    while len(data) < length:
                        more = self._receive(connection)
                        if not more:
                            return
                        data += more
                    body, data = data[:length], data[length:]
                    self.received[position] = msgspec.structs.replace(self.received[position], body=body)
                self._over.wait(reply.after_s)
                connection.sendall(reply.raw)
                if reply.hold:
                    self._over.wait(30)
                    return
                if reply.reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if reply.close:
                    return

    def _until(self, connection: socket.socket, data: bytes, end: bytes) -> tuple[bytes | None, bytes]:
        while end not in data:
            more = self._receive(connection)
            if not more:
                return None, b""
            data += more
        head, _, rest = data.partition(end)
        return head, rest

    def _receive(self, connection: socket.socket) -> bytes:
        while not self._over.is_set():
            try:
                return connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                return b""
        return b""
