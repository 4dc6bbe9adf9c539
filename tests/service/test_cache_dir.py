"""The cache on disk, as a service uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.service_api import parquet_bytes
from support.watched_store import WatchedStore


def events(client: Any) -> dict[str, float]:
    """What `/metrics` counts of the cache on disk, by event."""
    found = re.findall(r'lamella_disk_cache_events_total\{event="(\w+)"\} (\S+)', client.get("/metrics").text)
    return {event: float(count) for event, count in found}


def test_a_restarted_service_answers_from_its_cache_on_disk(tmp_path: Path) -> None:
    """The first one fetches, the second one finds; both answer the same, and the metrics tell."""
    settings = Settings(warehouse=str(tmp_path / "w"), cache_dir=str(tmp_path / "cache"), log_requests=False)
    data = tmp_path / "data.parquet"
    data.write_bytes(parquet_bytes({"a": [1, 2, 3]}))

    def service() -> AppClient:
        # Wrapped, so that it is not known that the objects are files of this machine.
        return AppClient(create_app(settings, store=WatchedStore(FsspecStore(), lambda _: None)))

    table = "/v1/namespaces/db/tables/t"
    with service() as client:
        client.post("/v1/namespaces", json={"name": "db"})
        client.post(
            "/v1/namespaces/db/tables", json={"name": "t", "schema": [{"name": "a", "type": "int64"}]}
        ).raise_for_status()
        client.post(f"{table}/register", json={"paths": [str(data)]}).raise_for_status()
    answers = []
    for expected in ("miss", "hit"):
        with service() as client:
            answer = client.post(f"{table}/prune", json={"filter": "a = 2"}).raise_for_status().json()
            answers.append(answer["blocks"])
            assert set(events(client)) == {expected}
            assert events(client)[expected] >= 2
    assert answers[0] == answers[1]
    assert [block["location"] for block in answers[0]] == [f"file://{data}"]


def test_a_cache_that_cannot_be_used_keeps_the_service_from_starting(tmp_path: Path) -> None:
    """A setting that is wrong is told at once."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidRequest, match="a cache cannot be created"):
        create_app(Settings(warehouse=str(tmp_path / "w"), cache_dir=str(tmp_path / "file")))
