"""Identifiers: UUID version 7, from a clock and a source of randomness that are arguments.

A v7 id starts with its Unix time in milliseconds, so object names sort by age (RFC 9562, section 5.7).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable


def unix_ms() -> int:
    """Returns the wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Ids:
    """A source of v7 ids that are monotonic within one process, even if the clock is not."""

    def __init__(self, clock: Callable[[], int] = unix_ms, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last_ms = 0

    def new(self) -> uuid.UUID:
        """Returns a new id."""
        with self._lock:
            self._last_ms = max(self._last_ms, self._clock())
            now_ms = self._last_ms
        return uuid7(now_ms, self._entropy(10))


def uuid7(at_ms: int, entropy: bytes) -> uuid.UUID:
    """Returns the v7 id of a time (Unix milliseconds, 48 bits) and ten random bytes."""
    value = (at_ms & (1 << 48) - 1) << 80 | int.from_bytes(entropy[:10], "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def canonical_id(text: str) -> str | None:
    """Returns an id in canonical spelling; None for text that is not a UUID in any spelling."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def is_uuid7(text: str) -> bool:
    """Returns whether ``text`` is a v7 UUID in canonical spelling."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return False
    return parsed.version == 7 and str(parsed) == text.lower()
