"""Bring the catalog's database to the schema of this release, at every start."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from lamella.service.catalog.engine import WRITES
from lamella.snapshot.errors import UnsupportedFormat

SCRIPTS = "lamella.service:catalog/migrations"

#: Key of the PostgreSQL advisory lock under which migrations run; any number that nothing else uses.
_LOCK = 0x4C414D454C4C41


def migration_config() -> Config:
    """Alembic's configuration, without an ini file."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    return config


def migrate(engine: Engine) -> str:
    """Apply what is missing in one transaction; processes that start at once wait for each other.

    Returns:
        The revision that the database has then.

    Raises:
        UnsupportedFormat: the database was migrated by a newer release. Nothing was changed.
    """
    config = migration_config()
    scripts = ScriptDirectory.from_config(config)
    newest = scripts.get_current_head()
    known = {script.revision for script in scripts.walk_revisions()}
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        found = MigrationContext.configure(connection).get_current_heads()
        unknown = sorted(set(found) - known)
        if unknown:
            raise UnsupportedFormat(
                f"the catalog has schema revision {', '.join(unknown)}, which this release does not know: "
                "it was written by a newer Lamella",
                revision=unknown,
                newest_known=newest,
            )
        if found != (newest,):
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return str(newest)
