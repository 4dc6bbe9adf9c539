"""Lamella as a service: prunes compared with an empty route of the same process, with one client and with sixteen."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
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
EMPTY: Final = "empty route"
SHAPES: Final = ("columns", "ranges")
#: Requests of one round, by clients.
_REQUESTS: Final = {1: 400, 16: 1_600}
CLIENTS: Final = tuple(_REQUESTS)


def settings(made: Made, **more: str) -> dict[str, str]:
    """A service's settings for a table of ours."""
    return {"warehouse": made.root, "catalog": made.catalog, "cache_bytes": str(CACHE_BYTES), **more}


def asking(name: str, number: int, shape: str = "columns", **more: Any) -> bytes:
    """Return a prune request as sent; ``number`` selects the literals."""
    return _filtered(sql(question(name, number), spark_time), shape, **more)


def _filtered(text: str, shape: str = "columns", **more: Any) -> bytes:
    return load.request(PRUNE, json.dumps({"filter": text, "shape": shape, **more}).encode())


def measure(made: Made, budget_s: float) -> dict[str, Any]:
    """Latency, throughput and the service's processor time per request, warm; one process serves."""
    found: dict[str, Any] = {"blocks": made.count}
    fresh = itertools.count()  # literals not used before, in any shape: results are cached by filter
    shapes = [shape for shape in SHAPES if shape in get_args(Shape)]
    with serving(settings(made)) as service:
        load.run(service.port, [_filtered(text) for text in warm_up(made.count)], 1)
        for clients in _REQUESTS:
            found[f"{clients} clients"] = _beside(service, clients, shapes, fresh)
        share_s = budget_s / len(NAMES) / len(shapes)
        found["predicates"] = {
            shape: {name: _one(service, name, shape, share_s, fresh) for name in NAMES} for shape in shapes
        }
    return found


def _beside(service: Service, clients: int, shapes: Sequence[str], fresh: Iterator[int]) -> dict[str, Any]:
    """The empty route and the narrow range, in each shape, in turns; medians of the rounds."""
    count = _REQUESTS[clients]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in (EMPTY, *shapes)}
    for number in range(-1, _ROUNDS):
        for name, found in rounds.items():
            requests = [FLOOR if name == EMPTY else asking("P1", next(fresh), name) for _ in range(count)]
            if number < 0:  # warm up
                load.run(service.port, requests, clients)
                continue
            before = cpu_s(service.pid)
            done = load.run(service.port, requests, clients)
            found.append({**msgspec.to_builtins(done), "cpu_ms": (cpu_s(service.pid) - before) * 1e3 / count})
    return {name: _middle(found, rounds[EMPTY]) for name, found in rounds.items()}


def _middle(found: Sequence[dict[str, float]], empty: Sequence[dict[str, float]]) -> dict[str, float]:
    """Medians of the rounds, and of their ratios to the empty route's of the same round."""
    middle = {key: round(statistics.median(each[key] for each in found), 4) for key in found[0]}
    for key in ("p50_ms", "cpu_ms", "per_second"):
        ratios = [ours[key] / max(theirs[key], 1e-6) for ours, theirs in zip(found, empty, strict=True)]
        middle[f"{key}_ratio"] = round(statistics.median(ratios), 2)
    return middle


def _one(service: Service, name: str, shape: str, budget_s: float, fresh: Iterator[int]) -> dict[str, Any]:
    """Measure one predicate with one client: as many requests as fit into the budget, up to 200."""
    first = load.run(service.port, [asking(name, next(fresh), shape)], 1)
    count = max(1, min(200, int(budget_s * 1e3 / max(first.p50_ms, 0.1))))
    before = cpu_s(service.pid)
    done = load.run(service.port, [asking(name, next(fresh), shape) for _ in range(count)], 1)
    cpu_ms = (cpu_s(service.pid) - before) * 1e3 / count
    return {**msgspec.to_builtins(done), "cpu_ms": round(cpu_ms, 3), "first_ms": first.p50_ms}
