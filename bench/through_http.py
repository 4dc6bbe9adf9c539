"""The same table behind a real service on a loopback port."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import msgspec
from synthetic import SCHEMA, blocks

from lamella.service.catalog import open_catalog
from lamella.service.state import history_entry
from lamella.snapshot.layout import FsspecStore
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.warehouse import Warehouse

START_S = 60.0


class Served:
    """A service over ``folder`` with one table of synthetic blocks; a context manager."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count

    def __enter__(self) -> Served:
        """Start the service and load the table."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        root, catalog = f"file://{self._folder}/warehouse", f"sqlite:///{self._folder}/catalog.db"
        settings = {"LAMELLA_WAREHOUSE": root, "LAMELLA_CATALOG": catalog, "LAMELLA_PORT": str(port)}
        with (self._folder / "service.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lamella.service"], env={**os.environ, **settings}, stdout=log, stderr=log
            )
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._wait()
        self._post("/v1/namespaces", {"name": "bench"})
        self._post("/v1/namespaces/bench/tables", {"name": "t", "schema": msgspec.to_builtins(SCHEMA.columns)})
        self.warehouse = Warehouse(FsspecStore(), root, cache_bytes=4 << 30)
        self.pointer = self._load(catalog)
        self._connection.close()  # the service ends a connection that was idle while the table was made
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the service."""
        self._connection.close()
        self._process.terminate()
        self._process.wait(60)

    def prune(self, text: str) -> bytes:
        """One prune, as our own client asks it."""
        return self._post("/v1/namespaces/bench/tables/t/prune", {"filter": text, "shape": "columns"})

    def floor(self) -> bytes:
        """The cheapest route there is."""
        self._connection.request("GET", "/health/live")
        return self._connection.getresponse().read()

    def _wait(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                self.floor()
            except OSError:
                self._connection.close()
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.1)
            else:
                return

    def _load(self, url: str) -> SnapshotPointer:
        """Commit through the catalog itself: over HTTP the service would ask the store for files that do not exist."""
        catalog = open_catalog(url)
        record = catalog.table("bench", "t")
        refs = self.warehouse.prepare(record.table_id, SCHEMA, blocks(self._count))
        done = self.warehouse.commit(record.pointer, added=refs, now_ms=record.pointer.timestamp_ms + 1)
        if not catalog.advance(record.table_id, history_entry(record.version + 1, done.pointer, done.snapshot)):
            raise RuntimeError("somebody else committed to the table of the benchmark")
        catalog.close()
        return done.pointer

    def _post(self, path: str, body: object) -> bytes:
        self._connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {data[:500]!r}")
        return data
