"""A service under load: the maximum sustained rate of mixed requests, a long run at it, overload, and recovery.

Requests come at a fixed rate, whether those before were answered or not, and each is timed from when it was due. So a
service that stands still for a second has a second of bad answers, and not one. The service is a process on a loopback
port that asks for keys; several principals prune, list, look at and commit to a few tables. The client has its own
process, and both share the machine: on one with two cores the client takes a good part of it.

    python bench/load.py                                   two minutes at the sustained rate
    python bench/load.py --long                            thirty minutes
    python bench/load.py --catalog postgresql+psycopg://...
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from loopback import Service, serving
from steady.caller import Caller
from steady.mix import SHARES, Mix
from steady.phases import Load, Phase, latency_ms

from lamella.client import Lamella
from lamella.snapshot.tokens import key_sha256, key_text

ROOT_KEY: Final = key_text(bytes(range(32)))
LONG_S: Final = 1_800.0
#: A rate is sustained when nothing fails or is refused, and the 99th percentile is below this time.
MAX_P99_MS: Final = 250.0
#: The run uses this fraction of the sustained rate: other users of the machine may reduce its capacity.
SHARE: Final = 0.8
_TIMEOUT_S: Final = 30.0
_FASTER: Final = 1.5
_LOWER: Final = 1.125
_SETTLES_S: Final = 60.0


class Options(argparse.Namespace):
    """The kinds of requests."""

    seconds: float
    stage_s: float
    overload_s: float
    first_rate: float
    max_rate: float
    tables: int
    blocks: int
    keys: int
    workers: int
    catalog: str | None
    long: bool
    json: bool
    out: Path


def meets_limit(phase: Phase) -> bool:
    """Whether the service sustains the rate of a phase."""
    quick = phase.latency_ms().get("p99", MAX_P99_MS + 1) <= MAX_P99_MS
    return quick and not phase.errors and not phase.shed


async def highest_rate(load: Load, options: Options) -> tuple[float, list[dict[str, Any]]]:
    """Find the maximum sustained rate, within about 10 %; returns the stages of the search, too.

    A rate counts when two stages sustain it: near the limit, one of 8 seconds may or may not.
    """
    stages: list[dict[str, Any]] = []

    async def holds(rate: float) -> bool:
        phase = await load.phase(rate, options.stage_s)
        stages.append({**phase.summary(), "sustained": meets_limit(phase)})
        outcome = "sustained" if stages[-1]["sustained"] else "not sustained"
        say(f"  {rate:8.0f}/s  {outcome}  {stages[-1]['latency_ms']['all']}")
        return bool(stages[-1]["sustained"])

    low, high = 0.0, options.first_rate
    while high <= options.max_rate and await holds(high):
        low, high = high, high * _FASTER
    while high - low > max(low, 10.0) / 8:
        middle = (low + high) / 2
        if await holds(middle):
            low = middle
        else:
            high = middle
    while low >= options.first_rate / 2 and not await holds(low):
        low /= _LOWER
    if low < options.first_rate / 2:
        raise RuntimeError(f"not even {high:.0f} requests a second are sustained: {stages[-1]}")
    return low, stages


async def steady_run(load: Load, rate: float, seconds: float) -> dict[str, Any]:
    """A long run: its figures, and the service's memory over time."""
    part_s = min(10.0, seconds)
    rss = [load.rss_bytes()]
    parts: list[Phase] = []
    for _ in range(max(1, round(seconds / part_s))):
        parts.append(await load.phase(rate, part_s))
        rss.append(load.rss_bytes())
    whole = Phase(
        rate=rate,
        seconds=part_s * len(parts),
        calls=[call for part in parts for call in part.calls],
        lag_s=max(part.lag_s for part in parts),
    )
    half = len(rss) // 2
    return {
        **whole.summary(),
        "rss_mib": {
            "start": mib(rss[0]),
            "end": mib(rss[-1]),
            "max": mib(max(rss)),
            "half": mib(rss[half]),
        },
    }


async def overload(load: Load, rate: float, sustained_rate: float, options: Options) -> dict[str, Any]:
    """Twice the sustained rate for a while, then the run's rate until latencies recover."""
    over = await load.phase(2 * sustained_rate, options.overload_s)
    recovered_s = None
    after: list[Phase] = []
    while len(after) < _SETTLES_S and recovered_s is None:
        after.append(await load.phase(rate, 1.0))
        if meets_limit(after[-1]):
            recovered_s = len(after)
    return {
        **over.summary(),
        "shed_share": round(over.shed / max(1, len(over.calls)), 3),
        "refused_ms": latency_ms([call.took_s for call in over.calls if call.is_shed]),
        "rss_mib": mib(load.rss_bytes()),
        "recovered_s": recovered_s,
    }


