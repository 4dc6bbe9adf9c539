"""Which snapshots of Lamella have the files of which Iceberg snapshots, in tables that Iceberg clients commit to."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from lamella.service.catalog import BranchRecord, Catalog, HistoryEntry, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.source import AFTER, HOSTED, SNAPSHOT, UNREAD, VERSION
from lamella.snapshot.warehouse import Warehouse

#: How many snapshots of a history are looked at.
STEPS: Final = 50


def is_of_client(head: Snapshot) -> bool:
    """Return whether a snapshot is the one that has its metadata file: others have come after it otherwise."""
    return (head.prev_snapshot_id or "") == head.properties.get(AFTER, "")


def iceberg_snapshot_of(head: Snapshot) -> int | None:
    """Return the id of the Iceberg snapshot that has the files of a snapshot of Lamella; None if it is not known, or
    there is none.
    """
    properties = head.properties
    if not properties.get(HOSTED) or properties.get(UNREAD):
        return None
    # Only Iceberg clients change the blocks of a branch.
    text = properties.get(SNAPSHOT)
    if text is None and is_of_client(head):
        text = properties.get(VERSION, "").rpartition("#")[2]
    return int(text) if text and text.isdigit() else None


def iceberg_branches(catalog: Catalog, warehouse: Warehouse, table_id: str) -> dict[str, BranchRecord]:
    """Return the branches of a table that stand for those in its Iceberg metadata, by name."""
    with trusted_manifests():
        return {
            each.name: each
            for each in catalog.branches(table_id)
            if SNAPSHOT in warehouse.head(each.record.pointer).properties
        }


class RegisteredSnapshots:
    """Finds the snapshots of Lamella that have the files of Iceberg snapshots."""

    def __init__(self, catalog: Catalog, warehouse: Warehouse) -> None:
        self._catalog = catalog
        self._warehouse = warehouse

    def at(self, record: TableRecord, number: int, *, steps: int = STEPS) -> HistoryEntry | None:
        """Return a snapshot of a table, or of one of its branches, with the files of an Iceberg snapshot.

        None: there is none among the last ``steps`` of each.
        """
        branches = list(iceberg_branches(self._catalog, self._warehouse, record.table_id).values())
        for each in branches:
            if self._is_at(each.record, number):
                return self._catalog.snapshot(each.record.table_id, each.record.pointer.snapshot_id)
        found = self.newest_of(record, (number,), steps=steps)
        for each in branches:
            found = found or self._first(self._own(each, steps), (number,))
        return found

    def newest_of(self, record: TableRecord, numbers: Collection[int], *, steps: int = STEPS) -> HistoryEntry | None:
        """Return the last snapshot in a table's own history with the files of one of some Iceberg snapshots."""
        entries = self._catalog.history(record.table_id, before_seq=record.version + 1, limit=steps)
        return self._first(iter(entries), numbers)

    def _is_at(self, record: TableRecord, number: int) -> bool:
        with trusted_manifests():
            return iceberg_snapshot_of(self._warehouse.head(record.pointer)) == number

    def _own(self, branch: BranchRecord, steps: int) -> Iterator[HistoryEntry]:
        record = branch.record
        for entry in self._catalog.history(record.table_id, before_seq=record.version + 1, limit=steps):
            if entry.seq > branch.fork_seq:
                yield entry

    def _first(self, entries: Iterator[HistoryEntry], numbers: Collection[int]) -> HistoryEntry | None:
        with trusted_manifests():
            for entry in entries:
                if iceberg_snapshot_of(self._warehouse.head(entry.pointer)) in numbers:
                    return entry
        return None
