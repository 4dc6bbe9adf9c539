"""Memory: of the statistics of one column, and of a service while it answers with every block of a table."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from loopback import serving

from lamella.service.config.settings import Settings
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from lamella.snapshot.wire.prune import Shape
from speed import load
from speed.inside import CACHE_BYTES
from speed.over_http import asking, settings
from speed.tables import Made

#: A filter on an int64 column that every segment may match and hardly any block does, so that block statistics are
#: read.
_FILTER: Final = f"session_id < {2**40 // 200}"
#: The same on another column, so that code and segment summaries are loaded before.
_WARM_UP: Final = "event_time < TIMESTAMP '2020-01-02 00:00:00+00:00'"


def of_one_column(made: Made, cache_dir: str | None) -> dict[str, Any]:
    """Return the memory kept by a prune over one int64 column; call it in a fresh process."""
    options: dict[str, Any] = {"cache_bytes": CACHE_BYTES}
    if cache_dir is not None:
        from lamella.snapshot.cache import DiskCache  # other states of Lamella that are measured may have none

        options["disk_cache"] = DiskCache(cache_dir, CACHE_BYTES)
    warehouse = Warehouse(FsspecStore(), made.root, **options)
    # Names of blocks would be memory too, and are no statistics.
    shape: Any = "ranges" if "ranges" in get_args(Shape) else "columns"
    warehouse.prune(made.pointer, PruneRequest(filter=_WARM_UP, shape=shape))
    gc.collect()
    before = _memory()
    for _ in range(2):
        report = warehouse.prune(made.pointer, PruneRequest(filter=_FILTER, shape=shape)).report
    left = report.stages[-1].kept
    gc.collect()
    grown = {name: size - before[name] for name, size in _memory().items()}
    return {
        "blocks": made.count,
        "left": left,
        "bytes_per_block": round(sum(grown.values()) / made.count, 1),
        "own_bytes_per_block": round(grown["RssAnon"] / made.count, 1),
        "mapped_bytes_per_block": round((grown["RssFile"] + grown["RssShmem"]) / made.count, 1),
    }


def in_new_process(made: Made, cache_dir: Path | None) -> dict[str, Any]:
    """:func:`of_one_column` in a new process."""
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder:
        job = Path(folder) / "made.json"
        job.write_bytes(msgspec.json.encode(made))
        command = [sys.executable, "-m", "speed.memory", str(job), *([] if cache_dir is None else [str(cache_dir)])]
        answer = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = msgspec.json.decode(answer.stdout)
    return found


def of_columns(made: Made) -> dict[str, Any]:
    """Return one column's memory without a disk cache, and with a filled one, if this version has one."""
    found = {"without disk cache": in_new_process(made, None)}
    if "cache_dir" in Settings.model_fields:
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder:
            for _ in range(2):
                found["with disk cache"] = in_new_process(made, Path(folder) / "cache")
    return found


def of_large_answers(made: Made) -> dict[str, Any]:
    """How far a service's memory rises above idle while it answers with every block, by the shape of the answer.

    Idle is after one such answer: what stays of statistics and of mapped files is there already. ``own``: without the
    pages of mapped files, which the system takes back when it needs them.
    """
    found: dict[str, Any] = {"blocks": made.count}
    for shape in get_args(Shape):
        with serving(settings(made)) as service:
            load.run(service.port, [asking("P1", number, shape) for number in range(20)], 1)
            fresh = status(service.pid)
            load.run(service.port, [asking("P2", 0, shape)], 1)
            idle = status(service.pid)
            with Peak(service.pid) as peak:
                answer = load.run(service.port, [asking("P2", 1, shape)], 1)
        found[shape] = {
            "answer_mb": round(answer.answer_bytes / 1e6, 1),
            "ms": answer.p50_ms,
            "idle_mb": round(idle["VmRSS"] / 1e6, 1),
            "own_idle_mb": round(idle["RssAnon"] / 1e6, 1),
            "peak_above_idle_mb": round((peak.sizes["VmRSS"] - idle["VmRSS"]) / 1e6, 1),
            "own_peak_above_idle_mb": round((peak.sizes["RssAnon"] - idle["RssAnon"]) / 1e6, 1),
            "own_left_by_the_first_mb": round((idle["RssAnon"] - fresh["RssAnon"]) / 1e6, 1),
        }
    return found


class Peak:
    """Records the peak sizes of a process, polled every few milliseconds; a context manager."""

    def __init__(self, pid: int) -> None:
        self.sizes = status(pid)
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            now = status(self._pid)
            self.sizes = {name: max(size, now.get(name, 0)) for name, size in self.sizes.items()}


def _memory() -> dict[str, int]:
    sizes = status("self")
    return {name: sizes[name] for name in ("RssAnon", "RssFile", "RssShmem")}


def status(pid: int | str) -> dict[str, int]:
    """Sizes of a process in bytes (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = (line.split() for line in lines if line.endswith(" kB"))
    return {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in sizes}


def main() -> None:
    """What :func:`of_one_column` finds, as JSON."""
    made = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Made)
    found = of_one_column(made, sys.argv[2] if len(sys.argv) > 2 else None)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
