"""Identifiers: UUID version 7, from a clock and a source of randomness that are arguments.

A v7 id starts with its Unix time in milliseconds, so object names sort by age (RFC 9562, section 5.7).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final


def unix_ms() -> int:
    """Returns the wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


_RANDOM_BITS: Final = 74
_LOW: Final = (1 << 62) - 1


class Ids:
    """A source of v7 ids of which each is greater than those before it, even if the clock is not. Of one process."""

    def __init__(self, clock: Callable[[], int] = unix_ms, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last_ms = 0
        self._last_random = -1

    def new(self) -> uuid.UUID:
        """Returns a new id."""
        return uuid.UUID(int=self._new())

    def new_text(self) -> str:
        """Returns the canonical spelling of a new id, in half the time."""
        digits = f"{self._new():032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _new(self) -> int:
        with self._lock:
            now_ms = max(self._last_ms, self._clock())
            random = _random_of(self._entropy(10))
            if now_ms == self._last_ms and random <= self._last_random:
                # RFC 9562, section 6.2, method 2.
                random = self._last_random + 1 + int.from_bytes(self._entropy(4), "big")
            now_ms, random = now_ms + (random >> _RANDOM_BITS), random & (1 << _RANDOM_BITS) - 1
            self._last_ms, self._last_random = now_ms, random
        return _uuid7(now_ms, random)


def uuid7(at_ms: int, entropy: bytes) -> uuid.UUID:
    """Returns the v7 id of a time (Unix milliseconds, 48 bits) and ten random bytes."""
    return uuid.UUID(int=_uuid7(at_ms, _random_of(entropy)))


def _random_of(entropy: bytes) -> int:
    """Returns the bits of ten random bytes that an id has room for: 12 before the variant, and 62 after it."""
    whole = int.from_bytes(entropy[:10], "big")
    return (whole >> 64 & 0xFFF) << 62 | whole & _LOW


def _uuid7(at_ms: int, random: int) -> int:
    high = (at_ms & (1 << 48) - 1) << 16 | 0x7 << 12 | random >> 62
    return high << 64 | 0x2 << 62 | random & _LOW


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
