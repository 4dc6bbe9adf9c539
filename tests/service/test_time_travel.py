"""Which snapshot a request is answered from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.settings import Settings
from lamella.service.state import instant_ms
from lamella.snapshot.errors import InvalidRequest
from support.service_api import parquet_bytes, read_problem

TABLE = "/v1/namespaces/db/tables/t"
START_MS = int(dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC).timestamp() * 1000)
HOUR_MS = 3_600_000

Ask = Callable[..., int]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """An app whose clock goes on by an hour with each of four commits: 0, 1, 2 and 3 blocks."""
    now_ms = START_MS
    with TestClient(create_app(Settings(warehouse=str(tmp_path / "w")), clock=lambda: now_ms)) as client:
        client.post("/v1/namespaces", json={"name": "db"})
        client.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        for number in range(3):
            now_ms += HOUR_MS
            (tmp_path / f"{number}.parquet").write_bytes(parquet_bytes({"a": [number]}))
            done = client.post(f"{TABLE}/register", json={"paths": [str(tmp_path / f"{number}.parquet")]})
            assert done.status_code == 200
        yield client


def blocks_at(client: TestClient, **which: Any) -> int:
    """How many blocks the snapshot has that a prune is answered from."""
    answer = client.post(f"{TABLE}/prune", json=which)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["report"]["blocks_total"])


@pytest.mark.parametrize(
    ("timestamp", "blocks"),
    [
        (START_MS, 0),
        (START_MS + HOUR_MS - 1, 0),
        (START_MS + HOUR_MS, 1),
        (START_MS + 3 * HOUR_MS - 1, 2),
        (START_MS + 3 * HOUR_MS, 3),
        ((1 << 63) - 1, 3),
        ("2026-03-29T01:30:00Z", 1),
        ("2026-03-29T01:29:59.999Z", 0),
        ("2026-03-29 01:29:59.999999+00:00", 0),
        ("2026-03-29T03:30:00+02:00", 1),
        ("2027-01-01", 3),
    ],
)
def test_a_time_stands_for_the_snapshot_that_was_current_then(
    client: TestClient, timestamp: int | str, blocks: int
) -> None:
    """From the very millisecond at which a snapshot was made, until that of the next one."""
    assert blocks_at(client, timestamp=timestamp) == blocks


@pytest.mark.parametrize(
    ("timestamp", "zone", "blocks"),
    [
        ("2026-03-29T03:30:00", "Europe/Berlin", 1),  # summer time, UTC+2
        ("2026-03-29T01:45:00", "Europe/Berlin", 0),  # still winter time, UTC+1
        ("2026-03-28T20:30:00", "-05:00", 1),
        ("2026-03-29T01:30:00Z", "Asia/Tokyo", 1),
    ],
)
def test_a_time_without_a_zone_is_read_in_the_requests(
    client: TestClient, timestamp: str, zone: str, blocks: int
) -> None:
    """A zone in the text itself wins."""
    assert blocks_at(client, timestamp=timestamp, time_zone=zone) == blocks


@pytest.mark.parametrize("timestamp", [START_MS - 1, 0, "2026-03-29T00:29:59.999Z", "1970-01-01"])
def test_a_time_before_the_first_snapshot_is_not_found(client: TestClient, timestamp: int | str) -> None:
    """There was no table then."""
    problem = read_problem(client.post(f"{TABLE}/prune", json={"timestamp": timestamp}))
    assert (problem.status, problem.code) == (404, "snapshot_not_found")


def test_a_snapshot_is_found_by_its_id_however_it_is_spelled(client: TestClient) -> None:
    """Ids are UUIDs; upper case and braces mean the same one."""
    history = client.get(f"{TABLE}/snapshots").json()["snapshots"]
    for entry in history:
        for text in (entry["snapshot_id"], entry["snapshot_id"].upper()):
            assert blocks_at(client, snapshot_id=text) == entry["block_count"]


def test_the_clock_going_backwards_does_not_unorder_history(tmp_path: Path) -> None:
    """Timestamps grow along the chain, so a time still stands for one snapshot."""
    times = iter(range(START_MS, 0, -1))
    with TestClient(create_app(Settings(warehouse=str(tmp_path / "w")), clock=lambda: next(times))) as client:
        client.post("/v1/namespaces", json={"name": "db"})
        client.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        for turn in range(3):
            body = {"properties": {"turn": str(turn)}, "operation": "set"}
            assert client.post(f"{TABLE}/commits", json=body).status_code == 200
        stamps = [entry["timestamp_ms"] for entry in client.get(f"{TABLE}/snapshots").json()["snapshots"]]
        assert stamps == sorted(set(stamps), reverse=True)


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "2026-01-01T25:00", "2026-01-01T00:00:00 Nowhere/Town"])
def test_text_that_is_no_time_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InvalidRequest):
        instant_ms(text, "UTC")
