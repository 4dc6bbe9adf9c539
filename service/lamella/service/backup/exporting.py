"""A catalog's database written to a file, as it is at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import msgspec
from sqlalchemy import Column, Connection, Engine, MetaData, Select, Table, types

from lamella.service.backup.archive import FORMAT, ArchiveWriter, Header, Kind
from lamella.service.backup.contents import LEFT_OUT, PARTS
from lamella.service.backup.point_in_time import Lost, PointInTime
from lamella.service.catalog.migrate import SchemaState, schema_state
from lamella.service.catalog.tables import metadata
from lamella.service.release import release
from lamella.snapshot.errors import CatalogOutdated, InvalidRequest, UnsupportedFormat

_AT_ONCE: Final = 1_000


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written: rows by table. ``lost``: tables that are not in it as of the instant, with the reason."""

    schema_revision: str
    rows: dict[str, int]
    left_out: dict[str, str]
    lost: tuple[Lost, ...] = ()


def export_catalog(
    engine: Engine,
    file: IO[bytes],
    *,
    warehouse: str,
    made_ms: int | None = None,
    at_ms: int | None = None,
    leave_lost: bool = False,
) -> Exported:
    """Write all of it in one transaction: every table as of the same moment, whatever services do meanwhile.

    ``at_ms``: as it was then, as far as the histories tell; see :class:`PointInTime`. ``leave_lost``: leave out tables
    that cannot be told of any more, instead of refusing. Works for older schemas as well, but then only of the present.

    Raises:
        CatalogOutdated: ``at_ms`` and an older schema.
        InvalidRequest: there is no catalog in the database; or tables are lost, and ``details`` lists them.
        UnsupportedFormat: it was written by a newer release.
    """
    made_ms = int(time.time() * 1000) if made_ms is None else made_ms
    with _one_moment(engine) as connection:
        state = schema_state(connection)
        _require_known(state, at_ms)
        stored = MetaData()
        stored.reflect(connection, only=lambda name, _: name in metadata.tables)
        past = None if at_ms is None else PointInTime(connection, at_ms)
        if past is not None and past.lost and not leave_lost:
            raise InvalidRequest(
                f"{len(past.lost)} tables cannot be told of as of that time: {past.lost[0].name}: {past.lost[0].why}",
                lost=[msgspec.to_builtins(each) for each in past.lost],
            )
        left_out = dict(LEFT_OUT)
        if past is not None:
            left_out |= {name: part.why for name, part in PARTS.items() if part.cut == "left out"}
        header = Header(
            lamella_catalog=FORMAT,
            release=release(),
            schema_revision=str(state.revision),
            made_ms=made_ms,
            backend=state.backend,
            warehouse=warehouse,
            at_ms=at_ms,
            left_out=left_out,
        )
        writer = ArchiveWriter(file, header)
        rows = {}
        for table in stored.sorted_tables:
            if table.name not in left_out:
                found = _rows(connection, table)
                taken = found if past is None else past.rows(table, found)
                rows[str(table.name)] = writer.table(str(table.name), columns_of(table), taken)
        writer.finish()
    return Exported(
        schema_revision=str(state.revision), rows=rows, left_out=left_out, lost=() if past is None else past.lost
    )


def columns_of(table: Table) -> list[tuple[str, Kind]]:
    """The columns of a table, and what each may hold."""
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


def _require_known(state: SchemaState, at_ms: int | None) -> None:
    if not state.is_known:
        raise UnsupportedFormat(f"schema revision {state.revision or 'none'} is none that this release knows")
    if state.is_new:
        raise InvalidRequest("there is no catalog in the database")
    if at_ms is not None and not state.is_current:
        raise CatalogOutdated(
            f"the catalog has schema revision {state.revision}; only one of {state.newest} can be told of as it was: "
            "export it as it is, or run `lamella catalog migrate` first"
        )


def _rows(connection: Connection, table: Table) -> Iterator[Sequence[Any]]:
    statement: Select[Any] = table.select().order_by(*table.primary_key.columns)
    result: Iterable[Sequence[Any]] = connection.execution_options(yield_per=_AT_ONCE).execute(statement)
    yield from result


@contextmanager
def _one_moment(engine: Engine) -> Iterator[Connection]:
    """A connection whose reads all see the same; it writes nothing."""
    options: dict[str, Any] = {}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # ours begins transactions only for writes
        yield connection
        connection.rollback()
