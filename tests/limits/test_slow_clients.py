"""Clients that say nothing, or say it slowly: they are ended, and others are served."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from functools import partial

import pytest

from lamella.service.config.settings import Settings
from lamella.service.http.connections import MAX_AHEAD, MAX_HEADERS, Connections
from lamella.service.telemetry.metrics import Metrics
from support.raw_server import GET, Blocking, RawServer, answer_on, echo, is_ended, post, sending


def test_a_head_that_does_not_come_to_its_end_is_answered_408() -> None:
    """However steadily its bytes come; the connection is closed."""
    with RawServer(echo, header_timeout_s=0.3) as server:
        slow = server.connect(b"GET / HTTP/1.1\r\nY: ")
        stop = threading.Event()

        def drip() -> None:
            for number in itertools.count(1):
                if stop.wait(0.02):
                    return
                try:
                    slow.sendall(b"X" if number % 20 else b"\r\nY: ")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        status, problem = answer_on(slow)
        stop.set()
        dripping.join()
        assert isinstance(problem, dict)
        assert (status, problem["code"], problem["details"]["limit"]) == (408, "too_slow", "head")
        assert is_ended(slow)
        assert server.cut("head") == 1


def test_a_connection_without_a_request_is_closed_without_an_answer() -> None:
    """Before its first request, and after its last."""
    with RawServer(echo, header_timeout_s=0.2, keep_alive_s=0.2) as server:
        silent = server.connect()
        assert is_ended(silent)
        used = server.connect(GET)
        assert answer_on(used) == (200, b"0")
        assert is_ended(used)
        assert server.cut("head") == 1
        server.until(lambda: server.connections.count == 0)


def test_a_second_request_has_the_same_time_for_its_head() -> None:
    """A client that was fast once is watched all the same."""
    with RawServer(echo, header_timeout_s=0.3) as server:
        client = server.connect(GET)
        assert answer_on(client) == (200, b"0")
        client.sendall(b"GET / HT")
        assert answer_on(client)[0] == 408
        assert is_ended(client)


@pytest.mark.parametrize("path", ["/", "/early"])
def test_a_body_that_does_not_come_on_is_ended(path: str) -> None:
    """408 where nobody has answered yet; where somebody has, the connection is closed."""
    with RawServer(echo, body_stall_s=0.3) as server:
        slow = server.connect(post(path, 1000) + b"x" * 10)
        status, problem = answer_on(slow)
        if path == "/":
            assert isinstance(problem, dict)
            assert (status, problem["code"], problem["details"]["limit"]) == (408, "too_slow", "body")
        else:
            assert (status, problem) == (200, b"0")
        assert is_ended(slow)
        assert server.cut("body") == 1


def test_a_body_must_come_faster_than_a_drip() -> None:
    """A few bytes now and then are not enough; what takes long but comes on is taken."""
    with RawServer(echo, body_stall_s=0.4) as server:
        slow = server.connect(post("/", 1 << 20))
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.01):
                try:
                    slow.sendall(b"x" * 10)
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert answer_on(slow)[0] == 408
        stop.set()
        dripping.join()
        steady = server.connect(post("/", 20 * (100 << 10)))
        for _ in range(20):
            threading.Event().wait(0.05)
            steady.sendall(b"x" * (100 << 10))
        assert answer_on(steady) == (200, str(20 * (100 << 10)).encode())


def test_a_trailer_without_end_is_ended() -> None:
    """What comes behind the last chunk is held as headers are."""
    with RawServer(echo) as server:
        client = server.connect(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        with pytest.raises(ConnectionError):
            client.sendall(b"".join(b"A%d: b\r\n" % number for number in range(1_000_000)))
        server.until(lambda: server.connections.count == 0)


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 3000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 3000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431, "headers_too_large"),
        (b"NONSENSE\r\n\r\n", 400, "invalid_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "invalid_request"),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "invalid_request"),
    ],
)
def test_a_head_that_cannot_be_taken_is_a_problem_document(request_: bytes, status: int, code: str) -> None:
    """Too large, too many headers, or no HTTP at all; nothing more is read."""
    with RawServer(echo, header_bytes_max=2048) as server:
        client = server.connect(request_)
        answered, problem = answer_on(client)
        assert isinstance(problem, dict)
        assert (answered, problem["status"], problem["code"]) == (status, status, code)
        assert is_ended(client)
        fits = server.connect(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MAX_HEADERS - 1) + b"Host: x\r\n\r\n")
        assert answer_on(fits) == (200, b"0")


def test_a_large_head_in_one_piece_is_measured_by_itself() -> None:
    """A small request that comes together with another one's body is no large head."""
    with RawServer(echo, header_bytes_max=2048) as server:
        client = server.connect(post("/", 10_000) + b"x" * 10_000 + GET)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2:
            received += client.recv(65_536)
        assert b"\r\n\r\n10000HTTP/1.1 200 OK" in received


