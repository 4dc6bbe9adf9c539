"""A lake with a table and a branch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lamella.client import Lamella
from lamella.client.http import Table


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lamella]:
    """A lake of one process, in a folder."""
    with Lamella.embedded(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def table(lake: Lamella) -> Table:
    """``n.t`` with the rows 1 to 3 and a branch ``audit``."""
    table = lake.table("n.t")
    table.append({"x": [1, 2, 3]}, create=True)
    table.create_branch("audit")
    return table


def rows(
    table: Table, filter: str | None = None, *, snapshot_id: str | None = None, timestamp: int | None = None
) -> list[int]:
    """The sorted values of ``x``."""
    found = table.scan(filter, snapshot_id=snapshot_id, timestamp=timestamp).to_arrow()
    return sorted(found.column("x").to_pylist())
