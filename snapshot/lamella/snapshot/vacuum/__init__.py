"""Clean-up: which snapshots a table may forget, and which objects nothing needs any more. Decides; deletes nothing."""

from lamella.snapshot.vacuum.candidates import Found, Tally, judged
from lamella.snapshot.vacuum.expiry import Decision, Version, decide, versions
from lamella.snapshot.vacuum.mark import BlockSet, LiveSet, foreign_table
from lamella.snapshot.vacuum.names import ObjectName, object_name
from lamella.snapshot.vacuum.retention import Retention, check_retention, duration_ms, duration_text, read_retention

__all__ = [
    "BlockSet",
    "Decision",
    "Found",
    "LiveSet",
    "ObjectName",
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
    "versions",
]
