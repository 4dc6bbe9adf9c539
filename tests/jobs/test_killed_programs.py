"""``kill -9`` of the commands themselves, at any moment: the table is as it was, or with the whole of a commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.conftest import MakeTable
from lamella.client.jobs.rewrite import recluster
from support.event_tables import EventTable, events


def run_and_kill(table: EventTable, url: str, folder: Path, command: list[str], after_s: float) -> bool:
    """Start a command, kill it and all that it started; False: it was done before that."""
    environment = {**os.environ, "LAMELLA_URL": url, "TMPDIR": str(folder)}
    program = [sys.executable, "-m", "lamella.client.cli", command[0], table.name, *command[1:]]
    process = subprocess.Popen(
        program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def check(make_table: MakeTable, url: str, folder: Path, seed: int, rounds: int) -> int:
    """Kill several commands over one table; returns how many were killed before they were done."""
    rng = random.Random(seed)
    table = make_table(cluster_key=["day"])
    table.add(*[events(rng, rng.randrange(50, 400)) for _ in range(12)])
    killed = 0
    commands = [
        ["compact", "--engine", "local", "--processes", "2", "--target-rows", "700"],
        ["recluster", "--engine", "local", "--processes", "2", "--target-rows", "300", "--memory-mib", "1"],
    ]
    for _ in range(rounds):
        before = table.rows()
        killed += run_and_kill(table, url, folder, rng.choice(commands), rng.uniform(0.5, 4.0))
        time.sleep(0.2)  # what the service was told last is done
        assert table.rows() == before
        table.add(events(rng, 40))
    victim = next(iter(table.blocks()))
    ids = sorted(row["id"] for row in _rows(victim.location))[:5]
    before = table.rows()
    run_and_kill(
        table, url, folder, ["delete", "--where", f"id IN ({', '.join(map(str, ids))})"], rng.uniform(0.5, 4.0)
    )
    time.sleep(0.2)
    assert sum(before.values()) - sum(table.rows().values()) in (0, len(ids))
    before = table.rows()
    recluster(table.context(block_rows=300), max_runs=4)
    assert table.rows() == before
    assert not table.handle.verify().findings
    return killed


def _rows(location: str) -> list[dict[str, int]]:
    import pyarrow.parquet as pq

    found: list[dict[str, int]] = pq.read_table(location.removeprefix("file://"), columns=["id"]).to_pylist()
    return found


def test_a_killed_command_leaves_a_whole_table(make_table: MakeTable, jobs_url: str, tmp_path: Path) -> None:
    """Two commands and a delete, killed somewhere on their way."""
    check(make_table, jobs_url, tmp_path, 1, 2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(30, 50))
def test_many_killed_commands_leave_whole_tables(
    make_table: MakeTable, jobs_url: str, tmp_path: Path, seed: int
) -> None:
    """A hundred commands, killed somewhere on their way."""
    check(make_table, jobs_url, tmp_path, seed, 5)
