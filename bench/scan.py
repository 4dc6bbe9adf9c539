"""Reading rows: the Python reader and pyarrow's dataset on one file of 200 pages per column.

    .venv/bin/python bench/scan.py

Starts a service on a loopback port, writes and registers the file, and reads it both ways. Milliseconds are the median
of several runs, with the call to the service in them; bytes are those read from the file, of one run.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.storage import FsspecStore

ROWS = 400_000
PAGES = 200
RUNS = 7
START_S = 60.0

#: What is asked: name, filter, the same for pyarrow, columns.
QUERIES: tuple[tuple[str, str | None, Any, list[str] | None], ...] = (
    ("one row by the sort column", "id = 271828", pc.field("id") == 271828, None),
    (
        "1% by the sort column, 2 columns",
        "id BETWEEN 100000 AND 103999",
        (pc.field("id") >= 100000) & (pc.field("id") <= 103999),
        ["id", "price"],
    ),
    ("one row by a column in no order", "code = 'code-000000271828'", pc.field("code") == "code-000000271828", None),
    ("a tenth, in no order", "kind = 'kind-3'", pc.field("kind") == "kind-3", ["id", "price", "kind"]),
    ("everything", None, None, None),
)


class CountingStore(FsspecStore):
    """Counts the bytes read."""

    read_bytes = 0

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """As the store does."""
        data = super().read_range(location, start, length)
        self.read_bytes += len(data)
        return data


class CountingFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """fsspec's local files, counting the bytes read."""

    cachable = False
    read_bytes = 0

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        opened = super()._open(path, mode, block_size, **options)
        read, counted = opened.f.read, self

        class File:
            def __getattr__(self, name: str) -> Any:
                return getattr(opened, name)

            def read(self, size: int = -1) -> bytes:
                data: bytes = read(size)
                counted.read_bytes += len(data)
                return data

        return File()


def write_file(path: Path) -> None:
    """Sorted by id; the other columns in no order."""
    rng = np.random.default_rng(7)
    shuffled = rng.permutation(ROWS)
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "at": pa.array(np.arange(ROWS) * 1_000_000 + rng.integers(0, 999_999, ROWS)).cast(
                pa.timestamp("us", "UTC")
            ),
            "price": rng.random(ROWS),
            "code": [f"code-{number:012}" for number in shuffled],
            "kind": [f"kind-{number}" for number in rng.integers(0, 10, ROWS)],
            "note": [f"{a:x}{b:x}" for a, b in rng.integers(0, 2**60, (ROWS, 2))],
        }
    )
    pq.write_table(
        table,
        path,
        row_group_size=ROWS,
        max_rows_per_page=ROWS // PAGES,
        write_batch_size=ROWS // PAGES,
        write_page_index=True,
        use_dictionary=["kind"],
    )


@contextmanager
def served(folder: Path) -> Iterator[Table]:
    """The file as a table of a service."""
    path = folder / "data.parquet"
    write_file(path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = {"LAMELLA_WAREHOUSE": f"file://{folder}/warehouse", "LAMELLA_PORT": str(port)}
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lamella.service"], env={**os.environ, **settings}, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url)
        with Lamella(url) as lake:
            lake.create_namespace("bench")
            lake.create_table("bench.t", schema_from=f"file://{path}")
            table = lake.table("bench.t")
            table.register([str(path)])
            yield table
    finally:
        process.terminate()
        process.wait(60)


def wait_for(url: str) -> None:
    """Return when the service is ready."""
    until = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health/ready", timeout=5):  # noqa: S310  # our own URL
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def median_ms(run: Callable[[], Any]) -> float:
    """The median time of a run, the first one left out."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def read(table: Table, filter: str | None, columns: list[str] | None) -> pa.Table:
    """One scan, with its plan."""
    return table.scan(filter, columns).to_arrow()


def main() -> None:
    """Print one line a query."""
    with tempfile.TemporaryDirectory() as name, served(Path(name)) as table:
        folder = Path(name)
        path = folder / "data.parquet"
        size = path.stat().st_size
        print(f"{size / 1e6:.1f} MB, {ROWS:,} rows, 1 row group, {PAGES} pages per column")
        print(f"{'':34}{'rows':>8}   {'scan ms':>9}{'kB':>10}   {'pyarrow ms':>11}{'kB':>10}")
        for what, filter, expression, columns in QUERIES:
            store = CountingStore()
            found = table.scan(filter, columns, store=store).to_arrow()
            files = CountingFiles()
            handler = pafs.PyFileSystem(pafs.FSSpecHandler(files))
            other = ds.dataset(str(path), filesystem=handler).to_table(filter=expression, columns=columns)
            assert sorted(found.column("id").to_pylist()) == sorted(other.column("id").to_pylist())
            dataset = ds.dataset(str(path))
            mine = median_ms(partial(read, table, filter, columns))
            theirs = median_ms(partial(dataset.to_table, filter=expression, columns=columns))
            print(
                f"{what:34}{found.num_rows:>8,}   {mine:>9.1f}{store.read_bytes / 1e3:>10,.0f}"
                f"   {theirs:>11.1f}{files.read_bytes / 1e3:>10,.0f}"
            )


if __name__ == "__main__":
    main()
