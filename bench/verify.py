"""How fast a table is verified, and in how much memory: metadata alone, with its files, and down to the values.

``python bench/verify.py`` verifies synthetic tables of 5,000 and 20,000 blocks of 20 columns (no files), and 400 real
files of 10 columns and 2,000 rows. ``--blocks`` and ``--files`` take other sizes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from synthetic import SCHEMA, blocks

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Deep, Options, Verification
from lamella.snapshot.warehouse import Warehouse


def measured(root: str, pointer: SnapshotPointer, options: Options) -> dict[str, Any]:
    """Run one verification in a process of its own; returns its measurements."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return dict(pool.apply(_verify, (root, pointer, options)))


def _verify(root: str, pointer: SnapshotPointer, options: Options) -> dict[str, Any]:
    before = _peak_kb()
    started = time.perf_counter()
    answer = Verification(FsspecStore(), root, "t", pointer, options).run()
    took_s = time.perf_counter() - started
    after = _peak_kb()
    return {
        "blocks": answer.checked.blocks,
        "findings": sum(answer.counts.values()),
        "seconds": round(took_s, 2),
        "blocks_per_s": round(answer.checked.blocks / took_s),
        "blocks_read": answer.checked.blocks_read,
        "values": answer.checked.values,
        "filters": answer.checked.filters,
        "memory_grown_mb": round((after - before) / 1024, 1),
    }


def _peak_kb() -> int:
    """Return the peak memory of this process, in KiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def synthetic(folder: Path, count: int) -> tuple[str, SnapshotPointer]:
    """A table whose blocks have no files."""
    root = f"file://{folder}/{count}"
    warehouse = Warehouse(FsspecStore(), root)
    pointer = warehouse.create("t", SCHEMA, now_ms=1)
    refs = warehouse.prepare("t", SCHEMA, blocks(count))
    return root, warehouse.commit(pointer, added=refs, now_ms=2).pointer


def real(folder: Path, count: int) -> tuple[str, SnapshotPointer]:
    """A table of real files."""
    rng = np.random.default_rng(5)
    locations = []
    for index in range(count):
        numbers = {f"n{column}": rng.integers(0, 10**6, 2_000) for column in range(8)}
        table = pa.table({**numbers, "x": rng.random(2_000), "s": [f"key-{value}" for value in numbers["n0"]]})
        pq.write_table(table, folder / f"{index}.parquet", write_page_index=True)
        locations.append(f"file://{folder}/{index}.parquet")
    store = FsspecStore()
    schema = schema_of(read_footer(store, locations[0]))
    taken, _ = ingest(store, locations, schema)
    root = f"file://{folder}/warehouse"
    warehouse = Warehouse(store, root, segment_blocks=100, prepare_pages=True)
    pointer = warehouse.create("t", schema, now_ms=1)
    return root, warehouse.commit(pointer, added=warehouse.prepare("t", schema, taken), now_ms=2).pointer


def main() -> None:
    """Print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="*", default=[5_000, 20_000])
    parser.add_argument("--files", type=int, default=400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in given.blocks:
            found = measured(*synthetic(folder, count), Options(files=False))
            print(json.dumps({"what": "metadata", **found}), flush=True)
        root, pointer = real(folder, given.files)
        found = measured(root, pointer, Options(pages=True))
        print(json.dumps({"what": "files", **found}), flush=True)
        found = measured(root, pointer, Options(deep=Deep(blocks=100)))
        print(json.dumps({"what": "values of 100 blocks", **found}), flush=True)


if __name__ == "__main__":
    main()
