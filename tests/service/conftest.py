"""A running service over each kind of catalog and store."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, environment_of
from support.service_api import World

from lamella.snapshot.layout import FsspecStore

BACKENDS = (
    pytest.param("sqlite-local", id="sqlite-local"),
    pytest.param("postgres-s3", id="postgres-s3", marks=[pytest.mark.postgres, pytest.mark.s3]),
)


@pytest.fixture(scope="session", params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service for the whole session: over SQLite and local files, and over PostgreSQL and S3."""
    folder = tmp_path_factory.mktemp("service")
    if request.param == "sqlite-local":
        yield from _running(folder, {"warehouse": folder / "warehouse"}, FsspecStore(), f"file://{folder}/data")
        return
    s3: S3Server = request.getfixturevalue("s3")
    bucket = s3.bucket("service")
    options = {"s3": s3.storage_options}
    settings = {
        "warehouse": f"{bucket}/warehouse",
        "catalog": request.getfixturevalue("new_postgres_database")(),
        "store_options": json.dumps(options),
    }
    yield from _running(folder, settings, FsspecStore(options), f"{bucket}/data")


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service for the whole session, over SQLite and local files, for what does not depend on either."""
    folder = tmp_path_factory.mktemp("service")
    yield from _running(folder, {"warehouse": folder / "warehouse"}, FsspecStore(), f"file://{folder}/data")


def _running(folder: Path, settings: dict[str, object], store: FsspecStore, root: str) -> Iterator[World]:
    server = ServerProcess(environment_of(settings), folder).wait_ready()
    world = World(server.url, root, store)
    yield world
    world.api.close()
    assert server.stop() == -signal.SIGTERM, server.log_text()  # uvicorn drains, then ends as it was told to
