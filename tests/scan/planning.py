"""A warehouse as what plans a scan, without a service in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from lamella.client.scan import Request, Scan
from lamella.snapshot.expression import Predicate
from lamella.snapshot.manifest import Snapshot, SnapshotPointer
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    AggregateAnswer,
    AggregateRequest,
    Level,
    OrderBy,
    PruneAnswer,
    PruneRequest,
    TableInfo,
)


class WarehouseTable:
    """The snapshots of one table; the last of them is the current one. Filters may be predicates."""

    def __init__(self, warehouse: Warehouse, *pointers: SnapshotPointer) -> None:
        self._warehouse = warehouse
        self._pointers = {pointer.snapshot_id: pointer for pointer in pointers}
        self._current = pointers[-1]

    def prune(
        self,
        filter: Any = None,
        *,
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        level: Level,
        limit: int | None,
        order_by: Sequence[OrderBy],
        reader_features: Sequence[str] = (),
    ) -> PruneAnswer:
        """As the service answers."""
        assert timestamp is None
        request = PruneRequest(
            filter=None if isinstance(filter, Predicate) else filter,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            level=level,
            shape="columns",
            limit=limit,
            order_by=tuple(order_by),
            reader_features=tuple(reader_features),
        )
        pointer = self._pointer(snapshot_id)
        if isinstance(filter, Predicate):
            return self._warehouse.prune_predicate(pointer, filter, request)
        return self._warehouse.prune(pointer, request)

    def aggregate(
        self,
        aggregates: Sequence[str],
        filter: Any = None,
        *,
        group_by: Sequence[str] = (),
        snapshot_id: str | None,
        timestamp: int | str | dt.datetime | None,
        time_zone: str,
        case_sensitive: bool,
        reader_features: Sequence[str] = (),
        max_scan_blocks: int | None = None,
    ) -> AggregateAnswer:
        """As the service answers."""
        assert timestamp is None
        request = AggregateRequest(
            aggregates=tuple(aggregates),
            group_by=tuple(group_by),
            max_scan_blocks=max_scan_blocks,
            filter=None if isinstance(filter, Predicate) else filter,
            time_zone=time_zone,
            case_sensitive=case_sensitive,
            reader_features=tuple(reader_features),
        )
        pointer = self._pointer(snapshot_id)
        if isinstance(filter, Predicate):
            return self._warehouse.aggregate_predicate(pointer, filter, request)
        return self._warehouse.aggregate(pointer, request)

    def info(self) -> TableInfo:
        """The current snapshot's."""
        head = self._warehouse.head(self._current)
        return TableInfo(
            namespace="db",
            name="t",
            table_id=head.table_id,
            location=self._warehouse.table_location(head.table_id),
            snapshot_id=head.snapshot_id,
            timestamp_ms=head.timestamp_ms,
            schema=head.schema,
            schemas=head.history[:-1],
        )

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """One of the snapshots."""
        return self._warehouse.snapshot(self._pointers[snapshot_id])

    def scan(self, filter: Any = None, *, store: Store | None = None, workers: int = 2, **options: Any) -> Scan:
        """A scan of the table; ``options`` as of :class:`lamella.client.scan.Request`."""
        request = Request(filter=filter, **options)
        return Scan(self, request, store or FsspecStore(), workers=workers, progress=False)

    def _pointer(self, snapshot_id: str | None) -> SnapshotPointer:
        return self._current if snapshot_id is None else self._pointers[snapshot_id]
