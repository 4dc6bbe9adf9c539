"""What policies are decided by: how a table is now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.state import trusted_manifests
from lamella.snapshot.warehouse import Warehouse


class Measured(msgspec.Struct, frozen=True):
    """A figure of a table, or None and why there is none."""

    value: float | None
    reason: str = ""


class Conditions(Protocol):
    """Measures one thing at a time, when a rule needs it. All may raise ManifestError, StoreError and Unavailable."""

    def small_blocks(self, table: TableRecord, /) -> Measured:
        """Blocks that compaction would not leave alone."""
        ...

    def average_depth(self, table: TableRecord, /) -> Measured:
        """In how many blocks a value of the cluster key lies, on average."""
        ...

    def indexes(self, table: TableRecord, /) -> list[str]:
        """The names of the indexes in use."""
        ...

    def not_indexed_blocks(self, table: TableRecord, index: str, /) -> Measured:
        """Blocks that an index does not know."""
        ...

    def snapshots(self, table: TableRecord, at_most: int, /) -> Measured:
        """Snapshots in the history; the count stops at ``at_most``."""
        ...


class SnapshotConditions:
    """From the table's summaries, its indexes and its history.

    ``depth``: the average depth of a table's cluster key; None: of a table that has no key.
    """

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        depth: Callable[[TableRecord], float | None] | None = None,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._depth = depth

    def small_blocks(self, table: TableRecord) -> Measured:
        """From the summary of the snapshot, or from its blocks where the table has a block size of its own."""
        with trusted_manifests():
            return Measured(self._warehouse.planning.imperfect_blocks(table.pointer))

    def average_depth(self, table: TableRecord) -> Measured:
        """By ``depth``."""
        if self._depth is None:
            return Measured(None, "this service does not measure it")
        found = self._depth(table)
        return Measured(found) if found is not None else Measured(None, "the table has no cluster key")

    def indexes(self, table: TableRecord) -> list[str]:
        """From the head of the snapshot alone."""
        with trusted_manifests():
            return [
                index.name for index in self._warehouse.head(table.pointer).skip_indexes if index.dropped_ms is None
            ]

    def not_indexed_blocks(self, table: TableRecord, index: str) -> Measured:
        """Reads the index's directories and the companions of all segments."""
        with trusted_manifests():
            found = [each for each in self._warehouse.head(table.pointer).skip_indexes if each.name == index]
            if not found:
                return Measured(None, "there is no such index")
            (coverage,) = self._warehouse.index_blocks.coverage(table.pointer, found)
        return Measured(coverage.not_indexed)

    def snapshots(self, table: TableRecord, at_most: int) -> Measured:
        """From the catalog."""
        return Measured(len(self._catalog.history(table.table_id, limit=at_most)))
