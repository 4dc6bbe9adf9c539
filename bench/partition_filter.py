"""A filter on a partition column over 100,000 files, beside the same filter on a column that the files hold, sorted.

Both tables have the same blocks and statistics. In one, the column comes from the folders (constants of the blocks); in
the other, from the files. No data file is read, so there is none. Prunes of both alternate in one process, each for
another value; ratios are of processor time.

    python bench/partition_filter.py [--files 100000] [--partitions 1000] [--asks 200] [--out build/result.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from point_query import CountingStore

from lamella.snapshot.manifest import Block, ColumnMeta, SnapshotPointer
from lamella.snapshot.parquet.block import with_constants
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import Bound, ColumnStats, to_bound
from lamella.snapshot.stats.column import absent
from lamella.snapshot.stats.constant import to_constant
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

SCHEMA: Final = Schema.assign([Column(name="id", type="int64"), Column(name="p", type="int32")])
_ROWS: Final = 1_000
_SEGMENT_FILES: Final = 1_000


def blocks(files: int, partitions: int, *, constant: bool) -> Iterator[list[Block]]:
    """The blocks of each partition, in order."""
    each = files // partitions
    key, value = SCHEMA.leaf("id"), SCHEMA.leaf("p")
    for partition in range(partitions):
        found = []
        for number in range(partition * each, (partition + 1) * each):
            ids = (to_bound(key.dtype, number * _ROWS), to_bound(key.dtype, (number + 1) * _ROWS - 1))
            stats = {key.id: _exact(*ids), value.id: absent(value, _ROWS)}
            metas: dict[int, tuple[ColumnMeta, ...]] = {key.id: (ColumnMeta(4, 4_000, _ROWS),)}
            if not constant:
                bound = to_bound(value.dtype, partition)
                stats[value.id] = _exact(bound, bound)
                metas[value.id] = (ColumnMeta(4_004, 100, _ROWS),)
            block = Block(
                location=f"file:///data/p={partition}/{number:07}.parquet",
                row_count=_ROWS,
                file_size=5_000,
                block_size=8_000,
                col_stats=stats,
                col_metas=metas,
                row_group_row_counts=(_ROWS,),
                footer_sha256=f"{number:064x}",
            )
            if constant:
                block = with_constants(block, {value.id: to_constant(value.dtype, partition)}, SCHEMA)
            found.append(block)
        yield found


def _exact(low: Bound, high: Bound) -> ColumnStats:
    return ColumnStats(min=low, max=high, null_count=0, min_exact=True, max_exact=True, nan="none")


def build(folder: Path, files: int, partitions: int, *, constant: bool, by_partition: bool) -> SnapshotPointer:
    """Write the table; ``by_partition``: each partition was committed by itself, so segments have one partition."""
    warehouse = Warehouse(FsspecStore(), f"file://{folder}")
    pointer = warehouse.create("t", SCHEMA, now_ms=1)
    parts = list(blocks(files, partitions, constant=constant))
    if not by_partition:
        parts = [[block for part in parts for block in part]]
    refs = [ref for part in parts for ref in warehouse.prepare("t", SCHEMA, part)]
    return warehouse.commit(pointer, added=refs, now_ms=2).pointer


class Table:
    """One table, asked in this process."""

    def __init__(self, folder: Path, pointer: SnapshotPointer) -> None:
        store: Any = CountingStore()
        self.store = store
        self._warehouse = Warehouse(store, f"file://{folder}")
        self._pointer = pointer

    def ask(self, partition: int) -> tuple[float, Any]:
        """Prune; returns processor milliseconds and the answer."""
        request = PruneRequest(filter=f"p = {partition}", shape="columns", reader_features=("constants",))
        began = time.process_time()
        answer = self._warehouse.prune(self._pointer, request)
        return (time.process_time() - began) * 1e3, answer


def measure(folder: Path, files: int, partitions: int, asks: int, *, by_partition: bool) -> dict[str, Any]:
    """Both tables, in turn."""
    made = {}
    for name in ("constant", "sorted"):
        location = folder / f"{name}-{by_partition}"
        pointer = build(location, files, partitions, constant=name == "constant", by_partition=by_partition)
        made[name] = (location, pointer)
    found: dict[str, Any] = {}
    cold: dict[str, list[float]] = {name: [] for name in made}
    for number in range(7):
        for name, (location, pointer) in made.items():
            table = Table(location, pointer)
            ms, answer = table.ask(number * 31 % partitions)
            cold[name].append(ms)
            found[name] = _counts(answer, files // partitions) | {"objects": len(table.store.objects)}
    tables = {name: Table(*each) for name, each in made.items()}
    warm: dict[str, list[float]] = {name: [] for name in made}
    for number in range(asks):
        for name, table in tables.items():
            ms, answer = table.ask(number * 7 % partitions)
            _counts(answer, files // partitions)
            if number >= 5:
                warm[name].append(ms)
    for name in made:
        found[name] |= {"cold_ms": _median(cold[name]), "warm_ms": _median(warm[name])}
    for kind in ("cold_ms", "warm_ms"):
        found[f"{kind[:4]}, constant / sorted"] = round(found["constant"][kind] / found["sorted"][kind], 2)
    return found


def _counts(answer: Any, wanted: int) -> dict[str, Any]:
    """What the answer kept; it must be the partition's files, all of whose rows match."""
    columns = answer.block_columns
    assert len(columns.location) == wanted
    assert set(columns.verdict) == {"ALL"}
    stages = {stage.stage: (stage.considered, stage.kept) for stage in answer.report.stages}
    return {"blocks": len(columns.location), "stages": stages}


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1_000, help="if files do not arrive by partition")
    parser.add_argument("--asks", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = {}
    # The files of a segment, so that a commit of one partition is a segment of one partition.
    for by_partition, partitions in ((True, given.files // _SEGMENT_FILES), (False, given.partitions)):
        with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
            key = "a commit per partition" if by_partition else "one commit"
            found[key] = measure(Path(name), given.files, partitions, given.asks, by_partition=by_partition)
    for arrival, of_tables in found.items():
        print(arrival)
        for name, figures in of_tables.items():
            print(f"  {name}: {json.dumps(figures)}")
    if given.out:
        given.out.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
