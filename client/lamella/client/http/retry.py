"""When to try again, and after how long."""

from __future__ import annotations

import datetime as dt
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

#: Statuses that say "not now" rather than "no". 408: the request came too slowly, and nothing was done.
RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long.

    ``attempts`` counts the first try. After the ``n``-th failure the client waits a random part of
    ``min(max_delay_s, base_delay_s * 2**(n - 1))`` ("full jitter", so that many clients do not come back together). A
    ``Retry-After`` is waited for in full on top; one over ``max_retry_after_s`` ends the tries.
    """

    attempts: int = 5
    base_delay_s: float = 0.1
    max_delay_s: float = 5.0
    max_retry_after_s: float = 60.0

    def delay_s(self, failed: int, jitter: float, retry_after_s: float | None = None) -> float | None:
        """The wait after ``failed`` tries, with ``jitter`` from [0, 1); None: give up."""
        if failed >= self.attempts:
            return None
        if retry_after_s is not None and retry_after_s > self.max_retry_after_s:
            return None
        # The exponent is capped: a float overflows long before a patient policy runs out of tries.
        backoff = jitter * min(self.max_delay_s, self.base_delay_s * 2.0 ** min(failed - 1, 60))
        return backoff + (retry_after_s or 0.0)


#: For tests and for callers with a retry loop of their own.
NO_RETRY: Final = RetryPolicy(attempts=1)


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Read a ``Retry-After`` header, seconds or an HTTP date (RFC 9110, section 10.2.3); None when there is none."""
    if value is None:
        return None
    text = value.strip()
    # isdecimal alone would take digits of other scripts
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=dt.UTC)
    return max(0.0, at.timestamp() - now_ms / 1000)
