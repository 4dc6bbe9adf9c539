"""Advice for the API: scores, what-if, why-not, and the recorded filters."""

from __future__ import annotations

from lamella.service.catalog import RecordedFilter, TableRecord
from lamella.service.history.history import History, trusted_manifests
from lamella.service.usage.filters import FilterRecorder, as_recorded
from lamella.snapshot.advice.scores import Advising
from lamella.snapshot.advice.what_if import WhatIf
from lamella.snapshot.advice.why_not import WhyNot
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression import check_together, read_filter
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.read_costs import ReplayedFilter
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    RecordedCleared,
    RecordedInfo,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)

#: Most recorded filters in one listing.
MAX_LISTED = 10_000


class Advice:
    """Gives advice on one table at a time; it changes only the recorded filters."""

    def __init__(self, warehouse: Warehouse, store: Store, history: History, recorder: FilterRecorder) -> None:
        access = IndexAccess(warehouse.manifests)
        self._scores = Advising(warehouse.manifests)
        self._what_if = WhatIf(warehouse.manifests, access, store)
        self._why_not = WhyNot(warehouse.manifests, access)
        self._history = history
        self._recorder = recorder

    def advise(self, table: TableRecord, request: AdviceRequest) -> AdviceAnswer:
        """Return scores. Raises as :meth:`lamella.snapshot.advice.scores.Advising.advise`, and SnapshotNotFound."""
        pointer = self._pointer(table, request)
        with trusted_manifests():
            return self._scores.advise(pointer, request)

    def what_if(self, table: TableRecord, request: WhatIfRequest) -> WhatIfAnswer:
        """Return what-if results. Raises as :meth:`lamella.snapshot.advice.what_if.WhatIf.answer`, and
        SnapshotNotFound.
        """
        if request.recorded < 1:
            raise InvalidRequest(f"recorded is at least 1, not {request.recorded}", recorded=request.recorded)
        pointer = self._pointer(table, request)
        check_together(request.filters)
        filters = [
            ReplayedFilter(read_filter(each, time_zone=request.time_zone), time_zone=request.time_zone)
            for each in request.filters
        ]
        recorded = []
        if not filters:
            recorded = [as_recorded(each) for each in self._recorder.filters(table.table_id, request.recorded)]
        with trusted_manifests():
            return self._what_if.answer(pointer, request, filters, recorded)

    def why_not(self, table: TableRecord, request: WhyNotRequest) -> WhyNotAnswer:
        """Explain a query. Raises as :meth:`lamella.snapshot.advice.why_not.WhyNot.answer`, SnapshotNotFound,
        InvalidFilter.
        """
        pointer = self._pointer(table, request)
        predicate = read_filter(request.filter, time_zone=request.time_zone)
        with trusted_manifests():
            return self._why_not.answer(pointer, request, predicate)

    def recorded(self, table: TableRecord) -> RecordedList:
        """Return the recorded filters of a table."""
        filters = self._recorder.filters(table.table_id, MAX_LISTED)
        with trusted_manifests():
            mode = self._recorder.mode(table)
        return RecordedList(mode=mode, filters=tuple(_info(each) for each in filters))

    def clear(self, table: TableRecord) -> RecordedCleared:
        """Delete the recorded filters of a table."""
        return RecordedCleared(filters=self._recorder.clear(table.table_id))

    def _pointer(self, table: TableRecord, request: AdviceRequest | WhatIfRequest | WhyNotRequest) -> SnapshotPointer:
        return self._history.pointer(
            table, snapshot_id=request.snapshot_id, timestamp=request.timestamp, time_zone=request.time_zone
        )


def _info(each: RecordedFilter) -> RecordedInfo:
    return RecordedInfo(
        filter=each.text,
        mode=each.mode,
        times=each.times,
        considered=each.considered,
        kept=each.kept,
        kept_bytes=each.kept_bytes,
        first_ms=each.first_ms,
        last_ms=each.last_ms,
    )
