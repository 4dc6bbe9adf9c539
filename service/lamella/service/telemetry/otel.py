"""Traces by OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lamella.service.http.problem import status_of
from lamella.service.telemetry.tracing import Request, Span, SpanContext, Traces, Value
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.tracing import close_provider

#: Spans of calls that one request has at most: a registration of 10,000 files would have some 30,000.
_MAX_CALLS: Final = 256
#: Longer ones are no headers of W3C's.
_LONGEST_HEADER: Final = 512
_CARRIED: Final = (b"traceparent", b"tracestate")
_W3C: Final = TraceContextTextMapPropagator()
_NOTHING: Final[AbstractContextManager[None]] = nullcontext()
_INTERNAL: Final = trace.SpanKind.INTERNAL
_CLIENT: Final = trace.SpanKind.CLIENT


class _At:
    """A span that is recorded, as the parent of others. ``calls_left``: shared by all parts of a request."""

    __slots__ = ("calls_left", "context", "left_out", "root", "span")

    def __init__(self, span: trace.Span, root: _At | None) -> None:
        self.span = span
        self.context = trace.set_span_in_context(span, Context())
        self.root = self if root is None else root
        self.calls_left = _MAX_CALLS
        self.left_out = 0


#: What the caller is in; nothing where the request is not recorded, so that all else ends here.
_HERE: ContextVar[_At | None] = ContextVar("lamella_here", default=None)


class _Part:
    """A span as the service sees it."""

    def __init__(self, span: trace.Span, began_ns: int) -> None:
        self._span = span
        self._began_ns = began_ns

    def note(self, attributes: Mapping[str, Value]) -> None:
        """Say more of it."""
        self._span.set_attributes(dict(attributes))

    def event(self, name: str, at_s: float, attributes: Mapping[str, Value]) -> None:
        """Something that happened in it."""
        self._span.add_event(name, dict(attributes), timestamp=self._began_ns + int(at_s * 1e9))

    def fail(self, code: str) -> None:
        """It did not succeed."""
        _fail(self._span, code)


class OtelTraces(Traces):
    """Traces that go to a provider of OpenTelemetry's SDK, which is closed with them."""

    is_on = True

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("lamella.service")

    def span(self, name: str, attributes: Mapping[str, Value] | None = None) -> AbstractContextManager[Span | None]:
        """A part that begins now and ends with the block."""
        here = _HERE.get()
        return _NOTHING if here is None else self._under(here, name, attributes or {}, ())

    def done(self, name: str, took_s: float, attributes: Mapping[str, Value], *, error: str | None = None) -> None:
        """Tell of a part that has just ended."""
        here = _HERE.get()
        if here is None:
            return
        root = here.root
        if root.calls_left <= 0:
            root.left_out += 1
            return
        root.calls_left -= 1
        self._past(here, name, took_s, attributes, error, _CLIENT)

    def here(self) -> SpanContext | None:
        """Where the caller is."""
        here = _HERE.get()
        return None if here is None else SpanContext(here)

    def for_all(
        self, span_contexts: Sequence[SpanContext | None], name: str, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span | None]:
        """A part of several requests at once."""
        traced = [cast("_At", span_context) for span_context in span_contexts if span_context is not None]
        if not traced:
            return _NOTHING
        links = [trace.Link(other.span.get_span_context()) for other in traced[1:]]
        return self._under(traced[0], name, attributes, links, is_root=True)

    def waited(self, span_context: SpanContext | None, name: str, took_s: float) -> None:
        """Tell of a wait elsewhere that has just ended."""
        if span_context is not None:
            self._past(cast("_At", span_context), name, took_s, {}, None, _INTERNAL)

    def request(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Request:
        """Begin with a request."""
        context = Context()
        carried = [(name, value) for name, value in headers if name in _CARRIED]
        if carried:
            context = _carried(carried)
        began_ns = time.time_ns()
        span = self._tracer.start_span(method, context, kind=trace.SpanKind.SERVER, start_time=began_ns)
        return _Request(span, is_given=bool(context))

    def close(self) -> None:
        """Send what is left."""
        close_provider(self._provider)

    @contextmanager
    def _under(
        self,
        parent: _At,
        name: str,
        attributes: Mapping[str, Value],
        links: Sequence[trace.Link],
        *,
        is_root: bool = False,
    ) -> Iterator[Span]:
        began_ns = time.time_ns()
        # Messages of exceptions may hold what was asked, so they are not recorded.
        span = self._tracer.start_span(
            name,
            parent.context,
            attributes=dict(attributes),
            links=links,
            start_time=began_ns,
            record_exception=False,
            set_status_on_exception=False,
        )
        at = _At(span, None if is_root else parent.root)
        token = _HERE.set(at)
        try:
            yield _Part(span, began_ns)
        except LamellaError as error:
            span.set_attribute("lamella.code", error.code)
            if status_of(type(error)) >= 500:
                _fail(span, error.code)
            raise
        except BaseException as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            _HERE.reset(token)
            if is_root:
                _record_left_out(at)
            span.end()

    def _past(
        self,
        parent: _At,
        name: str,
        took_s: float,
        attributes: Mapping[str, Value],
        error: str | None,
        kind: trace.SpanKind,
    ) -> None:
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            name, parent.context, kind=kind, attributes=dict(attributes), start_time=now_ns - int(took_s * 1e9)
        )
        if error is not None:
            _fail(span, error)
        span.end(now_ns)


class _Request:
    """A request; see :class:`~lamella.service.telemetry.tracing.Request`."""

    def __init__(self, span: trace.Span, *, is_given: bool) -> None:
        self._span = span
        self.is_recorded = span.is_recording()
        # Of a trace that begins here and is not recorded, nobody else ever hears.
        self.trace_id = None
        if self.is_recorded or is_given:
            self.trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        self._at = _At(span, None) if self.is_recorded else None
        self._token: Token[_At | None] | None = None

    def enter(self) -> None:
        """From now on the caller's context is in this request."""
        self._token = _HERE.set(self._at)

    def leave(self) -> None:
        """No longer."""
        if self._token is not None:
            _HERE.reset(self._token)

    def end(self, name: str, attributes: Mapping[str, Value], *, error: str | None) -> None:
        """It is over."""
        if self._at is not None:
            self._span.update_name(name)
            self._span.set_attributes(dict(attributes))
            if error is not None:
                _fail(self._span, error)
            _record_left_out(self._at)
        self._span.end()


def _record_left_out(at: _At) -> None:
    if at.left_out:
        at.span.set_attribute("lamella.spans_left_out", at.left_out)


def _fail(span: trace.Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(trace.StatusCode.ERROR)


def _carried(headers: Iterable[tuple[bytes, bytes]]) -> Context:
    """The context that W3C's headers name; an empty one when they are not what they should be."""
    given: dict[str, list[str]] = {}
    for name, value in headers:
        if len(value) <= _LONGEST_HEADER:
            given.setdefault(name.decode(), []).append(value.decode("latin-1"))
    if len(given.get("traceparent", ())) != 1:
        return Context()
    return _W3C.extract(given, Context())
