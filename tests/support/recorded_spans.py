"""Spans that are kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

_TIMEOUT_S = 60


class Recorded:
    """``provider`` is what records; ``sampler`` says what."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> list[ReadableSpan]:
        """Those that ended, by their beginning."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def names(self) -> list[str]:
        """Of those spans."""
        return [span.name for span in self.spans()]

    def clear(self) -> None:
        """Forget them."""
        self._exporter.clear()

    def one(self, name: str) -> ReadableSpan:
        """The only span of that name, once it has ended."""
        found = self.wait_for(lambda spans: any(span.name == name for span in spans), name)
        named = [span for span in found if span.name == name]
        assert len(named) == 1, [span.name for span in found]
        return named[0]

    def wait_for(self, enough: Callable[[list[ReadableSpan]], bool], what: str) -> list[ReadableSpan]:
        """All spans, once they are enough: what answers a request may end a little before its spans do."""
        give_up_s = time.monotonic() + _TIMEOUT_S
        while not enough(found := self.spans()):
            assert time.monotonic() < give_up_s, (
                f"it did not come to: {what}; there are {[span.name for span in found]}"
            )
            time.sleep(0.005)
        return found


def trace_of(span: ReadableSpan) -> str:
    """The id of its trace, in hex."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    """Its own id, in hex."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    """Its parent's id, in hex; None: it is the first of its trace."""
    return None if span.parent is None else f"{span.parent.span_id:016x}"
