"""Traces: which part of a request took how long. Nothing is done, and nothing loaded, where they are off."""

from lamella.service.tracing.calls import TracedCalls
from lamella.service.tracing.opening import open_traces
from lamella.service.tracing.port import Place, Span, Traces, Untraced, Value
from lamella.service.tracing.prunes import tell_of_prune

__all__ = ["Place", "Span", "TracedCalls", "Traces", "Untraced", "Value", "open_traces", "tell_of_prune"]
