"""A run on a small table, with real processes."""

from __future__ import annotations

from pathlib import Path

from speed.pruning import Bench
from speed.questions import NAMES


def test_engines_keep_the_blocks_that_may_match(tmp_path: Path) -> None:
    """Lamella and a yardstick answer each predicate with exactly those blocks; another answer would end the run."""
    engines = ["lamella", "numpy, two layers"]
    found = Bench(tmp_path, budget_s=1.0).measure(2_000, engines)
    assert list(found["engines"]) == engines
    for outcome in found["engines"].values():
        assert set(outcome["timings"]) == set(NAMES)
        assert outcome["left"] == found["may_match"]
        assert "remarks" not in outcome
