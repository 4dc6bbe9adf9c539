"""``max_ms``: about how long one request works at a task that others go on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lamella.snapshot.errors import InvalidRequest

#: How long when a request does not say, and at most, in milliseconds; the step at hand is finished.
DEFAULT_MS: Final = 5_000.0
MOST_MS: Final = 60_000.0


def time_is_up(max_ms: float | None, timer: Callable[[], float]) -> Callable[[], bool]:
    """Tells, from now on, whether the time of a request is over; ``timer`` gives seconds.

    Raises InvalidRequest for a ``max_ms`` that cannot be.
    """
    if max_ms is not None and not 0 < max_ms <= MOST_MS:
        raise InvalidRequest(f"max_ms is above 0 and up to {MOST_MS:.0f}, not {max_ms}", parameter="max_ms")
    deadline_s = timer() + (DEFAULT_MS if max_ms is None else max_ms) / 1_000
    return lambda: timer() >= deadline_s
