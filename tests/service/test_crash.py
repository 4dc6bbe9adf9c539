"""kill -9 during a registration or commit: the table is at the old or the new snapshot, and reads work."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import httpx2
import pytest

from fixtures_server import StartServer
from lamella.snapshot.storage import FsspecStore
from support import dying
from support.service_api import TableApi, World

TURNS = 6
FILES = 12
ROWS = 10


def check(table: TableApi, before: set[str], change: set[str], *, adds: bool) -> bool:
    """Fail unless the table is whole, and without or with all of the change; returns whether with."""
    after = before | change if adds else before - change
    pruned = table.prune("a >= 0")
    locations = {block["location"] for block in pruned["blocks"]}
    assert locations in (before, after)
    info = table.info()
    assert (info["block_count"], info["row_count"]) == (len(locations), len(locations) * ROWS)
    assert info["snapshot_id"] == pruned["snapshot_id"]
    assert {block["location"] for block in table.blocks()} == locations
    history = table.history()
    assert [entry["prev_snapshot_id"] for entry in history] == [e["snapshot_id"] for e in history[1:]] + [None]
    return locations == after


def send_and_forget(url: str, path: str, body: object, key: str) -> None:
    """A request whose answer may never come."""
    try:
        httpx2.post(url + path, json=body, headers={"Idempotency-Key": key}, timeout=300)
    except httpx2.TransportError:
        return


@pytest.mark.parametrize("operation", ["register", "commit"])
def test_a_service_that_is_killed_leaves_the_old_or_the_new_snapshot(
    start_server: StartServer, tmp_path: Path, operation: str
) -> None:
    """At a random moment of the request, again and again; asking again with the key then completes it once."""
    server = start_server(warehouse=tmp_path / "warehouse")
    moments = random.Random(operation)
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        table = world.table()
        files = world.numbers(world.folder(), FILES, ROWS)
        started = time.monotonic()
        table.register(*files)
        usual_s = time.monotonic() - started
        for turn in range(TURNS):
            before = set(table.locations())
            body: dict[str, object]
            if operation == "register":
                change = set(world.numbers(world.folder(), FILES, ROWS))
                path, body = f"{table.path}/register", {"paths": sorted(change)}
            else:
                change = {files[turn], files[-1 - turn]}
                path, body = f"{table.path}/commits", {"removed": sorted(change), "operation": "delete"}
            sent = threading.Thread(target=send_and_forget, args=(server.url, path, body, f"turn {turn}"))
            sent.start()
            time.sleep(moments.uniform(0, 1.2 * usual_s))
            server.kill()
            sent.join()
            server.restart()
            check(table, before, change, adds=operation == "register")
            world.api.call("POST", path, body, key=f"turn {turn}")
            assert check(table, before, change, adds=operation == "register")
            assert len(table.history()) == turn + 3


def test_a_registration_can_die_before_each_of_its_steps(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each object that is written, each statement and each commit: the table is as it was until the commit.

    Then the same request with the same key goes through, or is a replay when the commit was made.
    """
    warehouse = tmp_path / "warehouse"
    server = start_server(warehouse=warehouse)
    processes = dying.processes(monkeypatch)
    deaths: dict[dying.Step, list[bool]] = {"write": [], "statement": [], "commit": []}
    with World(server.url, f"file://{tmp_path}/data", FsspecStore()) as world:
        for step, outcomes in deaths.items():
            table, file = world.table(), world.numbers(world.folder(), 1, ROWS)[0]
            while True:
                arguments = (str(warehouse), table.path, file, "k", step, len(outcomes) + 1)
                process = processes.Process(target=dying.register, args=arguments)
                process.start()
                process.join()
                if process.exitcode == 0:
                    break
                assert process.exitcode == -signal.SIGKILL
                outcomes.append(check(table, set(), {file}, adds=True))
            assert check(table, set(), {file}, adds=True)
            again = world.api.send("POST", f"{table.path}/register", {"paths": [file]}, key="k")
            assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
            assert len(table.history()) == 2
    # Two objects for the segment and two for the snapshot.
    assert deaths["write"] == [False] * 4
    # The commit itself, then that of forgetting old answers.
    assert deaths["commit"] == [False, True]
    # Look-ups, the transaction's begin, the answer, the pointer and the history come before the commit.
    assert deaths["statement"].count(False) >= 6
    assert deaths["statement"] == sorted(deaths["statement"])
