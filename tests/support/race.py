"""Two services on one warehouse, and something that happens between a commit's fold and its swap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.service_api import parquet_bytes
from support.watched_store import WatchedStore

#: The table of a race.
TABLE = "/v1/namespaces/db/tables/t"


class Race:
    """Two apps on one warehouse. ``meanwhile`` happens once, right before the first app writes a snapshot."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.meanwhile: Callable[[], object] | None = None
        self.times = 1
        self.opened = ExitStack()
        warehouse = str(folder / "warehouse")
        self.other = self.opened.enter_context(AppClient(create_app(Settings(warehouse=warehouse))))
        watched = WatchedStore(FsspecStore(), self._before_put)
        options = Settings(warehouse=warehouse, **settings)
        self.app = self.opened.enter_context(AppClient(create_app(options, store=watched)))
        columns = [{"name": "a", "type": "int64"}]
        assert self.app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        created = self.app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": columns})
        assert created.status_code == 201

    def _before_put(self, location: str) -> None:
        if "/_ss/" in location and location.endswith(".arrow") and self.meanwhile is not None and self.times:
            self.times -= 1
            self.meanwhile()

    def file(self, name: str, value: int = 0) -> str:
        """A Parquet file."""
        location = f"file://{self.folder}/{name}.parquet"
        FsspecStore().put(location, parquet_bytes({"a": [value]}))
        return location

    def locations(self) -> list[str]:
        """The table's blocks."""
        answer = self.other.post(f"{TABLE}/prune", json={})
        return [block["location"] for block in answer.json()["blocks"]]


#: Makes one; the settings are the first app's.
NewRace = Callable[..., Race]
