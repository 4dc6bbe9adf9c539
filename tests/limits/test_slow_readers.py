"""Clients that take their answers slowly: those that come on get all of it, the others are ended."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
import uvicorn
from uvicorn.server import ServerState

from lamella.service.config.settings import Settings
from lamella.service.http.connections import STATE, ClientConnection, Connections
from lamella.service.telemetry.metrics import Metrics
from support.raw_server import GET, RawServer, answer_on, post, read_head, sending


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off() -> None:
    """Although the application has sent all of it, and the connection waits for nothing else."""
    with RawServer(sending(16 << 20), answer_stall_s=0.4, keep_alive_s=0.1) as server:
        slow = server.connect(GET, receive_bytes=4096)
        server.until(lambda: server.cut("answer") == 1)
        server.until(lambda: server.connections.count == 0)
        received = 0
        with suppress(ConnectionError):
            while part := slow.recv(65_536):
                received += len(part)
        assert received < 16 << 20  # what the system held for the client came, and no more


def test_a_client_that_takes_its_answer_steadily_gets_it() -> None:
    """Slower than it is sent, but faster than it may stand still."""
    with RawServer(sending(8 << 20), answer_stall_s=1.0) as server:
        steady = server.connect(GET, receive_bytes=65_536)
        received = 0
        while received < 8 << 20:
            received += len(steady.recv(65_536))
            threading.Event().wait(0.005)
        assert server.cut("answer") == 0


def test_an_answer_that_is_taken_for_longer_than_a_connection_may_idle_comes_whole() -> None:
    """The time without a request begins when the answer was taken, and the connection serves the next one then."""
    size_bytes = 32 << 20
    with RawServer(sending(size_bytes), answer_stall_s=1.0, keep_alive_s=0.5) as server:
        steady = server.connect(GET, receive_bytes=65_536)
        for _ in range(2):
            read_head(steady)
            received = 0
            while received < size_bytes:
                part = steady.recv(65_536)
                assert part, f"the answer was cut off after {received} bytes"
                received += len(part)
                threading.Event().wait(0.004)
            assert received == size_bytes
            steady.sendall(GET)
        assert [server.cut(reason) for reason in ("answer", "unused", "crowded")] == [0, 0, 0]


def test_a_full_process_does_not_end_connections_that_take_their_answers() -> None:
    """They are not idle, although all of the answer was written."""
    with RawServer(sending(16 << 20), connections_max=8, keep_alive_s=60) as server:
        taking = [server.connect(GET, receive_bytes=4096) for _ in range(8)]
        server.until(lambda: len(server.connections._slow) == 8)
        refused = server.connect(GET)
        assert answer_on(refused)[0] == 503
        assert server.cut("crowded") == 0
        for each in taking:
            each.close()


def test_only_so_many_clients_may_be_behind_with_their_answers() -> None:
    """With one more, the one that is behind for longest is cut off, and its memory is free."""
    with RawServer(sending(16 << 20), slow_readers_max=3) as server:
        slow = [server.connect(GET, receive_bytes=4096) for _ in range(8)]
        server.until(lambda: server.cut("answer") == 5)
        server.until(lambda: server.connections.count == 3)
        for each in slow:
            each.close()


class _Filled(asyncio.Transport):
    """A transport whose client takes nothing: it asks for a pause with the first byte that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: ClientConnection | None = None
        self.is_ending = False

    def get_write_buffer_size(self) -> int:
        """More than nothing, always."""
        return 1

    def write(self, _data: object) -> None:
        """Keep it."""
        if self.protocol is not None:
            self.protocol.pause_writing()
            self.protocol = None

    def is_closing(self) -> bool:
        """True from when it was told to close, although that has to wait."""
        return self.is_ending

    def close(self) -> None:
        """As soon as all was taken."""
        self.is_ending = True


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", post("/early", 9) + b"x", GET])
def test_who_took_almost_all_of_an_answer_is_watched_until_the_end(request_: bytes) -> None:
    """Also where the connection closes with it: somebody who never takes the last bytes would stay for ever."""

    async def go() -> None:
        connections = Connections(Settings(warehouse="memory://none"), Metrics())
        config = uvicorn.Config(sending(10), log_level="critical")
        connection = ClientConnection(config, ServerState(), {STATE: connections})
        transport = _Filled()
        connection.connection_made(transport)
        transport.protocol = connection
        connection.data_received(request_)
        while not connection.cycle.response_started:
            await asyncio.sleep(0)
        assert (list(connections._slow), list(connections._quiet)) == ([connection], [])
        connection.resume_writing()
        while not connection.cycle.response_complete:
            await asyncio.sleep(0)
        assert [*connections._slow, *connections._quiet, *connections._rests] == [connection]
        connection.pause_writing()
        connection.resume_writing()
        assert [*connections._slow, *connections._quiet, *connections._rests] == [connection]
        connections.closed(connection)
        connection._unset_keepalive_if_required()

    asyncio.run(go())
