"""Three simulated days of an untuned table whose policy has the rule ``auto``, beside one that nobody takes care of."""

from __future__ import annotations

from pathlib import Path

import auto_days
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_an_untuned_table_gets_into_shape_within_its_budget(tmp_path: Path) -> None:
    """On the third day a fifth of the blocks that are read has no row, or fewer; predictions hold in nine of ten."""
    rows = auto_days.rows_of(ROOT / "build" / "speed" / "tpch-0.05", 0.05)
    found = auto_days.simulate(rows, tmp_path, ("nothing", "auto"), days=3, queries=20.0, seed=1)
    print(auto_days.markdown(found))  # with -s: the figures of docs/auto.md
    auto, nothing = found.days["auto"], found.days["nothing"]
    assert auto[2].empty <= 0.2 * auto[2].read
    assert all(one.read < other.read / 2 for one, other in zip(auto, nothing, strict=True))
    assert all(day.rewritten_bytes <= found.table_bytes for day in auto)
    errors = auto_days.prediction_errors(found.actions)
    assert len(errors) > 50
    assert sum(each <= 0.1 for each in errors) >= 0.9 * len(errors)
    assert all(each.state in ("succeeded", "undone", "disappointing") for each in found.actions)
    reads = [each for each in found.actions if each.candidate.gain is not None and each.state == "succeeded"]
    assert all(each.measured is not None for each in reads)
