"""A service whose commit can be held up, so that others queue behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lamella.service.app import create_app
from lamella.service.catalog import SqlCatalog, open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.service_api import fresh_name, parquet_bytes
from support.watched_store import WatchedStore

#: The table of a pausable service.
TABLE = "/v1/namespaces/db/tables/t"
WAIT_S = 60


class PausableService:
    """An app whose first commit can be held up while others queue behind it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.opened = ExitStack()
        self.paused = threading.Event()
        self.go = threading.Event()
        self.holding = False
        self.failing: Callable[[str], None] | None = None
        self.pool = self.opened.enter_context(ThreadPoolExecutor(80))
        self.catalog: SqlCatalog = open_catalog(str(folder / "catalog.db"))
        self.app = self.opened.enter_context(
            AppClient(
                create_app(
                    Settings(warehouse=str(folder / "warehouse"), **settings),
                    store=WatchedStore(FsspecStore(), self._before_put),
                    catalog=self.catalog,
                ),
                raise_server_exceptions=False,
            )
        )
        columns = [{"name": "a", "type": "int64"}]
        assert self.app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        created = self.app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns})
        assert created.status_code == 201
        self.puts: list[str] = []

    def _before_put(self, location: str) -> None:
        if hasattr(self, "puts"):
            self.puts.append(location)
        if self.failing is not None:
            self.failing(location)
        if self.holding:
            self.holding = False
            self.paused.set()
            assert self.go.wait(WAIT_S)

    def file(self, name: str) -> str:
        """A Parquet file of one row."""
        location = f"file://{self.folder}/{name}.parquet"
        FsspecStore().put(location, parquet_bytes({"a": [1]}))
        return location

    def send(self, route: str, body: Any, key: str | None = None) -> Future[httpx2.Response]:
        """A request from a thread of its own."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.pool.submit(self.app.post, f"{TABLE}/{route}", json=body, headers=headers)

    def hold(self) -> Future[httpx2.Response]:
        """Begin a commit and stop in the middle of it, so that what comes next has to queue."""
        self.paused.clear()
        self.go.clear()
        self.holding = True
        first = self.send("register", {"paths": [self.file(fresh_name("held"))]})
        assert self.paused.wait(WAIT_S)
        return first

    def queued(self, count: int) -> None:
        """Return once so many changes wait behind the one that is held."""
        for _ in range(WAIT_S * 100):
            lines = self.app.get("/metrics").text.splitlines()
            if f"lamella_commits_in_progress {count + 1}.0" in lines:
                return
            threading.Event().wait(0.01)
        pytest.fail(f"{count} changes never waited")

    def history(self) -> list[dict[str, Any]]:
        """The table's snapshots, newest first."""
        return list(self.app.get(f"{TABLE}/snapshots").json()["snapshots"])

    def locations(self) -> set[str]:
        """The table's blocks."""
        return {block["location"] for block in self.app.post(f"{TABLE}/prune", json={}).json()["blocks"]}


#: Makes one with settings.
NewPausable = Callable[..., PausableService]
