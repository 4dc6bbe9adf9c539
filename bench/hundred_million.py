"""A service on a table of a hundred million blocks x five columns, over loopback: answers, time, and memory.

``python bench/hundred_million.py`` makes the table (a quarter of an hour, 11 GB below ``build/hundred``; see
``speed/packed.py``, also for what the service does not read as it would elsewhere) and measures:

========== ==========================================================================================================
answers    answers of narrow and scattered filters, compared with the arrays that the table was made from
cold       the first narrow range of a new service, with the table's files dropped from the page cache
warm       narrow ranges in one part of the table, and all over it, where they open segments that nothing opened before
commit     commits of one block, by where its name lies among those of the table, and the first range after each
memory     the service after each question: nothing, one column, two, all five; text and nulls that are scattered
========== ==========================================================================================================

``--blocks`` takes another multiple of a million. ``--cache-bytes`` and ``--disk-cache-bytes`` are the service's caches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from loopback import Service
from speed import load, packed
from speed.clock import cpu_s, forget
from speed.memory import Peak, status
from speed.over_http import FLOOR, PRUNE
from speed.questions import Question, narrow, question, spark_time, sql, truth
from speed.tables import Made
from synthetic import FILTERED_COLUMNS, FOLDER, SPAN_MS, START_MS, blocks_of, schema

from lamella.snapshot.columnar import Sidecar
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import PruneAnswer

PARTS: Final = ("answers", "cold", "warm", "commit", "memory")
#: A narrow range: this share of the sorted column.
_WIDTH: Final = 1e-5
_REQUESTS: Final = 400
_COMMITS: Final = 130
#: Longer than by default: scattered questions open every segment the first time.
_DEADLINE_S: Final = 600
_SHAPES: Final = ("columns", "ranges")


class Options(argparse.Namespace):
    """The command line."""

    blocks: int
    parts: list[str]
    cache_bytes: int
    disk_cache_bytes: int
    folder: Path
    out: Path


class Bench:
    """One table, and services on it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        folder = options.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.made = packed.table(folder, options.blocks)

    @contextmanager
    def service(self) -> Iterator[Service]:
        """A new service without any cache."""
        with tempfile.TemporaryDirectory(prefix="lamella-bench-", dir=self._options.folder) as name:
            settings = {
                "warehouse": self.made.root,
                "catalog": self.made.catalog,
                "cache_bytes": str(self._options.cache_bytes),
                "request_deadline_s": str(_DEADLINE_S),
                "allowed_locations": json.dumps({"bench": [FOLDER]}),
            }
            if self._options.disk_cache_bytes:
                settings |= {
                    "cache_dir": f"{name}/cache",
                    "cache_dir_bytes": str(self._options.disk_cache_bytes),
                }
            with Service(Path(name), settings, module="speed.packed") as service:
                load.run(service.port, [FLOOR] * 20, 1)
                yield service

    # -- answers

    def answers(self) -> dict[str, Any]:
        """Compare answers with the model's arrays; raises AssertionError for the first that differs."""
        queries = [
            *(narrow(number, _WIDTH) for number in range(20)),
            *(question(name, number) for name in ("P1", "P3", "P4", "P6") for number in range(5)),
            *(question(name, 0) for name in ("P2", "P5", "P7")),
        ]
        with self.service() as service:
            answers = [service.send("POST", PRUNE, _body(sql(each, spark_time), "ranges")) for each in queries]
        first = self._first_blocks()
        found = [_numbers(msgspec.convert(answer, PruneAnswer, strict=False), first) for answer in answers]
        expected: list[list[npt.NDArray[np.int64]]] = [[] for _ in queries]
        for part in packed.parts(self.made.count):
            for each, blocks in zip(queries, expected, strict=True):
                blocks.append(truth(part, each) + part.first)
        for each, ours, theirs in zip(queries, found, expected, strict=True):
            assert np.array_equal(ours, np.concatenate(theirs)), f"{each}: {len(ours)} blocks"
        return {"compared": len(queries), "blocks": [len(each) for each in found]}

    def _first_blocks(self) -> dict[str, int]:
        """The first block of each segment, by the segment's id."""
        store = packed.PackedStore()
        ids: list[str] = []
        counts: list[int] = []
        for location in _layer(store, self.made):
            sidecar = Sidecar(store.read(location))
            ids += sidecar.texts("segment_id")
            counts += sidecar.numbers("block_count").tolist()
        return dict(zip(ids, np.cumsum([0, *counts])[:-1].tolist(), strict=True))

    # -- time

    def cold(self) -> dict[str, Any]:
        """The first answer of new services."""
        found = {}
        for shape, width in (*((shape, _WIDTH) for shape in _SHAPES), ("ranges", 1e-3)):
            forget(Path(self.made.folder))
            started = time.perf_counter()
            with self.service() as service:
                ready_s = time.perf_counter() - started
                before = cpu_s(service.pid)
                first = load.run(service.port, [_asking(narrow(0, width), shape)], 1)
                cpu_ms = (cpu_s(service.pid) - before) * 1e3
            found[f"{width:g} {shape}"] = {"first_ms": first.p50_ms, "cpu_ms": cpu_ms, "ready_s": round(ready_s, 2)}
        return found

    def warm(self) -> dict[str, Any]:
        """Ranges in a hundredth of the table whose segments were opened, and all over it."""
        found: dict[str, Any] = {}
        with self.service() as service:
            for shape in _SHAPES:
                near = [_asking(_within(number, _WIDTH, 0.01), shape) for number in range(3 * _REQUESTS)]
                load.run(service.port, near[_REQUESTS:], 1)
                found[f"near, {shape}"] = _measured(service, near[:_REQUESTS])
            for shape in _SHAPES:
                far = [_asking(narrow(number, _WIDTH), shape) for number in range(_REQUESTS)]
                found[f"far, {shape}"] = _measured(service, far)
            wide = [_asking(_within(number, 1e-3, 0.01), "ranges") for number in range(2 * _REQUESTS)]
            load.run(service.port, wide[_REQUESTS:], 1)
            found["P1 near, ranges"] = _measured(service, wide[:_REQUESTS])
            wide = [_asking(narrow(number, 1e-3), "ranges") for number in range(_REQUESTS // 10)]
            found["P1 far, ranges"] = _measured(service, wide)
            found["memory"] = _memory(service)
        return found

    def commit(self) -> dict[str, Any]:
        """Commits of one block. The table is put back afterwards."""
        found: dict[str, Any] = {}
        catalog = Path(self.made.catalog.removeprefix("sqlite:///"))
        saved = catalog.read_bytes()
        like = next(blocks_of(packed.Part(0, self.made.count, 1), 0, 1, schema(FILTERED_COLUMNS)))
        packed.unordered(self.made, "u")
        ways = (("after all others", "t", "z"), ("among others", "t", "part-5"), ("names without order", "u", "part-5"))
        try:
            for name, table, prefix in ways:
                with self.service() as service:
                    found[name] = self._commits(service, table, f"{FOLDER}{prefix}", like)
        finally:
            for each in catalog.parent.glob("catalog.db-*"):
                each.unlink()
            catalog.write_bytes(saved)
        return found

    def _commits(self, service: Service, table: str, prefix: str, like: Block) -> dict[str, Any]:
        """Commits of one block, each followed by a narrow range."""
        path = f"/v1/namespaces/bench/tables/{table}"
        ranges = [_asking(narrow(number, _WIDTH), "ranges", f"{path}/prune") for number in range(20)]
        load.run(service.port, ranges, 1)
        clocks, cpus, afters = [], [], []
        for number in range(_COMMITS):
            block = msgspec.structs.replace(like, location=f"{prefix}{uuid.uuid4()}.parquet")
            body = msgspec.json.encode({"added": [block]})
            before, started = cpu_s(service.pid), time.perf_counter()
            service.send("POST", f"{path}/commits", body, key=str(uuid.uuid4()))
            clocks.append((time.perf_counter() - started) * 1e3)
            cpus.append((cpu_s(service.pid) - before) * 1e3)
            afters.append(load.run(service.port, [ranges[number % len(ranges)]], 1).p50_ms)
        return {
            "first_ms": round(clocks[0], 1),
            **_spread(clocks[1:]),
            "cpu_ms": round(statistics.mean(cpus[1:]), 2),
            "first range after it": _spread(afters[1:]),
            "memory": _memory(service),
        }

    # -- memory

    def memory(self) -> dict[str, Any]:
        """The service's memory after each question, and the most that it had until then."""
        found: dict[str, Any] = {}
        some = range(200)
        times = [narrow(number, _WIDTH) for number in some]
        both = [msgspec.structs.replace(each, country="DE") for each in times]
        queries: list[tuple[str, Callable[[], Sequence[bytes]]]] = [
            ("idle", lambda: [FLOOR]),
            ("one column", lambda: [_asking(each, "ranges") for each in times]),
            ("one column, a thousandth", lambda: [_asking(narrow(number, 1e-3), "ranges") for number in some]),
            ("two columns", lambda: [_asking(each, "ranges") for each in both]),
            ("five columns", lambda: [_filtered(_five(each), "ranges") for each in times]),
            ("one column, all blocks", lambda: [_filtered(f"user_id = {10**9 + n}", "ranges") for n in range(2)]),
            ("IS NULL", lambda: [_filtered("error_code IS NULL", "ranges")]),
            ("IS NULL again", lambda: [_filtered("error_code IS NULL AND user_id > 0", "ranges")]),
            ("text prefix", lambda: [_asking(question("P5", 0), "ranges")]),
            ("text prefix again", lambda: [_asking(question("P5", number), "ranges") for number in (1,)]),
            ("one column after all", lambda: [_asking(each, "ranges") for each in times]),
        ]
        with self.service() as service:
            for name, requests in queries:
                with Peak(service.pid) as peak:
                    try:
                        measured = _measured(service, list(requests()))
                    except load.RefusedRequest as error:
                        measured = {"refused": str(error)[-300:]}
                found[name] = measured | _memory(service) | {"peak_mb": round(peak.sizes["VmRSS"] / 1e6)}
                print(f"{name}: {json.dumps(found[name])}", flush=True)
        return found


def _layer(store: FsspecStore, made: Made) -> Iterator[str]:
    """The sidecars with one row per segment, in the order of the table."""
    manifest = msgspec.json.decode(store.read(made.pointer.manifest.location))
    yield from (group["sidecar"]["location"] for group in manifest["groups"])
    yield made.pointer.sidecar.location


def _within(number: int, width: float, share: float) -> Question:
    """A range of this width in the middle ``share`` of the table."""
    (start, stop) = narrow(number, width).ranges[0]
    middle = START_MS + SPAN_MS // 2
    moved = middle + int((start - START_MS) * share)
    return Question(name="narrow", ranges=((moved, moved + stop - start),))


def _five(query: Question) -> str:
    text = sql(query, spark_time)
    return f"{text} AND country = 'DE' AND user_id > 5 AND error_code < 600 AND path < 'tenant-00900'"


def _body(text: str, shape: str) -> bytes:
    return json.dumps({"filter": text, "shape": shape}).encode()


def _filtered(text: str, shape: str, path: str = PRUNE) -> bytes:
    return load.request(path, _body(text, shape))


def _asking(query: Question, shape: str, path: str = PRUNE) -> bytes:
    return _filtered(sql(query, spark_time), shape, path)


def _measured(service: Service, requests: Sequence[bytes]) -> dict[str, Any]:
    """Milliseconds of the clock of one request, and of the processor in the mean."""
    before = cpu_s(service.pid)
    done = load.run(service.port, requests, 1)
    cpu_ms = (cpu_s(service.pid) - before) * 1e3 / len(requests)
    return {
        "requests": len(requests),
        "p50_ms": round(done.p50_ms, 2),
        "p99_ms": round(done.p99_ms, 2),
        "cpu_ms": round(cpu_ms, 2),
        "answer_bytes": done.answer_bytes,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50_ms": round(statistics.median(values), 2), "p90_ms": round(statistics.quantiles(values, n=10)[-1], 2)}


def _memory(service: Service) -> dict[str, int]:
    """Resident memory in MB: all of it, and what is not mapped from files."""
    sizes = status(service.pid)
    return {"rss_mb": round(sizes["VmRSS"] / 1e6), "own_mb": round(sizes["RssAnon"] / 1e6)}


def _numbers(answer: PruneAnswer, first: dict[str, int]) -> npt.NDArray[np.int64]:
    """The numbers of the blocks in an answer of ranges, ascending."""
    runs = answer.block_ranges
    assert runs is not None
    begins = np.array([first[each] for each in runs.segment_id], np.int64)[np.array(runs.segment, np.int64)]
    begins = begins + np.array(runs.first, np.int64)
    counts = np.array(runs.block_count, np.int64)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(np.repeat(begins, counts) + offsets)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=100_000_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cache-bytes", type=int, default=1 << 30)
    parser.add_argument("--disk-cache-bytes", type=int, default=0, help="0: the service has no cache on disk")
    parser.add_argument("--folder", type=Path, default=Path("build/hundred"))
    parser.add_argument("--out", type=Path, default=Path("build/hundred_million.json"))
    options = parser.parse_args(namespace=Options())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    bench = Bench(options)
    results: dict[str, Any] = {"load": round(os.getloadavg()[0], 1), "blocks": options.blocks}
    for part in options.parts:
        results[part] = getattr(bench, part)()
        print(f"{part}: {json.dumps(results[part], indent=1)}", flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
