"""Tables and jobs for the tests of the catalog's queue."""

from __future__ import annotations

from itertools import count
from typing import Any

from lamella.service.catalog import Catalog, HistoryEntry, JobRecord, TableRecord
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import ObjectRef, SnapshotPointer

#: Each id is younger than the last, also within a millisecond.
IDS = Ids(count(1_700_000_000_000).__next__)


def new_table(catalog: Catalog, name: str = "t", namespace: str = "db") -> TableRecord:
    """An empty table."""
    ref = ObjectRef(location="file:///1", size_bytes=1, sha256="0" * 64)
    first = HistoryEntry(
        seq=1,
        pointer=SnapshotPointer(snapshot_id=str(IDS.new()), timestamp_ms=5, manifest=ref, sidecar=ref),
        prev_snapshot_id=None,
        operation="create",
        row_count=0,
        block_count=0,
        segment_count=0,
        file_size_bytes=0,
    )
    record = TableRecord(
        table_id=str(IDS.new()),
        namespace=namespace,
        name=name,
        location="file:///w/t",
        version=1,
        pointer=first.pointer,
        created_at_ms=5,
    )
    catalog.create_table(record, first)
    return record


def queued(table: TableRecord | None = None, **values: Any) -> JobRecord:
    """A job that nobody has yet."""
    of_table = {} if table is None else {"table_id": table.table_id, "namespace": table.namespace}
    if table is not None:
        of_table["table_name"] = table.name
    given = {"kind": "compact", "arguments": "{}", "state": "queued", "origin": "request", "created_ms": 1, **of_table}
    return JobRecord(**{"job_id": str(IDS.new()), "max_attempts": 3, **given, **values})


def enqueue(catalog: Catalog, table: TableRecord | None = None, **values: Any) -> str:
    """Add a job; its id."""
    job = queued(table, **values)
    assert catalog.enqueue_job(job, unique=False) is None
    return job.job_id
