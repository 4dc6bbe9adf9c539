"""Request deadlines, and time limits for work that is done in parts.

A read is cancelled at its deadline (:mod:`lamella.snapshot.concurrency`). A change is never cancelled half-way: its
deadline is for its start, ``commit_deadline_s``, or the client's timeout if that is shorter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from starlette.types import Scope

from lamella.snapshot.concurrency import time_left_s, wait_until
from lamella.snapshot.errors import InvalidRequest

_HEADER: Final = b"lamella-timeout-ms"
MAX_TIMEOUT_MS: Final = 86_400_000
_BEGIN_UNTIL: Final[ContextVar[float | None]] = ContextVar("lamella_begin_until", default=None)


def requested_s(scope: Scope) -> float | None:
    """Return the client's timeout from its header, in seconds; None without one. Raises InvalidRequest."""
    for name, value in scope["headers"]:
        if name == _HEADER:
            if not (value.isdigit() and len(value) <= 9 and 1 <= int(value) <= MAX_TIMEOUT_MS):
                text = f"Lamella-Timeout-Ms must be a number from 1 to {MAX_TIMEOUT_MS}"
                raise InvalidRequest(text, parameter="Lamella-Timeout-Ms")
            return int(value) / 1000
    return None


def begin_read(max_s: float, timeout_s: float | None) -> None:
    """Set the deadline of a read in this context."""
    wait_until(time.monotonic() + (max_s if timeout_s is None else min(max_s, timeout_s)))


def begin_change(timeout_s: float | None) -> None:
    """Set the deadline for the start of a change in this context (None: the service's own)."""
    _BEGIN_UNTIL.set(None if timeout_s is None else time.monotonic() + timeout_s)


def begin_left_s() -> float | None:
    """Return how long the current change may still wait before it starts, in seconds from 0 on; None: no limit."""
    until_s = _BEGIN_UNTIL.get()
    return None if until_s is None else max(0.0, until_s - time.monotonic())


def begin_within_s(max_s: float) -> float:
    """Return the same, at most ``max_s``."""
    within_s = begin_left_s()
    return max_s if within_s is None else min(max_s, within_s)


def end() -> None:
    """Remove the deadlines of this context: the request has ended."""
    wait_until(None)
    _BEGIN_UNTIL.set(None)


#: Default and maximum in milliseconds; the current step is finished.
DEFAULT_MS: Final = 5_000.0
MAX_WORK_MS: Final = 60_000.0
_WORKED: Final = 0.8


def time_is_up(max_ms: float | None, timer: Callable[[], float]) -> Callable[[], bool]:
    """Return a function that tells whether the request's time is over; ``timer`` returns seconds.

    Some of the time until the deadline is reserved for the last step and the answer.

    Raises InvalidRequest for an invalid ``max_ms``.
    """
    if max_ms is not None and not 0 < max_ms <= MAX_WORK_MS:
        raise InvalidRequest(f"max_ms must be above 0 and up to {MAX_WORK_MS:.0f}, not {max_ms}", parameter="max_ms")
    budget_s = (DEFAULT_MS if max_ms is None else max_ms) / 1_000
    waited_for_s = time_left_s()
    if waited_for_s is not None:
        budget_s = min(budget_s, _WORKED * waited_for_s)
    deadline_s = timer() + budget_s
    return lambda: timer() >= deadline_s
