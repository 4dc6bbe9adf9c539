"""Time pruning (in process and over HTTP, beside what the same answer costs without companions) and appends.

``make bench`` prints ratios of one run (machines are noisy: trust those, not the milliseconds) and writes
``build/bench.json``. ``ARGS="--blocks 100000"`` makes it larger, ``ARGS="--peer-appends 300"`` sets pyiceberg and
delta-rs beside the appends; see ``appends.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import appends
import commit_growth
from synthetic import SCHEMA, filters
from through_http import Served

from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.stats import from_bound
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest


def median_ms(call: Callable[[], object], *, at_least: int = 5, seconds: float = 0.5) -> float:
    """Median milliseconds of one call, after a warm-up."""
    call()
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while len(taken) < at_least or time.perf_counter() < until:
        started = time.perf_counter()
        call()
        taken.append((time.perf_counter() - started) * 1e3)
    return statistics.median(taken)


def from_json(warehouse: Warehouse, pointer: SnapshotPointer, low: int, high: int) -> int:
    """The narrow range answered the plain way: decode every segment's JSON, compare block by block."""
    kept = 0
    leaf = SCHEMA.leaf("event_time")
    for ref in warehouse.segments(pointer):
        for block in warehouse.segment(ref).blocks:
            stats = block.col_stats[leaf.id]
            if stats.min is None or stats.max is None:
                kept += 1
                continue
            first, last = from_bound(leaf.dtype, stats.min), from_bound(leaf.dtype, stats.max)
            kept += bool(int(first) < high and int(last) >= low)
    return kept


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--appends", type=int, default=1_000, help="by 64 clients; 0: none")
    parser.add_argument("--peer-appends", type=int, default=0, help="pyiceberg and delta-rs beside (group `bench`)")
    options = parser.parse_args()
    results: dict[str, Any] = {"blocks": options.blocks, "columns": len(SCHEMA.leaves()), "prune_ms": {}}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as folder:
        started = time.perf_counter()
        with Served(Path(folder), options.blocks) as served:
            warehouse, pointer = served.warehouse, served.pointer
            results["write_metadata_s"] = round(time.perf_counter() - started, 2)
            print(
                f"{options.blocks:,} blocks x {results['columns']} columns, written in {results['write_metadata_s']} s"
            )
            print(f"{'filter':<26}{'kept':>9}{'in process':>14}{'over HTTP':>14}")
            floor = median_ms(served.floor)
            for name, text in filters(options.blocks).items():
                request = PruneRequest(filter=text, shape="columns")
                answer = warehouse.prune(pointer, request)
                kept = len(answer.block_columns.location) if answer.block_columns is not None else 0
                inside = median_ms(lambda request=request: warehouse.prune(pointer, request))
                outside = median_ms(lambda text=text: served.prune(text))
                results["prune_ms"][name] = {"kept": kept, "in_process": inside, "http": outside, "filter": text}
                print(f"{name:<26}{kept:>9,}{inside:>11.2f} ms{outside:>11.2f} ms")
            narrow = results["prune_ms"]["narrow range"]
            low, high = options.blocks // 2 * 1_000, (options.blocks // 2 + 5) * 1_000
            results["http_floor_ms"] = floor
            results["json_scan_ms"] = median_ms(
                lambda: from_json(warehouse, pointer, low, high), at_least=1, seconds=0.0
            )
            results["narrow_range_vs_json_scan"] = results["json_scan_ms"] / narrow["in_process"]
            results["narrow_range_http_vs_floor"] = narrow["http"] / floor
    print(
        f"an empty route of the same server: {floor:.2f} ms, the narrow range {narrow['http'] / floor:.1f} times that"
    )
    ratio = f"{results['narrow_range_vs_json_scan']:,.0f} times the companion's time"
    print(f"the narrow range by decoding JSON: {results['json_scan_ms']:.0f} ms, {ratio}")
    if options.appends:
        results["appends"] = appends.run(options.appends, options.peer_appends)
    print("a one-block append:")
    results["append"] = commit_growth.measure((1_000, 100_000), 70)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
