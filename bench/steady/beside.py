"""What a service does beside narrow prunes: commits, uploads, the console, and clean-up; a process of its own.

``python -m steady.beside PORT SECONDS KIND...`` works until the time is over, and prints how often it did each.

=========== ==========================================================================================
commits     appends of one block to the pruned table, ten a second, and to another table without pause
uploads     commits of 2,000 blocks with statistics of five columns (1 MB of JSON), without pause
console     pages of the console about the pruned table and the service, without pause
clean-up    vacuum of the other table, without pause
=========== ==========================================================================================
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import url2pathname

from lamella.client import Lamella
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Column

KINDS: Final = ("commits", "uploads", "console", "clean-up")
PRUNED: Final = "bench.t"
_OTHER: Final = "beside"
_TABLES: Final = ("commits", "uploads")
_COLUMNS: Final = tuple(Column(name=f"c{number}", type="bigint") for number in range(5))
_UPLOADED: Final = 2_000
_PAUSE_S: Final = 0.1
_NARROW: Final = "event_time >= TIMESTAMP '2021-03-01 00:00:00' AND event_time < TIMESTAMP '2021-03-02 00:00:00'"
_PAGES: Final = (
    "/ui",
    "/ui/tables/bench/t",
    "/ui/tables/bench/t/columns",
    "/ui/tables/bench/t/history",
    f"/ui/tables/bench/t/lab?filter={urllib.parse.quote(_NARROW)}",
    "/ui/service",
)


class Beside:
    """The work of one run; ``done`` counts it by kind, and what failed. The other tables are made at first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lake = Lamella(f"http://127.0.0.1:{port}")
        self.done: Counter[str] = Counter()
        self._lock = threading.Lock()
        if _OTHER not in [each.name for each in self._lake.namespaces()]:
            self._lake.create_namespace(_OTHER)
            for name in _TABLES:
                self._lake.create_table(f"{_OTHER}.{name}", schema=_COLUMNS)
        self._locations = {
            name: self._lake.table(name).info().location + "/_b"
            for name in (PRUNED, *(f"{_OTHER}.{name}" for name in _TABLES))
        }
        self._folders = {
            name: Path(url2pathname(urllib.parse.urlsplit(location).path)) for name, location in self._locations.items()
        }
        for folder in self._folders.values():
            folder.mkdir(parents=True, exist_ok=True)

    def run(self, kinds: Sequence[str], seconds: float) -> None:
        """Do all kinds at once, each in a thread, until the time is over."""
        steps: dict[str, list[Iterator[float]]] = {
            "commits": [self._appends(PRUNED, _PAUSE_S), self._appends(f"{_OTHER}.commits", 0.0)],
            "uploads": [self._uploads(f"{_OTHER}.uploads")],
            "console": [self._pages()],
            "clean-up": [self._vacuums(f"{_OTHER}.commits")],
        }
        until_s = time.monotonic() + seconds
        work = [(kind, each, until_s) for kind in kinds for each in steps[kind]]
        threads = [threading.Thread(target=self._repeat, args=each) for each in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._lake.close()

    def _repeat(self, kind: str, steps: Iterator[float], until_s: float) -> None:
        while time.monotonic() < until_s:
            try:
                pause_s = next(steps)
            except (LamellaError, OSError, RuntimeError) as error:
                with self._lock:
                    self.done[f"{kind}: {type(error).__name__} {error}"[:200]] += 1
                return
            with self._lock:
                self.done[kind] += 1
            time.sleep(pause_s)

    def _blocks(self, table: str, count: int) -> list[dict[str, Any]]:
        """Descriptions of new blocks, whose files are there."""
        stamp = time.time_ns()
        columns = range(1, len(_COLUMNS) + 1) if table != PRUNED else ()
        found = []
        for number in range(count):
            name = f"{stamp}-{number}.parquet"
            (self._folders[table] / name).touch()
            bounds = {"min": {"Int64": number}, "max": {"Int64": number + 1_000}, "null_count": 0}
            found.append(
                {
                    "location": f"{self._locations[table]}/{name}",
                    "row_count": 1_000,
                    "file_size": 1,
                    "col_stats": {str(column_id): bounds for column_id in columns},
                }
            )
        return found

    def _appends(self, table: str, pause_s: float) -> Iterator[float]:
        while True:
            self._lake.table(table).commit(added=self._blocks(table, 1))
            yield pause_s

    def _uploads(self, table: str) -> Iterator[float]:
        while True:
            self._lake.table(table).commit(added=self._blocks(table, _UPLOADED))
            yield 0.0

    def _pages(self) -> Iterator[float]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        while True:
            for page in _PAGES:
                connection.request("GET", page)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{page}: {answer.status}")
                yield 0.0

    def _vacuums(self, table: str) -> Iterator[float]:
        while True:
            self._lake.table(table).vacuum(execute=True, older_than="1s")
            yield 0.0


@contextmanager
def cleaned(folder: Path) -> Iterator[None]:
    """Remove the files below a folder that were not there before."""
    before = set(folder.rglob("*"))
    try:
        yield
    finally:
        for path in sorted(set(folder.rglob("*")) - before, reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def main(arguments: list[str]) -> None:
    """Run and print."""
    port, seconds, *kinds = arguments
    work = Beside(int(port))
    work.run(kinds, float(seconds))
    print(json.dumps(work.done))


if __name__ == "__main__":
    main(sys.argv[1:])
