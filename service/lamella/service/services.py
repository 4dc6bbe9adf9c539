"""The parts of one running service, and the threads that its blocking work runs in."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from lamella.service.access import Authenticator
from lamella.service.access.administration import Administration
from lamella.service.access.principal import actor_of
from lamella.service.advice.advice import Advice
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.clustering.clustering import Clustering
from lamella.service.commits.blocks import Intake
from lamella.service.commits.committer import Committer
from lamella.service.config.settings import Settings
from lamella.service.external.external import External
from lamella.service.history.changes import ChangeStream
from lamella.service.history.history import History
from lamella.service.history.rollback import Rollback
from lamella.service.history.tags import Tags
from lamella.service.http.admission import Admission
from lamella.service.http.mutations import Mutations, Work
from lamella.service.http.page_token import PageTokens
from lamella.service.http.streaming import MIN_BLOCK_BYTES, WHOLE_BYTES, LargeAnswers
from lamella.service.iceberg.scans import IcebergHistory, IcebergScans
from lamella.service.indexes.indexes import Indexes
from lamella.service.indexes.parts import IndexParts
from lamella.service.jobs.policies import Policies, SnapshotConditions
from lamella.service.jobs.queue import JobQueue
from lamella.service.jobs.schedules import DueJobs, Schedules
from lamella.service.maintenance.leases import Leases
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.process.health import EventLoopMonitor, Probe, check_all, in_own_thread
from lamella.service.process.lifecycle import Lifecycle
from lamella.service.process.status import Status
from lamella.service.process.threads import Threads, ThreadUse
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.sharing.sharing import Sharing
from lamella.service.tables.names import LocationRules
from lamella.service.tables.tables import Tables
from lamella.service.telemetry.logs import make_log
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import NoTraces, TracedCalls, Traces
from lamella.service.usage.audit import Audit
from lamella.service.usage.feedback import Feedback
from lamella.service.usage.filters import PruneRates, Recorder
from lamella.snapshot.cache import DiskCache
from lamella.snapshot.errors import AlreadyExists, ObjectNotFound
from lamella.snapshot.iceberg.wire import PlanTableScan
from lamella.snapshot.ids import Ids
from lamella.snapshot.index import kinds
from lamella.snapshot.prune.encode import SegmentTexts
from lamella.snapshot.prune.pipeline import Deferred, NotNow
from lamella.snapshot.prune.result import Found
from lamella.snapshot.source import Reader
from lamella.snapshot.storage import Store, check_create_only, check_write
from lamella.snapshot.storage.observed import ObservedStore
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.vacuum import Retention
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

_T = TypeVar("_T")

#: Probes and scrapes that are at work at once.
_PROBES: Final = 2
#: Clean-ups that wait for the one that is at work.
_CLEAN_UPS_WAITING: Final = 16

#: The object by which a warehouse is known to be there.
MARKER = "_lamella_v1.json"


def _token_secret(settings: Settings, catalog: Catalog) -> bytes:
    if settings.token_secret is not None:
        return settings.token_secret.encode()
    return catalog.secret("page tokens", secrets.token_bytes(32))


def _disk_cache(settings: Settings, metrics: Metrics) -> DiskCache | None:
    if settings.cache_dir is None:
        return None
    return DiskCache(settings.cache_dir, settings.cache_dir_bytes, metrics)


class Services:
    """Built once for an app and handed to its routes; there is no global state beside it."""

    #: Questions with more tests than this are wide: they take some milliseconds, and others do not wait for them.
    WIDE_TESTS: ClassVar[int] = 50_000

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        catalog: Catalog,
        ids: Ids,
        clock: Callable[[], int],
        traces: Traces | None = None,
    ) -> None:
        settings.require_public_properties()
        self.settings = settings
        self.lifecycle = Lifecycle()
        self._ending: list[Callable[[], None]] = []
        self.metrics = Metrics()
        self.traces = traces = NoTraces() if traces is None else traces
        calls = TracedCalls(self.metrics.store, self.metrics.catalog, traces) if traces.is_on else None
        catalog.listen_to(calls or self.metrics.catalog)
        self.store = store = ObservedStore(store, calls or self.metrics.store)
        self.catalog = catalog
        self.clock = clock
        self.gate = Authenticator(
            settings,
            catalog,
            self.metrics,
            make_log(settings.log_level, settings.log_format),
            sessions_secret=catalog.secret("dashboard log-ins", secrets.token_bytes(32)),
            clock=clock,
        )
        self.admission = Admission(settings, self.metrics)
        self.administration = Administration(catalog, self.gate.authenticator, clock)
        kinds()  # one of another package that cannot be loaded is told of here, and not by every prune
        secret = _token_secret(settings, catalog)
        self.page_tokens = tokens = PageTokens(secret)
        disk_cache = _disk_cache(settings, self.metrics)
        self.warehouse = Warehouse(
            store,
            settings.warehouse_url,
            ids=ids,
            cache_bytes=settings.cache_bytes,
            disk_cache=disk_cache,
            page_cache_bytes=settings.page_cache_bytes,
            page_files=settings.page_files,
            prepare_pages=settings.page_sidecars,
            token_secret=secret,
            clock=clock,
        )
        self.metrics.memory.watch(
            self.warehouse.kept, {"cache_bytes": settings.cache_bytes, "page_cache_bytes": settings.page_cache_bytes}
        )
        self.segment_texts = SegmentTexts(self.warehouse.resident)
        self.history = History(catalog, self.warehouse, store, clock, tokens)
        self.rules = LocationRules(settings, self.warehouse)
        self.block_urls = BlockUrls(store, self.rules, self.metrics, settings)
        reader = Reader(store, options=settings.store_options, catalogs=settings.iceberg_catalogs)
        self.sharing = Sharing(catalog, self.warehouse, self.history, self.block_urls, self.metrics, settings, secret)
        self.tables = Tables(
            catalog,
            self.warehouse,
            store,
            ids,
            clock,
            drop_grace_s=settings.drop_grace_s,
            reader=reader,
            rules=self.rules,
        )
        self.tags = Tags(catalog, self.history, clock)
        self.changes = ChangeStream(catalog, self.warehouse, self.history, SignedTokens(secret, "lamella change token"))
        self.committer = Committer(
            catalog=catalog,
            warehouse=self.warehouse,
            store=store,
            history=self.history,
            rules=self.rules,
            metrics=self.metrics,
            traces=traces,
            clock=clock,
            settings=settings,
        )
        self.external = External(
            catalog=catalog,
            warehouse=self.warehouse,
            store=store,
            reader=reader,
            committer=self.committer,
            intake=Intake(store, self.metrics, settings.ingest_threads),
            rules=self.rules,
            clock=clock,
            settings=settings,
        )
        self.feedback = Feedback(catalog, self.warehouse, self.history, clock, time.monotonic, settings)
        self.warehouse.listen_to(self.feedback)
        self.rollback = Rollback(
            warehouse=self.warehouse,
            history=self.history,
            committer=self.committer,
            rules=self.rules,
            clock=clock,
        )
        self.recorder = Recorder(
            catalog,
            self.warehouse,
            self.metrics,
            clock,
            time.monotonic,
            settings,
            catalog.secret("recorded filters", secrets.token_bytes(32)),
        )
        self.prune_rates = PruneRates(catalog, self.metrics, clock)
        self.iceberg_history = IcebergHistory(catalog, self.warehouse, clock)
        self.iceberg_scans = IcebergScans(catalog, self.warehouse, self.iceberg_history, secret, self._note_plan)
        self.audit = Audit(
            catalog, ids, self.metrics, clock, settings, make_log(settings.log_level, settings.log_format), tokens
        )
        self.advice = Advice(self.warehouse, self.store, self.history, self.recorder)
        self.indexes = Indexes(warehouse=self.warehouse, history=self.history, committer=self.committer, clock=clock)
        self.index_parts = IndexParts(
            catalog=catalog,
            warehouse=self.warehouse,
            store=store,
            history=self.history,
            committer=self.committer,
            clock=clock,
            settings=settings,
            tokens=tokens,
        )
        self.clustering = Clustering(
            catalog=catalog,
            warehouse=self.warehouse,
            history=self.history,
            committer=self.committer,
            recorder=self.recorder,
            clock=clock,
        )
        self.vacuum = Vacuum(
            catalog=catalog,
            warehouse=self.warehouse,
            store=store,
            metrics=self.metrics,
            clock=clock,
            retention=Retention(
                max_age_ms=settings.retention_max_age_s * 1000, min_snapshots=settings.retention_min_snapshots
            ),
            min_age_ms=settings.vacuum_min_age_s * 1000,
            drop_grace_ms=settings.drop_grace_s * 1000,
            max_objects=settings.vacuum_max_objects,
            places_of=lambda record: self.rules.of(record.namespace, record.table_id),
            tokens=tokens,
        )
        self.leases = Leases(catalog, self.history, self.metrics, ids, clock, longest_s=settings.lease_max_s)
        self.jobs = JobQueue(catalog, self.rules, self.metrics, ids, clock, settings, tokens)
        self.schedules = Schedules(catalog, self.rules, ids, clock, settings)
        conditions = SnapshotConditions(catalog, self.warehouse, self.clustering.average_depth)
        self.healths = TableHealths(catalog, self.warehouse, conditions, self.vacuum, clock)
        self.policies = Policies(catalog, conditions, self.metrics, ids, clock, settings)
        self.due = DueJobs(catalog, self.schedules, self.policies, self.metrics, clock, time.monotonic, settings)
        self.large_answers = LargeAnswers(
            at_once=settings.large_answers,
            waiting=settings.large_answers_waiting,
            stall_s=settings.answer_stall_s,
            shared=settings.auth,  # without, all are one
            metrics=self.metrics,
        )
        self.status = Status(
            settings=settings,
            catalog=catalog,
            store=store,
            resident=self.warehouse.resident,
            disk_cache=disk_cache,
            metrics=self.metrics,
            clock=clock,
            marker=MARKER,
        )
        self._readers = Threads(settings.read_threads)
        self._testers = Threads(settings.wide_prunes_at_once)
        self._maintainers = Threads(1, max_waiting=_CLEAN_UPS_WAITING, what="clean-ups")
        self._probes = Threads(_PROBES)
        self._parts = (
            self._finding(catalog.ping, "the catalog database"),
            self._finding(self._check_store, "the warehouse"),
        )
        self._writes = (
            self._finding(catalog.check_write, "a write to the catalog database", settings.ready_write_interval_s),
            self._finding(self._check_store_write, "a write to the warehouse", settings.ready_write_interval_s),
        )
        self._mutations = Mutations(settings, catalog, self.metrics, clock)
        self.pulse = EventLoopMonitor(self.metrics, catalog, self._thread_use)

    def table(self, namespace: str, name: str) -> TableRecord:
        """A table as it stands; raises NamespaceNotFound, TableNotFound. Waits for the catalog."""
        return self.catalog.current(namespace, name) or self.catalog.table(namespace, name)

    def _note_plan(self, record: TableRecord, plan: PlanTableScan, found: Found) -> None:
        self.metrics.pruned(found.answer)
        self.recorder.note(record, PruneRequest(filter=plan.filter, case_sensitive=plan.case_sensitive), found)
        self.prune_rates.note(record, found.answer.report, found.block_count)

    async def read(self, work: Callable[[], _T]) -> _T:
        """Run blocking work that changes nothing in a thread; slow mutations do not take its place."""
        return await self._readers.run(work)

    async def test(self, work: Callable[[], _T]) -> _T:
        """Run a question that tests many blocks in a thread; it keeps a core busy, and takes no other read's place."""
        return await self._testers.run(work)

    async def weighed(self, request: Request, work: Callable[[int | None], _T]) -> _T:
        """Run a question in the lane that its cost calls for; its operation takes its own place.

        ``work`` is given the tests that it may do (None: any number), and raises NotNow before it does more.
        Raises what it raises, and as :meth:`in_lane`.
        """
        try:
            async with self.admission.reading(request):
                return await self.read(lambda: work(self.WIDE_TESTS))
        except NotNow as error:
            cost = error.cost
        return await self.in_lane(request, cost, lambda: work(None))

    async def in_lane(self, request: Request, cost: Deferred, work: Callable[[], _T]) -> _T:
        """Run a question of that cost: what tests many blocks has places and threads of its own.

        Raises:
            Overloaded: too much is under way. Nothing was done then, also where the answer surely is a large one and
                there is neither a turn nor room to wait for one.
        """
        tests = cost.block_tests or 0
        if cost.kept_blocks * MIN_BLOCK_BYTES > WHOLE_BYTES:
            self.large_answers.check(actor_of(request))
        if tests > self.WIDE_TESTS:
            async with self.admission.testing(request, tests):
                return await self.test(work)
        async with self.admission.reading(request):
            return await self.read(work)

    async def probe(self, work: Callable[[], _T]) -> _T:
        """Run what tells how the service is in a thread; reads do not take its place."""
        return await self._probes.run(work)

    async def maintain(self, work: Callable[[], _T]) -> _T:
        """Run a part of a clean-up in a thread; one at a time in this process, so that it takes no other's place."""
        return await self._maintainers.run(work)

    async def mutate(
        self,
        request: Request,
        work: Work,
        body: bytes = b"",
        *,
        threads: Threads | None = None,
        key: str | None = None,
    ) -> Response:
        """Run a mutation in a thread, once per idempotency key, and make its answer a response.

        ``threads``: for work that takes long, so that it takes no commit's place. ``key``: an idempotency key that does
        not stand in a header.
        """
        return await self._mutations.run(request, work, body, threads, key)

    async def check_ready(self) -> None:
        """Return when requests can be served: the catalog answers, and the warehouse can be read and written.

        The warehouse is known by a marker object, written by the first service that uses it, once the store has
        shown that it lets nobody replace an object. The parts are asked once a second at most, and asked to write every
        ``ready_write_interval_s``; none is waited for longer than ``ready_timeout_s``.

        Raises:
            Unavailable: a part does not answer in time, the catalog takes no write, or the process is being stopped.
            StoreError: storage failed or refused.
        """
        self.lifecycle.require_serving()
        await check_all((*self._parts, *self._writes) if self.settings.ready_write_interval_s else self._parts)
        self.lifecycle.is_started = True

    async def check_started(self) -> None:
        """Return once requests could be served for the first time; from then on nothing is asked any more.

        By the time that there is an app, its catalog has the schema of this release and its caches are open.

        Raises:
            Unavailable: a part does not answer in time.
            StoreError: storage failed or refused.
        """
        if not self.lifecycle.is_started:
            await check_all(self._parts)
            self.lifecycle.is_started = True

    def _finding(self, work: Callable[[], None], what: str, holds_s: float | None = None) -> Probe:
        timeout_s = self.settings.ready_timeout_s
        return Probe(lambda: in_own_thread(work), what=what, timeout_s=timeout_s, holds_s=holds_s)

    def _check_store(self) -> None:
        marker = f"{self.settings.warehouse_url}/{MARKER}"
        try:
            self.store.stat(marker)
        except ObjectNotFound:
            check_create_only(self.store, self.settings.warehouse_url)
            try:
                self.store.put(marker, b'{"format_version":1}\n')
            except AlreadyExists:
                return  # another worker was faster

    def _check_store_write(self) -> None:
        check_write(self.store, self.settings.warehouse_url)

    def _thread_use(self) -> dict[str, ThreadUse]:
        return {
            "read": self._readers.use,
            "wide": self._testers.use,
            "write": self._mutations.thread_use,
            "maintain": self._maintainers.use,
            "answer": self.large_answers.thread_use,
        }

    def when_closing(self, end: Callable[[], None]) -> None:
        """Have something ended before the rest is."""
        self._ending.append(end)

    def close(self) -> None:
        """Finish the commits that are waiting, and release the catalog's connections.

        Each part is ended, also after one that fails; the last error is raised.
        """
        parts = (self.committer, self.healths, self.recorder, self.prune_rates, self.audit, self.catalog, self.traces)
        with ExitStack() as ending:  # the last is called first
            for end in reversed([*self._ending, *(part.close for part in parts)]):
                ending.callback(end)
