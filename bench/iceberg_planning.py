"""Scan planning by an Iceberg client: through the service, and by the client itself from Avro manifests.

``python bench/iceberg_planning.py`` lets pyiceberg plan the same scans of the same blocks in both ways: over loopback
from a service's Iceberg face, and from an export as Iceberg on local disk (one manifest for each segment). ``--files``
takes another number of them than 100,000, ``--predicates`` some of the predicates only, which have other literals each
time they are asked. The table and its export are kept in ``build/speed`` (a million files: 4 GB, six minutes once).

"first" is the first plan of a new process of the service, or of a table opened anew from its metadata, and the opening
with it; "again" the median of others. "HTTP" is what the requests alone take, of other scans, without pyiceberg; their
answers are compressed where pyiceberg's are ("sent" bytes). Each plan is held against the truth, which the model knows:
the service leaves out no file that may hold a match, and keeps none that pyiceberg rules out.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from loopback import Service, serving
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest.scan_planning import PlanTableScanRequest
from pyiceberg.table import StaticTable, Table
from speed.comparison import compare
from speed.iceberg import row_filter
from speed.questions import Question, question, truth
from speed.tables import Made, table
from synthetic import FILTERED_COLUMNS, SPAN_MS, START_MS, Model, block_numbers

from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportOptions, export_iceberg
from lamella.snapshot.storage import FsspecStore

_ROOT: Final = Path(__file__).resolve().parent.parent
_PATH: Final = "/iceberg/v1/namespaces/bench/tables/t"
_WIDTH: Final = 0.1
_HEADERS: Final = {"content-type": "application/json", "accept-encoding": "gzip"}

Files = npt.NDArray[np.int64]


def _wide(number: int) -> Question:
    first = START_MS + int(SPAN_MS * (1 - _WIDTH) * float(np.random.default_rng(number).random())) + 5
    return Question(name="wide", ranges=((first, first + int(SPAN_MS * _WIDTH)),))


def _named(name: str) -> Callable[[int], Question]:
    return lambda number: question(name, number)


#: The predicates; the number of the request selects the literals.
PREDICATES: Final[dict[str, Callable[[int], Question]]] = {
    "0.1 % of the time": _named("P1"),
    "10 % of the time": _wide,
    "IN of ten times": _named("P3"),
    "1 % of the time, one country": _named("P4"),
    "text with a prefix": _named("P5"),
    "one user: every file": _named("P2"),
}


class Exported(msgspec.Struct, frozen=True):
    """An export: its metadata file, bytes and number of its manifests; ``seconds`` None: it existed already."""

    metadata: str
    manifest_bytes: int
    manifests: int
    seconds: float | None


class Travelled(msgspec.Struct, frozen=True):
    """A plan over HTTP: seconds of its requests, bytes of the answers compressed and unpacked, number of requests."""

    seconds: float
    sent_bytes: int
    unpacked_bytes: int
    parts: int


def exported(made: Made) -> Exported:
    """The table as Avro manifests in its own folder."""
    with serving(_settings(made)) as service, Lamella(f"http://127.0.0.1:{service.port}") as lake:
        # pyiceberg imports much on first use, which is not part of a first plan
        planned(_from_service(service), PREDICATES["0.1 % of the time"](0))
        started = time.perf_counter()
        done = export_iceberg(lake, "bench.t", FsspecStore(), ExportOptions(no_hold=True, trust_files=True))
        took_s = time.perf_counter() - started
    found = StaticTable.from_metadata(done.metadata_location)
    snapshot = found.current_snapshot()
    assert snapshot is not None
    sizes = [each.manifest_length for each in snapshot.manifests(found.io)]
    return Exported(done.metadata_location, sum(sizes), len(sizes), took_s if done.is_changed else None)


def planned(found: Table, query: Question) -> tuple[Files, float]:
    """Return the blocks of a plan by pyiceberg, and its seconds."""
    started = time.perf_counter()
    tasks = list(found.scan(row_filter=row_filter(query)).plan_files())
    took_s = time.perf_counter() - started
    return np.sort(block_numbers([task.file.file_path for task in tasks])), took_s


def travelled(service: Service, query: Question) -> Travelled:
    """Send the requests of a plan one after another over one connection, as pyiceberg does."""
    request = PlanTableScanRequest(filter=row_filter(query)).model_dump_json(by_alias=True, exclude_none=True).encode()
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=600)
    waiting = [("plan", request)]
    seconds, sent, unpacked, parts = 0.0, 0, 0, 0
    while waiting:
        route, body = waiting.pop(0)
        started = time.perf_counter()
        connection.request("POST", f"{_PATH}/{route}", body, _HEADERS)
        answer = connection.getresponse()
        data = answer.read()
        seconds += time.perf_counter() - started
        assert answer.status == 200, data[:500]
        whole = gzip.decompress(data) if answer.headers.get("content-encoding") == "gzip" else data
        sent, unpacked, parts = sent + len(data), unpacked + len(whole), parts + 1
        tokens = msgspec.json.decode(whole).get("plan-tasks", ())
        waiting += [("tasks", msgspec.json.encode({"plan-task": token})) for token in tokens]
    connection.close()
    return Travelled(seconds, sent, unpacked, parts)


class Side:
    """One way to plan: how its table is opened, and the measurements."""

    def __init__(self, opened: Callable[[], Table], query_all: Callable[[int], Question]) -> None:
        """Plan for the first time."""
        started = time.perf_counter()
        self._table, self._ask = opened(), query_all
        open_s = time.perf_counter() - started
        files, took_s = planned(self._table, query_all(0))
        self.first_s = open_s + took_s
        self.found = [files]
        self.again_s: list[float] = []

    def again(self, max_plans: int, budget_s: float) -> Iterator[None]:
        """Plan up to ``max_plans`` times more, at least once; yields between two plans."""
        while not self.again_s or (len(self.again_s) < max_plans and sum(self.again_s) < budget_s):
            files, took_s = planned(self._table, self._ask(len(self.found)))
            self.found.append(files)
            self.again_s.append(took_s)
            yield


def measure(made: Made, model: Model, export: Exported, name: str, rounds: int, budget_s: float) -> dict[str, Any]:
    """Measure one predicate; raises WrongAnswer."""
    query_all = PREDICATES[name]
    with serving(_settings(made)) as service:
        ours = Side(lambda: _from_service(service), query_all)
        # Literals differ, since results are cached by filter. The two ways alternate, since the service warms up.
        trips = [travelled(service, query_all(1_000 + len(ours.found))) for _ in ours.again(rounds, budget_s)]
    alone = Side(lambda: StaticTable.from_metadata(export.metadata), query_all)
    for _ in alone.again(rounds, budget_s):
        pass
    said = set()
    for number, files in enumerate(ours.found):
        answers = {"lamella": files}
        if number < len(alone.found):
            answers["pyiceberg"] = alone.found[number]
        said |= {
            f"{engine} {text}"
            for engine, text in compare(answers, truth(model, query_all(number)), name).items()
            if text
        }
    again_s, alone_s = statistics.median(ours.again_s), statistics.median(alone.again_s)
    trip_s = statistics.median(each.seconds for each in trips)
    return {
        "predicate": name,
        "files": len(ours.found[0]),
        "asked": len(ours.found),
        "asked_alone": len(alone.found),
        "first_s": round(ours.first_s, 4),
        "again_s": round(again_s, 5),
        "http_s": round(trip_s, 5),
        "alone_first_s": round(alone.first_s, 3),
        "alone_again_s": round(alone_s, 3),
        "times_as_fast_first": round(alone.first_s / ours.first_s, 1),
        "times_as_fast_again": round(alone_s / again_s, 1),
        "sent_bytes": max(each.sent_bytes for each in trips),
        "unpacked_bytes": max(each.unpacked_bytes for each in trips),
        "parts": max(each.parts for each in trips),
        "remarks": sorted(said),
    }


def text_of(lines: Sequence[dict[str, Any]]) -> str:
    """The lines as a Markdown table, times in milliseconds."""
    rows = [
        "| predicate | files | service: first, again | HTTP | alone: first, again | times as fast: first, again "
        "| sent, unpacked (kB) | parts |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rows += [
        f"| {line['predicate']} | {line['files']:,} | {_ms(line['first_s'])}, {_ms(line['again_s'])} "
        f"| {_ms(line['http_s'])} | {_ms(line['alone_first_s'])}, {_ms(line['alone_again_s'])} "
        f"| {_times(line['times_as_fast_first'])}, {_times(line['times_as_fast_again'])} "
        f"| {line['sent_bytes'] / 1e3:,.0f}, {line['unpacked_bytes'] / 1e3:,.0f} | {line['parts']} |"
        for line in lines
    ]
    return "\n".join([*rows, *(f"- {line['predicate']}: {each}" for line in lines for each in line["remarks"])])


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.1f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds < 0.1 else f"{seconds * 1e3:,.0f}"


def _from_service(service: Service) -> Table:
    return load_catalog("lake", type="rest", uri=f"http://127.0.0.1:{service.port}/iceberg").load_table("bench.t")


def _settings(made: Made) -> dict[str, str]:
    return {"warehouse": made.root, "catalog": made.catalog}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--predicates", nargs="+", choices=PREDICATES, default=list(PREDICATES))
    parser.add_argument("--rounds", type=int, default=25, help="plans after the first, of each predicate, at most")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds after which no further plan begins")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "iceberg_planning.json")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    made = table(_ROOT / "build" / "speed", options.files, exact=True)
    export = exported(made)
    took = "stood there" if export.seconds is None else f"written in {export.seconds:.1f} s"
    print(f"export: {export.manifests:,} manifests, {export.manifest_bytes / 1e6:,.1f} MB, {took}", file=sys.stderr)
    model = Model(options.files, FILTERED_COLUMNS)
    lines = []
    for name in options.predicates:
        lines.append(measure(made, model, export, name, options.rounds, options.budget))
        print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"files": options.files, "load": load, "export": msgspec.to_builtins(export), "predicates": lines}
    options.out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    print(text_of(lines))


if __name__ == "__main__":
    main()
