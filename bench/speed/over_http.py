"""Lamella as a service: prunes beside an empty route of the same process, at one client and at sixteen."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec
from loopback import Service, serving

from lamella.snapshot.wire.prune import Shape
from speed import load
from speed.clock import cpu_s
from speed.inside import CACHE_BYTES
from speed.questions import NAMES, question, spark_time, sql, warm_up
from speed.tables import Made

PRUNE: Final = "/v1/namespaces/bench/tables/t/prune"
FLOOR: Final = load.request("/health/live")
_ROUNDS: Final = 3
#: Requests of one round, by clients.
_REQUESTS: Final = {1: 400, 16: 1_600}
CLIENTS: Final = tuple(_REQUESTS)


def settings(made: Made, **more: str) -> dict[str, str]:
    """A service's settings for a table of ours."""
    return {"warehouse": made.root, "catalog": made.catalog, "cache_bytes": str(CACHE_BYTES), **more}


def asking(name: str, number: int, shape: str = "columns", **more: Any) -> bytes:
    """A prune request as it travels; ``number`` picks the literals."""
    return _filtered(sql(question(name, number), spark_time), shape, **more)


def _filtered(text: str, shape: str = "columns", **more: Any) -> bytes:
    return load.request(PRUNE, json.dumps({"filter": text, "shape": shape, **more}).encode())


def measure(made: Made, budget_s: float) -> dict[str, Any]:
    """Latency, throughput and the service's processor time per request, warm; one process serves."""
    found: dict[str, Any] = {"blocks": made.count}
    with serving(settings(made)) as service:
        numbers = iter(range(10**9))

        def narrow(count: int) -> list[bytes]:
            return [asking("P1", next(numbers)) for _ in range(count)]

        load.run(service.port, [_filtered(text) for text in warm_up(made.count)], 1)
        load.run(service.port, narrow(50), 1)
        for clients, count in _REQUESTS.items():
            found[f"{clients} clients"] = _beside(service, narrow, clients, count)
        shapes = [shape for shape in ("columns", "ranges") if shape in get_args(Shape)]
        share_s = budget_s / len(NAMES) / len(shapes)
        found["predicates"] = {shape: {name: _one(service, name, shape, share_s) for name in NAMES} for shape in shapes}
    return found


def _beside(service: Service, narrow: Callable[[int], list[bytes]], clients: int, count: int) -> dict[str, Any]:
    """The empty route and the narrow range in turns; medians of the rounds."""
    rounds: dict[str, list[dict[str, float]]] = {"empty": [], "narrow": []}
    for _ in range(_ROUNDS):
        for name, requests in (("empty", [FLOOR] * count), ("narrow", narrow(count))):
            before = cpu_s(service.pid)
            done = load.run(service.port, requests, clients)
            cpu_ms = (cpu_s(service.pid) - before) * 1e3 / count
            rounds[name].append({**msgspec.to_builtins(done), "cpu_ms": cpu_ms})
    middle = {
        name: {key: round(statistics.median(each[key] for each in found), 4) for key in found[0]}
        for name, found in rounds.items()
    }
    pairs = list(zip(rounds["narrow"], rounds["empty"], strict=True))
    return {
        **middle,
        "p50_ratio": round(statistics.median(a["p50_ms"] / b["p50_ms"] for a, b in pairs), 2),
        "cpu_ratio": round(middle["narrow"]["cpu_ms"] / max(middle["empty"]["cpu_ms"], 1e-6), 2),
        "throughput_ratio": round(statistics.median(a["per_second"] / b["per_second"] for a, b in pairs), 2),
    }


def _one(service: Service, name: str, shape: str, budget_s: float) -> dict[str, Any]:
    """One predicate, one client: as many requests as the budget has room for, up to 200."""
    first = load.run(service.port, [asking(name, 0, shape)], 1)
    count = max(1, min(200, int(budget_s * 1e3 / max(first.p50_ms, 0.1))))
    before = cpu_s(service.pid)
    done = load.run(service.port, [asking(name, number, shape) for number in range(1, count + 1)], 1)
    cpu_ms = (cpu_s(service.pid) - before) * 1e3 / count
    return {**msgspec.to_builtins(done), "cpu_ms": round(cpu_ms, 3), "first_ms": first.p50_ms}
