"""A service whose store and catalog fail when told to, and a model of what its tables should hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from support.app_client import AppClient
from support.faulty_catalog import CatalogFault, CatalogFaults
from support.faulty_store import Fault, FaultyStore, Script
from support.service_api import parquet_bytes

NAMESPACE = "/v1/namespaces/db"
TABLES = f"{NAMESPACE}/tables"
COLUMNS = [{"name": "a", "type": "int64"}]
_START_MS = 1_760_000_000_000

#: The smallest and largest value of ``a`` in a block; None: the writer sent no statistics.
Bounds = tuple[int, int] | None
Blocks = dict[str, Bounds]


@dataclass
class Model:
    """One table: what each snapshot holds, by its id, oldest first."""

    snapshots: dict[str, Blocks] = field(default_factory=dict)
    columns: list[str] = field(default_factory=lambda: ["a"])

    @property
    def now(self) -> Blocks:
        """What the current snapshot holds."""
        return next(reversed(self.snapshots.values()))

    def add(self, snapshot_id: str, blocks: Blocks) -> None:
        """A snapshot became the current one."""
        assert snapshot_id not in self.snapshots
        self.snapshots[snapshot_id] = blocks


def matching(blocks: Blocks, min_value: int) -> list[str]:
    """A full scan's view of ``a >= least``: the blocks that may hold such a row, as far as their bounds say."""
    return sorted(location for location, bounds in blocks.items() if bounds is None or bounds[1] >= min_value)


class Subject:
    """One service over local files and SQLite below ``folder``; ``restart`` forgets all that it had in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = _START_MS
        self.tables: dict[str, Model] = {}
        self._numbers = itertools.count()
        self._opened = ExitStack()
        self._values = itertools.count(step=10)
        (folder / "data").mkdir(parents=True)
        self.restart()
        assert self.send("POST", "/v1/namespaces", {"name": "db"}, "ns").status_code == 201

    def restart(self) -> None:
        """A new process, as far as its memory goes."""
        self.close()
        settings = Settings(warehouse=str(self.folder / "warehouse"), cache_bytes=0, log_requests=False)
        self.store = FaultyStore(FsspecStore())
        self.catalog = open_catalog(str(self.folder / "catalog.db"))
        self.catalog_faults = CatalogFaults(self.catalog)
        app = create_app(settings, store=self.store, catalog=self.catalog, clock=self._clock)
        self._client = self._opened.enter_context(AppClient(app, raise_server_exceptions=False))

    def close(self) -> None:
        """Release the database."""
        self._opened.close()

    def _clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def arm(self, *faults: Fault, catalog: tuple[CatalogFault, int] | None = None) -> None:
        """What goes wrong with the next requests, until :meth:`disarm`."""
        self.store.faults = Script(faults)
        self.store.happened.clear()
        self.catalog_faults.happened.clear()
        if catalog is not None:
            self.catalog_faults.arm(*catalog)

    def disarm(self) -> bool:
        """All is well again; returns whether something had gone wrong."""
        self.store.faults = Script()
        self.catalog_faults.disarm()
        return bool(self.store.happened or self.catalog_faults.happened)

    def key(self) -> str:
        """A key that was never used."""
        return f"k{next(self._numbers)}"

    def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> httpx2.Response:
        """The answer, whatever it is."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._client.request(method, path, json=body, headers=headers)

    def file(self) -> tuple[str, Bounds]:
        """A new file of ten rows that follow those of the last file."""
        first = next(self._values)
        path = self.folder / "data" / f"{first:06}.parquet"
        path.write_bytes(parquet_bytes({"a": list(range(first, first + 10))}))
        return f"file://{path}", (first, first + 9)

    def mutate(
        self, method: str, path: str, body: Any, happen: Callable[[Any], None], expected: int | None = None
    ) -> httpx2.Response:
        """Ask once with whatever is armed, and without faults until the outcome is known; tell the model.

        ``happen`` is called with the answer's JSON if it happened. ``expected``: the status when nothing goes wrong.
        """
        key = self.key()
        first = self.send(method, path, body, key)
        faults = self.disarm()
        answer = first
        if first.status_code >= 500:
            assert faults, first.text
            self.check_either(path)
            answer = self.send(method, path, body, key)
            assert answer.status_code < 500, answer.text
        if expected is not None and (not faults or first.status_code >= 500):
            assert answer.status_code == expected, answer.text
        if answer.status_code < 300:
            happen(answer.json() if answer.content else None)
            again = self.send(method, path, body, key)
            assert (again.status_code, again.content) == (answer.status_code, answer.content)
            assert again.headers["idempotency-replayed"] == "true"
        return answer

    def check_either(self, path: str) -> None:
        """After an answer that says nothing: what the table holds is what it held, or one snapshot later."""
        name = path.removeprefix(f"{TABLES}/").split("/")[0]
        if name not in self.tables or path == TABLES:
            return
        answer = self.send("GET", f"{TABLES}/{name}/snapshots?page_size=1000")
        if answer.status_code == 404:
            return  # a drop that happened
        known = list(self.tables[name].snapshots)
        found = [entry["snapshot_id"] for entry in reversed(answer.json()["snapshots"])]
        assert found[: len(known)] == known
        assert len(found) <= len(known) + 1

    def check(self, name: str, min_value: int) -> None:
        """The table holds what the model says, and a filter leaves what a full scan would."""
        model = self.tables[name]
        path = f"{TABLES}/{name}"
        assert self._pruned(path, {}) == sorted(model.now)
        assert self._pruned(path, {"filter": f"a >= {min_value}"}) == matching(model.now, min_value)
        history = self.send("GET", f"{path}/snapshots?page_size=1000").json()["snapshots"]
        assert [entry["snapshot_id"] for entry in reversed(history)] == list(model.snapshots)
        assert [entry["block_count"] for entry in reversed(history)] == [len(b) for b in model.snapshots.values()]
        times = [entry["timestamp_ms"] for entry in reversed(history)]
        assert times == sorted(set(times))

    def check_history(self, name: str, min_value: int) -> None:
        """The same of every snapshot that there ever was."""
        for snapshot_id, blocks in self.tables[name].snapshots.items():
            body = {"snapshot_id": snapshot_id}
            path = f"{TABLES}/{name}"
            assert self._pruned(path, body) == sorted(blocks)
            assert self._pruned(path, {**body, "filter": f"a >= {min_value}"}) == matching(blocks, min_value)

    def _pruned(self, path: str, body: dict[str, Any]) -> list[str]:
        answer = self.send("POST", f"{path}/prune", body)
        assert answer.status_code == 200, answer.text
        return sorted(block["location"] for block in answer.json()["blocks"])
