"""Ratios with goals, each computed from the results of one run."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from speed.engine import OURS, PEERS
from speed.merging import run_of
from speed.questions import NAMES

#: Predicates that are compared with the two-layer floor.
BESIDE_FLOOR: Final = ("P1", "P3", "P4", "P6")
FLOOR: Final = "numpy, two layers"
BY_HAND: Final = "delta-rs by hand"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One ratio or measure: ``goal`` as text, and whether it was reached (None: not a question of yes or no).

    ``run``: the number of the run that it is of.
    """

    name: str
    value: float
    unit: str = ""
    goal: str = ""
    reached: bool | None = None
    run: int = 1


def cpu_ms(size: dict[str, Any], engine: str, predicate: str) -> float | None:
    """Processor time of one prune, None where it was not run."""
    timing = size["engines"].get(engine, {}).get("timings", {}).get(predicate)
    return None if timing is None else float(timing["cpu_ms"])


def best_of_ours(size: dict[str, Any], predicate: str) -> float | None:
    """Return the minimum processor time among the shapes of Lamella's answers."""
    found = [ms for name in OURS if (ms := cpu_ms(size, name, predicate)) is not None]
    return min(found, default=None)


def fastest_peer(size: dict[str, Any], predicate: str, *, by_hand: bool) -> tuple[str, float] | None:
    """Return the peer with the minimum processor time; ``by_hand``: include manual tests on a library's table."""
    found = [
        (ms, name)
        for name in PEERS
        if (by_hand or name != BY_HAND) and (ms := cpu_ms(size, name, predicate)) is not None
    ]
    return (min(found)[1], min(found)[0]) if found else None


def figures(results: dict[str, Any]) -> list[Figure]:
    """All that the results have something to say about."""
    found: list[Figure] = []
    for size in results.get("prune", {}).values():
        found += _marked(_of_size(size), size)
    found += _growth(results.get("prune", {}))
    for size in results.get("http", {}).values():
        found += _marked(_http(size), size)
    for size in results.get("cold", {}).values():
        found += _marked(_cold(size), size)
    for part, read in (("memory", _memory), ("register", _register)):
        table = results.get(part, {})
        found += _marked(read(table), table)
    return found


def _marked(found: list[Figure], table: dict[str, Any]) -> list[Figure]:
    """Figures of a table with the number of its run."""
    return [msgspec.structs.replace(figure, run=run_of(table)) for figure in found]


def _of_size(size: dict[str, Any]) -> list[Figure]:
    found = []
    count = f"{size['blocks']:,} blocks"
    for predicate in NAMES:
        ours = best_of_ours(size, predicate)
        if ours is None:
            continue
        floor = cpu_ms(size, FLOOR, predicate)
        if floor and predicate in BESIDE_FLOOR:
            goal = size["blocks"] >= 1_000_000
            ratio = ours / floor
            found.append(_at_most(f"{predicate}, {count}: times the two-layer yardstick", ratio, 1.5 if goal else None))
        max_value = {"P2": 2.0, "P5": 7.0}.get(predicate)
        if max_value and size["blocks"] == 1_000_000:
            found.append(_at_most(f"{predicate}, {count}", ours, max_value, " ms"))
        for by_hand in (False, True):
            peer = fastest_peer(size, predicate, by_hand=by_hand)
            if peer is None or (by_hand and peer[0] != BY_HAND):
                continue
            min_factor = 100.0 if predicate == "P1" and size["blocks"] == 1_000_000 and not by_hand else 1.0
            found.append(_at_least(f"{predicate}, {count}: times as fast as {peer[0]}", peer[1] / ours, min_factor))
    return found


def _growth(sizes: dict[str, Any]) -> list[Figure]:
    small, large = sizes.get("10000"), sizes.get("1000000")
    if small is None or large is None or run_of(small) != run_of(large):
        return []
    first, last = best_of_ours(small, "P1"), best_of_ours(large, "P1")
    if not first or not last:
        return []
    return _marked([_at_most("P1: times as long at 1e6 as at 1e4 blocks", last / first, 3)], small)


def _http(size: dict[str, Any]) -> list[Figure]:
    found = []
    goal = size["blocks"] == 1_000_000
    for clients in ("1 clients", "16 clients"):
        for shape, each in size[clients].items():
            if shape == "empty route":
                continue
            name = f"narrow range over HTTP, {shape}, {size['blocks']:,} blocks, {clients}"
            found.append(_at_most(f"{name}: p50, times an empty route", each["p50_ms_ratio"], 1.5 if goal else None))
            share = each["per_second_ratio"]
            found.append(_at_least(f"{name}: throughput, share of an empty route", share, 0.6 if goal else None))
    return found


def _cold(size: dict[str, Any]) -> list[Figure]:
    goal = size["blocks"] == 1_000_000
    count = f"{size['blocks']:,} blocks"
    service = size["service"]["empty cache"]
    allowed = 10 * service["warm_ms"] + size["process"]["read_ms"]
    max_ms = min(1_000.0, allowed) if goal else None
    found = [_at_most(f"first prune of a service without cache, {count}", service["first_ms"], max_ms, " ms")]
    warm = size["service"].get("warm disk cache")
    if warm is not None:
        max_ms = 100 if goal else None
        found.append(_at_most(f"first prune after a restart, {count}", warm["first_ms"], max_ms, " ms"))
    return found


def _memory(memory: dict[str, Any]) -> list[Figure]:
    found = []
    for name, column in memory.get("column", {}).items():
        title = f"memory of one int64 column, {name}, {column['blocks']:,} blocks"
        found.append(_at_most(title, column["bytes_per_block"], 32, " bytes a block"))
    for shape, answer in memory.get("answers", {}).items():
        if shape != "blocks":
            title = f"memory above idle while all blocks are answered, {shape}"
            found.append(_at_most(title, answer["peak_above_idle_mb"], 200, " MB"))
    return found


def _register(register: dict[str, Any]) -> list[Figure]:
    ours = register.get("lamella")
    if not ours:
        return []
    return [
        _at_least(
            f"files registered per second of the processor: times {name}",
            ours["per_cpu_second"] / each["per_cpu_second"],
            3,
        )
        for name, each in register.items()
        if isinstance(each, dict) and "per_cpu_second" in each and not name.startswith("lamella")
    ]


def _at_most(name: str, value: float, maximum: float | None, unit: str = "") -> Figure:
    goal = "" if maximum is None else f"<= {maximum:g}{unit}"
    return Figure(
        name=name, value=_rounded(value), unit=unit, goal=goal, reached=None if maximum is None else value <= maximum
    )


def _at_least(name: str, value: float, minimum: float | None) -> Figure:
    goal = "" if minimum is None else f">= {minimum:g}"
    return Figure(name=name, value=_rounded(value), goal=goal, reached=None if minimum is None else value >= minimum)


def _rounded(value: float) -> float:
    """Format with three significant digits."""
    return round(value, 2 - math.floor(math.log10(abs(value)))) if value else 0.0
