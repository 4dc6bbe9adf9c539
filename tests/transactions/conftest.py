"""A lake with two tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lamella.client import Lamella


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lamella]:
    """``n.a`` with the rows 1 to 3, and ``n.b`` with a value for each, in a block of its own."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        lake.table("n.a").append({"x": [1, 2, 3]}, create=True)
        lake.table("n.b").append({"x": [1, 2, 3], "y": [1, 2, 3]}, create=True, target_block_rows=1)
        yield lake
