"""The catalog: namespaces, tables, the pointer to each table's current snapshot, and answers to replay."""

from lamella.service.catalog.access_port import AccessCatalog, KeyRecord
from lamella.service.catalog.job_port import (
    Claimed,
    DueSchedule,
    Enqueued,
    JobCatalog,
    JobEnding,
    JobFilter,
    JobRecord,
    JobReport,
    PolicyRecord,
    RuleFired,
    ScheduleRecord,
)
from lamella.service.catalog.port import (
    Catalog,
    CommitGuard,
    Condemned,
    DroppedTable,
    FeedbackBounds,
    FeedbackRecord,
    HistoryEntry,
    LeaseRecord,
    NamespaceUse,
    RecordedBounds,
    RecordedFilter,
    StoredAnswer,
    TableRecord,
    TagRecord,
)
from lamella.service.catalog.rows import StoredJson
from lamella.service.catalog.sql import SqlCatalog, open_catalog
from lamella.service.catalog.watch_port import PruneRateRow

__all__ = [
    "AccessCatalog",
    "Catalog",
    "Claimed",
    "CommitGuard",
    "Condemned",
    "DroppedTable",
    "DueSchedule",
    "Enqueued",
    "FeedbackBounds",
    "FeedbackRecord",
    "HistoryEntry",
    "JobCatalog",
    "JobEnding",
    "JobFilter",
    "JobRecord",
    "JobReport",
    "KeyRecord",
    "LeaseRecord",
    "NamespaceUse",
    "PolicyRecord",
    "PruneRateRow",
    "RecordedBounds",
    "RecordedFilter",
    "RuleFired",
    "ScheduleRecord",
    "SqlCatalog",
    "StoredAnswer",
    "StoredJson",
    "TableRecord",
    "TagRecord",
    "open_catalog",
]
