"""Many requests at once: none is lost, none is done twice, and none fails for the others' sake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fixtures_s3 import S3Server
from fixtures_server import StartServer
from lamella.snapshot.storage import FsspecStore
from support.service_api import Api, TableApi, World, fresh_name

_BUCKETS = count()


def test_of_fifty_creations_of_one_name_one_succeeds(world: World) -> None:
    """Exactly one 201, the others 409; for namespaces and for tables."""
    namespace = fresh_name("ns")
    table = {"name": "t", "schema": [{"name": "x", "type": "int"}]}
    for path, body in (("/v1/namespaces", {"name": namespace}), (f"/v1/namespaces/{namespace}/tables", table)):
        with ThreadPoolExecutor(50) as pool:
            sent = [pool.submit(world.api.send, "POST", path, body) for _ in range(50)]
            answers = [future.result() for future in sent]
        assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 49}
        assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {"already_exists"}
    created = [answer.json() for answer in answers if answer.status_code == 201]
    assert TableApi(world.api, namespace, "t").info() == created[0]


def test_concurrent_appends_all_land(world: World) -> None:
    """Sixteen registrations at once make one chain of at most as many snapshots, with every block in the last."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 16)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(table.register, files))
    assert [answer["registered"] for answer in answers] == [1] * 16
    assert sorted(table.locations()) == files
    history = table.history()
    assert check_chain(history) == [16, *(entry["block_count"] for entry in history[1:-1]), 0]
    # Every caller was told a snapshot, and those that share one were folded into it.
    shared = Counter(answer["snapshot_id"] for answer in answers)
    grown = [new["block_count"] - old["block_count"] for new, old in pairwise(history)]
    assert [shared[entry["snapshot_id"]] for entry in history[:-1]] == grown


def check_chain(history: list[dict[str, Any]]) -> list[int]:
    """The block counts of a history, newest first, after a check that each snapshot follows the one before."""
    assert [entry["prev_snapshot_id"] for entry in history] == [entry["snapshot_id"] for entry in history[1:]] + [None]
    times = [entry["timestamp_ms"] for entry in history]
    assert all(new > old for new, old in pairwise(times))
    return [entry["block_count"] for entry in history]


def test_files_registered_by_two_at_once_are_in_the_table_once(world: World) -> None:
    """Overlapping registrations share the files out: each is taken by one and refused to the others."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 6)
    path = f"{table.path}/register"
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(world.api.send, "POST", path, {"paths": files[i : i + 3]}) for i in range(4)]
        answers = [future.result() for future in sent]
    assert sorted(table.locations()) == files
    registered = sum(answer.json()["registered"] for answer in answers if answer.status_code == 200)
    assert registered == 6
    for answer in answers:
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()["code"]) == (409, "duplicate_block")


def test_of_two_rewrites_of_one_block_one_conflicts(world: World) -> None:
    """Eight commits that remove the same block: one succeeds, the others are told which block is gone."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 2)
    table.register(folder)
    body = {"removed": files[:1], "base_snapshot_id": table.info()["snapshot_id"]}
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(world.api.send, "POST", f"{table.path}/commits", body) for _ in range(8)]
        answers = [future.result() for future in sent]
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 7}
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["code"] == "commit_conflict"
            assert answer.json()["details"]["blocks"] == files[:1]
    assert table.locations() == files[1:]


