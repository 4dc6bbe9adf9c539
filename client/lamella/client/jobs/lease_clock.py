"""The clock by which a worker knows how long a job is its own."""

from __future__ import annotations

import time


def lease_seconds() -> float:
    """Seconds that never go backwards, and where the system can tell also pass while it sleeps.

    A machine that was suspended must not think that its leases did not age; on Linux ``time.monotonic`` stands still
    meanwhile.
    """
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
