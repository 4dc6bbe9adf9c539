"""The load bench: a rate is found, held, doubled, and held again, and what came of every request is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import load
import pytest
from steady.phases import Call, Phase, latency_ms


def called(took_s: float, status: int = 200, failure: str = "") -> Call:
    """What came of a request."""
    return Call("prune", 0.0, took_s, status, failure)


def test_quantiles_are_of_what_was_done() -> None:
    """What was refused or failed is told of beside them, by what it was."""
    calls = [*(called(number / 1000) for number in range(1, 101)), called(9.0, 429), called(9.0, 503)]
    calls += [called(9.0, 500), called(9.0, 0, "timeout"), called(9.0, 404), called(9.0, 404)]
    phase = Phase(rate=10.0, seconds=1.0, calls=calls, lag_s=0.0)
    assert phase.latency_ms() == {"p50": 50.5, "p99": 99.01, "p99.9": 99.9, "max": 100.0}
    assert phase.shed == 2
    assert phase.errors == {"prune: 404": 2, "prune: 500": 1, "timeout": 1}
    assert latency_ms([]) == {}


@pytest.mark.parametrize(
    ("call", "sustained"),
    [(called(0.1), True), (called(0.1, 429), False), (called(0.1, 500), False), (called(9.0), False)],
)
def test_a_rate_is_sustained_when_all_is_done_in_time(call: Call, sustained: bool) -> None:
    """One that is refused, fails or takes long is enough."""
    assert load.meets_limit(Phase(rate=1.0, seconds=1.0, calls=[call], lag_s=0.0)) is sustained


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """A run of the bench; its figures."""
    results = load.run(load.parsed([*arguments, "--out", str(folder / "load.json")]))
    assert json.loads(json.dumps(results)) == results
    assert str(results["highest_rate"].__round__()) in load.table_of(results).replace(",", "")
    return results


def check(results: dict[str, Any]) -> None:
    """Nothing fails; what is too much is refused, and what is not is answered; memory stays."""
    steady, over = results["run"], results["overload"]
    assert steady["errors"] == over["errors"] == {}
    assert steady["done"] + steady["shed"] == steady["sent"]
    assert over["done"] + over["shed"] == over["sent"]
    assert over["done"] > 0
    assert set(steady["latency_ms"]) == {"all", "prune", "get", "list", "commit"}
    assert over["recovered_s"] is not None
    assert over["rss_mib"] - steady["rss_mib"]["start"] < 150


@pytest.mark.soak
def test_a_service_under_load_fails_nobody(tmp_path: Path) -> None:
    """A short run, on a machine that does other things beside it."""
    short = ("--seconds", "5", "--stage-s", "1.5", "--overload-s", "4", "--tables", "2", "--blocks", "200")
    check(run(tmp_path, *short, "--first-rate", "50", "--max-rate", "400"))


@pytest.mark.soak
def test_a_service_under_load_fails_nobody_for_two_minutes(tmp_path: Path) -> None:
    """The run of docs/performance-figures.md."""
    results = run(tmp_path)
    check(results)
    assert results["run"]["shed"] == 0


@pytest.mark.soak
@pytest.mark.postgres
def test_a_service_on_postgresql_under_load_fails_nobody(tmp_path: Path, postgres_database: str) -> None:
    """The same, with the other catalog."""
    check(run(tmp_path, "--seconds", "60", "--catalog", postgres_database))
