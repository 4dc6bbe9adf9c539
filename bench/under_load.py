"""Narrow prunes of one process while it is busy: their tail, the garbage collector's pauses, and expensive filters.

Clients ask again as soon as they have their answer, each filter with literals that were not asked before. ``--wide``
clients ask filters that every block is tested for; what each of them gets, and how many are refused, is told beside
the narrow ones. The client has a process of its own, and both share the machine.

    python bench/under_load.py                          16 narrow clients: p50, p99, and pauses
    python bench/under_load.py --wide 200 --clients 16  the same beside 200 clients of expensive filters
    python bench/under_load.py --warm-s 0 --seconds 400 --cache-bytes 67108864
                                                        whether the process stops growing when its cache is full
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from loopback import Service, serving
from speed import load, tables
from speed.over_http import PRUNE, settings
from speed.questions import question, spark_time, sql, warm_up
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


class Options(argparse.Namespace):
    """The kinds of requests."""

    blocks: int
    clients: int
    wide: int
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


async def run_clients(
    port: int, options: Options, seconds: float, numbers: Iterator[int], wide_clients: int
) -> list[Call]:
    """Run all clients for this long; returns the outcomes of their requests."""
    caller = Caller(port, _TIMEOUT_S)
    until_s = time.perf_counter() + seconds
    calls: list[Call] = []
    narrow_ones = [ask(caller, "narrow", narrow, numbers, until_s, calls) for _ in range(options.clients)]
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
    service: Service, options: Options, numbers: Iterator[int], readings: list[tuple[float, float]]
) -> list[Call]:
    """All clients for the measured time, and the service's memory meanwhile."""
    memory = asyncio.ensure_future(read_memory(service.pid, options.seconds, readings))
    calls = await run_clients(service.port, options, options.seconds, numbers, options.wide)
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


def measure(options: Options) -> dict[str, Any]:
    """The figures."""
    options.folder.mkdir(parents=True, exist_ok=True)
    made = tables.table(options.folder.resolve(), options.blocks)
    numbers = itertools.count()
    with serving(settings(made, cache_bytes=str(options.cache_bytes))) as service:
        opening = [json.dumps({"filter": text, "shape": "ranges"}).encode() for text in (*warm_up(made.count), wide(0))]
        load.run(service.port, [load.request(PRUNE, body) for body in opening], 1)
        uvloop.run(run_clients(service.port, options, options.warm_s, numbers, 0))
        before = pauses(service)
        readings: list[tuple[float, float]] = []
        calls = uvloop.run(run_measured(service, options, numbers, readings))
        readings.append((round(options.seconds), round(rss_mib(service.pid), 1)))
        after = pauses(service)
    kinds = ("narrow", "wide") if options.wide else ("narrow",)
    return {
        "cores": os.cpu_count(),
        "blocks": made.count,
        "clients": options.clients,
        "wide_clients": options.wide,
        **{kind: summary_of(calls, kind, options.seconds) for kind in kinds},
        "pauses": paused(before, after),
        "rss_mib": readings,
    }


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--blocks", type=int, default=_BLOCKS)
    made.add_argument("--clients", type=int, default=16, help="of narrow prunes")
    made.add_argument("--wide", type=int, default=0, help="clients of expensive filters")
    made.add_argument("--seconds", type=float, default=20.0)
    made.add_argument("--warm-s", type=float, default=20.0, help="narrow prunes before, which fill the memory")
    made.add_argument("--cache-bytes", type=int, default=1 << 30)
    made.add_argument("--folder", type=Path, default=Path("build/speed/tables"))
    return made.parse_args(arguments, Options())


def main() -> None:
    """Run and print."""
    print(json.dumps(measure(parsed()), indent=2))


if __name__ == "__main__":
    main()
