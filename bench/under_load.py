"""Narrow prunes of a busy service: their tail, the garbage collector's pauses, and what else it does meanwhile.

Clients ask again as soon as they have their answer, each filter with literals that were not asked before. The client
has a process of its own, and both share the machine. The first table says the tail as a multiple of the median.

    python bench/under_load.py                             1, 16 and 64 narrow clients, alone
    python bench/under_load.py --beside commits uploads console clean-up
                                                           the same alone, beside each of these, and beside all
    python bench/under_load.py --workers 2 --blocks 10000 100000 1000000
    python bench/under_load.py --clients 16 --wide 200     beside 200 clients of filters that every block is tested for
    python bench/under_load.py --clients 16 --warm-s 0 --seconds 400 --cache-bytes 67108864
                                                           whether the process stops growing when its cache is full
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import strips
import uvloop
from loopback import Service, serving
from page_part import replace_part
from speed import load, tables
from speed.over_http import PRUNE, settings
from speed.questions import question, spark_time, sql, warm_up
from steady.beside import KINDS, cleaned
from steady.caller import Caller
from steady.phases import SHED, Call, latency_ms

_TIMEOUT_S: Final = 120.0
_BLOCKS: Final = 100_000
#: Minimum seconds between two readings of memory.
_MEMORY_EVERY_S: Final = 10.0
_MEMORY_READINGS: Final = 12
#: Seconds that a refused client waits, as the service requests.
_BACK_OFF_S: Final = 1.0
_LIKES: Final = 8
#: Seconds until the work beside has begun.
_BEGIN_S: Final = 2.0
#: How often all segments are opened, so that each of several workers has opened them.
_OPENINGS: Final = 6


class Options(argparse.Namespace):
    """The kinds of requests."""

    blocks: list[int]
    clients: list[int]
    beside: list[str]
    workers: int
    wide: int
    out: Path | None
    merge: list[Path]
    docs: bool
    seconds: float
    warm_s: float
    cache_bytes: int
    folder: Path


def narrow(number: int) -> str:
    """A range of a thousandth of the sorted column."""
    return sql(question("P1", number), spark_time)


def wide(number: int) -> str:
    """Patterns on an unordered column, which no segment summary decides."""
    return " OR ".join(
        f"path LIKE 'tenant-{(number * _LIKES + each) % 1_000:05d}/%{number}%'" for each in range(_LIKES)
    )


async def ask(
    caller: Caller, kind: str, filter: Callable[[int], str], numbers: Iterator[int], until_s: float, calls: list[Call]
) -> None:
    """One client."""
    while (begun_s := time.perf_counter()) < until_s:
        body = json.dumps({"filter": filter(next(numbers)), "shape": "ranges"}).encode()
        answer = await caller.send(load.request(PRUNE, body))
        calls.append(Call(kind, begun_s, time.perf_counter() - begun_s, answer.status, answer.failure))
        if answer.status in SHED:
            await asyncio.sleep(_BACK_OFF_S)


async def run_clients(port: int, clients: int, seconds: float, numbers: Iterator[int], wide_clients: int) -> list[Call]:
    """Run all clients for this long; returns the outcomes of their requests."""
    caller = Caller(port, _TIMEOUT_S)
    until_s = time.perf_counter() + seconds
    calls: list[Call] = []
    narrow_ones = [ask(caller, "narrow", narrow, numbers, until_s, calls) for _ in range(clients)]
    wide_ones = [ask(caller, "wide", wide, numbers, until_s, calls) for _ in range(wide_clients)]
    await asyncio.gather(*narrow_ones, *wide_ones)
    caller.close()
    return calls


def rss_mib(pid: int) -> float:
    """The resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def read_memory(pid: int, seconds: float, readings: list[tuple[float, float]]) -> None:
    """Return readings of a process's memory: seconds since the start, and MiB."""
    began_s = time.perf_counter()
    every_s = max(_MEMORY_EVERY_S, seconds / _MEMORY_READINGS)
    while (after_s := time.perf_counter() - began_s) < seconds:
        readings.append((round(after_s), round(rss_mib(pid), 1)))
        await asyncio.sleep(every_s)


async def run_measured(
    service: Service, clients: int, options: Options, numbers: Iterator[int], readings: list[tuple[float, float]]
) -> list[Call]:
    """All clients for the measured time, and the service's memory meanwhile."""
    memory = asyncio.ensure_future(read_memory(service.pid, options.seconds, readings))
    calls = await run_clients(service.port, clients, options.seconds, numbers, options.wide)
    await memory
    return calls


