"""Traces: the duration of each part of a request. If they are off, nothing is done or loaded.

There are few names of spans and attributes, and all are constants. Values are numbers, ids, constants and table names:
never a filter, a location, an error message, or anything else that may contain table data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NewType, Protocol

from lamella.service.catalog.engine import CatalogListener, CatalogOperation, CatalogOutcome
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.storage.observed import StoreListener, StoreOperation, StoreOutcome

Value = str | int | float | bool

#: The position in a trace, to be passed to code that continues it elsewhere.
SpanContext = NewType("SpanContext", object)


class Span(Protocol):
    """A part of a running request."""

    def note(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes."""

    def event(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        """Add an event, at a number of seconds after the span began."""

    def fail(self, code: str) -> None:
        """Mark the span as failed; ``code`` is the error code."""


class Request(Protocol):
    """A request that is being served. ``trace_id``: in hexadecimal; None if the trace is not recorded."""

    trace_id: str | None
    is_recorded: bool

    def enter(self) -> None:
        """Make this request the current one in the caller's context."""

    def leave(self) -> None:
        """Undo :meth:`enter`."""

    def end(self, name: str, attributes: Mapping[str, Value], *, error: str | None) -> None:
        """End the request; ``error``: the service failed."""


_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Traces:
    """The destination of spans: none, unless a subclass sends them. Safe to share between threads.

    A span belongs to the current span of the caller's context. ``is_on``: whether traces are enabled.
    """

    is_on = False

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> AbstractContextManager[Span | None]:  # noqa: ARG002
        """A span that begins now and ends with the block; None: it is not recorded."""
        return _NOTHING

    def done(self, name: str, took_s: float, attributes: Mapping[str, Value], *, error: str | None = None) -> None:
        """Record a span that has just ended; ``error``: it failed."""

    def here(self) -> SpanContext | None:
        """The caller's position in a trace; None: it is in no recorded trace."""
        return None

    def for_all(
        self,
        span_contexts: Sequence[SpanContext | None],  # noqa: ARG002
        name: str,  # noqa: ARG002
        attributes: Mapping[str, Value],  # noqa: ARG002
    ) -> AbstractContextManager[Span | None]:
        """A span of several requests: a child of the first one that is traced, with links to the others."""
        return _NOTHING

    def waited(self, span_context: SpanContext | None, name: str, took_s: float) -> None:
        """Record a wait elsewhere that has just ended."""

    def request(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Request | None:  # noqa: ARG002
        """Begin a request, in the trace of its headers if there is one; None: traces are off."""
        return None

    def close(self) -> None:
        """Send the remaining spans."""


class TracedCalls:
    """Reports calls to the metrics and to the current trace."""

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
        """A call to the store has ended."""
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
        """A call to the catalog's database has ended."""
        self._catalog.catalog_called(operation, outcome, took_s)
        if self._traces.here() is None:
            return
        self._traces.done(
            f"catalog {operation}",
            took_s,
            {"lamella.catalog.outcome": outcome},
            error="unavailable" if outcome == "failed" else None,
        )

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """A wait for a connection of the pool has ended."""
        self._catalog.connection_awaited(took_s, timed_out=timed_out)
        if timed_out:
            self._traces.done("catalog wait", took_s, {}, error="unavailable")


def describe_prune(span: Span, found: PruneResult | None) -> None:
    """Describe a prune in its span. ``found`` None: it would take too long on the event loop, and runs in a thread."""
    if found is None:
        span.note({"lamella.prune.is_postponed": True})
        return
    answer = found.answer
    report = answer.report
    span.note(
        {
            "lamella.snapshot_id": answer.snapshot_id,
            "lamella.prune.blocks": found.block_count,
            "lamella.prune.is_complete": answer.complete,
            "lamella.prune.not_used": len(report.not_used),
        }
    )
    passed_s = 0.0
    for stage in report.stages:
        passed_s += stage.ms / 1000
        span.event(
            stage.stage,
            passed_s,
            {
                "lamella.prune.considered": stage.considered,
                "lamella.prune.kept": stage.kept,
                "lamella.prune.kept_bytes": stage.bytes,
                "lamella.prune.ms": stage.ms,
            },
        )