def test_a_client_sends_only_so_many_requests_ahead() -> None:
    """Some are answered in their order; with too many the connection ends."""
    with RawServer(echo) as server:
        few = server.connect(GET * (MAX_AHEAD // 2))
        received = b""
        while received.count(b"\r\n\r\n0") < MAX_AHEAD // 2:
            received += few.recv(65_536)
        blocking = Blocking()
    with RawServer(blocking) as server:
        many = server.connect(GET * (MAX_AHEAD + 10))
        while not is_ended(many):
            pass
        assert blocking.begun <= MAX_AHEAD + 1


def test_a_full_process_ends_connections_without_a_request() -> None:
    """A new client is served however many others hold connections: those idle for longest go first."""
    with RawServer(echo, connections_max=8, header_timeout_s=60, keep_alive_s=60) as server:
        idle = [server.connect(GET) for _ in range(8)]
        assert [answer_on(each) for each in idle] == [(200, b"0")] * 8
        half = [server.connect(b"GET / HTTP/1.1\r\n") for _ in range(20)]
        server.until(lambda: server.cut("crowded") == 20)
        assert server.connections.count == 8
        assert all(is_ended(each) for each in idle)
        for _ in range(20):
            fresh = server.connect(GET)
            assert answer_on(fresh) == (200, b"0")
        for each in half:
            each.close()


def test_connections_with_a_request_are_not_ended_for_others() -> None:
    """Where all of them have one, a new client is refused."""
    with RawServer(echo, connections_max=8, body_stall_s=60) as server:
        uploading = [server.connect(post("/", 10) + b"x") for _ in range(8)]
        server.until(lambda: not server.connections._quiet)
        refused = server.connect(GET)
        status, problem = answer_on(refused)
        assert isinstance(problem, dict)
        assert (status, problem["code"], problem["details"]["limit"]) == (503, "unavailable", "connections")
        assert is_ended(refused)
        for each in uploading:
            each.sendall(b"x" * 9)
        assert [answer_on(each) for each in uploading] == [(200, b"10")] * 8
        assert server.cut("refused") == 1


def test_requests_that_come_faster_than_they_are_begun_are_refused() -> None:
    """At once, so that those taken on are begun soon; probes are taken on always, and the connection stays open."""
    blocking = Blocking()
    with RawServer(blocking, requests_at_once=2, requests_waiting=3) as server:
        others = [server.connect(GET) for _ in range(9)]
        assert [answer_on(each) for each in others] == [(200, b"0")] * 9
        probe = server.connect(GET)
        assert answer_on(probe) == (200, b"0")
        first = server.connect(b"GET /block HTTP/1.1\r\nHost: x\r\n\r\n")
        server.until(lambda: blocking.begun == 11)
        for each in others:
            each.sendall(GET)
        probe.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        blocking.go.set()
        assert answer_on(first) == (200, b"0")
        answers = [answer_on(each) for each in others]
        assert [status for status, _ in answers].count(429) == 4
        assert {problem["details"]["limit"] for _, problem in answers if isinstance(problem, dict)} == {"requests"}
        assert answer_on(probe) == (200, b"0")
        for each in others:
            each.sendall(GET)
            assert answer_on(each) == (200, b"0")


def test_only_the_probes_themselves_are_never_refused() -> None:
    """Not whatever begins like one."""
    blocking = Blocking()
    paths = ("/health/live", "/metrics", "/health/anything", "/metricsfoo")
    with RawServer(blocking, requests_at_once=1, requests_waiting=0) as server:
        clients = [server.connect(GET) for _ in paths]
        assert [answer_on(each) for each in clients] == [(200, b"0")] * 4
        first = server.connect(b"GET /block HTTP/1.1\r\nHost: x\r\n\r\n")
        server.until(lambda: blocking.begun == 5)
        other = server.connect(GET)
        for client, path in zip(clients, paths, strict=True):
            client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        blocking.go.set()
        assert answer_on(first) == (200, b"0")
        assert [answer_on(each)[0] for each in clients] == [200, 200, 429, 429]
        other.close()


def test_what_still_comes_from_a_connection_that_was_ended_is_not_stored() -> None:
    """Of heads and bodies too: nothing would ever take them out again."""

    class Gone:
        """A connection that is there no more."""

        received_bytes = unsent_bytes = 0
        is_reading_paused = False

        def end(self, error: object = None) -> None:
            """Nothing is left to be ended."""

    connections = Connections(Settings(warehouse="memory://none"), Metrics())
    gone = Gone()
    for notify in (
        connections.head_begun,
        connections.body_begun,
        connections.answered_early,
        connections.answered,
        connections.writing_paused,
    ):
        notify(gone)
    assert [
        len(each)
        for each in (connections._quiet, connections._heads, connections._bodies, connections._rests, connections._slow)
    ] == [0] * 5


def test_requests_that_waited_too_long_are_not_begun() -> None:
    """They are refused when their turn comes, all but probes; those that come then are begun."""
    blocking = Blocking()
    with RawServer(blocking, request_wait_s=0.2) as server:
        first, sleeping, waiting, probe = (server.connect(GET) for _ in range(4))
        assert [answer_on(each) for each in (first, sleeping, waiting, probe)] == [(200, b"0")] * 4
        first.sendall(b"GET /block HTTP/1.1\r\nHost: x\r\n\r\n")
        server.until(lambda: blocking.begun == 5)
        sleeping.sendall(b"GET /sleep HTTP/1.1\r\nHost: x\r\n\r\n")
        probe.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        waiting.sendall(GET)
        blocking.go.set()
        assert answer_on(first) == answer_on(sleeping) == answer_on(probe) == (200, b"0")
        status, problem = answer_on(waiting)
        assert isinstance(problem, dict)
        assert (status, problem["code"], problem["details"]["limit"]) == (429, "overloaded", "requests")
        waiting.sendall(GET)
        assert answer_on(waiting) == (200, b"0")


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    """In the middle of a head, of a body, of an answer."""
    with RawServer(sending(16 << 20)) as server:
        for data in (b"", b"GET / HT", post("/", 10) + b"x", GET):
            client = server.connect(data, receive_bytes=4096)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            threading.Event().wait(0.05)
            client.close()
        server.until(lambda: server.connections.count == 0)
        connections = server.connections
        assert [
            len(each)
            for each in (
                connections._quiet,
                connections._heads,
                connections._bodies,
                connections._rests,
                connections._slow,
            )
        ] == [
            0,
            0,
            0,
            0,
            0,
        ]


def test_a_request_that_cannot_be_begun_keeps_no_others_waiting() -> None:
    """The rest of the line is begun in its turn, and the count of those that wait is right."""
    connections = Connections(Settings(warehouse="memory://none"), Metrics())
    begun: list[int] = []
    errors: list[str] = []

    def fails() -> None:
        raise MemoryError("no task")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
        with pytest.raises(MemoryError):
            connections.begin(fails)
        for number in range(4):
            connections.begin(fails if number == 1 else partial(begun.append, number))
        for _ in range(10):
            await asyncio.sleep(0)
        connections.begin(partial(begun.append, 4))

    asyncio.run(test())
    assert (begun, errors, connections.unstarted) == ([0, 2, 3, 4], ["no task"], 4)