async def measure(service: Service, options: Options) -> dict[str, Any]:
    """All phases."""
    with Lamella(f"http://127.0.0.1:{service.port}", token=ROOT_KEY, timeout_s=120) as lake:
        mix = Mix(lake, tables=options.tables, blocks=options.blocks, keys=options.keys)
    caller = Caller(service.port, _TIMEOUT_S)
    load = Load(caller, mix, service.pid)
    await load.phase(options.first_rate / 2, options.stage_s)  # caches fill, code is met for the first time
    say("rates:")
    sustained_rate, stages = await highest_rate(load, options)
    rate = SHARE * sustained_rate
    say(f"run: {options.seconds:.0f} s at {rate:.0f}/s")
    run = await steady_run(load, rate, options.seconds)
    say(f"overload: {options.overload_s:.0f} s at {2 * sustained_rate:.0f}/s")
    over = await overload(load, rate, sustained_rate, options)
    caller.close()
    return {"highest_rate": round(sustained_rate, 1), "stages": stages, "run": run, "overload": over}


def say(text: str) -> None:
    """Print the current step."""
    print(text, file=sys.stderr, flush=True)


def mib(size_bytes: int) -> float:
    """Bytes as mebibytes."""
    return round(size_bytes / (1 << 20), 1)


def table_of(results: dict[str, Any]) -> str:
    """The figures for people."""
    run, over = results["run"], results["overload"]
    lines = [f"highest sustained rate: {results['highest_rate']:,.0f} requests/s", ""]
    lines.append(f"{'':<22}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'shed':>8}{'errors':>8}")
    for name, phase in (("run", run), ("overload", over)):
        for kind, found in phase["latency_ms"].items():
            of_all = kind == "all"
            cells = [f"{phase['rate']:>11,.0f}" if of_all else f"{'':>11}"]
            cells += [f"{found.get(each, float('nan')):>{width}.1f}" for each, width in _COLUMNS]
            shed = f"{phase['shed'] / max(1, phase['sent']):.1%}" if of_all else ""
            errors = str(sum(phase["errors"].values())) if of_all else ""
            lines.append(f"{name + ', ' + kind:<22}{''.join(cells)}{shed:>8}{errors:>8}")
    rss = run["rss_mib"]
    lines += [
        "",
        f"memory: {rss['start']} MiB at the start of the run, {rss['half']} half-way, {rss['end']} at its end, "
        f"{over['rss_mib']} after the overload",
        f"answers come as before {over['recovered_s']} s after the overload",
    ]
    for name, phase in (("run", run), ("overload", over)):
        lines += [f"errors of the {name}: {phase['errors']}"] if phase["errors"] else []
    return "\n".join(lines)


_COLUMNS: Final = (("p50", 9), ("p99", 9), ("p99.9", 10))


def run(options: Options) -> dict[str, Any]:
    """Everything, with a service of its own."""
    settings = {
        "auth": "true",
        "root_key_sha256": key_sha256(ROOT_KEY),
        "workers": str(options.workers),
        "cache_bytes": str(64 << 20),
    }
    if options.catalog is not None:
        settings["catalog"] = options.catalog
    with serving(settings) as service:
        results = uvloop.run(measure(service, options))
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "catalog": "SQLite" if options.catalog is None else options.catalog.partition(":")[0],
        "workers": options.workers,
        "mix": SHARES,
        "tables": options.tables,
        "blocks": options.blocks,
        "principals": options.keys,
        **results,
    }


def parsed(arguments: Sequence[str] | None = None) -> Options:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seconds", type=float, default=120.0, help="length of the run")
    made.add_argument("--long", action="store_true", help="a run of thirty minutes")
    made.add_argument("--stage-s", type=float, default=8.0, help="length of a stage in the search for the rate")
    made.add_argument("--overload-s", type=float, default=20.0)
    made.add_argument("--first-rate", type=float, default=100.0, help="where the search begins")
    made.add_argument("--max-rate", type=float, default=20_000.0, help="where it ends at the latest")
    made.add_argument("--tables", type=int, default=4)
    made.add_argument("--blocks", type=int, default=1_000, help="of each table")
    made.add_argument("--keys", type=int, default=4, help="principals")
    made.add_argument("--workers", type=int, default=1, help="processes of the service")
    made.add_argument("--catalog", help="the service's catalog (default: SQLite beside the warehouse)")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    made.add_argument("--out", type=Path, default=Path("build/load.json"))
    options = made.parse_args(arguments, Options())
    options.seconds = LONG_S if options.long else options.seconds
    return options


def main() -> None:
    """Run, print and keep."""
    options = parsed()
    results = run(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results) if options.json else table_of(results))


if __name__ == "__main__":
    main()
