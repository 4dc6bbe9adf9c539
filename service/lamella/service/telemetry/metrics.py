"""The metrics of ``/metrics``, of one process or of all workers. Each app has its own registry; docs/metrics.md
describes every name.

With several workers, a scrape reaches only one of them. The values of all are added up through
``PROMETHEUS_MULTIPROC_DIR``, which :func:`lamella.service.process.server.serve` sets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.metrics_core import Metric

from lamella.service.telemetry.component_metrics import (
    REQUEST_S,
    WAIT_S,
    CatalogMetrics,
    LimitMetrics,
    MemoryMetrics,
    ProcessMetrics,
    StoreMetrics,
)
from lamella.snapshot.cache import Event
from lamella.snapshot.wire import AggregateAnswer, ArrivalsAnswer, PruneAnswer

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def share_numbers(folder: str) -> None:
    """Store the values of this process and its children in a folder, unless the environment names one."""
    os.environ.setdefault(MULTIPROCESS_VARIABLE, folder)
    # The package reads the environment when it is imported, which has happened by now.
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    """Return True if there are, or may be, several workers."""
    return MULTIPROCESS_VARIABLE in os.environ


def all_workers() -> CollectorRegistry:
    """Return the values of all workers together."""
    _forget_dead_workers(Path(os.environ[MULTIPROCESS_VARIABLE]))
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]  # the package has no types
    return together


def worker_pids() -> tuple[int, ...]:
    """Return the serving processes, ascending: those that are alive and counted something, and this one."""
    folder = os.environ.get(MULTIPROCESS_VARIABLE)
    found = {os.getpid()}
    for path in Path(folder).glob("*_*.db") if folder is not None else ():
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and _is_alive(int(pid)):
            found.add(int(pid))
    return tuple(sorted(found))


def _forget_dead_workers(folder: Path) -> None:
    """Delete the gauges of killed workers, which could not remove what they counted as in progress."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = int(path.stem.rpartition("_")[2])
        if not _is_alive(pid):
            multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # the package has no types


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # the process id was reused by somebody else's process
    return True


_JOB_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
_GROUP_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class _Sums:
    """The prunes since the last fold, for one stage."""

    __slots__ = ("considered", "ms", "selected", "selected_bytes")

    def __init__(self) -> None:
        self.considered = self.selected = self.selected_bytes = 0
        self.ms = 0.0

    def values(self) -> tuple[float, ...]:
        """Return the values in the order of the counters, in their units."""
        return (self.considered, self.selected, self.selected_bytes, self.ms / 1000)


