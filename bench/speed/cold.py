"""The first answer of a process without any cache, of one with a disk cache, and what they read for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from loopback import Service

from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from speed import load
from speed.clock import forget, timed
from speed.over_http import FLOOR, asking, settings
from speed.questions import question, spark_time, sql
from speed.tables import Made


class CountingStore(FsspecStore):
    """A store that counts its reads, their bytes and seconds, and the local files that are mapped instead."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.read_bytes = 0
        self.read_s = 0.0
        self.mapped = 0
        self.mapped_bytes = 0
        self._lock = threading.Lock()

    def local_path(self, location: str) -> str | None:
        """Return an object's local file, which the caller maps."""
        path = super().local_path(location)
        if path is not None:
            with self._lock:
                self.mapped += 1
                self.mapped_bytes += Path(path).stat().st_size
        return path

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        return self._counted(lambda: super(CountingStore, self).read(location))

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        return self._counted(lambda: super(CountingStore, self).read_range(location, start, length))

    def _counted(self, read: Any) -> bytes:
        started = time.perf_counter()
        data: bytes = read()
        with self._lock:
            self.reads += 1
            self.read_bytes += len(data)
            self.read_s += time.perf_counter() - started
        return data


def inside(made: Made) -> dict[str, Any]:
    """Time the first and the second narrow prune of this process; call it in a fresh one."""
    store = CountingStore()
    warehouse = Warehouse(store, made.root, cache_bytes=256 << 20)
    found = []
    for number in range(2):
        request = PruneRequest(filter=sql(question("P1", number), spark_time), shape="columns")
        _, clock, cpu = timed(partial(warehouse.prune, made.pointer, request))
        found.append({"ms": round(clock * 1e3, 2), "cpu_ms": round(cpu * 1e3, 2)})
    reads = {"reads": store.reads, "read_mb": round(store.read_bytes / 1e6, 2), "read_ms": round(store.read_s * 1e3, 2)}
    maps = {"mapped": store.mapped, "mapped_mb": round(store.mapped_bytes / 1e6, 2)}
    return {"first": found[0], "second": found[1], **reads, **maps}


def in_new_process(made: Made) -> dict[str, Any]:
    """:func:`inside` in a new process, with the table's files out of the page cache."""
    forget(Path(made.folder))
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder:
        job = Path(folder) / "made.json"
        job.write_bytes(msgspec.json.encode(made))
        command = [sys.executable, "-m", "speed.cold", str(job)]
        answer = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = msgspec.json.decode(answer.stdout)
    return found


def over_http(made: Made) -> dict[str, Any]:
    """The first prune of a new service without any cache; then of one that finds its disk cache, if there is such."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        folder = Path(name)
        disk = {"cache_dir": str(folder / "cache")} if "cache_dir" in Settings.model_fields else {}
        forget(Path(made.folder))
        found["empty cache"] = _started(made, folder, disk)
        if disk:
            found["warm disk cache"] = _started(made, folder, disk)
    return found


def _started(made: Made, folder: Path, disk: dict[str, str]) -> dict[str, Any]:
    before = time.perf_counter()
    with Service(folder, settings(made, **disk)) as service:
        ready_s = time.perf_counter() - before
        load.run(service.port, [FLOOR] * 20, 1)
        first = load.run(service.port, [asking("P1", 0)], 1)
        warm = load.run(service.port, [asking("P1", number) for number in range(1, 101)], 1)
    return {"ready_s": round(ready_s, 2), "first_ms": first.p50_ms, "warm_ms": warm.p50_ms}


def main() -> None:
    """What :func:`inside` finds, as JSON."""
    made = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Made)
    sys.stdout.buffer.write(msgspec.json.encode(inside(made)))


if __name__ == "__main__":
    main()
