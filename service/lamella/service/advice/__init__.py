"""Advice about skip indexes and layouts: scores, what-if, why-not, the filters that were recorded for it, and the
upkeep that follows it by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lamella.service.advice.advice import Advice
from lamella.service.advice.auto import Auto
from lamella.service.advice.routes import AdviceRoutes
from lamella.service.catalog import Catalog
from lamella.service.features import Feature
from lamella.service.history.history import History
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.telemetry.metrics import Metrics
from lamella.service.usage.filters import FilterRecorder
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse


class _Parts(Protocol):
    """The parts of the service that advice uses."""

    catalog: Catalog
    clock: Callable[[], int]
    healths: TableHealths
    history: History
    ids: Ids
    metrics: Metrics
    recorder: FilterRecorder
    store: Store
    warehouse: Warehouse


def register(core: _Parts) -> Feature:
    """Register the operations of advice, and the advice that the dashboard shows."""
    advice = Advice(core.warehouse, core.store, core.history, core.recorder, core.catalog, core.healths)
    auto = Auto(
        advice=advice,
        catalog=core.catalog,
        recorder=core.recorder,
        warehouse=core.warehouse,
        metrics=core.metrics,
        ids=core.ids,
        clock=core.clock,
    )
    routes = AdviceRoutes(catalog=core.catalog, advice=advice, auto=auto)
    return Feature(operations=routes.operations(), advisor=advice, auto=auto)
