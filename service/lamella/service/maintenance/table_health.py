"""Table health: measured in the background, one table at a time, with findings of what should be done.

Measuring a large table takes seconds, so no request waits for it: a process measures a table soon after it committed to
it and keeps the result in the catalog for all processes; answers say which snapshot it is of. The time for that is
bounded: after each measurement the thread rests, so that measuring takes no more than ``share`` of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from lamella.service.catalog import Catalog, HistoryEntry, StoredJson, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.service.jobs.policies import Conditions
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.process.threads import Debouncer
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.commit.snapshots import ROLLBACK
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError, PolicyNotFound
from lamella.snapshot.job_kinds import job_kinds
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.vacuum import Decision, Reclaimable, Tally, Version, reclaimable
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import (
    ExpiredBytes,
    HealthFinding,
    HealthRemedy,
    IndexHealth,
    Policy,
    Rule,
    TableHealth,
)

#: Every load leaves some small blocks; these are more than that, and enough to be worth a job.
_SMALL_BLOCKS: Final = 32
_SMALL_SHARE: Final = 0.1
#: Fewer are not worth a job.
_BLOCKS_TO_PURGE: Final = 4
#: Twice the target of reclustering, which would about halve what a look-up reads.
_DEPTH: Final = 4.0
#: Growth of the depth that is reported: single loads cause less.
_GROWTH: Final = 1.5
_MIN_GROWTH: Final = 0.5
#: Blocks that an index does not cover are read: a twentieth is noticeable, half makes it of little use.
_NOT_INDEXED_SHARE: Final = 0.05
_NOT_INDEXED_MUCH: Final = 0.5
#: With a daily vacuum, a table with a commit every half hour has half of these.
_EXPIRED: Final = 100
#: A prune of a smaller table reads little, however it is clustered.
_LARGE_BLOCKS: Final = 1_000


def may_need_attention(block_count: int, version: int) -> bool:
    """Return whether a table can have a finding of severity "warn" by these thresholds: an overview of thousands of
    tables does not measure the others. ``version``: at most so many snapshots are in the history.

    A policy's own thresholds may be lower, and an index may not cover one of three blocks: the table's page tells.
    """
    return block_count >= min(_SMALL_BLOCKS, _BLOCKS_TO_PURGE, _DEPTH) or version >= _EXPIRED


def findings_of(health: TableHealth, policy: Policy, *, has_filters: bool) -> tuple[HealthFinding, ...]:
    """Return the findings, the most severe first. ``has_filters``: filters of the table were recorded."""
    found = [
        *_small_blocks(health, policy),
        *_deleted_rows(health, policy),
        *_depth(health, policy),
        *(each for index in health.indexes for each in _not_indexed(index, policy)),
        *_retention(health, policy),
        *(_no_key(health) if has_filters else ()),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "warn"))


def _small_blocks(health: TableHealth, policy: Policy) -> Iterator[HealthFinding]:
    small, blocks = health.small_blocks, health.block_count
    if not small or not blocks:
        return
    rule = policy.compact
    own = None if rule is None else rule.small_blocks
    if small >= own if own is not None else small >= max(_SMALL_BLOCKS, _SMALL_SHARE * blocks):
        text = (
            f"{small:,} of {counted(blocks, 'block')} {'is' if small == 1 else 'are'} smaller than "
            "compaction makes them."
        )
        yield HealthFinding(code="small_blocks", severity="warn", text=text, remedy=_job("compact", rule))


def _deleted_rows(health: TableHealth, policy: Policy) -> Iterator[HealthFinding]:
    to_purge, blocks = health.blocks_to_purge, health.block_count
    if not to_purge or not blocks:
        return
    rule = policy.purge
    own = None if rule is None else rule.blocks_with_deletes
    if to_purge >= own if own is not None else to_purge >= max(_BLOCKS_TO_PURGE, _SMALL_SHARE * blocks):
        rows = health.deleted_row_count
        known = "" if rows is None else f", {rows:,} in the table together"
        text = (
            f"{to_purge:,} of {counted(blocks, 'block')} {'has' if to_purge == 1 else 'have'} a tenth of their rows "
            f"deleted, or more{known}; readers read them."
        )
        yield HealthFinding(code="deleted_rows", severity="warn", text=text, remedy=_job("purge", rule))


def _depth(health: TableHealth, policy: Policy) -> Iterator[HealthFinding]:
    depth = health.average_depth
    if depth is None:
        return
    rule = policy.recluster
    min_depth = _DEPTH if rule is None or rule.average_depth is None else rule.average_depth
    remedy = _job("recluster", rule)
    if depth >= min_depth:
        text = f"A value of the cluster key is in {depth:.1f} blocks on average; {min_depth:g} or more are too many."
        yield HealthFinding(code="depth", severity="warn", text=text, remedy=remedy)
    for before, when in ((health.depth_week_ago, "a week ago"), (health.depth_day_ago, "a day ago")):
        if before is not None and depth >= before * _GROWTH and depth - before >= _MIN_GROWTH:
            text = f"A value of the cluster key is in {depth:.1f} blocks on average; {when} it was {before:.1f}."
            yield HealthFinding(code="depth_growing", severity="info", text=text, remedy=remedy)
            return


def _not_indexed(index: IndexHealth, policy: Policy) -> Iterator[HealthFinding]:
    if not index.not_indexed:
        return
    rule = policy.index_refresh
    if rule is not None and rule.indexes is not None and index.name not in rule.indexes:
        rule = None
    own = None if rule is None else rule.not_indexed_blocks
    share = index.not_indexed / index.blocks
    if index.not_indexed < own if own is not None else share < _NOT_INDEXED_SHARE:
        return
    yield HealthFinding(
        code="not_indexed",
        severity="warn" if own is not None or share >= _NOT_INDEXED_MUCH else "info",
        text=f"Index {index.name!r} does not cover {index.not_indexed:,} of "
        f"{counted(index.blocks, 'block')}, which are read.",
        remedy=_job("index_refresh", rule, {"index": index.name}),
    )


def _retention(health: TableHealth, policy: Policy) -> Iterator[HealthFinding]:
    expired, snapshots = health.expired_snapshots, health.snapshots
    if not expired or not snapshots:
        return
    rule = policy.vacuum
    own = None if rule is None else rule.snapshots
    if snapshots >= own if own is not None else expired >= _EXPIRED:
        text = (
            f"{expired:,} of {counted(snapshots, 'snapshot')} {'is' if expired == 1 else 'are'} past their retention "
            "and would expire with a vacuum."
        )
        remedy = _job("vacuum", rule, {"execute": True})
        yield HealthFinding(code="retention", severity="warn", text=text, remedy=remedy)


def _no_key(health: TableHealth) -> Iterator[HealthFinding]:
    if not health.cluster_key and health.block_count is not None and health.block_count >= _LARGE_BLOCKS:
        text = (
            f"The table has {counted(health.block_count, 'block')} and is queried with filters, but has no cluster key."
        )
        yield HealthFinding(code="no_cluster_key", severity="info", text=text)


def _job(kind: str, rule: Rule | None, arguments: Mapping[str, Any] | None = None) -> HealthRemedy | None:
    """Return the job as the policy would add it."""
    if kind not in job_kinds():
        return None
    return HealthRemedy(kind=kind, arguments={**({} if rule is None else rule.arguments), **(arguments or {})})


#: Tables whose health is cached, and tables that wait to be measured.
_MAX_CACHED: Final = 1_000
_MAX_WAITING: Final = 1_000
#: Retention and the comparison with a day ago change even if the snapshot does not.
_FRESH_MS: Final = 300_000
_DAY_MS: Final = 86_400_000
_LOG: Final = logging.getLogger("lamella.health")
_POLICY: Final = StoredJson(Policy, "a policy")
_T = TypeVar("_T")


class _Parts:
    """The values that could be measured, and why others could not."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def measure(self, names: Sequence[str], look: Callable[[], tuple[Any, ...]]) -> None:
        """Measure some members together; they fail together."""
        try:
            with trusted_manifests():
                self.values.update(zip(names, look(), strict=True))
        except LamellaError as error:
            self.missing.update(dict.fromkeys(names, error.message))
        except (
            Exception
        ) as error:  # a bug in the service: the other values are shown, and pages do not wait for this one
            _LOG.warning("table health could not be measured", exc_info=error)
            self.missing.update(dict.fromkeys(names, "the service failed; its log has the reason"))


