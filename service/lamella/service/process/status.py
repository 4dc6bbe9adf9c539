"""The status of the service for one page: requests, caches, workers, and the state of catalog and store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from prometheus_client.metrics_core import Metric

from lamella.service import release
from lamella.service.catalog import Catalog, JobFilter
from lamella.service.config.settings import Settings
from lamella.service.config.sources import ShownSetting, shown_settings, without_secrets
from lamella.service.telemetry.metrics import Metrics, worker_pids
from lamella.snapshot.cache import BoundedCache, DiskCache
from lamella.snapshot.errors import LamellaError, ObjectNotFound
from lamella.snapshot.storage import Store
from lamella.snapshot.storage.location import parse

#: Label of a histogram's last bucket, which counts everything.
_ALL: Final = float("inf")


class RouteFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one method and route. ``errors``: answered with a status from 500 on. Quantiles are estimated from a
    histogram; None: in its last bucket, which has no upper bound.
    """

    method: str
    route: str
    requests: int
    errors: int
    mean_ms: float
    p50_ms: float | None
    p99_ms: float | None


class StageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage of all prunes looked at and kept; see docs/metrics.md."""

    stage: str
    considered: int
    kept: int
    kept_bytes: int
    seconds: float


class RequestCounts:
    """The samples of all metrics by name."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
        for family in families:
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def samples(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Return the samples of a metric, with their labels."""
        return self._samples.get(name, ())

    def total(self, name: str, **labels: str) -> int:
        """Return the sum of a metric over all samples with these labels."""
        wanted = labels.items()
        return int(sum(value for found, value in self._samples.get(name, ()) if wanted <= dict(found).items()))

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a metric by the values of a label, in their order."""
        found: dict[str, float] = {}
        for labels, value in self._samples.get(name, ()):
            found[labels[label]] = found.get(labels[label], 0.0) + value
        return dict(sorted(found.items()))

    def routes(self) -> tuple[RouteFigures, ...]:
        """Return requests by route, the most frequent first."""
        totals: dict[tuple[str, str], list[int]] = {}
        for labels, value in self._samples.get("lamella_requests_total", ()):
            sums = totals.setdefault((labels["method"], labels["route"]), [0, 0])
            sums[0] += int(value)
            sums[1] += int(value) if labels["status"] >= "500" else 0
        seconds = self._by_route("lamella_request_seconds_sum")
        buckets: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for labels, value in self._samples.get("lamella_request_seconds_bucket", ()):
            buckets.setdefault((labels["method"], labels["route"]), []).append((float(labels["le"]), value))
        found = []
        for key, (requests, errors) in totals.items():
            counts = sorted(buckets.get(key, ()))
            figures = RouteFigures(
                method=key[0],
                route=key[1],
                requests=requests,
                errors=errors,
                mean_ms=1000 * seconds.get(key, 0.0) / max(requests, 1),
                p50_ms=quantile_ms(counts, 0.5),
                p99_ms=quantile_ms(counts, 0.99),
            )
            found.append(figures)
        return tuple(sorted(found, key=lambda each: (-each.requests, each.route, each.method)))

    def stages(self) -> tuple[StageFigures, ...]:
        """Return the stages of prunes, by name."""
        considered = self.by("lamella_prune_considered_total", "stage")
        kept = self.by("lamella_prune_kept_total", "stage")
        kept_bytes = self.by("lamella_prune_kept_bytes_total", "stage")
        seconds = self.by("lamella_prune_stage_seconds_total", "stage")
        return tuple(
            StageFigures(
                stage=stage,
                considered=int(count),
                kept=int(kept.get(stage, 0)),
                kept_bytes=int(kept_bytes.get(stage, 0)),
                seconds=seconds.get(stage, 0.0),
            )
            for stage, count in considered.items()
        )

    def _by_route(self, name: str) -> dict[tuple[str, str], float]:
        samples = self._samples.get(name, ())
        return {(labels["method"], labels["route"]): value for labels, value in samples}


def quantile_ms(counts: Sequence[tuple[float, float]], share: float) -> float | None:
    """Estimate a quantile of a histogram of seconds, by linear interpolation in its bucket, in milliseconds.

    ``counts``: by upper bound, how many values are at most that, ascending. None: no values, or it is in the bucket
    without an upper bound.
    """
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = share * counts[-1][1]
    low_s, below = 0.0, 0.0
    for high_s, count in counts:
        if count >= wanted:
            if high_s == _ALL:
                return None
            return 1000 * (low_s + (high_s - low_s) * (wanted - below) / max(count - below, 1e-9))
        low_s, below = high_s, count
    return None


_MAX_WORKERS: Final = 1_000


class CacheFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A cache. ``scope``: of the process that answers, or of all on the machine.

    ``entries``, ``hits`` and ``misses`` None: not counted.
    """

    name: Literal["memory", "disk"]
    scope: Literal["process", "machine"]
    size_bytes: int
    limit_bytes: int
    entries: int | None = None
    hits: int | None = None
    misses: int | None = None
    evicted: int | None = None
    damaged: int | None = None
    failed: int | None = None


class JobWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that has a job now. ``table``: ``namespace.table``."""

    worker: str
    job_id: str
    kind: str
    table: str | None
    heartbeat_ms: int | None
    lease_expires_ms: int | None


class CatalogHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The catalog's database: its kind, its response time, its schema. ``error``: it did not answer."""

    backend: str
    ping_ms: float | None = None
    revision: str | None = None
    error: str | None = None


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The object store of the warehouse, and how long a request for one object took. ``error``: it failed."""

    scheme: str
    location: str
    stat_ms: float | None = None
    error: str | None = None


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status. ``pid``, ``started_ms`` and ``uptime_s`` are of the process that answers, ``workers`` the ids of all
    that serve requests. ``requests``, ``prune_stages`` and the counts are of all of them since the service started.

    ``jobs_pending``: by state; it and ``job_workers`` are empty if the catalog does not answer.
    """

    version: str
    pid: int
    started_ms: int
    now_ms: int
    uptime_s: float
    workers: tuple[int, ...]
    requests: tuple[RouteFigures, ...]
    prune_stages: tuple[StageFigures, ...]
    caches: tuple[CacheFigures, ...]
    requests_in_progress: int
    commits: int
    commit_retries: int
    commits_rejected: dict[str, int]
    problems: dict[str, int]
    jobs_pending: dict[str, int]
    job_workers: tuple[JobWorker, ...]
    catalog: CatalogHealth
    store: StoreHealth
    settings: tuple[ShownSetting, ...]


class Status:
    """Reads the status. ``marker``: the object that identifies the warehouse; ``clock`` returns Unix milliseconds,
    ``timer`` seconds.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        store: Store,
        memory_cache: BoundedCache,
        disk_cache: DiskCache | None,
        metrics: Metrics,
        clock: Callable[[], int],
        marker: str,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._memory_cache = memory_cache
        self._disk_cache = disk_cache
        self._metrics = metrics
        self._clock = clock
        self._marker = marker
        self._timer = timer
        self._started_ms = clock()

    def look(self) -> ServiceStatus:
        """Return the status now, and wait for database and store. Failures are reported in it, never raised."""
        counted = RequestCounts(self._metrics.families())
        health = self._catalog_health()
        answers = health.error is None
        now_ms = self._clock()
        return ServiceStatus(
            version=release(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            now_ms=now_ms,
            uptime_s=max(now_ms - self._started_ms, 0) / 1000,
            workers=worker_pids(),
            requests=counted.routes(),
            prune_stages=counted.stages(),
            caches=self._caches(counted),
            requests_in_progress=counted.total("lamella_requests_in_progress"),
            commits=counted.total("lamella_commits_total"),
            commit_retries=counted.total("lamella_commit_retries_total"),
            commits_rejected=_whole(counted.by("lamella_commits_rejected_total", "code")),
            problems=_whole(counted.by("lamella_problems_total", "code")),
            jobs_pending=self._pending() if answers else {},
            job_workers=self._job_workers() if answers else (),
            catalog=health,
            store=self._store_health(),
            settings=shown_settings(self._settings),
        )

    def _caches(self, counted: RequestCounts) -> tuple[CacheFigures, ...]:
        cache = self._memory_cache
        counts = cache.counts().values()
        memory = CacheFigures(
            name="memory",
            scope="process",
            size_bytes=cache.size_bytes,
            limit_bytes=cache.max_bytes,
            entries=len(cache),
            hits=sum(each.hits for each in counts),
            misses=sum(each.misses for each in counts),
            evicted=sum(each.evicted for each in counts),
        )
        if self._disk_cache is None:
            return (memory,)
        events = _whole(counted.by("lamella_disk_cache_events_total", "event"))
        disk = CacheFigures(
            name="disk",
            scope="machine",
            size_bytes=self._disk_cache.size_bytes,
            limit_bytes=self._settings.cache_dir_bytes,
            hits=events.get("hit", 0),
            misses=events.get("miss", 0),
            evicted=events.get("evicted", 0),
            damaged=events.get("damaged", 0),
            failed=events.get("failed", 0),
        )
        return memory, disk

    def _pending(self) -> dict[str, int]:
        try:
            return self._catalog.pending_jobs()
        except LamellaError:
            return {}

    def _job_workers(self) -> tuple[JobWorker, ...]:
        try:
            running = self._catalog.jobs(JobFilter(states=("running",)), before_id=None, limit=_MAX_WORKERS)
        except LamellaError:
            return ()
        found = [
            JobWorker(
                worker=job.worker or "",
                job_id=job.job_id,
                kind=job.kind,
                table=None if job.table_name is None else f"{job.namespace}.{job.table_name}",
                heartbeat_ms=job.heartbeat_ms,
                lease_expires_ms=job.lease_expires_ms,
            )
            for job in running
        ]
        return tuple(sorted(found, key=lambda each: (each.worker, each.job_id)))

    def _catalog_health(self) -> CatalogHealth:
        backend = self._catalog.backend
        try:
            began_s = self._timer()
            self._catalog.ping()
            ping_ms = 1000 * (self._timer() - began_s)
            return CatalogHealth(backend=backend, ping_ms=ping_ms, revision=self._catalog.schema_revision())
        except LamellaError as error:
            return CatalogHealth(backend=backend, error=without_secrets(error.message))

    def _store_health(self) -> StoreHealth:
        url = self._settings.warehouse_url
        scheme, location = parse(url).scheme, without_secrets(url)
        began_s = self._timer()
        try:
            self._store.stat(f"{url}/{self._marker}")
        except ObjectNotFound:
            pass  # it answered; readiness checks write the marker
        except LamellaError as error:
            return StoreHealth(scheme=scheme, location=location, error=without_secrets(error.message))
        return StoreHealth(scheme=scheme, location=location, stat_ms=1000 * (self._timer() - began_s))


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
