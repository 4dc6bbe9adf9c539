"""How answers are written: head and body together, in the order of the requests, and nothing waits for more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from lamella.service.http.connections import _AnswerWriter
from support.raw_server import GET, WAIT_S, RawServer, read_head


class Transport:
    """What is written to a connection, write by write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """One system call."""
        self.written.append(data)

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.is_closed

    def close(self) -> None:
        """Close it."""
        self.is_closed = True


async def written(*steps: Any) -> list[bytes]:
    """What steps of an answer write: bytes are written, None is a turn of the event loop, a name is a call."""
    transport = Transport()
    writer = _AnswerWriter(transport, asyncio.get_running_loop())
    for step in steps:
        if step is None:
            await asyncio.sleep(0)
        elif isinstance(step, str):
            getattr(writer, step)()
        else:
            writer.write(step)
    await asyncio.sleep(0)
    return transport.written


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((b"head", b"body"), [b"headbody"]),
        ((b"head", None, b"body"), [b"head", b"body"]),
        ((b"head", b"one", b"two"), [b"headone", b"two"]),
        ((b"head", None), [b"head"]),
        ((b"head", "close"), [b"head"]),
        ((b"head", "flush", b"body"), [b"head", b"body"]),
        ((b"head", b"", "close"), [b"head"]),
        ((b"head", b"x" * 70_000), [b"head", b"x" * 70_000]),
        (("flush",), []),
    ],
)
def test_the_head_of_an_answer_waits_only_for_what_comes_at_once(steps: Any, expected: list[bytes]) -> None:
    """Most answers take one system call, the head of a stream is not delayed, and a large body is not copied."""
    assert asyncio.run(written(*steps)) == expected


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path, which says how: without a body, in parts, or after a while."""
    while (await receive()).get("more_body"):
        pass
    path = scope["path"].encode()
    length = 0 if path == b"/empty" else len(path)
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]}
    await send(head)
    if path == b"/later":
        await asyncio.sleep(0.05)
    if path == b"/parts":
        for at in range(len(path)):
            await send({"type": "http.response.body", "body": path[at : at + 1], "more_body": True})
    body = b"" if path in (b"/empty", b"/parts") else path
    await send({"type": "http.response.body", "body": body})


def test_pipelined_answers_come_whole_and_in_order() -> None:
    """Answers without a body, in parts and late ones, to requests of which some ask for the head alone."""
    paths = [b"/empty", b"/one", b"/parts", b"/later", b"/empty"]
    with RawServer(app) as server:
        for method in (b"GET", b"HEAD"):
            connection = server.connect()
            requests = [b"%b %b HTTP/1.1\r\nHost: x\r\n\r\n" % (method, path) for path in paths]
            requests.append(b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            connection.sendall(b"".join(requests))
            answer = b""
            while data := connection.recv(65_536):
                answer += data
            heads = [part for part in answer.split(b"HTTP/1.1 200 OK\r\n") if part]
            bodies = [part.partition(b"\r\n\r\n")[2] for part in heads]
            expected = [b"" if path == b"/empty" or method == b"HEAD" else path for path in paths]
            assert bodies == [*expected, b"/last"]


def test_the_head_of_a_stream_is_sent_before_its_body() -> None:
    """A client sees that its request was accepted while the body is still to come."""
    is_read = threading.Event()

    async def stream(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await asyncio.to_thread(is_read.wait, WAIT_S)
        await send({"type": "http.response.body", "body": b"body"})

    with RawServer(stream) as server:
        connection = server.connect(GET)
        assert read_head(connection).startswith(b"HTTP/1.1 200")
        is_read.set()
        assert connection.recv(65_536) == b"body"
