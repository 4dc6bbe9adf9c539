"""A lake of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vacuum.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty lake over SQLite."""
    made = Lake(str(tmp_path / "catalog.db"))
    yield made
    made.catalog.close()
