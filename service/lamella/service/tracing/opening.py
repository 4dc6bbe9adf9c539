"""Traces as the settings want them."""

from __future__ import annotations

from lamella.service.settings import Settings
from lamella.service.tracing.port import Traces, Untraced
from lamella.snapshot.tracing import open_provider


def open_traces(settings: Settings) -> Traces:
    """Raises InvalidRequest when they are on and cannot be sent."""
    if not settings.traces:
        return Untraced()
    provider = open_provider("lamella")
    from lamella.service.tracing.spans import OtelTraces  # here, since its packages are an extra

    return OtelTraces(provider)
