"""Requests that are answered before their bodies have come: the rest, which nobody reads, has an end."""

from __future__ import annotations

import socket
import threading

from support.raw_server import GET, RawServer, answer_on, echo, post

CHUNKED = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def sends_until_it_is_ended(connection: socket.socket, max_sends: int, *, pause_s: float = 0.0) -> bool:
    """Send chunks of 128 KiB; True once the connection is ended, False when so many chunks were taken."""
    for _ in range(max_sends):
        try:
            connection.sendall(b"20000\r\n" + b"x" * (128 << 10) + b"\r\n")
        except ConnectionError:
            return True
        threading.Event().wait(pause_s)
    return False


def test_the_rest_of_a_body_that_was_answered_already_has_an_end() -> None:
    """Its time ends however steadily it comes; a rest that ends before leaves the connection as it was."""
    with RawServer(echo, body_stall_s=0.5, keep_alive_s=60) as server:
        endless = server.connect(CHUNKED % b"/early")
        assert answer_on(endless) == (200, b"0")
        assert sends_until_it_is_ended(endless, 600, pause_s=0.02)
        assert server.cut("body") == 1
        ended = server.connect(post("/early", 200_000) + b"x")
        assert answer_on(ended) == (200, b"0")
        ended.sendall(b"x" * 199_999 + GET)
        assert answer_on(ended) == (200, b"0")
        threading.Event().wait(1.0)
        ended.sendall(GET)
        assert answer_on(ended) == (200, b"0")
        assert server.cut("body") == 1


def test_the_rest_of_a_body_that_was_answered_already_is_no_larger_than_two_bodies() -> None:
    """However fast it comes."""
    with RawServer(echo, max_body_bytes=1 << 20, body_stall_s=60) as server:
        endless = server.connect(CHUNKED % b"/early")
        assert answer_on(endless) == (200, b"0")
        assert sends_until_it_is_ended(endless, 4096)
        assert server.cut("body") == 1


def test_connections_whose_answered_bodies_come_on_keep_nobody_out() -> None:
    """A full process ends them first, before those that have just connected."""
    with RawServer(echo, connections_max=8, body_stall_s=60, keep_alive_s=60) as server:
        sending_on = [server.connect(CHUNKED % b"/early") for _ in range(7)]
        for each in sending_on:
            assert answer_on(each) == (200, b"0")
            each.sendall(b"1\r\nx\r\n")
        idle = server.connect(GET)
        assert answer_on(idle) == (200, b"0")
        for _ in range(7):
            fresh = server.connect(GET)
            assert answer_on(fresh) == (200, b"0")
        assert server.cut("crowded") == 7
        idle.sendall(GET)
        assert answer_on(idle) == (200, b"0")
