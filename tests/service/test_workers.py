"""Worker processes: what they share, how connections are spread over them, and who ends with whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from fixtures_server import STOP_S, ServerProcess, StartServer
from lamella.service.process.supervisor import listening
from lamella.snapshot.errors import InvalidSettings

CONNECTIONS = 64


def workers_of(server: ServerProcess) -> list[int]:
    """The process ids of the workers that have started."""
    lines = [json.loads(line) for line in server.log_text().splitlines()]
    return [line["pid"] for line in lines if line["event"] == "started"]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail when that takes a minute."""
    give_up = time.monotonic() + 60
    while not condition():
        if time.monotonic() > give_up:
            pytest.fail(f"never: {what}")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def connections_of(pid: int, port: int) -> int:
    """How many connections of clients to a port a process has."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    mine = {row[9] for row in rows if row[3] == "01" and int(row[1].rpartition(":")[2], 16) == port}
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(entry).removeprefix("socket:[").removesuffix("]") in mine
        except FileNotFoundError:
            continue
    return found


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """A service of two workers, both of which serve."""
    server = start_server(warehouse=tmp_path / "warehouse", workers=2, keep_alive_s=600)
    wait_until(lambda: len(workers_of(server)) == 2, "both workers have started")
    return server


def test_connections_are_spread_over_the_workers(server: ServerProcess) -> None:
    """Those that are opened one after another while nothing else is done, too: neither worker takes most of them."""
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            client = opened.enter_context(httpx2.Client(base_url=server.url, timeout=60))
            assert client.get("/health/live").status_code == 200
        counts = [connections_of(pid, server.port) for pid in workers_of(server)]
    assert sum(counts) == CONNECTIONS
    assert min(counts) >= CONNECTIONS // 6  # by the hash of their ports; fewer happen once in ten million runs


def test_a_worker_that_is_killed_loses_no_connection_that_comes_meanwhile(server: ServerProcess) -> None:
    """Its successor listens on the same socket: each of them is answered."""
    os.kill(workers_of(server)[0], signal.SIGKILL)
    statuses = [httpx2.get(f"{server.url}/health/live", timeout=60).status_code for _ in range(20)]
    assert statuses == [200] * 20
    wait_until(lambda: len(workers_of(server)) == 3, "another worker has started")


def test_workers_end_with_the_process_that_looks_after_them(server: ServerProcess) -> None:
    """Also when it could not tell them."""
    pids = workers_of(server)
    server.kill()
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), "no worker is left")  # type: ignore[misc]


LOADED = """
import os
import sys
from lamella.service.process.supervisor import listening, run_workers
import lamella.service.app

def made():
    line = f"loaded {'lamella.service.app' in sys.modules} threads {len(sys._current_frames())}\\n"
    os.write(1, line.encode())  # in one call: print writes part by part when Python does not buffer
    raise TypeError  # as uvicorn takes it: this can never be started

with listening("127.0.0.1", 0, 2) as sockets:
    run_workers(made, {}, sockets)
"""


def test_workers_load_no_code_of_their_own() -> None:
    """They are forked from a process that has it, and that has no threads but the one that forks."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=inherited, capture_output=True, text=True, timeout=STOP_S, check=False
    )
    assert done.returncode == 3, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert lines
    assert set(lines) == {"loaded True threads 2"}  # its main thread, and the one that answers pings


def test_an_address_that_another_service_has_is_refused() -> None:
    """Although the system would let both of them have it."""
    with listening("127.0.0.1", 0, 2) as sockets:
        port = sockets[0][0].getsockname()[1]
        assert {found.getsockname()[1] for each in sockets for found in each} == {port}
        for each in sockets:
            each[0].listen()
        for count in (1, 2):
            with (
                pytest.raises(InvalidSettings, match="another program uses that port"),
                listening("127.0.0.1", port, count),
            ):
                pass
    with listening("127.0.0.1", port, 2) as sockets:
        assert len(sockets) == 2


def test_all_addresses_of_a_host_have_one_port() -> None:
    """Also where the system chooses it; each worker has a socket for each address."""
    with listening("localhost", 0, 2) as sockets:
        assert len({found.getsockname()[1] for each in sockets for found in each}) == 1
        assert len({found.fileno() for each in sockets for found in each}) == sum(map(len, sockets))
