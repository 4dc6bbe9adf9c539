"""The parts of one running service, and which of them each feature is handed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from lamella.service.access import Authenticator
from lamella.service.access.administration import AccessAdministration
from lamella.service.access.routes import AccessRoutes
from lamella.service.arrivals.arrivals import Arrivals
from lamella.service.arrivals.routes import ArrivalsRoutes
from lamella.service.catalog import Catalog
from lamella.service.clustering.clustering import Clustering
from lamella.service.clustering.routes import ClusteringRoutes, RewriteRoutes
from lamella.service.commits.blocks import FileChecker
from lamella.service.commits.committer import Committer
from lamella.service.commits.routes import CommitRoutes
from lamella.service.config.settings import Settings
from lamella.service.external.external import External
from lamella.service.external.routes import ExternalRoutes
from lamella.service.features import Feature
from lamella.service.history.branches import Branches, BranchRoutes
from lamella.service.history.changes import ChangeStream
from lamella.service.history.history import History
from lamella.service.history.rollback import Rollback
from lamella.service.history.routes import ChangesRoutes, HistoryRoutes, RollbackRoutes, TagRoutes
from lamella.service.history.tags import Tags
from lamella.service.http.admission import Admission
from lamella.service.http.lanes import Lanes
from lamella.service.http.mutations import Mutations
from lamella.service.http.page_token import PageTokens
from lamella.service.http.responses import ConditionalResponses
from lamella.service.http.routing import ServedOperation
from lamella.service.http.streaming import LargeAnswers
from lamella.service.indexes.indexes import Indexes
from lamella.service.indexes.parts import IndexParts
from lamella.service.indexes.routes import IndexRoutes
from lamella.service.jobs.policies import Policies, SnapshotConditions, StoredConditions
from lamella.service.jobs.queue import JobQueue
from lamella.service.jobs.routes import JobRoutes, ScheduleRoutes, WorkerRoutes
from lamella.service.jobs.schedules import DueJobs, Schedules
from lamella.service.maintenance.leases import Leases
from lamella.service.maintenance.routes import MaintenanceRoutes, VerifyRoutes
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.maintenance.verification import Verifications
from lamella.service.process.health import EventLoopMonitor
from lamella.service.process.lifecycle import Lifecycle
from lamella.service.process.readiness import MARKER, Readiness
from lamella.service.process.routes import ConfigRoutes, HealthRoutes
from lamella.service.process.status import Status
from lamella.service.process.threads import Threads, ThreadUse
from lamella.service.prune.block_urls import BlockUrls
from lamella.service.prune.routes import AggregateRoutes, PruneManyRoutes, PruneRoutes
from lamella.service.samples.routes import SampleRoutes
from lamella.service.samples.samples import Samples
from lamella.service.tables.names import LocationRules
from lamella.service.tables.routes import DroppedRoutes, NamespaceRoutes, SchemaRoutes, TableRoutes
from lamella.service.tables.tables import Tables
from lamella.service.tables.view_routes import ViewRoutes
from lamella.service.tables.views import Views
from lamella.service.telemetry.logs import make_log
from lamella.service.telemetry.metrics import Metrics
from lamella.service.telemetry.tracing import TracedCalls, Traces
from lamella.service.usage.audit import Audit
from lamella.service.usage.feedback import Feedback
from lamella.service.usage.filters import FilterRecorder, PruneNotes, PruneRates
from lamella.service.usage.routes import FeedbackRoutes, UsageRoutes
from lamella.service.usage.service_rates import ServiceRates
from lamella.snapshot.cache import DiskCache
from lamella.snapshot.ids import Ids
from lamella.snapshot.index import kinds
from lamella.snapshot.prune.segment_text import SegmentTexts
from lamella.snapshot.source import Reader
from lamella.snapshot.storage import Store
from lamella.snapshot.storage.observed import ObservedStore
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.vacuum import Retention
from lamella.snapshot.warehouse import Warehouse

#: Probes and scrapes that are at work at once.
_PROBES: Final = 2
#: Clean-ups that wait for the one that is at work; those take turns, so that they take no other's place.
_CLEAN_UPS_WAITING: Final = 16
#: Samples of rows that are read concurrently in a process, and those that wait.
_SAMPLES: Final = 2
_SAMPLES_WAITING: Final = 16


class Core:
    """The parts of the core, built once for an app; there is no global state beside it.

    Nothing is handed the whole of it but :func:`operations`, which gives each feature its parts, and the entry points
    of the optional features (:mod:`lamella.service.extensions`), which name what they take of it in a protocol.
    """

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
        settings.require_one_source_of_credentials()
        self.settings = settings
        self.lifecycle = Lifecycle()
        self._ending: list[Callable[[], None]] = []
        #: Optional features that were registered, in their order.
        self.features: list[Feature] = []
        self.metrics = Metrics()
        self.traces = traces = Traces() if traces is None else traces
        calls = TracedCalls(self.metrics.store, self.metrics.catalog, traces) if traces.is_on else None
        catalog.listen_to(calls or self.metrics.catalog)
        store = ObservedStore(store, calls or self.metrics.store)
        self.store: Store = store
        self.catalog = catalog
        self.clock = clock
        self.ids = ids
        self.log = make_log(settings.log_level, settings.log_format)
        self.authentication = Authenticator(
            settings,
            catalog,
            self.metrics,
            self.log,
            sessions_secret=catalog.secret("dashboard log-ins", secrets.token_bytes(32)),
            clock=clock,
        )
        self.admission = Admission(settings, self.metrics)
        self.administration = AccessAdministration(catalog, self.authentication.authenticator, clock)
        kinds()  # one of another package that cannot be loaded is told of here, and not by every prune
        self.token_secret = secret = _token_secret(settings, catalog)
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
            self.warehouse.cache_counts,
            {"cache_bytes": settings.cache_bytes, "page_cache_bytes": settings.page_cache_bytes},
        )
        self.segment_texts = SegmentTexts(self.warehouse.memory_cache)
        self.history = History(catalog, self.warehouse, store, clock, tokens)
        self.rules = LocationRules(settings, self.warehouse)
        self.block_urls = BlockUrls(store, self.rules, self.metrics, settings)
        self.reader = reader = Reader(store, options=settings.store_options, catalogs=settings.iceberg_catalogs)
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
        self.views = Views(catalog, ids, clock)
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
            intake=FileChecker(store, self.metrics, settings.ingest_threads),
            rules=self.rules,
            clock=clock,
            settings=settings,
        )
        self.arrivals = Arrivals(
            catalog=catalog,
            warehouse=self.warehouse,
            committer=self.committer,
            external=self.external,
            intake=FileChecker(store, self.metrics, settings.ingest_threads),
            metrics=self.metrics,
        )
        self.feedback = Feedback(catalog, self.warehouse, self.history, clock, settings)
        self.branches = Branches(
            catalog=catalog,
            warehouse=self.warehouse,
            history=self.history,
            committer=self.committer,
            ids=ids,
            clock=clock,
        )
        self.rollback = Rollback(
            warehouse=self.warehouse,
            history=self.history,
            committer=self.committer,
            rules=self.rules,
            clock=clock,
        )
        self.recorder = FilterRecorder(
            catalog,
            self.warehouse,
            self.metrics,
            clock,
            time.monotonic,
            settings,
            catalog.secret("recorded filters", secrets.token_bytes(32)),
        )
        self.prune_rates = PruneRates(catalog, self.metrics, clock)
        self.service_rates = ServiceRates(catalog, self.metrics, clock, self._cache_counts)
        self.prune_notes = PruneNotes(self.metrics, self.recorder, self.prune_rates)
        self.audit = Audit(catalog, ids, self.metrics, clock, settings, self.log, tokens)
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
            locations_of=lambda record: self.rules.of(record.namespace, record.main_id),
            tokens=tokens,
        )
        self.leases = Leases(catalog, self.history, self.metrics, ids, clock, longest_s=settings.lease_max_s)
        self.jobs = JobQueue(catalog, self.rules, self.metrics, ids, clock, settings, tokens)
        self.schedules = Schedules(catalog, self.rules, ids, clock, settings)
        self.conditions = conditions = SnapshotConditions(catalog, self.warehouse, self.clustering.average_depth)
        self.healths = TableHealths(
            catalog,
            self.warehouse,
            conditions,
            self.vacuum,
            self.metrics,
            clock,
            share=settings.table_health_share,
        )
        self.committer.after_commits(self.healths.note_commit)
        stored = StoredConditions(catalog, conditions, self.healths.note_commit)
        self.policies = Policies(catalog, stored, self.metrics, ids, clock, settings)
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
            memory_cache=self.warehouse.memory_cache,
            disk_cache=disk_cache,
            metrics=self.metrics,
            clock=clock,
            marker=MARKER,
        )
        self.readers = Threads(settings.read_threads)
        self.maintainers = Threads(1, max_waiting=_CLEAN_UPS_WAITING, what="clean-ups")
        self.sampling = Threads(_SAMPLES, max_waiting=_SAMPLES_WAITING, what="samples of rows")
        self.samples = Samples(self.warehouse, self.history, self.rules, settings)
        self.probes = Threads(_PROBES)
        self.mutations = Mutations(settings, catalog, self.metrics, clock)
        self.lanes = Lanes(
            admission=self.admission,
            readers=self.readers,
            wide_at_once=settings.wide_prunes_at_once,
            large_answers=self.large_answers,
        )
        self.conditional = ConditionalResponses(catalog=catalog, readers=self.readers, large_answers=self.large_answers)
        self.readiness = Readiness(settings=settings, catalog=catalog, store=store, lifecycle=self.lifecycle)
        self.verifications = Verifications(
            catalog,
            self.history,
            store,
            settings.warehouse_url,
            tokens=tokens,
            page_sidecars=settings.page_sidecars,
            workers=settings.ingest_threads,
        )
        self.loop_monitor = EventLoopMonitor(self.metrics, catalog, self._thread_use, self.service_rates.soon)

    def _cache_counts(self) -> tuple[int, int]:
        counts = self.warehouse.memory_cache.counts().values()
        return sum(each.hits for each in counts), sum(each.misses for each in counts)

    def _thread_use(self) -> dict[str, ThreadUse]:
        return {
            "read": self.readers.use,
            "wide": self.lanes.wide_use,
            "write": self.mutations.thread_use,
            "maintain": self.maintainers.use,
            "answer": self.large_answers.thread_use,
        }

    def when_closing(self, end: Callable[[], None]) -> None:
        """Have something ended before the rest is."""
        self._ending.append(end)

    def close(self) -> None:
        """Finish the commits that are waiting, and release the catalog's connections.

        Each part is ended, also after one that fails; the last error is raised.
        """
        notes = (self.recorder, self.prune_rates, self.service_rates, self.audit)
        parts = (self.committer, self.healths, *notes, self.catalog, self.traces)
        with ExitStack() as ending:  # the last is called first
            for end in reversed([*self._ending, *(part.close for part in parts)]):
                ending.callback(end)


def operations(core: Core) -> tuple[ServedOperation, ...]:
    """Every operation of the API. The prune route comes first: routes are tried in this order."""
    settings = core.settings
    return (
        *PruneRoutes(
            catalog=core.catalog,
            lanes=core.lanes,
            block_urls=core.block_urls,
            history=core.history,
            warehouse=core.warehouse,
            traces=core.traces,
            large_answers=core.large_answers,
            segment_texts=core.segment_texts,
            notes=core.prune_notes,
        ).operations(),
        *PruneManyRoutes(
            catalog=core.catalog,
            lanes=core.lanes,
            history=core.history,
            warehouse=core.warehouse,
            metrics=core.metrics,
            traces=core.traces,
            large_answers=core.large_answers,
            prune_rates=core.prune_rates,
            segment_texts=core.segment_texts,
            answer_blocks_max=settings.answer_blocks_max,
        ).operations(),
        *AggregateRoutes(
            catalog=core.catalog,
            lanes=core.lanes,
            history=core.history,
            warehouse=core.warehouse,
            metrics=core.metrics,
            traces=core.traces,
        ).operations(),
        *SampleRoutes(catalog=core.catalog, sampling=core.sampling, samples=core.samples).operations(),
        *HealthRoutes(
            probes=core.probes, readiness=core.readiness, metrics=core.metrics, is_public=settings.public_metrics
        ).operations(),
        *CommitRoutes(
            catalog=core.catalog,
            readers=core.readers,
            mutations=core.mutations,
            committer=core.committer,
            lists_at_once=settings.commit_lists_at_once,
            transactions_at_once=settings.write_threads,
        ).operations(),
        *ArrivalsRoutes(catalog=core.catalog, mutations=core.mutations, arrivals=core.arrivals).operations(),
        *ExternalRoutes(
            catalog=core.catalog, readers=core.readers, mutations=core.mutations, external=core.external
        ).operations(),
        *TableRoutes(
            catalog=core.catalog,
            readers=core.readers,
            mutations=core.mutations,
            conditional=core.conditional,
            tables=core.tables,
        ).operations(),
        *SchemaRoutes(
            catalog=core.catalog,
            mutations=core.mutations,
            conditional=core.conditional,
            warehouse=core.warehouse,
            committer=core.committer,
        ).operations(),
        *NamespaceRoutes(
            catalog=core.catalog, readers=core.readers, mutations=core.mutations, tables=core.tables
        ).operations(),
        *ViewRoutes(
            catalog=core.catalog, readers=core.readers, mutations=core.mutations, views=core.views
        ).operations(),
        *HistoryRoutes(
            catalog=core.catalog,
            readers=core.readers,
            conditional=core.conditional,
            history=core.history,
            page_size_max=settings.page_size_max,
        ).operations(),
        *TagRoutes(catalog=core.catalog, readers=core.readers, mutations=core.mutations, tags=core.tags).operations(),
        *BranchRoutes(
            catalog=core.catalog, readers=core.readers, mutations=core.mutations, branches=core.branches
        ).operations(),
        *RollbackRoutes(catalog=core.catalog, mutations=core.mutations, rollback=core.rollback).operations(),
        *ChangesRoutes(
            catalog=core.catalog,
            readers=core.readers,
            changes=core.changes,
            large_answers=core.large_answers,
            answer_blocks_max=settings.answer_blocks_max,
        ).operations(),
        *DroppedRoutes(readers=core.readers, mutations=core.mutations, tables=core.tables).operations(),
        *IndexRoutes(
            catalog=core.catalog,
            readers=core.readers,
            mutations=core.mutations,
            indexes=core.indexes,
            index_parts=core.index_parts,
        ).operations(),
        *ClusteringRoutes(
            catalog=core.catalog, readers=core.readers, mutations=core.mutations, clustering=core.clustering
        ).operations(),
        *RewriteRoutes(
            catalog=core.catalog,
            readers=core.readers,
            block_urls=core.block_urls,
            history=core.history,
            warehouse=core.warehouse,
        ).operations(),
        *FeedbackRoutes(catalog=core.catalog, readers=core.readers, feedback=core.feedback).operations(),
        *VerifyRoutes(catalog=core.catalog, readers=core.readers, verifications=core.verifications).operations(),
        *MaintenanceRoutes(
            catalog=core.catalog,
            readers=core.readers,
            maintainers=core.maintainers,
            leases=core.leases,
            healths=core.healths,
            vacuum=core.vacuum,
        ).operations(),
        *JobRoutes(
            readers=core.readers, mutations=core.mutations, jobs=core.jobs, page_size_max=settings.page_size_max
        ).operations(),
        *WorkerRoutes(readers=core.readers, due=core.due, jobs=core.jobs).operations(),
        *ScheduleRoutes(
            catalog=core.catalog,
            readers=core.readers,
            mutations=core.mutations,
            schedules=core.schedules,
            policies=core.policies,
        ).operations(),
        *UsageRoutes(
            catalog=core.catalog,
            readers=core.readers,
            prune_rates=core.prune_rates,
            service_rates=core.service_rates,
            audit=core.audit,
            page_size_max=settings.page_size_max,
        ).operations(),
        *AccessRoutes(readers=core.readers, administration=core.administration).operations(),
        *ConfigRoutes(settings=settings).operations(),
        *(operation for feature in core.features for operation in feature.operations),
    )


def _token_secret(settings: Settings, catalog: Catalog) -> bytes:
    if settings.token_secret is not None:
        return settings.token_secret.encode()
    return catalog.secret("page tokens", secrets.token_bytes(32))


def _disk_cache(settings: Settings, metrics: Metrics) -> DiskCache | None:
    if settings.cache_dir is None:
        return None
    return DiskCache(settings.cache_dir, settings.cache_dir_bytes, metrics)
