"""The catalog: namespaces, tables, the pointer to each table's current snapshot, and answers to replay."""

from lamella.service.catalog.port import (
    Catalog,
    CommitGuard,
    Condemned,
    DroppedTable,
    FeedbackBounds,
    FeedbackRecord,
    HistoryEntry,
    LeaseRecord,
    RecordedBounds,
    RecordedFilter,
    StoredAnswer,
    TableRecord,
    TagRecord,
)
from lamella.service.catalog.sql import SqlCatalog, open_catalog

__all__ = [
    "Catalog",
    "CommitGuard",
    "Condemned",
    "DroppedTable",
    "FeedbackBounds",
    "FeedbackRecord",
    "HistoryEntry",
    "LeaseRecord",
    "RecordedBounds",
    "RecordedFilter",
    "SqlCatalog",
    "StoredAnswer",
    "TableRecord",
    "TagRecord",
    "open_catalog",
]
