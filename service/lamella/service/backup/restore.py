"""Imports an export into an empty database of either kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Double,
    Engine,
    LargeBinary,
    Text,
    column,
    delete,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy import table as table_of
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.expression import TableClause
from sqlalchemy.types import TypeEngine

from lamella.service.backup.archive import ArchiveReader, Header, Kind, TableStart
from lamella.service.catalog.engine import WRITES
from lamella.service.catalog.migrate import migrate_within, schema_state
from lamella.service.catalog.schema import metadata
from lamella.snapshot.errors import Conflict, InvalidRequest, UnsupportedFormat

_AT_ONCE: Final = 500
_TYPES: Final[dict[Kind, type[TypeEngine[Any]]]] = {
    "integer": BigInteger,
    "real": Double,
    "text": Text,
    "boolean": Boolean,
    "bytes": LargeBinary,
}
#: Keys that were revoked after the export must not become valid again through it.
_KEYS: Final = "api_keys"
#: Migrations insert a row here, which the file has too.
_SEEDED: Final = "sweeps"


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was imported: rows by table. ``schema_revision``: after the import."""

    header: Header
    schema_revision: str
    rows: dict[str, int]


def read_catalog(file: IO[bytes]) -> ImportResult:
    """Read and check a whole file; returns its contents and its ``schema_revision``. Raises as ArchiveReader."""
    reader = ArchiveReader(file)
    rows = {start.table: sum(1 for _ in found) for start, found in reader.tables()}
    return ImportResult(header=reader.header, schema_revision=reader.header.schema_revision, rows=rows)


def import_catalog(engine: Engine, file: IO[bytes], *, without_keys: bool = False) -> ImportResult:
    """Import a file into an empty database, and migrate it to the schema of this release: everything, or nothing.

    ``without_keys``: leave out API keys, since keys that were revoked after the export would be valid again.

    Raises:
        Conflict: the database is in use already.
        InvalidRequest: the file is not an export, is truncated, or was changed.
        UnsupportedFormat: a newer release wrote the file, or the database.
    """
    reader = ArchiveReader(file)
    rows: dict[str, int] = {}
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        _prepare(connection, reader.header.schema_revision)
        for start, found in reader.tables():
            into = _table(connection, start)
            imported = _nothing_of(found) if without_keys and start.table == _KEYS else found
            try:
                rows[start.table] = _fill(connection, into, start, imported)
            except IntegrityError as error:
                raise InvalidRequest(f"rows of {start.table} in the export contradict each other") from error
            _continue_numbers(connection, start)
        revision = migrate_within(connection)
    return ImportResult(header=reader.header, schema_revision=revision, rows=rows)


def _prepare(connection: Connection, revision: str) -> None:
    """Create the empty schema of the file's revision."""
    state = schema_state(connection)
    if state.is_known and state.is_new:
        if revision not in {step.revision for step in state.pending}:
            raise UnsupportedFormat(
                f"the export has schema revision {revision}, which this release does not know: a newer Lamella made it",
                revision=revision,
                newest_known=state.newest,
            )
        migrate_within(connection, to=revision)
    elif not state.is_known or state.revision != revision:
        raise Conflict(
            "the database has a catalog already: import into an empty database", revision=state.revision, needs=revision
        )
    else:
        used = sorted(name for name in _used(connection))
        if used:
            raise Conflict(
                f"the database is in use: there are rows in {', '.join(used)}. Import into an empty database, before a "
                "service is started on it",
                tables=used,
            )
    if inspect(connection).has_table(_SEEDED):
        connection.execute(delete(metadata.tables[_SEEDED]))


def _used(connection: Connection) -> Iterator[str]:
    there = set(inspect(connection).get_table_names())
    for name, known in metadata.tables.items():
        if name in there:
            count = connection.execute(select(func.count()).select_from(known)).scalar_one()
            if count > (1 if name == _SEEDED else 0):
                yield name


def _table(connection: Connection, start: TableStart) -> TableClause:
    if start.table not in metadata.tables:
        raise InvalidRequest(f"the export has a table {start.table!r} that no catalog has")
    there = {each["name"] for each in inspect(connection).get_columns(start.table)}
    if there != {name for name, _ in start.columns}:
        raise InvalidRequest(f"the columns of {start.table} in the export are not those of its schema revision")
    return table_of(start.table, *(column(name, _TYPES[kind]) for name, kind in start.columns))


def _fill(connection: Connection, into: TableClause, start: TableStart, found: Iterator[list[Any]]) -> int:
    names = [name for name, _ in start.columns]
    count = 0
    while some := list(islice(found, _AT_ONCE)):
        connection.execute(into.insert(), [dict(zip(names, row, strict=True)) for row in some])
        count += len(some)
    return count


def _nothing_of(found: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    for _ in found:
        pass
    return iter(())


def _continue_numbers(connection: Connection, start: TableStart) -> None:
    """Make PostgreSQL's sequences continue after the imported numbers; SQLite does so automatically."""
    if connection.dialect.name != "postgresql":
        return
    for name, kind in start.columns:
        if kind != "integer":
            continue
        which = {"table": start.table, "column": name}
        sequence = connection.execute(text("SELECT pg_get_serial_sequence(:table, :column)"), which).scalar_one()
        if sequence is not None:
            max_value: int | None = connection.execute(
                select(func.max(column(name))).select_from(table_of(start.table))
            ).scalar_one()
            if max_value is not None:
                connection.execute(
                    text("SELECT setval(:sequence, :number)"), {"sequence": sequence, "number": max_value}
                )
