"""The console at ``/ui``: pages rendered on the server, usable without JavaScript, and without external resources.

One module a screen; each reads what it shows from the same parts that the REST API answers from, and has no state of
its own, so that any process of the service can draw any page. docs/decisions/0035-dashboard.md has the reasons.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from starlette.routing import Route

from lamella.service.access import Authenticator
from lamella.service.access.administration import AccessAdministration
from lamella.service.catalog import Catalog
from lamella.service.clustering.clustering import Clustering
from lamella.service.commits.committer import Committer
from lamella.service.config.settings import Settings
from lamella.service.dashboard.access import AccessPages, TableAccessPages
from lamella.service.dashboard.advice import AdvicePages
from lamella.service.dashboard.auto import AutoPages
from lamella.service.dashboard.health import Health
from lamella.service.dashboard.history import HistoryPages
from lamella.service.dashboard.home import HomePages
from lamella.service.dashboard.indexes import IndexChangePages
from lamella.service.dashboard.job_preview import JobEffects, Previews
from lamella.service.dashboard.jobs import JobPages, NewJobPages
from lamella.service.dashboard.lab import LabPages
from lamella.service.dashboard.lab_compare import LabComparison
from lamella.service.dashboard.layer_map import MapPages
from lamella.service.dashboard.login import LoginPages
from lamella.service.dashboard.names import Names
from lamella.service.dashboard.objects import ObjectPages
from lamella.service.dashboard.pages import ROOT, Pages
from lamella.service.dashboard.rows import RowPages
from lamella.service.dashboard.search import Search, SearchPages
from lamella.service.dashboard.status import StatusPages
from lamella.service.dashboard.style import StylePages
from lamella.service.dashboard.survey import Survey
from lamella.service.dashboard.tables import TablePages
from lamella.service.dashboard.upkeep import UpkeepPages
from lamella.service.external.external import External
from lamella.service.features import Feature
from lamella.service.history.branches import Branches
from lamella.service.history.changes import ChangeStream
from lamella.service.history.history import History
from lamella.service.history.rollback import Rollback
from lamella.service.history.tags import Tags
from lamella.service.http.admission import Admission
from lamella.service.http.mutations import Mutations
from lamella.service.http.routing import RouteFactory
from lamella.service.indexes.indexes import Indexes
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.queue import JobQueue
from lamella.service.jobs.schedules import Schedules
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.maintenance.vacuum import Vacuum
from lamella.service.process.status import Status
from lamella.service.process.threads import Threads
from lamella.service.samples.samples import Samples
from lamella.service.tables.tables import Tables
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.audit import Audit
from lamella.service.usage.filters import PruneRates
from lamella.service.usage.service_rates import ServiceRates
from lamella.snapshot.warehouse import Warehouse


class _Parts(Protocol):
    """What the console takes of the core: it shows all of it."""

    administration: AccessAdministration
    admission: Admission
    audit: Audit
    catalog: Catalog
    changes: ChangeStream
    clock: Callable[[], int]
    clustering: Clustering
    committer: Committer
    external: External
    features: list[Feature]
    authentication: Authenticator
    healths: TableHealths
    history: History
    indexes: Indexes
    jobs: JobQueue
    metrics: Metrics
    mutations: Mutations
    policies: Policies
    prune_rates: PruneRates
    readers: Threads
    rollback: Rollback
    samples: Samples
    sampling: Threads
    schedules: Schedules
    service_rates: ServiceRates
    settings: Settings
    status: Status
    tables: Tables
    tags: Tags
    branches: Branches
    vacuum: Vacuum
    warehouse: Warehouse

    def when_closing(self, end: Callable[[], None]) -> None: ...


def register(core: _Parts) -> Feature:
    """The routes of all screens; none where the settings say so."""
    if not core.settings.dashboard:
        return Feature()
    secret = core.catalog.secret("dashboard forms", secrets.token_bytes(32))
    return Feature(pages=lambda route_factory: _routes(core, route_factory, secret), home=ROOT)


def _routes(core: _Parts, route_factory: RouteFactory, secret: bytes) -> list[Route]:
    """``secret`` signs what forms carry."""
    catalog, warehouse, readers, clock = core.catalog, core.warehouse, core.readers, core.clock
    history, indexes, when_closing = core.history, core.indexes, core.when_closing
    advice = next((each.advisor for each in core.features if each.advisor is not None), None)
    auto = next((each.auto for each in core.features if each.auto is not None), None)
    pages = Pages(
        admission=core.admission,
        mutations=core.mutations,
        authentication=core.authentication,
        audit=core.audit,
        clock=clock,
        route_factory=route_factory,
        secret=secret,
        names=Names(catalog, clock),
    )
    touches = JobEffects(
        advice=advice,
        history=history,
        warehouse=warehouse,
        external=core.external,
        indexes=indexes,
        vacuum=core.vacuum,
        samples=core.samples,
        clock=clock,
    )
    previews = Previews(catalog=catalog, clustering=core.clustering, warehouse=warehouse, clock=clock, touches=touches)
    index_pages = IndexChangePages(
        catalog=catalog,
        advice=advice,
        readers=readers,
        warehouse=warehouse,
        indexes=indexes,
        jobs=core.jobs,
        when_closing=when_closing,
        pages=pages,
    )
    new_jobs = NewJobPages(
        catalog=catalog,
        readers=readers,
        indexes=indexes,
        warehouse=warehouse,
        jobs=core.jobs,
        when_closing=when_closing,
        previews=previews,
        pages=pages,
    )
    comparison = LabComparison(
        catalog=catalog, advice=advice, history=history, warehouse=warehouse, when_closing=when_closing
    )
    survey = Survey(
        catalog=catalog,
        warehouse=warehouse,
        healths=core.healths,
        clock=clock,
        drop_grace_ms=core.settings.drop_grace_s * 1000,
        when_closing=when_closing,
    )
    screens = (
        LoginPages(authentication=core.authentication, settings=core.settings, clock=clock, pages=pages, secret=secret),
        HomePages(
            catalog=catalog,
            readers=readers,
            authentication=core.authentication,
            health=Health(
                catalog=catalog,
                administration=core.administration,
                service_rates=core.service_rates,
                survey=survey,
                clock=clock,
            ),
            healths=core.healths,
            prune_rates=core.prune_rates,
            clock=clock,
            pages=pages,
        ),
        StylePages(pages=pages),
        SearchPages(readers=readers, search=Search(catalog=catalog, survey=survey, clock=clock), pages=pages),
        TablePages(
            catalog=catalog,
            advice=advice,
            readers=readers,
            clustering=core.clustering,
            history=history,
            indexes=indexes,
            warehouse=warehouse,
            schedules=core.schedules,
            policies=core.policies,
            healths=core.healths,
            prune_rates=core.prune_rates,
            audit=core.audit,
            clock=clock,
            when_closing=when_closing,
            pages=pages,
        ),
        UpkeepPages(
            catalog=catalog,
            readers=readers,
            policies=core.policies,
            schedules=core.schedules,
            has_auto=auto is not None,
            pages=pages,
        ),
        AdvicePages(catalog=catalog, advice=advice, readers=readers, when_closing=when_closing, pages=pages),
        *(
            ()
            if auto is None
            else (AutoPages(catalog=catalog, readers=readers, policies=core.policies, auto=auto, pages=pages),)
        ),
        ObjectPages(catalog=catalog, readers=readers, tables=core.tables, committer=core.committer, pages=pages),
        MapPages(catalog=catalog, readers=readers, history=history, warehouse=warehouse, pages=pages),
        RowPages(
            catalog=catalog,
            sampling=core.sampling,
            samples=core.samples,
            history=history,
            warehouse=warehouse,
            pages=pages,
        ),
        HistoryPages(
            catalog=catalog,
            readers=readers,
            history=history,
            changes=core.changes,
            rollback=core.rollback,
            tags=core.tags,
            branches=core.branches,
            audit=core.audit,
            pages=pages,
        ),
        LabPages(
            catalog=catalog,
            advice=advice,
            readers=readers,
            history=history,
            warehouse=warehouse,
            when_closing=when_closing,
            comparison=comparison,
            pages=pages,
        ),
        JobPages(
            catalog=catalog,
            readers=readers,
            jobs=core.jobs,
            clock=clock,
            parts=(new_jobs, index_pages),
            pages=pages,
        ),
        AccessPages(
            readers=readers,
            administration=core.administration,
            authentication=core.authentication,
            clock=clock,
            pages=pages,
        ),
        TableAccessPages(
            catalog=catalog,
            readers=readers,
            administration=core.administration,
            authentication=core.authentication,
            audit=core.audit,
            pages=pages,
        ),
        StatusPages(
            readers=readers,
            settings=core.settings,
            status=core.status,
            service_rates=core.service_rates,
            audit=core.audit,
            metrics=core.metrics,
            clock=core.clock,
            pages=pages,
        ),
    )
    return pages.routes([page for screen in screens for page in screen.pages()])
