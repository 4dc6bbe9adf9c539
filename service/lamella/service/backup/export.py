"""A catalog's database written to a file: as it is, or as it was at an instant as far as histories tell.

Every table of the schema has a line here; a test fails when one is missing.

Each table's history tells which snapshot was current then, unless that one has expired. When a table was dropped is
known while it can still be undropped. Nothing tells what a name or a property was, which tags were moved or dropped, or
that a table was once dropped and brought back: these are as they are now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, Literal

import msgspec
from sqlalchemy import Column, Connection, Engine, MetaData, Select, Table, and_, func, select, types

from lamella.service import release
from lamella.service.backup.archive import FORMAT, ArchiveWriter, Header, Kind
from lamella.service.catalog.migrate import SchemaState, schema_state
from lamella.service.catalog.schema import metadata, namespaces, snapshots, tables
from lamella.snapshot.errors import CatalogOutdated, InvalidRequest, UnsupportedFormat

Cut = Literal["tables", "as they are", "of kept tables", "of kept snapshots", "left out"]


class Part(msgspec.Struct, frozen=True):
    """A table of the catalog in an export as of an instant.

    ``tables``: taken back with the histories, see :class:`PointInTime`. ``as they are``: all
    rows, since nothing tells what they were. ``of kept tables``, ``of kept snapshots``: those rows of them, if there
    is a ``column`` those where it is not later. ``left out``: none.
    """

    cut: Cut
    why: str
    column: str | None = None


#: What an export of the present has not.
LEFT_OUT: Final[dict[str, str]] = {}

#: What becomes of each table in an export as of an instant.
PARTS: Final[dict[str, Part]] = {
    "namespaces": Part("tables", "those that were there; properties as they are"),
    "tables": Part("tables", "those that were there, at the snapshot that was current"),
    "snapshots": Part("tables", "the histories up to that instant"),
    "tags": Part("of kept snapshots", "where they are now; nothing tells what was moved or dropped", "created_at_ms"),
    "leases": Part("of kept snapshots", "readers may still be at it"),
    "idempotency": Part("left out", "nothing tells which of the changes that they tell of are taken back"),
    "condemned": Part("as they are", "what was deleted is not there, whatever the instant"),
    "sweeps": Part("as they are", "what was deleted is not there, whatever the instant"),
    "feedback": Part("of kept tables", "about blocks, which do not change"),
    "recorded": Part("of kept tables", "what was asked, was asked"),
    "prune_rates": Part("of kept tables", "what was asked, was asked"),
    "jobs": Part("left out", "what they did is taken back; schedules and policies ask again"),
    "job_log": Part("left out", "goes with the jobs"),
    "schedules": Part("of kept tables", "nothing tells what they were"),
    "policies": Part("of kept tables", "nothing tells what they were"),
    "audit": Part("as they are", "what was done, was done"),
    "secrets": Part("as they are", "page tokens and sessions hold on"),
    "api_keys": Part("as they are", "a key that was revoked since does not come back"),
    "grants": Part("as they are", "what was taken from somebody since does not come back"),
}


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was there then, and of which it cannot be told any more what it was."""

    name: str
    table_id: str
    why: str


