"""``Idempotency-Key``: a mutation that is asked for twice happens once, and both answers are the same.

The answer is stored in the transaction that makes the change, so there is no moment at which one is there without
the other. An answer that changed nothing (any error) is not stored: asking again cannot do harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from lamella.service.catalog import Catalog, StoredAnswer
from lamella.snapshot.errors import IdempotencyMismatch, InvalidRequest, LamellaError, Unavailable

MAX_KEY_LENGTH: Final = 255


class Sealed(msgspec.Struct, frozen=True):
    """An answer as it will be sent, and the row that keeps it, if the request had a key."""

    status: int
    body: bytes
    stored: StoredAnswer | None = None
    replayed: bool = False


class Claim(msgspec.Struct, frozen=True):
    """A mutation's key (None: the client gave none), where it was used, and the hash of what it asked for."""

    key: str | None
    scope: str
    request_sha256: str
    now_ms: int

    def seal(self, status: int, value: object = None) -> Sealed:
        """The answer ``value`` (None: no body) with the row to be stored beside the change."""
        body = b"" if value is None else msgspec.json.encode(value)
        if self.key is None:
            return Sealed(status, body)
        stored = StoredAnswer(
            key=self.key,
            scope=self.scope,
            request_sha256=self.request_sha256,
            status=status,
            body=body,
            created_at_ms=self.now_ms,
        )
        return Sealed(status, body, stored)


def claim(key: str | None, method: str, path: str, body: bytes, now_ms: int) -> Claim:
    """Read the header's value.

    Raises:
        InvalidRequest: empty, longer than 255 characters, or not printable ASCII.
    """
    if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"an Idempotency-Key is 1 to {MAX_KEY_LENGTH} printable ASCII characters")
    return Claim(key, f"{method} {path}", hashlib.sha256(body).hexdigest(), now_ms)


def once(catalog: Catalog, request: Claim, work: Callable[[], Sealed]) -> Sealed:
    """Do ``work`` unless it was done under this key before; then answer as then.

    A second request may run beside the first. At most one of them commits; the other one fails in some way (the
    name exists, the blocks are there, the key is taken) and then finds the first one's answer here.

    Raises:
        IdempotencyMismatch: the key belongs to another request.
    """
    if request.key is None:
        return work()
    earlier = _replay(catalog, request, request.key)
    if earlier is not None:
        return earlier
    try:
        return work()
    except LamellaError as error:
        try:
            earlier = _replay(catalog, request, request.key)
        except Unavailable:
            raise error from error.__cause__  # what is known of the change matters more than this failure
        if earlier is None:
            raise
        return earlier


def _replay(catalog: Catalog, request: Claim, key: str) -> Sealed | None:
    stored = catalog.answer(key, request.scope)
    if stored is None:
        return None
    if stored.request_sha256 != request.request_sha256:
        raise IdempotencyMismatch("the Idempotency-Key was used for another request", key=key)
    return Sealed(stored.status, stored.body, replayed=True)