def pauses(service: Service) -> dict[str, dict[str, float]]:
    """Return the service's pauses so far by generation: number and total seconds, by bucket."""
    text = service.text("/metrics")
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("lamella_gc_pause_seconds_"):
            name, _, value = line.rpartition(" ")
            generation = name.partition('generation="')[2].partition('"')[0]
            edge = name.partition('le="')[2].partition('"')[0]
            kind = name.partition("{")[0].rpartition("_")[2]
            found.setdefault(generation, {})[f"le {edge}" if edge else kind] = float(value)
    return found


def paused(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the pauses in between: number, total milliseconds, and an upper bound of the longest."""
    summaries = {}
    for generation, now in after.items():
        then = before.get(generation, {})
        grown = {key: value - then.get(key, 0.0) for key, value in now.items() if key != "created"}
        edges = [(float(key[3:]), value) for key, value in grown.items() if key.startswith("le ")]
        reached = [edge for edge, value in sorted(edges) if value >= grown["count"]] if grown["count"] else [0.0]
        summaries[generation] = {
            "count": int(grown["count"]),
            "ms": round(grown["sum"] * 1e3, 1),
            "longest_ms_below": round(reached[0] * 1e3, 1),
        }
    return summaries


def summary_of(calls: Sequence[Call], kind: str, seconds: float) -> dict[str, Any]:
    """Return figures of the requests of one kind."""
    own = [call for call in calls if call.kind == kind]
    done = [call.took_s for call in own if call.is_done]
    return {
        "asked": len(own),
        "done_per_s": round(len(done) / seconds, 1),
        "refused_share": round(sum(call.is_shed for call in own) / max(1, len(own)), 3),
        "failed": sum(not (call.is_done or call.is_shed) for call in own),
        "latency_ms": latency_ms(done),
        "refused_ms": latency_ms([call.took_s for call in own if call.is_shed]),
    }


@contextmanager
def doing(service: Service, kinds: Sequence[str], seconds: float, done: dict[str, int]) -> Iterator[None]:
    """The work of these kinds meanwhile; ``done`` says afterwards how often each was done."""
    if not kinds:
        yield
        return
    command = [sys.executable, "-m", "steady.beside", str(service.port), str(seconds), *kinds]
    work = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(_BEGIN_S)
        yield
    finally:
        output, _ = work.communicate(timeout=600)
        done.update(json.loads(output))


def measure(options: Options, blocks: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a table, for each kind of work beside and each number of clients."""
    options.folder.mkdir(parents=True, exist_ok=True)
    made = tables.table(options.folder.resolve(), blocks)
    numbers = itertools.count()
    with TemporaryDirectory() as folder, cleaned(Path(made.folder) / "warehouse"):
        catalog = shutil.copy(made.catalog.removeprefix("sqlite:///"), folder)
        given = settings(made, cache_bytes=str(options.cache_bytes), workers=str(options.workers))
        with serving({**given, "catalog": f"sqlite:///{catalog}"}) as service:
            opening = [*warm_up(made.count), wide(0)]
            bodies = [json.dumps({"filter": text, "shape": "ranges"}).encode() for text in opening]
            for _ in range(_OPENINGS if options.workers > 1 else 1):  # by new connections, so that each worker has some
                load.run(service.port, [load.request(PRUNE, body) for body in bodies], options.workers)
            uvloop.run(run_clients(service.port, max(options.clients), options.warm_s, numbers, 0))
            for kinds in beside_of(options.beside):
                for clients in options.clients:
                    yield measured(service, options, blocks, clients, kinds, numbers)


def beside_of(kinds: Sequence[str]) -> list[list[str]]:
    """Return nothing, each kind alone, and all of them if there are several."""
    return [[], *([kind] for kind in kinds), *([list(kinds)] if len(kinds) > 1 else [])]


def measured(
    service: Service, options: Options, blocks: int, clients: int, kinds: Sequence[str], numbers: Iterator[int]
) -> dict[str, Any]:
    """Return the figures of so many clients beside this work."""
    before = pauses(service)
    load_before = round(os.getloadavg()[0], 1)
    readings: list[tuple[float, float]] = []
    done: dict[str, int] = {}
    with doing(service, kinds, options.seconds + 2 * _BEGIN_S, done):
        calls = uvloop.run(run_measured(service, clients, options, numbers, readings))
    readings.append((round(options.seconds), round(rss_mib(service.pid), 1)))
    return {
        "cores": os.cpu_count(),
        "load": load_before,
        "seconds": options.seconds,
        "workers": options.workers,
        "blocks": blocks,
        "clients": clients,
        "wide_clients": options.wide,
        "beside": done,
        **{kind: summary_of(calls, kind, options.seconds) for kind in ("narrow", *(["wide"] if options.wide else []))},
        "pauses": paused(before, pauses(service)),
        "rss_mib": readings,
    }


def line(found: dict[str, Any]) -> str:
    """Return the figures as a line of the table."""
    narrow_ms = found["narrow"]["latency_ms"]
    beside = ", ".join(f"{kind} {count}" for kind, count in found["beside"].items()) or "nothing"
    return (
        f"{found['blocks']:>10,} {found['workers']:>7} {found['clients']:>7} {narrow_ms['p50']:>8.2f} "
        f"{narrow_ms['p99']:>8.2f} {narrow_ms['p99'] / narrow_ms['p50']:>7.1f} {found['narrow']['done_per_s']:>8,.0f} "
        f"{sum(each['ms'] for each in found['pauses'].values()):>9.1f}  {beside}"
    )


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """Return all figures as a table."""
    seconds = sorted({f"{each['seconds']:g}" for each in found})
    lines = [
        f"Load {found[0]['load']:g} when it began, {found[0]['cores']} cores, {' or '.join(seconds)} seconds each.",
        "",
        "| blocks | workers | beside | clients | p50 ms | p99 ms | p99 / p50 | prunes/s | longest pause ms |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        latency_ms = each["narrow"]["latency_ms"]
        pause_ms = max(generation["longest_ms_below"] for generation in each["pauses"].values())
        lines.append(
            f"| {each['blocks']:,} | {each['workers']} | {_beside(each)} | {each['clients']} "
            f"| {latency_ms['p50']:.2f} | {latency_ms['p99']:.2f} | {latency_ms['p99'] / latency_ms['p50']:.1f} "
            f"| {each['narrow']['done_per_s']:,.0f} | {pause_ms:g} |"
        )
    return "\n".join(lines)


def picture(found: Sequence[dict[str, Any]]) -> str:
    """Return a picture of the smallest table's figures."""
    rows: dict[str, dict[str, Sequence[float]]] = {}
    for each in found:
        if (each["blocks"], each["workers"]) == (found[0]["blocks"], found[0]["workers"]):
            latency_ms = each["narrow"]["latency_ms"]
            name = f"{each['clients']} client{'s' * (each['clients'] > 1)}"
            rows.setdefault(_beside(each), {})[name] = (latency_ms["p50"], latency_ms["p99"])
    title = f"A narrow range of {found[0]['blocks']:,} blocks over HTTP, beside other work of the same process"
    axis = "milliseconds: the median (point) and the 99th percentile (line)"
    return strips.svg(
        title,
        [
            strips.Row(beside, {name: (ms[0],) for name, ms in row.items()}, {name: ms[1] for name, ms in row.items()})
            for beside, row in rows.items()
        ],
        axis,
    )


def _beside(found: dict[str, Any]) -> str:
    kinds = list(found["beside"])
    return "all of these" if len(kinds) > 1 else kinds[0] if kinds else "nothing"


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--blocks", type=int, nargs="+", default=[_BLOCKS])
    made.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64], help="of narrow prunes")
    made.add_argument("--beside", nargs="*", choices=KINDS, default=[], help="what the service does meanwhile")
    made.add_argument("--workers", type=int, default=1)
    made.add_argument("--wide", type=int, default=0, help="clients of expensive filters")
    made.add_argument("--seconds", type=float, default=20.0)
    made.add_argument("--warm-s", type=float, default=20.0, help="narrow prunes before, which fill the memory")
    made.add_argument("--cache-bytes", type=int, default=1 << 30)
    made.add_argument("--folder", type=Path, default=Path("build/speed/tables"))
    made.add_argument("--out", type=Path, default=None, help="all figures as JSON")
    made.add_argument("--merge", type=Path, nargs="+", default=[], help="figures of --out: no run, but these together")
    made.add_argument("--docs", action="store_true", help="write the table of docs/performance-figures.md")
    return made.parse_args(arguments, Options())


def main() -> None:
    """Run and print."""
    options = parsed()
    print("    blocks workers clients   p50 ms   p99 ms p99/p50 prunes/s GC pauses  beside")
    found: list[dict[str, Any]] = []
    for path in options.merge:
        for each in json.loads(path.read_text()):
            print(line(each))
            found.append(each)
    for blocks in () if options.merge else options.blocks:
        for each in measure(options, blocks):
            print(line(each), flush=True)
            found.append(each)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2))
    if options.docs:
        docs = Path(__file__).resolve().parent.parent / "docs"
        replace_part(docs / "performance-figures.md", "python bench/under_load.py --docs", markdown(found))
        (docs / "images" / "performance-tail.svg").write_text(picture(found), "utf-8")


if __name__ == "__main__":
    main()
