"""The cost of layout decisions: depths, figures, and plans to recluster, compact and regroup, for large tables.

python bench/clustering.py [--blocks 100000 1000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lamella.snapshot.cluster import curve
from lamella.snapshot.cluster.compaction import pack
from lamella.snapshot.cluster.extent import NOT_WRITTEN, BlockTarget, Sizes, extents
from lamella.snapshot.cluster.health import health
from lamella.snapshot.cluster.regroup import regroup
from lamella.snapshot.cluster.selection import Aims, select
from lamella.snapshot.columnar.keys import NumberKeys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, MAY_NUMBER, NULLS_KNOWN, Zones
from lamella.snapshot.manifest import ClusterKind

TOP = 1 << 40


def zones(low: Any, high: Any) -> Zones:
    """Zone maps of whole numbers."""
    flags = np.full(len(low), LOW_KNOWN | HIGH_KNOWN | MAY_NUMBER | NULLS_KNOWN, dtype=np.uint8)
    return Zones(NumberKeys(low), NumberKeys(high), flags)


def layouts(blocks: int, rng: np.random.Generator) -> dict[str, tuple[ClusterKind, list[Zones]]]:
    """Tables of so many blocks."""
    step = TOP // blocks
    low = np.arange(blocks) * step
    wide = rng.integers(0, step, blocks)
    return {
        "in order, and 100 wide ones": (
            "linear",
            [zones(np.append(low, np.zeros(100, np.int64)), np.append(low + step - 1, np.full(100, TOP)))],
        ),
        "ten deep everywhere": ("linear", [zones(low, low + 10 * step)]),
        "in no order": ("linear", [zones(wide, TOP - wide)]),
        "two columns, Hilbert": (
            "hilbert",
            [zones(column, column + TOP // 1000) for column in rng.permuted([low] * 2, axis=1)],
        ),
    }


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of processor time, and the result."""
    start = time.process_time()
    found = call(*arguments)
    return time.process_time() - start, found


def row(kind: ClusterKind, columns: list[Zones]) -> list[float]:
    """The times of one layout."""
    count = len(columns[0])
    sizes = Sizes(np.full(count, 100_000), np.full(count, 16 << 20), np.full(count, NOT_WRITTEN))
    seconds, lies = timed(extents, kind, columns)
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (health, (lies, sizes)),
        (select, (lies, sizes, Aims())),
        (pack, (lies, sizes, BlockTarget())),
        (regroup, (lies, sizes.rows, np.arange(count) // 1_000)),
    ]
    return [seconds, *(timed(call, *arguments)[0] for call, arguments in calls)]


def main() -> None:
    """Prints one table for each number of blocks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[100_000, 1_000_000])
    rng = np.random.default_rng(1)
    for blocks in parser.parse_args().blocks:
        print(f"\n{blocks:,} blocks; seconds of processor time\n")
        print("| layout | where they lie | figures | recluster | compact (all are small) | regroup |")
        print("|---|---|---|---|---|---|")
        for name, (kind, columns) in layouts(blocks, rng).items():
            print(f"| {name} | " + " | ".join(f"{each:.2f}" for each in row(kind, columns)) + " |", flush=True)
    points = rng.integers(0, 1 << 16, (1_000_000, 3)).astype(np.uint64)
    for curve_kind in ("zorder", "hilbert"):
        seconds, _ = timed(curve.positions, curve_kind, points, 16)
        print(f"\n{curve_kind}, three columns: {seconds:.2f} s for 1,000,000 rows")


if __name__ == "__main__":
    main()
