"""A service whose tables Iceberg clients read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from fixtures_server import StartServer, start_shared
from lamella.client.http import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from support.app_client import AppClient
from support.guarded_s3 import GuardedS3, GuardedService, guarded_s3

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


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedS3]:
    """S3 that denies what no policy allows."""
    with guarded_s3(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A client in this process finds none on this machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def guarded_service(
    start_server: StartServer, guarded: GuardedS3, tmp_path: Path, no_credentials: None
) -> Callable[..., GuardedService]:
    """Starts services on that S3, with settings."""
    assert no_credentials is None
    return lambda **settings: GuardedService(start_server, guarded, tmp_path, **settings)
