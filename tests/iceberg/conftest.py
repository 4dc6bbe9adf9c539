"""A service for tables that are exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures_server import start_shared
from lamella.client.http import Lamella
from support.event_tables import EventTable

MakeTable = Callable[..., EventTable]


@pytest.fixture(scope="session")
def export_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of one whose clean-up judges what is a moment old."""
    folder = tmp_path_factory.mktemp("export")
    settings = {"warehouse": folder / "warehouse", "vacuum_min_age_s": "0", "retention_max_age_s": "0"}
    server = start_shared(pytestconfig, folder, settings)
    yield server.url
    server.stop()


@pytest.fixture
def make_table(export_url: str, tmp_path: Path) -> Iterator[MakeTable]:
    """Makes tables of events."""
    with Lamella(export_url) as lake:

        def make(**more: Any) -> EventTable:
            return EventTable(lake, tmp_path, **more)

        yield make
