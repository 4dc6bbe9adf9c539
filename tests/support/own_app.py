"""An app of a test's own, with something that happens before each object that it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.listed import put_lists
from support.race import TABLE
from support.service_api import fresh_name
from support.watched_store import WatchedStore

COLUMNS = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]


class OwnApp:
    """One app and one table. ``before`` is called with the location of each object ahead of its being written."""

    def __init__(self, folder: Path, opened: ExitStack, **settings: Any) -> None:
        self.folder = folder
        self.store = FsspecStore()
        self.before: Callable[[str], None] = lambda _: None
        watched = WatchedStore(self.store, lambda location: self.before(location))
        options = Settings(warehouse=str(folder / "warehouse"), **settings)
        self.app = opened.enter_context(AppClient(create_app(options, store=watched)))
        assert self.app.post("/v1/namespaces", json={"name": "db"}).status_code == 201
        created = self.app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": COLUMNS})
        assert created.status_code == 201

    def info(self) -> dict[str, Any]:
        """The table."""
        return dict(self.app.get(TABLE).json())

    def blocks(self, count: int) -> list[Block]:
        """Blocks without statistics; their files are there."""
        folder = self.folder / fresh_name("d")
        folder.mkdir()
        files = [folder / f"{number:05}.parquet" for number in range(count)]
        for file in files:
            file.write_bytes(b"x")
        return [Block(location=f"file://{file}", row_count=1, file_size=1) for file in files]

    def lists(self, count: int, each: int = 2) -> list[dict[str, Any]]:
        """So many blocks in lists."""
        return put_lists(self.store, self.info()["location"], self.blocks(count), each=each)

    def commit(self, lists: list[dict[str, Any]]) -> httpx2.Response:
        """The answer, whatever it is."""
        answer: httpx2.Response = self.app.post(f"{TABLE}/commits", json={"added_from": lists})
        return answer

    def clean_up(self) -> dict[str, Any]:
        """A vacuum of all that is garbage by now."""
        time.sleep(0.01)  # so that it is older than this moment, by the store's clock and by ours
        answer = self.app.post(f"{TABLE}/vacuum", json={"execute": True})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def clean_up_at_segment(self, number: int) -> list[str]:
        """Clean up before the ``number``-th segment from now on is written; the list gets those that were begun."""
        written: list[str] = []

        def at(location: str) -> None:
            if location.endswith(".json") and "/_sg/" in location:
                written.append(location)
                if len(written) == number:
                    assert self.clean_up()["garbage"]["segment"]["objects"] >= 1

        self.before = at
        return written


#: Makes one with settings.
NewOwn = Callable[..., OwnApp]
