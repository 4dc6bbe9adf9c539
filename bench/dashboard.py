"""Response time and size of the dashboard's screens for a table of a million blocks.

``python bench/dashboard.py`` serves the table with two workers and asks each screen as a browser does (compressed, one
connection a request, so that both workers are asked): once after the start, then until it is warm, then ``--rounds``
times. ``--docs`` writes the table into docs/dashboard.md. ``--screens`` takes some of them, ``--blocks`` another size.
The table is made on the first run, in ``build/dashboard`` (3 GB, some 2 minutes), with a cluster key and a tag.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import statistics
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from loopback import Service, serving
from page_part import replace_part
from speed.tables import Made, table

from lamella.client import Lamella

_ROOT: Final = Path(__file__).resolve().parent.parent
_TABLE: Final = "/ui/tables/bench/t"
_NARROW: Final = "event_time >= TIMESTAMP '2021-03-01 00:00:00' AND event_time < TIMESTAMP '2021-03-02 00:00:00'"
_WIDE: Final = "amount > 10 AND country <> 'zz'"
#: Seconds in which background measurements are finished.
_WARM_UP_S: Final = 60


def screens() -> dict[str, str]:
    """Each screen's name and path."""
    narrow, wide = quote(_NARROW), quote(_WIDE)
    return {
        "Overview": "/ui",
        "Table": _TABLE,
        "Layer map, whole": f"{_TABLE}/map",
        "Layer map, by size": f"{_TABLE}/map?colour=size",
        "Layer map, a filter that keeps little": f"{_TABLE}/map?filter={narrow}",
        "Layer map, a filter that keeps nearly all": f"{_TABLE}/map?filter={wide}",
        "Layer map, a part of the key": f"{_TABLE}/map?low=2021-03-01&high=2021-06-01&filter={wide}",
        "Layer map, single blocks": f"{_TABLE}/map?low=2021-03-01&high={quote('2021-03-01 12:00:00')}",
        "Layer map, order of segments": f"{_TABLE}/map?axis=order&filter={wide}",
        "Layer map, one segment": f"{_TABLE}/map?zoom=500",
        "Block and its pages": f"{_TABLE}/map?zoom=500.10",
        "Columns": f"{_TABLE}/columns",
        "Indexes": f"{_TABLE}/indexes",
        "History": f"{_TABLE}/history",
        "Rollback, asked": f"{_TABLE}/history/rollback?to=start",
        "Prune lab, a filter that keeps little": f"{_TABLE}/lab?filter={narrow}",
        "Prune lab, a filter that keeps nearly all": f"{_TABLE}/lab?filter={wide}",
        "Prune lab, each part of the latter explained": f"{_TABLE}/lab?filter={wide}&explain=1",
        "Prune lab, why a block is read": f"{_TABLE}/lab/block?filter={wide}&block=500.10",
        "Prune lab, two snapshots compared": f"{_TABLE}/lab/compare?filter={narrow}&with=snapshot&other_at=start",
        "Prune lab, another cluster key foretold": f"{_TABLE}/lab/compare?filter={narrow}&with=key&key=user_id",
        "Jobs": "/ui/jobs",
        "New job: recluster, with preview": "/ui/jobs/new?kind=recluster&table=bench.t&preview=1",
        "New job: compact, with preview": "/ui/jobs/new?kind=compact&table=bench.t&preview=1",
        "Service": "/ui/service",
    }


class TimedRequest:
    """One response: seconds to its first byte and to its last, bytes compressed and unpacked."""

    def __init__(self, port: int, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        started = time.perf_counter()
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        first = answer.read(1)
        self.first_s = time.perf_counter() - started
        body = first + answer.read()
        self.whole_s = time.perf_counter() - started
        self.sent_bytes = len(body)
        text = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
        self.bytes = len(text)
        self.is_waiting = b"data-live=" in text and b"\xe2\x80\xa6" in text
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {text[:2000]!r}")
        connection.close()


def prepare(made: Made) -> None:
    """Give the table a cluster key, and a tag for the snapshot before, unless it has them."""
    with serving({"warehouse": made.root, "catalog": made.catalog}) as service, _lake(service) as lake:
        found = lake.table("bench.t")
        if not found.cluster_key().columns:
            found.tag("start")
            found.cluster_by(["event_time"])


def measure(made: Made, rounds: int, part: str) -> list[dict[str, Any]]:
    """A line for each screen whose name has a part."""
    lines = []
    with serving({"warehouse": made.root, "catalog": made.catalog, "workers": "2"}) as service:
        for name, path in ((name, path) for name, path in screens().items() if part in name):
            cold = TimedRequest(service.port, path)
            until = time.monotonic() + _WARM_UP_S
            warm = 0
            while warm < 8 and time.monotonic() < until:  # several in a row from either worker
                warm = 0 if TimedRequest(service.port, path).is_waiting else warm + 1
                time.sleep(0.1 if warm == 0 else 0)
            found = [TimedRequest(service.port, path) for _ in range(rounds)]
            first = sorted(each.first_s for each in found)
            lines.append(
                {
                    "screen": name,
                    "cold_ms": cold.first_s * 1e3,
                    "p50_ms": statistics.median(first) * 1e3,
                    "most_ms": first[-1] * 1e3,
                    "bytes": max(each.bytes for each in found),
                    "sent_bytes": max(each.sent_bytes for each in found),
                }
            )
            print(lines[-1], flush=True)
    return lines


def text_of(lines: list[dict[str, Any]], blocks: int) -> str:
    """The lines as a Markdown table."""
    rows = [
        "| screen | first byte, cold (ms) | warm: median (ms) | warm: longest (ms) | page (kB) | sent, gzip (kB) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {line['screen']} | {line['cold_ms']:.0f} | {line['p50_ms']:.0f} | {line['most_ms']:.0f} "
        f"| {line['bytes'] / 1e3:.0f} | {line['sent_bytes'] / 1e3:.0f} |"
        for line in lines
    ]
    return f"A table of {blocks:,} blocks with 20 columns, two workers.\n\n" + "\n".join(rows)


def write_docs(text: str) -> None:
    """Put the table into docs/dashboard.md."""
    page = _ROOT / "docs" / "dashboard.md"
    replace_part(page, "python bench/dashboard.py --docs", text)


def _lake(service: Service) -> Lamella:
    return Lamella(f"http://127.0.0.1:{service.port}")


def main() -> None:
    """Measure, print, and write where that was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--screens", default="", help="only those whose name has this part")
    options = parser.parse_args()
    made = table(_ROOT / "build" / "dashboard", options.blocks)
    prepare(made)
    text = text_of(measure(made, options.rounds, options.screens), options.blocks)
    print(text)
    if options.docs:
        write_docs(text)


if __name__ == "__main__":
    main()
