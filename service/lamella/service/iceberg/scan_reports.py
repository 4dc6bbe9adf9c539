"""Reports of scans that Iceberg clients planned by themselves: their filters are recorded, as those of prunes are.

Java's clients replace the constants of a filter before they report it (``(2-digit-int)``), and a constant of another
client may be secret. So a reported filter is recorded without constants, whatever the settings say of others. Numbers
are claims of the client, and count only as far as the table has so many blocks.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lamella.service.catalog import TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.service.usage.filters import PruneNotes
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.iceberg.wire import ScanReport
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest, Report, Stage

SCAN: Final = "scan-report"
COMMIT: Final = "commit-report"


class _Counter(msgspec.Struct, frozen=True):
    """A number of a report."""

    value: Annotated[int, Meta(ge=0)] = 0


class _Metrics(msgspec.Struct, frozen=True, rename="kebab"):
    """What is used of a report's numbers."""

    result_data_files: _Counter = _Counter()
    total_file_size_in_bytes: _Counter = _Counter()


class ScanReports:
    """Notes reports. A method that blocks only reads the table's current manifest."""

    def __init__(self, warehouse: Warehouse, notes: PruneNotes) -> None:
        self._warehouse = warehouse
        self._notes = notes

    def note(self, record: TableRecord, report: ScanReport) -> None:
        """Take note of a report; commits are in the table's history anyway.

        Raises InvalidRequest for another kind of report, or numbers that are none.
        """
        if report.report_type == COMMIT:
            return
        if report.report_type != SCAN:
            raise InvalidRequest(f"report-type must be {SCAN} or {COMMIT}, not {report.report_type!r}")
        try:
            metrics = msgspec.convert(report.metrics, _Metrics)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"the metrics of the report cannot be read: {error}") from error
        if report.filter is None or report.filter is True or report.filter == {"type": "true"}:
            return
        with trusted_manifests():
            total = self._warehouse.head(record.pointer).summary
        selected = min(metrics.result_data_files.value, total.block_count)
        size_bytes = min(metrics.total_file_size_in_bytes.value, total.compressed_byte_size)
        stage = Stage(stage="client", considered=total.block_count, kept=selected, bytes=size_bytes, ms=0.0)
        request: Any = PruneRequest(filter=report.filter)
        self._notes.note_scan(
            record,
            request,
            Report(
                stages=(stage,),
                blocks_total=total.block_count,
                rows_total=total.row_count,
                bytes_total=total.compressed_byte_size,
            ),
        )
