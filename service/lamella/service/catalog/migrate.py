"""Migration of the catalog's database to the schema of this release: at the start where allowed, or by command.

Revisions only go forward. Each adds and takes nothing away, so that services of the release before go on with the
schema of this one; ``docs/operations.md`` has the rule, and a test holds every revision to it.
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

#: Key of the PostgreSQL advisory lock under which migrations run; any number that nothing else uses.
_LOCK = 0x4C414D454C4C41


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the schema, and what it is for."""

    revision: str
    what: str


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that a database has. ``revision``: None while there is nothing; ``pending``: what is missing.

    ``is_known``: False when a newer release was here, or somebody who is no catalog of ours.
    """

    backend: str
    revision: str | None
    newest: str
    pending: tuple[Revision, ...]
    is_known: bool = True

    @property
    def is_new(self) -> bool:
        """True when there is nothing in the database yet."""
        return self.is_known and self.revision is None

    @property
    def is_current(self) -> bool:
        """True when this release can work with it."""
        return self.is_known and not self.pending


def migration_config() -> Config:
    """Alembic's configuration, without an ini file."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    return config


def schema_state(connection: Connection) -> SchemaState:
    """What is there, and what is missing; changes nothing."""
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
    places = {step.revision: place for place, step in enumerate(steps)}
    if set(heads) - places.keys():
        revision = ", ".join(sorted(heads))
        return SchemaState(backend=backend, revision=revision, newest=newest, pending=(), is_known=False)
    place = max(places[head] for head in heads)
    return SchemaState(
        backend=backend, revision=steps[place].revision, newest=newest, pending=tuple(steps[place + 1 :])
    )


def migrate(engine: Engine, *, to: str | None = None, may_upgrade: bool = True) -> str:
    """Apply what is missing in one transaction; processes that start at once wait for each other.

    ``to``: the revision to end at, the newest when not given. ``may_upgrade`` False: only a new database is set up.

    Returns:
        The revision that the database has then.

    Raises:
        CatalogOutdated: revisions are missing, and ``may_upgrade`` is false. Nothing was changed.
        InvalidRequest: there is no revision ``to``, or the database is beyond it. Nothing was changed.
        UnsupportedFormat: the database was migrated by a newer release. Nothing was changed.
    """
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        return migrate_within(connection, to=to, may_upgrade=may_upgrade)


def migrate_within(connection: Connection, *, to: str | None = None, may_upgrade: bool = True) -> str:
    """As :func:`migrate`, in a transaction of the caller's."""
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
    """What is to be applied to get to a revision, the newest when None.

    Raises:
        InvalidRequest: there is no such revision, or the database is beyond it.
        UnsupportedFormat: the schema is not one that this release knows.
    """
    if not state.is_known:
        raise UnsupportedFormat(_unknown(state), revision=state.revision, newest_known=state.newest)
    if to is None or to == state.newest:
        return state.pending
    if to == state.revision:
        return ()
    for place, step in enumerate(state.pending, start=1):
        if step.revision == to:
            return state.pending[:place]
    raise InvalidRequest(
        f"no way from schema revision {state.revision or 'none'} to {to}: there is no such revision, or it is an "
        "earlier one. There is no way back; restore a backup instead",
        revision=state.revision,
        to=to,
    )


def migration_sql(state: SchemaState, to: str | None) -> str:
    """The statements of :func:`migrate`, for somebody else to run; raises as :func:`steps_to`."""
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
        return "the database has tables of a catalog's names but no schema revision: it is no catalog of Lamella's"
    return (
        f"the catalog has schema revision {state.revision}, which this release does not know: it was written by a "
        f"newer Lamella. This one knows revisions up to {state.newest}"
    )


@contextmanager
def administered(url: str, *, timeout_s: float, create: bool = False) -> Iterator[Engine]:
    """The database by its address, whatever its schema is.

    Raises:
        InvalidRequest: the address cannot be used; ``create`` is false, and there is no such SQLite file.
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
    """The schema that the database has; one that is not there is a new one. Nothing is made.

    Raises as :func:`administered`.
    """
    if _is_missing(catalog_url(url)):
        with create_engine("sqlite://").connect() as nothing:
            return schema_state(nothing)
    with administered(url, timeout_s=timeout_s) as engine, engine.connect() as connection:
        return schema_state(connection)


def migrate_catalog(url: str, *, to: str | None, timeout_s: float) -> str:
    """Bring the schema to a revision, the newest when None; returns the one that it has then.

    Raises as :func:`administered` and :func:`~lamella.service.catalog.migrate.migrate`.
    """
    with administered(url, timeout_s=timeout_s, create=True) as engine:
        return migrate(engine, to=to)


def _is_missing(address: URL) -> bool:
    return address.get_backend_name() == "sqlite" and not Path(str(address.database)).is_file()
