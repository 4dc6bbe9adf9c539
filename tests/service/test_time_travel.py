"""Which snapshot a request is answered from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import instant_ms
from lamella.snapshot.errors import InvalidRequest
from support.app_client import AppClient
from support.service_api import parquet_bytes, read_problem

TABLE = "/v1/namespaces/db/tables/t"
START_MS = int(dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC).timestamp() * 1000)
HOUR_MS = 3_600_000

Ask = Callable[..., int]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AppClient]:
    """An app whose clock goes on by an hour with each of four commits: 0, 1, 2 and 3 blocks."""
    now_ms = START_MS
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "w")), clock=lambda: now_ms)) as client:
        client.post("/v1/namespaces", json={"name": "db"})
        client.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        for number in range(3):
            now_ms += HOUR_MS
            (tmp_path / f"{number}.parquet").write_bytes(parquet_bytes({"a": [number]}))
            done = client.post(f"{TABLE}/register", json={"paths": [str(tmp_path / f"{number}.parquet")]})
            assert done.status_code == 200
        yield client


def blocks_at(client: AppClient, **which: Any) -> int:
    """How many blocks the snapshot has that a prune is answered from."""
    answer = client.post(f"{TABLE}/prune", json=which)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["report"]["blocks_total"])


@pytest.mark.slow
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
    client: AppClient, timestamp: int | str, blocks: int
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
    client: AppClient, timestamp: str, zone: str, blocks: int
) -> None:
    """A zone in the text itself wins."""
    assert blocks_at(client, timestamp=timestamp, time_zone=zone) == blocks


@pytest.mark.parametrize("timestamp", [START_MS - 1, 0, "2026-03-29T00:29:59.999Z", "1970-01-01"])
def test_a_time_before_the_first_snapshot_is_not_found(client: AppClient, timestamp: int | str) -> None:
    """There was no table then."""
    problem = read_problem(client.post(f"{TABLE}/prune", json={"timestamp": timestamp}))
    assert (problem.status, problem.code) == (404, "snapshot_not_found")


def test_a_snapshot_is_found_by_its_id_however_it_is_spelled(client: AppClient) -> None:
    """Ids are UUIDs; upper case and braces mean the same one."""
    history = client.get(f"{TABLE}/snapshots").json()["snapshots"]
    for entry in history:
        for text in (entry["snapshot_id"], entry["snapshot_id"].upper()):
            assert blocks_at(client, snapshot_id=text) == entry["block_count"]


def test_the_clock_going_backwards_does_not_unorder_history(tmp_path: Path) -> None:
    """Timestamps grow along the chain, so a time still stands for one snapshot."""
    times = iter(range(START_MS, 0, -1))
    with AppClient(create_app(Settings(warehouse=str(tmp_path / "w")), clock=lambda: next(times))) as client:
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


class Lake:
    """An app over a catalog that tests look into, with a clock that they set."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = START_MS
        self.folder = folder
        self.catalog = open_catalog(str(folder / "catalog.db"))
        settings = Settings(warehouse=str(folder / "w"), drop_grace_s=60)
        self.client = AppClient(create_app(settings, catalog=self.catalog, clock=lambda: self.now_ms))
        self.client.post("/v1/namespaces", json={"name": "db"})
        self.client.post("/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]})
        self.table_id = self.catalog.table("db", "t").table_id

    def append(self, value: int) -> str:
        """One more block; the new snapshot's id."""
        file = self.folder / f"{value}.parquet"
        file.write_bytes(parquet_bytes({"a": [value]}))
        done = self.client.post(f"{TABLE}/register", json={"paths": [str(file)]})
        assert done.status_code == 200, done.text
        return str(done.json()["snapshot_id"])

    def problem(self, method: str, path: str, **body: Any) -> tuple[int, str]:
        """Status and code of a request that must fail."""
        found = read_problem(self.client.request(method, path, json=body or None))
        return found.status, found.code


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty table at START_MS."""
    lake = Lake(tmp_path)
    with lake.client:
        yield lake


def test_time_travel_is_right_when_the_clock_goes_back(lake: Lake) -> None:
    """Each snapshot is in force from its own time to the next one's, and those times are all different."""
    ids = []
    for value, now_ms in enumerate((START_MS + 1_000, START_MS - HOUR_MS, START_MS - HOUR_MS, START_MS + 5_000)):
        lake.now_ms = now_ms
        ids.append(lake.append(value))
    listed = lake.client.get(f"{TABLE}/snapshots").json()["snapshots"][::-1]
    times = [entry["timestamp_ms"] for entry in listed]
    assert times == [START_MS, START_MS + 1_000, START_MS + 1_001, START_MS + 1_002, START_MS + 5_000]
    assert [entry["snapshot_id"] for entry in listed[1:]] == ids
    for blocks, at_ms in enumerate(times):
        assert blocks_at(lake.client, timestamp=at_ms) == blocks
        assert blocks == 0 or blocks_at(lake.client, timestamp=at_ms - 1) == blocks - 1
    lake.now_ms = START_MS - 2 * HOUR_MS
    back = lake.client.post(f"{TABLE}/rollback", json={"snapshot_id": ids[0]}).json()
    newest = lake.client.get(f"{TABLE}/snapshots").json()["snapshots"][0]
    assert (newest["snapshot_id"], newest["timestamp_ms"]) == (back["snapshot_id"], START_MS + 5_001)
    assert blocks_at(lake.client, timestamp=START_MS + 5_000) == 4
    assert blocks_at(lake.client) == 1


def test_a_tag_names_its_snapshot_until_its_time_is_over(lake: Lake) -> None:
    """To the millisecond; then the name is free."""
    lake.append(1)
    made = lake.client.post(f"{TABLE}/tags", json={"name": "t", "max_age_ms": 500}).json()
    assert made["expires_at_ms"] == START_MS + 500
    lake.append(2)
    lake.now_ms = START_MS + 499
    assert blocks_at(lake.client, snapshot_id="t") == 1
    lake.now_ms = START_MS + 500
    assert lake.problem("POST", f"{TABLE}/prune", snapshot_id="t") == (404, "snapshot_not_found")
    assert lake.problem("DELETE", f"{TABLE}/tags/t") == (404, "tag_not_found")
    assert lake.client.get(f"{TABLE}/tags").json() == {"tags": []}
    assert lake.client.post(f"{TABLE}/tags", json={"name": "t"}).status_code == 201
    assert blocks_at(lake.client, snapshot_id="t") == 2


def test_what_expired_is_said_to_be_gone_wherever_it_is_named(lake: Lake) -> None:
    """By id, by time, as the start of changes and as the goal of a rollback; what is tagged stays."""
    ids = []
    for value in range(4):
        lake.now_ms = START_MS + (value + 1) * HOUR_MS
        ids.append(lake.append(value))
    lake.client.post(f"{TABLE}/tags", json={"name": "kept", "snapshot_id": ids[0]})
    assert lake.catalog.expire_snapshots(lake.table_id, range(1, 10), now_ms=lake.now_ms) == [1, 3, 4]
    gone = (410, "snapshot_expired")
    for timestamp in (START_MS, START_MS + 2 * HOUR_MS, START_MS + 4 * HOUR_MS - 1):
        assert lake.problem("POST", f"{TABLE}/prune", timestamp=timestamp) == gone
        assert lake.problem("POST", f"{TABLE}/rollback", timestamp=timestamp) == gone
    assert lake.problem("GET", f"{TABLE}/snapshots/{ids[1]}") == gone
    assert lake.problem("GET", f"{TABLE}/changes?since={ids[2]}") == gone
    assert lake.problem("POST", f"{TABLE}/tags", name="late", snapshot_id=ids[1]) == gone
    assert lake.problem("GET", f"{TABLE}/changes?since=kept") == gone
    net = lake.client.get(f"{TABLE}/changes?since=kept&net=true").json()
    assert len(net["changes"][0]["added"]) == 3
    assert blocks_at(lake.client, timestamp=START_MS + HOUR_MS) == blocks_at(lake.client, snapshot_id="kept") == 1
    assert lake.problem("POST", f"{TABLE}/prune", timestamp=START_MS - 1) == (404, "snapshot_not_found")
    assert [entry["tags"] for entry in lake.client.get(f"{TABLE}/snapshots").json()["snapshots"]] == [[], ["kept"]]
    assert lake.client.post(f"{TABLE}/rollback", json={"snapshot_id": "kept"}).json()["block_count"] == 1


def test_a_dropped_table_says_how_long_it_can_come_back(lake: Lake) -> None:
    """At least for the grace, and as long as no vacuum has doomed it."""
    lake.client.delete(TABLE)
    (dropped,) = lake.client.get("/v1/namespaces/db/dropped").json()["tables"]
    assert (dropped["dropped_at_ms"], dropped["undrop_before_ms"]) == (START_MS, START_MS + 60_000)
    lake.now_ms = START_MS + 10 * HOUR_MS
    assert lake.client.post("/v1/namespaces/db/undrop", json={"name": "t"}).status_code == 200
    lake.client.delete(TABLE)
    assert lake.catalog.schedule_removal(lake.table_id, dropped_before_ms=lake.now_ms + 1, now_ms=lake.now_ms)
    assert lake.problem("POST", "/v1/namespaces/db/undrop", name="t") == (404, "table_not_found")
