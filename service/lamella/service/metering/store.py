"""Calls of the object store."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from lamella.service.metering.bounds import CALL_S
from lamella.snapshot.layout.observed import StoreOperation, StoreOutcome


class StoreMetrics:
    """Implements :class:`~lamella.snapshot.layout.observed.StoreListener`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "lamella_store_seconds",
            "Time that calls of the object store took, by how they ended.",
            ("operation", "outcome"),
            buckets=CALL_S,
            registry=registry,
        )
        self.read_bytes = Counter("lamella_store_read_bytes", "Bytes read from the object store.", registry=registry)
        self.written_bytes = Counter(
            "lamella_store_written_bytes", "Bytes written to the object store.", registry=registry
        )
        # Finding a metric by its labels costs more than counting.
        self._timed: dict[tuple[StoreOperation, StoreOutcome], Histogram] = {}

    def store_called(
        self,
        operation: StoreOperation,
        outcome: StoreOutcome,
        took_s: float,
        /,
        *,
        read_bytes: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Count one call."""
        timed = self._timed.get((operation, outcome))
        if timed is None:
            timed = self._timed[operation, outcome] = self.seconds.labels(operation, outcome)
        timed.observe(took_s)
        if read_bytes:
            self.read_bytes.inc(read_bytes)
        if written_bytes:
            self.written_bytes.inc(written_bytes)
