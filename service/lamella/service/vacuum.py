"""Cleaning up: snapshots expire in the catalog first; then what no snapshot needs is condemned, looked at once more,
and deleted. docs/decisions/0016-vacuum.md says why this never deletes what is needed, whatever goes on beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from lamella.service.catalog import Catalog, Condemned, HistoryEntry, TableRecord
from lamella.service.catalog.leased import LEASE_GRACE_MS
from lamella.service.external_blocks import ExternalBlocks
from lamella.service.metrics import Metrics
from lamella.service.page_token import PageTokens
from lamella.service.state import trusted_manifests
from lamella.service.sweep import Sweep
from lamella.service.vacuum_report import Report, read_behind, write_behind
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout import Anywhere, ListedObject, Places, Store
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.vacuum import (
    Decision,
    LiveSet,
    Retention,
    decide,
    duration_ms,
    judged,
    read_retention,
    versions,
)
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import VacuumAnswer, VacuumRequest

#: A part ends after about so long, besides reading what the snapshots need.
PART_S: Final = 10.0


class Vacuum:
    """Cleans up tables, part by part.

    ``min_age_ms``: younger objects are never garbage; must be longer than any commit or job takes. ``max_objects``:
    objects that one part looks at when the request does not say.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        metrics: Metrics,
        clock: Callable[[], int],
        retention: Retention,
        min_age_ms: int,
        drop_grace_ms: int,
        max_objects: int,
        places_of: Callable[[TableRecord], Places] = lambda _: Anywhere(),
        tokens: PageTokens | None = None,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._retention = retention
        self._min_age_ms = min_age_ms
        self._drop_grace_ms = drop_grace_ms
        self._max_objects = max_objects
        self._timer = timer
        self._external = ExternalBlocks(catalog, warehouse, store)
        self._places_of = places_of
        self._tokens = PageTokens() if tokens is None else tokens

    def vacuum(self, record: TableRecord, request: VacuumRequest) -> VacuumAnswer:
        """One part of a table's clean-up.

        Raises:
            InvalidRequest: an age or number that cannot be, or a table that is not in this warehouse.
            InvalidPageToken: the token is none, or of another table.
            ManifestError, StoreError: what is needed cannot be read; nothing was deleted in this part.
        """
        root = self._owned(record)
        now_ms = self._clock()
        report = Report(executed=request.execute, before_ms=now_ms - self._min_age_ms)
        behind = None if request.page_token is None else read_behind(self._tokens, request.page_token, root)
        entries = self._catalog.kept(record.table_id)
        retention, decisions = self._decide(record, entries, request, now_ms)
        going = {decision.version.seq for decision in decisions if decision.expires}
        if behind is None:
            if request.execute and going:
                going = set(self._catalog.expire_snapshots(record.table_id, sorted(going), now_ms=now_ms))
                self._metrics.snapshots_expired.inc(len(going))
            report.decided(decisions, going if request.execute else None)
        if not retention.enabled:
            return report.answer(next_page_token=None)
        gone = [entry for entry in entries if entry.seq in going]
        sweep = self._sweep(record, report, request, doomed=False)
        live = self._live(record.table_id)
        with trusted_manifests():
            if request.execute:
                live.add(entry.pointer for entry in self._catalog.kept(record.table_id))
            else:
                live.add(entry.pointer for entry in entries if entry.seq not in going)
            if request.include_external_blocks and behind is None:
                without = set() if request.execute else {entry.pointer.snapshot_id for entry in gone}
                places = self._places_of(record)
                condemned = self._external.of(record.table_id, gone, places, report, without=without, now_ms=now_ms)
                sweep.condemn(condemned)
            behind = self._look(root, behind, live, sweep, report, request)
            sweep.finish(live)
        return report.answer(next_page_token=None if behind is None else write_behind(self._tokens, behind, root))

    def foreseen(self, record: TableRecord, entries: Sequence[HistoryEntry]) -> tuple[Decision, ...]:
        """What a clean-up would decide of each snapshot of a table's history now; nothing is done.

        Raises InvalidRequest (a retention property), ManifestError, StoreError, Unavailable.
        """
        return self._decide(record, entries, VacuumRequest(), self._clock())[1]

    def purge_dropped(self, request: VacuumRequest) -> VacuumAnswer:
        """One part of the clean-up of dropped tables whose grace is over. Raises as :meth:`vacuum`."""
        if request.older_than is not None or request.page_token is not None:
            raise InvalidRequest("dropped tables are purged by their grace; older_than and page_token mean nothing")
        now_ms = self._clock()
        report = Report(executed=request.execute, before_ms=now_ms - self._min_age_ms)
        dropped_before_ms = now_ms - self._drop_grace_ms
        left_over = False
        for found in self._catalog.dropped_before(dropped_before_ms):
            record = found.record
            root = self._owned(record)
            held = self._catalog.leases(record.table_id, now_ms=now_ms - LEASE_GRACE_MS)
            if held and not found.doomed:
                report.is_left(root, f"leased by {', '.join(sorted({lease.owner for lease in held}))}")
                continue
            if request.execute and not self._catalog.doom_table(
                record.table_id, dropped_before_ms=dropped_before_ms, now_ms=now_ms
            ):
                continue  # it was undropped meanwhile
            report.tables.append(record.table_id)
            sweep = self._sweep(record, report, request, doomed=True)
            live = self._live(record.table_id)
            if request.include_external_blocks:
                with trusted_manifests():
                    gone = self._catalog.kept(record.table_id)
                    without = {entry.pointer.snapshot_id for entry in gone}
                    external = self._external.of(
                        record.table_id,
                        gone,
                        self._places_of(record),
                        report,
                        without=without,
                        now_ms=now_ms,
                        half_deleted=found.doomed,
                    )
                    sweep.condemn(external)
            behind = self._look(root, None, live, sweep, report, request)
            clean = sweep.finish(live)
            if behind is not None:
                left_over = True
                continue
            if request.execute and clean and not sweep.young:
                self._catalog.forget_table(record.table_id)
        # It only says that there is more: no token is taken here.
        return report.answer(next_page_token=write_behind(self._tokens, "", "dropped") if left_over else None)

    def _live(self, table_id: str) -> LiveSet:
        def is_gone(pointer: SnapshotPointer) -> bool:
            return all(entry.pointer != pointer for entry in self._catalog.kept(table_id))

        return LiveSet(self._warehouse, self._warehouse.table_location(table_id), is_gone)

    def _sweep(self, record: TableRecord, report: Report, request: VacuumRequest, *, doomed: bool) -> Sweep:
        return Sweep(
            self._catalog,
            self._store,
            self._metrics,
            self._external,
            self._places_of(record),
            record.table_id,
            report,
            root=self._warehouse.table_location(record.table_id),
            execute=request.execute,
            doomed=doomed,
        )

    def _look(
        self,
        root: str,
        behind: str | None,
        live: LiveSet,
        sweep: Sweep,
        report: Report,
        request: VacuumRequest,
    ) -> str | None:
        """Judge what is in the folder; returns the last location that was looked at, None at the folder's end."""
        most = self._most(request)
        deadline_s = self._timer() + PART_S
        before_ms = self._clock() - self._min_age_ms
        last: str | None = None
        ended = True

        def listed() -> Iterator[ListedObject]:
            nonlocal last, ended
            for number, found in enumerate(self._store.list(root + "/", start_after=behind)):
                if number == most or (number and self._timer() > deadline_s):
                    ended = False
                    return
                last = found.location
                yield found

        garbage = []
        for found in judged(listed(), root, live, before_ms=before_ms):
            if found.verdict != "garbage" or found.name is None:
                report.stays(found)
                sweep.young = sweep.young or found.verdict == "young"
                continue
            garbage.append(
                Condemned(
                    location=found.location,
                    table_id=sweep.table_id,
                    kind=found.name.kind,
                    size_bytes=found.size_bytes,
                    condemned_at_ms=self._clock(),
                )
            )
            sweep.newest_ms = max(sweep.newest_ms, found.name.made_ms)
        sweep.condemn(garbage)
        return None if ended else last

    def _most(self, request: VacuumRequest) -> int:
        if request.max_objects is None:
            return self._max_objects
        if not 1 <= request.max_objects <= self._max_objects:
            raise InvalidRequest(f"max_objects is a number from 1 to {self._max_objects}, not {request.max_objects}")
        return request.max_objects

    def _decide(
        self, record: TableRecord, entries: Sequence[HistoryEntry], request: VacuumRequest, now_ms: int
    ) -> tuple[Retention, tuple[Decision, ...]]:
        with trusted_manifests():
            properties = self._warehouse.head(record.pointer).properties
        retention = read_retention(properties, self._retention)
        if request.older_than is not None:
            older_ms = duration_ms(request.older_than)
            retention = Retention(max_age_ms=older_ms, min_snapshots=retention.min_snapshots, enabled=retention.enabled)
        # Nothing that was current within the minimum age: whoever was told of its blocks may still be reading them.
        retention = Retention(
            max_age_ms=max(retention.max_age_ms, self._min_age_ms),
            min_snapshots=retention.min_snapshots,
            enabled=retention.enabled,
        )
        tags = _by_snapshot((tag.snapshot_id, tag.name) for tag in self._catalog.tags(record.table_id, now_ms=now_ms))
        held = self._catalog.leases(record.table_id, now_ms=now_ms - LEASE_GRACE_MS)
        history = versions((e.seq, e.pointer.snapshot_id, e.pointer.timestamp_ms, e.until_ms) for e in entries)
        leases = _by_snapshot((lease.snapshot_id, lease.owner) for lease in held)
        return retention, decide(history, retention, tags=tags, leases=leases, now_ms=now_ms)

    def _owned(self, record: TableRecord) -> str:
        """The table's folder, which must be the one that this warehouse gives it."""
        root = self._warehouse.table_location(record.table_id)
        if record.location != root or not record.table_id or "/" in record.table_id:
            raise InvalidRequest(
                f"table '{record.namespace}.{record.name}' is at {record.location}, which is not its folder in this "
                "warehouse; nothing is deleted there",
                location=record.location,
            )
        return root


def _by_snapshot(pairs: Iterator[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for snapshot_id, name in pairs:
        found.setdefault(snapshot_id, []).append(name)
    return found
