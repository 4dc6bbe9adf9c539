"""The combinations of catalog and store that kill tests run over."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures_s3 import S3Server
from kill.arena import Ground, fresh_bucket

POSTGRES, S3 = pytest.mark.postgres, pytest.mark.s3
GROUNDS = (
    pytest.param("sqlite-local", id="sqlite-local"),
    pytest.param("postgres-local", id="postgres-local", marks=POSTGRES),
    pytest.param("sqlite-s3", id="sqlite-s3", marks=S3),
    pytest.param("postgres-s3", id="postgres-s3", marks=[POSTGRES, S3]),
)


@pytest.fixture(params=GROUNDS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    """SQLite or PostgreSQL, local files or an S3 server."""
    return make_ground(request, tmp_path, request.param)


def make_ground(request: pytest.FixtureRequest, folder: Path, name: str) -> Ground:
    """An empty one."""
    catalog, _, store = name.partition("-")
    url = str(folder / "catalog.db") if catalog == "sqlite" else request.getfixturevalue("postgres_database")
    if store == "local":
        return Ground(url, f"file://{folder}", {})
    server: S3Server = request.getfixturevalue("s3")
    return Ground(url, server.bucket(fresh_bucket()), {"s3": server.storage_options})
