"""A reverse proxy that spoils chosen answers of an S3 server, as networks and other servers do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: How to spoil the next request of a method: forward it and say nothing; send half of the answer; forward it without
#: its conditions; or answer at once with this status and S3 error code, without forwarding.
Fault = str | tuple[int, str]
LOSE_ANSWER = "lose the answer"
BREAK_OFF = "break off"
FORGET_CONDITION = "forget the condition"


class FaultyProxy(ThreadingHTTPServer):
    """``faults`` is a list of ``(method, fault)``; each is used up by the next request of its method."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.faults: list[tuple[str, Fault]] = []
        self.seen: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def faulty_proxy(target: str) -> Iterator[FaultyProxy]:
    """A proxy in front of ``target`` while the block runs."""
    with FaultyProxy(target) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"  # as the answer to "Expect: 100-continue" needs

    def _serve(self) -> None:
        self.server.seen.append(self.command)
        self.close_connection = True
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        fault = next((f for m, f in self.server.faults if m == self.command), None)
        if fault is not None:
            self.server.faults.remove((self.command, fault))
        if isinstance(fault, tuple):
            status, code = fault
            self._answer(status, {}, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "expect")}
        if fault == FORGET_CONDITION:
            headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
        upstream = HTTPConnection(self.server.target.removeprefix("http://"), timeout=30)
        with closing(upstream):
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            status, given, data = answer.status, dict(answer.getheaders()), answer.read()
        if fault == LOSE_ANSWER:
            return
        self._answer(status, given, data, half=fault == BREAK_OFF)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, half: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "server", "date", "content-length"):
                self.send_header(name, value)
        given = next((v for k, v in headers.items() if k.lower() == "content-length"), str(len(body)))
        self.send_header("Content-Length", given if self.command == "HEAD" else str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if half else body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # http.server's names

    def log_message(self, format: str, *args: object) -> None:  # http.server's signature
        """Say nothing."""
