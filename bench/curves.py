"""The fraction of blocks that filters skip along a curve through two columns, compared with a linear key.

    python bench/curves.py [--rows 2000000] [--blocks 256] [--out build/curves.json]

One table of two columns without any relation to each other (whole numbers, and texts), reclustered by each kind of key
in turn. For ranges of 1 % and 10 % of either column, and of both at once: the part of the blocks that is read, the mean
over 100 ranges at random.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loopback import Service

from lamella.client import Lamella
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import recluster
from lamella.client.rewrite.engine import LocalEngine
from lamella.snapshot.manifest import ClusterKind

RANGES = 100
KINDS: tuple[ClusterKind, ...] = ("linear", "zorder", "hilbert")


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--blocks", type=int, default=256)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-bench-") as name:
        figures = measured(Path(name), given.rows, given.blocks)
    print(json.dumps(figures, indent=1))
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1))


def measured(folder: Path, rows: int, blocks: int) -> dict[str, Any]:
    """The part of the blocks that is read, by kind of key and of filter."""
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 1_000_000, rows)
    texts = rng.integers(0, 1_000_000, rows)
    per_block = -(-rows // blocks)
    files = []
    for at, start in enumerate(range(0, rows, per_block)):
        part = pa.table(
            {
                "a": numbers[start : start + per_block],
                "b": pa.array([f"user {each:07}" for each in texts[start : start + per_block]]),
                "v": rng.random(len(numbers[start : start + per_block])),
            }
        )
        files.append(folder / f"{at:05}.parquet")
        pq.write_table(part, files[-1], compression="zstd")
    filters = {
        f"{name}, {share:.0%}": [_filter(rng, name, share) for _ in range(RANGES)]
        for share in (0.01, 0.1)
        for name in ("a", "b", "a and b")
    }
    found: dict[str, Any] = {"rows": rows, "blocks": blocks}
    with (
        Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
        Lamella(f"http://127.0.0.1:{service.port}", timeout_s=600) as lake,
        LocalEngine() as engine,
    ):
        lake.create_namespace("bench")
        for kind in KINDS:
            name = f"bench.{kind}"
            lake.create_table(name, schema_from=str(files[0]), cluster_key=["a", "b"], cluster_kind=kind)
            table = lake.table(name)
            table.register([str(file) for file in files])
            done = recluster(
                JobContext(lake=lake, table=name, engine=engine, sizes=Sizes(block_rows=per_block)), max_runs=10
            )
            total = table.info().block_count
            found[kind] = {
                "bytes_rewritten_of_table": round(done.bytes_before / max(1, table.info().file_size_bytes), 2),
                "read": {
                    filter_kind: round(float(np.mean([table.prune(each).block_count for each in some])) / total, 4)
                    for filter_kind, some in filters.items()
                },
            }
    return found


def _filter(rng: np.random.Generator, name: str, share: float) -> str:
    low, other = (int(each) for each in rng.integers(0, int(1_000_000 * (1 - share)), 2))
    width = int(1_000_000 * share)
    parts = {
        "a": f"a BETWEEN {low} AND {low + width}",
        "b": f"b BETWEEN 'user {other:07}' AND 'user {other + width:07}'",
    }
    return " AND ".join(parts.values()) if name == "a and b" else parts[name]


if __name__ == "__main__":
    main()
