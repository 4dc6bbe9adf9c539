"""The cost of a one-block append as the table grows: time, bytes and objects written.

``python bench/commit_growth.py`` appends to tables of 1,000 to 1,000,000 blocks of 20 columns on local disk and prints
the medians (of the clock, and of the processor's time, which a busy machine disturbs less), the mean bytes and
objects, and how many times those of the smallest table they are. ``--blocks`` takes
other sizes. The growing part of a table is made by copying one prepared segment under new names; nothing here reads
the JSON of those copies, so they share one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from synthetic import SCHEMA, blocks

from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, ObjectRef, SegmentRef, SnapshotPointer, content_hash
from lamella.snapshot.storage import FsspecStore, ObjectStat, TableLayout
from lamella.snapshot.warehouse import Warehouse

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SEGMENT = 1_000
_GROWTH = {"p50_ms": "time", "cpu_p50_ms": "cpu", "bytes": "bytes"}
_FOLDER = "s3://bucket/table/"


class CountingStore(FsspecStore):
    """A store that counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written_bytes = 0
        self.written_objects = 0

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Store a new object."""
        self.written_bytes += len(data)
        self.written_objects += 1
        return super().put(location, data)


def copies(store: FsspecStore, layout: TableLayout, ref: SegmentRef, count: int) -> Iterator[SegmentRef]:
    """``count`` segments like ``ref`` whose blocks are in folders of their own."""
    with pa.ipc.open_file(pa.BufferReader(store.read(ref.sidecar.location))) as reader:
        batch = reader.get_batch(0)
    column = batch.schema.get_field_index("location")
    ids = Ids()
    for number in range(count):
        segment_id = str(ids.new())
        locations = pc.replace_substring(batch.column(column), _FOLDER, f"s3://bucket/{number:07d}/")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch.set_column(column, batch.schema.field(column), locations))
        data = bytes(sink.getvalue())
        location = layout.segment_sidecar(segment_id)
        store.put(location, data)
        sidecar = ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data))
        yield msgspec.structs.replace(
            ref,
            segment_id=segment_id,
            sidecar=sidecar,
            first_location=locations[0].as_py(),
            last_location=locations[-1].as_py(),
        )


def grown(warehouse: Warehouse, store: FsspecStore, table_id: str, count: int) -> SnapshotPointer:
    """A table of ``count`` blocks."""
    pointer = warehouse.create(table_id, SCHEMA, now_ms=1)
    if count < SEGMENT:
        refs = warehouse.prepare(table_id, SCHEMA, blocks(count))
        return warehouse.commit(pointer, added=refs, now_ms=2).pointer
    (ref,) = warehouse.prepare(table_id, SCHEMA, blocks(SEGMENT))
    copied = list(copies(store, TableLayout(warehouse.table_location(table_id)), ref, count // SEGMENT))
    for start in range(0, len(copied), 256):
        pointer = warehouse.commit(pointer, added=copied[start : start + 256], now_ms=2).pointer
    return pointer


def appends(warehouse: Warehouse, store: CountingStore, pointer: SnapshotPointer, count: int) -> dict[str, Any]:
    """Append one block ``count`` times; medians in milliseconds, means of bytes and objects."""
    table_id = warehouse.head(pointer).table_id
    (like,) = blocks(1)
    taken: list[float] = []
    cpu: list[float] = []
    before = (store.written_bytes, store.written_objects)
    for number in range(-1, count):
        block: Block = msgspec.structs.replace(like, location=f"s3://bucket/more/{number + 1:07d}.parquet")
        if number == 0:  # the first one warms up
            before = (store.written_bytes, store.written_objects)
        started, cpu_started = time.perf_counter(), time.process_time()
        refs = warehouse.prepare(table_id, SCHEMA, [block])
        pointer = warehouse.commit(pointer, added=refs, now_ms=3).pointer
        taken.append((time.perf_counter() - started) * 1e3)
        cpu.append((time.process_time() - cpu_started) * 1e3)
    return {
        "first_ms": taken[0],
        "p50_ms": statistics.median(taken[1:]),
        "cpu_p50_ms": statistics.median(cpu[1:]),
        "p90_ms": statistics.quantiles(taken[1:], n=10)[-1],
        "bytes": (store.written_bytes - before[0]) / count,
        "objects": (store.written_objects - before[1]) / count,
        "segments": warehouse.snapshot(pointer).segment_count,
    }


def measure(sizes: Iterable[int], count: int) -> dict[str, Any]:
    """Return figures by the size of the table, and their ratio to the first; printed as they arrive."""
    results: dict[str, Any] = {}
    names = ("p50", "cpu", "p90", "first")
    print(f"{'blocks':>11}{''.join(f'{name:>11}' for name in names)}{'bytes':>12}{'objects':>9}{'segments':>10}")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="lamella-growth-") as folder:
            store = CountingStore()
            pointer = grown(Warehouse(store, f"file://{folder}"), store, "growth", size)
            found = results[str(size)] = appends(Warehouse(store, f"file://{folder}"), store, pointer, count)
        smallest = next(iter(results.values()))
        for key in _GROWTH:
            found[f"{key}_ratio"] = found[key] / smallest[key]
        times = "".join(f"{found[key]:>8.1f} ms" for key in ("p50_ms", "cpu_p50_ms", "p90_ms", "first_ms"))
        growth = (f"{found[f'{key}_ratio']:.2f} x {name}" for key, name in _GROWTH.items())
        written = f"{found['bytes']:>12,.0f}{found['objects']:>9.1f}{found['segments']:>10,}"
        print(f"{size:>11,}{times}{written}   {', '.join(growth)}", flush=True)
    return results


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--appends", type=int, default=130)
    parser.add_argument("--out", type=Path, default=Path("build/commit_growth.json"))
    options = parser.parse_args()
    results = measure(options.blocks, options.appends)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
