"""Iceberg clients and Lamella's own commit to the same tables through two services, one of which is killed again and
again: nothing is lost or doubled.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError
from pyiceberg.table import StaticTable

from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.client.http import RetryPolicy
from lamella.snapshot.errors import OutcomeUnknown, Unavailable

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.soak]

TABLES: Final = ("n.a", "n.b")
#: After these, a commit may have happened.
_UNKNOWN: Final = (CommitStateUnknownException, RESTError, requests.RequestException)
_WORKERS: Final = 6
_TURNS: Final = 60


class Ledger:
    """What a writer knows of its rows, by table: those that were committed, and those that may have been."""

    def __init__(self) -> None:
        self.committed: dict[str, set[int]] = {name: set() for name in TABLES}
        self.unknown: dict[str, set[int]] = {name: set() for name in TABLES}


def write_by_lamella(url: str, worker: int) -> Ledger:
    """Append rows by Lamella's client, one in each commit."""
    ledger, chance = Ledger(), random.Random(worker)
    with Lamella(url, policy=RetryPolicy(attempts=2, base_delay_s=0.2, max_delay_s=0.5)) as lake:
        for turn in range(_TURNS):
            number, name = worker * 10_000 + turn, chance.choice(TABLES)
            try:
                lake.table(name).append({"x": [number]})
                ledger.committed[name].add(number)
            except (Unavailable, OutcomeUnknown):
                ledger.unknown[name].add(number)
    return ledger


def write(url: str, worker: int) -> Ledger:
    """Append rows by pyiceberg, one in each commit."""
    ledger, chance = Ledger(), random.Random(worker)
    for turn in range(_TURNS):
        number, name = worker * 10_000 + turn, chance.choice(TABLES)
        began = False
        try:
            table = load_catalog("lake", type="rest", uri=f"{url}/iceberg").load_table(name)
            began = True
            table.append(pa.table({"x": pa.array([number], pa.int64())}))
            ledger.committed[name].add(number)
        except CommitFailedException:
            continue  # others were faster, too often
        except _UNKNOWN:
            if began:
                ledger.unknown[name].add(number)
            time.sleep(0.2)
    return ledger


def test_commits_of_both_sides_survive_kills(start_server: StartServer, tmp_path: Path, postgres_database: str) -> None:
    """Every committed row is there once, and no other row; snapshots have the same rows by Lamella and by
    the manifests."""
    servers: list[ServerProcess] = [
        start_server(warehouse=tmp_path / "warehouse", catalog=postgres_database) for _ in range(2)
    ]
    catalog = load_catalog("lake", type="rest", uri=f"{servers[0].url}/iceberg")
    catalog.create_namespace("n")
    for name in TABLES:
        catalog.create_table(name, schema=pa.schema([("x", pa.int64())]))
    rng, kills = random.Random(3), 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        kinds = (write, write, write_by_lamella)
        writers = [pool.submit(kinds[worker % 3], servers[worker % 2].url, worker) for worker in range(_WORKERS)]
        while not all(each.done() for each in writers):
            time.sleep(rng.uniform(0.7, 2.0))
            servers[1].kill()
            servers[1].restart()
            kills += 1
        ledgers = [each.result() for each in writers]
    committed = unknown = compared = 0
    with Lamella(servers[0].url, policy=RetryPolicy(attempts=3)) as lake:
        for name in TABLES:
            known = set().union(*(each.committed[name] for each in ledgers))
            maybe = set().union(*(each.unknown[name] for each in ledgers))
            loaded = catalog.load_table(name)
            rows = StaticTable.from_metadata(loaded.metadata_location).scan().to_arrow()["x"].to_pylist()
            assert len(rows) == len(set(rows)), f"rows twice in {name}"
            assert known <= set(rows) <= known | maybe
            table = lake.table(name)
            assert sorted(table.scan().to_arrow()["x"].to_pylist()) == sorted(rows)
            assert sorted(loaded.scan().to_arrow()["x"].to_pylist()) == sorted(rows)
            for entry in list(table.snapshots())[::3]:
                snapshot = table.snapshot(entry.snapshot_id)
                properties = snapshot.properties
                assert not properties["lamella.source.unread"]
                if snapshot.prev_snapshot_id != properties.get("lamella.source.after"):
                    continue  # Lamella's writers made it, and no client has loaded it
                then = StaticTable.from_metadata(properties["lamella.source.location"]).scan().to_arrow()
                read = table.scan(snapshot_id=entry.snapshot_id).to_arrow()
                assert sorted(read["x"].to_pylist()) == sorted(then["x"].to_pylist())
                compared += 1
            committed += len(known)
            unknown += len(maybe)
    print(f"{committed} rows committed, {unknown} unknown, {kills} kills, {compared} snapshots compared")
    assert committed > _WORKERS * _TURNS // 3
    assert kills > 2