def test_removals_of_different_blocks_do_not_conflict(world: World) -> None:
    """Eight commits at once, each removing a block of its own, all succeed."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 9)
    table.register(folder)
    base = table.info()["snapshot_id"]

    def remove(file: str) -> int:
        return int(table.commit(removed=[file], base_snapshot_id=base)["removed"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(remove, files[:8])) == [1] * 8
    assert table.locations() == files[8:]


@pytest.fixture(
    params=[
        pytest.param(("sqlite", "local"), id="sqlite-local"),
        pytest.param(("postgres", "local"), id="postgres-local", marks=pytest.mark.postgres),
        pytest.param(
            ("postgres", "s3"), id="postgres-s3", marks=[pytest.mark.soak, pytest.mark.postgres, pytest.mark.s3]
        ),
    ]
)
def pair(request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path) -> Iterator[list[World]]:
    """Two service processes on one catalog and one store."""
    settings: dict[str, object] = {"warehouse": tmp_path / "warehouse"}
    store, root = FsspecStore(), f"file://{tmp_path}/data"
    catalog, kind = request.param
    if catalog == "postgres":
        settings["catalog"] = request.getfixturevalue("postgres_database")
    if kind == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        bucket = s3.bucket(f"pair{next(_BUCKETS)}")
        options = {"s3": s3.storage_options}
        settings |= {"warehouse": f"{bucket}/warehouse", "store_options": json.dumps(options)}
        store, root = FsspecStore(options), f"{bucket}/data"
    with ExitStack() as opened:
        servers = [start_server(**settings) for _ in range(2)]
        yield [opened.enter_context(World(server.url, root, store)) for server in servers]


def both(pair: list[World]) -> list[TableApi]:
    """A new table, through each of the two services."""
    table = pair[0].table()
    return [table, TableApi(pair[1].api, table.namespace, table.name)]


@pytest.mark.few(2)
def test_two_services_on_one_catalog_lose_no_commit(pair: list[World]) -> None:
    """64 clients append through two processes: all of it lands, and each process sees the other's at once."""
    files = pair[0].numbers(pair[0].folder(), 128, rows=1)
    tables = both(pair)

    def run(number: int) -> list[str]:
        return [tables[number % 2].register(file)["snapshot_id"] for file in files[number::64]]

    with ThreadPoolExecutor(64) as pool:
        snapshots = {snapshot for some in pool.map(run, range(64)) for snapshot in some}
    for each in tables:
        assert sorted(each.locations()) == files
        check_chain(each.history())
    assert sum(counter(world.api, "lamella_commits_total") for world in pair) == len(snapshots)


@pytest.mark.few(2)
def test_two_services_take_turns(pair: list[World]) -> None:
    """While one process commits without a pause, the commits of the other one land within a bounded number of tries."""
    files = pair[0].numbers(pair[0].folder(), 400, rows=1)
    tables = both(pair)
    ended = Event()

    def crowd(number: int) -> int:
        done = 0
        for file in files[number:390:8]:
            if ended.is_set():
                break
            done += int(tables[0].register(file)["registered"])
        return done

    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(crowd, number) for number in range(8)]
        before = counter(pair[1].api, "lamella_commit_attempts_total")
        try:
            for file in files[390:]:
                assert tables[1].register(file)["registered"] == 1
        finally:
            ended.set()
        done = sum(future.result() for future in sent)
    tries = counter(pair[1].api, "lamella_commit_attempts_total") - before
    assert 10 <= tries <= 200
    assert len(tables[0].locations()) == done + 10


def test_of_fifty_creations_through_two_services_one_succeeds(pair: list[World]) -> None:
    """Exactly one 201, whichever process it came from."""
    namespace = fresh_name("ns")
    with ThreadPoolExecutor(50) as pool:
        sent = [pool.submit(pair[i % 2].api.send, "POST", "/v1/namespaces", {"name": namespace}) for i in range(50)]
        answers = [future.result() for future in sent]
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 49}


def test_one_key_through_two_services_is_one_change(pair: list[World]) -> None:
    """The same registration, sent to both at once under one key, is made once and answered alike."""
    files = pair[0].numbers(pair[0].folder(), 4, rows=1)
    tables = both(pair)
    with ThreadPoolExecutor(8) as pool:
        for file in files:
            sent = [pool.submit(tables[i % 2].register, file, key=f"key of {file}") for i in range(8)]
            assert len({future.result()["snapshot_id"] for future in sent}) == 1
    assert len(tables[0].history()) == 5


def counter(api: Api, name: str) -> float:
    """The value of a counter without labels."""
    lines = api.send("GET", "/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
