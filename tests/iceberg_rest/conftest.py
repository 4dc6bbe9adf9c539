"""A service whose tables Iceberg clients read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from fixtures_server import start_shared
from lamella.client.http import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient

#: Makes an app on the test's warehouse; all of them are replicas of one service.
NewReplica = Callable[[], AppClient]


@pytest.fixture(scope="session")
def rest_url(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of a service with SQLite and a local warehouse."""
    folder = tmp_path_factory.mktemp("iceberg-rest")
    properties = json.dumps({"s3.region": "eu-central-1"})
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "iceberg_properties": properties})
    yield server.url
    assert server.stop() == 0, server.log_text()


@pytest.fixture(scope="session")
def lake(rest_url: str) -> Iterator[Lamella]:
    """Its client, with a namespace ``ice``."""
    with Lamella(rest_url) as lake:
        lake.create_namespace("ice")
        yield lake


@pytest.fixture(scope="session")
def catalog(rest_url: str, lake: Lamella) -> Catalog:
    """pyiceberg's view of it."""
    assert lake
    return load_catalog("lake", type="rest", uri=f"{rest_url}/iceberg")


@pytest.fixture
def new_replica(tmp_path: Path) -> Iterator[NewReplica]:
    """Makes replicas in this process."""
    with ExitStack() as opened:
        settings = Settings(warehouse=str(tmp_path / "warehouse"))
        yield lambda: opened.enter_context(AppClient(create_app(settings)))
