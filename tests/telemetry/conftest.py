"""Where spans go in tests: into memory, or to a collector of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from lamella.client import tracing
from support.collector import Collector
from support.recorded_spans import Recorded


@pytest.fixture
def recorded() -> Recorded:
    """What a service records."""
    return Recorded()


@pytest.fixture
def client_spans(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """What this process's clients record, as if it were a command that sends traces."""
    spans = Recorded()
    monkeypatch.setattr(tracing, "_own", spans.provider)
    return spans


@pytest.fixture
def untraced_client(monkeypatch: pytest.MonkeyPatch) -> TracerProvider | None:
    """This process has no traces of its own."""
    monkeypatch.setattr(tracing, "_own", None)
    return None


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that processes which are started from now on send to, soon and all they have."""
    with Collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running
