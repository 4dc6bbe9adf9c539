"""Iceberg's REST catalog, below ``/iceberg``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from lamella.service.access import Authenticator
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.commits.committer import Committer
from lamella.service.config.settings import Settings
from lamella.service.external.external import External
from lamella.service.features import Feature
from lamella.service.history.rollback import Rollback
from lamella.service.http.lanes import Lanes
from lamella.service.http.mutations import Mutations
from lamella.service.http.page_token import PageTokens
from lamella.service.http.routing import ServedOperation
from lamella.service.http.streaming import LargeAnswers
from lamella.service.iceberg.conversion import ConversionRoutes, Conversions
from lamella.service.iceberg.errors import ENVELOPES
from lamella.service.iceberg.exports import ExportedTableRoutes
from lamella.service.iceberg.hosted import HostedTables
from lamella.service.iceberg.hosted_changes import HostedChanges
from lamella.service.iceberg.hosted_scans import HostedScans
from lamella.service.iceberg.routes import IcebergCatalogRoutes, IcebergScanRoutes, IcebergTokenRoutes
from lamella.service.iceberg.scan_reports import ScanReports
from lamella.service.iceberg.scans import IcebergHistory, IcebergScans
from lamella.service.iceberg.storage_access import StorageAccess
from lamella.service.iceberg.views import HostedViews, IcebergViewRoutes
from lamella.service.iceberg.writes import IcebergNamespaceRoutes, IcebergTableRoutes
from lamella.service.process.threads import Threads
from lamella.service.tables.names import LocationRules
from lamella.service.tables.tables import Tables
from lamella.service.tables.views import Views
from lamella.service.usage.filters import PruneNotes
from lamella.snapshot.iceberg.wire import PlanTableScan
from lamella.snapshot.ids import Ids
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.source import Reader
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest


class _Parts(Protocol):
    """What the Iceberg catalog takes of the core."""

    catalog: Catalog
    clock: Callable[[], int]
    authentication: Authenticator
    committer: Committer
    external: External
    ids: Ids
    lanes: Lanes
    large_answers: LargeAnswers
    log: FilteringBoundLogger
    mutations: Mutations
    page_tokens: PageTokens
    prune_notes: PruneNotes
    reader: Reader
    readers: Threads
    rollback: Rollback
    rules: LocationRules
    settings: Settings
    store: Store
    tables: Tables
    token_secret: bytes
    views: Views
    warehouse: Warehouse


def register(core: _Parts) -> Feature:
    """The operations of the catalog, with errors in Iceberg's form."""
    notes = core.prune_notes

    def note(record: TableRecord, plan: PlanTableScan, found: PruneResult) -> None:
        notes.note(record, PruneRequest(filter=plan.filter, case_sensitive=plan.case_sensitive), found)

    history = IcebergHistory(core.catalog, core.warehouse, core.clock)
    hosted = HostedTables(
        catalog=core.catalog,
        warehouse=core.warehouse,
        store=core.store,
        reader=core.reader,
        committer=core.committer,
        external=core.external,
        rules=core.rules,
        ids=core.ids,
        clock=core.clock,
        log=core.log,
    )
    changes = HostedChanges(catalog=core.catalog, warehouse=core.warehouse, hosted=hosted)
    core.committer.evolve_hosted_by(changes.evolve)
    core.rollback.hosted_by(changes.rollback)
    access = StorageAccess(
        settings=core.settings,
        catalog=core.catalog,
        warehouse=core.warehouse,
        rules=core.rules,
        hosted=hosted,
        secret=core.token_secret,
        clock=core.clock,
        log=core.log,
    )
    hosted_scans = HostedScans(catalog=core.catalog, warehouse=core.warehouse, hosted=hosted, note=note)
    scans = IcebergScans(core.catalog, core.warehouse, history, hosted, hosted_scans, core.token_secret, note)
    catalog_routes = IcebergCatalogRoutes(
        catalog=core.catalog,
        readers=core.readers,
        page_tokens=core.page_tokens,
        history=history,
        hosted=hosted,
        access=access,
        properties=core.settings.iceberg_properties,
        idempotency_ttl_s=core.settings.idempotency_ttl_s,
    )
    scan_routes = IcebergScanRoutes(
        catalog=core.catalog,
        readers=core.readers,
        lanes=core.lanes,
        large_answers=core.large_answers,
        scans=scans,
        reports=ScanReports(core.warehouse, notes),
    )
    export_routes = ExportedTableRoutes(
        catalog=core.catalog, readers=core.readers, store=core.store, properties=core.settings.iceberg_properties
    )
    token_routes = IcebergTokenRoutes(authentication=core.authentication, clock=core.clock)
    namespace_routes = IcebergNamespaceRoutes(catalog=core.catalog, mutations=core.mutations, tables=core.tables)
    table_routes = IcebergTableRoutes(
        mutations=core.mutations,
        readers=core.readers,
        tables=core.tables,
        hosted=hosted,
        access=access,
        shown=catalog_routes,
    )
    view_routes = IcebergViewRoutes(
        catalog=core.catalog,
        readers=core.readers,
        mutations=core.mutations,
        page_tokens=core.page_tokens,
        views=core.views,
        hosted=HostedViews(
            catalog=core.catalog,
            warehouse=core.warehouse,
            store=core.store,
            rules=core.rules,
            ids=core.ids,
            clock=core.clock,
        ),
    )
    conversions = Conversions(
        catalog=core.catalog,
        warehouse=core.warehouse,
        store=core.store,
        reader=core.reader,
        committer=core.committer,
        hosted=hosted,
        rules=core.rules,
        clock=core.clock,
    )
    conversion_routes = ConversionRoutes(catalog=core.catalog, mutations=core.mutations, conversions=conversions)
    served = (
        *catalog_routes.operations(),
        *namespace_routes.operations(),
        *table_routes.operations(),
        *view_routes.operations(),
        *scan_routes.operations(),
        *export_routes.operations(),
        *token_routes.operations(),
    )
    return Feature(
        operations=(*map(_with_levels, served), *conversion_routes.operations()),
        envelopes=ENVELOPES,
    )


def _with_levels(served: ServedOperation) -> ServedOperation:
    """Return the operation with a path in which namespaces may have several levels."""
    path = served.operation.path.replace("{namespace}", "{namespace:levels}")
    return msgspec.structs.replace(served, converted_path=path)
