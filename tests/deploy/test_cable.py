"""The cable of trials: what it lets through, and how it looks when it does not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from stack.cable import FaultProxy
from support.ports import free_port


class Echo:
    """A server that sends back what it gets."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            while piece := connection.recv(4096):
                connection.sendall(piece)

    def close(self) -> None:
        """As when its process ends."""
        for each in [self._listener, *self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join()


def connect(port: int) -> socket.socket:
    """A connection, once somebody listens."""
    give_up = time.monotonic() + 300
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except OSError:
            assert time.monotonic() < give_up
            time.sleep(0.01)


def await_refused(port: int) -> None:
    """Return once nobody listens."""
    give_up = time.monotonic() + 300
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it was let in a moment ago
            pass
        assert time.monotonic() < give_up
        time.sleep(0.01)


@contextmanager
def laid() -> Iterator[tuple[FaultProxy, Echo, int, int]]:
    """A cable to a server, and the ports of both."""
    outside, inside = free_port(), free_port()
    echo = Echo(inside)
    cable = FaultProxy(("127.0.0.1", outside), ("127.0.0.1", inside))
    try:
        yield cable, echo, outside, inside
    finally:
        cable.close()
        echo.close()


def test_bytes_pass_both_ways() -> None:
    """All of them, in order."""
    with laid() as (_, _, outside, _), connect(outside) as connection:
        sent = bytes(range(256)) * 4096
        threading.Thread(target=connection.sendall, args=(sent,)).start()
        got = b""
        while len(got) < len(sent):
            got += connection.recv(65536)
        assert got == sent


def test_a_silent_cable_delivers_afterwards_what_it_swallowed_before() -> None:
    """Nothing comes, and nobody is told; as packets are sent again when a network is back."""
    with laid() as (cable, _, outside, _), connect(outside) as connection:
        connection.sendall(b"a")
        assert connection.recv(1) == b"a"
        cable.switch("swallow")
        connection.sendall(b"b")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        cable.switch("pass")
        connection.settimeout(30)
        assert connection.recv(1) == b"b"


def test_a_cut_cable_resets_what_there_is_and_refuses_the_rest() -> None:
    """Both are told at once; when it is mended, new connections pass."""
    with laid() as (cable, _, outside, _):
        with connect(outside) as connection:
            connection.sendall(b"a")
            assert connection.recv(1) == b"a"
            cable.switch("cut")
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        await_refused(outside)
        cable.switch("pass")
        with connect(outside) as connection:
            connection.sendall(b"c")
            assert connection.recv(1) == b"c"


def test_a_server_that_is_gone_refuses_connections_as_without_a_cable() -> None:
    """So that a proxy before it can tell a request that was not sent from one whose answer was lost."""
    with laid() as (_, echo, outside, inside):
        connect(outside).close()
        echo.close()
        await_refused(outside)
        again = Echo(inside)
        with connect(outside) as connection:
            connection.sendall(b"d")
            assert connection.recv(1) == b"d"
        again.close()