class _Then(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was: its current snapshot, its namespace, and whether it had been dropped."""

    seq: int
    pointer: str
    namespace_id: int
    dropped_at_ms: int | None


class PointInTime:
    """What of each table of the catalog there was at ``at_ms``. ``lost``: tables that are not in it and should be."""

    def __init__(self, connection: Connection, at_ms: int) -> None:
        self._at_ms = at_ms
        self._all_spaces = {row.namespace_id: row for row in connection.execute(namespaces.select())}
        #: The namespaces that there were, and one that came later where a table has no other.
        self._spaces = {each for each, row in self._all_spaces.items() if row.created_at_ms <= at_ms}
        self._live_spaces: dict[str, int] = {
            self._all_spaces[each].name: each
            for each in self._spaces
            if self._not_later(self._all_spaces[each].dropped_at_ms) is None
        }
        self._names: set[tuple[int, str]] = set()
        self._then: dict[str, _Then] = {}
        lost: list[Lost] = []
        in_force = _in_force(connection, at_ms)
        found = [row for row in connection.execute(tables.select()) if row.created_at_ms <= at_ms]
        # Where two had one name, the one that is there now keeps it.
        for row in sorted(found, key=lambda row: (row.dropped_at_ms is not None, row.table_id)):
            then = self._at(row, in_force.get(row.table_id))
            if isinstance(then, _Then):
                self._then[row.table_id] = then
            else:
                name = f"{self._all_spaces[row.namespace_id].name}.{row.name}"
                lost.append(Lost(name=name, table_id=row.table_id, why=then))
        self.lost = tuple(lost)

    def rows(self, table: Table, found: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Of a table's rows those that there were, as they were."""
        names = [column.name for column in table.columns]
        for row in found:
            kept = self._row(table.name, dict(zip(names, row, strict=True)))
            if kept is not None:
                yield [kept[name] for name in names]

    def _at(self, row: Any, last: Any) -> _Then | str:
        """The table as it was, or why that cannot be told."""
        dropped_at_ms = self._not_later(row.dropped_at_ms)
        if row.doomed_at_ms is not None and dropped_at_ms is None:
            return "it was dropped for good since, and its files may be gone"
        if last is None or (last.until_ms is not None and last.until_ms <= self._at_ms):
            return "its snapshot of that time has expired"
        namespace_id = self._namespace(row.namespace_id)
        if dropped_at_ms is None:
            if (namespace_id, row.name) in self._names:
                return "another table that was there then has its name now"
            self._names.add((namespace_id, row.name))
        return _Then(seq=last.seq, pointer=last.pointer, namespace_id=namespace_id, dropped_at_ms=dropped_at_ms)

    def _namespace(self, namespace_id: int) -> int:
        """Where a table is to be that is in this namespace now, which may be later than the instant."""
        if namespace_id in self._spaces:
            return namespace_id
        name = str(self._all_spaces[namespace_id].name)
        if name not in self._live_spaces:
            self._live_spaces[name] = namespace_id
            self._spaces.add(namespace_id)
        return self._live_spaces[name]

    def _row(self, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
        part = PARTS[table]
        match part.cut:
            case "tables":
                return self._of_histories(table, row)
            case "of kept tables":
                return row if row["table_id"] in self._then else None
            case "of kept snapshots":
                then = self._then.get(row["table_id"])
                is_later = part.column is not None and row[part.column] > self._at_ms
                return None if then is None or is_later or row["seq"] > then.seq else row
        return row

    def _of_histories(self, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
        if table == "namespaces":
            if row["namespace_id"] not in self._spaces:
                return None
            return {**row, "dropped_at_ms": self._not_later(row["dropped_at_ms"])}
        then = self._then.get(row["table_id"])
        if then is None:
            return None
        if table == "tables":
            return {
                **row,
                "namespace_id": then.namespace_id,
                "version": then.seq,
                "pointer": then.pointer,
                "dropped_at_ms": then.dropped_at_ms,
            }
        if row["seq"] > then.seq:
            return None
        # Nothing has followed the last one yet.
        return {**row, "until_ms": None if row["seq"] == then.seq else row["until_ms"]}

    def _not_later(self, dropped_at_ms: int | None) -> int | None:
        return dropped_at_ms if dropped_at_ms is not None and dropped_at_ms <= self._at_ms else None


def _in_force(connection: Connection, at_ms: int) -> dict[str, Any]:
    """By table the last snapshot of its history that was made by then."""
    last = (
        select(snapshots.c.table_id, func.max(snapshots.c.seq).label("seq"))
        .where(snapshots.c.timestamp_ms <= at_ms)
        .group_by(snapshots.c.table_id)
        .subquery()
    )
    statement = select(snapshots.c.table_id, snapshots.c.seq, snapshots.c.pointer, snapshots.c.until_ms).join(
        last, and_(snapshots.c.table_id == last.c.table_id, snapshots.c.seq == last.c.seq)
    )
    return {row.table_id: row for row in connection.execute(statement)}


_AT_ONCE: Final = 1_000


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
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
) -> ExportResult:
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
    return ExportResult(
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
