"""Registered files outside of tables' folders: which of them no table needs any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from lamella.service.catalog import Catalog, Condemned, HistoryEntry
from lamella.service.vacuum_report import Report
from lamella.snapshot.errors import ObjectNotFound
from lamella.snapshot.layout import Places, Store
from lamella.snapshot.manifest import Block, SnapshotPointer
from lamella.snapshot.source import KIND
from lamella.snapshot.vacuum import BlockSet
from lamella.snapshot.warehouse import Warehouse

_UNNAMED: Final = "it is gone, so nothing says which external files only this snapshot had; they stay"
_OUTSIDE: Final = "it lies where the table may use nothing (any more), so it is not the table's to delete"
_FOLLOWED: Final = "the table follows a source, whose files are not Lamella's to delete; they stay"


class ExternalBlocks:
    """Looks at the blocks of every table, since a file may be registered in several."""

    def __init__(self, catalog: Catalog, warehouse: Warehouse, store: Store) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store

    def needed(self, *, without: AbstractSet[str] = frozenset()) -> BlockSet:
        """The blocks of all snapshots of all tables, except those snapshots; dropped tables count until their end.

        Raises:
            ManifestError, HashMismatch, UnsupportedFormat, StoreError: one of them cannot be read.
        """
        tables = self._catalog.tables_with_files()

        def is_gone(pointer: SnapshotPointer) -> bool:
            return all(entry.pointer != pointer for table_id in tables for entry in self._catalog.kept(table_id))

        found = BlockSet(self._warehouse, is_gone)
        for table_id in tables:
            pointers = (entry.pointer for entry in self._catalog.kept(table_id))
            found.add(pointer for pointer in pointers if pointer.snapshot_id not in without)
        return found

    def of(
        self,
        table_id: str,
        gone: Sequence[HistoryEntry],
        places: Places,
        report: Report,
        *,
        without: AbstractSet[str],
        now_ms: int,
        half_deleted: bool = False,
    ) -> list[Condemned]:
        """The files that only the snapshots ``gone`` need, as long as they are the files that were registered.

        Files outside of ``places`` stay. ``half_deleted``: an earlier part condemned these files and then deleted some
        of the snapshots' manifests.

        Raises as :meth:`needed`.
        """
        if not gone:
            return []
        needed = self.needed(without=without)
        condemned: dict[str, Condemned] = {}
        for block in self._blocks(gone, needed, None if half_deleted else report):
            if block.location in needed or block.location in condemned or self._is_inside(block.location):
                continue
            reason = self._changed(block) if places.allows(block.location) else _OUTSIDE
            if reason is None:
                condemned[block.location] = Condemned(
                    location=block.location,
                    table_id=table_id,
                    kind="external",
                    size_bytes=block.file_size,
                    condemned_at_ms=now_ms,
                )
            elif reason:
                report.is_left(block.location, reason)
        return list(condemned.values())

    def _blocks(self, gone: Sequence[HistoryEntry], needed: BlockSet, report: Report | None) -> Iterable[Block]:
        seen: set[str] = set()
        for entry in gone:
            try:
                if KIND in self._warehouse.head(entry.pointer).properties:
                    if report is not None:
                        report.is_left(entry.pointer.manifest.location, _FOLLOWED)
                    continue
                for ref in needed.others(entry.pointer):
                    if ref.segment_id not in seen:
                        yield from self._warehouse.segment(ref).blocks
                        seen.add(ref.segment_id)
            except ObjectNotFound:
                # It left the history, so from then on another clean-up may delete it.
                if report is not None:
                    report.is_left(entry.pointer.manifest.location, _UNNAMED)

    def _is_inside(self, location: str) -> bool:
        """What is below the warehouse belongs to its tables, whose own clean-up knows it by its name."""
        return location.startswith(self._warehouse.table_location(""))

    def _changed(self, block: Block) -> str | None:
        """Why the file must stay; None: it may go; empty: it is gone."""
        if block.content_id is None:
            return "it is not known whether this is the file that was registered"
        try:
            stat = self._store.stat(block.location)
        except ObjectNotFound:
            return ""
        if stat.content_id != block.content_id:
            return "another file has taken the place of the one that was registered"
        return None
