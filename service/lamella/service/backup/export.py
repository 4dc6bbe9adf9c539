"""Exports a catalog's database to a file: a consistent copy of every table of its schema."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import msgspec
from sqlalchemy import Column, Connection, Engine, MetaData, Select, Table, types

from lamella.service import release
from lamella.service.backup.archive import FORMAT, ArchiveWriter, Header, Kind
from lamella.service.catalog.migrate import SchemaState, schema_state
from lamella.service.catalog.schema import metadata
from lamella.snapshot.errors import InvalidRequest, UnsupportedFormat

_AT_ONCE: Final = 1_000


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: rows by table."""

    schema_revision: str
    rows: dict[str, int]


def export_catalog(engine: Engine, file: IO[bytes], *, warehouse: str, made_ms: int | None = None) -> ExportResult:
    """Export the whole catalog in one transaction: a consistent copy, even if services change it in the meantime.

    Works for older schemas as well.

    Raises:
        InvalidRequest: there is no catalog in the database.
        UnsupportedFormat: it was written by a newer release.
    """
    made_ms = int(time.time() * 1000) if made_ms is None else made_ms
    with _one_moment(engine) as connection:
        state = schema_state(connection)
        _require_known(state)
        stored = MetaData()
        stored.reflect(connection, only=lambda name, _: name in metadata.tables)
        header = Header(
            lamella_catalog=FORMAT,
            release=release(),
            schema_revision=str(state.revision),
            made_ms=made_ms,
            backend=state.backend,
            warehouse=warehouse,
        )
        writer = ArchiveWriter(file, header)
        rows = {
            str(table.name): writer.table(str(table.name), columns_of(table), _rows(connection, table))
            for table in stored.sorted_tables
        }
        writer.finish()
    return ExportResult(schema_revision=str(state.revision), rows=rows)


def columns_of(table: Table) -> list[tuple[str, Kind]]:
    """Return the columns of a table and their types."""
    return [(str(column.name), _kind(column)) for column in table.columns]


def _kind(column: Column[Any]) -> Kind:
    kinds: tuple[tuple[type[types.TypeEngine[Any]], Kind], ...] = (
        (types.Boolean, "boolean"),
        (types.Integer, "integer"),
        (types.Float, "real"),
        (types.LargeBinary, "bytes"),
        (types.String, "text"),
    )
    for type_, kind in kinds:
        if isinstance(column.type, type_):
            return kind
    raise TypeError(f"{column} has a type that exports do not know: {column.type}")


def _require_known(state: SchemaState) -> None:
    if not state.is_known:
        raise UnsupportedFormat(f"schema revision {state.revision or 'none'} is none that this release knows")
    if state.is_new:
        raise InvalidRequest("there is no catalog in the database")


def _rows(connection: Connection, table: Table) -> Iterator[Sequence[Any]]:
    statement: Select[Any] = table.select().order_by(*table.primary_key.columns)
    result: Iterable[Sequence[Any]] = connection.execution_options(yield_per=_AT_ONCE).execute(statement)
    yield from result


@contextmanager
def _one_moment(engine: Engine) -> Iterator[Connection]:
    """A read-only connection with one consistent view of the database."""
    options: dict[str, Any] = {}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # our engine begins transactions only for writes
        yield connection
        connection.rollback()
