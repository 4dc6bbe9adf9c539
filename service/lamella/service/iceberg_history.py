"""Snapshots of a table by their Iceberg ids, and all of them as table metadata has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lamella.service.catalog import Catalog, HistoryEntry, TableRecord
from lamella.service.state import trusted_manifests
from lamella.snapshot.errors import InvalidRequest, NotExpressible
from lamella.snapshot.iceberg.metadata import PastSnapshot, readable_schemas, require_named, table_metadata
from lamella.snapshot.manifest import Snapshot
from lamella.snapshot.schema import Schema
from lamella.snapshot.warehouse import Warehouse

#: The newest snapshots, which the metadata lists beside those that are tagged.
MOST_SNAPSHOTS: Final = 1_000


class IcebergHistory:
    """Every method waits for the catalog. ``clock`` gives Unix milliseconds; it decides which tags are alive."""

    def __init__(self, catalog: Catalog, warehouse: Warehouse, clock: Callable[[], int]) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._clock = clock

    def entry(self, record: TableRecord, number: int) -> HistoryEntry:
        """The snapshot with an id; raises InvalidRequest when there is none (any more)."""
        is_there = 1 <= number <= record.version
        found = self._catalog.history(record.table_id, before_seq=number + 1, limit=1) if is_there else []
        if not found or found[0].seq != number:
            raise InvalidRequest(
                f"the table has no snapshot with the id {number}, or has it no more", snapshot_id=number
            )
        return found[0]

    def head(self, entry: HistoryEntry) -> Snapshot:
        """A snapshot without its segments."""
        with trusted_manifests():
            return self._warehouse.head(entry.pointer)

    def readable(self, record: TableRecord, head: Snapshot) -> None:
        """Raise NotExpressible for a snapshot of the table that no Iceberg client would read rightly."""
        with trusted_manifests():
            current = self._warehouse.head(record.pointer)
        schemas = readable_schemas(current)
        if head.snapshot_id == current.snapshot_id:
            return
        require_named(head)
        if schemas is None:
            raise NotExpressible(
                "a name has stood for two columns of this table, so that only its current snapshot can be read as "
                "Iceberg: files of earlier ones say only names"
            )
        if head.schema.schema_id not in schemas:
            raise NotExpressible("the snapshot has a column that Iceberg has no type for")

    def metadata(self, record: TableRecord, *, only_refs: bool) -> dict[str, Any]:
        """The table's metadata; raises NotExpressible."""
        with trusted_manifests():
            head = self._warehouse.head(record.pointer)
        # Of a snapshot that came meanwhile, the metadata says nothing yet.
        tags = [tag for tag in self._catalog.tags(record.table_id, now_ms=self._clock()) if tag.seq <= record.version]
        before = record.version + 1
        newest = self._catalog.history(record.table_id, before_seq=before, limit=1 if only_refs else MOST_SNAPSHOTS)
        listed = {entry.seq: entry for entry in newest}
        for tag in tags:
            if tag.seq not in listed:
                listed |= {e.seq: e for e in self._catalog.history(record.table_id, before_seq=tag.seq + 1, limit=1)}
        entries = [listed[seq] for seq in sorted(listed)]
        return table_metadata(
            head,
            self._past(entries, head.history),
            {tag.name: tag.seq for tag in tags},
            current=record.version,
            location=record.location,
            only_refs=only_refs,
        )

    def _past(self, entries: Sequence[HistoryEntry], schemas: Sequence[Schema]) -> list[PastSnapshot]:
        schema_ids = self._schema_ids(entries) if len(schemas) > 1 else [schemas[0].schema_id] * len(entries)
        return [
            PastSnapshot(
                number=entry.seq,
                parent=None if entry.prev_snapshot_id is None else entry.seq - 1,
                timestamp_ms=entry.pointer.timestamp_ms,
                operation=entry.operation,
                row_count=entry.row_count,
                block_count=entry.block_count,
                file_size_bytes=entry.file_size_bytes,
                schema_id=schema_id,
            )
            for entry, schema_id in zip(entries, schema_ids, strict=True)
        ]

    def _schema_ids(self, entries: Sequence[HistoryEntry]) -> list[int]:
        """The schema of each. Ids only grow along a history, so only snapshots around a change have to be looked at."""
        found = [0] * len(entries)

        def fill(low: int, high: int) -> None:
            if high - low > 1 and found[low] == found[high]:
                found[low + 1 : high] = [found[low]] * (high - low - 1)
            elif high - low > 1:
                middle = (low + high) // 2
                found[middle] = self.head(entries[middle]).schema.schema_id
                fill(low, middle)
                fill(middle, high)

        if entries:
            found[0], found[-1] = (self.head(entries[at]).schema.schema_id for at in (0, -1))
            fill(0, len(entries) - 1)
        return found
