"""Checks after a restore: whether the snapshots of a catalog are in the store, and verification without a service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final

import msgspec
from sqlalchemy import Engine, select

from lamella.service.backup.archive import ArchiveReader, TableStart
from lamella.service.catalog import Catalog, StoredJson, TableRecord
from lamella.service.catalog.schema import namespaces, snapshots, tables
from lamella.service.maintenance.verification import recorded
from lamella.snapshot.concurrency import ContextThreadPool
from lamella.snapshot.errors import CatalogDamaged, InvalidRequest, LamellaError, ObjectNotFound
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.storage import Store
from lamella.snapshot.verify import Options, Recorded, Verification
from lamella.snapshot.wire import Finding

_POINTER: Final = StoredJson(SnapshotPointer, "the pointer of a snapshot")


class Pointed(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a catalog. ``table``: its name with its namespace."""

    table: str
    table_id: str
    is_dropped: bool
    is_current: bool
    pointer: SnapshotPointer


class MissingObject(msgspec.Struct, frozen=True, kw_only=True):
    """A table with snapshots that can no longer be read. ``is_current``: the current one is among them."""

    table: str
    table_id: str
    is_dropped: bool
    is_current: bool
    snapshots: int


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what is missing; tables whose current snapshot is missing come first."""

    tables: int
    snapshots: int
    gone: tuple[MissingObject, ...]

    @property
    def lost(self) -> tuple[MissingObject, ...]:
        """Return the tables whose current snapshot cannot be read."""
        return tuple(each for each in self.gone if each.is_current)


def snapshots_of(engine: Engine) -> list[Pointed]:
    """All snapshots in a catalog with this release's schema, except those of purged tables."""
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
    """The same for an export. Raises as :class:`ArchiveReader`."""
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
    """Check that the manifest of each snapshot exists. Raises StoreError when storage fails."""
    with ContextThreadPool(threads) as pool:
        there = list(pool.map(partial(_is_there, store), pointed))
    gone: dict[str, MissingObject] = {}
    for each, is_there in zip(pointed, there, strict=True):
        if not is_there:
            before = gone.get(each.table_id)
            gone[each.table_id] = MissingObject(
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


class TableVerified(msgspec.Struct, frozen=True, kw_only=True):
    """A table, what was checked, and the findings. ``error``: why the check could not be completed."""

    table: str
    snapshot_id: str
    segments: int = 0
    blocks: int = 0
    snapshots: int = 0
    findings: tuple[Finding, ...] = ()
    error: str | None = None

    @property
    def is_clean(self) -> bool:
        """Return whether there are no findings and no error."""
        return self.error is None and all(finding.severity == "info" for finding in self.findings)


def verify_catalog(
    catalog: Catalog, store: Store, warehouse_url: str, *, files: bool, history: int, workers: int
) -> Iterator[TableVerified]:
    """Verify the current state of each table and its branches, in order of names. ``files``: check the blocks' files
    too; ``history``: the number of earlier snapshots to check."""
    for namespace in catalog.namespaces():
        for name in catalog.tables(namespace.name):
            table = catalog.table(namespace.name, name)
            for record in (table, *(branch.record for branch in catalog.branches(table.table_id))):
                yield _verified(catalog, store, warehouse_url, record, files=files, history=history, workers=workers)


def _verified(
    catalog: Catalog, store: Store, warehouse_url: str, record: TableRecord, *, files: bool, history: int, workers: int
) -> TableVerified:
    def records(below: int, limit: int) -> Sequence[Recorded]:
        return [recorded(entry) for entry in catalog.history(record.table_id, before_seq=below, limit=limit)]

    table, snapshot_id = f"{record.namespace}.{record.name}", record.pointer.snapshot_id
    options = Options(files=files, pages=False, history=(record.version, history), deep=None, workers=workers)
    try:
        answer = Verification(store, warehouse_url, record.main_id, record.pointer, options, records).run()
    except LamellaError as error:
        return TableVerified(table=table, snapshot_id=snapshot_id, error=error.message)
    checked = answer.checked
    return TableVerified(
        table=table,
        snapshot_id=snapshot_id,
        segments=checked.segments,
        blocks=checked.blocks,
        snapshots=checked.snapshots,
        findings=answer.findings,
    )
