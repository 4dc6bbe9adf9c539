"""How long after a commit another replica still returns the previous table version.

``python bench/pointer_visibility.py --catalog postgresql+psycopg://user@host/empty_database`` starts two services over
an empty PostgreSQL database and a folder, and commits ``--changes`` times to one of them in turn. Two readers ask the
other replica all the time, one for the table and one for a prune. For each change it takes the time from the commit's
answer to the end of the first read that shows it, and counts the reads that were begun after the answer and did not.
Prints JSON: milliseconds, and ``stale_reads``, which must be 0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from loopback import Service

TABLE = "/v1/namespaces/db/tables/t"


class Reader(threading.Thread):
    """Polls one replica for the table's version. ``reads``: begin, end and result of each."""

    def __init__(self, service: Service, *, prunes: bool) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._prunes = prunes
        self.over = threading.Event()
        self.reads: list[tuple[float, float, str]] = []

    def run(self) -> None:
        """Poll until stopped."""
        while not self.over.is_set():
            began_s = time.monotonic()
            seen = self._look()
            self.reads.append((began_s, time.monotonic(), seen))

    def _look(self) -> str:
        if self._prunes:
            answer = self._service.send("POST", f"{TABLE}/prune", b'{"filter": "a = 1"}')
        else:
            answer = self._service.send("GET", TABLE)
        return str(answer["snapshot_id"])


def measure(writer: Service, reader: Service, changes: int) -> dict[str, Any]:
    """Commit repeatedly through one replica and watch the other."""
    readers = [Reader(reader, prunes=prunes) for prunes in (False, True)]
    for each in readers:
        each.start()
    order: dict[str, int] = {writer.send("GET", TABLE)["snapshot_id"]: 0}
    answered: list[float] = [0.0]
    commits_ms = []
    for number in range(1, changes + 1):
        began_s = time.monotonic()
        body = json.dumps({"properties": {"change": str(number)}}).encode()
        snapshot_id = writer.send("POST", f"{TABLE}/commits", body)["snapshot_id"]
        answered.append(time.monotonic())
        commits_ms.append(1000 * (answered[-1] - began_s))
        order[snapshot_id] = number
        time.sleep(0.005)
    time.sleep(0.2)
    for each in readers:
        each.over.set()
        each.join()
    found: dict[str, Any] = {
        "changes": changes,
        "commit_p50_ms": round(statistics.median(commits_ms), 2),
        "stale_reads": 0,
    }
    for name, each in zip(("table", "prune"), readers, strict=True):
        lags, stale = _judged(each.reads, order, answered)
        found["stale_reads"] += stale
        found[name] = {
            "reads": len(each.reads),
            "shown_after_ms": {
                "p50": round(statistics.median(lags), 2),
                "p99": round(statistics.quantiles(lags, n=100)[98], 2),
                "max": round(max(lags), 2),
            },
        }
    return found


def _judged(
    reads: list[tuple[float, float, str]], order: dict[str, int], answered: list[float]
) -> tuple[list[float], int]:
    """Return for each change the milliseconds until it was visible, and the number of stale reads."""
    lags: list[float] = []
    stale = 0
    shown = 0
    for began_s, ended_s, snapshot_id in reads:
        seen = order[snapshot_id]
        due = sum(1 for at_s in answered[1:] if at_s <= began_s)
        stale += seen < due
        while shown < seen:
            shown += 1
            lags.append(max(0.0, 1000 * (ended_s - answered[shown])))
    if shown < len(answered) - 1:
        raise RuntimeError("the last change was never shown")
    return lags, stale


def main(arguments: list[str]) -> int:
    """Run it; the exit status is 1 when a read was stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", required=True, help="an empty PostgreSQL database")
    parser.add_argument("--changes", type=int, default=1_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"warehouse": str(folder / "w"), "catalog": options.catalog}
        for part in ("a", "b"):
            (folder / part).mkdir()
        with Service(folder / "a", settings) as writer, Service(folder / "b", settings) as reader:
            writer.hang_up()  # the server may have closed the connection meanwhile
            writer.send("POST", "/v1/namespaces", b'{"name": "db"}')
            body = {"name": "t", "schema": [{"name": "a", "type": "int64"}]}
            writer.send("POST", "/v1/namespaces/db/tables", json.dumps(body).encode())
            found = measure(writer, reader, options.changes)
    print(json.dumps(found))
    return 1 if found["stale_reads"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
