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
    summary="Has the service started",
    tag="Operations",
    description="The catalog has the schema of this release, the warehouse can be reached and lets nobody "
    "replace an object. Once that was so it stays so.",
    answer_type=Health,
    errors=(Unavailable, StoreError),
)

LIVE: Final = Operation(
    name="live",
    method="GET",
    path="/health/live",
    permission=PUBLIC,
    summary="Is the process alive",
    tag="Operations",
    answer_type=Health,
)

READY: Final = Operation(
    name="ready",
    method="GET",
    path="/health/ready",
    permission=PUBLIC,
    summary="Can requests be served",
    tag="Operations",
    description="The catalog and the warehouse answer and take writes, and the process is not being "
    "stopped. Both are asked once a second at most, and to write every `ready_write_interval_s` at most, "
    "however many ask this; a part that does not answer within `ready_timeout_s` is a 503.",
    answer_type=Health,
    errors=(Unavailable, StoreError),
)

METRICS: Final = Operation(
    name="metrics",
    method="GET",
    path="/metrics",
    permission=on_server("read"),
    summary="Prometheus metrics",
    tag="Operations",
    answer_type=Nothing,
    media_type="text/plain",
)

CONFIG: Final = Operation(
    name="config",
    method="GET",
    path="/v1/config",
    permission=AUTHENTICATED,
    summary="Look at the service's version and limits",
    tag="Operations",
    description="`idempotency_ttl_s` is how long an answer can be replayed by its Idempotency-Key.",
    answer_type=ServiceConfig,
)
