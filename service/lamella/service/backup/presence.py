"""Whether what a catalog points at is still in the store: a clean-up may have deleted what only an old export knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any, Final

import msgspec
from sqlalchemy import Engine, select

from lamella.service.backup.archive import ArchiveReader, TableStart
from lamella.service.catalog import StoredJson
from lamella.service.catalog.tables import namespaces, snapshots, tables
from lamella.snapshot.errors import CatalogDamaged, InvalidRequest, ObjectNotFound
from lamella.snapshot.layout import Store
from lamella.snapshot.manifest import SnapshotPointer

_POINTER: Final = StoredJson(SnapshotPointer, "the pointer of a snapshot")


class Pointed(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a catalog. ``table``: its name with its namespace."""

    table: str
    table_id: str
    is_dropped: bool
    is_current: bool
    pointer: SnapshotPointer


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A table of which snapshots cannot be read any more. ``is_current``: the current one is among them."""

    table: str
    table_id: str
    is_dropped: bool
    is_current: bool
    snapshots: int


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what is gone; tables whose current snapshot is gone come first."""

    tables: int
    snapshots: int
    gone: tuple[Gone, ...]

    @property
    def lost(self) -> tuple[Gone, ...]:
        """Tables that cannot be read as they stand."""
        return tuple(each for each in self.gone if each.is_current)


def snapshots_of(engine: Engine) -> list[Pointed]:
    """All snapshots of a catalog of this release's schema, but of tables that are dropped for good."""
    statement = (
        select(
            namespaces.c.name.label("namespace"),
            tables.c.name,
            tables.c.table_id,
            tables.c.version,
            tables.c.dropped_at_ms,
            snapshots.c.seq,
            snapshots.c.pointer,
        )
        .join(tables, tables.c.namespace_id == namespaces.c.namespace_id)
        .join(snapshots, snapshots.c.table_id == tables.c.table_id)
        .where(tables.c.doomed_at_ms.is_(None))
        .order_by(tables.c.table_id, snapshots.c.seq)
    )
    with engine.connect() as connection:
        return [
            Pointed(
                table=f"{row.namespace}.{row.name}",
                table_id=row.table_id,
                is_dropped=row.dropped_at_ms is not None,
                is_current=row.seq == row.version,
                pointer=_POINTER.decode(row.pointer),
            )
            for row in connection.execute(statement)
        ]


def snapshots_in(file: IO[bytes]) -> list[Pointed]:
    """The same of an export. Raises as :class:`ArchiveReader`."""
    spaces: dict[int, str] = {}
    owners: dict[str, dict[str, Any]] = {}
    found: list[Pointed] = []
    for start, rows in ArchiveReader(file).tables():
        for row in _named(start, rows):
            match start.table:
                case "namespaces":
                    spaces[row["namespace_id"]] = row["name"]
                case "tables" if row.get("doomed_at_ms") is None:
                    owners[row["table_id"]] = row
                case "snapshots" if row["table_id"] in owners:
                    owner = owners[row["table_id"]]
                    found.append(
                        Pointed(
                            table=f"{spaces[owner['namespace_id']]}.{owner['name']}",
                            table_id=row["table_id"],
                            is_dropped=owner["dropped_at_ms"] is not None,
                            is_current=row["seq"] == owner["version"],
                            pointer=_pointer(row["pointer"]),
                        )
                    )
    return found


def look_for(pointed: Sequence[Pointed], store: Store, *, threads: int) -> Presence:
    """Look for the manifest of each snapshot. Raises StoreError when storage fails."""
    with ThreadPoolExecutor(threads) as pool:
        there = list(pool.map(partial(_is_there, store), pointed))
    gone: dict[str, Gone] = {}
    for each, is_there in zip(pointed, there, strict=True):
        if not is_there:
            before = gone.get(each.table_id)
            gone[each.table_id] = Gone(
                table=each.table,
                table_id=each.table_id,
                is_dropped=each.is_dropped,
                is_current=each.is_current or (before is not None and before.is_current),
                snapshots=1 + (0 if before is None else before.snapshots),
            )
    return Presence(
        tables=len({each.table_id for each in pointed}),
        snapshots=len(pointed),
        gone=tuple(sorted(gone.values(), key=lambda each: (not each.is_current, each.table))),
    )


def _pointer(text: str) -> SnapshotPointer:
    """The pointer in an export. Raises InvalidRequest for another text."""
    try:
        return _POINTER.decode(text)
    except CatalogDamaged as error:
        raise InvalidRequest("a snapshot's pointer is not what Lamella writes") from error


def _is_there(store: Store, each: Pointed) -> bool:
    try:
        return store.stat(each.pointer.manifest.location).size_bytes == each.pointer.manifest.size_bytes
    except ObjectNotFound:
        return False


def _named(start: TableStart, rows: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = [name for name, _ in start.columns]
    for row in rows:
        yield dict(zip(names, row, strict=True))
