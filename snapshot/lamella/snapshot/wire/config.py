"""What a service tells of itself before anything else is asked."""

from __future__ import annotations

import msgspec


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``idempotency_ttl_s``: how long an answer can be replayed by its key; limits are those of one request."""

    version: str
    idempotency_ttl_s: int
    max_body_bytes: int
    page_size_max: int
