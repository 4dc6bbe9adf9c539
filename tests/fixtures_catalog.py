"""New SQLite catalogs of tests are copies of a migrated one, since a copy takes 2 ms and a migration 30. A plugin."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Engine

from lamella.service.catalog import sql
from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.catalog.migrate import migrate


@pytest.fixture(scope="session", autouse=True)
def copied_catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What :func:`open_catalog` sets up on SQLite is copied. It migrates existing catalogs, and those on PostgreSQL."""
    path = tmp_path_factory.mktemp("catalog") / "migrated.db"
    migrated = open_engine(catalog_url(str(path)), timeout_s=30, connections=1)
    migrate(migrated)
    template = migrated.raw_connection()
    source: Any = template.driver_connection
    lock = threading.Lock()  # a catalog that another thread has set up is not written over

    def copied(engine: Engine, **options: Any) -> str:
        if engine.dialect.name == "sqlite":
            with lock, closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
                cursor.execute("SELECT count(*) FROM sqlite_master")
                if cursor.fetchone() == (0,):
                    source.backup(connection.driver_connection)
        return migrate(engine, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "migrate", copied)
        yield
    template.close()
    migrated.dispose()
