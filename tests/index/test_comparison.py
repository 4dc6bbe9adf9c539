"""The comparison with other systems names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "index-comparison.md"


def test_every_row_names_a_test_that_is_there() -> None:
    """A row says what shows it, unless it says that something is not here."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 40
    for row in rows:
        _, ours, shown = (cell.strip() for cell in row.strip("|").split(" | ", 2))
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", shown)
        assert named or ours.startswith("not here"), row
        for file, name in named:
            assert (ROOT / file).is_file(), row
            assert not name or re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), row