#: Differences of snapshots that are remembered, of all tables.
_MAX_DIFFERENCES: Final = 100_000
#: A measurement compares no more snapshots after this time; the next one goes on.
_COMPARE_S: Final = 1.0
#: A table is measured so long after a commit, with what was committed until then.
_DELAY_S: Final = 1.0


class Differences:
    """Compares snapshots, and remembers the results by the ids of both. Only one thread uses it."""

    def __init__(self, warehouse: Warehouse, timer: Callable[[], float]) -> None:
        self._warehouse = warehouse
        self._timer = timer
        self._known: OrderedDict[tuple[str, str], Tally] = OrderedDict()

    def reclaimable(self, decisions: Sequence[Decision], entries: Sequence[HistoryEntry]) -> Reclaimable:
        """Return what a clean-up with these decisions on all ``entries`` would free, as far as time allows."""
        pointers = {entry.seq: entry.pointer for entry in entries}
        until_s = self._timer() + _COMPARE_S

        def left(first: Version, second: Version) -> Tally | None:
            key = (first.snapshot_id, second.snapshot_id)
            found = self._known.get(key)
            if found is None:
                if self._timer() > until_s:
                    return None
                gone = self._warehouse.objects_left(pointers[first.seq], pointers[second.seq])
                found = self._known[key] = Tally(objects=gone.objects, size_bytes=gone.size_bytes)
                if len(self._known) > _MAX_DIFFERENCES:
                    self._known.popitem(last=False)
            return found

        returning = {entry.seq for entry in entries if entry.operation == ROLLBACK}
        return reclaimable(decisions, left, returning=returning)


