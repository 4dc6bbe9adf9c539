"""Tables for clients of Iceberg's REST catalog: read only, below ``/iceberg``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lamella.service.access import Authenticator
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.features import Feature
from lamella.service.http.lanes import Lanes
from lamella.service.http.page_token import PageTokens
from lamella.service.http.streaming import LargeAnswers
from lamella.service.iceberg.errors import ENVELOPES
from lamella.service.iceberg.exports import ExportedTableRoutes
from lamella.service.iceberg.routes import IcebergCatalogRoutes, IcebergScanRoutes, IcebergTokenRoutes
from lamella.service.iceberg.scans import IcebergHistory, IcebergScans
from lamella.service.process.threads import Threads
from lamella.service.usage.filters import PruneNotes
from lamella.snapshot.iceberg.wire import PlanTableScan
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest


class _Parts(Protocol):
    """What the Iceberg catalog takes of the core."""

    catalog: Catalog
    clock: Callable[[], int]
    authentication: Authenticator
    lanes: Lanes
    large_answers: LargeAnswers
    page_tokens: PageTokens
    prune_notes: PruneNotes
    readers: Threads
    settings: Settings
    store: Store
    token_secret: bytes
    warehouse: Warehouse


def register(core: _Parts) -> Feature:
    """The operations of the catalog, with errors in Iceberg's form."""
    notes = core.prune_notes

    def note(record: TableRecord, plan: PlanTableScan, found: PruneResult) -> None:
        notes.note(record, PruneRequest(filter=plan.filter, case_sensitive=plan.case_sensitive), found)

    history = IcebergHistory(core.catalog, core.warehouse, core.clock)
    scans = IcebergScans(core.catalog, core.warehouse, history, core.token_secret, note)
    catalog_routes = IcebergCatalogRoutes(
        catalog=core.catalog,
        readers=core.readers,
        page_tokens=core.page_tokens,
        history=history,
        properties=core.settings.iceberg_properties,
    )
    scan_routes = IcebergScanRoutes(
        catalog=core.catalog,
        readers=core.readers,
        lanes=core.lanes,
        large_answers=core.large_answers,
        scans=scans,
    )
    export_routes = ExportedTableRoutes(
        catalog=core.catalog, readers=core.readers, store=core.store, properties=core.settings.iceberg_properties
    )
    token_routes = IcebergTokenRoutes(authentication=core.authentication, clock=core.clock)
    return Feature(
        operations=(
            *catalog_routes.operations(),
            *scan_routes.operations(),
            *export_routes.operations(),
            *token_routes.operations(),
        ),
        envelopes=ENVELOPES,
    )
