"""How long a request may take, and how long it may work at a task that others go on with.

What only reads is given up then (:mod:`lamella.snapshot.concurrency`). A change is never given up half-way: it has
a time by which it must have begun, ``commit_deadline_s``, or what its client says if that is less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from starlette.types import Scope

from lamella.snapshot.concurrency import left_s, wait_until
from lamella.snapshot.errors import InvalidRequest

_HEADER: Final = b"lamella-timeout-ms"
MAX_TIMEOUT_MS: Final = 86_400_000
_BEGIN_UNTIL: Final[ContextVar[float | None]] = ContextVar("lamella_begin_until", default=None)


def requested_s(scope: Scope) -> float | None:
    """How long the client waits, by its header, in seconds; None: it does not say. Raises InvalidRequest."""
    for name, value in scope["headers"]:
        if name == _HEADER:
            if not (value.isdigit() and len(value) <= 9 and 1 <= int(value) <= MAX_TIMEOUT_MS):
                text = f"Lamella-Timeout-Ms is a number from 1 to {MAX_TIMEOUT_MS}"
                raise InvalidRequest(text, parameter="Lamella-Timeout-Ms")
            return int(value) / 1000
    return None


def begin_read(max_s: float, asked: float | None) -> None:
    """From now on, in this context, work that only reads has so long at most."""
    wait_until(time.monotonic() + (max_s if asked is None else min(max_s, asked)))


def begin_change(asked: float | None) -> None:
    """From now on, in this context, a change must have begun within that time (None: the service's own)."""
    _BEGIN_UNTIL.set(None if asked is None else time.monotonic() + asked)


def begin_left_s() -> float | None:
    """How much longer the change at hand may wait before it begins, in seconds, not below 0; None: as long as it
    takes."""
    until_s = _BEGIN_UNTIL.get()
    return None if until_s is None else max(0.0, until_s - time.monotonic())


def begin_within_s(max_s: float) -> float:
    """The same, ``max_s`` at most."""
    within_s = begin_left_s()
    return max_s if within_s is None else min(max_s, within_s)


def end() -> None:
    """From now on, in this context, nothing is known of any time: the request is over."""
    wait_until(None)
    _BEGIN_UNTIL.set(None)


#: How long when a request does not say, and at most, in milliseconds; the step at hand is finished.
DEFAULT_MS: Final = 5_000.0
MAX_WORK_MS: Final = 60_000.0
_WORKED: Final = 0.8


def time_is_up(max_ms: float | None, timer: Callable[[], float]) -> Callable[[], bool]:
    """Tells, from now on, whether the time of a request is over; ``timer`` gives seconds.

    Some of the time that somebody waits for it is left for its last step and the answer.

    Raises InvalidRequest for a ``max_ms`` that cannot be.
    """
    if max_ms is not None and not 0 < max_ms <= MAX_WORK_MS:
        raise InvalidRequest(f"max_ms is above 0 and up to {MAX_WORK_MS:.0f}, not {max_ms}", parameter="max_ms")
    budget_s = (DEFAULT_MS if max_ms is None else max_ms) / 1_000
    waited_for_s = left_s()
    if waited_for_s is not None:
        budget_s = min(budget_s, _WORKED * waited_for_s)
    deadline_s = timer() + budget_s
    return lambda: timer() >= deadline_s
