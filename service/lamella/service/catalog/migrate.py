"""Migrates the catalog's database to the schema of this release, at the start if allowed, or by command.

Revisions only go forward. Each one only adds, so that services of the previous release keep working with the new
schema. ``docs/operations.md`` has the rule, and a test checks every revision.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.engine import URL

from lamella.service.catalog.engine import WRITES, catalog_url, open_engine
from lamella.service.catalog.schema import metadata
from lamella.service.catalog.session import database_errors
from lamella.snapshot.errors import CatalogDamaged, CatalogOutdated, InvalidRequest, UnsupportedFormat

SCRIPTS = "lamella.service:catalog/migrations"

#: Key of the PostgreSQL advisory lock for migrations; any number that nothing else uses.
_LOCK = 0x4C414D454C4C41


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the schema, and its purpose."""

    revision: str
    what: str


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """The schema of a database. ``revision``: None for an empty one. ``pending``: revisions that are missing.

    ``is_known``: False for the schema of a newer release, or of something that is not a Lamella catalog.
    """

    backend: str
    revision: str | None
    newest: str
    pending: tuple[Revision, ...]
    is_known: bool = True

    @property
    def is_new(self) -> bool:
        """Return True if the database is empty."""
        return self.is_known and self.revision is None

    @property
    def is_current(self) -> bool:
        """Return True if this release can use the database."""
        return self.is_known and not self.pending


def migration_config() -> Config:
    """Return Alembic's configuration, which needs no ini file."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    return config


def schema_state(connection: Connection) -> SchemaState:
    """Return which revision a database has and which are missing; changes nothing."""
    scripts = ScriptDirectory.from_config(migration_config())
    steps = [
        Revision(revision=script.revision, what=(script.doc or "").partition("\n")[0])
        for script in reversed(list(scripts.walk_revisions()))
    ]
    heads = MigrationContext.configure(connection).get_current_heads()
    backend, newest = connection.dialect.name, steps[-1].revision
    if not heads:
        is_known = not set(inspect(connection).get_table_names()) & set(metadata.tables)
        return SchemaState(backend=backend, revision=None, newest=newest, pending=tuple(steps), is_known=is_known)
    positions = {step.revision: position for position, step in enumerate(steps)}
    if set(heads) - positions.keys():
        revision = ", ".join(sorted(heads))
        return SchemaState(backend=backend, revision=revision, newest=newest, pending=(), is_known=False)
    position = max(positions[head] for head in heads)
    return SchemaState(
        backend=backend, revision=steps[position].revision, newest=newest, pending=tuple(steps[position + 1 :])
    )


def migrate(engine: Engine, *, to: str | None = None, may_upgrade: bool = True) -> str:
    """Apply the missing revisions in one transaction. Processes that start at once wait for each other.

    ``to``: the last revision to apply, by default the newest. ``may_upgrade`` False: set up a new database only.

    Returns:
        The revision that the database has then.

    Raises:
        CatalogOutdated: revisions are missing, and ``may_upgrade`` is false. Nothing was changed.
        InvalidRequest: there is no revision ``to``, or the database is newer. Nothing was changed.
        UnsupportedFormat: the database was migrated by a newer release. Nothing was changed.
    """
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        return migrate_within(connection, to=to, may_upgrade=may_upgrade)


def migrate_within(connection: Connection, *, to: str | None = None, may_upgrade: bool = True) -> str:
    """Migrate as :func:`migrate`, in a transaction of the caller."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    state = schema_state(connection)
    steps = steps_to(state, to)
    if not steps:
        return str(state.revision)
    if not (may_upgrade or state.is_new):
        raise CatalogOutdated(
            f"the catalog has schema revision {state.revision}, this release needs {state.newest}: make a backup "
            "(lamella catalog export), then run `lamella catalog migrate`",
            revision=state.revision,
            newest=state.newest,
        )
    config = migration_config()
    config.attributes["connection"] = connection
    command.upgrade(config, steps[-1].revision)
    return steps[-1].revision


def steps_to(state: SchemaState, to: str | None) -> tuple[Revision, ...]:
    """Return the revisions to apply to reach ``to`` (None: the newest).

    Raises:
        InvalidRequest: there is no such revision, or the database is newer.
        UnsupportedFormat: this release does not know the schema.
    """
    if not state.is_known:
        raise UnsupportedFormat(_unknown(state), revision=state.revision, newest_known=state.newest)
    if to is None or to == state.newest:
        return state.pending
    if to == state.revision:
        return ()
    for position, step in enumerate(state.pending, start=1):
        if step.revision == to:
            return state.pending[:position]
    raise InvalidRequest(
        f"cannot migrate from schema revision {state.revision or 'none'} to {to}: it does not exist or is an "
        "earlier one. Migrations only go forward; restore a backup instead",
        revision=state.revision,
        to=to,
    )


def migration_sql(state: SchemaState, to: str | None) -> str:
    """Return the SQL of :func:`migrate`, for running it by hand. Raises as :func:`steps_to`."""
    steps = steps_to(state, to)
    if not steps:
        return ""
    config = migration_config()
    config.output_buffer = io.StringIO()
    config.attributes["dialect"] = state.backend
    command.upgrade(config, f"{state.revision or 'base'}:{steps[-1].revision}", sql=True)
    return config.output_buffer.getvalue()


def _unknown(state: SchemaState) -> str:
    if state.revision is None:
        return "the database has tables of a catalog's names but no schema revision: it is not a Lamella catalog"
    return (
        f"the catalog has schema revision {state.revision}, which this release does not know: it was written by a "
        f"newer Lamella. This release knows revisions up to {state.newest}"
    )


@contextmanager
def administered(url: str, *, timeout_s: float, create: bool = False) -> Iterator[Engine]:
    """Open a database of any schema by its address.

    Raises:
        InvalidRequest: the address cannot be used; or ``create`` is false and the SQLite file does not exist.
        Unavailable: the database does not answer.
    """
    address = catalog_url(url)
    if not create and _is_missing(address):
        raise InvalidRequest(f"there is no catalog at {address.database}")
    engine = open_engine(address, timeout_s=timeout_s, connections=1)
    try:
        with database_errors():
            yield engine
    except CatalogDamaged as error:
        if "not a database" not in error.message:
            raise
        raise InvalidRequest(f"{address.database} is not a SQLite database") from error
    finally:
        engine.dispose()


def look_at_schema(url: str, *, timeout_s: float) -> SchemaState:
    """Return the schema of a database; a missing database counts as a new one. Changes nothing.

    Raises as :func:`administered`.
    """
    if _is_missing(catalog_url(url)):
        with create_engine("sqlite://").connect() as nothing:
            return schema_state(nothing)
    with administered(url, timeout_s=timeout_s) as engine, engine.connect() as connection:
        return schema_state(connection)


def migrate_catalog(url: str, *, to: str | None, timeout_s: float) -> str:
    """Migrate the schema to a revision (None: the newest); return the revision that it has then.

    Raises as :func:`administered` and :func:`~lamella.service.catalog.migrate.migrate`.
    """
    with administered(url, timeout_s=timeout_s, create=True) as engine:
        return migrate(engine, to=to)


def _is_missing(address: URL) -> bool:
    return address.get_backend_name() == "sqlite" and not Path(str(address.database)).is_file()
