"""The cost and benefit of statistics: measuring and sketching a block, verifying a file, aggregates from metadata.

python bench/column_statistics.py [--rows 1000000] [--blocks 40000]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lamella.client.rewrite.block_writer import sketches_of, write_block
from lamella.client.rewrite.target import arrow_schema
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.sketch import estimate
from lamella.snapshot.sketch.sketcher import Sketcher
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.stats.measure import measure
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import AggregateRequest

SCHEMA = Schema.assign(
    [
        Column(name="id", type="int64"),
        Column(name="kind", type="int32"),
        Column(name="x", type="float64"),
        Column(name="day", type="date"),
        Column(name="price", type="decimal(12,2)"),
        Column(name="user", type="string"),
        Column(name="class", type="string"),
        Column(name="at", type="timestamp(us)"),
    ]
)


def rows(count: int) -> pa.Table:
    """Columns from three to ``count`` different values."""
    rng = np.random.default_rng(0)
    cents = pa.array([f"{n / 100:.2f}" for n in rng.integers(0, 10**6, count)]).cast(pa.decimal128(12, 2))
    return pa.table(
        [
            pa.array(np.arange(count)),
            pa.array(rng.integers(0, 100, count), pa.int32()),
            pa.array(rng.random(count)),
            pa.array(rng.integers(0, 3000, count), pa.int32()).cast(pa.date32()),
            cents,
            pa.array([f"user-{n}" for n in range(count)]),
            pa.array(np.array(["a", "b", "c"])[rng.integers(0, 3, count)]),
            pa.array(np.arange(count)).cast(pa.timestamp("us", "UTC")),
        ],
        schema=arrow_schema(SCHEMA),
    )


def timed(name: str, work: Callable[[], Any], repeats: int = 3) -> Any:
    """Run, print the median in milliseconds, give back the last result."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        taken.append((time.perf_counter() - started) * 1e3)
    print(f"{name:58} {statistics.median(taken):10.1f} ms")
    return result


def blocks_of_a_day(count: int) -> list[Block]:
    """Blocks in the order of ``id``, 1,000 of one ``day`` each."""
    made = []
    for index in range(count):
        low, high = index * 1000, index * 1000 + 999
        id_type, day_type = SCHEMA.leaf("id").dtype, SCHEMA.leaf("day").dtype
        stats = {
            1: ColumnStats(
                min=to_bound(id_type, low), max=to_bound(id_type, high), null_count=0, min_exact=True, max_exact=True
            ),
            4: ColumnStats(
                min=to_bound(day_type, index // 1000),
                max=to_bound(day_type, index // 1000),
                null_count=0,
                min_exact=True,
                max_exact=True,
            ),
        }
        made.append(Block(location=f"memory://b/{index}", row_count=1000, file_size=1, col_stats=stats))
    return made


def sketch_errors() -> None:
    """Measure the error of estimates and the size of sketches."""
    for count in (100, 10_000, 1_000_000):
        errors, size = [], 0
        for seed in range(20):
            sketcher = Sketcher(SCHEMA.leaf("id").dtype)
            sketcher.add(pa.array(np.arange(count) + seed * 10**9))
            sketch = sketcher.sketch()
            assert sketch is not None
            errors.append((estimate(sketch) / count - 1) ** 2)
            size = max(size, len(sketch.data))
        print(f"{count:>9,} distinct: error {100 * statistics.mean(errors) ** 0.5:.2f} % (rms of 20), {size} bytes")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--blocks", type=int, default=40_000)
    given = parser.parse_args()
    table = rows(given.rows)
    print(f"one block of {given.rows:,} rows x {len(SCHEMA.columns)} columns")
    timed("measure bounds, nulls, NaN", lambda: measure(table, SCHEMA, distinct=False))
    timed("the same, and count distinct values exactly", lambda: measure(table, SCHEMA))
    timed("sketch", lambda: sketches_of(table, SCHEMA))
    with tempfile.TemporaryDirectory() as folder:
        store, layout = FsspecStore(), TableLayout(f"file://{folder}")
        block = timed("write a block with all of it", lambda: write_block(store, layout, Ids(), table, SCHEMA), 1)
        print(f"  {block.file_size:,} bytes, sketches {sum(len(s.data) for s in block.sketches.values()):,} bytes")
        timed("register it by its footer", lambda: ingest(store, [block.location], SCHEMA, workers=1))
        timed("register it with verify", lambda: ingest(store, [block.location], SCHEMA, workers=1, verify=True))
    sketch_errors()
    warehouse = Warehouse(FsspecStore(), "memory://bench-statistics")
    empty = warehouse.create("t", SCHEMA, now_ms=1)
    leaves = warehouse.prepare("t", SCHEMA, blocks_of_a_day(given.blocks))
    pointer = warehouse.commit(empty, added=leaves, now_ms=2).pointer
    print(f"aggregates over {given.blocks:,} blocks in {len(leaves)} segments, everything in memory")
    middle = given.blocks * 500
    for name, request in (
        ("count(*), min(id), max(id)", AggregateRequest(aggregates=("count(*)", "min(id)", "max(id)"))),
        (
            "count(*), max(id) where id >= the middle",
            AggregateRequest(aggregates=("count(*)", "max(id)"), filter=f"id >= {middle + 5}"),
        ),
        (
            "max(id) where user = 'x' and id < the middle",
            AggregateRequest(aggregates=("max(id)",), filter=f"user = 'x' AND id < {middle + 5}"),
        ),
        ("count(*) by day", AggregateRequest(aggregates=("count(*)",), group_by=("day",))),
        (
            "the same, where id > 5",
            AggregateRequest(aggregates=("count(*)",), group_by=("day",), filter="id > 5"),
        ),
        (
            "count(*) where user = 'x', bounded",
            AggregateRequest(aggregates=("count(*)",), filter="user = 'x'", mode="bounded"),
        ),
    ):
        answer = timed(name, partial(warehouse.aggregate, pointer, request), 5)
        print(f"  {len(answer.groups)} groups, {len(answer.scan):,} blocks to scan")


if __name__ == "__main__":
    main()
