"""Calls of the store and the catalog, counted and traced."""

from __future__ import annotations

from lamella.service.catalog.observed import CatalogListener, CatalogOperation, CatalogOutcome
from lamella.service.tracing.port import Traces, Value
from lamella.snapshot.layout.observed import StoreListener, StoreOperation, StoreOutcome


class TracedCalls:
    """Tells those who count, and the trace that the call is in."""

    def __init__(self, store: StoreListener, catalog: CatalogListener, traces: Traces) -> None:
        self._store = store
        self._catalog = catalog
        self._traces = traces

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
        """A call of the store is over."""
        self._store.store_called(operation, outcome, took_s, read_bytes=read_bytes, written_bytes=written_bytes)
        if self._traces.here() is None:
            return
        attributes: dict[str, Value] = {"lamella.store.outcome": outcome}
        if read_bytes:
            attributes["lamella.store.read_bytes"] = read_bytes
        if written_bytes:
            attributes["lamella.store.written_bytes"] = written_bytes
        error = "store_error" if outcome == "failed" else None
        self._traces.done(f"store {operation}", took_s, attributes, error=error)

    def catalog_called(self, operation: CatalogOperation, outcome: CatalogOutcome, took_s: float, /) -> None:
        """A call of the catalog's database is over."""
        self._catalog.catalog_called(operation, outcome, took_s)
        if self._traces.here() is None:
            return
        self._traces.done(
            f"catalog {operation}",
            took_s,
            {"lamella.catalog.outcome": outcome},
            error="unavailable" if outcome == "failed" else None,
        )

    def connection_awaited(self, took_s: float, /, *, in_vain: bool) -> None:
        """A wait for a connection of the pool is over."""
        self._catalog.connection_awaited(took_s, in_vain=in_vain)
        if in_vain:
            self._traces.done("catalog wait", took_s, {}, error="unavailable")
