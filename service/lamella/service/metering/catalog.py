"""Calls of the catalog's database, and its pool of connections."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from lamella.service.catalog.observed import CatalogOperation, CatalogOutcome
from lamella.service.metering.bounds import CALL_S


class CatalogMetrics:
    """Implements :class:`~lamella.service.catalog.observed.CatalogListener`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "lamella_catalog_seconds",
            "Time that statements and commits of the catalog's database took, by how they ended.",
            ("operation", "outcome"),
            buckets=CALL_S,
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "lamella_catalog_wait_seconds",
            "Time until a connection of the catalog's pool was had.",
            buckets=CALL_S,
            registry=registry,
        )
        self.pool_timeouts = Counter(
            "lamella_catalog_pool_timeouts",
            "Waits for a connection of the catalog's pool that were given up, since all were in use.",
            registry=registry,
        )
        self.in_use = Gauge(
            "lamella_catalog_connections_in_use",
            "Connections of the catalog's pool that are in use.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.most = Gauge(
            "lamella_catalog_connections_max",
            "Connections that the catalog's pool may have.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._timed: dict[tuple[CatalogOperation, CatalogOutcome], Histogram] = {}

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """Count one statement or commit."""
        timed = self._timed.get((operation, outcome))
        if timed is None:
            timed = self._timed[operation, outcome] = self.seconds.labels(operation, outcome)
        timed.observe(took_s)

    def connection_awaited(self, took_s: float, /, *, in_vain: bool) -> None:
        """Count one wait for a connection."""
        self.wait_seconds.observe(took_s)
        if in_vain:
            self.pool_timeouts.inc()

    def pool(self, in_use: int, most: int) -> None:
        """Note how much of the pool is in use."""
        self.in_use.set(in_use)
        self.most.set(most)
