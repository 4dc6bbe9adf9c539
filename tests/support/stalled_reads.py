"""An app whose store can be made to wait: reads of objects are held until a test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2

from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore, ListedObject, ObjectStat, Store
from support.app_client import AppClient
from support.service_api import parquet_bytes

WAIT_S = 60
COLUMNS = [{"name": "a", "type": "int64"}]


class StallingStore:
    """``store``, but while ``holding`` each read of a manifest or sidecar waits for ``go``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.holding = False
        self.go = threading.Event()
        self.waiting = 0
        self._lock = threading.Lock()

    def _wait(self) -> None:
        if self.holding:
            with self._lock:
                self.waiting += 1
            assert self.go.wait(WAIT_S)

    def read(self, location: str) -> bytes:
        """As the store does, some time."""
        self._wait()
        return self._store.read(location)

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does, some time."""
        self._wait()
        return self._store.read_range(location, start, length)

    def stat(self, location: str) -> ObjectStat:
        """As the store does."""
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """As the store does."""
        return self._store.put(location, data)

    def expand(self, url: str, *, plain: bool = False) -> list[str]:
        """As the store does."""
        return self._store.expand(url, plain=plain)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ListedObject]:
        """As the store does."""
        return self._store.list(prefix, start_after=start_after)

    def delete(self, location: str) -> None:
        """As the store does."""
        self._store.delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """As the store does."""
        return self._store.delete_many(locations)


class StalledReads:
    """An app that keeps nothing in memory, with tables of one block each, so that each prune reads the store."""

    def __init__(self, folder: Path, *, headers: dict[str, str] | None = None, **settings: Any) -> None:
        self._opened = ExitStack()
        self.store = StallingStore(FsspecStore())
        # The store is read, and not mapped, when it does not say that it is local. Requests wait long enough for a busy
        # machine to send the next ones.
        given = {"request_wait_s": 60.0, **settings}
        chosen = Settings(warehouse=str(folder / "warehouse"), cache_bytes=0, log_requests=False, **given)
        self.app = self._opened.enter_context(
            AppClient(create_app(chosen, store=self.store), raise_server_exceptions=False, headers=headers or {})
        )
        self.pool = self._opened.enter_context(ThreadPoolExecutor(40))
        assert self.app.post("/v1/namespaces", json={"name": "n"}).status_code == 201

    def table(self, name: str) -> str:
        """A table of one block; its path."""
        path = f"/v1/namespaces/n/tables/{name}"
        created = self.app.post("/v1/namespaces/n/tables", json={"name": name, "schema": COLUMNS})
        assert created.status_code == 201, created.text
        file = f"{created.json()['location']}/{name}.parquet"
        self.store.put(file, parquet_bytes({"a": [1, 2, 3]}))
        registered = self.app.post(f"{path}/register", json={"paths": [file]})
        assert registered.status_code == 200, registered.text
        return path

    def send(self, path: str, key: str | None = None, **headers: str) -> Future[httpx2.Response]:
        """A prune, from a thread of its own."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["Authorization"] = f"Bearer {key}"
        return self.pool.submit(self.app.post, f"{path}/prune", json={"filter": "a = 2"}, headers=given)

    def hold(self) -> None:
        """From now on reads wait."""
        self.store.go.clear()
        self.store.holding = True

    def let_go(self) -> None:
        """They go on."""
        self.store.holding = False
        self.store.go.set()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so."""
        for _ in range(WAIT_S * 200):
            if is_so():
                return
            threading.Event().wait(0.005)
        raise AssertionError("it never came to be so")

    def metric(self, line: str) -> float:
        """The value of a metric, with its labels as they are scraped."""
        for each in self.app.get("/metrics").text.splitlines():
            if each.startswith(line + " "):
                return float(each.rpartition(" ")[2])
        return 0.0

    def close(self) -> None:
        """Let all go on, and end."""
        self.let_go()
        self._opened.close()
