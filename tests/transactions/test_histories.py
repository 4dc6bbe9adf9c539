"""Histories of transactions that run at once are serializable: there is an order in which each has read what it saw.

Each transaction reads whole tables and appends a number of its own to some, as Elle's list-append does. The order of a
table's numbers is that of its snapshots. A read that is not a prefix of it is an anomaly, and so is a cycle of who came
before whom: the writer of a number before its readers and before the writer of the next one, and a reader before the
writer of the number after those that it saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures_server import ServerProcess, StartServer
from lamella.client import Lamella
from lamella.client.http import RetryPolicy
from lamella.snapshot.errors import OutcomeUnknown, TransactionConflict, Unavailable

TABLES = ("n.a", "n.b", "n.c", "n.d")


class Observed(NamedTuple):
    """What a transaction saw, and what it appended. ``is_known``: it was certainly committed, else it may have been."""

    number: int
    reads: Mapping[str, frozenset[int]]
    appends: tuple[str, ...]
    began_s: float
    ended_s: float
    is_known: bool


def transact(lake: Lamella, rng: random.Random, number: int) -> Observed | None:
    """Run one transaction; None: it was certainly not committed."""
    reads = rng.sample(TABLES, rng.randint(0, 3))
    appends = tuple(rng.sample(TABLES, rng.randint(1, 3)))
    seen: dict[str, frozenset[int]] = {}
    began_s = time.monotonic()
    is_known = True
    tx = lake.transaction()
    try:
        for name in reads:
            at = tx.require_unchanged(name)
            seen[name] = frozenset(lake.table(name).scan(snapshot_id=at).to_arrow()["x"].to_pylist())
        for name in appends:
            tx.table(name).append({"x": [number]})
    except (Unavailable, OutcomeUnknown):
        return None  # only files were written
    try:
        tx.commit()
    except TransactionConflict:
        return None
    except (Unavailable, OutcomeUnknown):
        is_known = False
    return Observed(number, seen, appends, began_s, time.monotonic(), is_known)


def orders_of(lake: Lamella) -> dict[str, list[int]]:
    """The numbers of each table in the order in which they were appended."""
    found: dict[str, list[int]] = {}
    for name in TABLES:
        table, before, order = lake.table(name), set[int](), list[int]()
        for entry in reversed(list(table.snapshots())):
            if entry.operation == "append":
                values = table.scan(snapshot_id=entry.snapshot_id).to_arrow()["x"].to_pylist()
                assert len(values) == len(set(values)), f"a number twice in {name}"
                order += sorted(set(values) - before)
                before = set(values)
        found[name] = order
    return found


def check(observed: list[Observed], orders: Mapping[str, list[int]], *, in_real_time: bool) -> None:
    """Fail for a lost or doubled change, a change that happened in part, a read that no moment had, or a cycle."""
    by_number = {each.number: each for each in observed}
    for name, order in orders.items():
        assert len(order) == len(set(order))
        for number in order:
            assert name in by_number[number].appends, f"{number} is in {name}, which its transaction did not change"
    present = {name: set(order) for name, order in orders.items()}
    happened = set()
    for each in observed:
        there = {each.number in present[name] for name in each.appends}
        assert len(there) == 1, f"{each} happened in part"
        assert there == {True} or not each.is_known, f"{each} was lost"
        if there == {True}:
            happened.add(each.number)
    before: dict[int, set[int]] = {number: set() for number in happened}
    for name, order in orders.items():
        for one, following in pairwise(order):
            before[following].add(one)
        for each in observed:
            seen = each.reads.get(name)
            if seen is None or each.number not in happened:
                continue
            assert seen == set(order[: len(seen)]), f"{each} saw what {name} never was: {sorted(seen)} of {order}"
            if seen:
                before[each.number].add(order[len(seen) - 1])
            if len(seen) < len(order) and order[len(seen)] != each.number:
                before[order[len(seen)]].add(each.number)
    if in_real_time:
        committed = [each for each in observed if each.number in happened and each.is_known]
        for each in committed:
            before[each.number] |= {other.number for other in committed if other.ended_s < each.began_s}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        pytest.fail(f"no order of these transactions explains what they saw: {error.args[1]}")


def create_tables(lake: Lamella) -> None:
    """Make the tables, empty."""
    lake.create_namespace("n")
    for name in TABLES:
        lake.create_table(name, schema={"x": "int64"})


@pytest.mark.parametrize("seed", range(2))
def test_transactions_of_many_threads_are_serializable(tmp_path: Path, seed: int) -> None:
    """Also in real time: one that began after another ended comes after it."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        create_tables(lake)
        observed = run([lake], workers=4, turns=8, seed=seed)
        check(observed, orders_of(lake), in_real_time=True)


