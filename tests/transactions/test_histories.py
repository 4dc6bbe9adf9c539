"""Histories of transactions that run at once, in services that are killed, are serializable in real time.

An operation is an append of a value to a list, or a read of a list; a transaction has up to some dozens
(:mod:`transactions.workload`). The checker is :mod:`support.list_append`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.client.http.exchange import RetryPolicy
from lamella.service.catalog import PointerSwap, SqlCatalog
from support.list_append import find_anomalies
from transactions.workload import Workload

#: How many operations `make soak` runs.
_LONG = int(os.environ.get("LAMELLA_HISTORY_OPERATIONS", "1000000"))


def judge(work: Workload, quiet_s: float) -> None:
    """Fail with the anomalies of a history, or if too little happened for it to say anything."""
    found = find_anomalies(work.history, quiet_s=quiet_s)
    assert not found, "\n".join(f"{each.kind}: {each.text}" for each in found[:20])
    assert work.outcomes["committed"] > 0
    assert work.outcomes["failed"] > 0


def test_transactions_of_many_threads_are_serializable(tmp_path: Path) -> None:
    """In one process; each saw a state that there was in some order, and in real time."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        work = Workload([lake], tmp_path, seed=1)
        work.run(workers=6, operations=4_000)
        judge(work, work.read_all())
        work.check_rows(random.Random(1), tables=20)


def test_a_catalog_that_tears_transactions_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that swaps the first table of a transaction a moment before the others."""
    whole = SqlCatalog.advance_all

    def torn(self: SqlCatalog, swaps: Sequence[PointerSwap], **options: Any) -> bool:
        if len(swaps) < 2:
            return whole(self, swaps, **options)
        if not whole(self, swaps[:1], **options):
            return False
        time.sleep(0.05)
        whole(self, swaps[1:])
        return True

    monkeypatch.setattr(SqlCatalog, "advance_all", torn)
    with Lamella.embedded(tmp_path / "lake") as lake:
        work = Workload([lake], tmp_path, seed=1)
        work.run(workers=6, operations=5_000)
        found = find_anomalies(work.history, quiet_s=work.read_all())
    assert "G-single" in {each.kind for each in found}


@pytest.mark.process
@pytest.mark.postgres
def test_transactions_over_two_services_are_serializable(
    start_server: StartServer, tmp_path: Path, postgres_database: str
) -> None:
    """Two processes over one catalog, each of them killed once."""
    kills = run_with_kills(
        start_server, tmp_path, postgres_database, operations=4_000, pause_s=lambda: 0.5, report=print
    )
    assert kills > 0


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.soak
def test_a_long_history_with_kills_is_serializable(
    start_server: StartServer, tmp_path: Path, postgres_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 lost, 0 doubled, 0 in part, 0 cycles in a million operations; both processes are killed again and again."""
    rng = random.Random(7)

    def report(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    kills = run_with_kills(
        start_server,
        tmp_path,
        postgres_database,
        operations=_LONG,
        pause_s=lambda: rng.uniform(1.0, 8.0),
        report=report,
    )
    assert kills > 0


def summary(work: Workload, kills: int) -> str:
    """How much has happened."""
    changes = ", ".join(f"{count:,} {outcome}" for outcome, count in work.outcomes.items())
    return f"{work.operations:,} operations in {len(work.history):,} transactions (changes: {changes}), {kills} kills"


def run_with_kills(
    start_server: StartServer,
    folder: Path,
    catalog: str,
    *,
    operations: int,
    pause_s: Callable[[], float],
    report: Callable[[str], None],
) -> int:
    """Run and check a history while services are killed by turns; returns how many times."""
    servers: list[ServerProcess] = [start_server(warehouse=folder / "warehouse", catalog=catalog) for _ in range(2)]
    policy = RetryPolicy(attempts=2, base_delay_s=0.05, max_delay_s=0.2)
    lakes = [Lamella(server.url, policy=policy) for server in servers]
    work = Workload(lakes, folder, seed=2)
    kills, began_s, reported_s = 0, time.monotonic(), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work.run, workers=8, operations=operations)
        while not running.done():
            time.sleep(pause_s())
            servers[kills % 2].kill()
            servers[kills % 2].restart()
            kills += 1
            if time.monotonic() > reported_s + 30:
                reported_s = time.monotonic()
                report(f"{summary(work, kills)}, {reported_s - began_s:.0f} s")
        running.result()
    for server in servers:  # what is still on its way ends
        server.kill()
        server.restart()
    quiet_s = work.read_all()
    report(f"{summary(work, kills)}, {time.monotonic() - began_s:.0f} s")
    judge(work, quiet_s)
    work.check_rows(random.Random(1), tables=40)
    for lake in lakes:
        lake.close()
    return kills
