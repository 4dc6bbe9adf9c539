"""How the service is, for one page: what it was asked, what it holds, whether what it stands on answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from lamella.service.catalog import Catalog, JobFilter
from lamella.service.metrics import Metrics
from lamella.service.release import release
from lamella.service.request_figures import Counted, RouteFigures, StageFigures
from lamella.service.settings import Settings
from lamella.service.shown_settings import ShownSetting, shown_settings, without_secrets
from lamella.service.worker_metrics import worker_pids
from lamella.snapshot.cache import DiskCache, Resident
from lamella.snapshot.errors import LamellaError, ObjectNotFound
from lamella.snapshot.layout import Store
from lamella.snapshot.layout.location import parse

__all__ = [
    "CacheFigures",
    "CatalogHealth",
    "JobWorker",
    "RouteFigures",
    "ServiceStatus",
    "ShownSetting",
    "StageFigures",
    "Status",
    "StoreHealth",
]

_MOST_WORKERS: Final = 1_000


class CacheFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A cache. ``scope``: of the process that was asked, or of all on the machine.

    ``entries``, ``hits`` and ``misses`` None: nobody counts them.
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
    """The catalog's database: its kind, how long it took to answer, the schema that it has. ``error``: it did not."""

    backend: str
    ping_ms: float | None = None
    revision: str | None = None
    error: str | None = None


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The object store of the warehouse, and how long a look at one object took. ``error``: it failed."""

    scheme: str
    location: str
    stat_ms: float | None = None
    error: str | None = None


class ServiceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``pid``, ``started_ms`` and ``uptime_s`` are of the process that was asked, ``workers`` the ids of all
    that serve requests. ``requests``, ``prune_stages`` and the counts are of all of them since the service began.

    ``jobs_pending``: by state; it and ``job_workers`` are empty when the catalog does not answer.
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
    """Looks. ``marker``: the object by which the warehouse is known; ``clock`` gives Unix milliseconds, ``timer``
    seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        store: Store,
        resident: Resident,
        disk_cache: DiskCache | None,
        metrics: Metrics,
        clock: Callable[[], int],
        marker: str,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._store = store
        self._resident = resident
        self._disk_cache = disk_cache
        self._metrics = metrics
        self._clock = clock
        self._marker = marker
        self._timer = timer
        self._started_ms = clock()

    def look(self) -> ServiceStatus:
        """The service as it is now. What does not answer is told, and never raised; waits for database and store."""
        counted = Counted(self._metrics.families())
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

    def _caches(self, counted: Counted) -> tuple[CacheFigures, ...]:
        held = self._resident
        counts = held.counts().values()
        memory = CacheFigures(
            name="memory",
            scope="process",
            size_bytes=held.size_bytes,
            limit_bytes=held.max_bytes,
            entries=len(held),
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
            running = self._catalog.jobs(JobFilter(states=("running",)), before_id=None, limit=_MOST_WORKERS)
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
        place = self._settings.warehouse_url
        scheme, location = parse(place).scheme, without_secrets(place)
        began_s = self._timer()
        try:
            self._store.stat(f"{place}/{self._marker}")
        except ObjectNotFound:
            pass  # it answered; the marker is written when somebody asks whether the service is ready
        except LamellaError as error:
            return StoreHealth(scheme=scheme, location=location, error=without_secrets(error.message))
        return StoreHealth(scheme=scheme, location=location, stat_ms=1000 * (self._timer() - began_s))


def _whole(counts: dict[str, float]) -> dict[str, int]:
    return {name: int(count) for name, count in counts.items()}