def run(lakes: Sequence[Lamella], *, workers: int, turns: int, seed: int) -> list[Observed]:
    """Run transactions in threads, each with one of the clients."""

    def work(worker: int) -> list[Observed | None]:
        rng = random.Random(f"{seed} {worker}")
        return [transact(lakes[worker % len(lakes)], rng, 1 + worker * turns + turn) for turn in range(turns)]

    with ThreadPoolExecutor(workers) as pool:
        found = [each for some in pool.map(work, range(workers)) for each in some if each is not None]
    assert len(found) > turns // 4
    return found


def test_the_checker_finds_anomalies() -> None:
    """A lost change, one that happened in part, a read that no moment had, and a cycle of two (write skew)."""

    def observed(number: int, reads: Mapping[str, set[int]], *appends: str, is_known: bool = True) -> Observed:
        seen = {name: frozenset(values) for name, values in reads.items()}
        return Observed(number, seen, appends, number, number + 0.5, is_known)

    nothing: dict[str, list[int]] = {name: [] for name in TABLES}
    fine = [observed(1, {}, "n.a", "n.b"), observed(2, {"n.a": {1}}, "n.b"), observed(3, {}, "n.a", is_known=False)]
    check(fine, {**nothing, "n.a": [1], "n.b": [1, 2]}, in_real_time=True)
    skew = [observed(1, {"n.a": set()}, "n.b"), observed(2, {"n.b": set()}, "n.a")]
    bad: list[tuple[list[Observed], dict[str, list[int]]]] = [
        ([observed(1, {}, "n.a")], {}),
        ([observed(1, {}, "n.a", "n.b", is_known=False)], {"n.a": [1]}),
        (
            [observed(1, {}, "n.a"), observed(2, {}, "n.a"), observed(3, {"n.a": {2}}, "n.b")],
            {"n.a": [1, 2], "n.b": [3]},
        ),
        (skew, {"n.a": [2], "n.b": [1]}),
    ]
    for history, orders in bad:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(history, {**nothing, **orders}, in_real_time=False)


@pytest.mark.process
@pytest.mark.postgres
@pytest.mark.soak
def test_transactions_over_two_services_with_kills_are_serializable(
    start_server: StartServer, tmp_path: Path, postgres_database: str
) -> None:
    """Two processes over one catalog, one of them killed again and again: 0 lost, 0 doubled, none in part."""
    servers: list[ServerProcess] = [
        start_server(warehouse=tmp_path / "warehouse", catalog=postgres_database) for _ in range(2)
    ]
    rng = random.Random(5)
    policy = RetryPolicy(attempts=2, base_delay_s=0.2, max_delay_s=0.5)
    lakes = [Lamella(server.url, policy=policy) for server in servers]
    create_tables(lakes[0])
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, lakes, workers=6, turns=150, seed=1)
        kills = 0
        while not running.done():
            time.sleep(rng.uniform(1.0, 3.0))
            servers[1].kill()
            servers[1].restart()
            kills += 1
        observed = running.result()
    print(f"{len(observed)} transactions, {sum(not each.is_known for each in observed)} unknown, {kills} kills")
    check(observed, orders_of(lakes[0]), in_real_time=True)
    for lake in lakes:
        lake.close()
