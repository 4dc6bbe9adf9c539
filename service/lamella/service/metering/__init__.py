"""Parts of the metrics: one class for each part of the service that is watched. See docs/metrics.md."""

from lamella.service.metering.catalog import CatalogMetrics
from lamella.service.metering.limits import LimitMetrics
from lamella.service.metering.memory import MemoryMetrics
from lamella.service.metering.process import ProcessMetrics
from lamella.service.metering.store import StoreMetrics

__all__ = ["CatalogMetrics", "LimitMetrics", "MemoryMetrics", "ProcessMetrics", "StoreMetrics"]
