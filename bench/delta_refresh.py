"""Refreshing a Delta table of 100,000 files of which 1 % changed, beside opening it with delta-rs.

The table has one partition value for every thousand files, and a checkpoint before the change. Both read the same log;
the service then also compares it with the table, reads the footers of the new files, and commits. Bytes are those that
the process read (``rchar`` of ``/proc``).

    python bench/delta_refresh.py [--files 100000] [--out build/delta_refresh.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from loopback import Service

from lamella.client import Lamella

_FOLDER_FILES: Final = 1_000
_ROWS: Final = 10


class Source:
    """A Delta table with a folder for every thousand files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        (folder / "_delta_log").mkdir(parents=True)
        fields: list[dict[str, Any]] = [
            {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "p")
        ]
        self._commit(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": "3c5e7f0a-0000-4000-8000-000000000002",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": fields}),
                    "partitionColumns": ["p"],
                    "configuration": {},
                    "createdTime": 0,
                }
            },
        )

    def change(self, added: list[int], removed: list[int]) -> None:
        """Commit files by their numbers."""
        self._commit(*(self._add(number) for number in added), *(self._remove(number) for number in removed))

    def checkpoint(self) -> None:
        """Write the log's own summary."""
        DeltaTable(self.folder).create_checkpoint()

    def _add(self, number: int) -> dict[str, Any]:
        path = self.folder / self._path(number)
        if not path.parent.exists():
            path.parent.mkdir()
        pq.write_table(pa.table({"a": range(number * _ROWS, (number + 1) * _ROWS)}), path)
        return {
            "add": {
                "path": self._path(number),
                "partitionValues": {"p": str(number // _FOLDER_FILES)},
                "size": path.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        }

    def _remove(self, number: int) -> dict[str, Any]:
        return {"remove": {"path": self._path(number), "deletionTimestamp": 1, "dataChange": True}}

    def _path(self, number: int) -> str:
        return f"p={number // _FOLDER_FILES}/{number:07}.parquet"

    def _commit(self, *actions: dict[str, Any]) -> None:
        log = self.folder / "_delta_log" / f"{self._version:020}.json"
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        self._version += 1


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 2)


def _read_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def _open(folder: Path) -> None:
    assert DeltaTable(folder).get_add_actions().num_rows


def measure(folder: Path, files: int) -> dict[str, Any]:
    """Make the table, follow it, change it, and measure."""
    source = Source(folder / "delta")
    step = 20_000
    for start in range(0, files, step):
        source.change(list(range(start, min(start + step, files))), [])
    source.checkpoint()
    changed = files // 100
    settings = {"warehouse": f"file://{folder}/warehouse"}
    with Service(folder, settings) as service, Lamella(f"http://127.0.0.1:{service.port}", timeout_s=1_200) as lake:
        lake.create_namespace("bench")
        lake.create_external("bench.t", {"kind": "delta", "location": str(source.folder)})
        table = lake.table("bench.t")
        first_s = _timed(table.refresh)
        source.change(list(range(files, files + changed)), list(range(0, files, 100)))
        figures: dict[str, Any] = {"files": files, "changed": changed, "first_refresh_s": first_s}
        figures["open_s"] = [_timed(lambda: _open(source.folder)) for _ in range(3)]
        before = _read_bytes(service.pid)
        figures["refresh_s"] = _timed(table.refresh)
        figures["refresh_read_mib"] = round((_read_bytes(service.pid) - before) / (1 << 20), 1)
        before = _read_bytes(service.pid)
        figures["unchanged_refresh_s"] = [_timed(table.refresh) for _ in range(3)]
        figures["unchanged_read_mib"] = round((_read_bytes(service.pid) - before) / 3 / (1 << 20), 1)
        assert table.info().block_count == files
    log = source.folder / "_delta_log"
    figures["log_mib"] = round(sum(path.stat().st_size for path in log.iterdir()) / (1 << 20), 1)
    figures["refresh / open"] = round(figures["refresh_s"] / sorted(figures["open_s"])[1], 1)
    return figures


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        found = measure(Path(name), given.files)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
