"""Quick start: from a folder of Parquet files to a query that opens one of thirty.

    python examples/quick_start.py [FOLDER]

Needs ``lamella[service]``. The service runs inside this program; with ``Lamella("http://...")`` it is another process.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client import Lamella, col


def write_events(folder: Path) -> None:
    """Thirty days of events, a file for each day, as another program may have left them."""
    folder.mkdir(parents=True)
    for day in range(30):
        start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=day)
        events = {
            "event_time": [start + dt.timedelta(seconds=8 * n) for n in range(10_000)],
            "user_id": [n * 7919 % 1000 for n in range(10_000)],
            "country": [("SE", "DE", "FR", "US")[n % 4] for n in range(10_000)],
            "amount": [n % 500 / 2 for n in range(10_000)],
        }
        pq.write_table(pa.table(events), folder / f"day-{day:02}.parquet")


def main(folder: Path) -> None:
    """Register the files, ask which a query needs, and read its rows."""
    write_events(folder / "events")
    with Lamella.embedded(folder / "lake") as lake:
        lake.create_namespace("web")
        lake.create_table("web.events", schema_from=str(folder / "events"))
        events = lake.table("web.events")
        events.register([str(folder / "events")])
        print(f"{events.info().row_count:,} rows in {events.info().block_count} files")

        # Which files does a query need? Only their names and sizes were looked at, not the files.
        tenth = (col("event_time") >= dt.datetime(2026, 1, 10, tzinfo=dt.UTC)) & (
            col("event_time") < dt.datetime(2026, 1, 11, tzinfo=dt.UTC)
        )
        found = events.prune(tenth)
        print(f"{len(found)} of {found.report.blocks_total} files: {Path(found.blocks[0].location).name}")

        # Its rows, from just the pages that may have them.
        swedish = events.scan(tenth & (col("country") == "SE"), columns=["user_id", "amount"])
        print(f"{swedish.count():,} rows of Sweden, {sum(swedish.to_arrow()['amount'].to_pylist()):,.1f} in all")

        # The same condition in SQL, and a result that statistics prove without opening a file.
        (newest,) = events.aggregate(["max(event_time)"], "amount >= 0").records()
        print(f"newest: {newest['max(event_time)']:%Y-%m-%d %H:%M:%S}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/quick_start").absolute())
