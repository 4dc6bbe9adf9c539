"""Advice for the API: scores, what-if, why-not, and the recorded filters."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.service.catalog import Catalog, RecordedFilter, StoredJson, TableRecord
from lamella.service.history.history import History, trusted_manifests
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.usage.feedback import FeedbackQuery
from lamella.service.usage.filters import FilterRecorder, as_recorded
from lamella.snapshot.advice.candidates import Candidates, Upkeep
from lamella.snapshot.advice.scores import Advising
from lamella.snapshot.advice.what_if import WhatIf
from lamella.snapshot.advice.why_not import WhyNot
from lamella.snapshot.advice.workload import Reported
from lamella.snapshot.errors import InvalidRequest, SnapshotNotFound
from lamella.snapshot.expression import check_together, read_filter
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.read_costs import ReplayedFilter
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    CandidateGain,
    CandidatesAnswer,
    CandidatesRequest,
    RecordedCleared,
    RecordedInfo,
    RecordedList,
    TableHealth,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)
from lamella.snapshot.workload.recorded_filters import Recorded

_QUERY = StoredJson(FeedbackQuery, "a reported filter")
#: Most recorded filters in one listing.
MAX_LISTED = 10_000


class Advice:
    """Gives advice on one table at a time; it changes only the recorded filters."""

    def __init__(
        self,
        warehouse: Warehouse,
        store: Store,
        history: History,
        recorder: FilterRecorder,
        catalog: Catalog,
        healths: TableHealths,
    ) -> None:
        access = IndexAccess(warehouse.manifests)
        self._scores = Advising(warehouse.manifests)
        self._what_if = WhatIf(warehouse.manifests, access, store)
        self._why_not = WhyNot(warehouse.manifests, access)
        self._candidates = Candidates(warehouse.manifests, access, warehouse.planning, store)
        self._catalog = catalog
        self._healths = healths
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

    def candidates(
        self, table: TableRecord, request: CandidatesRequest, filters: Sequence[Recorded] | None = None
    ) -> CandidatesAnswer:
        """Return what could be done for the current snapshot. ``filters``: replay these, and not those that were
        recorded or reported. Raises ManifestError, StoreError, Unavailable.
        """
        recorded = filters
        if recorded is None:
            recorded = [as_recorded(each) for each in self._recorder.filters(table.table_id, request.recorded)]
        reported = self._reported(table, request.recorded)
        upkeep = _upkeep(self._healths.peek(table), table.pointer)
        with trusted_manifests():
            return self._candidates.of(
                table.pointer,
                f"{table.namespace}.{table.name}",
                request,
                recorded,
                reported,
                upkeep,
                only_recorded=filters is not None,
            )

    def measured(
        self, table: TableRecord, snapshot_id: str, filters: Sequence[Recorded], *, seed: int
    ) -> tuple[CandidateGain | None, str]:
        """Return what filters read of an earlier snapshot and of the current one; None and the reason if that cannot be
        measured. Raises ManifestError, StoreError, Unavailable.
        """
        try:
            before = self._history.pointer(table, snapshot_id=snapshot_id)
        except SnapshotNotFound as error:
            return None, error.message
        with trusted_manifests():
            return self._candidates.measured(before, table.pointer, filters, seed=seed)

    def _reported(self, table: TableRecord, at_most: int) -> list[Reported]:
        """Return the filters of readers' reports, the latest first."""
        records = sorted(self._catalog.feedback(table.table_id), key=lambda each: -each.used_at_ms)
        queries = [(each, _QUERY.decode(each.filter_json)) for each in records[:at_most]]
        return [
            Reported(
                filter=query.filter, blocks=each.blocks, time_zone=query.time_zone, case_sensitive=query.case_sensitive
            )
            for each, query in queries
        ]

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


def _upkeep(health: TableHealth | None, pointer: SnapshotPointer) -> Upkeep:
    """Return what is known of a table's history; it may be of an earlier snapshot."""
    if health is None:
        return Upkeep(reason="the table is being measured; ask again soon")
    expired = health.expired
    return Upkeep(
        snapshots=health.snapshots,
        expired_snapshots=health.expired_snapshots,
        min_bytes=None if expired is None else expired.min_bytes,
        max_bytes=None if expired is None else expired.max_bytes,
        earlier_snapshot_id=None if health.snapshot_id == pointer.snapshot_id else health.snapshot_id,
        reason=health.missing.get("expired", "") or health.missing.get("expired_snapshots", ""),
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
