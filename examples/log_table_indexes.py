"""Indexes for a log table: find a request id, words of a message and a JSON member without reading every block.

    python examples/log_table_indexes.py [FOLDER]

Needs ``lamella[service]``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
from pathlib import Path

import pyarrow as pa

from lamella.client import Lamella
from lamella.client.http import Table

BLOCKS, ROWS = 40, 1_000
#: One line of each block says what went wrong in that hour; the others say nothing of interest.
TROUBLES = ("disk full", "connection refused", "certificate expired", "out of memory")


def request_id(number: int) -> str:
    """An id that says nothing of its place in the table."""
    return hashlib.sha256(str(number).encode()).hexdigest()[:16]


def log_of(hour: int) -> pa.Table:
    """An hour of the log."""
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hour)
    numbers = range(hour * ROWS, hour * ROWS + ROWS)
    messages = [f"GET /items/{n} took {n % 97} ms" for n in numbers]
    messages[17] = f"worker {hour}: {TROUBLES[hour % len(TROUBLES)]}"
    return pa.table(
        {
            "at": [start + dt.timedelta(seconds=3 * n) for n in range(ROWS)],
            "request_id": [request_id(n) for n in numbers],
            "message": messages,
            "payload": [json.dumps({"user": {"id": n // 100}, "ms": n % 97}) for n in numbers],
        }
    )


QUERIES = (
    f"request_id = '{request_id(12_345)}'",
    "message LIKE '%certificate%'",
    "get_json_object(payload, '$.user.id') = '321'",
)


def show(logs: Table, title: str) -> None:
    """How many blocks each query reads."""
    print(title)
    for query in QUERIES:
        print(f"  {len(logs.prune(query)):>2} of {BLOCKS} blocks for {query}")


def main(folder: Path) -> None:
    """Write the log, ask for advice, index, and ask again."""
    with Lamella.embedded(folder / "lake") as lake:
        logs = lake.table("ops.logs")
        for hour in range(BLOCKS):
            logs.append(log_of(hour), create=True)
        show(logs, "by minima and maxima alone:")

        # The time of the log needs no index: its blocks follow one another.
        sixth = "at >= '2026-01-01T05:00:00Z' AND at < '2026-01-01T06:00:00Z'"
        print(f"one hour: {len(logs.prune(sixth))} block")

        # What would help? Advice scores columns and kinds from statistics, without reading the data.
        scores = [score for score in logs.advise(["request_id"]).scores if score.kind is not None]
        best = max(scores, key=lambda score: score.score or 0.0)
        print(f"advice for request_id: {best.kind}, {best.score or 0:.0f} of 100")

        logs.create_index("by_request", "bloom", "request_id")
        logs.create_index("by_word", "ngram", "message")
        logs.create_index("by_user", "bloom", "get_json_object(payload, '$.user.id')")
        for name in ("by_request", "by_word", "by_user"):
            logs.refresh_index(name)
        show(logs, "with three indexes:")
        print(logs.scan("message LIKE '%certificate%'", columns=["at", "message"], limit=1).to_arrow().to_pylist()[0])

        # New rows are indexed as they are written. If an index does not help a filter, ask why.
        logs.append(log_of(BLOCKS))
        coverage = logs.index("by_request").coverage
        print(coverage.not_indexed if coverage else "?", "blocks are not indexed")
        print(logs.why_not("lower(message) LIKE '%certificate%'", "by_word").answers[0].reason)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/log_table_indexes").absolute())
