"""Advice about skip indexes and layouts: scores, what-if, why-not, and the filters that were recorded for it."""

from __future__ import annotations

from typing import Protocol

from lamella.service.advice.advice import Advice
from lamella.service.advice.routes import AdviceRoutes
from lamella.service.catalog import Catalog
from lamella.service.features import Feature
from lamella.service.history.history import History
from lamella.service.maintenance.table_health import TableHealths
from lamella.service.usage.filters import FilterRecorder
from lamella.snapshot.storage import Store
from lamella.snapshot.warehouse import Warehouse


class _Parts(Protocol):
    """The parts of the service that advice uses."""

    catalog: Catalog
    healths: TableHealths
    history: History
    recorder: FilterRecorder
    store: Store
    warehouse: Warehouse


def register(core: _Parts) -> Feature:
    """Register the operations of advice, and the advice that the dashboard shows."""
    advice = Advice(core.warehouse, core.store, core.history, core.recorder, core.catalog, core.healths)
    return Feature(operations=AdviceRoutes(catalog=core.catalog, advice=advice).operations(), advisor=advice)