class TableHealths:
    """Measures tables. ``clock`` returns Unix milliseconds, ``timer`` seconds. ``share``: the largest part of the time
    in which tables are measured after commits; 0: they are measured only when somebody asks.
    """

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        conditions: Conditions,
        vacuum: Vacuum,
        metrics: Metrics,
        clock: Callable[[], int],
        *,
        share: float = 0.0,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._conditions = conditions
        self._vacuum = vacuum
        self._metrics = metrics
        self._clock = clock
        self._share = share
        self._timer = timer
        self._lock = threading.Lock()
        self._health: OrderedDict[str, TableHealth] = OrderedDict()
        self._waiting: dict[str, tuple[str, Future[TableHealth]]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="table-health")
        # By snapshot, which never changes: the key and the depth on it. Only the one thread uses it.
        self._depths: OrderedDict[str, tuple[int | None, float | None]] = OrderedDict()
        self._differences = Differences(warehouse, timer)
        # Tables with commits since they were measured, the one that has waited longest first.
        self._changed: OrderedDict[str, None] = OrderedDict()
        self._closed = threading.Event()
        self._debouncer = Debouncer(self._measure_changed, _DELAY_S, "table-health-after-commits")

    def peek(self, record: TableRecord) -> TableHealth | None:
        """Return what is known of a table, without waiting.

        If nothing is known, or it is of an older snapshot or a few minutes old, the table is measured soon. Until then
        the old values are returned, perhaps of an earlier snapshot (``snapshot_id``).
        """
        known = self._latest(record)
        if not self._is_fresh(known, record):
            self._queue(record)
        return None if known is None else _as_of(known, record)

    def get(self, record: TableRecord) -> TableHealth:
        """Measure a table as of ``record`` and wait for the result. Values that fail are left out."""
        known = self._latest(record)
        if known is not None and self._is_fresh(known, record):
            return known
        return self._queue(record, must=True).result()

    def get_uncached(self, record: TableRecord) -> TableHealth:
        """Return as :meth:`get`, but cache nothing: a pass over all tables would displace what pages show."""
        known = self._known(record.table_id)
        if known is not None and self._is_fresh(known, record):
            return known
        return self._thread.submit(self._measure, record).result()

    def show(self, record: TableRecord) -> TableHealth:
        """Return what is known of a table, as :meth:`peek`; a table that was never measured is measured now."""
        known = self.peek(record)
        return self.get(record) if known is None else known

    def note_commit(self, table_id: str) -> None:
        """Have a table measured soon, since its current snapshot is a new one."""
        if not self._share:
            return
        with self._lock:
            if len(self._changed) < _MAX_WAITING:
                self._changed[table_id] = None
        self._debouncer.soon()

    def close(self) -> None:
        """End the threads, once they are done with the table that they are at."""
        self._closed.set()
        self._thread.shutdown(cancel_futures=True)
        self._debouncer.close()

    def _measure_changed(self) -> None:
        """Measure the tables that were committed to, each with a rest after it."""
        while not self._closed.is_set():
            with self._lock:
                if not self._changed:
                    return
                table_id, _ = self._changed.popitem(last=False)
            started_s = self._timer()
            try:
                self._queue(self._catalog.table_by_id(table_id), must=True).result()
            except (LamellaError, CancelledError, RuntimeError):  # dropped, the catalog is away, or the service stops
                continue
            self._closed.wait((self._timer() - started_s) * (1 / self._share - 1))

    def _latest(self, record: TableRecord) -> TableHealth | None:
        """Return what this or another process measured last."""
        known = self._known(record.table_id)
        if known is not None and known.version >= record.version:
            return known
        try:
            text = self._catalog.table_health(record.table_id)
            stored = None if text is None else msgspec.json.decode(text, type=TableHealth)
        except (LamellaError, msgspec.MsgspecError):  # the catalog is away, or another release has stored it
            return known
        if stored is None or (known is not None and known.version >= stored.version):
            return known
        self._keep(stored)
        return stored

    def _known(self, table_id: str) -> TableHealth | None:
        with self._lock:
            known = self._health.get(table_id)
            if known is not None:
                self._health.move_to_end(table_id)
            return known

    def _is_fresh(self, known: TableHealth | None, record: TableRecord) -> bool:
        is_same = known is not None and known.snapshot_id == record.pointer.snapshot_id
        return known is not None and is_same and self._clock() - known.measured_ms < _FRESH_MS

    def _queue(self, record: TableRecord, *, must: bool = False) -> Future[TableHealth]:
        """Queue a table for measuring, unless it is queued. Without ``must`` it is skipped if too many wait."""
        with self._lock:
            waiting = self._waiting.get(record.table_id)
            if waiting is not None and (not must or waiting[0] == record.pointer.snapshot_id):
                return waiting[1]
            if not must and len(self._waiting) >= _MAX_WAITING:
                return Future()
            future = self._thread.submit(self._measure_and_keep, record)
            self._waiting[record.table_id] = (record.pointer.snapshot_id, future)
        future.add_done_callback(lambda done: self._is_done(record.table_id, done))
        return future

    def _is_done(self, table_id: str, done: Future[TableHealth]) -> None:
        with self._lock:
            waiting = self._waiting.get(table_id)
            if waiting is not None and waiting[1] is done:
                del self._waiting[table_id]

    def _measure_and_keep(self, record: TableRecord) -> TableHealth:
        started_s = self._timer()
        health = self._measure(record)
        self._metrics.table_health_seconds.observe(self._timer() - started_s)
        self._keep(health)
        text = msgspec.json.encode(health).decode()
        with suppress(LamellaError):  # other processes do not learn of it; the next measurement is stored again
            self._catalog.put_table_health(record.table_id, health.version, health.measured_ms, text)
        return health

    def _keep(self, health: TableHealth) -> None:
        with self._lock:
            self._health[health.table_id] = health
            self._health.move_to_end(health.table_id)
            while len(self._health) > _MAX_CACHED:
                self._health.popitem(last=False)

    def _measure(self, record: TableRecord) -> TableHealth:
        parts = _Parts()
        table_id, pointer, now_ms = record.table_id, record.pointer, self._clock()
        entries: list[HistoryEntry] = []

        def counts() -> tuple[Any, ...]:
            entry = self._catalog.snapshot(table_id, pointer.snapshot_id)
            return entry.row_count, entry.block_count, entry.segment_count, entry.file_size_bytes

        def key() -> tuple[Any, ...]:
            found = self._warehouse.head(pointer).cluster_key
            return ((), None) if found is None else (found.columns, found.kind)

        def history() -> tuple[Any, ...]:
            entries[:] = self._catalog.whole_history(table_id)
            return len(entries), entries[-1].pointer.timestamp_ms if entries else None

        def small() -> tuple[Any, ...]:
            found = self._conditions.small_blocks(record).value
            return (None if found is None else int(found),)

        def deletes() -> tuple[Any, ...]:
            summary = self._warehouse.head(pointer).summary
            deleted_bytes = self._warehouse.layouts.deleted_bytes(pointer)
            return summary.deletes_count, summary.deleted_row_count, deleted_bytes

        def to_purge() -> tuple[Any, ...]:
            found = self._conditions.blocks_with_deletes(record, None).value
            return (None if found is None else int(found),)

        parts.measure(("row_count", "block_count", "segment_count", "file_size_bytes"), counts)
        parts.measure(("small_blocks",), small)
        parts.measure(("deletes_count", "deleted_row_count", "deleted_bytes"), deletes)
        parts.measure(("blocks_to_purge",), to_purge)
        parts.measure(("cluster_key", "cluster_kind"), key)
        parts.measure(("average_depth",), lambda: (self._depth(pointer)[1],))
        parts.measure(("indexes",), lambda: (self._indexes(pointer),))
        parts.measure(("snapshots", "oldest_ms"), history)
        parts.measure(("depth_day_ago",), lambda: (self._depth_then(pointer, entries, now_ms - _DAY_MS),))
        parts.measure(("depth_week_ago",), lambda: (self._depth_then(pointer, entries, now_ms - 7 * _DAY_MS),))
        parts.measure(("expired_snapshots", "expired"), lambda: self._expired(record, entries))
        health = TableHealth(
            table_id=table_id,
            snapshot_id=pointer.snapshot_id,
            timestamp_ms=pointer.timestamp_ms,
            measured_ms=now_ms,
            version=record.version,
            missing=parts.missing,
            **parts.values,
        )
        parts.measure(("findings",), lambda: (self._findings(health),))
        return msgspec.structs.replace(health, findings=parts.values.get("findings", ()), missing=parts.missing)

    def _findings(self, health: TableHealth) -> tuple[HealthFinding, ...]:
        try:
            policy = _POLICY.decode(self._catalog.policy(health.table_id).policy)
        except PolicyNotFound:
            policy = Policy()
        return findings_of(health, policy, has_filters=bool(self._catalog.recorded(health.table_id, limit=1)))

    def _indexes(self, pointer: SnapshotPointer) -> tuple[IndexHealth, ...]:
        used = [index for index in self._warehouse.head(pointer).skip_indexes if index.dropped_ms is None]
        if not used:
            return ()
        covered = self._warehouse.index_blocks.coverage(pointer, used)
        found = [
            IndexHealth(
                name=index.name,
                kind=index.kind,
                blocks=coverage.blocks,
                not_indexed=coverage.not_indexed,
                stale=coverage.stale,
            )
            for index, coverage in zip(used, covered, strict=True)
        ]
        return tuple(sorted(found, key=lambda each: each.name))

    def _expired(self, record: TableRecord, entries: Sequence[HistoryEntry]) -> tuple[int, ExpiredBytes]:
        found = self._differences.reclaimable(self._vacuum.preview_decisions(record, entries), entries)
        if len(self._catalog.heads(record.table_id)) > 1:
            # A branch may need what the table's own snapshots do not.
            found = msgspec.structs.replace(found, min_bytes=0)
        return found.snapshots, ExpiredBytes(**msgspec.structs.asdict(found))

    def _depth_then(self, pointer: SnapshotPointer, entries: Sequence[HistoryEntry], at_ms: int) -> float | None:
        """Return the depth at an earlier time on the current key; ``entries``: the history, the newest first."""
        then = next((entry for entry in entries if entry.pointer.timestamp_ms <= at_ms), None)
        if then is None or (then.until_ms is not None and then.until_ms <= at_ms):
            return None
        key_id, depth = self._depth(then.pointer)
        return depth if key_id == self._depth(pointer)[0] else None

    def _depth(self, pointer: SnapshotPointer) -> tuple[int | None, float | None]:
        """Return the id of a snapshot's cluster key, and the average depth of its blocks on it; None without a key."""
        found = self._depths.get(pointer.snapshot_id)
        if found is None:
            key = self._warehouse.head(pointer).cluster_key
            depth = self._warehouse.layouts.average_depth(pointer)
            found = self._depths[pointer.snapshot_id] = (None if key is None else key.key_id, depth)
            while len(self._depths) > _MAX_CACHED:
                self._depths.popitem(last=False)
        return found


def _as_of(health: TableHealth, record: TableRecord) -> TableHealth:
    """Return a table's health with the number of commits since."""
    commits_since = max(0, record.version - health.version)
    return msgspec.structs.replace(health, commits_since=commits_since) if commits_since else health
