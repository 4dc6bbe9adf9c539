"""Streaming upserts: batches of changes become the current state of a table, once each, and a reader follows them.

    python examples/streaming_upserts.py [FOLDER]

Needs ``lamella[service]``. The stream is a list here; with Kafka, ``offset`` is the offset after the batch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lamella.client import Lamella
from lamella.client.http import Table


def changes(batches: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Batches of positions of vehicles, each with the offset after it. The same in every run, as of a log."""
    draw = random.Random(5)  # noqa: S311  # made-up positions
    for number in range(batches):
        vehicles = draw.sample(range(500), 50)
        yield number + 1, [{"vehicle": v, "x": draw.random(), "y": draw.random(), "batch": number} for v in vehicles]


def consume(table: Table, batches: int, *, stop_after: int | None = None) -> int:
    """Upsert the batches that the table does not have; returns their number.

    The table has the offset as a property, which is set by the same commit as the rows. So a program that dies between
    two batches, or within one, goes on where the table is.
    """
    done = int(table.info().properties.get("stream.offset", "0"))
    written = 0
    for offset, rows in changes(batches):
        if offset <= done:
            continue
        table.upsert(rows, on=["vehicle"], set_properties={"stream.offset": str(offset)})
        written += 1
        if written == stop_after:
            break
    return written


def main(folder: Path) -> None:
    """Consume, stop in the middle, go on, and read what changed."""
    with Lamella.embedded(folder / "lake") as lake:
        table = lake.table("fleet.positions")
        first = {"vehicle": 0, "x": 0.0, "y": 0.0, "batch": -1}
        begin = table.upsert([first], on=["vehicle"], create=True, cluster_by=["vehicle"]).snapshot_id

        print(f"{consume(table, 20, stop_after=8)} batches, then the program stops")
        print(f"{consume(table, 20)} more after its restart, offset {table.info().properties['stream.offset']}")
        print(f"{table.scan().count()} vehicles, the newest batch: {table.scan('batch = 19').count()} of them")

        # What changed since a snapshot, row by row: updates as pairs of an old and a new row.
        feed = table.row_changes(begin, keys=["vehicle"])
        kinds = [str(kind) for kind in feed.to_arrow()["_change_type"].to_pylist()]
        print({kind: kinds.count(kind) for kind in sorted(set(kinds))})

        # Upserts delete the rows that they replace by vectors. A compaction writes the table without them.
        info = table.info()
        print(f"{info.block_count} blocks; {info.row_count - (info.live_row_count or 0)} deleted rows in their files")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/streaming_upserts").absolute())
