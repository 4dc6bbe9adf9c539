"""The cost of measuring a table's health, beside that of a one-block commit, as the table grows.

``python bench/table_health.py`` makes tables of 1,000 to 1,000,000 blocks of 20 columns on local disk (as
``commit_growth.py`` does) and prints milliseconds of processor time: of the first measurement of the average depth in a
process, of one after a commit (the average of several), of the difference of two neighbours in the history, and of the
commit itself. ``--blocks`` takes other sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from commit_growth import CountingStore, grown
from synthetic import SCHEMA, blocks

from lamella.snapshot.warehouse import Warehouse

SIZES = (1_000, 100_000, 1_000_000)
_TABLE = "growth"


def cpu_ms(work: Callable[[], object]) -> float:
    """Milliseconds of processor time."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


def measure(size: int, count: int) -> dict[str, float]:
    """Return the figures of a table of ``size`` blocks, medians over ``count`` commits."""
    with tempfile.TemporaryDirectory(prefix="lamella-health-") as folder:
        store = CountingStore()
        pointer = grown(Warehouse(store, f"file://{folder}"), store, _TABLE, size)
        warehouse = Warehouse(store, f"file://{folder}")
        key = next(leaf for leaf in SCHEMA.leaves() if leaf.dtype.order is not None)
        pointer = warehouse.cluster(pointer, (key.name,), "linear", now_ms=3).pointer
        first = cpu_ms(lambda: warehouse.layouts.average_depth(pointer))
        (like,) = blocks(1)
        commits, depths, differences = [], [], []
        for number in range(-1, count):
            block = msgspec.structs.replace(like, location=f"s3://bucket/more/{number + 1:07d}.parquet")
            started, before = time.process_time(), pointer
            refs = warehouse.prepare(_TABLE, SCHEMA, [block])
            pointer = after = warehouse.commit(pointer, added=refs, now_ms=4 + number).pointer
            if number < 0:  # the first one warms up
                continue
            commits.append((time.process_time() - started) * 1e3)
            depths.append(cpu_ms(partial(warehouse.layouts.average_depth, after)))
            differences.append(cpu_ms(partial(warehouse.objects_left, before, after)))
    return {
        "commit_ms": statistics.median(commits),
        "first_depth_ms": first,
        "depth_ms": statistics.median(depths),
        "difference_ms": statistics.median(differences),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("build/table_health.json"))
    options = parser.parse_args()
    results = {}
    print(f"{'blocks':>10}{'commit':>11}{'first depth':>13}{'depth':>11}{'of a commit':>13}{'difference':>13}")
    for size in options.blocks:
        found = results[str(size)] = measure(size, options.commits)
        share = found["depth_ms"] / found["commit_ms"]
        print(
            f"{size:>10,}{found['commit_ms']:>8.1f} ms{found['first_depth_ms']:>10.1f} ms{found['depth_ms']:>8.1f} ms"
            f"{share:>11.1f} x{found['difference_ms']:>10.1f} ms",
            flush=True,
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
