"""Verification over HTTP: in parts, over each catalog and store, with both clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lamella.client.http import AsyncLamella, Lamella
from support.service_api import TableApi, World


@pytest.fixture
def table(world: World) -> TableApi:
    """Six blocks, registered in two commits."""
    table = world.table()
    locations = world.numbers(world.folder(), 6)
    table.register(*locations[:3])
    table.register(*locations[3:])
    return table


def parts(table: TableApi, **options: Any) -> list[dict[str, Any]]:
    """Every part of a verification."""
    found = [table.api.call("POST", f"{table.path}/verify", options)]
    while found[-1]["next_page_token"] is not None:
        token = found[-1]["next_page_token"]
        found.append(table.api.call("POST", f"{table.path}/verify", {**options, "page_token": token}))
    return found


def test_a_table_is_clean_and_damage_is_named(world: World, table: TableApi) -> None:
    """Down to the values; then a file is gone."""
    (answer,) = parts(table, deep=True, sample=1.0, max_ms=60_000)
    assert answer["findings"] == []
    assert answer["checked"]["blocks"] == answer["checked"]["blocks_read"] == 6
    assert answer["checked"]["snapshots"] == 3
    assert answer["steps"] == answer["steps_done"]
    location = table.blocks()[2]["location"]
    world.store.delete(location)
    (answer,) = parts(table, max_ms=60_000)
    (finding,) = answer["findings"]
    assert (finding["code"], finding["block"], finding["severity"]) == ("block_missing", location, "error")
    assert answer["counts"] == {"block_missing": 1}


def test_parts_are_of_the_first_ones_snapshot(world: World, table: TableApi) -> None:
    """A commit between two parts changes nothing, and each part has its own steps."""
    options = {"deep": True, "blocks": 2, "max_ms": 0.001}
    first = table.api.call("POST", f"{table.path}/verify", options)
    assert first["steps_done"] == 1
    table.register(*world.numbers(world.folder(), 1))
    answers = [first]
    while answers[-1]["next_page_token"] is not None:
        token = answers[-1]["next_page_token"]
        answers.append(table.api.call("POST", f"{table.path}/verify", {**options, "page_token": token}))
    assert {answer["snapshot_id"] for answer in answers} == {first["snapshot_id"]}
    assert [answer["steps_done"] for answer in answers] == list(range(1, first["steps"] + 1))
    assert sum(answer["checked"]["blocks"] for answer in answers) == 6
    assert all(answer["findings"] == [] for answer in answers)


def test_an_older_snapshot_can_be_verified(table: TableApi) -> None:
    """By its id; the history behind it is looked at, not what came later."""
    oldest = table.history()[-1]
    (answer,) = parts(table, snapshot_id=oldest["snapshot_id"], max_ms=60_000)
    assert answer["findings"] == []
    assert answer["checked"]["snapshots"] == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sample": 2, "deep": True}, "invalid_request"),
        ({"sample": 0.1, "blocks": 1, "deep": True}, "invalid_request"),
        ({"blocks": 3}, "invalid_request"),
        ({"deep": True, "files": False}, "invalid_request"),
        ({"history": -1}, "invalid_request"),
        ({"max_ms": 0}, "invalid_request"),
        ({"unknown": 1}, "invalid_request"),
        ({"page_token": "bm8"}, "invalid_page_token"),
        ({"page_token": "ä"}, "invalid_page_token"),
        ({"snapshot_id": "nosuch"}, "snapshot_not_found"),
    ],
)
def test_what_cannot_be_done_is_refused(table: TableApi, options: dict[str, Any], code: str) -> None:
    """Each with the code of the mistake."""
    assert table.api.problem("POST", f"{table.path}/verify", options).code == code


def test_a_token_belongs_to_its_request(table: TableApi) -> None:
    """Other options with the same token are refused."""
    first = table.api.call("POST", f"{table.path}/verify", {"max_ms": 0.001})
    options = {"page_token": first["next_page_token"], "files": False}
    assert table.api.problem("POST", f"{table.path}/verify", options).code == "invalid_page_token"
    token = first["next_page_token"]
    for altered in (token[:-4] + "AAAA", "A" * len(token), token[:10]):
        problem = table.api.problem("POST", f"{table.path}/verify", {"page_token": altered})
        assert problem.code == "invalid_page_token"


def test_a_part_of_another_tree_is_requested_again(world: World, table: TableApi) -> None:
    """Steps go by their numbers: where the store gives fewer of them than before, the part ends with an error."""
    options = {"max_ms": 0.001}
    first = table.api.call("POST", f"{table.path}/verify", options)
    location = f"{table.info()['location']}/_ss/{first['snapshot_id']}_v3.json"
    manifest = world.store.read(location)
    world.store.delete(location)
    again = {**options, "page_token": first["next_page_token"]}
    answer = table.api.send("POST", f"{table.path}/verify", again)
    assert (answer.status_code, answer.json()["code"]) == (502, "store_error")
    assert "try again" in answer.json()["detail"]
    world.store.put(location, manifest)
    assert table.api.call("POST", f"{table.path}/verify", again)["steps_done"] == 2


def test_sidecars_are_repaired(world: World, table: TableApi) -> None:
    """A lost sidecar comes back, and queries work again."""
    ref = table.snapshot()["segments"][0]
    world.store.delete(ref["sidecar"]["location"])
    (answer,) = parts(table, repair=True, max_ms=60_000)
    (finding,) = answer["findings"]
    assert finding["code"] == "sidecar_missing"
    assert finding["repaired"]
    assert parts(table, max_ms=60_000)[0]["findings"] == []
    assert len(table.locations("a >= 0")) == 6


def test_both_clients_put_the_parts_together(world: World, table: TableApi) -> None:
    """One answer of all parts, told as they come."""
    name = f"{table.namespace}.{table.name}"
    world.store.delete(table.blocks()[0]["location"])
    seen: list[int] = []
    with Lamella(world.url) as lake:
        answer = lake.table(name).verify(max_ms=0.001, on_part=lambda part: seen.append(part.steps_done))
    assert seen == list(range(1, answer.steps + 1))
    assert answer.counts == {"block_missing": 1}
    assert not answer.is_clean

    async def go() -> Any:
        async with AsyncLamella(world.url) as lake:
            return await lake.table(name).verify(max_ms=0.001)

    assert asyncio.run(go()) == answer
