"""The time and bytes of an Iceberg export: first, after an append, without changes, and read by pyiceberg.

``python bench/iceberg_export.py`` exports tables of 10,000 and 100,000 blocks of 20 columns with exact bounds on local
disk; there are no Parquet files, so the look into the footers of registered files is switched off. The last column is
pyiceberg's: how long it takes to plan one column's range over the export. ``--blocks`` takes other sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyiceberg.table import StaticTable
from synthetic import SCHEMA, Model, blocks_of

from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportOptions, ExportResult, export_iceberg
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import LeaseInfo, SnapshotInfo

TABLE = "01960000-0000-7000-8000-000000000000"


class OneTable:
    """The part of a client that an export uses, on a warehouse without a service."""

    def __init__(self, warehouse: Warehouse, pointer: SnapshotPointer) -> None:
        self._warehouse = warehouse
        self._pointers = [pointer]

    def add(self, pointer: SnapshotPointer) -> None:
        """Commit."""
        self._pointers.append(pointer)

    def table(self, _name: str) -> OneTable:
        """Return the only table."""
        return self

    def info(self) -> Any:
        """Return its folder and current snapshot."""
        location = self._warehouse.table_location(self.snapshot("").table_id)
        return SimpleNamespace(location=location, snapshot_id=self._pointers[-1].snapshot_id)

    def snapshot(self, _snapshot_id: str) -> Snapshot:
        """Return the current snapshot."""
        return self._warehouse.snapshot(self._pointers[-1])

    def snapshots(self, **_: Any) -> Iterator[SnapshotInfo]:
        """Yield the history, newest first."""
        for number, pointer in reversed([*enumerate(self._pointers, 1)]):
            yield SnapshotInfo(
                snapshot_id=pointer.snapshot_id,
                prev_snapshot_id=None,
                timestamp_ms=pointer.timestamp_ms,
                operation="append",
                row_count=0,
                block_count=0,
                segment_count=0,
                file_size_bytes=0,
                number=number,
            )

    def lease(self, owner: str, *, ttl_s: int, snapshot_id: str | None) -> LeaseInfo:
        """Do nothing: nothing expires here."""
        return LeaseInfo(lease_id="x", snapshot_id=str(snapshot_id), owner=owner, created_at_ms=0, expires_at_ms=ttl_s)

    def renew_lease(self, lease_id: str, *, ttl_s: int) -> LeaseInfo:
        """The same."""
        return self.lease(lease_id, ttl_s=ttl_s, snapshot_id=None)

    def release_lease(self, _lease_id: str) -> None:
        """The same."""


def exported(lake: OneTable) -> tuple[ExportResult, float]:
    """One export, and its seconds."""
    started = time.perf_counter()
    options = ExportOptions(no_hold=True, trust_files=True)
    done = export_iceberg(cast("Lamella", lake), "bench.t", FsspecStore(), options)
    return done, time.perf_counter() - started


def planned(done: ExportResult) -> tuple[int, float]:
    """Files that pyiceberg plans for a day's range, and its seconds."""
    started = time.perf_counter()
    found = StaticTable.from_metadata(done.metadata_location)
    files = list(found.scan("event_date >= '2021-06-01' and event_date < '2021-06-02'").plan_files())
    return len(files), time.perf_counter() - started


def measure(count: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The figures of one size."""
    warehouse = Warehouse(FsspecStore(), f"file://{folder}")
    made = list(blocks_of(Model(count + 1), 0, count + 1, SCHEMA, exact=True))
    pointer = warehouse.create(TABLE, SCHEMA, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare(TABLE, SCHEMA, made[:-1]), now_ms=2).pointer
    lake = OneTable(warehouse, pointer)
    for what in ("first", "again", "one block more"):
        if what == "one block more":
            refs = warehouse.prepare(TABLE, SCHEMA, made[-1:])
            lake.add(warehouse.commit(pointer, added=refs, now_ms=3).pointer)
        done, took_s = exported(lake)
        yield {
            "blocks": done.files,
            "what": what,
            "seconds": round(took_s, 3),
            "bytes": done.size_bytes,
            "manifests_written": done.manifests_written,
            "manifests_reused": done.manifests_reused,
        }
    files, took_s = planned(done)
    yield {"blocks": done.files, "what": "plan by pyiceberg", "seconds": round(took_s, 3), "files": files}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--out", type=Path, default=Path("build/iceberg_export.json"))
    options = parser.parse_args()
    results = []
    for count in options.blocks:
        with tempfile.TemporaryDirectory(prefix="lamella-export-") as folder:
            for found in measure(count, Path(folder)):
                results.append(found)
                print(json.dumps(found), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
