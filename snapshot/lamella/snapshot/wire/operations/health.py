"""Health, metrics and limits of the service."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import StoreError, Unavailable
from lamella.snapshot.wire import Health, ServiceConfig
from lamella.snapshot.wire.operation import AUTHENTICATED, PUBLIC, Nothing, Operation, on_server

STARTUP: Final = Operation(
    name="startup",
    method="GET",
    path="/health/startup",
    permission=PUBLIC,
    summary="Check that the service has started",
    tag="Operations",
    description="The catalog has the schema of this release, and the warehouse can be reached and does not allow "
    "objects to be overwritten. After the first success this check always succeeds.",
    answer_type=Health,
    errors=(Unavailable, StoreError),
)

LIVE: Final = Operation(
    name="live",
    method="GET",
    path="/health/live",
    permission=PUBLIC,
    summary="Check that the process is alive",
    tag="Operations",
    answer_type=Health,
)

READY: Final = Operation(
    name="ready",
    method="GET",
    path="/health/ready",
    permission=PUBLIC,
    summary="Check that requests can be served",
    tag="Operations",
    description="The catalog and the warehouse answer and accept writes, and the process is not shutting down. "
    "Regardless of the number of requests, both are checked at most once a second, and with a write at most every "
    "`ready_write_interval_s`. If one does not answer within `ready_timeout_s`, the response is 503.",
    answer_type=Health,
    errors=(Unavailable, StoreError),
)

METRICS: Final = Operation(
    name="metrics",
    method="GET",
    path="/metrics",
    permission=on_server("read"),
    summary="Get Prometheus metrics",
    tag="Operations",
    answer_type=Nothing,
    media_type="text/plain",
)

CONFIG: Final = Operation(
    name="config",
    method="GET",
    path="/v1/config",
    permission=AUTHENTICATED,
    summary="Get the service's version and limits",
    tag="Operations",
    description="`idempotency_ttl_s`: how long an answer can be replayed with its Idempotency-Key, in seconds.",
    answer_type=ServiceConfig,
)
