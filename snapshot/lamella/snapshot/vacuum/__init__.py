"""Clean-up: decides which snapshots a table may expire and which objects are no longer needed. Deletes nothing."""

from lamella.snapshot.vacuum.mark import (
    BlockSet,
    ClassifiedObject,
    LiveSet,
    ObjectName,
    Tally,
    foreign_table,
    judged,
    object_name,
)
from lamella.snapshot.vacuum.reclaimable import Reclaimable, reclaimable
from lamella.snapshot.vacuum.retention import (
    Decision,
    Retention,
    Version,
    check_retention,
    decide,
    duration_ms,
    duration_text,
    read_retention,
    versions,
)

__all__ = [
    "BlockSet",
    "ClassifiedObject",
    "Decision",
    "LiveSet",
    "ObjectName",
    "Reclaimable",
    "Retention",
    "Tally",
    "Version",
    "check_retention",
    "decide",
    "duration_ms",
    "duration_text",
    "foreign_table",
    "judged",
    "object_name",
    "read_retention",
    "reclaimable",
    "versions",
]
