"""``max_ms``: about how long one request works at a task that others go on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.patience import left_s

#: How long when a request does not say, and at most, in milliseconds; the step at hand is finished.
DEFAULT_MS: Final = 5_000.0
MOST_MS: Final = 60_000.0
_WORKED: Final = 0.8


def time_is_up(max_ms: float | None, timer: Callable[[], float]) -> Callable[[], bool]:
    """Tells, from now on, whether the time of a request is over; ``timer`` gives seconds.

    Some of the time that somebody waits for it is left for its last step and the answer.

    Raises InvalidRequest for a ``max_ms`` that cannot be.
    """
    if max_ms is not None and not 0 < max_ms <= MOST_MS:
        raise InvalidRequest(f"max_ms is above 0 and up to {MOST_MS:.0f}, not {max_ms}", parameter="max_ms")
    budget_s = (DEFAULT_MS if max_ms is None else max_ms) / 1_000
    waited_for_s = left_s()
    if waited_for_s is not None:
        budget_s = min(budget_s, _WORKED * waited_for_s)
    deadline_s = timer() + budget_s
    return lambda: timer() >= deadline_s
