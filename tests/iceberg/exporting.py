"""Exports for tests, and what pyiceberg reads of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from lamella.client.iceberg.export import ExportOptions, ExportResult, export_iceberg
from lamella.snapshot.storage import FsspecStore, ReplacingStore
from support.event_tables import SCHEMA, EventTable, as_texts


def exported(table: EventTable, store: ReplacingStore | None = None, **options: Any) -> ExportResult:
    """An export of the table."""
    return export_iceberg(table.lake, table.name, store or FsspecStore(), ExportOptions(**options))


def opened(done: ExportResult) -> StaticTable:
    """What pyiceberg makes of an export."""
    return StaticTable.from_metadata(done.metadata_location)


def rows(found: StaticTable, snapshot: int | None = None) -> Counter[str]:
    """All events that pyiceberg reads, of a snapshot by its number."""
    read: pa.Table = found.scan(snapshot_id=snapshot).to_arrow()
    return as_texts(read.cast(SCHEMA))
