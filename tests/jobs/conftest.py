"""One service for all tests of jobs."""

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
def jobs_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """Its address."""
    folder = tmp_path_factory.mktemp("jobs")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    yield server.url
    server.stop()


@pytest.fixture
def make_table(jobs_url: str, tmp_path: Path) -> Iterator[MakeTable]:
    """Makes tables of events."""
    with Lamella(jobs_url) as lake:

        def make(**more: Any) -> EventTable:
            return EventTable(lake, tmp_path, **more)

        yield make
