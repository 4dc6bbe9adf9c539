"""A catalog's database looked at, or migrated, without a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL

from lamella.service.catalog.engine import catalog_url, open_engine
from lamella.service.catalog.migrate import SchemaState, migrate, schema_state
from lamella.service.catalog.session import database_errors
from lamella.snapshot.errors import CatalogDamaged, InvalidRequest


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
