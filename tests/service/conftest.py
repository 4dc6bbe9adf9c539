"""A running service over each kind of catalog and store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fixtures_s3 import S3Server
from fixtures_server import start_shared
from lamella.snapshot.storage import FsspecStore
from support.own_app import NewOwn, OwnApp
from support.pausable_service import NewPausable, PausableService
from support.race import NewRace, Race
from support.service_api import World

BACKENDS = (
    pytest.param("sqlite-local", id="sqlite-local"),
    pytest.param("s3", id="postgres-s3", marks=[pytest.mark.postgres, pytest.mark.s3]),
    pytest.param("real_s3", id="postgres-real-s3", marks=[pytest.mark.postgres, pytest.mark.s3, pytest.mark.soak]),
)


@pytest.fixture(scope="session", params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service for the whole session: over SQLite and local files, over PostgreSQL and S3 (moto, or a real one)."""
    folder = tmp_path_factory.mktemp("service")
    if request.param == "sqlite-local":
        yield from _local(request.config, folder)
        return
    s3: S3Server = request.getfixturevalue(request.param)
    bucket = s3.bucket("service")
    options = {"s3": s3.storage_options}
    settings = {
        "warehouse": f"{bucket}/warehouse",
        "catalog": request.getfixturevalue("new_postgres_database")(),
        "store_options": json.dumps(options),
    }
    yield from _running(request.config, folder, FsspecStore(options), settings, f"{bucket}/data")


@pytest.fixture(scope="session")
def local(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service for the whole session, over SQLite and local files, for what does not depend on either."""
    yield from _local(pytestconfig, tmp_path_factory.mktemp("service"))


def _local(config: pytest.Config, folder: Path) -> Iterator[World]:
    yield from _running(config, folder, FsspecStore(), {"warehouse": folder / "warehouse"}, f"file://{folder}/data")


def _running(
    config: pytest.Config, folder: Path, store: FsspecStore, settings: Mapping[str, object], root: str
) -> Iterator[World]:
    server = start_shared(config, folder, settings)
    with World(server.url, root, store) as world:
        yield world
    assert server.stop() == 0, server.log_text()


@pytest.fixture
def new_race(tmp_path: Path) -> Iterator[NewRace]:
    """Makes a race; the settings are the first app's."""
    with ExitStack() as opened:

        def make(**settings: Any) -> Race:
            race = Race(tmp_path, **settings)
            opened.enter_context(race.opened)
            return race

        yield make


@pytest.fixture
def race(new_race: NewRace) -> Race:
    """Two apps on one warehouse."""
    return new_race()


@pytest.fixture
def new_pausable(tmp_path: Path) -> Iterator[NewPausable]:
    """Makes a pausable service with settings."""
    with ExitStack() as opened:

        def make(**settings: Any) -> PausableService:
            pausable = PausableService(tmp_path, **settings)
            opened.enter_context(pausable.opened)
            opened.callback(pausable.go.set)
            return pausable

        yield make


@pytest.fixture
def pausable(new_pausable: NewPausable) -> PausableService:
    """An app whose first commit can be held up."""
    return new_pausable()


@pytest.fixture
def new_own(tmp_path: Path) -> Iterator[NewOwn]:
    """Makes an app of the test's own, with settings."""
    with ExitStack() as opened:
        yield lambda **settings: OwnApp(tmp_path, opened, **settings)
