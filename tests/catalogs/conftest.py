"""A Hive Metastore, a Spark with its tables, and a service that imports them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogs.hive_server import HiveSpark, Metastore
from fixtures_server import start_shared
from lamella.client import Lamella

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def metastore(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """One for all tests; each has a database of its own."""
    made = Metastore(java_home, tmp_path_factory.mktemp("metastore")).wait_ready()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def hive_spark(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveSpark]:
    """Spark with its tables."""
    made = HiveSpark(metastore, tmp_path_factory.mktemp("hive"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def lake(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamella]:
    """A service with SQLite and a local warehouse, and its client."""
    folder = tmp_path_factory.mktemp("catalogs")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "page_sidecars": "true"})
    with Lamella(server.url) as lake:
        yield lake
    assert server.stop() == 0, server.log_text()


@pytest.fixture
def name() -> str:
    """A name that no other test has, of a database or a namespace."""
    return f"d{next(_NAMES)}"
