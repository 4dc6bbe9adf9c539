"""A service for tables whose files belong to somebody else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures_server import start_shared
from lamella.client import Lamella

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def catalog_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Iceberg catalog is that the service knows as "prod"."""
    return tmp_path_factory.mktemp("iceberg")


@pytest.fixture(scope="session")
def lake(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, catalog_folder: Path
) -> Iterator[Lamella]:
    """A service with SQLite and a local warehouse, and its client."""
    folder = tmp_path_factory.mktemp("external")
    catalogs = {"prod": {"type": "sql", "uri": f"sqlite:///{catalog_folder}/catalog.db", "warehouse": "unused"}}
    settings = {"warehouse": folder / "warehouse", "iceberg_catalogs": json.dumps(catalogs), "page_sidecars": "true"}
    server = start_shared(pytestconfig, folder, settings)
    with Lamella(server.url) as lake:
        lake.create_namespace("x")
        yield lake
    assert server.stop() == 0, server.log_text()


@pytest.fixture
def name() -> str:
    """A table's name that no other test has."""
    return f"x.t{next(_NAMES)}"
