"""Many requests at once: none is lost, none is done twice, and none fails for the others' sake."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from fixtures_server import StartServer
from lamella.snapshot.layout import FsspecStore
from support.service_api import Api, TableApi, World, fresh_name


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
    """Sixteen registrations at once make sixteen snapshots in one chain, with every block in the last."""
    table, folder = world.table(), world.folder()
    files = world.numbers(folder, 16)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(table.register, files))
    assert [answer["registered"] for answer in answers] == [1] * 16
    assert sorted(table.locations()) == files
    history = table.history()
    assert [entry["block_count"] for entry in history] == list(range(16, -1, -1))
    assert [entry["prev_snapshot_id"] for entry in history[:-1]] == [entry["snapshot_id"] for entry in history[1:]]


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


@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_two_services_on_one_catalog_lose_no_commit(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path, catalog: str
) -> None:
    """Appends through two processes all land, and each process sees the other's at once."""
    settings = {"warehouse": tmp_path / "warehouse"}
    if catalog == "postgres":
        settings["catalog"] = request.getfixturevalue("postgres_database")
    with ExitStack() as opened:
        servers = [start_server(**settings) for _ in range(2)]
        worlds = [World(server.url, f"file://{tmp_path}/data", FsspecStore()) for server in servers]
        for world in worlds:
            opened.enter_context(world)
        files = worlds[0].numbers(worlds[0].folder(), 24)
        table = worlds[0].table()
        tables = [table, TableApi(worlds[1].api, table.namespace, table.name)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda i: tables[i % 2].register(files[i]), range(24)))
        assert len({answer["snapshot_id"] for answer in answers}) == 24
        for each in tables:
            assert sorted(each.locations()) == files
        assert sum(counter(world.api, "lamella_commits_total") for world in worlds) == 24


def counter(api: Api, name: str) -> float:
    """The value of a counter without labels."""
    lines = api.send("GET", "/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
