"""Metrics of the parts of the service: catalog, object store, memory, limits, process. See docs/metrics.md."""

from __future__ import annotations

import gc
import itertools
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lamella.service import release
from lamella.service.catalog.engine import CatalogOperation, CatalogOutcome
from lamella.snapshot.cache import Counts
from lamella.snapshot.storage.observed import StoreOperation, StoreOutcome

# fmt: off
#: Of requests: close around a millisecond, where most prunes are answered, so that a quantile is off by a tenth or two.
REQUEST_S: Final = (
    0.0001, 0.00025, 0.0004, 0.0006, 0.0008, 0.001, 0.00125, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.0065, 0.008,
    0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)
#: Of waits.
WAIT_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: Of calls of a store or a database: from local files to a remote service that hardly answers.
CALL_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)
# fmt: on


class CatalogMetrics:
    """Implements :class:`~lamella.service.catalog.engine.CatalogListener`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "lamella_catalog_seconds",
            "Duration of statements and commits of the catalog's database, by outcome.",
            ("operation", "outcome"),
            buckets=CALL_S,
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "lamella_catalog_wait_seconds",
            "Time waited for a connection of the catalog's pool.",
            buckets=CALL_S,
            registry=registry,
        )
        self.pool_timeouts = Counter(
            "lamella_catalog_pool_timeouts",
            "Waits for a connection of the catalog's pool that timed out, since all were in use.",
            registry=registry,
        )
        self.in_use = Gauge(
            "lamella_catalog_connections_in_use",
            "Connections of the catalog's pool in use.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.connections_max = Gauge(
            "lamella_catalog_connections_max",
            "Limit of connections of the catalog's pool.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._timed: dict[tuple[CatalogOperation, CatalogOutcome], Histogram] = {}

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """Count one statement or commit."""
        timed = self._timed.get((operation, outcome))
        if timed is None:
            timed = self._timed[operation, outcome] = self.seconds.labels(operation, outcome)
        timed.observe(took_s)

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """Count one wait for a connection."""
        self.wait_seconds.observe(took_s)
        if timed_out:
            self.pool_timeouts.inc()

    def pool(self, in_use: int, max_connections: int) -> None:
        """Set how much of the pool is in use."""
        self.in_use.set(in_use)
        self.connections_max.set(max_connections)


class LimitMetrics:
    """Slots for requests, deadlines, bodies, connections."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refused = Counter(
            "lamella_requests_refused",
            "Requests refused because the process is busy, by kind and by the limit that was reached.",
            ("kind", "limit"),
            registry=registry,
        )
        self.waiting = Gauge(
            "lamella_requests_waiting",
            "Requests that wait for a slot, by kind.",
            ("kind",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.deadline_exceeded = Counter(
            "lamella_requests_deadline_exceeded",
            "Requests cancelled at their deadline.",
            registry=registry,
        )
        self.abandoned = Gauge(
            "lamella_threads_abandoned",
            "Threads that still work for cancelled requests.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.body_bytes = Gauge(
            "lamella_request_body_bytes",
            "Bytes of request bodies in memory.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.connections = Gauge(
            "lamella_connections",
            "Open client connections.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.connections_cut = Counter(
            "lamella_connections_cut",
            "Connections closed by the service, by the reason.",
            ("reason",),
            registry=registry,
        )
        self.quotas_reached = Counter(
            "lamella_quotas_reached", "Commits refused because of a quota, by the quota.", ("limit",), registry=registry
        )


class MemoryMetrics:
    """Hits, misses, evictions and bytes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter(
            "lamella_memory_cache_events",
            "Events of the memory caches, by kind of value.",
            ("kind", "event"),
            registry=registry,
        )
        self.size_bytes = Gauge(
            "lamella_memory_cache_size_bytes",
            "Bytes in the memory caches, by kind of value.",
            ("kind",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.limit_bytes = Gauge(
            "lamella_memory_cache_limit_bytes",
            "Limit of bytes in the memory caches, by setting.",
            ("setting",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._look: Callable[[], Mapping[str, Counts]] = dict
        self._taken: dict[str, Counts] = {}
        self._lock = threading.Lock()

    def watch(self, look: Callable[[], Mapping[str, Counts]], limits_bytes: Mapping[str, int]) -> None:
        """Export the counts that ``look`` returns, by kind; ``limits_bytes`` are by setting."""
        self._look = look
        for setting, limit_bytes in limits_bytes.items():
            self.limit_bytes.labels(setting).set(limit_bytes)

    def fold(self) -> None:
        """Update the metrics."""
        with self._lock:
            for kind, now in self._look().items():
                before = self._taken.get(kind)
                if now == before:
                    continue
                before = Counts() if before is None else before
                self._taken[kind] = now
                self.events.labels(kind, "hit").inc(now.hits - before.hits)
                self.events.labels(kind, "miss").inc(now.misses - before.misses)
                self.events.labels(kind, "evicted").inc(now.evicted - before.evicted)
                self.size_bytes.labels(kind).set(now.size_bytes)


class ProcessMetrics:
    """Release, event loop, threads, and the age of the oldest pending commit. ``timer`` returns seconds."""

    def __init__(self, registry: CollectorRegistry, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self.build = Gauge(
            "lamella_build_info",
            "Always 1; labels name the running release and the Python version.",
            ("version", "python"),
            registry=registry,
            multiprocess_mode="max",
        )
        self.build.labels(release(), platform.python_version()).set(1)
        self.loop_lag = Histogram(
            "lamella_event_loop_lag_seconds",
            "Delay of a timer on the event loop, measured four times a second.",
            buckets=WAIT_S,
            registry=registry,
        )
        self.threads_busy = Gauge(
            "lamella_threads_busy",
            "Busy threads, by purpose.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.threads_max = Gauge(
            "lamella_threads_max",
            "Limit of threads, by purpose.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.threads_waiting = Gauge(
            "lamella_threads_waiting",
            "Work that waits for a thread, by purpose.",
            ("pool",),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.commits_in_progress = Gauge(
            "lamella_commits_in_progress",
            "Registrations and commits that are waiting or running.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.oldest_commit = Gauge(
            "lamella_commit_oldest_seconds",
            "Age of the oldest pending registration or commit; 0: none is pending.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.gc_pause = Histogram(
            "lamella_gc_pause_seconds",
            "Time that all threads paused for Python's garbage collector, by generation; 2 is a full collection.",
            ("generation",),
            buckets=CALL_S,
            registry=registry,
        )
        self._pauses = [self.gc_pause.labels(str(generation)) for generation in range(len(gc.get_threshold()))]
        self._paused: list[tuple[int, float]] = []
        self._pause_begun_s = 0.0
        self._numbers = itertools.count()
        self._begun_s: dict[int, float] = {}

    @contextmanager
    def watching_pauses(self) -> Iterator[None]:
        """Record each run of the garbage collector, for :meth:`fold`."""
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        # A collection can start anywhere, so this takes no lock, which a metric would.
        if phase == "start":
            self._pause_begun_s = time.perf_counter()
        else:
            self._paused.append((about["generation"], time.perf_counter() - self._pause_begun_s))

    def commit_begun(self) -> Callable[[], None]:
        """Count a commit as pending until the returned function is called."""
        number = next(self._numbers)
        self._begun_s[number] = self._timer()
        self.commits_in_progress.inc()
        return partial(self._commit_ended, number)

    def _commit_ended(self, number: int) -> None:
        if self._begun_s.pop(number, None) is not None:
            self.commits_in_progress.dec()

    def threads(self, pool: str, *, busy: int, max_threads: int, waiting: int) -> None:
        """Set how busy the threads of a pool are."""
        self.threads_busy.labels(pool).set(busy)
        self.threads_max.labels(pool).set(max_threads)
        self.threads_waiting.labels(pool).set(waiting)

    def fold(self) -> None:
        """Update the sampled metrics."""
        paused, self._paused = self._paused, []
        for generation, took_s in paused:
            self._pauses[generation].observe(took_s)
        begun_s = list(self._begun_s.values())  # in one step, since others begin and end meanwhile
        self.oldest_commit.set(self._timer() - min(begun_s) if begun_s else 0.0)


class StoreMetrics:
    """Implements :class:`~lamella.snapshot.storage.observed.StoreListener`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "lamella_store_seconds",
            "Duration of calls of the object store, by outcome.",
            ("operation", "outcome"),
            buckets=CALL_S,
            registry=registry,
        )
        self.read_bytes = Counter("lamella_store_read_bytes", "Bytes read from the object store.", registry=registry)
        self.written_bytes = Counter(
            "lamella_store_written_bytes", "Bytes written to the object store.", registry=registry
        )
        # Looking up a metric by its labels costs more than counting.
        self._timed: dict[tuple[StoreOperation, StoreOutcome], Histogram] = {}

    def store_called(
        self,
        operation: StoreOperation,
        outcome: StoreOutcome,
        took_s: float,
        /,
        *,
        read_bytes: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Count one call."""
        timed = self._timed.get((operation, outcome))
        if timed is None:
            timed = self._timed[operation, outcome] = self.seconds.labels(operation, outcome)
        timed.observe(took_s)
        if read_bytes:
            self.read_bytes.inc(read_bytes)
        if written_bytes:
            self.written_bytes.inc(written_bytes)
