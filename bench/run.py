"""Lamella compared with its alternatives, in one run.

``make bench`` measures everything; ``ARGS`` narrows it::

    make bench ARGS="--sizes 10000 100000 --parts prune http"
    make bench ARGS="--engines lamella 'numpy, two layers' --sizes 1000000 --parts prune"
    make bench ARGS="--beside before=../lamella-as-it-was --parts prune"
    make bench ARGS="--docs"            # writes the tables of docs/performance-figures.md, and the plot
    make bench ARGS="--merge build/one.json build/other.json --docs"     # measures nothing, shows tables of both

Peers are named with their versions; one that is not installed, or not for this Python, is named with the reason, and
so is what a peer cannot be asked. ``bench/peers.py``, which ``make bench`` runs first, installs what can be had.

Machines are noisy: trust ratios of one run, and processor time more than the clock's. Tables are kept in
``build/speed`` for the next run. ``build/bench.json`` has every figure; ``docs/performance-figures.md`` says how to
read them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import appends
import commit_growth
import msgspec
from speed import cold, memory, over_http, registering, report, tables
from speed.engine import ENGINES, FLOORS, OURS
from speed.figures import figures
from speed.merging import merged
from speed.pruning import Bench
from speed.self_check import check

SIZES: Final = (10_000, 100_000, 1_000_000, 10_000_000)
PARTS: Final = ("prune", "http", "cold", "memory", "register", "appends", "commit")
_BENCH: Final = Path(__file__).parent


class Run:
    """One run; ``results`` is written to disk after each part, so that finished parts are not lost."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._tables = Path(options.folder).resolve() / "tables"
        self._tables.mkdir(parents=True, exist_ok=True)
        self.results: dict[str, Any] = {"machine": {**_machine(), "options": _said(options)}}

    def parts(self, parts: Sequence[str]) -> None:
        """Measure them, one after another."""
        for part in parts:
            print(f"== {part}", flush=True)
            self.results[part] = getattr(self, f"_{part}")()
            _write(self.results, self._options.out)

    def _prune(self) -> dict[str, Any]:
        beside = dict(each.split("=", 1) for each in self._options.beside)
        bench = Bench(self._tables, self._options.budget, {name: Path(path) for name, path in beside.items()})
        found: dict[str, Any] = {}
        for size in self._options.sizes:
            print(f"{size:,} blocks, ms of processor time:{''.join(f'{name:>11}' for name in report.PREDICATES)}")
            found[str(size)] = bench.measure(size, self._options.engines)
            _write({**self.results, "prune": found}, self._options.out)  # a larger size may take an hour
        return found

    def _http(self) -> dict[str, Any]:
        found = {}
        for made in self._served():
            each = found[str(made.count)] = over_http.measure(made, self._options.budget / 5)
            for clients in over_http.CLIENTS:
                for shape, figures_of in each[f"{clients} clients"].items():
                    print(
                        f"{made.count:,} blocks, {clients} clients, {shape}: p50 {figures_of['p50_ms']:.2f} ms "
                        f"({figures_of['p50_ms_ratio']:.1f}), processor {figures_of['cpu_ms']:.3f} ms "
                        f"({figures_of['cpu_ms_ratio']:.1f}), {figures_of['per_second']:,.0f} requests/s "
                        f"({figures_of['per_second_ratio']:.2f} times an empty route)",
                        flush=True,
                    )
        return found

    def _cold(self) -> dict[str, Any]:
        found = {}
        for made in self._served():
            found[str(made.count)] = {
                "blocks": made.count,
                "process": cold.in_new_process(made),
                "service": cold.over_http(made),
            }
            print(f"{made.count:,} blocks: {json.dumps(found[str(made.count)])}", flush=True)
        return found

    def _memory(self) -> dict[str, Any]:
        made = list(self._served())[-1]
        found = {"column": memory.of_columns(made), "answers": memory.of_large_answers(made)}
        print(json.dumps(found, indent=1), flush=True)
        return found

    def _register(self) -> dict[str, Any]:
        folder = Path(self._options.folder).resolve() / f"files-{self._options.files}"
        found = registering.measure(folder, self._options.files)
        for name, each in found.items():
            if isinstance(each, dict):
                print(f"{name:<30}{json.dumps(each)}", flush=True)
        return found

    def _appends(self) -> dict[str, Any]:
        return appends.run(self._options.appends, self._options.peer_appends)

    def _commit(self) -> dict[str, Any]:
        return commit_growth.measure((1_000, 100_000), 70)

    def _served(self) -> list[tables.Made]:
        """The tables that a service serves: not the largest, whose segments have no JSON."""
        sizes = [size for size in self._options.sizes if size <= tables.WHOLE_UP_TO] or [SIZES[0]]
        return [tables.table(self._tables, size) for size in sizes]


def _write(results: dict[str, Any], out: Path) -> None:
    results["figures"] = [msgspec.to_builtins(figure) for figure in figures(results)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")


def _said(options: argparse.Namespace) -> str:
    """The options that say what was measured, as on the command line; not where it was put."""
    said = [f"--parts {' '.join(options.parts)}"]
    if set(options.parts) & {"prune", "http", "cold", "memory"}:
        said += [f"--sizes {' '.join(map(str, options.sizes))}", f"--budget {options.budget:g}"]
    said += ["--ours"] if options.ours else []
    if not options.ours and options.engines != list(ENGINES):
        said.append("--engines " + " ".join(f"'{name}'" for name in options.engines))
    if "register" in options.parts:
        said.append(f"--files {options.files}")
    return " ".join(said)


def _machine() -> dict[str, Any]:
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    model = [line.split(":", 1)[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "cpus": os.cpu_count(),
        "cpu": model[0].strip() if model else platform.machine(),
        "python": platform.python_version(),
        "commit": commit,
        "load_at_start": round(os.getloadavg()[0], 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="blocks, ascending")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--ours", action="store_true", help="only Lamella and the yardsticks")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for one engine at one size")
    parser.add_argument(
        "--beside", nargs="+", default=[], metavar="NAME=TREE", help="other states of Lamella's sources"
    )
    parser.add_argument("--files", type=int, default=10_000, help="Parquet files to register")
    parser.add_argument("--appends", type=int, default=1_000, help="by 64 clients")
    parser.add_argument("--peer-appends", type=int, default=200, help="pyiceberg's and delta-rs's; 0: none")
    parser.add_argument("--folder", default="build/speed", help="where tables are kept")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument(
        "--docs", action="store_true", help="write the tables of docs/performance-figures.md, and the plot"
    )
    parser.add_argument(
        "--docs-peers", action="store_true", help="write the tables of the newest peers in docs/performance-figures.md"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing: read --out again")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        metavar="JSON",
        help="measure nothing: put the tables of these runs together; of two of the same part and size the later stays",
    )
    options = parser.parse_args()
    if options.out.resolve() in [file.resolve() for file in options.merge]:
        parser.error(f"--out {options.out} is one of the files to merge: name another")
    if options.ours:
        options.engines = [*OURS, *FLOORS]
    return options


def main() -> None:
    """Measure, print, write."""
    options = _options()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_BENCH), os.environ.get("PYTHONPATH")]))
    if options.merge:
        results = merged([json.loads(file.read_text()) for file in options.merge])
        _write(results, options.out)
    elif options.report:
        results = json.loads(options.out.read_text())
    else:
        check()
        run = Run(options)
        run.parts(options.parts)
        results = run.results
    print(report.text(results))
    if options.docs:
        report.write_docs(results, _BENCH.parent / "docs")
    if options.docs_peers:
        report.write_peers(results, _BENCH.parent / "docs")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
