"""docs/verify.md and the checks say the same."""

from __future__ import annotations

from pathlib import Path

from lamella.snapshot.verify import CHECKS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verify.md"


def test_every_check_is_documented_as_it_is() -> None:
    """Code, severity, meaning and advice of every check, in the order of the code, and no others."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    shown = [tuple(cell.strip() for cell in row) for row in rows]
    wanted = [(f"`{c.code}`", c.severity, c.meaning, f"{c.advice[0].upper()}{c.advice[1:]}.") for c in CHECKS.values()]
    assert shown == wanted