class Metrics:
    """The service's own counters and histograms."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._is_shared = are_shared()
        if not self._is_shared:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self.process = ProcessMetrics(self.registry)
        self.store = StoreMetrics(self.registry)
        self.catalog = CatalogMetrics(self.registry)
        self.memory = MemoryMetrics(self.registry)
        self.limits = LimitMetrics(self.registry)
        self.requests = self._counter("lamella_requests", "Requests answered.", ("method", "route", "status"))
        self.request_seconds = Histogram(
            "lamella_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ("method", "route"),
            buckets=REQUEST_S,
            registry=self.registry,
        )
        self.in_progress = Gauge(
            "lamella_requests_in_progress",
            "Requests in progress.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.problems = self._counter("lamella_problems", "Problem documents sent, by error code.", ("code",))
        self.auth_failures = self._counter(
            "lamella_auth_failures", "Requests without a valid key or token, by the reason.", ("reason",)
        )
        self.rate_limited = self._counter(
            "lamella_rate_limited", "Requests refused by a rate limit, by what was counted.", ("by",)
        )
        self.stage_considered = self._counter(
            "lamella_prune_considered", "Segments or blocks that a pruning stage looked at.", ("stage",)
        )
        self.stage_selected = self._counter(
            "lamella_prune_kept", "Segments or blocks that a pruning stage kept.", ("stage",)
        )
        self.stage_selected_bytes = self._counter(
            "lamella_prune_kept_bytes", "Data bytes of what a pruning stage kept.", ("stage",)
        )
        self.stage_seconds = self._counter("lamella_prune_stage_seconds", "Time spent in a pruning stage.", ("stage",))
        self.not_used = self._counter("lamella_prune_not_used", "Predicates that could not prune.")
        self.index_failures = self._counter(
            "lamella_prune_index_failures", "Skip indexes that a prune could not read, so that their blocks stayed."
        )
        self.aggregates = self._counter(
            "lamella_aggregates", "Aggregates answered, by whether statistics sufficed for all.", ("complete",)
        )
        self.aggregate_scan_blocks = self._counter(
            "lamella_aggregate_scan_blocks", "Blocks that aggregate answers left to scan."
        )
        self.filters_recorded = self._counter(
            "lamella_filters_recorded",
            "Filters of prunes recorded for advice, by whether they were stored.",
            ("outcome",),
        )
        self.prune_rates_lost = self._counter(
            "lamella_prune_rates_lost", "Prunes missing from the prune rates, since the catalog did not store them."
        )
        self.audit_entries = self._counter(
            "lamella_audit_entries", "Entries of the audit trail, by whether they were stored.", ("outcome",)
        )
        self.incomplete = self._counter("lamella_prune_incomplete", "Prunes whose time budget ran out.")
        self.large_refused = self._counter(
            "lamella_large_answers_refused", "Large answers refused because too many were waiting."
        )
        self.answers_cut = self._counter(
            "lamella_answers_cut", "Answers that were not sent completely, by the reason.", ("reason",)
        )
        for reason in ("client", "stalled", "failed"):  # so that the first one counts as an increase
            self.answers_cut.labels(reason)
        self.urls_signed = self._counter("lamella_urls_signed", "Block URLs signed for readers.")
        self.commits = self._counter("lamella_commits", "Snapshots made by registrations and commits.")
        self.commit_retries = self._counter(
            "lamella_commit_retries", "Pointer swaps lost to another commit and retried."
        )
        self.commit_attempts = self._counter(
            "lamella_commit_attempts", "Snapshots begun for a group of commits, including those that lost the swap."
        )
        self.commits_rejected = self._counter(
            "lamella_commits_rejected",
            "Commits refused after waiting in the queue, by error code.",
            ("code",),
        )
        self.mutations_refused = self._counter(
            "lamella_mutations_refused", "Mutations refused before queueing, by the limit that was reached.", ("limit",)
        )
        self.group_size = Histogram(
            "lamella_commit_group_size",
            "Registrations and commits that a leader took from a table's queue together.",
            buckets=_GROUP_SIZES,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "lamella_commit_queue_seconds",
            "Time that a registration or commit waited in the queue of its table.",
            buckets=WAIT_S,
            registry=self.registry,
        )
        self.blocks_added = self._counter("lamella_blocks_added", "Blocks added by commits.")
        self.blocks_removed = self._counter("lamella_blocks_removed", "Blocks removed by commits.")
        self.files_refused = self._counter(
            "lamella_files_refused", "Files refused by a registration or commit, by error code.", ("code",)
        )
        self.arrivals = self._counter(
            "lamella_arrivals", "Files of event notifications and watched directories, by outcome.", ("outcome",)
        )
        for outcome in ("registered", "duplicate", "earlier", "ignored", "refused"):
            self.arrivals.labels(outcome)
        self.replays = self._counter(
            "lamella_idempotent_replays", "Mutations answered from a stored answer, by Idempotency-Key."
        )
        self.snapshots_expired = self._counter("lamella_snapshots_expired", "Snapshots removed from histories.")
        self.vacuum_deleted = self._counter("lamella_vacuum_deleted", "Objects that clean-ups deleted.", ("kind",))
        self.vacuum_deleted_bytes = self._counter(
            "lamella_vacuum_deleted_bytes", "Bytes of the objects that clean-ups deleted.", ("kind",)
        )
        # Values that are not in the counters of stages yet; with several workers another one may be scraped, so the
        # counters have everything.
        self._funnel: dict[str, _Sums] = {}
        self._funnel_lock = threading.Lock()
        self._stages: dict[str, tuple[Counter, ...]] = {}
        self.table_health_seconds = Histogram(
            "lamella_table_health_seconds",
            "Duration of a measurement of a table's health.",
            buckets=_JOB_S,
            registry=self.registry,
        )
        self.auto_actions = self._counter(
            "lamella_auto_actions", "Actions of automatic upkeep that ended, by state.", ("kind", "state")
        )
        self.leases_taken = self._counter("lamella_leases", "Leases created.")
        self.jobs_enqueued = self._counter("lamella_jobs_enqueued", "Jobs enqueued, by origin.", ("kind", "origin"))
        self.job_attempts = self._counter(
            "lamella_job_attempts", "Attempts at jobs that ended, by outcome.", ("kind", "outcome")
        )
        self.job_seconds = Histogram(
            "lamella_job_seconds",
            "Duration of an attempt at a job, from its claim to its end.",
            ("kind",),
            buckets=_JOB_S,
            registry=self.registry,
        )
        self.jobs_pending = Gauge(
            "lamella_jobs_pending",
            "Jobs queued and running when a worker last checked what is due.",
            ("state",),
            registry=self.registry,
            multiprocess_mode="mostrecent",
        )
        self.upkeep_failures = self._counter(
            "lamella_upkeep_failures",
            "Due schedules and policies that could not be checked, by error code.",
            ("what", "code"),
        )
        self.disk_cache_events = self._counter(
            "lamella_disk_cache_events", "Files of the disk cache that were opened, created, evicted, ...", ("event",)
        )
        self.disk_cache_bytes = self._counter(
            "lamella_disk_cache_bytes", "Bytes of those files, if the size is known.", ("event",)
        )
        self.disk_cache_size = Gauge(
            "lamella_disk_cache_size_bytes",
            "Bytes of all files in the disk cache, when one was last added.",
            registry=self.registry,
            multiprocess_mode="mostrecent",
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def pruned(self, answer: PruneAnswer) -> None:
        """Count one prune."""
        report = answer.report
        with self._funnel_lock:
            for stage in report.stages:
                sums = self._funnel.get(stage.stage)
                if sums is None:
                    sums = self._funnel[stage.stage] = _Sums()
                sums.considered += stage.considered
                sums.selected += stage.kept
                sums.selected_bytes += stage.bytes
                sums.ms += stage.ms
        if self._is_shared:
            self._fold_funnel()
        if report.not_used:
            self.not_used.inc(len(report.not_used))
        if not answer.complete:
            self.incomplete.inc()
        failed = sum(use.failure is not None for use in report.indexes)
        if failed:
            self.index_failures.inc(failed)

    def _fold_funnel(self) -> None:
        """Update the counters of stages. Each of the dozen costs as much as all sums of a prune."""
        with self._funnel_lock:
            funnel, self._funnel = self._funnel, {}
        for stage, sums in funnel.items():
            counters = self._stages.get(stage)
            if counters is None:
                counters = self._stages[stage] = self._stage_counters(stage)
            for counter, sum_ in zip(counters, sums.values(), strict=True):
                counter.inc(sum_)

    def _stage_counters(self, stage: str) -> tuple[Counter, ...]:
        """Return a stage's counters; looking up a metric by its labels costs more than counting."""
        of_stages = (self.stage_considered, self.stage_selected, self.stage_selected_bytes, self.stage_seconds)
        return tuple(counter.labels(stage) for counter in of_stages)

    def aggregated(self, answer: AggregateAnswer) -> None:
        """Count one aggregate."""
        self.aggregates.labels("true" if answer.complete else "false").inc()
        self.aggregate_scan_blocks.inc(answer.scan_blocks)
        self.not_used.inc(len(answer.report.not_used))

    def arrived(self, answer: ArrivalsAnswer) -> None:
        """Count the files of one request."""
        counts = {
            "registered": answer.registered,
            "duplicate": answer.duplicates,
            "earlier": answer.earlier,
            "ignored": sum(answer.ignored.values()),
            "refused": len(answer.refused),
        }
        for outcome, count in counts.items():
            self.arrivals.labels(outcome).inc(count)

    def recorded(self, *, stored: int, lost: int) -> None:
        """Count filters that were recorded for advice, and filters that were lost."""
        self.filters_recorded.labels("stored").inc(stored)
        self.filters_recorded.labels("lost").inc(lost)

    def audited(self, *, stored: int, lost: int) -> None:
        """Count entries of the audit trail that were written, and entries that were lost."""
        self.audit_entries.labels("stored").inc(stored)
        self.audit_entries.labels("lost").inc(lost)

    def committed(self, *, added: int, removed: int) -> None:
        """Count one commit that became current."""
        self.commits.inc()
        self.blocks_added.inc(added)
        self.blocks_removed.inc(removed)

    def vacuumed(self, kind: str, size_bytes: int) -> None:
        """Count one object that a clean-up deleted."""
        self.vacuum_deleted.labels(kind).inc()
        self.vacuum_deleted_bytes.labels(kind).inc(size_bytes)

    def expect_jobs(self, kinds: Iterable[str]) -> None:
        """Create the series of failures at 0: a series that begins with its first failure shows no increase."""
        for kind in kinds:
            for outcome in ("failed", "lost"):
                self.job_attempts.labels(kind, outcome)

    def job_enqueued(self, kind: str, origin: str) -> None:
        """Count one enqueued job."""
        self.jobs_enqueued.labels(kind, origin).inc()

    def job_attempt(self, kind: str, outcome: str, took_ms: int | None) -> None:
        """Count one attempt that ended; ``took_ms`` None: it did not start."""
        self.job_attempts.labels(kind, outcome).inc()
        if took_ms is not None:
            self.job_seconds.labels(kind).observe(took_ms / 1000)

    def jobs_waiting(self, counts: Mapping[str, int]) -> None:
        """Set how many jobs there are, by state."""
        for state, count in counts.items():
            self.jobs_pending.labels(state).set(count)

    def upkeep_failed(self, what: Literal["schedule", "policy"], code: str) -> None:
        """Count one schedule or policy that could not be checked."""
        self.upkeep_failures.labels(what, code).inc()

    def cache_event(self, event: Event, files: int, size_bytes: int) -> None:
        """Count an event of the disk cache."""
        self.disk_cache_events.labels(event).inc(files)
        self.disk_cache_bytes.labels(event).inc(size_bytes)

    def cache_size(self, size_bytes: int) -> None:
        """Set the size of the disk cache."""
        self.disk_cache_size.set(size_bytes)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._together())

    def families(self) -> list[Metric]:
        """Return all metrics of all workers together."""
        return list(self._together().collect())

    def fold(self) -> None:
        """Update metrics from the plain numbers that are counted elsewhere."""
        self._fold_funnel()
        self.memory.fold()
        self.process.fold()

    def _together(self) -> CollectorRegistry:
        self.fold()
        return all_workers() if self._is_shared else self.registry
