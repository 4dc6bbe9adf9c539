"""Traces of this process, by OpenTelemetry: those of an application that has them, or of a command of ours.

An application that traces has loaded OpenTelemetry by itself. Where nobody has, nothing is loaded and nothing is done.
Commands send traces when ``LAMELLA_TRACES`` is true, as a part of the trace that ``TRACEPARENT`` names. What stands in
spans are words of our own, numbers and ids: never arguments, filters or messages of errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from lamella.snapshot.tracing import close_provider, open_provider

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

#: Says whether commands send traces.
VARIABLE: Final = "LAMELLA_TRACES"
_TRUE: Final = ("1", "on", "t", "true", "y", "yes")
_SCOPE: Final = "lamella.client"
#: How a trace is handed to another process; the names of W3C's headers, as variables are written.
_CARRIED: Final = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}

#: Of the command that this process runs.
_own: TracerProvider | None = None


def tracer() -> Tracer | None:
    """What makes spans; None: nobody here has traces."""
    if _own is not None:
        return _own.get_tracer(_SCOPE)
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    return trace.get_tracer(_SCOPE)


def carried(context: Context | None = None) -> dict[str, str]:
    """The headers that take a trace along, the caller's own for None; empty when there is none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, context)
    return headers


@contextmanager
def process_traces(service: str) -> Iterator[None]:
    """Send what this process does until the block ends, if the environment wants that.

    Raises:
        InvalidRequest: it does, and it cannot be done.
    """
    global _own  # there is one process
    if os.environ.get(VARIABLE, "").strip().lower() not in _TRUE or _own is not None:
        yield
        return
    provider = _own = open_provider(service)
    try:
        yield
    finally:
        _own = None
        close_provider(provider)


@contextmanager
def part(name: str, attributes: Mapping[str, Any]) -> Iterator[Span | None]:
    """A span of this process's command around a block, in the trace that the environment names; None: none are sent."""
    if _own is None:
        yield None
        return
    from opentelemetry import context as contexts
    from opentelemetry import trace

    span = _own.get_tracer(_SCOPE).start_span(name, _above(), attributes=dict(attributes))
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        fail(span, error)
        raise
    finally:
        contexts.detach(token)
        span.end()


def fail(span: Span, error: BaseException | str) -> None:
    """Say that what a span stands for did not succeed, and why in a word."""
    from opentelemetry.trace import StatusCode

    word = error if isinstance(error, str) else str(getattr(error, "code", type(error).__name__))
    span.set_attribute("error.type", word)
    span.set_status(StatusCode.ERROR)


def environment() -> dict[str, str]:
    """Variables that let a program go on with the caller's trace; empty when there is none."""
    if _own is None:
        return {}
    headers = carried()
    return {variable: headers[name] for name, variable in _CARRIED.items() if name in headers}


def _above() -> Context | None:
    """The caller's context when it is in a trace, else what the environment names."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if trace.get_current_span().get_span_context().is_valid:
        return None
    given: dict[str, Any] = {name: os.environ[v] for name, v in _CARRIED.items() if v in os.environ}
    return TraceContextTextMapPropagator().extract(given)
