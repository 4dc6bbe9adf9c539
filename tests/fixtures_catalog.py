"""New SQLite catalogs of tests are copies of a migrated one, since a copy takes 2 ms and a migration 30. A plugin."""

from __future__ import annotations

from collections.abc import Iterator
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
    template: Any = migrated.raw_connection().driver_connection

    def copied(engine: Engine, **options: Any) -> str:
        if engine.dialect.name == "sqlite":
            connection = engine.raw_connection()
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                template.backup(connection.driver_connection)
            connection.close()
        return migrate(engine, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "migrate", copied)
        yield
    migrated.dispose()
