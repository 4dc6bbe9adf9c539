"""A service with thousands of clients that do nothing, and hundreds that do it slowly, goes on serving the others."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.snapshot.storage import FsspecStore
from support.raw_server import is_ended
from support.service_api import Api, TableApi, World

LONG_TIMEOUTS = {"header_timeout_s": 600, "keep_alive_s": 600, "body_stall_s": 600, "connections_max": 12_000}
PRUNES = 200


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """This process may have as many sockets as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def rss_bytes(server: ServerProcess) -> int:
    """The memory that the service has."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the service is gone")


def metric(world: World, line: str) -> float:
    """A metric of the service."""
    text = world.api.http.get("/metrics").text
    return next((float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(line + " ")), 0.0)


@contextmanager
def clients(server: ServerProcess, *, idle: int, heads: Sequence[bytes]) -> Iterator[list[socket.socket]]:
    """Connections: ``idle`` of which every second one has had an answer, and one that sends each of ``heads``."""
    made: list[socket.socket] = []
    try:
        for number in range(idle + len(heads)):
            each = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            made.append(each)
            if number >= idle:
                each.sendall(heads[number - idle])
            elif number % 2:
                each.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
                assert each.recv(65_536).startswith(b"HTTP/1.1 200")
        yield made
    finally:
        for each in made:
            each.close()


@contextmanager
def dripping(slow: Sequence[socket.socket]) -> Iterator[None]:
    """One more byte on each of them, again and again."""
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.1):
            for each in slow:
                try:
                    each.sendall(b"x")
                except OSError:
                    continue

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def slow_heads(path: str, count: int) -> list[bytes]:
    """Half of them never come to the end of the head, half not to the end of the body."""
    head = b"GET /health/live HTTP/1.1\r\nHost: x\r\nA: "
    body = f"POST {path}/prune HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    return [head if number % 2 else body.encode() for number in range(count)]


@contextmanager
def table_of(server: ServerProcess, folder: Path) -> Iterator[tuple[World, TableApi]]:
    """A table of four blocks."""
    with World(server.url, f"file://{folder}/data", FsspecStore()) as world:
        table, files = world.table(), world.folder()
        world.numbers(files, 4)
        table.register(files)
        yield world, table


@pytest.mark.parametrize("idle", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_idle_and_slow_clients_keep_nobody_waiting(start_server: StartServer, tmp_path: Path, idle: int) -> None:
    """Prunes are answered as ever beside them, and each costs the service a few kilobytes."""
    server = start_server(warehouse=tmp_path / "warehouse", log_requests=False, requests_at_once=4, **LONG_TIMEOUTS)
    with table_of(server, tmp_path) as (world, table):
        for number in range(PRUNES):
            assert len(table.prune(f"a = {number % 40}")["blocks"]) == 1
        before_bytes = rss_bytes(server)
        with clients(server, idle=idle, heads=slow_heads(table.path, 200)) as made, dripping(made[idle:]):
            for number in range(PRUNES):
                assert len(table.prune(f"a = {number % 40}")["blocks"]) == 1
            assert metric(world, "lamella_connections") >= idle + 200
            grown_bytes = rss_bytes(server) - before_bytes
            assert grown_bytes < 20 * (1 << 20) + (idle + 200) * (16 << 10), f"{grown_bytes:,} bytes"
        for number in range(PRUNES):
            assert len(table.prune(f"a = {number % 40}")["blocks"]) == 1


def test_slow_clients_are_ended_and_quick_ones_are_not(start_server: StartServer, tmp_path: Path) -> None:
    """Heads and bodies that do not come on end, however many there are; prunes go on all the while."""
    server = start_server(
        warehouse=tmp_path / "warehouse", log_requests=False, header_timeout_s=1, body_stall_s=1, keep_alive_s=60
    )
    with (
        table_of(server, tmp_path) as (world, table),
        clients(server, idle=0, heads=slow_heads(table.path, 200)) as made,
        dripping(made),
    ):
        ended = 0
        while ended < len(made):
            assert len(table.prune("a = 7")["blocks"]) == 1
            cut = [metric(world, f'lamella_connections_cut_total{{reason="{each}"}}') for each in ("head", "body")]
            ended = int(sum(cut))
        assert cut == [100.0, 100.0]


def test_a_full_service_serves_who_comes_new(start_server: StartServer, tmp_path: Path) -> None:
    """Twice as many idle connections as it holds: they are ended, and requests on new connections answered."""
    server = start_server(warehouse=tmp_path / "warehouse", **{**LONG_TIMEOUTS, "connections_max": 200})
    with table_of(server, tmp_path) as (world, table), clients(server, idle=400, heads=()) as made:
        for number in range(30):
            with closing(Api(server.url)) as fresh:
                assert len(TableApi(fresh, table.namespace, table.name).prune(f"a = {number % 40}")["blocks"]) == 1
        assert metric(world, "lamella_connections") <= 200
        assert metric(world, 'lamella_connections_cut_total{reason="crowded"}') >= 200
        assert is_ended(made[0])
