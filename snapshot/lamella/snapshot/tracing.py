"""Exports traces with OpenTelemetry's SDK and its own environment variables.

Nothing here is loaded unless traces are enabled; the SDK and the exporter come with ``lamella[telemetry]``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from lamella.snapshot.errors import InvalidRequest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

#: Maximum time to send the last spans when a process ends, in seconds.
_LAST_S: Final = 5.0
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def open_provider(service: str) -> TracerProvider:
    """Returns a provider whose spans are sent by OTLP over HTTP, in the background and in batches.

    ``service`` is the process's name unless ``OTEL_SERVICE_NAME`` is set. Endpoint, headers, sampler, limits, batches
    and the resource come from the standard variables. Nothing is registered for the whole process.

    Raises:
        InvalidRequest: the packages are not installed, or a variable requests another exporter or protocol.
    """
    from importlib import metadata

    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"traces require {error.name}: pip install 'lamella[telemetry]'") from error
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if exporter not in ("otlp", "none"):
        raise InvalidRequest(f"OTEL_TRACES_EXPORTER is {exporter!r}; use otlp or none")
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol.strip().lower() != "http/protobuf":
        raise InvalidRequest(
            f"spans can only be sent with http/protobuf, not with {protocol!r}; see OTEL_EXPORTER_OTLP_PROTOCOL"
        )
    own = {"service.name": service, "service.version": metadata.version("lamella")}
    given = OTELResourceDetector().detect().attributes
    resource = Resource.create({name: value for name, value in own.items() if name not in given})
    # Ended by :func:`close_provider`, which does not wait for long.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter == "otlp":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def close_provider(provider: TracerProvider) -> None:
    """Send the remaining spans within a few seconds; a collector that does not answer does not delay the exit."""
    ending = threading.Thread(target=provider.shutdown, name="lamella-last-spans", daemon=True)
    ending.start()
    ending.join(_LAST_S)
