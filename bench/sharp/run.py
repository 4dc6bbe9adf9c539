"""One run: every table, every filter, every planner."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from decimal import Context, localcontext
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from sharp.blocks import Blocks, tpch_blocks, value_blocks
from sharp.dialects import SPARK
from sharp.filters import Filter
from sharp.judge import Tally
from sharp.lamella_planner import LamellaPlanner
from sharp.oracle import Oracle, Truth
from sharp.planner import Planner
from sharp.random_filters import Source, random_filters
from sharp.self_check import self_check
from sharp.tpch import AS_WRITTEN, QUERIES

_DIGITS = 100
#: Peers by name, with the module that each needs.
PEERS = {"pyarrow": "pyarrow", "delta-rs": "deltalake", "pyiceberg": "pyiceberg"}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: ``scale`` of TPC-H, ``blocks`` a table and layout, ``filters`` an operator and table."""

    scale: float = 0.5
    blocks: int = 240
    filters: int = 12
    seed: int = 1


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One group of filters on one table: counts by planner. ``kind``: query, written or operator."""

    kind: str
    name: str
    table: str
    tallies: dict[str, Tally]
    filters: tuple[str, ...]
    worst: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All lines, what the self-check said, and which peers were not there."""

    options: Options
    lines: tuple[Line, ...]
    self_check: tuple[str, ...]
    missing: tuple[str, ...]
    versions: dict[str, str]
    seconds: float


def missing_peers() -> tuple[str, ...]:
    """Return the peers whose package is not installed."""
    return tuple(name for name, module in PEERS.items() if importlib.util.find_spec(module) is None)


def run(folder: Path, options: Options, say: Callable[[str], None]) -> Result:
    """Run everything; ``say`` is called with the current step."""
    with localcontext(Context(prec=_DIGITS)):  # decimals of 38 digits, and sums and products of them, are exact
        return _run(folder, options, say)


def _run(folder: Path, options: Options, say: Callable[[str], None]) -> Result:
    started = time.perf_counter()
    missing = missing_peers()
    lines: list[Line] = []
    checked: list[str] = []
    for blocks, scanned in _tables(folder, options):
        name = f"{blocks.name}, measured" if scanned else blocks.name
        say(f"{name}: {len(blocks.rows):,} rows in {len(blocks.files)} files")
        oracle = Oracle(blocks.rows, nan_known=scanned)
        planners = _planners(blocks, folder, missing, scanned=scanned)
        rng = Random(options.seed)
        groups = [] if scanned else _queries(blocks.table)
        groups += [("operator", n, fs) for n, fs in random_filters(Source(blocks.rows, rng), options.filters).items()]
        truths = oracle.truths([node for _, _, filters in groups for node in filters])
        if not checked:
            checked = self_check([t for t in truths if t.some.any() and not t.every.all() and t.decided_none.any()])
        rest = iter(truths)
        for kind, group, filters in groups:
            lines.append(_line(kind, group, name, filters, rest, planners))
        oracle.close()
    return Result(
        options=options,
        lines=tuple(lines),
        self_check=tuple(checked),
        missing=missing,
        versions=_versions(missing),
        seconds=round(time.perf_counter() - started, 1),
    )


def _tables(folder: Path, options: Options) -> Iterator[tuple[Blocks, bool]]:
    values = value_blocks(folder, options.blocks, options.seed)
    for scanned in (False, True):
        yield values, scanned
    for blocks in tpch_blocks(folder, options.scale, options.blocks):
        yield blocks, False


def _queries(table: str) -> list[tuple[str, str, list[Filter]]]:
    return [
        (kind, query.name, [query.filter])
        for kind, queries in (("query", QUERIES), ("written", AS_WRITTEN))
        for query in queries
        if query.table == table
    ]


def _planners(blocks: Blocks, folder: Path, missing: tuple[str, ...], *, scanned: bool) -> list[Planner]:
    # Imported here: a peer that is not installed is named in the report and left out.
    root = folder / "planners" / blocks.name.replace(" ", "-").replace(",", "")
    planners: list[Planner] = [LamellaPlanner(blocks, root / f"lamella-{scanned}", scanned=scanned)]
    if scanned:
        return planners
    if "pyarrow" not in missing:
        from sharp.arrow_peer import ArrowPlanner

        planners.append(ArrowPlanner(blocks))
    if "delta-rs" not in missing:
        from sharp.delta_peer import DeltaPlanner

        planners.append(DeltaPlanner(blocks))
    if "pyiceberg" not in missing:
        from sharp.iceberg_peer import IcebergPlanner

        planners.append(IcebergPlanner(blocks, root / "iceberg"))
    return planners


def _line(
    kind: str, name: str, table: str, filters: list[Filter], truths: Iterator[Truth], planners: list[Planner]
) -> Line:
    tallies = {planner.name: Tally() for planner in planners}
    worst: tuple[int, str] | None = None
    for node in filters:
        truth = next(truths)
        for planner in planners:
            before = tallies[planner.name].decided_pruned
            tallies[planner.name].add(truth, planner.plan(node))
            if planner.name == LamellaPlanner.name:
                missed = int(truth.decided_none.sum()) - (tallies[planner.name].decided_pruned - before)
                if missed and (worst is None or missed > worst[0]):
                    worst = missed, SPARK.sql(node)[:300]
    texts = tuple(SPARK.sql(node)[:300] for node in filters) if kind != "operator" else ()
    return Line(kind=kind, name=name, table=table, tallies=tallies, filters=texts, worst=worst and worst[1])


def _versions(missing: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import version

    modules: dict[str, Any] = {"duckdb": "duckdb", **PEERS}
    return {name: version(module) for name, module in modules.items() if name not in missing}
