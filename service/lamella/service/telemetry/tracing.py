"""Traces: which part of a request took how long. Nothing is done, and nothing loaded, where they are off.

Names of spans and attributes are few, and written in the code. Values are numbers, ids, words of our own and the names
of tables: never a filter, a location, a message of an error, or anything else that may hold what is in a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NewType, Protocol

from lamella.service.catalog.engine import CatalogListener, CatalogOperation, CatalogOutcome
from lamella.snapshot.prune.result import PruneResult
from lamella.snapshot.storage.observed import StoreListener, StoreOperation, StoreOutcome

Value = str | int | float | bool

#: Where in a trace something happens, to be told to those who go on with it elsewhere.
SpanContext = NewType("SpanContext", object)


class Span(Protocol):
    """A part of a request that is under way."""

    def note(self, attributes: Mapping[str, Value]) -> None:
        """Say more of it."""

    def event(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        """Something that happened in it, so many seconds after it began."""

    def fail(self, code: str) -> None:
        """It did not succeed; ``code`` says why, in a word."""


class Request(Protocol):
    """A request that is being served. ``trace_id``: in hex, None where nobody could find anything by it."""

    trace_id: str | None
    is_recorded: bool

    def enter(self) -> None:
        """From now on the caller's context is in this request."""

    def leave(self) -> None:
        """No longer."""

    def end(self, name: str, attributes: Mapping[str, Value], *, error: str | None) -> None:
        """It is over; ``error``: and the service failed to do what it should."""


_NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class Traces:
    """Where spans go: nowhere, unless a class below sends them. Safe to share between threads.

    A span belongs to what the caller's context is in. ``is_on``: whether there ever is a trace.
    """

    is_on = False

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> AbstractContextManager[Span | None]:  # noqa: ARG002
        """A part that begins now and ends with the block; None: nobody wants to know."""
        return _NOTHING

    def done(self, name: str, took_s: float, attributes: Mapping[str, Value], *, error: str | None = None) -> None:
        """Tell of a part that has just ended, ``error``: and failed."""

    def here(self) -> SpanContext | None:
        """Where the caller is; None: in no trace that anybody wants to know of."""
        return None

    def for_all(
        self,
        places: Sequence[SpanContext | None],  # noqa: ARG002
        name: str,  # noqa: ARG002
        attributes: Mapping[str, Value],  # noqa: ARG002
    ) -> AbstractContextManager[Span | None]:
        """A part of several requests at once: of the first one that is traced, and linked to the others."""
        return _NOTHING

    def waited(self, place: SpanContext | None, name: str, took_s: float) -> None:
        """Tell of a wait elsewhere that has just ended."""

    def request(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Request | None:  # noqa: ARG002
        """Begin with a request, in the trace that its headers name if they do; None: traces are off."""
        return None

    def close(self) -> None:
        """Send what is left."""


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

    def connection_awaited(self, took_s: float, /, *, timed_out: bool) -> None:
        """A wait for a connection of the pool is over."""
        self._catalog.connection_awaited(took_s, timed_out=timed_out)
        if timed_out:
            self._traces.done("catalog wait", took_s, {}, error="unavailable")


def describe_prune(span: Span, found: PruneResult | None) -> None:
    """``found`` None: it would have taken too long on the event loop, and is done in a thread instead."""
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
